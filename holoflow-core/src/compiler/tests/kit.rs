//! Graphs in few words, and tasks that infer what their settings say.
//!
//! A graph is a text, one thing a line:
//!
//! ```text
//! < frames F32:4           graph input with a layout, or without
//! src   = S[out=2]         node `src` of kind `S` without inputs, and two outputs
//! q     = Q src.1          fed by output 1 of `src`; `src` alone is output 0
//! sum   = S[over=0:0] q <frames
//! > image sum              graph output
//! ```
//!
//! Kinds: `S` is sync, `A` async, `Q` an async queue that owns both slots and wants offset 0;
//! `DS`, `DA` and `DQ` are the same for device memory, `Up` goes from host to device, `SA` is
//! registered as sync and infers async. What a node is, its settings say:
//!
//! - `ins=2`: refuses another number of inputs;
//! - `in=LAYOUT|LAYOUT`: the layouts wanted, otherwise those found;
//! - `out=2` or `out=LAYOUT|LAYOUT`: the outputs; otherwise one, like the first input;
//! - `over=0:1`, `view=0:1`: output 1 overwrites, or is a view of, input 0;
//! - `own_in=0,1`, `own_out=0`: owned slots; `shares=0`: owned outputs that are read-only;
//! - `flow=1/0/4`: frames for each output, held back, capacity;
//! - `skip`, `fail=word`, `panic=word`, `flags` (one flag of owned inputs is missing).
//!
//! A layout is `F32:2,3`, with `@Device:1`, `+16` (offset) and `~16,4` (strides) as wanted.

use std::collections::HashMap;

use serde_json::json;

use crate::compiler::{CompileErrors, Compiler, Plan, PlanNode, PlanSection, PlanStorage};
use crate::graph::{EdgeSpec, GraphSpec, InputRef, InputSpec, NodeSpec, OutputSpec};
use crate::ids::{NodeId, TensorId};
use crate::registry::Registry;
use crate::task::{
    Aliasing, CreateCtx, Flow, IAsyncTask, IAsyncTaskFactory, ISyncTask, ISyncTaskFactory, InPlace,
    InferResult, TaskError, TaskErrorKind, TaskInfo, TaskKind, TaskRequest, TaskResult,
};
use crate::tensor::{DType, MemLoc, TDesc};

/// A factory whose tasks infer what the settings say.
#[derive(Debug, Clone, Copy)]
struct Told {
    infers: TaskKind,
    queue: bool,
    device: bool,
    /// Where the outputs are, if not where the inputs are.
    to: Option<MemLoc>,
}

impl Told {
    fn infer(self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let text = request.raw_settings()["is"].as_str().unwrap_or("");
        let words: HashMap<&str, &str> = text
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap_or((word, "")))
            .collect();
        if let Some(text) = words.get("panic") {
            std::panic::panic_any((*text).to_owned());
        }
        if let Some(text) = words.get("fail") {
            return Err(TaskError::other(*text));
        }
        if let Some(count) = words.get("ins")
            && request.inputs().len() != number(count)
        {
            return Err(TaskErrorKind::InputCount {
                found: request.inputs().len(),
                expected: (*count).to_owned(),
            }
            .into());
        }
        let mut inputs = request.inputs().to_vec();
        if let Some(text) = words.get("in") {
            inputs = text.split('|').map(layout).collect();
        } else if self.queue {
            inputs = inputs.iter().map(TDesc::normalized).collect();
        }
        let place = if self.device {
            MemLoc::Device(0)
        } else {
            MemLoc::Host
        };
        let usual = || match (inputs.first(), self.to) {
            (Some(input), None) => input.normalized(),
            (Some(input), Some(to)) => input.normalized().at_location(to),
            (None, to) => {
                TDesc::new([4], DType::F32, to.unwrap_or(place)).expect("a small tensor fits")
            }
        };
        let mut outputs: Vec<TDesc> = match words.get("out") {
            None => vec![usual()],
            Some(text) => match text.parse() {
                Ok(count) => vec![usual(); count],
                Err(_) => text.split('|').map(layout).collect(),
            },
        };
        let mut in_place = Vec::new();
        for (word, aliasing) in [("view", Aliasing::View), ("over", Aliasing::Overwrite)] {
            for pair in words.get(word).iter().flat_map(|text| text.split(',')) {
                let (input, output) = pair.split_once(':').expect("a pair `input:output`");
                let (input, output) = (number(input), number(output));
                let told = words
                    .get("out")
                    .is_some_and(|text| text.parse::<usize>().is_err());
                if !told && input < inputs.len() && output < outputs.len() {
                    outputs[output] = inputs[input].clone();
                }
                in_place.push(InPlace {
                    input,
                    output,
                    aliasing,
                });
            }
        }
        let mut result = match self.infers {
            TaskKind::Sync => InferResult::sync(inputs, outputs),
            TaskKind::Async => InferResult::asynchronous(inputs, outputs),
        };
        result.in_place = in_place;
        if self.queue {
            result = result.owning_inputs().owning_outputs();
        }
        for slot in numbers(words.get("own_in").copied()) {
            result.owned_inputs[slot] = true;
        }
        for slot in numbers(words.get("own_out").copied()) {
            result.owned_outputs[slot] = true;
        }
        result = result.sharing_outputs(numbers(words.get("shares").copied()));
        if let Some(flow) = words.get("flow") {
            let [frames_per_output, held_back, capacity] =
                <[usize; 3]>::try_from(flow.split('/').map(number).collect::<Vec<_>>())
                    .expect("three numbers");
            result.flow = Some(Flow {
                frames_per_output,
                held_back,
                capacity,
            });
        }
        result.may_skip = words.contains_key("skip");
        if words.contains_key("flags") {
            result.owned_inputs.pop();
        }
        Ok(result)
    }

    fn info(self) -> TaskInfo {
        let info = TaskInfo::new("Infers what it is told.");
        if self.device { info.on_device() } else { info }
    }
}

fn number(text: &str) -> usize {
    match text {
        "max" => usize::MAX,
        text => text.parse().expect("a number"),
    }
}

fn numbers(text: Option<&str>) -> impl Iterator<Item = usize> {
    text.into_iter()
        .flat_map(|text| text.split(',').map(number))
}

impl ISyncTaskFactory for Told {
    fn describe(&self) -> TaskInfo {
        self.info()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Self::infer(*self, request)
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Err(TaskError::other("only planned"))
    }
}

impl IAsyncTaskFactory for Told {
    fn describe(&self) -> TaskInfo {
        self.info()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Self::infer(*self, request)
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Err(TaskError::other("only planned"))
    }
}

/// The kinds of this module.
pub(super) fn registry() -> Registry {
    let mut registry = Registry::new();
    let host = |infers| Told {
        infers,
        queue: false,
        device: false,
        to: None,
    };
    let device = |told: Told| Told {
        device: true,
        ..told
    };
    let (sync, asynchronous) = (host(TaskKind::Sync), host(TaskKind::Async));
    let queue = Told {
        queue: true,
        ..asynchronous
    };
    let up = Told {
        to: Some(MemLoc::Device(0)),
        ..sync
    };
    for (kind, told) in [
        ("S", sync),
        ("SA", asynchronous),
        ("DS", device(sync)),
        ("Up", up),
    ] {
        registry.register_sync(kind, told).unwrap();
    }
    for (kind, told) in [
        ("A", asynchronous),
        ("Q", queue),
        ("DA", device(asynchronous)),
        ("DQ", device(queue)),
    ] {
        registry.register_async(kind, told).unwrap();
    }
    registry
}

/// The factory of `S`.
pub(super) fn host_sync() -> impl ISyncTaskFactory + 'static {
    Told {
        infers: TaskKind::Sync,
        queue: false,
        device: false,
        to: None,
    }
}

/// The factory of `DS`.
pub(super) fn device_sync() -> impl ISyncTaskFactory + 'static {
    Told {
        infers: TaskKind::Sync,
        queue: false,
        device: true,
        to: None,
    }
}

/// A layout as this module writes it.
pub(super) fn layout(text: &str) -> TDesc {
    let (text, strides) = text
        .split_once('~')
        .map_or((text, None), |(a, b)| (a, Some(b)));
    let (text, offset) = text.split_once('+').unwrap_or((text, "0"));
    let (text, location) = text.split_once('@').unwrap_or((text, "Host"));
    let (dtype, shape) = text.split_once(':').unwrap_or((text, ""));
    let list = |text: &str| -> Vec<usize> {
        text.split(',')
            .filter(|text| !text.is_empty())
            .map(number)
            .collect()
    };
    let dtype: DType = serde_json::from_value(json!(dtype)).expect("an element type");
    let location: MemLoc = location.parse().expect("a location");
    let plain = TDesc::with_offset(list(shape), dtype, location, number(offset));
    let plain = plain.expect("a layout");
    let Some(strides) = strides else {
        return plain;
    };
    TDesc::with_layout(list(shape), dtype, location, list(strides), number(offset))
        .expect("a layout")
}

/// The graph that a text describes; see the head of this module.
pub(super) fn graph(text: &str) -> GraphSpec {
    let mut graph = GraphSpec::default();
    let lines = || {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    };
    let mut nodes = Vec::new();
    for line in lines().filter(|line| !line.starts_with(['<', '>'])) {
        let (name, rest) = line.split_once('=').expect("`name = kind inputs`");
        let rest = rest.trim();
        let kind_end = rest.find([' ', '[']).unwrap_or(rest.len());
        let (kind, rest) = rest.split_at(kind_end);
        let (settings, inputs) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').expect("a closing bracket"),
            None => ("", rest),
        };
        let settings = if settings.is_empty() {
            json!({})
        } else {
            json!({ "is": settings })
        };
        let node = graph.add(NodeSpec::new(name.trim(), kind).with_settings(settings));
        nodes.push((node, inputs));
    }
    let find = |graph: &GraphSpec, text: &str| -> (NodeId, usize) {
        let (name, output) = text.rsplit_once('.').unwrap_or((text, "0"));
        let node = graph
            .find(name)
            .unwrap_or_else(|| panic!("no node `{name}`"));
        (node, number(output))
    };
    for line in lines() {
        if let Some(input) = line.strip_prefix('<') {
            let mut words = input.split_whitespace();
            let name = words.next().expect("the input's name");
            let input = InputSpec {
                desc: words.next().map(layout),
                ..InputSpec::default()
            };
            graph.inputs.insert(name.to_owned(), input);
        } else if let Some(output) = line.strip_prefix('>') {
            let (name, from) = output.trim().split_once(' ').expect("`> name node`");
            let (node, output) = find(&graph, from.trim());
            let output = OutputSpec::new(node, output);
            graph.outputs.insert(name.to_owned(), output);
        }
    }
    for (node, inputs) in nodes {
        for (number, from) in inputs.split_whitespace().enumerate() {
            if let Some(name) = from.strip_prefix('<') {
                let input = graph.inputs.get_mut(name).expect("a graph input");
                input.to.push(InputRef {
                    node,
                    input: number,
                });
            } else {
                let from = find(&graph, from);
                graph.edges.push(EdgeSpec::new(from, (node, number)));
            }
        }
    }
    graph
}

/// The plan of a text.
pub(super) fn plan(text: &str) -> Plan {
    let registry = registry();
    let found = Compiler::new(&registry).plan(&graph(text));
    found.unwrap_or_else(|errors| panic!("{errors}\nin\n{text}"))
}

/// What is wrong with a text.
pub(super) fn errors(text: &str) -> String {
    refused(&graph(text)).to_string()
}

/// What is wrong with a text if no copy may be made.
pub(super) fn errors_without_copies(text: &str) -> String {
    let mut graph = graph(text);
    let option = "on_ownership_conflict".to_owned();
    graph.options.insert(option, json!("error"));
    refused(&graph).to_string()
}

/// What is wrong with a graph.
pub(super) fn refused(graph: &GraphSpec) -> CompileErrors {
    let registry = registry();
    match Compiler::new(&registry).plan(graph) {
        Ok(plan) => panic!("not refused, but planned:\n{plan}"),
        Err(errors) => errors,
    }
}

/// Ways to look at a plan by names.
pub(super) trait Look {
    fn look(&self, name: &str) -> (usize, &PlanNode);
    /// Tensor of `node` (output 0) or `node.1`.
    fn tensor(&self, output: &str) -> TensorId;
    /// Storage of the same.
    fn storage(&self, output: &str) -> (usize, &PlanStorage);
    /// Copies, as `name: why`.
    fn copied(&self) -> Vec<String>;
    /// The sections as `pops > sync > pushes`.
    fn cut(&self) -> Vec<String>;
    /// Whether node `a` is before `b` in one section.
    fn runs_before(&self, a: &str, b: &str) -> bool;
}

impl Look for Plan {
    fn look(&self, name: &str) -> (usize, &PlanNode) {
        let found = self
            .nodes
            .iter()
            .enumerate()
            .find(|(_, node)| node.name == name);
        found.unwrap_or_else(|| panic!("no node `{name}` in\n{self}"))
    }

    fn tensor(&self, output: &str) -> TensorId {
        let (name, output) = match output.rsplit_once('.') {
            Some((name, number)) if number.parse::<usize>().is_ok() => (name, number),
            _ => (output, "0"),
        };
        self.look(name).1.outputs[number(output)]
    }

    fn storage(&self, output: &str) -> (usize, &PlanStorage) {
        let storage = self.tensors[self.tensor(output).index()].storage;
        (storage.index(), &self.storages[storage.index()])
    }

    fn copied(&self) -> Vec<String> {
        self.copies()
            .map(|(node, why)| format!("{}: {why}", node.name))
            .collect()
    }

    fn cut(&self) -> Vec<String> {
        let names = |nodes: &[NodeId]| {
            let names = nodes
                .iter()
                .map(|node| self.nodes[node.index()].name.as_str());
            names.collect::<Vec<_>>().join(" ")
        };
        let cut = |section: &PlanSection| {
            let parts = [&section.pops, &section.sync, &section.pushes].map(|part| names(part));
            parts.join(" > ").trim().to_owned()
        };
        self.sections.iter().map(cut).collect()
    }

    fn runs_before(&self, a: &str, b: &str) -> bool {
        let (a, b) = (self.look(a).0, self.look(b).0);
        self.sections.iter().any(|section| {
            let at = |node| section.sync.iter().position(|other| other.index() == node);
            matches!((at(a), at(b)), (Some(a), Some(b)) if a < b)
        })
    }
}
