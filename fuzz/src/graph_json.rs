//! Any bytes as a graph file: read, checked, flattened, drawn, compiled to a plan.
//!
//! Whatever the bytes: nothing panics, and
//!
//! 1. what was read is written and read again the same, without warnings about unknown keys
//!    other than options;
//! 2. what no reader would take is not written;
//! 3. the same description gives the same plan, or the same errors.
//!
//! The registry holds the CPU tasks, and kinds that only say what they would do: of every
//! shape that a graph can be made of, and some that lie. Nothing is allocated or run.
//!
//! Both the fuzzer and `tests/fuzz_seeds.rs` run this.

use holoflow::compiler::{Compiler, Conflicts};
use holoflow::graph::{GraphSpec, flatten};
use holoflow::prelude::*;
use holoflow::registry::Registry;
use holoflow::task::{Flow, Placement};
use schemars::JsonSchema;
use serde::Deserialize;

/// Uses of subgraphs that are followed: with each two the graph may double.
const USES: usize = 12;

/// How far some bytes came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// They are no graph file.
    Nothing,
    /// They are one, but no graph that can be compiled.
    Graph,
    /// They have a plan.
    Plan,
}

/// Does everything with `bytes` that can be done with a graph file.
///
/// # Panics
/// If something does not hold, which is what a fuzzer waits for.
pub fn graph_json(registry: &Registry, bytes: &[u8]) -> Reached {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Reached::Nothing;
    };
    let graph = match GraphSpec::from_json_str(text) {
        Ok((graph, warnings)) => {
            for warning in &warnings {
                assert!(!warning.to_string().is_empty());
            }
            graph
        }
        Err(errors) => {
            assert!(errors.iter().count() > 0);
            assert!(!errors.to_string().is_empty());
            return Reached::Nothing;
        }
    };
    assert_eq!(graph.check(), Ok(()), "what is read is consistent");
    let document = graph.to_json();
    let document = document.expect("what was read can be written");
    let (again, warnings) =
        GraphSpec::from_json_str(&document.to_string()).expect("what was written can be read");
    assert_eq!(again, graph, "what was written is read as it was");
    // Options are kept as they are written, known or not; every other key is the writer's.
    let odd = warnings
        .iter()
        .filter(|found| found.to_string().contains("unknown key"))
        .find(|found| !found.place().starts_with("options"));
    assert_eq!(odd, None, "what is written is known");
    assert_eq!(again.to_json().as_ref(), Ok(&document));
    assert!(graph.to_dot().ends_with("}\n"));

    if uses(&graph) > USES {
        return Reached::Graph;
    }
    if let Ok(flat) = flatten(&graph) {
        assert!(flat.spec.nodes.iter().all(|node| node.subgraph().is_none()));
    }
    compile(registry, &graph)
}

/// Compiles `graph` with and without copies, twice each.
fn compile(registry: &Registry, graph: &GraphSpec) -> Reached {
    let mut reached = Reached::Graph;
    for conflicts in [Conflicts::Copy, Conflicts::Error] {
        let compiler = Compiler::new(registry).on_conflict(conflicts);
        match (compiler.plan(graph), compiler.plan(graph)) {
            (Ok(plan), Ok(again)) => {
                assert_eq!(plan, again, "the same graph has the same plan");
                assert_eq!(plan.to_string(), again.to_string());
                assert!(plan.to_dot().ends_with("}\n"));
                let copies = plan.copies().count();
                assert!(
                    copies == 0 || conflicts == Conflicts::Copy,
                    "a copy was refused"
                );
                reached = Reached::Plan;
            }
            (Err(errors), Err(again)) => {
                assert!(errors.len() > 0);
                assert_eq!(errors.to_string(), again.to_string());
            }
            (one, other) => panic!("the same graph compiles once: {one:?}, {other:?}"),
        }
    }
    reached
}

/// Nodes that stand for a subgraph, in all graphs.
fn uses(graph: &GraphSpec) -> usize {
    let own = graph.nodes.iter().filter(|node| node.subgraph().is_some());
    own.count() + graph.graphs.values().map(uses).sum::<usize>()
}

/// What a test kind makes of its settings and inputs.
type Infer = fn(&TaskRequest<'_>) -> TaskResult<InferResult>;

/// A kind that is never run.
struct Kind {
    infer: Infer,
    placement: Placement,
}

impl Kind {
    fn check_and_infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        settings(request)?;
        (self.infer)(request)
    }

    fn describe(&self) -> TaskInfo {
        let info = TaskInfo::new("Is never run.").with_settings::<Settings>();
        match self.placement {
            Placement::Host => info,
            Placement::Device => info.on_device(),
        }
    }
}

/// Settings of every test kind.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Layout of what a source makes.
    #[serde(default)]
    shape: Vec<usize>,
    /// A number of anything.
    #[serde(default = "one")]
    count: usize,
}

fn one() -> usize {
    1
}

impl ISyncTaskFactory for Kind {
    fn describe(&self) -> TaskInfo {
        Kind::describe(self)
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        self.check_and_infer(request)
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Err(TaskError::other("it is never run"))
    }
}

impl IAsyncTaskFactory for Kind {
    fn describe(&self) -> TaskInfo {
        Kind::describe(self)
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        self.check_and_infer(request)
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Err(TaskError::other("it is never run"))
    }
}

/// The CPU tasks and the test kinds.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    let mut register = || {
        holoflow::cpu::register_all(&mut registry)?;
        let host = Placement::Host;
        for (name, placement, infer) in SYNC {
            registry.register_sync(
                *name,
                Kind {
                    infer: *infer,
                    placement: *placement,
                },
            )?;
        }
        for (name, infer) in ASYNC {
            registry.register_async(
                *name,
                Kind {
                    infer: *infer,
                    placement: host,
                },
            )?;
        }
        Ok::<(), holoflow::registry::RegistryError>(())
    };
    register().expect("no two kinds have the same name");
    registry
}

const SYNC: &[(&str, Placement, Infer)] = &[
    ("Source", Placement::Host, |request| {
        let [] = request.exactly::<0>()?;
        Ok(InferResult::sync([], [made(request)?]))
    }),
    ("Map", Placement::Host, |request| {
        let [x] = request.exactly::<1>()?;
        Ok(InferResult::sync([x.clone()], [x.normalized()]))
    }),
    ("Map", Placement::Device, |request| {
        let [x] = request.exactly::<1>()?;
        Ok(InferResult::sync([x.clone()], [x.normalized()]))
    }),
    ("Add", Placement::Host, |request| {
        let first = request.input(0)?;
        if let Some(other) = request
            .inputs()
            .iter()
            .position(|x| x.shape() != first.shape())
        {
            let found = request.input(other)?;
            return Err(TaskError::input(other, found, "the shape of input 0"));
        }
        Ok(InferResult::sync(
            request.inputs().to_vec(),
            [first.normalized()],
        ))
    }),
    ("Split", Placement::Host, |request| {
        let [x] = request.exactly::<1>()?;
        let count = settings(request)?.count.min(8);
        Ok(InferResult::sync([x.clone()], vec![x.normalized(); count]))
    }),
    ("Overwrite", Placement::Host, |request| {
        let inputs = request.inputs();
        let first = request.input(0)?;
        Ok(InferResult::sync(inputs.to_vec(), [first.clone()]).overwriting(0, 0))
    }),
    ("View", Placement::Host, |request| {
        let [x] = request.exactly::<1>()?;
        Ok(InferResult::sync([x.clone()], [first_row(x)?]).viewing(0, 0))
    }),
    ("Skip", Placement::Host, |request| {
        let [x] = request.exactly::<1>()?;
        Ok(InferResult::sync([x.clone()], [x.normalized()]).skipping())
    }),
    ("Sink", Placement::Host, |request| {
        Ok(InferResult::sync(request.inputs().to_vec(), []))
    }),
    ("Owner", Placement::Host, |request| {
        let inputs = request.inputs().to_vec();
        let first = request.input(0)?.normalized();
        Ok(InferResult::sync(inputs, [first])
            .owning_inputs()
            .owning_outputs())
    }),
    // Says that it has other slots than it has.
    ("Lie", Placement::Host, |request| {
        let count = settings(request)?.count;
        let mut result = InferResult::sync(request.inputs().to_vec(), [made(request)?]);
        match count % 6 {
            0 => result.owned_inputs.push(true),
            1 => result.owned_outputs.clear(),
            2 => result = result.overwriting(count, 0),
            3 => result = result.viewing(0, 0).overwriting(0, 0),
            4 => result.input_descs.clear(),
            _ => result = result.viewing(0, 0),
        }
        Ok(result)
    }),
];

const ASYNC: &[(&str, Infer)] = &[
    ("Camera", |request| {
        let [] = request.exactly::<0>()?;
        Ok(InferResult::asynchronous([], [made(request)?]).owning_outputs())
    }),
    ("Queue", |request| {
        let [x] = request.exactly::<1>()?;
        let frame = x.normalized();
        let flow = Flow::one_to_one(settings(request)?.count);
        Ok(InferResult::asynchronous([frame.clone()], [frame])
            .owning_inputs()
            .owning_outputs()
            .with_flow(flow))
    }),
    ("Batch", |request| {
        let [x] = request.exactly::<1>()?;
        let Settings { shape, count } = settings(request)?;
        let flow = Flow {
            frames_per_output: count,
            held_back: shape.first().copied().unwrap_or_default(),
            capacity: shape.get(1).copied().unwrap_or(count),
        };
        Ok(InferResult::asynchronous([x.clone()], [x.normalized()]).with_flow(flow))
    }),
    ("Buffer", |request| {
        let inputs = request.inputs().to_vec();
        let outputs: Vec<_> = inputs.iter().map(TDesc::normalized).collect();
        Ok(InferResult::asynchronous(inputs, outputs))
    }),
    ("Upload", |request| {
        let [x] = request.exactly::<1>()?;
        let device = u32::try_from(settings(request)?.count - 1).unwrap_or(u32::MAX);
        let there = moved(x, MemLoc::Device(device))?;
        Ok(InferResult::asynchronous([x.normalized()], [there]).owning_inputs())
    }),
    ("Download", |request| {
        let [x] = request.exactly::<1>()?;
        let here = moved(x, MemLoc::HostPinned)?;
        Ok(InferResult::asynchronous([x.clone()], [here]).owning_outputs())
    }),
    ("Display", |request| {
        Ok(InferResult::asynchronous(request.inputs().to_vec(), []).owning_inputs())
    }),
];

fn settings(request: &TaskRequest<'_>) -> TaskResult<Settings> {
    let settings = request.settings::<Settings>()?;
    if settings.count == 0 {
        return Err(TaskError::settings("count", 0, "at least 1"));
    }
    Ok(settings)
}

fn made(request: &TaskRequest<'_>) -> TaskResult<TDesc> {
    laid_out(settings(request)?.shape, DType::F32, MemLoc::Host)
}

fn moved(desc: &TDesc, location: MemLoc) -> TaskResult<TDesc> {
    laid_out(desc.shape().to_vec(), desc.dtype(), location)
}

fn laid_out(shape: Vec<usize>, dtype: DType, location: MemLoc) -> TaskResult<TDesc> {
    TDesc::new(shape, dtype, location)
        .map_err(|error| TaskError::settings("shape", "one", error.to_string()))
}

fn first_row(desc: &TDesc) -> TaskResult<TDesc> {
    let (Some((_, shape)), Some((_, strides))) =
        (desc.shape().split_first(), desc.strides().split_first())
    else {
        return Err(TaskError::input(0, desc, "at least one axis"));
    };
    let row = TDesc::with_layout(shape, desc.dtype(), desc.location(), strides, desc.offset());
    row.map_err(|error| TaskError::settings("shape", "one", error.to_string()))
}
