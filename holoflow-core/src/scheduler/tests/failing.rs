//! What happens when something goes wrong.

use std::time::Duration;

use super::kit::{Kit, everywhere};
use crate::scheduler::{FailureCause, Phase, RunError, StartError, Watchdog};
use crate::sync::mpsc;
use crate::task::{OpResult, TaskError, TaskErrorKind};
use crate::testkit::StepScheduler;

#[test]
fn s_29_and_s_30_a_failing_task_is_reported_with_its_place() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 100);
            let queue = kit.queue("queue", 2, source);
            let faulty = kit.sync("faulty", queue, false, |_, x| {
                if x == 5 {
                    return Err(TaskError::other("the lens fell off"));
                }
                Ok(OpResult::Ok)
            });
            let second = kit.queue("second", 2, faulty);
            let got = kit.sink("sink", second);
            (kit, got)
        },
        |result, _| {
            let error = result.unwrap_err();
            let failure = error.first().unwrap();
            assert_eq!(failure.node.as_deref(), Some("faulty"));
            assert_eq!(failure.phase, Phase::ExecuteSync);
            assert_eq!(failure.section.index(), 1);
            assert_eq!(failure.section_name, "section 1");
            assert!(failure.vertex.is_some());
            let text = error.to_string();
            assert!(
                text.contains("node `faulty`, execute: the task failed: the lens fell off"),
                "{text}"
            );
            assert!(text.contains("in execute_sync of section 1"), "{text}");
            let report = error.report().unwrap();
            assert_eq!(report.node("faulty").unwrap().delivered, 5);
        },
    );
}

#[test]
fn w_17_a_panic_ends_the_run_with_its_text() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", u64::MAX);
            let queue = kit.queue("queue", 2, source);
            let faulty = kit.map("faulty", queue, |x| {
                assert!(x < 50, "frame {x} is upside down");
                x
            });
            let second = kit.queue("second", 2, faulty);
            kit.sink("sink", second);
            let log = kit.log.clone();
            (kit, log)
        },
        |result, log| {
            let error = result.unwrap_err();
            let failure = error.first().unwrap();
            let FailureCause::Hook(hook) = &failure.cause else {
                panic!("{failure}");
            };
            let TaskErrorKind::Panicked { message } = hook.error.kind() else {
                panic!("{hook}");
            };
            assert_eq!(message, "frame 50 is upside down");
            assert_eq!(failure.node.as_deref(), Some("faulty"));
            assert_eq!(log.count("queue pop"), log.count("queue release"));
            for queue in ["queue", "second"] {
                assert_eq!(log.count(&format!("{queue} ended")), 1);
            }
        },
    );
}

#[test]
fn a_pipeline_whose_task_panicked_does_not_start_again() {
    let mut kit = Kit::new();
    let source = kit.source("source", u64::MAX);
    kit.sink_fn("sink", source, |_, _| panic!("never again"));
    let mut pipeline = kit.pipeline();
    assert!(matches!(pipeline.run(), Err(RunError::Failed(_))));
    let error = pipeline.run().unwrap_err();
    assert!(matches!(&error, RunError::Start(StartError::Task(_))));
    assert!(error.to_string().contains("node `sink`"), "{error}");
}

#[test]
fn a_pipeline_whose_task_failed_starts_again() {
    let mut kit = Kit::new();
    let source = kit.source("source", 10);
    let mut failed = false;
    kit.sink_fn("sink", source, move |_, x| {
        if x == 5 && !std::mem::replace(&mut failed, true) {
            return Err(TaskError::other("once"));
        }
        Ok(OpResult::Ok)
    });
    let mut pipeline = kit.pipeline();
    assert!(pipeline.run().is_err());
    assert_eq!(pipeline.run().unwrap().node("sink").unwrap().delivered, 10);
}

#[test]
fn a_frame_that_fails_is_counted_and_the_run_goes_on() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 10);
            let faulty = kit.sync("faulty", source, false, |_, x| {
                if x == 5 {
                    return Err(TaskError::frame("blurred"));
                }
                Ok(OpResult::Ok)
            });
            let got = kit.sink("sink", faulty);
            (kit, got)
        },
        |result, got| {
            assert_eq!(got.values(), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
            assert_eq!(result.unwrap().node("faulty").unwrap().failed, 1);
        },
    );
}

#[test]
fn w_03_a_stall_is_reported_section_by_section() {
    StepScheduler::explore(0..20, |seed| {
        let mut kit = Kit::new();
        kit.options.watchdog = Watchdog::Stop;
        kit.options.watchdog_period = Duration::from_secs(3);
        let stuck = kit.graph.sync_fn(
            "camera",
            |_| Ok(crate::task::InferResult::sync([], [super::kit::number()?])),
            |ctx| {
                Ok(if ctx.meta().sequence < 10 {
                    OpResult::Ok
                } else {
                    OpResult::NotReady
                })
            },
        );
        let queue = kit.queue("queue", 2, stuck);
        kit.sink("sink", queue);
        let mut steps = kit.steps(seed);
        let error = steps.run().unwrap_err();
        let FailureCause::Stalled(report) = &error.first().unwrap().cause else {
            panic!("{error}");
        };
        assert!(report.stalled_for >= Duration::from_secs(3));
        assert_eq!(report.sections.len(), 2);
        assert_eq!(report.sections[0].node.as_deref(), Some("camera"));
        assert_eq!(report.sections[0].phase, Phase::ExecuteSync);
        assert_eq!(report.sections[1].node.as_deref(), Some("queue"));
        assert_eq!(report.sections[1].phase, Phase::ExecuteAsyncConsumer);
        assert_eq!(report.sections[1].queued, Some(0));
        assert_eq!(report.sections[1].capacity, Some(2));
    });
}

#[test]
fn s_18_a_task_that_does_not_return_is_left_behind_and_named() {
    let mut kit = Kit::new();
    kit.options.stop_timeout = Duration::from_millis(20);
    let source = kit.source("source", u64::MAX);
    let queue = kit.queue("queue", 2, source);
    let (let_go, held) = mpsc::channel::<()>();
    let (entered, has_entered) = mpsc::channel::<()>();
    kit.sink_fn("sink", queue, move |_, _| {
        let _ = entered.send(());
        let _ = held.recv();
        Ok(OpResult::Ok)
    });
    let mut pipeline = kit.pipeline();
    pipeline.start().unwrap();
    has_entered.recv().unwrap();
    pipeline.cancel();
    let error = pipeline.wait().unwrap_err();
    let failure = error.first().unwrap();
    assert_eq!(failure.node.as_deref(), Some("sink"));
    assert!(
        matches!(failure.cause, FailureCause::Stuck { .. }),
        "{error}"
    );
    let error = pipeline.start().unwrap_err();
    assert!(matches!(error, StartError::SectionLost { .. }), "{error}");
    drop(let_go);
}

#[test]
fn too_few_frames_in_flight_are_refused_before_the_start() {
    let mut kit = Kit::new();
    kit.options.in_flight = std::num::NonZeroUsize::new(1);
    let source = kit.source("source", 1);
    let settings = serde_json::json!({ "slots": 3, "flow": false });
    let queue = kit.graph.node("queue", "Queue", settings);
    kit.graph.connect(source, queue);
    kit.sink("sink", queue);
    let error = kit.pipeline().start().unwrap_err();
    assert!(
        matches!(&error, StartError::UncountedFlow { node } if node == "queue"),
        "{error}"
    );
}
