//! What a pipeline tells of itself, and what is said to it: metrics and events.

use serde_json::json;

use super::kit::Kit;
use crate::clock::{ManualClock, Timestamp};
use crate::pipeline::{Pipeline, SendError};
use crate::sync::Arc;
use crate::task::{InferResult, OpResult};
use crate::tensor::MemLoc;

/// Source, queue, sink, by a clock that stands still.
fn small(count: u64) -> (Pipeline, ManualClock) {
    let mut kit = Kit::new();
    let clock = ManualClock::new();
    kit.options.clock = Arc::new(clock.clone());
    let source = kit.source("source", count);
    let queue = kit.queue("queue", 2, source);
    kit.sink("sink", queue);
    (kit.pipeline(), clock)
}

#[test]
fn s_33_and_s_34_metrics_list_every_node_once_the_pipeline_has_started() {
    let (mut pipeline, _) = small(10);
    assert!(pipeline.metrics().nodes.is_empty());
    pipeline.start().unwrap();
    let names: Vec<String> = pipeline.metrics().nodes.into_keys().collect();
    assert_eq!(names, ["queue", "sink", "source"]);
    pipeline.wait().unwrap();
    let metrics = pipeline.metrics();
    assert_eq!(metrics.nodes["sink"].total.delivered, 10);
}

#[test]
fn s_35_figures_are_per_interval_and_in_total() {
    let (mut pipeline, clock) = small(10);
    pipeline.start().unwrap();
    while !pipeline.control().has_ended() {
        std::thread::yield_now();
    }
    clock.advance(std::time::Duration::from_secs(2));
    let first = pipeline.metrics();
    let sink = &first.nodes["sink"];
    assert_eq!((sink.delivered, sink.total.delivered), (10, 10));
    let second = pipeline.metrics();
    let sink = &second.nodes["sink"];
    assert_eq!((sink.delivered, sink.total.delivered), (0, 10));
    assert!(second.interval.is_zero());
    pipeline.wait().unwrap();
}

#[test]
fn s_36_bytes_are_counted_by_location() {
    let (mut pipeline, _) = small(10);
    let report = pipeline.run().unwrap();
    for (name, bytes) in [("source", 80), ("queue", 160), ("sink", 80)] {
        let found = report.node(name).unwrap().bytes.get(&MemLoc::Host);
        assert_eq!(found, Some(&bytes), "{name}");
    }
}

#[test]
fn s_39_only_calls_that_made_a_frame_are_timed() {
    let mut kit = Kit::new();
    let source = kit.source("source", 10);
    let skip = kit.sync("skip", source, true, |_, _| Ok(OpResult::Skip));
    kit.sink("sink", skip);
    let report = kit.pipeline().run().unwrap();
    assert!(report.node("source").unwrap().durations.samples > 0);
    for name in ["skip", "sink"] {
        assert_eq!(report.node(name).unwrap().durations.samples, 0, "{name}");
    }
}

#[test]
fn s_25_metrics_begin_anew_with_each_run() {
    let (mut pipeline, _) = small(10);
    for _ in 0..3 {
        let report = pipeline.run().unwrap();
        assert_eq!(report.node("sink").unwrap().delivered, 10);
        assert_eq!(pipeline.metrics().nodes["queue"].total.frames_in, 10);
    }
}

#[test]
fn latency_is_told_from_each_source_to_each_end() {
    let (mut pipeline, _) = small(200);
    let report = pipeline.run().unwrap();
    assert_eq!(report.latency.len(), 1);
    let path = &report.latency[0];
    assert_eq!((path.from.as_str(), path.to.as_str()), ("source", "sink"));
    assert!(path.latency.samples >= 3);
}

/// A node that answers each event with one of its own, and ends at the event `"end"`.
fn echo() -> (Pipeline, ManualClock) {
    let mut kit = Kit::new();
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(77));
    kit.options.clock = Arc::new(clock.clone());
    kit.options.mailbox = 2;
    kit.graph.sync_fn(
        "echo",
        |_| Ok(InferResult::sync([], [super::kit::number()?])),
        |ctx| {
            let mut made = false;
            while let Some(event) = ctx.next_event() {
                if event.data == json!("end") {
                    return Ok(OpResult::Eof);
                }
                ctx.emit(json!({ "echo": event.data }));
                made = true;
            }
            Ok(if made {
                OpResult::Ok
            } else {
                OpResult::NotReady
            })
        },
    );
    (kit.pipeline(), clock)
}

fn receive(pipeline: &Pipeline) -> crate::task::Event {
    loop {
        if let Some(event) = pipeline.receive() {
            return event;
        }
        std::thread::yield_now();
    }
}

#[test]
fn e_01_and_e_02_events_go_to_a_node_wake_it_and_come_back_stamped() {
    let (mut pipeline, _) = echo();
    pipeline.start().unwrap();
    for n in 0..3 {
        pipeline.send("echo", json!(n)).unwrap();
        let event = receive(&pipeline);
        assert_eq!(&*event.node, "echo");
        assert_eq!(event.data, json!({ "echo": n }));
        // E-19: by the clock of the run.
        assert_eq!(event.at, Timestamp::from_nanos(77));
    }
    pipeline.send("echo", json!("end")).unwrap();
    pipeline.wait().unwrap();
    let counts = pipeline.control().mailbox_counts("echo").unwrap();
    assert_eq!((counts.sent, counts.received), (4, 4), "E-13");
}

#[test]
fn e_05_an_event_for_nobody_says_so_and_is_counted() {
    let (pipeline, _) = echo();
    let error = pipeline.send("ecko", json!(1)).unwrap_err();
    assert!(matches!(&error, SendError::UnknownNode { node } if node == "ecko"));
    assert_eq!(
        error.to_string(),
        "there is no node `ecko` to send an event to"
    );
    assert_eq!(pipeline.control().unknown_node_events(), 1);
    assert!(pipeline.control().mailbox_counts("ecko").is_none(), "E-17");
}

#[test]
fn e_06_a_full_mailbox_keeps_the_oldest() {
    let (pipeline, _) = echo();
    let capacity = crate::task::Mailbox::DEFAULT_CAPACITY;
    for n in 0..capacity {
        pipeline.send("echo", json!(n)).unwrap();
    }
    let error = pipeline.send("echo", json!("late")).unwrap_err();
    assert!(matches!(error, SendError::Full { .. }));
    let counts = pipeline.control().mailbox_counts("echo").unwrap();
    assert_eq!((counts.sent, counts.dropped), (capacity as u64, 1));
}

#[test]
fn e_07_a_full_mailbox_to_the_application_costs_events_and_not_the_run() {
    let (mut pipeline, _) = echo();
    for n in 0..5 {
        // E-11: they come in this order.
        pipeline.send("echo", json!(n)).unwrap();
    }
    pipeline.send("echo", json!("end")).unwrap();
    pipeline.run().unwrap();
    let counts = pipeline.control().outgoing_counts();
    assert_eq!((counts.sent, counts.dropped), (2, 3));
    for n in 0..2 {
        assert_eq!(receive(&pipeline).data, json!({ "echo": n }));
    }
}
