//! Tasks that do at every hook what they should not, and pipelines of unusual shapes.

use std::num::NonZeroUsize;

use serde_json::json;

use super::kit::{Got, Kit, Log, QueueFactory, assert_conserved, everywhere, number};
use crate::pipeline::Control;
use crate::scheduler::{FailureCause, Outcome, Threads};
use crate::storage::TView;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, OnceLock, mpsc};
use crate::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, IAsyncTask, IAsyncTaskFactory, InferResult,
    OpResult, ReleaseCtx, RunCtx, SyncCtx, TaskError, TaskErrorKind, TaskInfo, TaskRequest,
    TaskResult,
};
use crate::testkit::StepScheduler;

/// What goes wrong in a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Panic,
    Error,
    Frame,
    Cancelled,
    Skip,
    Eof,
}

/// A queue one hook of which goes wrong once.
#[derive(Debug, Clone)]
struct FaultyFactory {
    queue: QueueFactory,
    hook: &'static str,
    how: How,
    at: usize,
    log: Log,
}

struct Faulty {
    queue: Box<dyn IAsyncTask>,
    of: FaultyFactory,
    calls: AtomicUsize,
    panicked: AtomicBool,
}

impl Faulty {
    /// The answer to `hook`, if it is the one that goes wrong.
    fn goes_wrong(&self, hook: &'static str) -> Option<TaskResult<OpResult>> {
        if self.panicked.load(Ordering::Relaxed) {
            self.of.log.note("a hook after the panic");
        }
        if hook != self.of.hook || self.calls.fetch_add(1, Ordering::Relaxed) != self.of.at {
            return None;
        }
        self.of.log.note("went wrong");
        match self.of.how {
            How::Panic => {
                self.panicked.store(true, Ordering::Relaxed);
                panic!("in {hook}");
            }
            How::Error => Some(Err(TaskError::other("it broke"))),
            How::Frame => Some(Err(TaskError::frame("it is blurred"))),
            How::Cancelled => Some(Ok(OpResult::Cancelled)),
            How::Skip => Some(Ok(OpResult::Skip)),
            How::Eof => Some(Ok(OpResult::Eof)),
        }
    }

    fn fails(&self, hook: &'static str) -> TaskResult<()> {
        self.goes_wrong(hook)
            .map_or(Ok(()), |wrong| wrong.map(drop))
    }
}

impl IAsyncTask for Faulty {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        self.fails("acquire_input")?;
        self.queue.acquire_input(index, ctx)
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        match self.goes_wrong("try_push") {
            Some(answer) => answer,
            None => self.queue.try_push(ctx),
        }
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        match self.goes_wrong("try_pop") {
            Some(answer) => answer,
            None => self.queue.try_pop(ctx),
        }
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        self.fails("release_output")?;
        self.queue.release_output(index, ctx)
    }

    fn cancel_input(&self, index: usize, ctx: &mut AcquireCtx<'_>) {
        drop(self.fails("cancel_input"));
        self.queue.cancel_input(index, ctx);
    }

    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.fails("run_started")?;
        self.queue.run_started(ctx)
    }

    fn run_ended(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.fails("run_ended")?;
        self.queue.run_ended(ctx)
    }

    fn producer_finished(&self) {
        drop(self.fails("producer_finished"));
        self.queue.producer_finished();
    }

    fn consumer_finished(&self) {
        drop(self.fails("consumer_finished"));
        self.queue.consumer_finished();
    }
}

impl IAsyncTaskFactory for FaultyFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("A queue that goes wrong once.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        self.queue.infer(request)
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(Faulty {
            queue: self.queue.create(request, ctx)?,
            of: self.clone(),
            calls: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
        }))
    }
}

/// Source, queue, node, the faulty one, node, queue, sink.
fn faulty(hook: &'static str, how: How, at: usize) -> (Kit, (Log, Got)) {
    let mut kit = Kit::new();
    let log = kit.log.clone();
    let factory = FaultyFactory {
        queue: QueueFactory {
            log: Some(log.clone()),
        },
        hook,
        how,
        at,
        log: log.clone(),
    };
    kit.registry.register_async("Faulty", factory).unwrap();
    let source = kit.source("source", 30);
    let before = kit.queue("before", 2, source);
    let left = kit.map("left", before, |x| x);
    let faulty = kit.graph.node("faulty", "Faulty", json!({ "slots": 2 }));
    kit.graph.connect(left, faulty);
    let right = kit.map("right", faulty, |x| x);
    let after = kit.queue("after", 2, right);
    let got = kit.sink("sink", after);
    (kit, (log, got))
}

/// That the other queues were left in order.
fn assert_settled(log: &Log) {
    for queue in ["before", "after"] {
        let count = |hook: &str| log.count(&format!("{queue} {hook}"));
        assert_eq!(count("acquire"), count("push") + count("cancel"), "{queue}");
        assert_eq!(count("pop"), count("release"), "{queue}");
        for hook in ["producer_finished", "consumer_finished", "ended"] {
            assert_eq!(count(hook), 1, "{queue} {hook}");
        }
    }
    assert_eq!(log.count("a hook after the panic"), 0);
}

#[test]
fn a_panic_in_any_hook_ends_the_run_and_leaves_the_others_in_order() {
    for (hook, at) in [
        ("acquire_input", 5),
        ("try_push", 5),
        ("try_pop", 5),
        ("release_output", 5),
        ("cancel_input", 0),
        ("producer_finished", 0),
        ("consumer_finished", 0),
        ("run_ended", 0),
    ] {
        StepScheduler::explore(0..20, |seed| {
            let (kit, (log, _)) = faulty(hook, How::Panic, at);
            let error = kit.steps(seed).run().unwrap_err();
            let failure = error.first().unwrap();
            assert_eq!(failure.node.as_deref(), Some("faulty"), "{hook}: {error}");
            let FailureCause::Hook(cause) = &failure.cause else {
                panic!("{hook}: {error}");
            };
            assert!(
                matches!(cause.error.kind(), TaskErrorKind::Panicked { .. }),
                "{hook}: {error}"
            );
            assert!(error.to_string().contains(hook), "{hook}: {error}");
            assert_conserved(error.report().unwrap());
            assert_settled(&log);
        });
    }
}

#[test]
fn a_panic_in_any_hook_on_threads_ends_the_run() {
    for threads in [
        Threads::PerSection,
        Threads::Pool(NonZeroUsize::new(2).unwrap()),
    ] {
        for (hook, at) in [
            ("acquire_input", 5),
            ("try_push", 5),
            ("try_pop", 5),
            ("release_output", 5),
            ("cancel_input", 0),
            ("producer_finished", 0),
            ("consumer_finished", 0),
            ("run_ended", 0),
        ] {
            let (mut kit, _) = faulty(hook, How::Panic, at);
            kit.options.threads = threads;
            let error = kit.pipeline().run().unwrap_err();
            let node = error.first().unwrap().node.clone();
            assert_eq!(node.as_deref(), Some("faulty"), "{hook}: {error}");
        }
    }
}

#[test]
fn an_error_from_any_hook_ends_the_run_and_leaves_the_others_in_order() {
    for (hook, how, at) in [
        ("acquire_input", How::Error, 5),
        ("acquire_input", How::Frame, 5),
        ("try_push", How::Error, 5),
        ("try_push", How::Skip, 5),
        ("try_pop", How::Error, 5),
        ("try_pop", How::Skip, 5),
        ("release_output", How::Error, 5),
        ("release_output", How::Frame, 5),
        ("run_ended", How::Error, 0),
    ] {
        everywhere(
            || faulty(hook, how, at),
            |result, (log, _)| {
                let error = result.unwrap_err();
                let failure = error.first().unwrap();
                assert_eq!(failure.node.as_deref(), Some("faulty"), "{hook}: {error}");
                assert!(error.to_string().contains(hook), "{hook}: {error}");
                assert_conserved(error.report().unwrap());
                assert_settled(&log);
            },
        );
    }
}

#[test]
fn a_task_that_refuses_the_start_or_panics_at_it_is_named() {
    for how in [How::Panic, How::Error] {
        let (kit, _) = faulty("run_started", how, 0);
        let mut pipeline = kit.pipeline();
        let error = pipeline.start().unwrap_err();
        assert!(error.to_string().contains("faulty"), "{error}");
        assert!(!pipeline.is_running());
        // One that only refused is asked again.
        assert_eq!(pipeline.run().is_ok(), how == How::Error);
    }
}

#[test]
fn cancelled_from_a_hook_stops_the_run() {
    for hook in ["try_push", "try_pop"] {
        everywhere(
            || faulty(hook, How::Cancelled, 5),
            |result, (log, _)| {
                let report = result.unwrap();
                assert_eq!(report.outcome, Outcome::Cancelled, "{hook}");
                assert_conserved(&report);
                assert_settled(&log);
            },
        );
    }
}

#[test]
fn eof_from_a_push_ends_that_node_and_all_that_went_in_comes_out() {
    everywhere(
        || faulty("try_push", How::Eof, 5),
        |result, (log, got)| {
            let report = result.unwrap();
            assert_eq!(got.values(), [0, 1, 2, 3, 4]);
            assert_conserved(&report);
            assert_settled(&log);
        },
    );
}

#[test]
fn a_frame_that_cannot_be_pushed_is_left_out() {
    everywhere(
        || faulty("try_push", How::Frame, 5),
        |result, (log, got)| {
            let report = result.unwrap();
            let values: Vec<u64> = (0..30).filter(|x| *x != 5).collect();
            assert_eq!(got.values(), values);
            assert_eq!(report.node("faulty").unwrap().failed, 1);
            assert_conserved(&report);
            assert_settled(&log);
        },
    );
}

#[test]
fn frames_left_where_nobody_takes_them_are_no_longer_in_flight() {
    everywhere(
        || {
            let mut kit = Kit::new();
            kit.options.in_flight = NonZeroUsize::new(2);
            let source = kit.source("source", 60);
            let left = kit.queue("left", 4, source);
            let relay = kit.map("relay", left, |x| x);
            let second = kit.queue("second", 4, relay);
            kit.sink_fn("enough", second, |_, x| {
                Ok(if x < 3 { OpResult::Ok } else { OpResult::Eof })
            });
            let right = kit.queue("right", 4, source);
            let got = kit.sink("sink", right);
            (kit, got)
        },
        |result, got| {
            let report = result.unwrap();
            assert_eq!(got.values(), (0..60).collect::<Vec<_>>());
            assert_eq!(report.in_flight, Some(0));
            assert_conserved(&report);
        },
    );
}

#[test]
fn a_section_that_waits_for_a_frame_ends_when_nobody_would_take_it() {
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.graph.sync_fn(
                "camera",
                |_| Ok(InferResult::sync([], [number()?])),
                |ctx: &mut SyncCtx<'_>| {
                    let sequence = ctx.meta().sequence;
                    ctx.outputs.get_mut::<u64>(0)?[0] = sequence;
                    Ok(if sequence < 5 {
                        OpResult::Ok
                    } else {
                        OpResult::NotReady
                    })
                },
            );
            let first = kit.queue("first", 2, source);
            let relay = kit.map("relay", first, |x| x);
            let second = kit.queue("second", 2, relay);
            kit.sink_fn("enough", second, |_, x| {
                Ok(if x < 4 { OpResult::Ok } else { OpResult::Eof })
            });
            (kit, ())
        },
        |result, ()| {
            let report = result.unwrap();
            assert_eq!(report.outcome, Outcome::Completed);
            assert_conserved(&report);
        },
    );
}

#[test]
fn a_section_with_seventy_neighbours_wakes_all_of_them() {
    const BRANCHES: u64 = 70;
    everywhere(
        || {
            let mut kit = Kit::new();
            let source = kit.source("source", 5);
            let join = kit.graph.sync_fn(
                "join",
                |request| {
                    let inputs = request.inputs().to_vec();
                    Ok(InferResult::sync(inputs, []))
                },
                |ctx: &mut SyncCtx<'_>| {
                    let first = ctx.inputs.get::<u64>(0)?[0];
                    for index in 1..BRANCHES as usize {
                        assert_eq!(ctx.inputs.get::<u64>(index)?[0], first + index as u64);
                    }
                    Ok(OpResult::Ok)
                },
            );
            for branch in 0..BRANCHES {
                let there = kit.queue(&format!("there {branch}"), 1, source);
                let map = kit.map(&format!("map {branch}"), there, move |x| x + branch);
                let back = kit.queue(&format!("back {branch}"), 1, map);
                kit.graph.connect(back, join.input(branch as usize));
            }
            (kit, ())
        },
        |result, ()| {
            let report = result.unwrap();
            assert_eq!(report.node("join").unwrap().delivered, 5);
            assert_conserved(&report);
        },
    );
}

/// A source that a thread of its own wakes.
#[derive(Debug, Clone)]
struct CameraFactory {
    count: u64,
    wakers: mpsc::Sender<std::task::Waker>,
    ready: Arc<AtomicUsize>,
}

struct Camera {
    of: CameraFactory,
    given: AtomicUsize,
}

impl IAsyncTask for Camera {
    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let given = self.given.load(Ordering::Relaxed);
        if given as u64 == self.of.count {
            return Ok(OpResult::Eof);
        }
        if self.of.ready.load(Ordering::Acquire) == given {
            drop(self.of.wakers.send(ctx.waker()));
            return Ok(OpResult::NotReady);
        }
        self.given.store(given + 1, Ordering::Relaxed);
        ctx.outputs.get_mut::<u64>(0)?[0] = given as u64;
        Ok(OpResult::Ok)
    }
}

impl IAsyncTaskFactory for CameraFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("A source woken from elsewhere.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [] = request.exactly::<0>()?;
        Ok(InferResult::asynchronous([], [number()?]))
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(Camera {
            of: self.clone(),
            given: AtomicUsize::new(0),
        }))
    }
}

/// A sink with a push side only.
#[derive(Debug, Clone)]
struct DrainFactory(Got);

struct Drain(Got);

impl IAsyncTask for Drain {
    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        self.0.push(ctx.inputs.get::<u64>(0)?[0]);
        Ok(OpResult::Ok)
    }
}

impl IAsyncTaskFactory for DrainFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("A sink.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [input] = request.exactly::<1>()?;
        Ok(InferResult::asynchronous([input.clone()], []))
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(Drain(self.0.clone())))
    }
}

#[test]
fn an_async_source_is_woken_from_its_own_thread_each_time() {
    const FRAMES: u64 = 300;
    for workers in [None, NonZeroUsize::new(1), NonZeroUsize::new(3)] {
        let mut kit = Kit::new();
        let (wakers, asked) = mpsc::channel::<std::task::Waker>();
        let ready = Arc::new(AtomicUsize::new(0));
        let camera = CameraFactory {
            count: FRAMES,
            wakers,
            ready: Arc::clone(&ready),
        };
        kit.registry.register_async("Camera", camera).unwrap();
        let got = Got::default();
        kit.registry
            .register_async("Drain", DrainFactory(got.clone()))
            .unwrap();
        let camera = kit.graph.node("camera", "Camera", json!({}));
        let queue = kit.queue("queue", 2, camera);
        let drain = kit.graph.node("drain", "Drain", json!({}));
        kit.graph.connect(queue, drain);
        if let Some(workers) = workers {
            kit.options.threads = Threads::Pool(workers);
        }
        let camera = std::thread::spawn(move || {
            let mut last = None;
            for waker in asked {
                ready.fetch_add(1, Ordering::Release);
                waker.wake_by_ref();
                last = Some(waker);
            }
            last
        });
        let mut pipeline = kit.pipeline();
        let report = pipeline.run().unwrap();
        assert_conserved(&report);
        assert_eq!(got.values(), (0..FRAMES).collect::<Vec<_>>());
        drop(pipeline);
        // Wakers outlive the run and its pipeline.
        camera.join().unwrap().unwrap().wake();
    }
}

#[test]
fn a_pipeline_with_an_async_sink_starts_again_with_frames_in_flight_limited() {
    for seed in 0..20 {
        let mut kit = Kit::new();
        kit.options.in_flight = NonZeroUsize::new(2);
        let got = Got::default();
        kit.registry
            .register_async("Drain", DrainFactory(got.clone()))
            .unwrap();
        let source = kit.source("source", 10);
        let queue = kit.queue("queue", 2, source);
        let drain = kit.graph.node("drain", "Drain", json!({}));
        kit.graph.connect(queue, drain);
        let mut steps = kit.steps(seed);
        for run in 1..=3 {
            let report = steps.run().unwrap();
            assert_eq!(report.in_flight, Some(0));
            assert_eq!(got.values().len(), 10 * run);
        }
    }
}

#[test]
fn a_run_can_be_stopped_from_inside_any_of_its_tasks() {
    for workers in [None, NonZeroUsize::new(1), NonZeroUsize::new(2)] {
        for finish in [false, true] {
            let mut kit = Kit::new();
            let control: Arc<OnceLock<Control>> = Arc::default();
            let source = kit.source("source", u64::MAX);
            let queue = kit.queue("queue", 2, source);
            let stopping = Arc::clone(&control);
            kit.sink_fn("sink", queue, move |_, x| {
                if x == 20
                    && let Some(control) = stopping.get()
                {
                    if finish {
                        control.finish();
                    } else {
                        control.cancel();
                    }
                }
                Ok(OpResult::Ok)
            });
            if let Some(workers) = workers {
                kit.options.threads = Threads::Pool(workers);
            }
            let mut pipeline = kit.pipeline();
            control.set(pipeline.control()).unwrap();
            pipeline.start().unwrap();
            let report = pipeline.wait().unwrap();
            let outcome = [Outcome::Cancelled, Outcome::Finished][usize::from(finish)];
            assert_eq!(report.outcome, outcome);
            assert_conserved(&report);
        }
    }
}

#[test]
fn metrics_are_read_from_many_threads_while_it_runs() {
    let mut kit = Kit::new();
    let source = kit.source("source", u64::MAX);
    let first = kit.queue("first", 2, source);
    let relay = kit.map("relay", first, |x| x);
    let second = kit.queue("second", 2, relay);
    kit.sink("sink", second);
    let mut pipeline = kit.pipeline();
    pipeline.start().unwrap();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let control = pipeline.control();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let metrics = control.metrics();
                    assert_eq!(metrics.nodes.len(), 5);
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
    pipeline.cancel();
    assert_conserved(&pipeline.wait().unwrap());
}

#[test]
fn a_future_that_is_polled_and_dropped_leaves_the_run_alone() {
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut kit = Kit::new();
    let source = kit.source("source", u64::MAX);
    let queue = kit.queue("queue", 2, source);
    kit.sink("sink", queue);
    let mut pipeline = kit.pipeline();
    pipeline.start().unwrap();
    let waker = std::task::Waker::from(Arc::new(Count(AtomicUsize::new(0))));
    for _ in 0..3 {
        let mut future = Box::pin(pipeline.wait_async());
        let mut context = std::task::Context::from_waker(&waker);
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    assert!(pipeline.is_running());
    pipeline.cancel();
    pipeline.wait().unwrap();
    // And a pipeline that is dropped while somebody waits for it.
    pipeline.start().unwrap();
    {
        let mut future = Box::pin(pipeline.wait_async());
        let mut context = std::task::Context::from_waker(&waker);
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    drop(pipeline);
}
