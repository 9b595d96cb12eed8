//! The batch queue, alone in a harness.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use holoflow_core::storage::{ContractError, Slot};
use holoflow_core::task::{Flow, FrameMeta, HookError, OpResult, TaskErrorKind};
use holoflow_core::tensor::{DType, MemLoc, TDesc};
use holoflow_core::testkit::TaskHarness;
use holoflow_cpu::{
    AtEnd, BatchQueueFactory, BatchQueueSettings, OwnedRateLimiterFactory, QueueOverflow,
};
use serde_json::{Value, json};

/// A frame of `rows` rows of one byte.
fn frame(rows: usize) -> TDesc {
    TDesc::host::<u8>([rows]).unwrap()
}

fn settings(target: usize, size: usize, stride: usize) -> Value {
    json!({ "target_capacity": target, "output_size": size, "output_stride": stride })
}

fn ending(at_end: &str, target: usize, size: usize, stride: usize) -> Value {
    let mut settings = settings(target, size, stride);
    settings["at_end"] = json!(at_end);
    settings
}

fn dropping(policy: &str, target: usize, rows: usize) -> Value {
    let mut settings = settings(target, rows, rows);
    settings["overflow"] = json!(policy);
    settings
}

fn try_queue(
    settings: Value,
    inputs: impl IntoIterator<Item = TDesc>,
) -> Result<TaskHarness, HookError> {
    TaskHarness::asynchronous(&BatchQueueFactory, settings, inputs)
}

fn queue(settings: Value, rows: usize) -> TaskHarness {
    try_queue(settings, [frame(rows)]).unwrap()
}

/// Pushes frames while there is room; how many.
fn fill(task: &mut TaskHarness, frame: &[u8]) -> usize {
    (0..)
        .take_while(|_| task.push(frame).unwrap() == OpResult::Ok)
        .count()
}

/// Pushes the numbers `from` to `to`, `rows` a frame.
fn push_rows(task: &mut TaskHarness, rows: std::ops::Range<u8>, a_frame: usize) {
    let rows: Vec<u8> = rows.collect();
    for frame in rows.chunks(a_frame) {
        task.push(frame).unwrap().expect_ok();
    }
}

/// Pops all there is.
fn drain(task: &mut TaskHarness) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| task.pop().unwrap()).collect()
}

fn update(task: TaskHarness, settings: Value, input: TDesc) -> TaskHarness {
    TaskHarness::builder()
        .update(task, &BatchQueueFactory, settings, [input])
        .unwrap()
}

#[test]
fn bq_01_each_violation_is_refused_by_name() {
    let message = |settings: Value, inputs: Vec<TDesc>| {
        let error = try_queue(settings, inputs).unwrap_err();
        assert!(
            matches!(
                error.error.kind(),
                TaskErrorKind::Settings { .. }
                    | TaskErrorKind::Input { .. }
                    | TaskErrorKind::InputCount { .. }
            ),
            "{error:?}"
        );
        format!("{:#}", error.error)
    };
    let good = || settings(4, 2, 2);
    for (inputs, expected) in [
        (vec![], "found 0 inputs, expected 1"),
        (vec![frame(1), frame(1)], "found 2 inputs, expected 1"),
        (
            vec![frame(4).at_location(MemLoc::Device(0))],
            "input 0: found U8[4]@Device, expected a tensor in host memory",
        ),
        (
            vec![TDesc::host::<f32>([]).unwrap()],
            "input 0: found F32[]@Host, expected a tensor of rank 1 or more",
        ),
        (
            vec![TDesc::with_layout([2, 3], DType::U16, MemLoc::Host, [16, 4], 0).unwrap()],
            "input 0: found U16[2,3]@Host strides [16,4], expected a contiguous tensor",
        ),
    ] {
        assert_eq!(message(good(), inputs), expected);
    }
    for field in ["target_capacity", "output_size", "output_stride"] {
        let mut zero = good();
        zero[field] = json!(0);
        assert_eq!(
            message(zero, vec![frame(2)]),
            format!("setting `{field}`: found 0, expected a whole number above 0")
        );
        let mut missing = good();
        missing.as_object_mut().unwrap().remove(field);
        assert_eq!(
            message(missing, vec![frame(2)]),
            format!("setting `{field}`: found nothing, expected a value: it has no default")
        );
    }
    assert_eq!(
        message(settings(4, 3, 5), vec![frame(2)]),
        "setting `output_stride`: found 5, expected a multiple of `output_size`, 3"
    );
    assert_eq!(
        message(settings(usize::MAX, 1, 1), vec![frame(2)]),
        format!(
            "setting `target_capacity`: found {}, expected a queue whose bytes can be counted: \
             less of it, or of `output_stride`",
            usize::MAX
        )
    );
    assert_eq!(
        message(ending("pat", 4, 2, 2), vec![frame(2)]),
        "setting `at_end`: found \"pat\", expected `pad` or `discard`"
    );
    assert_eq!(
        message(dropping("drop", 4, 2), vec![frame(2)]),
        "setting `overflow`: found \"drop\", expected one of `block`, `drop_newest`, \
         `drop_oldest`, `latest`"
    );
    for policy in ["drop_newest", "drop_oldest", "latest"] {
        assert_eq!(
            message(dropping(policy, 4, 3), vec![frame(2)]),
            "setting `output_size`: found 3, expected 2, the rows of a frame, to drop whole frames"
        );
        let mut wide = dropping(policy, 4, 2);
        wide["output_stride"] = json!(4);
        assert_eq!(
            message(wide, vec![frame(2)]),
            "setting `output_stride`: found 4, expected 2, the rows of a frame, to drop whole \
             frames"
        );
    }
}

#[test]
fn bq_01_layouts_are_those_of_frame_and_batch() {
    let odd = TDesc::with_offset([4, 3], DType::U16, MemLoc::Host, 6).unwrap();
    let task = try_queue(settings(1, 2, 6), [odd]).unwrap();
    let host = |rows| TDesc::host::<u16>([rows, 3]).unwrap();
    assert_eq!(task.infer().input_descs, [host(4)]);
    assert_eq!(task.infer().output_descs, [host(2)]);
    assert_eq!(task.infer().owned_inputs, [true]);
    assert_eq!(task.infer().owned_outputs, [true]);
}

#[test]
fn bq_02_slot_count() {
    for (rows, stride, target, slots) in
        [(4, 8, 5, 16), (1, 1, 1, 2), (4, 16, 64, 80), (1, 10, 1, 20)]
    {
        let mut task = queue(settings(target, stride, stride), rows);
        assert_eq!(fill(&mut task, &vec![0; rows]) * rows, slots);
        let last = if rows % stride == 0 { 0 } else { stride };
        assert_eq!(task.report().memory.live_bytes, slots + last);
    }
}

#[test]
fn bq_02_no_settings_hang() {
    for rows in 1..6 {
        for size in 1..4 {
            for skip in 1..4 {
                for target in [1, 3, 7, 12] {
                    let mut task = queue(settings(target, size, size * skip), rows);
                    let mut popped = 0;
                    for _ in 0..20 {
                        fill(&mut task, &vec![1; rows]);
                        popped += drain(&mut task).len();
                    }
                    assert!(popped >= 20, "{rows} {size} {skip} {target}");
                }
            }
        }
    }
}

#[test]
fn bq_03_acquire_gives_none_unless_a_frame_is_free() {
    // 8 rows, in twos, out in fours.
    let mut task = queue(settings(6, 4, 4), 2);
    let producer = task.producer();
    let mut first = None;
    for turn in 0..4 {
        assert!(producer.acquire(0).unwrap());
        let address = producer.input_address(0).unwrap().unwrap();
        let first = *first.get_or_insert(address);
        assert_eq!(address, first.plus(2 * turn), "at the write index");
        producer.try_push().unwrap().expect_ok();
    }
    // The cursors are equal, as they are when nothing is filled: the fill count is apart.
    assert!(!producer.acquire(0).unwrap());
    assert!(task.pop::<u8>().unwrap().is_some());
    let producer = task.producer();
    assert!(producer.acquire(0).unwrap());
    assert_eq!(producer.input_address(0).unwrap(), first);

    let error = producer.acquire(1).unwrap_err();
    let slot = Slot::Input(1);
    assert_eq!(
        error.contract(),
        Some(&ContractError::SlotOutOfRange { slot, count: 1 })
    );
}

#[test]
fn bq_04_push_retracts_the_input_advances_by_a_frame_and_wraps() {
    let mut task = queue(settings(2, 2, 2), 2);
    let mut addresses = vec![];
    for turn in 0..6 {
        let producer = task.producer();
        assert!(producer.acquire(0).unwrap());
        addresses.push(producer.input_address(0).unwrap().unwrap());
        assert_eq!(producer.try_push().unwrap(), OpResult::Ok);
        assert_eq!(producer.input_address(0).unwrap(), None);
        assert!(task.pop::<u8>().unwrap().is_some());
        assert_eq!(addresses[turn], addresses[0].plus(2 * (turn % 2)));
    }
    assert_eq!(task.report().copied_bytes, 0);
}

#[test]
fn bq_04_a_cancelled_input_is_acquired_again() {
    let mut task = queue(settings(1, 1, 1), 1);
    for _ in 0..5 {
        assert!(task.producer().acquire(0).unwrap());
        task.producer().cancel_inputs().unwrap();
    }
    assert_eq!(fill(&mut task, &[7]), 2);
    assert_eq!(drain(&mut task), [[7], [7]]);
}

#[test]
fn bq_05_pop_waits_for_a_stride_and_gives_a_batch() {
    let mut task = queue(settings(8, 2, 4), 1);
    for row in 0..3 {
        task.push::<u8>(&[row]).unwrap().expect_ok();
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
    }
    task.push(&[3_u8]).unwrap().expect_ok();
    let consumer = task.consumer();
    assert_eq!(consumer.try_pop().unwrap(), OpResult::Ok);
    assert_eq!(consumer.output::<u8>(0).unwrap(), [0, 1]);
    let error = consumer.try_pop().unwrap_err();
    assert!(
        matches!(error.contract(), Some(ContractError::Order { .. })),
        "{error:?}"
    );
    // The batch is still there.
    assert_eq!(consumer.output::<u8>(0).unwrap(), [0, 1]);
    consumer.release(0).unwrap();
}

#[test]
fn bq_06_release_advances_by_the_stride_clears_the_output_and_wraps() {
    // One row of three is seen, in a ring of 9 rows.
    let mut task = queue(settings(8, 1, 3), 1);
    let mut seen = vec![];
    let mut first = None;
    for row in 0..30 {
        task.push::<u8>(&[row]).unwrap().expect_ok();
        if task.consumer().try_pop().unwrap() == OpResult::Ok {
            let consumer = task.consumer();
            let address = consumer.output_address(0).unwrap().unwrap();
            let first = *first.get_or_insert(address);
            assert_eq!(address, first.plus(3 * (seen.len() % 3)));
            seen.push(consumer.output::<u8>(0).unwrap()[0]);
            consumer.release(0).unwrap();
            assert_eq!(consumer.output_address(0).unwrap(), None);
        }
    }
    assert_eq!(seen, [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]);

    let error = task.consumer().release(1).unwrap_err();
    let slot = Slot::Output(1);
    assert_eq!(
        error.contract(),
        Some(&ContractError::SlotOutOfRange { slot, count: 1 })
    );
}

#[test]
fn bq_07_the_batch_lies_where_the_producer_wrote_it() {
    let mut task = queue(settings(9, 3, 3), 2);
    let allocations = task.report().memory.allocations;
    let mut written = std::collections::VecDeque::new();
    for turn in 0..60_u8 {
        let producer = task.producer();
        if producer.acquire(0).unwrap() {
            let address = producer.input_address(0).unwrap().unwrap();
            producer.write(0, &[turn, 100 + turn]).unwrap();
            written.extend([(address, turn), (address.plus(1), 100 + turn)]);
            producer.try_push().unwrap().expect_ok();
        }
        let consumer = task.consumer();
        if consumer.try_pop().unwrap() == OpResult::Ok {
            let address = consumer.output_address(0).unwrap().unwrap();
            let batch = consumer.output::<u8>(0).unwrap();
            for (row, value) in batch.iter().enumerate() {
                assert_eq!(written.pop_front(), Some((address.plus(row), *value)));
            }
            consumer.release(0).unwrap();
        }
    }
    let report = task.report();
    assert!(report.popped > 20);
    assert_eq!(report.copied_bytes, 0);
    assert_eq!(report.memory.allocations, allocations);
}

#[test]
fn bq_08_batches_come_out_in_order_and_none_is_lost() {
    for (rows, size) in [(2, 3), (4, 2)] {
        let mut task = queue(settings(4, size, size), rows);
        let frames: Vec<u8> = (0..12).collect();
        let mut batches = vec![];
        for frame in frames.chunks(rows) {
            while task.push(frame).unwrap() != OpResult::Ok {
                batches.push(task.pop::<u8>().unwrap().unwrap());
            }
        }
        batches.extend(drain(&mut task));
        assert_eq!(batches, frames.chunks(size).collect::<Vec<_>>());
    }
}

#[test]
fn bq_11_a_frame_without_rows_is_refused() {
    let empty = TDesc::host::<u8>([0, 3]).unwrap();
    let error = try_queue(settings(1, 1, 1), [empty]).unwrap_err();
    assert_eq!(
        error.error.to_string(),
        "input 0: found U8[0,3]@Host, expected a tensor with at least one index of axis 0"
    );
}

#[test]
fn bq_11_rows_without_bytes_are_queued_all_the_same() {
    let empty = TDesc::host::<f32>([2, 0]).unwrap();
    let mut task = try_queue(settings(4, 3, 3), [empty]).unwrap();
    for _ in 0..20 {
        assert!(task.producer().acquire_all().unwrap());
        task.producer().try_push().unwrap().expect_ok();
        if task.consumer().try_pop().unwrap() == OpResult::Ok {
            task.consumer().release(0).unwrap();
        }
    }
    task.producer().finish().unwrap();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().meta().valid, Some(1));
}

#[test]
fn bq_13_equal_settings_keep_the_queue_and_its_frames() {
    let mut task = queue(settings(8, 3, 3), 2);
    push_rows(&mut task, 0..8, 2);
    assert_eq!(task.pop().unwrap(), Some(vec![0_u8, 1, 2]));
    let old = task.ledger();
    let mut task = update(task, settings(8, 3, 3), frame(2));
    assert_eq!(old.counts().live_blocks, 2, "the ring and the last batch");
    assert_eq!(task.report().memory.live_blocks, 0, "nothing new");
    push_rows(&mut task, 8..12, 2);
    assert_eq!(drain(&mut task), [[3_u8, 4, 5], [6, 7, 8], [9, 10, 11]]);
    assert_eq!(task.report().dropped, 0);
}

#[test]
fn bq_13_a_popped_batch_is_popped_again_after_an_update() {
    let mut task = queue(settings(8, 2, 2), 2);
    push_rows(&mut task, 0..4, 2);
    task.consumer().try_pop().unwrap().expect_ok();
    assert!(task.producer().acquire(0).unwrap());
    let mut task = update(task, settings(8, 2, 2), frame(2));
    push_rows(&mut task, 4..6, 2);
    assert_eq!(drain(&mut task), [[0_u8, 1], [2, 3], [4, 5]]);
}

#[test]
fn bq_13_another_capacity_keeps_the_frames_that_fit() {
    // 12 rows; 6, 12 and 36 after the update.
    for target in [1, 5, 30] {
        for turns in 0..4 {
            for pushed in 2..=6 {
                let mut task = queue(settings(9, 3, 3), 2);
                // So that what is queued lies elsewhere, and wraps.
                for _ in 0..turns {
                    push_rows(&mut task, 0..6, 2);
                    assert_eq!(drain(&mut task).len(), 2);
                }
                push_rows(&mut task, 1..2 * pushed + 1, 2);
                assert_eq!(task.pop().unwrap(), Some(vec![1_u8, 2, 3]));
                let left = usize::from(2 * pushed) - 3;
                let mut task = update(task, settings(target, 3, 3), frame(2));
                let mut batches = drain(&mut task);
                if target == 1 && left > 6 {
                    assert_eq!(batches, [[0; 3]; 0]);
                    assert_eq!(task.report().dropped, left as u64 / 2);
                    continue;
                }
                // What follows comes behind it.
                for row in (2 * pushed + 1..30).step_by(2) {
                    push_rows(&mut task, row..row + 2, 2);
                    batches.extend(drain(&mut task));
                }
                task.producer().finish().unwrap();
                batches.extend(drain(&mut task));
                let rows: Vec<u8> = (4..31).collect();
                assert_eq!(batches, rows.chunks(3).collect::<Vec<_>>());
                assert_eq!(task.report().dropped, 0);
            }
        }
    }
}

#[test]
fn bq_13_a_queue_that_ended_short_begins_with_a_whole_stride() {
    for target in [8, 20] {
        let mut task = queue(settings(8, 3, 3), 2);
        push_rows(&mut task, 0..4, 2);
        task.producer().finish().unwrap();
        assert_eq!(drain(&mut task).len(), 2);
        let mut task = update(task, settings(target, 3, 3), frame(2));
        push_rows(&mut task, 0..6, 2);
        assert_eq!(drain(&mut task), [[0_u8, 1, 2], [3, 4, 5]]);
    }
}

#[test]
fn bq_13_otherwise_the_queue_is_fresh_and_what_it_held_is_counted() {
    for (settings, input) in [
        (settings(8, 2, 2), frame(2)),
        (settings(8, 3, 6), frame(2)),
        (ending("discard", 8, 3, 3), frame(2)),
        (settings(8, 3, 3), frame(4)),
        (settings(8, 3, 3), TDesc::host::<u16>([2]).unwrap()),
        (settings(8, 3, 3), TDesc::host::<u8>([2, 2]).unwrap()),
    ] {
        let mut task = queue(self::settings(8, 3, 3), 2);
        push_rows(&mut task, 0..8, 2);
        assert_eq!(task.pop().unwrap(), Some(vec![0_u8, 1, 2]));
        // Of the four frames one came out, and one in part.
        let mut task = update(task, settings, input);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
        assert_eq!(task.report().dropped, 2);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
        assert_eq!(task.report().dropped, 2, "said once");
    }
}

#[test]
fn bq_13_a_foreign_task_is_replaced() {
    let limiter = TaskHarness::asynchronous(
        &OwnedRateLimiterFactory,
        json!({ "max_fps": 10 }),
        [frame(2)],
    )
    .unwrap();
    let mut task = update(limiter, settings(4, 2, 2), frame(2));
    push_rows(&mut task, 0..4, 2);
    assert_eq!(drain(&mut task), [[0_u8, 1], [2, 3]]);
    assert_eq!(task.report().dropped, 0);
}

#[test]
fn bq_14_two_threads_run_it_without_locks() {
    let mut task = queue(settings(5, 3, 3), 2);
    let rows = 6 * 2000;
    let byte = |row: usize| u8::try_from(row % 251).unwrap();
    let (producer, consumer) = task.split().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for row in (0..rows).step_by(2) {
                let frame = [row, row + 1].map(byte);
                while producer.push(&frame).unwrap() != OpResult::Ok {
                    std::thread::yield_now();
                }
            }
            producer.finish().unwrap();
        });
        for row in (0..rows).step_by(3) {
            let batch = loop {
                if let Some(batch) = consumer.pop::<u8>().unwrap() {
                    break batch;
                }
                std::thread::yield_now();
            };
            assert_eq!(batch, [row, row + 1, row + 2].map(byte));
        }
        while consumer.try_pop().unwrap() != OpResult::Eof {
            std::thread::yield_now();
        }
    });
}

#[test]
fn whole_frames_make_a_batch_and_the_flow_says_how_many() {
    let flow = |rows, settings| queue(settings, rows).infer().flow;
    let expected = |frames_per_output, capacity| {
        Some(Flow {
            frames_per_output,
            held_back: 0,
            capacity,
        })
    };
    assert_eq!(flow(4, settings(5, 8, 8)), expected(2, 4));
    assert_eq!(flow(1, settings(1, 1, 1)), expected(1, 2));
    assert_eq!(flow(4, settings(64, 8, 16)), expected(4, 20));
    assert_eq!(flow(2, settings(4, 3, 3)), None);
    assert_eq!(flow(4, settings(4, 2, 2)), None);
}

#[test]
fn metadata_of_the_first_frame_comes_with_a_batch() {
    let mut task = queue(settings(4, 2, 2), 1);
    for number in 0..4 {
        task.producer().set_meta(FrameMeta::numbered(number));
        task.push(&[0_u8]).unwrap().expect_ok();
    }
    for number in [0, 2] {
        assert!(task.pop::<u8>().unwrap().is_some());
        assert_eq!(task.consumer().meta(), &FrameMeta::numbered(number));
    }
}

// ---------------------------------------------------------------------------------------
// The end of a stream

#[test]
fn at_the_end_it_answers_eof_by_itself_once_it_is_empty() {
    let mut task = queue(settings(4, 2, 2), 2);
    push_rows(&mut task, 0..4, 2);
    task.producer().finish().unwrap();
    assert_eq!(drain(&mut task), [[0_u8, 1], [2, 3]]);
    for _ in 0..3 {
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);
    }
}

#[test]
fn a_short_batch_keeps_its_shape_and_says_how_much_of_it_is_valid() {
    let mut task = queue(settings(8, 4, 4), 3);
    // What is left of an earlier turn must not show in the zeros.
    push_rows(&mut task, 100..112, 3);
    drain(&mut task);
    push_rows(&mut task, 1..7, 3);
    task.producer().finish().unwrap();
    assert_eq!(task.pop().unwrap(), Some(vec![1_u8, 2, 3, 4]));
    assert_eq!(task.consumer().meta().valid, None);
    assert_eq!(task.pop().unwrap(), Some(vec![5_u8, 6, 0, 0]));
    assert_eq!(task.consumer().meta().valid, Some(2));
    assert_eq!(task.report().copied_bytes, 2);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);
    assert_eq!(task.report().dropped, 0);
}

#[test]
fn a_short_batch_is_discarded_if_the_settings_say_so() {
    // Two frames in three batches' worth; 1 row of the last two frames is left.
    let mut task = queue(ending("discard", 8, 5, 5), 2);
    push_rows(&mut task, 0..8, 2);
    task.producer().finish().unwrap();
    assert_eq!(drain(&mut task), [[0_u8, 1, 2, 3, 4]]);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);
    // Rows 5, 6 and 7 are left: of the frame of row 5, row 4 came out.
    assert_eq!(task.report().dropped, 1);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);
    assert_eq!(task.report().dropped, 1);
}

#[test]
fn a_whole_batch_of_a_last_short_stride_comes_out_as_it_is() {
    for at_end in ["pad", "discard"] {
        let mut task = queue(ending(at_end, 8, 2, 6), 1);
        push_rows(&mut task, 0..9, 1);
        task.producer().finish().unwrap();
        assert_eq!(drain(&mut task), [[0_u8, 1], [6, 7]]);
        assert_eq!(task.consumer().meta().valid, None);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);
        let report = task.report();
        assert_eq!((report.dropped, report.copied_bytes), (0, 0));
    }
}

#[test]
fn what_was_queued_when_a_run_was_cancelled_stays_queued() {
    let mut task = queue(settings(8, 2, 2), 1);
    push_rows(&mut task, 0..3, 1);
    task.producer().finish().unwrap();
    // Nobody pops: the run is over.
    task.start_run().unwrap();
    assert_eq!(task.pop().unwrap(), Some(vec![0_u8, 1]));
    assert_eq!(
        task.consumer().try_pop().unwrap(),
        OpResult::NotReady,
        "the stream goes on"
    );
    push_rows(&mut task, 3..4, 1);
    assert_eq!(drain(&mut task), [[2, 3]]);
}

#[test]
fn a_new_run_begins_with_a_whole_stride_after_a_short_batch() {
    for at_end in ["pad", "discard"] {
        for rows in 1..5 {
            for (size, stride) in [(2, 2), (3, 3), (2, 4), (4, 8), (5, 5)] {
                for pushed in 1..6 {
                    let mut task = queue(ending(at_end, 3, size, stride), rows);
                    for turn in 0..4 {
                        let mut batches = vec![];
                        for number in 0..pushed {
                            let frame: Vec<u8> = (0..rows)
                                .map(|row| u8::try_from(number * rows + row + 1).unwrap())
                                .collect();
                            while task.push(&frame).unwrap() != OpResult::Ok {
                                batches.push(task.pop::<u8>().unwrap().unwrap());
                            }
                        }
                        task.producer().finish().unwrap();
                        batches.extend(drain(&mut task));
                        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);

                        let all: Vec<u8> = (1..=u8::try_from(pushed * rows).unwrap()).collect();
                        let expected: Vec<Vec<u8>> = all
                            .chunks(stride)
                            .filter(|chunk| at_end == "pad" || chunk.len() >= size)
                            .map(|chunk| {
                                let mut batch = chunk[..size.min(chunk.len())].to_vec();
                                batch.resize(size, 0);
                                batch
                            })
                            .collect();
                        assert_eq!(batches, expected, "{rows} {size} {stride} {pushed} {turn}");
                        task.start_run().unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn no_memory_is_taken_for_a_short_batch_where_there_can_be_none() {
    let bytes = |settings, rows| queue(settings, rows).report().memory.live_bytes;
    assert_eq!(bytes(settings(4, 2, 2), 4), 8);
    assert_eq!(bytes(settings(4, 4, 4), 4), 8);
    assert_eq!(bytes(settings(4, 4, 4), 2), 8 + 4);
}

#[test]
fn push_and_pop_answer_cancelled_when_cancelled() {
    let mut task = queue(settings(4, 2, 2), 2);
    push_rows(&mut task, 0..2, 2);
    assert!(task.producer().acquire_all().unwrap());
    task.cancel();
    assert_eq!(task.producer().try_push().unwrap(), OpResult::Cancelled);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Cancelled);
}

#[test]
fn settings_are_built_in_rust_as_in_json() {
    let built = BatchQueueSettings::new(8, 2)
        .with_stride(4)
        .with_at_end(AtEnd::Discard);
    let read: BatchQueueSettings = serde_json::from_value(ending("discard", 8, 2, 4)).unwrap();
    assert_eq!(built, read);
    let built = BatchQueueSettings::new(8, 2).with_overflow(QueueOverflow::DropOldest);
    let written = serde_json::to_value(built).unwrap();
    assert_eq!(written["overflow"], "drop_oldest");
    let info = holoflow_core::task::IAsyncTaskFactory::describe(&BatchQueueFactory);
    let required = info.settings["required"].as_array().unwrap();
    assert_eq!(required.len(), 3, "{required:?}");
    assert_eq!(info.settings["properties"]["at_end"]["default"], "pad");
    assert_eq!(info.settings["properties"]["overflow"]["default"], "block");
    assert_eq!(info.settings["properties"]["output_size"]["minimum"], 1);
}

// ---------------------------------------------------------------------------------------
// Queues that drop

/// Pushes frames of one row, numbered from 1, with metadata of their numbers.
fn push_numbered(task: &mut TaskHarness, numbers: std::ops::RangeInclusive<u8>) {
    for number in numbers {
        let meta = FrameMeta::numbered(u64::from(number));
        task.producer().set_meta(meta);
        task.push(&[number]).unwrap().expect_ok();
    }
}

/// Pops all there is; each frame must come with its metadata.
fn drain_numbered(task: &mut TaskHarness) -> Vec<u8> {
    std::iter::from_fn(|| {
        let number = task.pop::<u8>().unwrap()?[0];
        assert_eq!(task.consumer().meta().sequence, u64::from(number));
        Some(number)
    })
    .collect()
}

#[test]
fn a_full_queue_drops_what_its_policy_says_and_never_makes_upstream_wait() {
    for (policy, kept) in [
        ("drop_newest", vec![1, 2, 3]),
        ("drop_oldest", vec![8, 9, 10]),
        ("latest", vec![10]),
    ] {
        let mut task = queue(dropping(policy, 3, 1), 1);
        let flow = Flow::one_to_one(usize::MAX);
        assert_eq!(task.infer().flow, Some(flow));
        let allocations = task.report().memory.allocations;
        push_numbered(&mut task, 1..=10);
        assert_eq!(task.report().dropped, 10 - kept.len() as u64);
        assert_eq!(drain_numbered(&mut task), kept, "{policy}");
        let report = task.report();
        assert_eq!(report.copied_bytes, 0);
        assert_eq!(report.memory.allocations, allocations);
        assert_eq!(report.pushed, report.popped + report.dropped);
    }
}

#[test]
fn capacity_is_in_rows_also_where_frames_are_dropped() {
    let mut task = queue(dropping("drop_newest", 5, 2), 2);
    for _ in 0..4 {
        task.push(&[0_u8, 0]).unwrap().expect_ok();
    }
    // Five rows are three frames.
    assert_eq!(task.report().dropped, 1);
}

#[test]
fn frames_go_on_being_dropped_while_one_is_out() {
    let mut task = queue(dropping("latest", 1, 1), 1);
    push_numbered(&mut task, 1..=1);
    task.consumer().try_pop().unwrap().expect_ok();
    push_numbered(&mut task, 2..=9);
    let consumer = task.consumer();
    assert_eq!(consumer.output::<u8>(0).unwrap(), [1]);
    assert_eq!(consumer.meta().sequence, 1);
    consumer.release(0).unwrap();
    assert_eq!(drain_numbered(&mut task), [9]);
    assert_eq!(task.report().dropped, 7);
}

#[test]
fn a_cancelled_input_is_lent_again_and_counts_as_nothing() {
    let mut task = queue(dropping("drop_oldest", 1, 1), 1);
    for _ in 0..10 {
        assert!(task.producer().acquire(0).unwrap());
        task.producer().cancel_inputs().unwrap();
    }
    push_numbered(&mut task, 1..=3);
    assert_eq!(drain_numbered(&mut task), [3]);
    assert_eq!(task.report().dropped, 2);
}

#[test]
fn a_queue_that_drops_answers_eof_once_it_is_empty() {
    let mut task = queue(dropping("drop_oldest", 2, 1), 1);
    push_numbered(&mut task, 1..=3);
    task.producer().finish().unwrap();
    assert_eq!(drain_numbered(&mut task), [2, 3]);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);
    task.start_run().unwrap();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
    push_numbered(&mut task, 4..=4);
    assert_eq!(drain_numbered(&mut task), [4]);
}

#[test]
fn bq_13_a_queue_that_drops_keeps_the_frames_that_fit() {
    for (from, to, target, kept) in [
        ("drop_oldest", "drop_oldest", 3, vec![2, 3, 4]),
        ("drop_oldest", "drop_oldest", 8, vec![2, 3, 4]),
        ("drop_newest", "drop_newest", 4, vec![1, 2, 3]),
        ("drop_oldest", "drop_newest", 3, vec![]),
        ("drop_newest", "drop_newest", 2, vec![]),
        ("drop_oldest", "latest", 3, vec![]),
        ("drop_oldest", "block", 3, vec![]),
    ] {
        let mut task = queue(dropping(from, 3, 1), 1);
        push_numbered(&mut task, 1..=4);
        let mut task = update(task, dropping(to, target, 1), frame(1));
        assert_eq!(drain_numbered(&mut task), kept, "{from} {to} {target}");
        assert_eq!(task.report().dropped, 3 - kept.len() as u64);
        // It holds as much as its settings say.
        if to != "block" {
            push_numbered(&mut task, 1..=20);
            let expected = if to == "latest" { 1 } else { target };
            assert_eq!(drain_numbered(&mut task).len(), expected);
        }
    }
}

#[test]
fn two_threads_lose_no_frame_unseen() {
    for policy in ["drop_newest", "drop_oldest", "latest"] {
        let mut task = queue(dropping(policy, 4, 1), 1);
        let (producer, consumer) = task.split().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..2000_u32 {
                    producer.set_meta(FrameMeta::numbered(u64::from(number)));
                    let byte = u8::try_from(number % 251).unwrap();
                    producer.push(&[byte]).unwrap().expect_ok();
                }
                producer.finish().unwrap();
            });
            let mut last = None;
            loop {
                match consumer.try_pop().unwrap() {
                    OpResult::Eof => break,
                    OpResult::Ok => {
                        let number = consumer.meta().sequence;
                        let byte = u8::try_from(number % 251).unwrap();
                        assert_eq!(consumer.output::<u8>(0).unwrap(), [byte]);
                        assert!(last.is_none_or(|last| last < number));
                        last = Some(number);
                        consumer.release(0).unwrap();
                    }
                    _ => std::thread::yield_now(),
                }
            }
            assert!(policy == "drop_newest" || last == Some(1999));
        });
        let report = task.report();
        assert_eq!(report.pushed, 2000);
        assert_eq!(report.popped + report.dropped, 2000);
    }
}

trait ExpectOk {
    fn expect_ok(self);
}

impl ExpectOk for OpResult {
    fn expect_ok(self) {
        assert_eq!(self, OpResult::Ok);
    }
}
