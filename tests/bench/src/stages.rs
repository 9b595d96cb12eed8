//! Stages and pipelines of which the benches of the scheduler are made.
//!
//! A [`Stage`] is a function that is called for each frame, as a sync task without anything
//! else, so that what is measured is the scheduler's. A chain is nodes in a row, each with one
//! output to the next.

use std::time::{Duration, Instant};

use holoflow_core::graph::GraphBuilder;
use holoflow_core::pipeline::Pipeline;
use holoflow_core::registry::Registry;
use holoflow_core::scheduler::{Outcome, Report};
use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, SyncCtx, TaskInfo, TaskRequest,
    TaskResult,
};
use holoflow_core::tensor::TDesc;
use serde_json::{Value, json};

/// A kind of sync task that is a function; its tasks are clones of it.
#[derive(Debug)]
pub struct Stage<F> {
    output: Output,
    f: F,
}

#[derive(Debug)]
enum Output {
    None,
    Of(TDesc),
    AsInput,
}

impl<F> Stage<F>
where
    F: Fn(&mut SyncCtx<'_>) -> TaskResult<OpResult> + Clone + Send + Sync + 'static,
{
    /// Has no input.
    pub fn source(output: TDesc, f: F) -> Self {
        let output = Output::Of(output);
        Self { output, f }
    }

    /// Has an output like its input.
    pub fn pass(f: F) -> Self {
        let output = Output::AsInput;
        Self { output, f }
    }

    /// Has no output.
    pub fn sink(f: F) -> Self {
        let output = Output::None;
        Self { output, f }
    }
}

struct Run<F>(F);

impl<F> ISyncTask for Run<F>
where
    F: Fn(&mut SyncCtx<'_>) -> TaskResult<OpResult> + Send + Sync + 'static,
{
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        (self.0)(ctx)
    }
}

impl<F> ISyncTaskFactory for Stage<F>
where
    F: Fn(&mut SyncCtx<'_>) -> TaskResult<OpResult> + Clone + Send + Sync + 'static,
{
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("A function.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let inputs = request.inputs().to_vec();
        let output = match &self.output {
            Output::None => None,
            Output::Of(desc) => Some(desc.clone()),
            Output::AsInput => Some(request.input(0)?.normalized()),
        };
        Ok(InferResult::sync(inputs, output))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(Run(self.f.clone())))
    }
}

/// A frame of one `u64`.
#[must_use]
pub fn word() -> TDesc {
    TDesc::host::<u64>([1]).expect("a small frame")
}

/// The tasks of `holoflow-cpu`, and those that every bench of small frames needs: `Words`, a
/// source that numbers its frames; `Pass`, which writes what it reads; `Take`, a sink.
///
/// # Panics
/// Never: the kinds are not registered twice.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    holoflow::cpu::register_all(&mut registry).expect("an empty registry");
    let words = Stage::source(word(), |ctx| {
        let n = ctx.node.meta().sequence;
        ctx.outputs.get_mut::<u64>(0)?[0] = n;
        Ok(OpResult::Ok)
    });
    let pass = Stage::pass(|ctx| {
        let x = ctx.inputs.get::<u64>(0)?[0];
        ctx.outputs.get_mut::<u64>(0)?[0] = x;
        Ok(OpResult::Ok)
    });
    let take = Stage::sink(|ctx| {
        std::hint::black_box(ctx.inputs.get::<u64>(0)?[0]);
        Ok(OpResult::Ok)
    });
    for (kind, added) in [
        ("Words", registry.register_sync("Words", words)),
        ("Pass", registry.register_sync("Pass", pass)),
        ("Take", registry.register_sync("Take", take)),
    ] {
        added.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    registry
}

/// Kind and settings of a queue without copies for `capacity` frames whose shape begins with 1.
#[must_use]
pub fn queue(capacity: usize) -> (&'static str, Value) {
    let settings = json!({ "target_capacity": capacity, "output_size": 1, "output_stride": 1 });
    ("BatchQueue", settings)
}

/// Nodes in a row, of these kinds and settings, named by kind and number.
///
/// # Panics
/// If they cannot be compiled.
pub fn chain(
    registry: &Registry,
    nodes: impl IntoIterator<Item = (&'static str, Value)>,
) -> Pipeline {
    let mut graph = GraphBuilder::new();
    let mut last = None;
    for (number, (kind, settings)) in nodes.into_iter().enumerate() {
        let node = graph.node(format!("{kind}{number}"), kind, settings);
        if let Some(last) = last.replace(node) {
            graph.connect(last, node);
        }
    }
    let graph = graph.finish().expect("a chain is a graph");
    Pipeline::build(&graph, registry).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a pipeline until its sources have made `frames` frames each; how long it took, and what
/// came of it.
///
/// # Panics
/// If the run fails, or is not complete.
pub fn run(pipeline: &mut Pipeline, frames: u64) -> (Duration, Report) {
    pipeline.options_mut().frames = Some(frames);
    let start = Instant::now();
    let report = pipeline.run();
    let elapsed = start.elapsed();
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.outcome, Outcome::Completed);
    let taken = report.nodes.last().map(|sink| sink.frames_in);
    assert_eq!(taken, Some(frames), "{report}");
    (elapsed, report)
}
