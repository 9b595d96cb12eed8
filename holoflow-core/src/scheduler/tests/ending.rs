//! How a run ends: by itself, told to finish, cancelled; and how it begins again.

use std::time::Duration;

use serde_json::json;

use super::kit::{Kit, assert_conserved, everywhere};
use crate::scheduler::{Outcome, RunError, StartError};
use crate::sync::{Arc, Mutex, Parker, Unparker};
use crate::task::OpResult;
use crate::testkit::{StepScheduler, Stepped};

#[test]
fn w_10_eof_drains_three_queues() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let mut node = kit.source("source", 1_000);
            for name in ["a", "b", "c"] {
                node = kit.queue(name, 16, node);
                node = kit.map(&format!("after {name}"), node, |x| x);
            }
            let got = kit.sink("sink", node);
            let log = kit.log.clone();
            (kit, (got, log))
        },
        |report, (got, log)| {
            assert_eq!(got.values(), (0..1_000).collect::<Vec<_>>());
            let report = report.unwrap();
            assert_eq!(report.outcome, Outcome::Completed);
            assert_conserved(&report);
            let lines = log.lines();
            assert_eq!(log.count("c ended"), 1);
            let ended = lines.iter().position(|line| line == "c ended").unwrap();
            let last = lines.iter().rposition(|line| line == "c release").unwrap();
            assert!(last < ended);
        },
    );
}

#[test]
fn s_07_and_s_11_a_sink_that_has_enough_ends_what_feeds_it() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", u64::MAX);
            let queue = kit.queue("queue", 4, source);
            kit.sink_fn("sink", queue, |_, x| {
                Ok(if x < 10 { OpResult::Ok } else { OpResult::Eof })
            });
            let log = kit.log.clone();
            (kit, log)
        },
        |report, log| {
            let report = report.unwrap();
            assert_eq!(report.outcome, Outcome::Completed);
            assert_eq!(report.node("sink").unwrap().delivered, 10);
            assert_eq!(report.node("queue").unwrap().discarded_at_end, 1);
            assert_conserved(&report);
            // S-07: what was popped is released, though its reader ended the section.
            assert_eq!(log.count("queue pop"), log.count("queue release"));
        },
    );
}

#[test]
fn one_branch_ends_and_the_other_goes_on() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 200);
            let short = kit.queue("short", 2, source);
            let long = kit.queue("long", 2, source);
            kit.sink_fn("enough", short, |_, x| {
                Ok(if x < 5 { OpResult::Ok } else { OpResult::Eof })
            });
            let got = kit.sink("sink", long);
            (kit, got)
        },
        |report, got| {
            let report = report.unwrap();
            assert_eq!(got.values(), (0..200).collect::<Vec<_>>());
            assert_conserved(&report);
            let short = report.node("short").unwrap();
            assert_eq!(short.frames_in, 200);
            assert!(short.consumer_finished >= 190, "{short:?}");
        },
    );
}

#[test]
fn a_queue_that_says_eof_itself_needs_no_flow() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 100);
            let settings = json!({ "slots": 3, "flow": false, "eof": true });
            let queue = kit.graph.node("queue", "Queue", settings);
            kit.graph.connect(source, queue);
            let got = kit.sink("sink", queue);
            (kit, got)
        },
        |report, got| {
            report.unwrap();
            assert_eq!(got.values().len(), 100);
        },
    );
}

#[test]
fn a_queue_that_neither_declares_flow_nor_ends_is_reported() {
    StepScheduler::explore(0..10, |seed| {
        let mut kit = Kit::new();
        let source = kit.source("source", 5);
        let settings = json!({ "slots": 3, "flow": false });
        let queue = kit.graph.node("queue", "Queue", settings);
        kit.graph.connect(source, queue);
        kit.sink("sink", queue);
        let error = kit.steps(seed).run().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("node `queue`: it did not drain"), "{text}");
        assert!(
            text.contains("execute_async_consumer of section 1"),
            "{text}"
        );
    });
}

#[test]
fn s_17_s_22_s_23_and_s_24_a_stop_ends_a_run_that_gets_on() {
    let mut kit = Kit::new();
    let source = kit.source("source", u64::MAX);
    let queue = kit.queue("queue", 4, source);
    let control = Arc::new(Mutex::new(None::<crate::pipeline::Control>));
    let stop = Arc::clone(&control);
    kit.sink_fn("sink", queue, move |ctx, x| {
        if x >= 16
            && let Some(control) = &*stop.lock()
        {
            control.request_stop();
            assert!(ctx.is_cancelled(), "S-19");
        }
        Ok(OpResult::Ok)
    });
    let mut pipeline = kit.pipeline();
    // S-22: before the start it does nothing.
    pipeline.request_stop();
    assert!(!pipeline.is_stop_requested());
    pipeline.start().unwrap();
    *control.lock() = Some(pipeline.control());
    assert!(pipeline.is_running(), "S-23");
    assert!(matches!(pipeline.start(), Err(StartError::AlreadyRunning)));
    let report = pipeline.wait().unwrap();
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert!(report.node("sink").unwrap().delivered >= 16);
    assert!(!pipeline.is_running());
    assert!(pipeline.is_stop_requested(), "S-24");
    assert_conserved(&report);
    assert!(matches!(pipeline.wait(), Err(RunError::NotStarted)));
}

#[test]
fn finishing_drains_what_is_inside() {
    StepScheduler::explore(0..50, |seed| {
        let mut kit = Kit::new();
        let source = kit.source("source", u64::MAX);
        let a = kit.queue("a", 4, source);
        let b = kit.map("map", a, |x| x);
        let b = kit.queue("b", 4, b);
        let got = kit.sink("sink", b);
        let mut steps = kit.steps(seed);
        steps.start().unwrap();
        for _ in 0..(10 + 17 * seed) {
            assert!(matches!(steps.step(), Stepped::Ran(_)));
        }
        steps.finish();
        let report = steps.run().unwrap();
        assert_eq!(report.outcome, Outcome::Finished);
        let made = report.node("source").unwrap().delivered;
        assert_eq!(got.values(), (0..made).collect::<Vec<_>>());
        assert_conserved(&report);
    });
}

#[test]
fn w_14_a_stop_between_acquire_and_push_cancels_once_and_the_slot_is_usable_again() {
    StepScheduler::explore(0..50, |seed| {
        let mut kit = Kit::new();
        let log = kit.log.clone();
        let source = kit.source("source", u64::MAX);
        let queue = kit.queue("queue", 1, source);
        kit.sink("sink", queue);
        let mut steps = kit.steps(seed);
        for run in 1..4 {
            steps.start().unwrap();
            let acquired = log.count("queue acquire");
            while log.count("queue acquire") < acquired + 3 {
                steps.step();
            }
            steps.cancel();
            let report = steps.run().unwrap();
            assert_eq!(report.outcome, Outcome::Cancelled);
            assert_conserved(&report);
            let (acquires, pushes) = (log.count("queue acquire"), log.count("queue push"));
            assert_eq!(acquires, pushes + log.count("queue cancel"), "run {run}");
            assert_eq!(log.count("queue pop"), log.count("queue release"));
        }
    });
}

#[test]
fn s_25_a_run_after_a_run_goes_on_with_what_is_held() {
    StepScheduler::explore(0..50, |seed| {
        let mut kit = Kit::new();
        let source = kit.source("source", u64::MAX);
        let queue = kit.queue("queue", 8, source);
        let got = kit.sink("sink", queue);
        let mut steps = kit.steps(seed);
        steps.start().unwrap();
        for _ in 0..100 + seed {
            steps.step();
        }
        steps.cancel();
        let first = steps.run().unwrap();
        let before = got.values().len() as u64;
        let queue = first.node("queue").unwrap();
        let (held, lost) = (queue.held, queue.discarded_at_end);
        assert_eq!(queue.frames_in, before + lost + held);
        steps.start().unwrap();
        for _ in 0..100 {
            steps.step();
        }
        steps.finish();
        let second = steps.run().unwrap();
        let queue = second.node("queue").unwrap();
        assert_eq!((queue.held_before, queue.held), (held, 0));
        assert_conserved(&second);
        // What was held comes first, and then the source begins again.
        let after = got.values().split_off(before as usize);
        let resumed: Vec<u64> = (before + lost..before + lost + held).collect();
        assert_eq!(after[..held as usize], resumed);
        let again: Vec<u64> = (0..after.len() as u64 - held).collect();
        assert_eq!(after[held as usize..], again);
    });
}

#[test]
fn s_27_dropping_a_running_pipeline_stops_it() {
    let mut kit = Kit::new();
    let source = kit.source("source", u64::MAX);
    let queue = kit.queue("queue", 2, source);
    kit.sink("sink", queue);
    let log = kit.log.clone();
    let mut pipeline = kit.pipeline();
    pipeline.start().unwrap();
    drop(pipeline);
    assert_eq!(log.count("queue ended"), 1);
}

#[test]
fn sources_end_after_as_many_frames_as_the_options_say() {
    everywhere(
        || {
            let mut kit = Kit::new();
            kit.options.frames = Some(7);
            let source = kit.source("source", u64::MAX);
            let queue = kit.queue("queue", 2, source);
            let got = kit.sink("sink", queue);
            (kit, got)
        },
        |report, got| {
            assert_eq!(report.unwrap().outcome, Outcome::Completed);
            assert_eq!(got.values(), (0..7).collect::<Vec<_>>());
        },
    );
}

#[test]
fn a_token_from_outside_cancels() {
    let token = tokio_util::sync::CancellationToken::new();
    let mut kit = Kit::new();
    kit.options.cancellation = Some(token.clone());
    let source = kit.source("source", u64::MAX);
    kit.sink_fn("sink", source, move |_, x| {
        if x == 100 {
            token.cancel();
        }
        Ok(OpResult::Ok)
    });
    let mut pipeline = kit.pipeline();
    assert_eq!(pipeline.run().unwrap().outcome, Outcome::Cancelled);
    // It stays cancelled.
    assert_eq!(pipeline.run().unwrap().outcome, Outcome::Cancelled);
}

#[test]
fn waiting_for_a_while_leaves_the_run_going() {
    let mut kit = Kit::new();
    let source = kit.source("source", u64::MAX);
    kit.sink("sink", source);
    let mut pipeline = kit.pipeline();
    pipeline.start().unwrap();
    assert!(pipeline.wait_for(Duration::ZERO).is_none());
    assert!(pipeline.is_running());
    pipeline.cancel();
    assert!(pipeline.wait().is_ok());
}

#[test]
fn waiting_can_be_awaited() {
    let mut kit = Kit::new();
    let source = kit.source("source", 1_000);
    let queue = kit.queue("queue", 2, source);
    let got = kit.sink("sink", queue);
    let mut pipeline = kit.pipeline();
    pipeline.start().unwrap();
    let parker = Parker::new();
    struct Unpark(Unparker);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(parker.unparker().clone())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut wait = std::pin::pin!(pipeline.wait_async());
    let report = loop {
        match std::future::Future::poll(wait.as_mut(), &mut context) {
            std::task::Poll::Ready(report) => break report,
            std::task::Poll::Pending => parker.park(),
        }
    };
    assert_eq!(report.unwrap().outcome, Outcome::Completed);
    assert_eq!(got.values().len(), 1_000);
}

#[test]
fn metadata_of_an_earlier_run_is_not_found_in_the_next() {
    StepScheduler::explore(0..20, |seed| {
        let mut kit = Kit::new();
        kit.options.frames = Some(20);
        let source = kit.source("source", u64::MAX);
        let mut calls = 0_u64;
        let stamp = kit.sync("stamp", source, false, move |ctx, _| {
            calls += 1;
            // In the first run only.
            if calls <= 20 {
                ctx.meta_mut()
                    .set("first", crate::task::MetaValue::Bool(true));
            }
            Ok(OpResult::Ok)
        });
        let queue = kit.queue("queue", 3, stamp);
        let mut seen = 0_u64;
        kit.sink_fn("sink", queue, move |ctx, x| {
            seen += 1;
            assert_eq!(ctx.meta().sequence, x);
            assert_eq!(
                ctx.meta().get("first").is_some(),
                seen <= 20,
                "frame {seen}"
            );
            Ok(OpResult::Ok)
        });
        let mut steps = kit.steps(seed);
        for _ in 0..3 {
            let report = steps.run().unwrap();
            assert_eq!(report.node("sink").unwrap().delivered, 20);
            assert_conserved(&report);
        }
    });
}
