//! The graph as the passes work on it.
//!
//! Nodes in the order of the flat description, each with where its inputs come from; copies
//! that the compiler inserts come after them. Passes fill in more: factory, inference,
//! storage, order. Plain data; what it means is said by the pass that writes it.

use serde_json::Value;

use super::CompileError;
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

    /// Sorts the nodes so that each comes after those it needs, and `before` is kept; among
    /// nodes that could be next, the one with the smallest number comes first.
    ///
    /// # Errors
    /// [`CompileError::Cycle`] with the nodes of one cycle.
    pub(super) fn sort(&mut self) -> Result<(), CompileError> {
        let count = self.nodes.len();
        let mut waits = vec![0_usize; count];
        let mut then: Vec<Vec<usize>> = vec![Vec::new(); count];
        let pairs = (0..count)
            .flat_map(|node| self.needs(node).map(move |needed| (needed, node)))
            .chain(self.before.iter().copied());
        for (first, second) in pairs {
            waits[second] += 1;
            then[first].push(second);
        }
        let mut ready: std::collections::BinaryHeap<_> = (0..count)
            .filter(|node| waits[*node] == 0)
            .map(std::cmp::Reverse)
            .collect();
        let mut order = Vec::with_capacity(count);
        while let Some(std::cmp::Reverse(node)) = ready.pop() {
            order.push(node);
            for next in &then[node] {
                waits[*next] -= 1;
                if waits[*next] == 0 {
                    ready.push(std::cmp::Reverse(*next));
                }
            }
        }
        if order.len() < count {
            return Err(self.cycle(&waits));
        }
        self.order = order;
        Ok(())
    }

    /// A cycle among the nodes that still wait: from any of them, back along what it waits
    /// for, until a node comes again.
    fn cycle(&self, waits: &[usize]) -> CompileError {
        let mut seen = vec![None; self.nodes.len()];
        let mut path = Vec::new();
        let mut node = waits.iter().position(|waits| *waits > 0).unwrap_or(0);
        while seen[node].is_none() {
            seen[node] = Some(path.len());
            path.push(node);
            let needed = self.needs(node).find(|needed| waits[*needed] > 0);
            let forced = self
                .before
                .iter()
                .find(|(first, then)| *then == node && waits[*first] > 0);
            match needed.or(forced.map(|(first, _)| *first)) {
                Some(next) => node = next,
                None => break,
            }
        }
        let start = seen[node].unwrap_or(0);
        let nodes = path[start..]
            .iter()
            .rev()
            .map(|node| self.nodes[*node].name.clone());
        CompileError::Cycle {
            nodes: nodes.collect(),
        }
    }
}
