//! What happens in an iteration, and in which order.

use super::kit::{Got, Kit, Log, assert_conserved, everywhere};
use crate::scheduler::{Outcome, Report};
use crate::task::{OpResult, TaskError};

/// Source, queue, sink, all noted.
fn noted() -> (Kit, Log) {
    let mut kit = Kit::new();
    let log = kit.log.clone();
    let source = kit.source("source", 3);
    let note = log.clone();
    let middle = kit.sync("middle", source, false, move |_, _| {
        note.note("middle");
        Ok(OpResult::Ok)
    });
    let queue = kit.queue("a", 1, middle);
    let relay = kit.map("relay", queue, |x| x + 1);
    let second = kit.queue("b", 1, relay);
    let note = log.clone();
    kit.sink_fn("sink", second, move |_, x| {
        note.note(format!("sink {x}"));
        Ok(OpResult::Ok)
    });
    (kit, log)
}

#[test]
fn s_01_phases_come_in_order_and_each_frame_is_acquired_pushed_popped_and_released() {
    everywhere(noted, |report, log| {
        let report = report.unwrap();
        assert_eq!(report.outcome, Outcome::Completed);
        assert_conserved(&report);
        let of = |what: &[&str]| -> Vec<String> {
            let lines = log.lines().into_iter();
            lines.filter(|line| what.contains(&line.as_str())).collect()
        };
        let produced = of(&["a acquire", "middle", "a push", "a cancel"]);
        let mut expected = vec![];
        for _ in 0..3 {
            expected.extend(["a acquire", "middle", "a push"]);
        }
        // The iteration in which the source ends.
        expected.extend(["a acquire", "a cancel"]);
        assert_eq!(produced, expected);
        // In the relay's section: acquire before pop, push before release.
        let relayed = of(&["b acquire", "a pop", "b push", "a release", "b cancel"]);
        let mut expected = vec![];
        for _ in 0..3 {
            expected.extend(["b acquire", "a pop", "b push", "a release"]);
        }
        expected.extend(["b acquire", "b cancel"]);
        assert_eq!(relayed, expected);
        assert_eq!(
            of(&["sink 1", "sink 2", "sink 3"]),
            ["sink 1", "sink 2", "sink 3"]
        );
        for queue in ["a", "b"] {
            for hook in ["started", "producer_finished", "consumer_finished", "ended"] {
                assert_eq!(log.count(&format!("{queue} {hook}")), 1, "{queue} {hook}");
            }
        }
    });
}

#[test]
fn s_44_values_through_one_section() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 4);
            let half = kit.map("half", source, |x| (10 * x + x) / 2);
            let got = kit.sink("sink", half);
            (kit, got)
        },
        |report, got| {
            assert_eq!(got.values(), [0, 5, 11, 16]);
            let report = report.unwrap();
            for name in ["source", "half", "sink"] {
                assert_eq!(report.node(name).unwrap().delivered, 4, "{name}");
            }
        },
    );
}

#[test]
fn s_46_values_through_two_queues() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 100);
            let first = kit.queue("first", 2, source);
            let double = kit.map("double", first, |x| 2 * x);
            let second = kit.queue("second", 3, double);
            let triple = kit.map("triple", second, |x| 3 * x);
            let got = kit.sink("sink", triple);
            (kit, got)
        },
        |report, got| {
            let expected: Vec<u64> = (0..100).map(|x| 6 * x).collect();
            assert_eq!(got.values(), expected);
            let report = report.unwrap();
            assert_conserved(&report);
            assert_eq!(report.node("first").unwrap().delivered, 100);
            assert!(!report.has_losses());
        },
    );
}

#[test]
fn branches_that_meet_again_stay_together() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 50);
            let a = kit.queue("a", 1, source);
            let b = kit.queue("b", 4, source);
            let left = kit.map("left", a, |x| x);
            let left = kit.queue("left queue", 2, left);
            let join = kit.graph.sync_fn(
                "join",
                |request| {
                    let [a, b] = request.exactly::<2>()?;
                    Ok(crate::task::InferResult::sync([a.clone(), b.clone()], []))
                },
                |ctx| {
                    assert_eq!(ctx.inputs.get::<u64>(0)?, ctx.inputs.get::<u64>(1)?);
                    Ok(OpResult::Ok)
                },
            );
            kit.graph.connect(left, join.input(0));
            kit.graph.connect(b, join.input(1));
            (kit, ())
        },
        |report, ()| {
            let report = report.unwrap();
            assert_eq!(report.node("join").unwrap().delivered, 50);
            assert_conserved(&report);
        },
    );
}

#[test]
fn w_05_a_skipped_frame_is_seen_by_nobody_behind() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 20);
            let even = kit.sync("even", source, true, |_, x| {
                Ok(if x % 2 == 0 {
                    OpResult::Ok
                } else {
                    OpResult::Skip
                })
            });
            let queue = kit.queue("queue", 2, even);
            let got = kit.sink("sink", queue);
            (kit, got)
        },
        |report, got| {
            let expected: Vec<u64> = (0..20).step_by(2).collect();
            assert_eq!(got.values(), expected);
            let report = report.unwrap();
            assert_conserved(&report);
            let even = report.node("even").unwrap();
            assert_eq!((even.frames_in, even.delivered, even.skipped), (20, 10, 10));
            assert_eq!(report.node("queue").unwrap().frames_in, 10);
        },
    );
}

/// A node that skips every third frame and fails on every seventh, with two in flight.
fn limited(count: u64) -> (Kit, Got) {
    let mut kit = Kit::new();
    kit.options.in_flight = std::num::NonZeroUsize::new(2);
    let source = kit.source("source", count);
    let before = kit.queue("before", 4, source);
    let middle = kit.sync("middle", before, true, |_, x| {
        if x % 7 == 0 {
            return Err(TaskError::frame(format!("frame {x}")));
        }
        Ok(if x % 3 == 0 {
            OpResult::Skip
        } else {
            OpResult::Ok
        })
    });
    let after = kit.queue("after", 4, middle);
    let got = kit.sink("sink", after);
    (kit, got)
}

fn check_limited(report: &Report, got: &Got, count: u64) {
    assert_eq!(report.in_flight, Some(0));
    assert_conserved(report);
    let expected = (0..count).filter(|x| x % 7 != 0 && x % 3 != 0);
    assert_eq!(got.values(), expected.collect::<Vec<_>>());
    assert_eq!(report.node("middle").unwrap().failed, count.div_ceil(7));
    assert!(report.has_losses());
}

#[test]
fn w_04_credit_comes_back_on_every_path() {
    everywhere(
        || limited(500),
        |report, got| check_limited(&report.unwrap(), &got, 500),
    );
    let (kit, got) = limited(10_000);
    check_limited(&kit.pipeline().run().unwrap(), &got, 10_000);
}

#[test]
fn metadata_travels_with_the_frames() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 30);
            let stamp = kit.sync("stamp", source, true, |ctx, x| {
                let value = crate::task::MetaValue::Int(x as i64);
                ctx.meta_mut().set("x", value);
                Ok(if x % 5 == 0 {
                    OpResult::Skip
                } else {
                    OpResult::Ok
                })
            });
            let queue = kit.queue("queue", 3, stamp);
            kit.sink_fn("sink", queue, |ctx, x| {
                assert_eq!(ctx.meta().sequence, x);
                let value = crate::task::MetaValue::Int(x as i64);
                assert_eq!(ctx.meta().get("x"), Some(value));
                Ok(OpResult::Ok)
            });
            (kit, ())
        },
        |report, ()| {
            assert_eq!(report.unwrap().node("sink").unwrap().delivered, 24);
        },
    );
}
