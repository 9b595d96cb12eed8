//! Small pipelines, tasks that note what is called, and runs in many orders.

use std::time::Duration;

use serde_json::json;

use crate::compiler::{CompiledGraph, Compiler};
use crate::graph::{GraphBuilder, Node};
use crate::pipeline::Pipeline;
use crate::registry::Registry;
use crate::scheduler::{NodeReport, Report, RunError, RunOptions};
use crate::storage::{RingLayout, SlotRing, TView};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};
use crate::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, Flow, IAsyncTask, IAsyncTaskFactory,
    InferResult, OpResult, ReleaseCtx, RunCtx, SyncCtx, TaskInfo, TaskRequest, TaskResult,
};
use crate::tensor::TDesc;
use crate::testkit::StepScheduler;

/// What was called, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn note(&self, what: impl Into<String>) {
        self.0.lock().push(what.into());
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.0.lock().iter().filter(|line| *line == what).count()
    }
}

/// Numbers that a sink has got.
#[derive(Debug, Clone, Default)]
pub(super) struct Got(Arc<Mutex<Vec<u64>>>);

impl Got {
    pub(super) fn values(&self) -> Vec<u64> {
        self.0.lock().clone()
    }

    pub(super) fn push(&self, value: u64) {
        self.0.lock().push(value);
    }
}

/// An owning queue of `slots` frames, which passes on one for each. Settings: `slots`, and
/// `flow`, whether it declares one; `eof`, whether it answers Eof itself.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueFactory {
    pub(super) log: Option<Log>,
}

struct Queue {
    name: String,
    ring: SlotRing,
    eof: bool,
    finished: AtomicBool,
    log: Option<Log>,
}

impl Queue {
    fn note(&self, what: &str) {
        if let Some(log) = &self.log {
            log.note(format!("{} {what}", self.name));
        }
    }
}

impl IAsyncTask for Queue {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        let view = ctx.lend(index, |side| self.ring.acquire(side))?;
        if view.is_some() {
            self.note("acquire");
        }
        Ok(view)
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let region = ctx.take_input(0)?;
        self.ring.commit(ctx.side, region)?;
        self.note("push");
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let finished = self.finished.load(Ordering::Acquire);
        let Some(region) = self.ring.pop(ctx.side)? else {
            return Ok(if finished && self.eof {
                OpResult::Eof
            } else {
                OpResult::NotReady
            });
        };
        ctx.publish(0, region)?;
        self.note("pop");
        Ok(OpResult::Ok)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let region = ctx.take_back(index)?;
        self.note("release");
        Ok(self.ring.release(ctx.side, region)?)
    }

    fn cancel_input(&self, index: usize, ctx: &mut AcquireCtx<'_>) {
        self.note("cancel");
        drop(ctx.take_back(index));
    }

    fn run_started(&self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        self.finished.store(false, Ordering::Release);
        self.note("started");
        Ok(())
    }

    fn producer_finished(&self) {
        self.finished.store(true, Ordering::Release);
        self.note("producer_finished");
    }

    fn consumer_finished(&self) {
        self.note("consumer_finished");
    }

    fn run_ended(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.note("ended");
        ctx.report("filled", self.ring.filled());
        Ok(())
    }
}

impl IAsyncTaskFactory for QueueFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("A queue for tests.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [input] = request.exactly::<1>()?;
        let settings = request.raw_settings();
        let slots = settings["slots"].as_u64().unwrap_or(1) as usize;
        let frame = input.normalized();
        let result = InferResult::asynchronous([frame.clone()], [frame])
            .owning_inputs()
            .owning_outputs();
        Ok(if settings["flow"].as_bool() == Some(false) {
            result
        } else {
            result.with_flow(Flow::one_to_one(slots))
        })
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let frame = request.input(0)?.normalized();
        let rows = request.raw_settings()["slots"].as_u64().unwrap_or(1) as usize;
        let layout = RingLayout {
            row_bytes: frame.num_bytes(),
            rows,
            push_rows: 1,
            pop_rows: 1,
            pop_stride: 1,
        };
        Ok(Box::new(Queue {
            name: request.node().to_owned(),
            ring: ctx.slot_ring(frame.location(), layout)?,
            eof: request.raw_settings()["eof"].as_bool() == Some(true),
            finished: AtomicBool::new(false),
            log: self.log.clone(),
        }))
    }
}

/// A pipeline in the making.
pub(super) struct Kit {
    pub(super) graph: GraphBuilder,
    pub(super) registry: Registry,
    pub(super) log: Log,
    pub(super) options: RunOptions,
}

pub(super) fn number() -> TaskResult<TDesc> {
    Ok(TDesc::host::<u64>([1])?)
}

impl Kit {
    pub(super) fn new() -> Self {
        let log = Log::default();
        let mut registry = Registry::new();
        let queue = QueueFactory {
            log: Some(log.clone()),
        };
        registry.register_async("Queue", queue).unwrap();
        Self {
            graph: GraphBuilder::new(),
            registry,
            log,
            options: RunOptions::default(),
        }
    }

    /// A source of the numbers below `count`.
    pub(super) fn source(&mut self, name: &str, count: u64) -> Node {
        self.graph.sync_fn(
            name,
            |_| Ok(InferResult::sync([], [number()?])),
            move |ctx: &mut SyncCtx<'_>| {
                let sequence = ctx.meta().sequence;
                if sequence >= count {
                    return Ok(OpResult::Eof);
                }
                ctx.outputs.get_mut::<u64>(0)?[0] = sequence;
                Ok(OpResult::Ok)
            },
        )
    }

    pub(super) fn queue(&mut self, name: &str, slots: usize, from: Node) -> Node {
        let node = self.graph.node(name, "Queue", json!({ "slots": slots }));
        self.graph.connect(from, node);
        node
    }

    /// A sync node of one input and one output.
    pub(super) fn map(
        &mut self,
        name: &str,
        from: Node,
        f: impl FnMut(u64) -> u64 + Send + 'static,
    ) -> Node {
        let mut f = f;
        let node = self
            .graph
            .map_fn(name, move |x: &[u64], y: &mut [u64]| y[0] = f(x[0]));
        self.graph.connect(from, node);
        node
    }

    /// A sync node of one input and one output that says itself what comes of it.
    pub(super) fn sync(
        &mut self,
        name: &str,
        from: Node,
        may_skip: bool,
        f: impl FnMut(&mut SyncCtx<'_>, u64) -> TaskResult<OpResult> + Send + 'static,
    ) -> Node {
        let mut f = f;
        let node = self.graph.sync_fn(
            name,
            move |request: &TaskRequest<'_>| {
                let [input] = request.exactly::<1>()?;
                let result = InferResult::sync([input.clone()], [input.clone()]);
                Ok(if may_skip { result.skipping() } else { result })
            },
            move |ctx: &mut SyncCtx<'_>| {
                let x = ctx.inputs.get::<u64>(0)?[0];
                ctx.outputs.get_mut::<u64>(0)?[0] = x;
                f(ctx, x)
            },
        );
        self.graph.connect(from, node);
        node
    }

    /// A sink that keeps the numbers.
    pub(super) fn sink(&mut self, name: &str, from: Node) -> Got {
        let got = Got::default();
        let kept = got.clone();
        self.sink_fn(name, from, move |_, x| {
            kept.push(x);
            Ok(OpResult::Ok)
        });
        got
    }

    pub(super) fn sink_fn(
        &mut self,
        name: &str,
        from: Node,
        f: impl FnMut(&mut SyncCtx<'_>, u64) -> TaskResult<OpResult> + Send + 'static,
    ) -> Node {
        let mut f = f;
        let node = self.graph.sync_fn(
            name,
            |request: &TaskRequest<'_>| {
                let [input] = request.exactly::<1>()?;
                Ok(InferResult::sync([input.clone()], []))
            },
            move |ctx: &mut SyncCtx<'_>| {
                let x = ctx.inputs.get::<u64>(0)?[0];
                f(ctx, x)
            },
        );
        self.graph.connect(from, node);
        node
    }

    pub(super) fn compile(self) -> (CompiledGraph, RunOptions) {
        let built = self.graph.finish().unwrap();
        let registry = self.registry.with(&built).unwrap();
        let graph = Compiler::new(&registry).compile(&built.spec).unwrap();
        (graph, self.options)
    }

    pub(super) fn pipeline(self) -> Pipeline {
        let (graph, options) = self.compile();
        Pipeline::new(graph).with_options(options)
    }

    pub(super) fn steps(self, seed: u64) -> StepScheduler {
        let (graph, options) = self.compile();
        StepScheduler::new(graph, options, seed)
    }
}

/// In how many ways a pipeline is run.
const SEEDS: u64 = 20;

/// Runs what `make` makes in many orders step by step, and on threads, and in a pool; `check`
/// looks at what came of each.
pub(super) fn everywhere<T>(
    make: impl Fn() -> (Kit, T),
    check: impl Fn(Result<Report, RunError>, T),
) {
    StepScheduler::explore(0..SEEDS, |seed| {
        let (kit, seen) = make();
        let mut steps = kit.steps(seed);
        check(steps.run(), seen);
    });
    for threads in [
        crate::scheduler::Threads::PerSection,
        crate::scheduler::Threads::Pool(std::num::NonZeroUsize::new(2).unwrap()),
    ] {
        let (mut kit, seen) = make();
        kit.options.threads = threads;
        kit.options.stop_timeout = Duration::from_secs(60);
        check(kit.pipeline().run(), seen);
    }
}

/// That every node has counted all of its frames.
pub(super) fn assert_conserved(report: &Report) {
    assert_balanced(&report.nodes);
}

/// The same, also while a run goes on.
pub(super) fn assert_balanced(nodes: &[NodeReport]) {
    for node in nodes {
        let out = node.delivered + node.discarded_at_end;
        let gone = out + node.dropped + node.consumer_finished + node.skipped + node.failed;
        assert_eq!(
            node.frames_in + node.held_before,
            gone + node.held,
            "{node:#?}"
        );
    }
}
