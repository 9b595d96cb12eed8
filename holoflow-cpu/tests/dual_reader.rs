//! The dual reader, alone in a harness.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use holoflow_core::storage::{ContractError, Slot};
use holoflow_core::task::{Flow, HookError, OpResult, TaskErrorKind};
use holoflow_core::tensor::{DType, MemLoc, TDesc};
use holoflow_core::testkit::TaskHarness;
use holoflow_cpu::{BatchQueueFactory, DualReaderBatchQueueFactory, DualReaderBatchQueueSettings};
use serde_json::{Value, json};

/// A frame of `rows` rows of one byte.
fn frame(rows: usize) -> TDesc {
    TDesc::host::<u8>([rows]).unwrap()
}

fn settings(target: usize, window: usize) -> Value {
    json!({ "target_capacity": target, "window_size": window })
}

fn try_queue(
    settings: Value,
    inputs: impl IntoIterator<Item = TDesc>,
) -> Result<TaskHarness, HookError> {
    TaskHarness::asynchronous(&DualReaderBatchQueueFactory, settings, inputs)
}

fn queue(settings: Value, rows: usize) -> TaskHarness {
    try_queue(settings, [frame(rows)]).unwrap()
}

fn update(task: TaskHarness, settings: Value, input: TDesc) -> TaskHarness {
    TaskHarness::builder()
        .update(task, &DualReaderBatchQueueFactory, settings, [input])
        .unwrap()
}

fn push(task: &mut TaskHarness, frame: &[u8]) -> bool {
    task.push(frame).unwrap() == OpResult::Ok
}

/// Pops and releases: current row, delayed row, validity.
fn take(task: &mut TaskHarness) -> Option<(u8, u8, u8)> {
    let consumer = task.consumer();
    if consumer.try_pop().unwrap() != OpResult::Ok {
        return None;
    }
    let mut read = |output| consumer.output::<u8>(output).unwrap()[0];
    let seen = (read(0), read(1), read(2));
    consumer.release_all().unwrap();
    Some(seen)
}

fn drain(task: &mut TaskHarness) -> Vec<(u8, u8, u8)> {
    std::iter::from_fn(|| take(task)).collect()
}

#[test]
fn dr_01_each_violation_is_refused_by_name() {
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
        error.error.to_string()
    };
    let good = || settings(4, 3);
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
            vec![TDesc::host::<f32>([0, 2]).unwrap()],
            "input 0: found F32[0,2]@Host, expected a tensor with at least one index of axis 0",
        ),
        (
            vec![TDesc::with_layout([2, 3], DType::U16, MemLoc::Host, [16, 4], 0).unwrap()],
            "input 0: found U16[2,3]@Host strides [16,4], expected a contiguous tensor",
        ),
    ] {
        assert_eq!(message(good(), inputs), expected);
    }
    for field in ["target_capacity", "window_size"] {
        for (value, found) in [(json!(0), "0"), (json!(-3), "-3"), (json!("x"), "\"x\"")] {
            let mut wrong = good();
            wrong[field] = value;
            assert_eq!(
                message(wrong, vec![frame(2)]),
                format!("setting `{field}`: found {found}, expected a whole number above 0")
            );
        }
        let mut missing = good();
        missing.as_object_mut().unwrap().remove(field);
        assert_eq!(
            message(missing, vec![frame(2)]),
            format!("setting `{field}`: found nothing, expected a value: it has no default")
        );
    }
    assert_eq!(
        message(settings(usize::MAX, 1), vec![frame(2)]),
        format!(
            "setting `target_capacity`: found {}, expected a queue whose bytes can be counted: \
             less of it, or of `window_size`",
            usize::MAX
        )
    );
}

#[test]
fn dr_01_outputs_are_two_rows_and_a_byte() {
    let input = TDesc::with_offset([4, 3], DType::U16, MemLoc::Host, 6).unwrap();
    let task = try_queue(settings(1, 1), [input]).unwrap();
    let row = TDesc::host::<u16>([1, 3]).unwrap();
    assert_eq!(
        task.infer().input_descs,
        [TDesc::host::<u16>([4, 3]).unwrap()]
    );
    assert_eq!(task.infer().output_descs, [row.clone(), row, frame(1)]);
    assert_eq!(task.infer().owned_inputs, [true]);
    assert_eq!(task.infer().owned_outputs, [true, true, false]);
    assert_eq!(task.infer().read_only_outputs, [true, true, false]);
}

#[test]
fn dr_02_the_delayed_row_and_whether_the_window_is_full() {
    let mut task = queue(settings(8, 4), 2);
    let mut seen = vec![];
    for value in (10..22).step_by(2) {
        assert!(push(&mut task, &[value, value + 1]));
        seen.extend(drain(&mut task));
    }
    let expected: Vec<(u8, u8, u8)> = (0..12)
        .map(|n| {
            let delayed = if n == 0 { 0 } else { 9 + n };
            (10 + n, delayed, u8::from(n >= 3))
        })
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn dr_02_for_windows_of_any_size() {
    for window in 1..9 {
        for rows in 1..4 {
            let mut task = queue(settings(3, window), rows);
            let delay = (window - 1) / 2;
            let mut seen = vec![];
            for turn in 0..20 {
                let frame: Vec<u8> = (0..rows)
                    .map(|row| u8::try_from(turn * rows + row + 1).unwrap())
                    .collect();
                while !push(&mut task, &frame) {
                    seen.extend(take(&mut task));
                }
            }
            seen.extend(drain(&mut task));
            let byte = |value: usize| u8::try_from(value).unwrap();
            let expected: Vec<_> = (0..20 * rows)
                .map(|n| {
                    let delayed = (n + 1).saturating_sub(delay);
                    (byte(n + 1), byte(delayed), u8::from(n + 1 >= window))
                })
                .collect();
            assert_eq!(seen, expected, "{window} {rows}");
        }
    }
}

#[test]
fn dr_03_with_a_window_of_one_both_are_the_same_row_and_valid_at_once() {
    let mut task = queue(settings(2, 1), 1);
    for value in 1..6 {
        assert!(push(&mut task, &[value]));
        let consumer = task.consumer();
        assert_eq!(consumer.try_pop().unwrap(), OpResult::Ok);
        assert_eq!(
            consumer.output_address(0).unwrap(),
            consumer.output_address(1).unwrap()
        );
        assert_eq!(consumer.output::<u8>(0).unwrap(), [value]);
        assert_eq!(consumer.output::<u8>(1).unwrap(), [value]);
        assert_eq!(consumer.output::<u8>(2).unwrap(), [1]);
        consumer.release_all().unwrap();
    }
}

#[test]
fn dr_03_rows_lie_where_the_producer_wrote_them() {
    let mut task = queue(settings(3, 5), 2);
    let allocations = task.report().memory.allocations;
    let mut written = vec![];
    for turn in 0..30_u8 {
        let producer = task.producer();
        assert!(producer.acquire(0).unwrap());
        let address = producer.input_address(0).unwrap().unwrap();
        producer.write(0, &[turn, turn]).unwrap();
        assert_eq!(producer.try_push().unwrap(), OpResult::Ok);
        written.extend([address, address.plus(1)]);
        for n in 2 * usize::from(turn)..2 * usize::from(turn) + 2 {
            let consumer = task.consumer();
            assert_eq!(consumer.try_pop().unwrap(), OpResult::Ok);
            assert_eq!(consumer.output_address(0).unwrap(), Some(written[n]));
            if n >= 2 {
                assert_eq!(consumer.output_address(1).unwrap(), Some(written[n - 2]));
            }
            consumer.release_all().unwrap();
        }
    }
    let report = task.report();
    assert_eq!(report.copied_bytes, 0);
    assert_eq!(report.memory.allocations, allocations);
}

#[test]
fn dr_04_the_outputs_are_released_in_either_order_and_the_row_moves_on_after_both() {
    let mut task = queue(settings(4, 3), 1);
    for value in 1..=4 {
        assert!(push(&mut task, &[value]));
    }
    for (value, order) in [(1, [0, 1]), (2, [1, 0]), (3, [1, 0])] {
        let consumer = task.consumer();
        assert_eq!(consumer.try_pop().unwrap(), OpResult::Ok);
        assert_eq!(consumer.output::<u8>(0).unwrap(), [value]);
        consumer.release(order[0]).unwrap();
        assert!(
            consumer.try_pop().unwrap_err().contract().is_some(),
            "one of them is out"
        );
        consumer.release(order[1]).unwrap();
    }
}

#[test]
fn dr_05_not_ready_when_no_row_is_left() {
    let mut task = queue(settings(4, 3), 2);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
    assert!(push(&mut task, &[1, 2]));
    assert_eq!(drain(&mut task).len(), 2);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
}

#[test]
fn dr_06_pops_and_releases_out_of_turn_are_contract_errors() {
    let mut task = queue(settings(4, 3), 2);
    let order = |error: HookError| {
        assert!(
            matches!(error.contract(), Some(ContractError::Order { .. })),
            "{error:?}"
        );
    };
    for output in [0, 1] {
        order(task.consumer().release(output).unwrap_err());
    }
    assert!(push(&mut task, &[1, 2]));
    let consumer = task.consumer();
    assert_eq!(consumer.try_pop().unwrap(), OpResult::Ok);
    order(consumer.try_pop().unwrap_err());

    // The third output is not the task's, and there is no fourth.
    let error = consumer.release(2).unwrap_err();
    let slot = Slot::Output(2);
    assert_eq!(
        error.contract(),
        Some(&ContractError::SlotNotOwned { slot })
    );
    let error = consumer.release(3).unwrap_err();
    let slot = Slot::Output(3);
    assert_eq!(
        error.contract(),
        Some(&ContractError::SlotOutOfRange { slot, count: 3 })
    );
    consumer.release(1).unwrap();
    order(consumer.release(1).unwrap_err());
    consumer.release(0).unwrap();
    assert_eq!(take(&mut task), Some((2, 1, 0)));
}

#[test]
fn dr_07_the_delayed_reader_limits_the_writer() {
    // 4 + 1 + 2 + 1 rows, of which one always stays free.
    let mut task = queue(settings(4, 5), 1);
    let mut next = 1..;
    let mut fill = |task: &mut TaskHarness| {
        let mut count = 0;
        while task.producer().acquire(0).unwrap() {
            let value = next.next().unwrap();
            task.producer().write::<u8>(0, &[value]).unwrap();
            assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
            count += 1;
        }
        count
    };
    assert_eq!(fill(&mut task), 7);
    // The first two rows are needed again.
    for _ in 0..2 {
        assert!(take(&mut task).is_some());
        assert_eq!(fill(&mut task), 0);
    }
    assert_eq!(take(&mut task), Some((3, 1, 0)));
    assert_eq!(fill(&mut task), 1);
    let seen = drain(&mut task);
    assert_eq!(seen[0], (4, 2, 0));
    assert_eq!(seen[1..], [(5, 3, 1), (6, 4, 1), (7, 5, 1), (8, 6, 1)]);
}

#[test]
fn dr_07_a_frame_is_lent_only_if_more_than_it_is_free() {
    // 1 + 3 + 0 + 1 rows make 6: a second frame would fill it.
    let mut task = queue(settings(1, 1), 3);
    assert!(push(&mut task, &[1, 2, 3]));
    assert!(!task.producer().acquire(0).unwrap());
    assert!(take(&mut task).is_some());
    assert!(task.producer().acquire(0).unwrap());
}

#[test]
fn dr_09_equal_settings_keep_the_queue_and_its_rows() {
    let mut task = queue(settings(8, 5), 2);
    for value in [1, 3, 5] {
        assert!(push(&mut task, &[value, value + 1]));
    }
    assert_eq!(take(&mut task), Some((1, 0, 0)));
    assert_eq!(take(&mut task), Some((2, 0, 0)));
    let mut task = update(task, settings(8, 5), frame(2));
    assert_eq!(task.report().memory.live_blocks, 1, "the validity's cell");
    assert_eq!(
        drain(&mut task),
        [(3, 1, 0), (4, 2, 0), (5, 3, 1), (6, 4, 1)]
    );
    assert_eq!(task.report().dropped, 0);
}

#[test]
fn dr_09_another_capacity_keeps_the_rows_that_fit() {
    for target in [1, 2, 5, 20] {
        for popped in 0..12 {
            let mut task = queue(settings(9, 5), 2);
            let mut next = 1;
            let mut seen = vec![];
            let mut push_pair = |task: &mut TaskHarness| {
                assert!(push(task, &[next, next + 1]));
                next += 2;
            };
            for _ in 0..popped {
                push_pair(&mut task);
                seen.extend(drain(&mut task));
            }
            push_pair(&mut task);
            seen.extend(take(&mut task));
            let mut task = update(task, settings(target, 5), frame(2));
            for _ in 0..10 {
                seen.extend(drain(&mut task));
                push_pair(&mut task);
            }
            seen.extend(drain(&mut task));
            let expected: Vec<_> = (1..next)
                .map(|n| (n, n.saturating_sub(2), u8::from(n >= 5)))
                .collect();
            assert_eq!(seen, expected, "{target} {popped}");
            assert_eq!(task.report().dropped, 0);
        }
    }
}

#[test]
fn dr_09_otherwise_the_queue_is_fresh_and_what_it_held_is_counted() {
    for (settings, input) in [
        (settings(9, 6), frame(2)),
        (settings(1, 5), frame(2)),
        (settings(9, 5), frame(4)),
        (settings(9, 5), TDesc::host::<u16>([2]).unwrap()),
    ] {
        let mut task = queue(self::settings(9, 5), 2);
        for value in [1, 3, 5, 7, 9] {
            assert!(push(&mut task, &[value, value + 1]));
        }
        assert_eq!(take(&mut task), Some((1, 0, 0)));
        let mut task = update(task, settings, input);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
        // Of the first frame a row came out.
        assert_eq!(task.report().dropped, 4);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
        assert_eq!(task.report().dropped, 4, "said once");
    }
}

#[test]
fn dr_09_a_foreign_task_is_replaced() {
    let of_batches = json!({ "target_capacity": 4, "output_size": 1, "output_stride": 1 });
    let batches = TaskHarness::asynchronous(&BatchQueueFactory, of_batches, [frame(1)]).unwrap();
    let mut task = update(batches, settings(4, 1), frame(1));
    assert!(push(&mut task, &[7]));
    assert_eq!(drain(&mut task), [(7, 7, 1)]);
}

#[test]
fn it_answers_eof_by_itself_and_goes_on_in_the_next_run() {
    let mut task = queue(settings(4, 3), 2);
    assert!(push(&mut task, &[1, 2]));
    task.producer().finish().unwrap();
    assert_eq!(drain(&mut task), [(1, 0, 0), (2, 1, 0)]);
    for _ in 0..2 {
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Eof);
    }
    task.start_run().unwrap();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
    assert!(push(&mut task, &[3, 4]));
    assert_eq!(drain(&mut task), [(3, 2, 1), (4, 3, 1)]);
}

#[test]
fn a_frame_of_one_row_has_a_flow() {
    let flow = |settings, rows| queue(settings, rows).infer().flow;
    assert_eq!(flow(settings(4, 5), 1), Some(Flow::one_to_one(5)));
    assert_eq!(flow(settings(4, 5), 2), None);
}

#[test]
fn a_cancelled_input_is_acquired_again() {
    let mut task = queue(settings(1, 1), 1);
    for _ in 0..5 {
        assert!(task.producer().acquire(0).unwrap());
        task.producer().cancel_inputs().unwrap();
    }
    assert!(push(&mut task, &[7]));
    task.cancel();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Cancelled);
}

#[test]
fn rows_without_bytes_are_queued_all_the_same() {
    let empty = TDesc::host::<f32>([2, 0]).unwrap();
    let mut task = try_queue(settings(4, 3), [empty]).unwrap();
    for _ in 0..20 {
        assert!(task.producer().acquire_all().unwrap());
        assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
        for _ in 0..2 {
            assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
            task.consumer().release_all().unwrap();
        }
    }
}

#[test]
fn two_threads_read_every_row_twice() {
    let mut task = queue(settings(5, 7), 2);
    let rows = 2 * 2000;
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
        for row in 0..rows {
            while consumer.try_pop().unwrap() != OpResult::Ok {
                std::thread::yield_now();
            }
            assert_eq!(consumer.output::<u8>(0).unwrap(), [byte(row)]);
            let delayed = row.checked_sub(3).map_or(0, byte);
            assert_eq!(consumer.output::<u8>(1).unwrap(), [delayed]);
            consumer.release_all().unwrap();
        }
        while consumer.try_pop().unwrap() != OpResult::Eof {
            std::thread::yield_now();
        }
    });
}

#[test]
fn settings_are_built_in_rust_as_in_json() {
    let built = DualReaderBatchQueueSettings::new(8, 3);
    let read: DualReaderBatchQueueSettings = serde_json::from_value(settings(8, 3)).unwrap();
    assert_eq!(built, read);
}
