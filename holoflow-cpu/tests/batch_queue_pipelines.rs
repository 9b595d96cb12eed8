//! The batch queue in pipelines.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holoflow_core::clock::{Clock, Timestamp};
use holoflow_core::compiler::{CompiledGraph, Compiler};
use holoflow_core::graph::{GraphBuilder, Node};
use holoflow_core::registry::Registry;
use holoflow_core::scheduler::{Report, RunOptions};
use holoflow_core::task::{FrameMeta, InferResult, OpResult};
use holoflow_core::tensor::TDesc;
use holoflow_core::testkit::StepScheduler;
use holoflow_cpu::{AtEnd, BatchQueueSettings, QueueOverflow};
use serde_json::json;

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
fn bq_14_two_threads_pass_frames_in_order() {
    let (graph, seen) = number_graph(20_000, BatchQueueSettings::new(8, 1), |_| {});
    let mut pipeline = holoflow_core::pipeline::Pipeline::new(graph);
    let report = pipeline.run().unwrap();
    assert_eq!(report.node("queue").unwrap().delivered, 20_000);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().map(|(values, _)| values[0]).eq(0..20_000));
}
