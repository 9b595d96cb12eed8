//! A stop at each point of an iteration, and what a device section does before it pushes.

use serde_json::json;

use super::kit::{Kit, Log, assert_conserved, everywhere};
use crate::compiler::Compiler;
use crate::device::{DeviceBackend, HostBackend, ReadyAfter};
use crate::graph::{GraphBuilder, Node};
use crate::memory::Memory;
use crate::pipeline::Pipeline;
use crate::registry::Registry;
use crate::sync::{Arc, Mutex};
use crate::task::{
    AsyncPushCtx, CreateCtx, IAsyncTask, IAsyncTaskFactory, ISyncTask, ISyncTaskFactory,
    InferResult, OpResult, SyncCtx, TaskInfo, TaskRequest, TaskResult,
};
use crate::tensor::TDesc;
use crate::testkit::{FakeDevice, StepScheduler, Stepped};

#[test]
fn s_02_and_s_04_a_hook_that_was_not_ready_is_asked_again_when_signalled() {
    // Step by step the clock stands still, so nothing but signals can have woken a section.
    StepScheduler::explore(0..50, |seed| {
        let mut kit = Kit::new();
        let source = kit.source("source", 100);
        let first = kit.queue("first", 1, source);
        let second = kit.queue("second", 1, first);
        let got = kit.sink("sink", second);
        let mut steps = kit.steps(seed);
        let start = crate::clock::Clock::now(steps.clock());
        steps.run().unwrap();
        assert_eq!(got.values(), (0..100).collect::<Vec<_>>());
        assert_eq!(crate::clock::Clock::now(steps.clock()), start);
    });
}

/// Source, node, queue, two nodes, queue, sink; every call is noted.
fn noted() -> (Kit, Log) {
    let mut kit = Kit::new();
    let log = kit.log.clone();
    let note = |kit: &mut Kit, name: &'static str, from: Node| {
        let log = kit.log.clone();
        kit.map(name, from, move |x| {
            log.note(name);
            x
        })
    };
    let source = kit.source("source", u64::MAX);
    let made = note(&mut kit, "made", source);
    let first = kit.queue("first", 2, made);
    let left = note(&mut kit, "left", first);
    let right = note(&mut kit, "right", left);
    let second = kit.queue("second", 2, right);
    kit.sink("sink", second);
    (kit, log)
}

/// Steps until `line` was noted for the fifth time, and cancels. The lines noted from then on.
fn cancelled_at(seed: u64, line: &str) -> Vec<String> {
    let (kit, log) = noted();
    let mut steps = kit.steps(seed);
    steps.start().unwrap();
    while log.count(line) < 5 {
        assert!(matches!(steps.step(), Stepped::Ran(_)));
    }
    steps.cancel();
    let before = log.lines().len();
    assert_conserved(&steps.run().unwrap());
    log.lines().split_off(before)
}

#[test]
fn s_03_after_a_stop_behind_the_acquisition_nothing_is_executed() {
    StepScheduler::explore(0..50, |seed| {
        let after = cancelled_at(seed, "first acquire");
        for line in ["made", "first push", "first acquire"] {
            assert!(
                !after.iter().any(|after| after == line),
                "{line}: {after:?}"
            );
        }
        assert!(after.iter().any(|after| after == "first cancel"));
    });
}

#[test]
fn s_10_after_a_stop_behind_the_pop_nothing_is_executed_or_pushed() {
    StepScheduler::explore(0..50, |seed| {
        let after = cancelled_at(seed, "first pop");
        for line in ["left", "right", "second push"] {
            assert!(
                !after.iter().any(|after| after == line),
                "{line}: {after:?}"
            );
        }
        // S-07: what was popped is released all the same.
        assert!(after.iter().any(|after| after == "first release"));
    });
}

#[test]
fn s_10_after_a_stop_within_the_sync_nodes_the_later_ones_do_not_run() {
    StepScheduler::explore(0..50, |seed| {
        let after = cancelled_at(seed, "left");
        for line in ["right", "second push"] {
            assert!(
                !after.iter().any(|after| after == line),
                "{line}: {after:?}"
            );
        }
    });
}

#[test]
fn s_06_and_s_09_each_pop_is_released_once_and_only_the_producer_acquires() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 40);
            let queue = kit.queue("queue", 2, source);
            let got = kit.sink("sink", queue);
            let log = kit.log.clone();
            (kit, (got, log))
        },
        |report, (got, log)| {
            report.unwrap();
            assert_eq!(got.values().len(), 40);
            assert_eq!(log.count("queue pop"), 40);
            assert_eq!(log.count("queue release"), 40);
            // One more than frames: for the iteration in which the source ended.
            assert_eq!(log.count("queue acquire"), 41);
            assert_eq!(log.count("queue cancel"), 1);
        },
    );
}

#[test]
fn s_45_values_through_one_queue() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 4);
            let double = kit.map("double", source, |x| 2 * (x + 1));
            let queue = kit.queue("queue", 1, double);
            let triple = kit.map("triple", queue, |x| 3 * x);
            let got = kit.sink("sink", triple);
            (kit, got)
        },
        |report, got| {
            report.unwrap();
            assert_eq!(got.values(), [6, 12, 18, 24]);
        },
    );
}

#[test]
fn s_49_no_frame_is_lost_or_reordered_however_threads_yield() {
    const FRAMES: u64 = 32;
    for seed in 0..16_u64 {
        let mut kit = Kit::new();
        let yields = move |x: u64| {
            let mixed = (x + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed << 32) >> 60;
            for _ in 0..mixed {
                std::thread::yield_now();
            }
        };
        let source = kit.graph.sync_fn(
            "source",
            |_| Ok(InferResult::sync([], [TDesc::host::<f32>([8])?])),
            move |ctx| {
                let sequence = ctx.meta().sequence;
                yields(sequence);
                ctx.outputs.get_mut::<f32>(0)?.fill(sequence as f32);
                Ok(if sequence < FRAMES {
                    OpResult::Ok
                } else {
                    OpResult::Eof
                })
            },
        );
        let queue = kit.queue("queue", 2, source);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let sink = kit.graph.sync_fn(
            "sink",
            |request| Ok(InferResult::sync([request.input(0)?.clone()], [])),
            move |ctx| {
                let frame = ctx.inputs.get::<f32>(0)?;
                assert!(frame.iter().all(|value| *value == frame[0]));
                kept.lock().push(frame[0]);
                yields(frame[0] as u64 + 7);
                Ok(OpResult::Ok)
            },
        );
        kit.graph.connect(queue, sink);
        kit.pipeline().run().unwrap();
        let expected: Vec<f32> = (0..FRAMES).map(|n| n as f32).collect();
        assert_eq!(*seen.lock(), expected, "seed {seed}");
    }
}

/// What a device node has submitted last.
type Submitted = Arc<Mutex<Option<ReadyAfter>>>;

/// A device node that submits an item to its section's stream and keeps its event.
#[derive(Debug)]
struct Work(Submitted);

impl ISyncTask for Work {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        let stream = Arc::clone(ctx.stream().expect("a device section has a stream"));
        let done = HostBackend.create_stream()?.record()?;
        stream.wait_for(&done)?;
        let event = stream.record()?;
        assert!(!event.is_complete()?, "nothing has run it");
        *self.0.lock() = Some(event);
        Ok(if ctx.meta().sequence < 10 {
            OpResult::Ok
        } else {
            OpResult::Eof
        })
    }
}

impl ISyncTaskFactory for Work {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Submits work.").on_device()
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let frame = TDesc::new(
            [4],
            crate::tensor::DType::F32,
            crate::tensor::MemLoc::Device(0),
        )?;
        Ok(InferResult::sync([], [frame]))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(Work(Arc::clone(&self.0))))
    }
}

/// An async sink that looks at whether the work was done.
#[derive(Debug)]
struct Look(Submitted);

impl IAsyncTask for Look {
    fn try_push(&self, _: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let event = self.0.lock().take();
        assert!(event.expect("something was submitted").is_complete()?);
        Ok(OpResult::Ok)
    }
}

impl IAsyncTaskFactory for Look {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Looks.").on_device()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(InferResult::asynchronous([request.input(0)?.clone()], []))
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(Look(Arc::clone(&self.0))))
    }
}

#[test]
fn s_12_the_stream_is_complete_before_a_push_and_s_10_at_the_end() {
    let submitted = Submitted::default();
    let device = FakeDevice::new(0);
    let mut registry = Registry::new();
    registry
        .register_sync("Work", Work(Arc::clone(&submitted)))
        .unwrap();
    registry
        .register_async("Look", Look(Arc::clone(&submitted)))
        .unwrap();
    let mut graph = GraphBuilder::new();
    let work = graph.node("work", "Work", json!({}));
    let look = graph.node("look", "Look", json!({}));
    graph.connect(work, look);
    let spec = graph.finish().unwrap().spec;
    let compiler = Compiler::new(&registry)
        .memory(Memory::host().with(device.provider()))
        .device(Arc::new(device));
    let graph = compiler.compile(&spec).unwrap();
    let report = Pipeline::new(graph).run().unwrap();
    assert_eq!(report.node("look").unwrap().delivered, 10);
    // The item of the last iteration, which the source ended, was completed too.
    let event = submitted.lock().take().unwrap();
    assert!(event.is_complete().unwrap());
}
