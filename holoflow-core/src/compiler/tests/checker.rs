//! Whether a plan is right, decided from the specification and the factories' answers alone.
//!
//! Nothing here is taken from the compiler's passes: factories are asked again, sections are
//! found with a union-find of its own, and lifetimes by looking at every pair of nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::compiler::{Plan, PlanNode, Role};
use crate::graph::GraphSpec;
use crate::ids::NodeId;
use crate::registry::{Registry, TaskFactory};
use crate::storage::Slot;
use crate::task::{Aliasing, InferResult, TaskKind, TaskRequest};
use crate::tensor::TDesc;

/// Checks `plan`, made of `graph`.
pub(super) fn check(graph: &GraphSpec, registry: &Registry, plan: &Plan) -> Result<(), String> {
    let checker = Checker {
        graph,
        registry,
        plan,
    };
    checker.nodes_are_those_of_the_graph()?;
    checker.tensors_and_storages_refer_to_each_other()?;
    checker.layouts_are_those_inferred()?;
    checker.storages_have_one_owner_and_enough_bytes()?;
    checker.sections_are_those_of_the_rules()?;
    checker.sections_have_no_circle()?;
    checker.readers_come_after_writers()?;
    checker.nothing_is_overwritten_too_early()?;
    checker.owners_come_last()?;
    checker.copies_have_a_reason()
}

macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}

struct Checker<'a> {
    graph: &'a GraphSpec,
    registry: &'a Registry,
    plan: &'a Plan,
}

/// Something that uses a tensor, and when: at a place in a section's run, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Sync(usize),
    Async(usize),
    Out,
}

impl Checker<'_> {
    fn node(&self, node: NodeId) -> &PlanNode {
        &self.plan.nodes[node.index()]
    }

    fn name(&self, node: usize) -> &str {
        &self.plan.nodes[node].name
    }

    fn is_async(&self, node: usize) -> bool {
        self.plan.nodes[node].task == TaskKind::Async
    }

    fn of(&self, tensor: usize) -> usize {
        self.plan.tensors[tensor].storage.index()
    }

    fn readers(&self, tensor: usize) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.plan.nodes.len())
            .filter(|node| {
                let inputs = &self.plan.nodes[*node].inputs;
                inputs.iter().any(|input| input.index() == tensor)
            })
            .collect();
        nodes.dedup();
        nodes
    }

    /// Every node of the graph is there, with its inputs, apart from copies on the way.
    fn nodes_are_those_of_the_graph(&self) -> Result<(), String> {
        let (graph, plan) = (self.graph, self.plan);
        let own = plan.nodes.iter().filter(|node| node.inserted.is_none());
        let names: Vec<_> = own.map(|node| (&node.name, &node.kind)).collect();
        let expected: Vec<_> = graph.nodes.iter().map(|n| (&n.name, &n.kind)).collect();
        ensure!(names == expected, "nodes {names:?}");
        let names: BTreeSet<_> = plan.nodes.iter().map(|node| &node.name).collect();
        ensure!(names.len() == plan.nodes.len(), "two nodes have one name");
        for edge in &graph.edges {
            let given = plan.nodes[edge.from.index()].outputs[edge.output];
            let taken = plan.nodes[edge.to.index()].inputs[edge.input];
            let through = self.before_copies(taken.index());
            ensure!(through == given.index(), "{edge:?} carries t{taken}");
        }
        for (name, input) in &graph.inputs {
            for to in &input.to {
                let taken = plan.nodes[to.node.index()].inputs[to.input];
                let through = self.before_copies(taken.index());
                ensure!(through == plan.inputs[name].index(), "input {name}");
            }
        }
        for (name, output) in &graph.outputs {
            let given = plan.nodes[output.node.index()].outputs[output.output];
            let through = self.before_copies(plan.outputs[name].index());
            ensure!(through == given.index(), "output {name}");
        }
        ensure!(plan.outputs.len() == graph.outputs.len(), "outputs");
        ensure!(plan.inputs.len() == graph.inputs.len(), "inputs");
        Ok(())
    }

    /// The tensor of the graph that a tensor has the value of.
    fn before_copies(&self, tensor: usize) -> usize {
        match self.plan.tensors[tensor].producer {
            Some((node, _)) if self.node(node).inserted.is_some() => {
                self.before_copies(self.node(node).inputs[0].index())
            }
            _ => tensor,
        }
    }

    fn tensors_and_storages_refer_to_each_other(&self) -> Result<(), String> {
        let plan = self.plan;
        for (index, tensor) in plan.tensors.iter().enumerate() {
            let holding: Vec<usize> = (0..plan.storages.len())
                .filter(|storage| {
                    let tensors = &plan.storages[*storage].tensors;
                    tensors.iter().any(|held| held.index() == index)
                })
                .collect();
            ensure!(
                holding == [tensor.storage.index()],
                "t{index} is in storages {holding:?}"
            );
            match tensor.producer {
                Some((node, output)) => {
                    let outputs = &self.node(node).outputs;
                    ensure!(outputs[output].index() == index, "t{index} has no producer");
                }
                None => {
                    let inputs = plan.inputs.values().filter(|input| input.index() == index);
                    ensure!(inputs.count() == 1, "t{index} comes from nowhere");
                }
            }
            let said: BTreeSet<_> = tensor
                .readers
                .iter()
                .map(|(node, input)| (node.index(), *input))
                .collect();
            let mut found = BTreeSet::new();
            for (node, reader) in plan.nodes.iter().enumerate() {
                for (input, read) in reader.inputs.iter().enumerate() {
                    if read.index() == index {
                        found.insert((node, input));
                    }
                }
            }
            ensure!(said == found, "t{index} is read by {found:?}, not {said:?}");
        }
        let outputs = plan.nodes.iter().map(|node| node.outputs.len());
        let count = outputs.sum::<usize>() + plan.inputs.len();
        ensure!(count == plan.tensors.len(), "{count} tensors");
        Ok(())
    }

    /// What the node's factory says of the graph's own layouts.
    fn asked(&self, node: usize, inputs: &[TDesc]) -> Result<InferResult, String> {
        let spec = &self.graph.nodes[node];
        let request = TaskRequest::new(&spec.name, &spec.settings, inputs);
        let factory = self.registry.get(&spec.kind, None);
        let found = match factory.map_err(|error| error.to_string())? {
            TaskFactory::Sync(factory) => factory.infer(&request),
            TaskFactory::Async(factory) => factory.infer(&request),
        };
        found.map_err(|error| error.to_string())
    }

    /// All answers, asked in an order found by waiting for inputs.
    fn answers(&self) -> Result<Vec<InferResult>, String> {
        let graph = self.graph;
        let mut answers: Vec<Option<InferResult>> = vec![None; graph.nodes.len()];
        loop {
            let mut moved = false;
            for node in 0..graph.nodes.len() {
                if answers[node].is_some() {
                    continue;
                }
                let mut inputs: BTreeMap<usize, Option<TDesc>> = BTreeMap::new();
                for edge in graph.edges.iter().filter(|edge| edge.to.index() == node) {
                    let from = answers[edge.from.index()].as_ref();
                    let desc = from.map(|from| from.output_descs[edge.output].clone());
                    inputs.insert(edge.input, desc);
                }
                for input in graph.inputs.values() {
                    for to in input.to.iter().filter(|to| to.node.index() == node) {
                        inputs.insert(to.input, input.desc.clone());
                    }
                }
                let inputs: Option<Vec<TDesc>> = inputs.into_values().collect();
                if let Some(inputs) = inputs {
                    answers[node] = Some(self.asked(node, &inputs)?);
                    moved = true;
                }
            }
            if !moved {
                let all: Option<Vec<_>> = answers.into_iter().collect();
                return all.ok_or_else(|| "some node was never asked".to_owned());
            }
        }
    }

    fn layouts_are_those_inferred(&self) -> Result<(), String> {
        let answers = self.answers()?;
        for (node, answer) in answers.iter().enumerate() {
            let planned = &self.plan.nodes[node];
            let name = &planned.name;
            ensure!(planned.task == answer.kind, "{name}: kind");
            ensure!(planned.owned_inputs == answer.owned_inputs, "{name}: owned");
            ensure!(
                planned.owned_outputs == answer.owned_outputs,
                "{name}: owned"
            );
            ensure!(planned.in_place == answer.in_place, "{name}: in place");
            let desc = |tensor: usize| &self.plan.tensors[tensor].desc;
            for (output, told) in planned.outputs.iter().zip(&answer.output_descs) {
                ensure!(desc(output.index()).same_layout(told), "{name}: t{output}");
            }
            for (input, told) in planned.inputs.iter().zip(&answer.input_descs) {
                let found = desc(input.index());
                let same = found.shape() == told.shape() && found.dtype() == told.dtype();
                ensure!(same, "{name}: t{input}");
            }
            // In place: in the same storage, where the factory put it relative to the input.
            for (output, tensor) in planned.outputs.iter().enumerate() {
                let pair = answer.in_place.iter().find(|pair| pair.output == output);
                let shares = |input: &crate::ids::TensorId| {
                    self.of(input.index()) == self.of(tensor.index())
                };
                let Some(pair) = pair else {
                    let shared = !self.is_async(node) && planned.inputs.iter().any(shares);
                    ensure!(!shared, "{name}: output {output} shares, but should not");
                    continue;
                };
                let input = planned.inputs[pair.input];
                ensure!(shares(&input), "{name}: output {output} is not in place");
                let told =
                    answer.output_descs[output].offset() - answer.input_descs[pair.input].offset();
                let found = desc(tensor.index()).offset() - desc(input.index()).offset();
                ensure!(told == found, "{name}: output {output} lies at {found}");
                if pair.aliasing == Aliasing::Overwrite {
                    let others = planned.inputs.iter().enumerate();
                    let mut others = others.filter(|(other, _)| *other != pair.input);
                    ensure!(
                        !others.any(|(_, other)| shares(other)),
                        "{name}: it overwrites what another of its inputs is"
                    );
                }
            }
        }
        Ok(())
    }

    fn storages_have_one_owner_and_enough_bytes(&self) -> Result<(), String> {
        let plan = self.plan;
        let mut owners: Vec<Vec<Role>> = vec![Vec::new(); plan.storages.len()];
        for (index, node) in plan.nodes.iter().enumerate() {
            let id = NodeId::new(u32::try_from(index).unwrap());
            for (input, owned) in node.owned_inputs.iter().enumerate() {
                if *owned {
                    let slot = Slot::Input(input);
                    owners[self.of(node.inputs[input].index())].push(Role::Task { node: id, slot });
                }
            }
            for (output, owned) in node.owned_outputs.iter().enumerate() {
                if *owned {
                    let slot = Slot::Output(output);
                    owners[self.of(node.outputs[output].index())]
                        .push(Role::Task { node: id, slot });
                }
            }
        }
        for input in plan.inputs.values() {
            owners[self.of(input.index())].push(Role::Borrowed);
        }
        let out: BTreeSet<usize> = plan.outputs.values().map(|t| self.of(t.index())).collect();
        for (index, storage) in plan.storages.iter().enumerate() {
            let owner = &owners[index];
            ensure!(owner.len() <= 1, "s{index} has the owners {owner:?}");
            let expected = owner.first().copied();
            ensure!(
                expected.is_none() || !out.contains(&index),
                "s{index} goes out, but is owned"
            );
            let free = if out.contains(&index) {
                Role::Io
            } else {
                Role::Execution
            };
            let expected = expected.unwrap_or(free);
            ensure!(storage.role == expected, "s{index} is {:?}", storage.role);
            for tensor in &storage.tensors {
                let desc = &plan.tensors[tensor.index()].desc;
                ensure!(desc.end() <= storage.bytes, "t{tensor} is beyond s{index}");
                ensure!(desc.location() == storage.location, "s{index}: location");
            }
            let largest = storage.tensors.iter();
            let largest = largest.map(|tensor| plan.tensors[tensor.index()].desc.end());
            ensure!(
                largest.max() == Some(storage.bytes),
                "s{index} is too large"
            );
            let written = storage.tensors.iter().any(|tensor| {
                plan.tensors[tensor.index()]
                    .producer
                    .is_some_and(|(node, output)| {
                        let node = self.node(node);
                        let viewed = node
                            .in_place
                            .iter()
                            .any(|pair| pair.output == output && pair.aliasing == Aliasing::View);
                        !viewed && !node.owned_outputs[output]
                    })
            });
            ensure!(storage.written == written, "s{index}: written");
            // The whole of what the compiler allocates is one tensor's, the first one's.
            let first = &plan.tensors[storage.tensors[0].index()].desc;
            ensure!(first.end() == storage.bytes, "s{index}: its first tensor");
        }
        Ok(())
    }

    /// Vertices: push side, or all of a sync node; pop side; graph inputs.
    fn sections_are_those_of_the_rules(&self) -> Result<(), String> {
        let plan = self.plan;
        let count = plan.nodes.len();
        let mut group: Vec<usize> = (0..2 * count + plan.tensors.len()).collect();
        let mut join = |a: usize, b: usize| {
            let (a, b) = (group[a], group[b]);
            for of in &mut group {
                if *of == a {
                    *of = b;
                }
            }
        };
        for (node, planned) in plan.nodes.iter().enumerate() {
            for input in &planned.inputs {
                let given = match plan.tensors[input.index()].producer {
                    None => 2 * count + input.index(),
                    Some((from, _)) if self.is_async(from.index()) => 2 * from.index() + 1,
                    Some((from, _)) => 2 * from.index(),
                };
                join(given, 2 * node);
            }
        }
        let mut of_group: HashMap<usize, usize> = HashMap::new();
        let mut is = |vertex: usize, section: Option<crate::ids::SectionId>| {
            let Some(section) = section else {
                return false;
            };
            *of_group.entry(group[vertex]).or_insert(section.index()) == section.index()
        };
        for (node, planned) in plan.nodes.iter().enumerate() {
            let name = &planned.name;
            let times = |pick: fn(&crate::compiler::PlanSection) -> &Vec<NodeId>| -> Vec<usize> {
                let sections = plan.sections.iter().enumerate();
                sections
                    .flat_map(|(index, section)| {
                        let nodes = pick(section).iter();
                        nodes.filter(|of| of.index() == node).map(move |_| index)
                    })
                    .collect()
            };
            let (runs, pops, pushes) =
                (times(|s| &s.sync), times(|s| &s.pops), times(|s| &s.pushes));
            let at = |section: Option<crate::ids::SectionId>| -> Vec<usize> {
                section.map(|section| section.index()).into_iter().collect()
            };
            if self.is_async(node) {
                ensure!(runs.is_empty(), "{name} is async and runs");
                ensure!(
                    pushes == at(planned.producer),
                    "{name} is pushed by {pushes:?}"
                );
                ensure!(pops == at(planned.consumer), "{name} is popped by {pops:?}");
                let inputs = !planned.inputs.is_empty();
                ensure!(inputs == planned.producer.is_some(), "{name}: producer");
                let outputs = !planned.outputs.is_empty();
                ensure!(outputs == planned.consumer.is_some(), "{name}: consumer");
                ensure!(
                    !inputs || is(2 * node, planned.producer),
                    "{name}: producer"
                );
                ensure!(
                    !outputs || is(2 * node + 1, planned.consumer),
                    "{name}: consumer"
                );
            } else {
                ensure!(runs == at(planned.producer), "{name} runs in {runs:?}");
                ensure!(runs.len() == 1, "{name} runs nowhere");
                ensure!(pops.is_empty() && pushes.is_empty(), "{name} is sync");
                ensure!(
                    is(2 * node, planned.producer),
                    "{name} is in another section"
                );
            }
        }
        let sections: BTreeSet<usize> = of_group.values().copied().collect();
        ensure!(
            sections.len() == of_group.len(),
            "two groups are one section"
        );
        ensure!(
            sections.len() == plan.sections.len(),
            "a section has nothing"
        );
        for (index, storage) in plan.storages.iter().enumerate() {
            let first = &plan.tensors[storage.tensors[0].index()];
            let expected = match first.producer {
                None => {
                    let reader = self.readers(storage.tensors[0].index());
                    let reader = reader.first().map(|reader| &plan.nodes[*reader]);
                    reader.and_then(|reader| reader.producer)
                }
                Some((node, _)) if self.is_async(node.index()) => self.node(node).consumer,
                Some((node, _)) => self.node(node).producer,
            };
            ensure!(storage.section == expected, "s{index}: section");
        }
        // C-46: numbered as the first sync node of each comes in dependency order.
        let relays = plan.sections.iter().map(|section| section.sync.is_empty());
        ensure!(relays.is_sorted(), "relay sections come last");
        Ok(())
    }

    fn sections_have_no_circle(&self) -> Result<(), String> {
        let count = self.plan.sections.len();
        let mut behind = vec![BTreeSet::new(); count];
        for node in &self.plan.nodes {
            if let (Some(from), Some(to)) = (node.producer, node.consumer) {
                behind[from.index()].insert(to.index());
            }
        }
        for _ in 0..count {
            for section in 0..count {
                let further: Vec<usize> = behind[section]
                    .iter()
                    .flat_map(|next| behind[*next].iter().copied())
                    .collect();
                behind[section].extend(further);
            }
        }
        for (section, behind) in behind.iter().enumerate() {
            ensure!(
                !behind.contains(&section),
                "section {section} waits for itself"
            );
        }
        Ok(())
    }

    /// Place of a sync node in its section.
    fn place(&self, node: usize) -> usize {
        let section = self.plan.nodes[node]
            .producer
            .map(|section| section.index());
        section
            .and_then(|section| {
                let sync = &self.plan.sections[section].sync;
                sync.iter().position(|other| other.index() == node)
            })
            .unwrap_or(usize::MAX)
    }

    fn readers_come_after_writers(&self) -> Result<(), String> {
        for (node, planned) in self.plan.nodes.iter().enumerate() {
            for input in &planned.inputs {
                let Some((from, _)) = self.plan.tensors[input.index()].producer else {
                    continue;
                };
                if !self.is_async(node) && !self.is_async(from.index()) {
                    ensure!(
                        self.place(from.index()) < self.place(node),
                        "{} runs before {}, which it needs",
                        planned.name,
                        self.name(from.index())
                    );
                }
            }
        }
        Ok(())
    }

    /// Whoever uses a tensor of a storage.
    fn uses(&self, tensor: usize) -> Vec<Use> {
        let mut uses: Vec<Use> = self
            .readers(tensor)
            .into_iter()
            .map(|node| {
                if self.is_async(node) {
                    Use::Async(node)
                } else {
                    Use::Sync(node)
                }
            })
            .collect();
        if self.plan.outputs.values().any(|out| out.index() == tensor) {
            uses.push(Use::Out);
        }
        uses
    }

    /// The tensor, and what is in place behind it without an overwrite in between, or with.
    fn in_place_behind(&self, tensor: usize, overwritten: bool) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([tensor]);
        loop {
            let before = found.len();
            for node in &self.plan.nodes {
                for pair in &node.in_place {
                    let input = node.inputs[pair.input].index();
                    if found.contains(&input) && (overwritten || pair.aliasing == Aliasing::View) {
                        found.insert(node.outputs[pair.output].index());
                    }
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    /// The node that wrote the bytes that a tensor shows, by going back along views.
    fn written_at(&self, tensor: usize) -> usize {
        let Some((node, output)) = self.plan.tensors[tensor].producer else {
            return tensor;
        };
        let node = self.node(node);
        let view =
            |pair: &&crate::task::InPlace| pair.output == output && pair.aliasing == Aliasing::View;
        match node.in_place.iter().find(view) {
            Some(pair) => self.written_at(node.inputs[pair.input].index()),
            None => tensor,
        }
    }

    fn nothing_is_overwritten_too_early(&self) -> Result<(), String> {
        for (writer, node) in self.plan.nodes.iter().enumerate() {
            let overwrites = node
                .in_place
                .iter()
                .filter(|pair| pair.aliasing == Aliasing::Overwrite)
                .map(|pair| pair.input);
            let consumes = (0..node.inputs.len())
                .filter(|input| !self.is_async(writer) && node.owned_inputs[*input]);
            let ended: Vec<usize> = overwrites.chain(consumes).collect();
            for input in ended {
                let tensor = node.inputs[input].index();
                let storage = self.of(tensor);
                let role = self.plan.storages[storage].role;
                ensure!(role != Role::Borrowed, "{} writes an input", node.name);
                // Everything else in the storage that shows the same bytes.
                let source = self.written_at(tensor);
                let same = self.in_place_behind(source, false);
                for other in same {
                    for use_of in self.uses(other) {
                        let fine = match use_of {
                            Use::Sync(reader) if reader == writer => {
                                let slots = node.inputs.iter().enumerate();
                                slots
                                    .filter(|(slot, read)| *slot != input && read.index() == other)
                                    .count()
                                    == 0
                            }
                            Use::Sync(reader) => self.place(reader) < self.place(writer),
                            Use::Async(_) | Use::Out => false,
                        };
                        ensure!(
                            fine,
                            "{} ends t{tensor} before {use_of:?} has read t{other}",
                            node.name
                        );
                    }
                }
            }
        }
        Ok(())
    }

    fn owners_come_last(&self) -> Result<(), String> {
        for (section, planned) in self.plan.sections.iter().enumerate() {
            for (at, owner) in planned.pushes.iter().enumerate() {
                let node = self.node(*owner);
                for (input, owned) in node.owned_inputs.iter().enumerate() {
                    if !*owned {
                        continue;
                    }
                    let storage = self.of(node.inputs[input].index());
                    for other in &planned.pushes[at..] {
                        for (slot, read) in self.node(*other).inputs.iter().enumerate() {
                            let itself = other == owner && slot == input;
                            ensure!(
                                itself || self.of(read.index()) != storage,
                                "section {section}: {} is pushed after the owner {}",
                                self.name(other.index()),
                                node.name
                            );
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Without the copy, something would not hold.
    fn copies_have_a_reason(&self) -> Result<(), String> {
        for node in self
            .plan
            .nodes
            .iter()
            .filter(|node| node.inserted.is_some())
        {
            let (from, to) = (node.inputs[0].index(), node.outputs[0].index());
            let name = &node.name;
            let goes_out = self.plan.outputs.values().any(|out| out.index() == to);
            let readers = self.readers(to);
            ensure!(
                readers.len() + usize::from(goes_out) == 1,
                "{name} has no reader of its own"
            );
            let owned = |tensor: usize| {
                let role = self.plan.storages[self.of(tensor)].role;
                matches!(role, Role::Task { .. } | Role::Borrowed)
            };
            // Who shares the storage that it is taken from, besides the copy.
            let family = |tensor: usize| -> Vec<usize> {
                let storage = &self.plan.storages[self.of(tensor)];
                storage
                    .tensors
                    .iter()
                    .map(|tensor| tensor.index())
                    .collect()
            };
            let others = family(from)
                .into_iter()
                .flat_map(|tensor| self.uses(tensor))
                .filter(|other| !matches!(other, Use::Sync(n) if self.name(*n) == name));
            let shared = others.count() > 0 || family(from).len() > 1;
            let ends = family(to).len() > 1 || owned(to);
            // An async node that borrows what an async node owns, itself or another one that
            // borrows what it owns.
            let borrowed = match self.plan.storages[self.of(from)].role {
                Role::Task { node, slot } if !goes_out => {
                    matches!(slot, Slot::Input(_))
                        && self.is_async(node.index())
                        && self.is_async(readers[0])
                }
                _ => false,
            };
            let reason = if goes_out {
                owned(from)
            } else {
                borrowed || ends && (shared || owned(from))
            };
            ensure!(reason, "{name} has no reason");
        }
        Ok(())
    }
}

/// Whether the sections of a graph, found by the rules, wait for each other.
pub(super) fn has_section_circle(graph: &GraphSpec, registry: &Registry) -> bool {
    let count = graph.nodes.len();
    let is_async = |node: usize| registry.is_async(&graph.nodes[node].kind);
    let mut group: Vec<usize> = (0..2 * count + graph.inputs.len()).collect();
    let mut join = |a: usize, b: usize| {
        let (a, b) = (group[a], group[b]);
        for of in &mut group {
            if *of == a {
                *of = b;
            }
        }
    };
    for edge in &graph.edges {
        let from = edge.from.index();
        join(2 * from + usize::from(is_async(from)), 2 * edge.to.index());
    }
    for (index, input) in graph.inputs.values().enumerate() {
        for to in &input.to {
            join(2 * count + index, 2 * to.node.index());
        }
    }
    let mut behind: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); group.len()];
    for node in (0..count).filter(|node| is_async(*node)) {
        let takes = graph.edges.iter().any(|edge| edge.to.index() == node)
            || graph
                .inputs
                .values()
                .any(|input| input.to.iter().any(|to| to.node.index() == node));
        if takes {
            behind[group[2 * node]].insert(group[2 * node + 1]);
        }
    }
    for _ in 0..count {
        for section in 0..behind.len() {
            let further: Vec<usize> = behind[section]
                .iter()
                .flat_map(|next| behind[*next].iter().copied())
                .collect();
            behind[section].extend(further);
        }
    }
    (0..behind.len()).any(|section| behind[section].contains(&section))
}
