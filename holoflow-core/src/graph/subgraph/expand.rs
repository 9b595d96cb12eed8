//! Nodes and edges of a description with its subgraphs put in place.
//!
//! Scopes are opened depth first and closed inside out: when a scope is closed, those in it
//! are, and what their outputs have become is known.

use std::borrow::Cow;

use super::super::{EdgeSpec, GraphSpec, InputRef, InputSpec, NodeSpec, OutputSpec};
use super::graphs::{Graph, Graphs};
use super::{FlatGraph, Scope};
use crate::ids::NodeId;

/// The expansion of a description that is right and of bearable size, so that all indices
/// are in range.
pub(super) struct Expansion<'g, 'a> {
    graphs: &'g Graphs<'a>,
    flat: GraphSpec,
    scopes: Vec<Scope>,
    nodes: Vec<u32>,
    edges: Vec<(u32, u32)>,
    /// For each scope where its part of `locals` and `outputs` begins.
    starts: Vec<(usize, usize)>,
    /// What became of each node of each scope.
    locals: Vec<Local>,
    /// The outputs of each scope: flat node and output.
    outputs: Vec<(NodeId, usize)>,
    /// Scratch of [`feed`](Self::feed).
    targets: Vec<(Local, usize)>,
}

/// What became of a node.
#[derive(Clone, Copy)]
enum Local {
    Node(NodeId),
    Scope(u32),
}

/// A scope being expanded.
struct Frame {
    scope: u32,
    next: usize,
    prefix: String,
}

impl<'g, 'a> Expansion<'g, 'a> {
    pub(super) fn of(graphs: &'g Graphs<'a>) -> Self {
        Self {
            graphs,
            flat: GraphSpec::default(),
            scopes: Vec::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            starts: Vec::new(),
            locals: Vec::new(),
            outputs: Vec::new(),
            targets: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> FlatGraph<'static> {
        let mut stack = vec![self.open(0, String::new())];
        while let Some(frame) = stack.last_mut() {
            let graph = self.graph(frame.scope);
            let index = frame.next;
            let Some(node) = graph.spec.nodes.get(index) else {
                self.close(frame.scope);
                stack.pop();
                continue;
            };
            frame.next += 1;
            let local = &mut self.locals[self.starts[frame.scope as usize].0 + index];
            if let Some(inner) = graph.stands_for[index] {
                *local = Local::Scope(self.scopes.len() as u32);
                let prefix = format!("{}{}/", frame.prefix, node.name);
                stack.push(self.open(inner, prefix));
            } else {
                let mut name = String::with_capacity(frame.prefix.len() + node.name.len());
                name.push_str(&frame.prefix);
                name.push_str(&node.name);
                let flat = NodeSpec {
                    name,
                    kind: node.kind.clone(),
                    settings: node.settings.clone(),
                    debug: node.debug,
                };
                *local = Local::Node(self.flat.add(flat));
                self.nodes.push(frame.scope);
            }
        }
        self.finish()
    }

    fn graph(&self, scope: u32) -> &'g Graph<'a> {
        self.graphs.get(self.scopes[scope as usize].graph)
    }

    fn open(&mut self, graph: u32, prefix: String) -> Frame {
        let scope = self.scopes.len() as u32;
        self.scopes.push(Scope {
            graph,
            prefix: prefix.len() as u32,
        });
        // The outputs' part begins where the scope is closed.
        self.starts.push((self.locals.len(), 0));
        let count = self.graphs.get(graph).spec.nodes.len();
        let unset = Local::Node(NodeId::new(u32::MAX));
        self.locals.resize(self.locals.len() + count, unset);
        Frame {
            scope,
            next: 0,
            prefix,
        }
    }

    /// Joins the edges of a scope whose nodes are all expanded.
    fn close(&mut self, scope: u32) {
        let graph = self.graph(scope);
        self.starts[scope as usize].1 = self.outputs.len();
        for (_, output) in &graph.outputs {
            let source = self.source(scope, output.node, output.output);
            self.outputs.push(source);
        }
        for (edge, number) in graph.spec.edges.iter().zip(0..) {
            let from = self.source(scope, edge.from, edge.output);
            self.feed(scope, edge.to, edge.input, |this, to, input| {
                this.flat.edges.push(EdgeSpec::new(from, (to, input)));
                this.edges.push((scope, number));
            });
        }
    }

    fn local(&self, scope: u32, node: NodeId) -> Local {
        self.locals[self.starts[scope as usize].0 + node.index()]
    }

    /// The flat output that an output of a node of `scope` is.
    fn source(&self, scope: u32, node: NodeId, output: usize) -> (NodeId, usize) {
        match self.local(scope, node) {
            Local::Node(node) => (node, output),
            Local::Scope(inner) => self.outputs[self.starts[inner as usize].1 + output],
        }
    }

    /// Calls `feed` for each flat input that an input of a node of `scope` feeds, in order.
    fn feed(
        &mut self,
        scope: u32,
        node: NodeId,
        input: usize,
        mut feed: impl FnMut(&mut Self, NodeId, usize),
    ) {
        self.targets.push((self.local(scope, node), input));
        while let Some((local, input)) = self.targets.pop() {
            match local {
                Local::Node(node) => feed(self, node, input),
                Local::Scope(inner) => {
                    let (_, spec) = self.graph(inner).inputs[input];
                    for to in spec.to.iter().rev() {
                        let local = self.local(inner, to.node);
                        self.targets.push((local, to.input));
                    }
                }
            }
        }
    }

    fn finish(mut self) -> FlatGraph<'static> {
        let root = self.graph(0);
        for (name, input) in &root.inputs {
            let mut flat = InputSpec {
                to: Vec::with_capacity(input.to.len()),
                desc: input.desc.clone(),
            };
            for to in &input.to {
                self.feed(0, to.node, to.input, |_, node, input| {
                    flat.to.push(InputRef { node, input });
                });
            }
            self.flat.inputs.insert((*name).to_owned(), flat);
        }
        for (name, output) in &root.outputs {
            let (node, output) = self.source(0, output.node, output.output);
            let name = (*name).to_owned();
            self.flat.outputs.insert(name, OutputSpec { node, output });
        }
        self.flat.options = root.spec.options.clone();
        FlatGraph {
            spec: Cow::Owned(self.flat),
            scopes: self.scopes,
            graphs: self
                .graphs
                .0
                .iter()
                .map(|graph| graph.place.clone())
                .collect(),
            nodes: self.nodes,
            edges: self.edges,
        }
    }
}
