//! The graph as the passes work on it.
//!
//! Nodes in the order of the flat description, each with where its inputs come from; copies
//! that the compiler inserts come after them. Passes fill in more: factory, inference,
//! storage, order. Plain data; what it means is said by the pass that writes it.

use serde_json::Value;

use super::{CompileError, CompileErrors};
use crate::registry::TaskFactory;
use crate::task::{InferResult, Placement, TaskKind};
use crate::tensor::TDesc;

/// Where an input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Source {
    /// Graph input with this number.
    Input(usize),
    /// Output of a node.
    Node { node: usize, output: usize },
}

/// What the task of a node is made by.
#[derive(Debug, Clone)]
pub(super) enum Maker {
    /// A registered factory.
    Factory(TaskFactory),
    /// The compiler's own copy.
    Copy,
}

#[derive(Debug)]
pub(super) struct IrNode {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) settings: Value,
    pub(super) debug: bool,
    /// Why the compiler inserted it; `None` for nodes of the description.
    pub(super) inserted: Option<String>,
    /// By number of the input.
    pub(super) inputs: Vec<Source>,
    /// By number of the input: its edge's number in [`Ir::edges`].
    pub(super) edges: Vec<usize>,
    pub(super) maker: Option<Maker>,
    pub(super) placement: Placement,
    pub(super) infer: Option<InferResult>,
}

/// A graph input.
#[derive(Debug)]
pub(super) struct IrInput {
    pub(super) name: String,
    pub(super) desc: Option<TDesc>,
}

/// A graph output.
#[derive(Debug)]
pub(super) struct IrOutput {
    pub(super) name: String,
    pub(super) source: Source,
}

/// One reader of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reader {
    pub(super) node: usize,
    pub(super) input: usize,
}

#[derive(Debug, Default)]
pub(super) struct Ir {
    pub(super) nodes: Vec<IrNode>,
    pub(super) inputs: Vec<IrInput>,
    pub(super) outputs: Vec<IrOutput>,
    /// Edges in the order of the description, for what goes by their order.
    pub(super) edges: Vec<(Source, Reader)>,
    /// Nodes so that each comes after those it needs.
    pub(super) order: Vec<usize>,
    /// Further pairs (first, then): `first` must run before `then` in their section.
    pub(super) before: Vec<(usize, usize)>,
}

impl Ir {
    /// What a node's factory inferred. Only asked for after the pass `infer` succeeded.
    pub(super) fn inferred(&self, node: usize) -> &InferResult {
        self.nodes[node]
            .infer
            .as_ref()
            .expect("the pass `infer` filled it in for every node")
    }

    pub(super) fn is_async(&self, node: usize) -> bool {
        self.inferred(node).kind == TaskKind::Async
    }

    /// Layout of what a source gives.
    pub(super) fn desc(&self, source: Source) -> &TDesc {
        match source {
            Source::Input(input) => self.inputs[input]
                .desc
                .as_ref()
                .expect("the pass `validate` found a layout for every input"),
            Source::Node { node, output } => &self.inferred(node).output_descs[output],
        }
    }

    /// How messages name a source.
    pub(super) fn source_name(&self, source: Source) -> String {
        match source {
            Source::Input(input) => format!("graph input `{}`", self.inputs[input].name),
            Source::Node { node, output } => {
                format!("output {output} of `{}`", self.nodes[node].name)
            }
        }
    }

    /// The nodes that a node needs, doubles included.
    pub(super) fn needs(&self, node: usize) -> impl Iterator<Item = usize> {
        self.nodes[node]
            .inputs
            .iter()
            .filter_map(|source| match source {
                Source::Node { node, .. } => Some(*node),
                Source::Input(_) => None,
            })
    }

    /// Adds an edge, and returns its number.
    pub(super) fn connect(&mut self, source: Source, reader: Reader) -> usize {
        self.edges.push((source, reader));
        self.edges.len() - 1
    }

    /// Sorts the nodes so that each comes after those it needs, and `before` is kept; among
    /// nodes that could be next, the one with the smallest number comes first.
    ///
    /// # Errors
    /// [`CompileError::Cycle`] for each group of nodes that depend on each other, with the
    /// nodes of one cycle.
    pub(super) fn sort(&mut self) -> Result<(), CompileErrors> {
        self.try_sort()
            .or_else(|waits| CompileErrors::check(self.cycles(&waits)))
    }

    /// As [`sort`](Self::sort); the error is how many others each node still waits for.
    pub(super) fn try_sort(&mut self) -> Result<(), Vec<usize>> {
        let count = self.nodes.len();
        let pairs = || {
            (0..count)
                .flat_map(|node| self.needs(node).map(move |needed| (needed, node)))
                .chain(self.before.iter().copied())
        };
        let mut waits = vec![0_usize; count];
        // For each node, those that wait for it: where they begin in `then`, and one more.
        let mut begin = vec![0_usize; count + 1];
        for (first, second) in pairs() {
            waits[second] += 1;
            begin[first + 1] += 1;
        }
        for node in 0..count {
            begin[node + 1] += begin[node];
        }
        let mut next = begin.clone();
        let mut then = vec![0_usize; begin[count]];
        for (first, second) in pairs() {
            then[next[first]] = second;
            next[first] += 1;
        }
        let mut ready: std::collections::BinaryHeap<_> = (0..count)
            .filter(|node| waits[*node] == 0)
            .map(std::cmp::Reverse)
            .collect();
        let mut order = Vec::with_capacity(count);
        while let Some(std::cmp::Reverse(node)) = ready.pop() {
            order.push(node);
            for next in &then[begin[node]..begin[node + 1]] {
                waits[*next] -= 1;
                if waits[*next] == 0 {
                    ready.push(std::cmp::Reverse(*next));
                }
            }
        }
        if order.len() < count {
            return Err(waits);
        }
        self.order = order;
        Ok(())
    }

    /// A cycle of each group of nodes that depend on each other; all of them still wait.
    fn cycles(&self, waits: &[usize]) -> Vec<CompileError> {
        let mut graph = petgraph::graph::DiGraph::<(), ()>::with_capacity(waits.len(), 0);
        let vertices: Vec<_> = waits.iter().map(|_| graph.add_node(())).collect();
        let pairs = (0..waits.len())
            .flat_map(|node| self.needs(node).map(move |needed| (needed, node)))
            .chain(self.before.iter().copied());
        for (first, then) in pairs.filter(|(first, then)| waits[*first] > 0 && waits[*then] > 0) {
            graph.add_edge(vertices[then], vertices[first], ());
        }
        let mut groups: Vec<Vec<usize>> = petgraph::algo::kosaraju_scc(&graph)
            .into_iter()
            .map(|group| group.into_iter().map(|vertex| vertex.index()).collect())
            .collect();
        for group in &mut groups {
            group.sort_unstable();
        }
        groups.sort_unstable();
        let mut group_of = vec![0; waits.len()];
        for (number, group) in groups.iter().enumerate() {
            for node in group {
                group_of[*node] = number;
            }
        }
        let mut errors = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            // Back along what each waits for within the group, until a node comes again.
            let mut seen = std::collections::HashMap::new();
            let mut path = Vec::new();
            let mut node = group[0];
            let closed = loop {
                if let Some(start) = seen.insert(node, path.len()) {
                    break Some(start);
                }
                path.push(node);
                let waited_for = graph
                    .neighbors(vertices[node])
                    .map(petgraph::graph::NodeIndex::index)
                    .filter(|next| group_of[*next] == number);
                match waited_for.min() {
                    Some(next) => node = next,
                    None => break None,
                }
            };
            if let Some(start) = closed {
                let mut nodes: Vec<usize> = path[start..].iter().rev().copied().collect();
                let least = (0..nodes.len()).min_by_key(|index| nodes[*index]);
                nodes.rotate_left(least.unwrap_or(0));
                errors.push(CompileError::Cycle {
                    nodes: nodes
                        .iter()
                        .map(|node| self.nodes[*node].name.clone())
                        .collect(),
                });
            }
        }
        errors
    }
}
