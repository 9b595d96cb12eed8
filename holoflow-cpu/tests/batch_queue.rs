//! The batch queue: alone in a harness, and in pipelines.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holoflow_core::clock::{Clock, Timestamp};
use holoflow_core::compiler::{CompiledGraph, Compiler};
use holoflow_core::graph::{GraphBuilder, Node};
use holoflow_core::registry::Registry;
use holoflow_core::scheduler::{Report, RunOptions};
use holoflow_core::storage::{ContractError, Slot};
use holoflow_core::task::{
    FrameMeta, IAsyncTaskFactory, InferResult, OpResult, TaskErrorKind, TaskRequest,
};
use holoflow_core::tensor::{DType, MemLoc, TDesc};
use holoflow_core::testkit::{StepScheduler, TaskHarness};
use holoflow_cpu::{AtEnd, BatchQueueFactory, BatchQueueSettings, QueueOverflow};
use serde_json::{Value, json};

fn frame(rows: usize) -> TDesc {
    TDesc::host::<u16>([rows]).unwrap()
}

fn settings(target: i64, size: i64, stride: i64) -> Value {
    json!({ "target_capacity": target, "output_size": size, "output_stride": stride })
}

fn queue(rows: usize, settings: Value) -> TaskHarness {
    TaskHarness::asynchronous(&BatchQueueFactory, settings, [frame(rows)]).unwrap()
}

fn push(task: &mut TaskHarness, data: &[u16]) {
    assert_eq!(task.push(data).unwrap(), OpResult::Ok);
}

fn refused(settings: Value, input: TDesc) -> String {
    let inputs = [input];
    let request = TaskRequest::new("queue", &settings, &inputs);
    BatchQueueFactory.infer(&request).unwrap_err().to_string()
}

#[test]
fn bq_01_what_it_refuses_and_how_it_says_so() {
    let good = || settings(8, 2, 2);
    assert!(refused(good(), TDesc::host::<u16>([]).unwrap()).contains("at least one axis"));
    let strided = TDesc::with_layout([4, 2], DType::U8, MemLoc::Host, [4, 1], 0).unwrap();
    assert!(refused(good(), strided).contains("expected a contiguous tensor"));
    let device = TDesc::new([4], DType::U8, MemLoc::Device(0)).unwrap();
    assert!(refused(good(), device).contains("expected a tensor in host memory"));
    for (field, values) in [
        ("target_capacity", settings(0, 1, 1)),
        ("output_size", settings(1, -1, 1)),
        ("output_stride", settings(1, 1, 0)),
    ] {
        let text = refused(values, frame(1));
        assert!(
            text.contains(field) && text.contains("a whole number above 0"),
            "{text}"
        );
    }
    assert_eq!(
        refused(settings(8, 2, 3), frame(1)),
        "setting `output_stride`: found 3, expected a multiple of `output_size`, 2"
    );
    let mut dropping = settings(8, 2, 2);
    dropping["overflow"] = json!("latest");
    let text = refused(dropping, frame(1));
    assert!(text.contains("setting `overflow`: found latest"), "{text}");
    assert!(
        text.contains("a frame has 1 rows, and they are 2 and 2"),
        "{text}"
    );
    let text = refused(settings(i64::MAX, i64::MAX, i64::MAX), frame(2));
    assert!(text.contains("target_capacity"), "{text}");
    let request = TaskRequest::new("queue", &Value::Null, &[]);
    assert!(BatchQueueFactory.infer(&request).is_err());
}

#[test]
fn bq_11_a_frame_without_rows_is_refused() {
    assert!(refused(settings(8, 2, 2), frame(0)).contains("at least one row"));
}

/// Pushes until the queue is full; how many frames it took.
fn fill(task: &mut TaskHarness, rows: usize) -> usize {
    let mut count = 0_u16;
    loop {
        let data: Vec<u16> = (0..rows as u16)
            .map(|row| count * rows as u16 + row)
            .collect();
        if task.push(&data).unwrap() != OpResult::Ok {
            return count.into();
        }
        count += 1;
    }
}

#[test]
fn bq_02_slot_count_is_the_smallest_that_never_wraps() {
    for (rows, stride, target, slots) in [(4, 8, 5, 16), (1, 1, 1, 2), (4, 16, 64, 80)] {
        let mut task = queue(rows, settings(target, 1, stride));
        assert_eq!(
            fill(&mut task, rows) * rows,
            slots,
            "{rows} {stride} {target}"
        );
    }
    let mut task = queue(1, settings(1, 1, 10));
    assert_eq!(fill(&mut task, 1), 20);
}

#[test]
fn bq_03_acquire_gives_none_unless_a_whole_frame_is_free() {
    let mut task = queue(2, settings(2, 1, 1));
    assert_eq!(fill(&mut task, 2), 2);
    assert!(!task.producer().acquire(0).unwrap());
    // One row is free, a frame needs two.
    assert_eq!(task.pop::<u16>().unwrap(), Some(vec![0]));
    assert!(!task.producer().acquire(0).unwrap());
    assert_eq!(task.pop::<u16>().unwrap(), Some(vec![1]));
    assert!(task.producer().acquire(0).unwrap());
    let error = task.producer().acquire(1).unwrap_err();
    assert!(error.contract().is_some(), "{error}");
}

#[test]
fn bq_04_push_empties_the_input_cell_and_wraps() {
    let mut task = queue(1, settings(2, 1, 1));
    let mut first = None;
    for round in 0..7_u16 {
        assert!(task.producer().acquire(0).unwrap());
        let address = task.producer().input_address(0).unwrap().unwrap();
        let first = *first.get_or_insert(address.as_u64());
        assert_eq!(address.as_u64(), first + 2 * u64::from(round % 3));
        task.producer().write(0, &[round]).unwrap();
        assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
        assert_eq!(task.producer().input_address(0).unwrap(), None);
        assert_eq!(task.pop::<u16>().unwrap(), Some(vec![round]));
    }
}

#[test]
fn bq_05_pop_waits_for_a_stride_and_comes_once() {
    let mut task = queue(1, settings(4, 2, 4));
    for n in 0..3_u16 {
        push(&mut task, &[n]);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
    }
    push(&mut task, &[3_u16]);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().output::<u16>(0).unwrap(), [0, 1]);
    let error = task.consumer().try_pop().unwrap_err();
    assert!(
        matches!(
            error.contract(),
            Some(ContractError::Order {
                slot: Slot::Output(0),
                ..
            })
        ),
        "{error}"
    );
}

#[test]
fn bq_06_release_skips_the_rows_between_batches() {
    let mut task = queue(1, settings(8, 1, 4));
    for n in 0..8_u16 {
        push(&mut task, &[n]);
    }
    assert_eq!(task.pop::<u16>().unwrap(), Some(vec![0]));
    assert_eq!(task.consumer().output_address(0).unwrap(), None);
    assert_eq!(task.pop::<u16>().unwrap(), Some(vec![4]));
    assert_eq!(task.pop::<u16>().unwrap(), None);
}

#[test]
fn bq_07_the_consumer_reads_the_bytes_that_the_producer_wrote() {
    let mut task = queue(2, settings(6, 2, 2));
    for n in 0..20_u16 {
        assert!(task.producer().acquire(0).unwrap());
        let written = task.producer().input_address(0).unwrap();
        task.producer().write(0, &[2 * n, 2 * n + 1]).unwrap();
        assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
        assert_eq!(task.consumer().output_address(0).unwrap(), written);
        task.consumer().release_all().unwrap();
    }
    assert_eq!(task.report().copied_bytes, 0);
}

#[test]
fn bq_08_batches_of_another_size() {
    let mut task = queue(2, settings(6, 3, 3));
    let mut seen = Vec::new();
    for n in 0..6_u16 {
        assert_eq!(task.push(&[2 * n, 2 * n + 1]).unwrap(), OpResult::Ok);
        while let Some(batch) = task.pop::<u16>().unwrap() {
            seen.push(batch);
        }
    }
    let expected: Vec<Vec<u16>> = (0..4).map(|n| (3 * n..3 * n + 3).collect()).collect();
    assert_eq!(seen, expected);

    let mut task = queue(4, settings(8, 2, 2));
    push(&mut task, &[0_u16, 1, 2, 3]);
    assert_eq!(task.pop::<u16>().unwrap(), Some(vec![0, 1]));
    assert_eq!(task.pop::<u16>().unwrap(), Some(vec![2, 3]));
    assert_eq!(task.pop::<u16>().unwrap(), None);
}

/// Numbers through a queue, with what came of them.
fn numbers(count: u64, settings: BatchQueueSettings) -> (Vec<(Vec<u64>, FrameMeta)>, Report) {
    let (graph, seen) = number_graph(count, settings, |_| {});
    let mut steps = StepScheduler::new(graph, RunOptions::default(), count);
    let report = steps.run().unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, report)
}

type Seen = Arc<Mutex<Vec<(Vec<u64>, FrameMeta)>>>;

fn source(graph: &mut GraphBuilder, count: u64) -> Node {
    graph.sync_fn(
        "source",
        |_| Ok(InferResult::sync([], [TDesc::host::<u64>([1])?])),
        move |ctx| {
            let sequence = ctx.meta().sequence;
            if sequence == count {
                return Ok(OpResult::Eof);
            }
            ctx.outputs.get_mut::<u64>(0)?[0] = sequence;
            Ok(OpResult::Ok)
        },
    )
}

fn sink(graph: &mut GraphBuilder, name: &str, from: Node) -> Seen {
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    let sink = graph.sync_fn(
        name,
        |request| Ok(InferResult::sync([request.input(0)?.clone()], [])),
        move |ctx| {
            let values = ctx.inputs.get::<u64>(0)?.to_vec();
            kept.lock().unwrap().push((values, ctx.meta().clone()));
            Ok(OpResult::Ok)
        },
    );
    graph.connect(from, sink);
    seen
}

fn compile(graph: GraphBuilder) -> CompiledGraph {
    let mut registry = Registry::new();
    holoflow_cpu::register_all(&mut registry).unwrap();
    let built = graph.finish().unwrap();
    let registry = registry.with(&built).unwrap();
    Compiler::new(&registry).compile(&built.spec).unwrap()
}

fn number_graph(
    count: u64,
    settings: BatchQueueSettings,
    more: impl FnOnce(&mut GraphBuilder),
) -> (CompiledGraph, Seen) {
    let mut graph = GraphBuilder::new();
    let source = source(&mut graph, count);
    let queue = graph.node("queue", "BatchQueue", settings);
    graph.connect(source, queue);
    let seen = sink(&mut graph, "sink", queue);
    more(&mut graph);
    (compile(graph), seen)
}

#[test]
fn w_11_the_last_batch_comes_padded_with_its_count() {
    for count in [1_007, 7, 10, 0] {
        let (seen, report) = numbers(count, BatchQueueSettings::new(20, 10));
        assert_eq!(seen.len() as u64, count.div_ceil(10), "{count}");
        for (batch, (values, meta)) in seen.iter().enumerate() {
            let first = 10 * batch as u64;
            let valid = (count - first).min(10);
            let expected = (0..10).map(|row| if row < valid { first + row } else { 0 });
            assert_eq!(*values, expected.collect::<Vec<_>>());
            assert_eq!(meta.valid, (valid < 10).then_some(valid));
        }
        let queue = report.node("queue").unwrap();
        assert_eq!((queue.frames_in, queue.dropped, queue.held), (count, 0, 0));
    }
}

#[test]
fn w_11_the_last_batch_is_discarded_and_counted() {
    for count in [1_007, 7, 10, 0] {
        let settings = BatchQueueSettings::new(20, 10).with_at_end(AtEnd::Discard);
        let (seen, report) = numbers(count, settings);
        assert_eq!(seen.len() as u64, count / 10, "{count}");
        let queue = report.node("queue").unwrap();
        assert_eq!((queue.dropped, queue.held), (count % 10, 0));
        assert_eq!(queue.frames_in, 10 * queue.delivered + queue.dropped);
    }
}

#[test]
fn a_run_after_a_padded_batch_begins_at_the_first_row_again() {
    let (graph, seen) = number_graph(25, BatchQueueSettings::new(10, 10), |_| {});
    let mut steps = StepScheduler::new(graph, RunOptions::default(), 3);
    for _ in 0..5 {
        steps.run().unwrap();
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let valid: Vec<_> = seen.iter().map(|(_, meta)| meta.valid).collect();
        assert_eq!(valid, [None, None, Some(5)]);
        assert_eq!(seen[2].0, [20, 21, 22, 23, 24, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn queues_that_drop_count_what_they_drop_and_keep_the_metadata() {
    for overflow in [
        QueueOverflow::DropNewest,
        QueueOverflow::DropOldest,
        QueueOverflow::Latest,
    ] {
        StepScheduler::explore(0..30, |seed| {
            let settings = BatchQueueSettings::new(3, 1).with_overflow(overflow);
            let (graph, seen) = number_graph(50, settings, |_| {});
            let mut steps = StepScheduler::new(graph, RunOptions::default(), seed);
            let report = steps.run().unwrap();
            let queue = report.node("queue").unwrap();
            assert_eq!(queue.frames_in, 50, "upstream never waits");
            assert_eq!(
                queue.frames_in,
                queue.delivered + queue.dropped + queue.held
            );
            let seen = seen.lock().unwrap();
            assert!(seen.is_sorted_by_key(|(values, _)| values[0]));
            for (values, meta) in &*seen {
                assert_eq!(values[0], meta.sequence);
            }
            if overflow != QueueOverflow::DropNewest {
                assert_eq!(seen.last().unwrap().0, [49], "the newest is never dropped");
            }
        });
    }
}

#[test]
fn w_06_a_slow_display_costs_the_recorder_nothing() {
    const FRAMES: u64 = 1_000;
    let mut graph = GraphBuilder::new();
    let source = graph.sync_fn(
        "camera",
        |_| Ok(InferResult::sync([], [TDesc::host::<u64>([1])?])),
        |ctx| {
            let sequence = ctx.meta().sequence;
            if sequence == FRAMES {
                return Ok(OpResult::Eof);
            }
            // A frame each millisecond.
            let due = Timestamp::from_nanos(1_000_000 * sequence);
            if ctx.now() < due {
                ctx.wake_at(due);
                return Ok(OpResult::NotReady);
            }
            assert!(ctx.now() == due, "the camera was held up");
            ctx.outputs.get_mut::<u64>(0)?[0] = sequence;
            Ok(OpResult::Ok)
        },
    );
    let record = graph.node("record", "BatchQueue", BatchQueueSettings::new(8, 1));
    let latest = BatchQueueSettings::new(1, 1).with_overflow(QueueOverflow::Latest);
    let display = graph.node("display", "BatchQueue", latest);
    graph.connect(source, record);
    graph.connect(source, display);
    // The display shows a frame every 50 ms.
    let slow = graph.node(
        "slow",
        "RateLimiter",
        json!({ "max_fps": 20, "pacing": "spacing" }),
    );
    graph.connect(display, slow);
    let recorded = sink(&mut graph, "recorder", record);
    let shown = sink(&mut graph, "screen", slow);
    let graph = compile(graph);
    let mut steps = StepScheduler::new(graph, RunOptions::default(), 1);
    let report = steps.run().unwrap();
    let recorded = recorded.lock().unwrap();
    let recorded: Vec<u64> = recorded.iter().map(|(values, _)| values[0]).collect();
    assert_eq!(recorded, (0..FRAMES).collect::<Vec<_>>());
    let shown = shown.lock().unwrap().len() as u64;
    assert!((20..=25).contains(&shown), "{shown}");
    let display = report.node("display").unwrap();
    assert_eq!(display.dropped, FRAMES - display.delivered - display.held);
    assert_eq!(report.node("record").unwrap().dropped, 0);
    assert!(report.has_losses());
    assert!(steps.clock().now() >= Timestamp::ZERO.saturating_add(Duration::from_millis(999)));
}

#[test]
fn bq_13_an_update_keeps_what_fits() {
    let fresh = || {
        let mut task = queue(1, settings(8, 1, 1));
        for n in 0..5_u16 {
            push(&mut task, &[n]);
        }
        task
    };
    let drain = |task: &mut TaskHarness| -> Vec<u16> {
        std::iter::from_fn(|| task.pop::<u16>().unwrap())
            .flatten()
            .collect()
    };
    // The same, and other capacities that suffice.
    for target in [8, 4, 20] {
        let mut task = fresh();
        task.update_async(&BatchQueueFactory, settings(target, 1, 1))
            .unwrap();
        assert_eq!(drain(&mut task), [0, 1, 2, 3, 4], "{target}");
        assert_eq!(task.push(&[9_u16]).unwrap(), OpResult::Ok);
        assert_eq!(drain(&mut task), [9]);
        assert_eq!(task.report().dropped, 0);
    }
    // One that does not suffice, and another policy: a fresh queue, and the count.
    let mut other = settings(8, 1, 1);
    other["at_end"] = json!("discard");
    for changed in [settings(2, 1, 1), other] {
        let mut task = fresh();
        task.update_async(&BatchQueueFactory, changed).unwrap();
        assert!(drain(&mut task).is_empty());
        assert_eq!(task.push(&[9_u16]).unwrap(), OpResult::Ok);
        assert_eq!(task.report().dropped, 5);
        assert_eq!(drain(&mut task), [9]);
    }
}

#[test]
fn bq_13_an_update_of_a_queue_that_drops_keeps_what_fits() {
    let with = |target: i64| {
        let mut settings = settings(target, 1, 1);
        settings["overflow"] = json!("drop_oldest");
        settings
    };
    for (target, kept) in [(8, vec![0, 1, 2]), (4, vec![0, 1, 2]), (2, vec![])] {
        let mut task = queue(1, with(8));
        for n in 0..3_u16 {
            push(&mut task, &[n]);
        }
        task.update_async(&BatchQueueFactory, with(target)).unwrap();
        let seen: Vec<u16> = std::iter::from_fn(|| task.pop::<u16>().unwrap())
            .flatten()
            .collect();
        assert_eq!(seen, kept, "{target}");
    }
}

#[test]
fn bq_13_a_foreign_task_is_replaced() {
    let settings_of_another = json!({ "max_fps": 1000.0 });
    let factory = holoflow_cpu::OwnedRateLimiterFactory;
    let mut task = TaskHarness::asynchronous(&factory, settings_of_another, [frame(1)]).unwrap();
    push(&mut task, &[1_u16]);
    task.update_async(&BatchQueueFactory, settings(4, 1, 1))
        .unwrap();
    assert_eq!(task.pop::<u16>().unwrap(), None);
    assert_eq!(task.push(&[2_u16]).unwrap(), OpResult::Ok);
    assert_eq!(task.pop::<u16>().unwrap(), Some(vec![2]));
}

#[test]
fn bq_14_two_threads_pass_frames_in_order() {
    let (graph, seen) = number_graph(20_000, BatchQueueSettings::new(8, 1), |_| {});
    let mut pipeline = holoflow_core::pipeline::Pipeline::new(graph);
    let report = pipeline.run().unwrap();
    assert_eq!(report.node("queue").unwrap().delivered, 20_000);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().map(|(values, _)| values[0]).eq(0..20_000));
}

#[test]
fn a_setting_that_is_refused_is_named() {
    let wrong =
        json!({ "target_capacity": 1, "output_size": 1, "output_stride": 1, "at_end": "x" });
    let request = TaskRequest::new("queue", &wrong, &[]);
    let error = BatchQueueFactory.infer(&request).unwrap_err();
    assert!(matches!(error.kind(), TaskErrorKind::Settings { field, .. } if field == "at_end"));
}
