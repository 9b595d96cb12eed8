//! What compiling costs for each node of the description, and that it does not grow with the
//! size of the graph.
//!
//! - `compile/us_per_node/FAMILY_NODES`: `Compiler::compile`, from the description to tasks
//!   that could run, memory included. The description and the dropping of the graph are not
//!   counted.
//! - `compile/plan_us_per_node/FAMILY_NODES`: of that the passes alone, `Compiler::plan`.
//! - `compile/flat_ratio/FAMILY`, `compile/plan_flat_ratio/FAMILY`: of the sizes measured, the
//!   slowest node over the fastest. Large graphs do not fit in the caches, small ones do.
//! - `compile/recompile_ratio/FAMILY`: `Compiler::recompile` of an equal graph of 10 000 nodes,
//!   with the dropping of what is left of the first, over `Compiler::compile`.
//!
//! Families:
//!
//! - `chain`: one sync node after another;
//! - `layered`: layers of 32 sync nodes, each with one to three inputs of the layer before;
//! - `mixed`: blocks of four such layers of 8 nodes with owning queues between, where every
//!   fourth node overwrites its input or is a view of it, and copies are inserted where they
//!   clash;
//! - `clashes`: nodes that overwrite what a later node reads, which needs their result: every
//!   third node gets a copy.
//!
//! Tasks do nothing and are made in no time, so these figures are the compiler's.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use holoflow_bench::{Bench, median};
use holoflow_core::compiler::Compiler;
use holoflow_core::graph::{EdgeSpec, GraphSpec, NodeSpec};
use holoflow_core::ids::NodeId;
use holoflow_core::registry::Registry;
use holoflow_core::storage::TView;
use holoflow_core::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, IAsyncTask, IAsyncTaskFactory, ISyncTask,
    ISyncTaskFactory, InferResult, OpResult, ReleaseCtx, SyncCtx, TaskInfo, TaskRequest,
    TaskResult,
};
use holoflow_core::tensor::TDesc;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

/// Nodes that a sample compiles at least, so that short graphs are measured for long enough.
const SAMPLE: usize = 30_000;

/// A family of graphs of any size.
type Family = (&'static str, fn(usize) -> GraphSpec);

const FAMILIES: [Family; 4] = [
    ("chain", chain),
    ("layered", layered),
    ("mixed", mixed),
    ("clashes", clashes),
];

fn main() {
    let mut bench = Bench::from_args();
    let registry = registry();
    let compiler = Compiler::new(&registry);
    for family in FAMILIES {
        measure(&mut bench, "compile/", family, |graph| {
            let start = Instant::now();
            let compiled = compiler.compile(graph).expect("the graph compiles");
            let time = start.elapsed();
            drop(compiled);
            time
        });
        measure(&mut bench, "compile/plan_", family, |graph| {
            let start = Instant::now();
            let plan = compiler.plan(graph).expect("the graph compiles");
            let time = start.elapsed();
            drop(plan);
            time
        });
    }
    recompile(&mut bench, &compiler);
    bench.finish();
}

/// Compiles a graph, and compiles it again with what came of it.
fn recompile(bench: &mut Bench, compiler: &Compiler<'_>) {
    for (family, make) in [FAMILIES[0], FAMILIES[1]] {
        let name = format!("compile/recompile_ratio/{family}");
        if !bench.selects(&name) {
            continue;
        }
        let graph = make(10_000);
        bench.figure(&name).at_most(0.5).sample("ratio", || {
            let start = Instant::now();
            let first = compiler.compile(&graph).expect("the graph compiles");
            let compiled = start.elapsed();
            let start = Instant::now();
            let second = compiler
                .recompile(&graph, first)
                .expect("the graph compiles again");
            let recompiled = start.elapsed();
            drop(second);
            recompiled.as_secs_f64() / compiled.as_secs_f64()
        });
    }
}

fn measure(bench: &mut Bench, prefix: &str, family: Family, time: impl Fn(&GraphSpec) -> Duration) {
    let (family, make) = family;
    let mut medians = Vec::new();
    for nodes in SIZES {
        let name = format!("{prefix}us_per_node/{family}_{nodes}");
        if !bench.selects(&name) {
            continue;
        }
        let graph = make(nodes);
        let repeat = SAMPLE.div_ceil(nodes);
        let samples = RefCell::new(Vec::new());
        bench.figure(&name).at_most(10.0).sample("us", || {
            let sum: Duration = (0..repeat).map(|_| time(&graph)).sum();
            let each = sum.as_secs_f64() * 1e6 / (repeat * graph.nodes.len()) as f64;
            samples.borrow_mut().push(each);
            each
        });
        // Without what warmed up.
        medians.push(median(&samples.borrow()[2..]));
    }
    let slowest = medians.iter().copied().fold(f64::NAN, f64::max);
    let fastest = medians.iter().copied().fold(f64::NAN, f64::min);
    if medians.len() == SIZES.len() {
        let name = format!("{prefix}flat_ratio/{family}");
        let mut figure = bench.figure(&name);
        if prefix == "compile/" && matches!(family, "chain" | "layered") {
            figure = figure.at_most(1.5);
        }
        figure.sample("ratio", || slowest / fastest);
    }
}

/// A graph being made.
#[derive(Default)]
struct Maker {
    graph: GraphSpec,
    random: u64,
}

impl Maker {
    fn node(&mut self, kind: &str, inputs: &[NodeId]) -> NodeId {
        let number = self.graph.nodes.len();
        let node = self.graph.add(NodeSpec::new(format!("node{number}"), kind));
        for (input, from) in inputs.iter().enumerate() {
            self.graph
                .edges
                .push(EdgeSpec::new((*from, 0), (node, input)));
        }
        node
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit
    }

    /// A layer of nodes that read nodes of `before`.
    fn layer(&mut self, width: usize, before: &[NodeId], kinds: &[&str]) -> Vec<NodeId> {
        (0..width)
            .map(|_| {
                let count = (1 + self.below(3)).min(before.len());
                let inputs: Vec<NodeId> = (0..count)
                    .map(|_| before[self.below(before.len())])
                    .collect();
                let kind = kinds[self.below(kinds.len())];
                self.node(kind, &inputs)
            })
            .collect()
    }
}

fn chain(nodes: usize) -> GraphSpec {
    let mut maker = Maker::default();
    let mut last = maker.node("Step", &[]);
    for _ in 1..nodes {
        last = maker.node("Step", &[last]);
    }
    maker.graph
}

fn layered(nodes: usize) -> GraphSpec {
    let mut maker = Maker::default();
    let mut before = Vec::new();
    while maker.graph.nodes.len() < nodes {
        before = maker.layer(32, &before, &["Step"]);
    }
    maker.graph
}

fn mixed(nodes: usize) -> GraphSpec {
    let mut maker = Maker::default();
    let mut before = Vec::new();
    let source = maker.node("Step", &[]);
    before.push(source);
    while maker.graph.nodes.len() < nodes {
        for _ in 0..4 {
            before = maker.layer(
                8,
                &before,
                &[
                    "Step", "Step", "Step", "Step", "Step", "Step", "Over", "View",
                ],
            );
        }
        before = [0, 3, 6]
            .map(|of| maker.node("Queue", &[before[of]]))
            .to_vec();
        // Read all, so that each queue is popped, and by one section.
        let first = before.clone();
        before = vec![maker.node("Step", &first)];
    }
    maker.graph
}

fn clashes(nodes: usize) -> GraphSpec {
    let mut maker = Maker::default();
    let mut last = maker.node("Step", &[]);
    while maker.graph.nodes.len() < nodes {
        let step = maker.node("Step", &[last]);
        let over = maker.node("Over", &[step]);
        last = maker.node("Step", &[step, over]);
    }
    maker.graph
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    let sync = [
        ("Step", How::Step),
        ("Over", How::Over),
        ("View", How::View),
    ];
    for (kind, how) in sync {
        registry.register_sync(kind, how).expect("a new kind");
    }
    registry.register_async("Queue", Queue).expect("a new kind");
    registry
}

/// How a node's output relates to its first input.
#[derive(Debug, Clone, Copy)]
enum How {
    Step,
    Over,
    View,
}

struct Nothing;

impl ISyncTask for Nothing {
    fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::Ok)
    }
}

impl ISyncTaskFactory for How {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Does nothing.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let inputs = request.inputs().to_vec();
        let output = match inputs.first() {
            Some(input) => input.clone(),
            None => TDesc::host::<f32>([16])?,
        };
        let found = InferResult::sync(inputs, [output]);
        Ok(match self {
            Self::Step => found,
            Self::Over => found.overwriting(0, 0),
            Self::View => found.viewing(0, 0),
        })
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(Nothing))
    }
}

/// An async task that owns both slots, and is never run.
struct Queue;

impl IAsyncTask for Queue {
    fn acquire_input<'c>(
        &self,
        _: usize,
        _: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        Ok(None)
    }

    fn try_push(&self, _: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::NotReady)
    }

    fn try_pop(&self, _: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::NotReady)
    }

    fn release_output(&self, _: usize, _: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        Ok(())
    }
}

impl IAsyncTaskFactory for Queue {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Holds nothing.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let frame = request.input(0)?.normalized();
        Ok(InferResult::asynchronous([frame.clone()], [frame])
            .owning_inputs()
            .owning_outputs())
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(Self))
    }
}
