//! The graphs of a description, and whether its subgraphs can be put in place.
//!
//! What stands for what, what is connected to it, whether a graph contains itself, and how
//! large the whole becomes. Everything is found out for each graph once, however often it
//! is used.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::super::near::Near;
use super::super::place::{child, element, grandchild, shown};
use super::super::{GraphError, GraphSpec, InputRef, InputSpec, OutputSpec};
use crate::ids::NodeId;
use crate::storage::Slot;

/// Nodes, or subgraphs put in place, that a flat graph may have.
const MAX_NODES: u64 = 1 << 22;
/// Connections followed to put subgraphs in place.
const MAX_EDGES: u64 = 1 << 24;
/// Bytes of all names of a flat graph together.
const MAX_NAMES: u64 = 1 << 30;

/// All graphs of a description: the root first, each before those in it.
pub(super) struct Graphs<'a>(pub(super) Vec<Graph<'a>>);

/// One of them.
pub(super) struct Graph<'a> {
    pub(super) spec: &'a GraphSpec,
    pub(super) place: String,
    /// The graph it is defined in.
    around: Option<usize>,
    /// The graphs defined in it.
    own: BTreeMap<&'a str, usize>,
    /// For each node the graph that it stands for.
    pub(super) stands_for: Vec<Option<u32>>,
    pub(super) inputs: Vec<(&'a str, &'a InputSpec)>,
    pub(super) outputs: Vec<(&'a str, &'a OutputSpec)>,
}

/// What comes of a graph when it is expanded. The largest number stands for more.
#[derive(Clone)]
struct Size {
    nodes: u64,
    scopes: u64,
    edges: u64,
    names: u64,
    /// For each input the steps to all that it feeds.
    inputs: Vec<u64>,
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl<'a> Graphs<'a> {
    pub(super) fn collect(root: &'a GraphSpec) -> Self {
        let mut graphs = vec![Graph::new(root, String::new(), None)];
        let mut next = 0;
        while next < graphs.len() {
            let spec = graphs[next].spec;
            for (name, inner) in &spec.graphs {
                let place = grandchild(&graphs[next].place, "graphs", name);
                let index = graphs.len();
                graphs.push(Graph::new(inner, place, Some(next)));
                graphs[next].own.insert(name, index);
            }
            next += 1;
        }
        Self(graphs)
    }

    /// The graph called `name` as seen from graph `from`.
    fn find(&self, from: usize, name: &str) -> Option<usize> {
        self.around(from)
            .find_map(|graph| graph.own.get(name).copied())
    }

    /// Graph `from` and those around it.
    fn around(&self, from: usize) -> impl Iterator<Item = &Graph<'a>> {
        std::iter::successors(Some(&self.0[from]), |graph| {
            graph.around.map(|around| &self.0[around])
        })
    }

    /// Finds what each node stands for.
    pub(super) fn resolve(&mut self, errors: &mut Vec<GraphError>) {
        let mut near = Near::new();
        for from in 0..self.0.len() {
            // A graph that is used often is looked up once.
            let mut found: HashMap<&str, Option<usize>> = HashMap::new();
            let spec = self.0[from].spec;
            let mut stands_for = vec![None; spec.nodes.len()];
            for (node, stands_for) in spec.nodes.iter().zip(&mut stands_for) {
                let Some(name) = node.subgraph() else {
                    continue;
                };
                let graph = *found.entry(name).or_insert_with(|| self.find(from, name));
                *stands_for = graph.and_then(|graph| u32::try_from(graph).ok());
                let place = || grandchild(&self.0[from].place, "nodes", &node.name);
                if stands_for.is_none() {
                    let known = self.around(from).flat_map(|graph| graph.own.keys());
                    let nearest = near.find(name, known.copied());
                    errors.push(GraphError::UnknownGraph {
                        place: child(&place(), "type"),
                        found: name.to_owned(),
                        nearest,
                    });
                }
                let none = match &node.settings {
                    Value::Null => true,
                    Value::Object(settings) => settings.is_empty(),
                    _ => false,
                };
                if !none {
                    errors.push(GraphError::SubgraphSettings {
                        place: child(&place(), "params"),
                        found: shown(&node.settings),
                    });
                }
            }
            self.0[from].stands_for = stands_for;
        }
    }

    /// Checks what is connected to the nodes of `graph` that stand for subgraphs.
    pub(super) fn check_uses(&self, graph: &Graph<'a>, errors: &mut Vec<GraphError>) {
        let spec = graph.spec;
        // For each input of a subgraph's node, what is connected to it.
        let mut connected: Vec<Vec<Option<Connection<'a>>>> = graph
            .stands_for
            .iter()
            .map(|graph| {
                graph.map_or_else(Vec::new, |graph| vec![None; self.get(graph).inputs.len()])
            })
            .collect();
        let place = |connection: &Connection<'_>| match connection {
            Connection::Edge(index) => element(&child(&graph.place, "edges"), *index),
            Connection::Input(name) => grandchild(&graph.place, "inputs", name),
        };
        let mut connect = |to: InputRef, connection: Connection<'a>, errors: &mut Vec<_>| {
            let Some(inner) = graph.inner(to.node, self) else {
                return;
            };
            let node = &spec.nodes[to.node.index()].name;
            let slot = Slot::Input(to.input);
            match connected[to.node.index()].get_mut(to.input) {
                None => errors.push(GraphError::NoSuchSlot {
                    place: place(&connection),
                    slot,
                    node: node.clone(),
                    names: names(&inner.inputs),
                }),
                Some(free @ None) => *free = Some(connection),
                Some(Some(first)) => errors.push(GraphError::ConnectedTwice {
                    place: grandchild(&graph.place, "nodes", node),
                    slot,
                    name: inner.inputs[to.input].0.to_owned(),
                    first: place(first),
                    second: place(&connection),
                }),
            }
        };
        let read = |node: NodeId, output: usize, place: &dyn Fn() -> String| {
            let inner = graph.inner(node, self)?;
            (output >= inner.outputs.len()).then(|| GraphError::NoSuchSlot {
                place: place(),
                slot: Slot::Output(output),
                node: spec.nodes[node.index()].name.clone(),
                names: names(&inner.outputs),
            })
        };
        for (index, edge) in spec.edges.iter().enumerate() {
            let connection = Connection::Edge(index);
            let to = InputRef {
                node: edge.to,
                input: edge.input,
            };
            errors.extend(read(edge.from, edge.output, &|| place(&connection)));
            connect(to, connection, errors);
        }
        for (name, input) in &graph.inputs {
            for to in &input.to {
                connect(*to, Connection::Input(name), errors);
            }
        }
        for (name, output) in &graph.outputs {
            let place = || grandchild(&graph.place, "outputs", name);
            errors.extend(read(output.node, output.output, &place));
        }
        for ((node, connected), inner) in spec.nodes.iter().zip(connected).zip(&graph.stands_for) {
            let Some(inner) = inner else { continue };
            let slots = self.get(*inner).inputs.iter().zip(connected).enumerate();
            for (number, ((name, _), connection)) in slots {
                if connection.is_none() {
                    errors.push(GraphError::Unconnected {
                        place: grandchild(&graph.place, "nodes", &node.name),
                        slot: Slot::Input(number),
                        name: (*name).to_owned(),
                    });
                }
            }
        }
    }

    pub(super) fn get(&self, graph: u32) -> &Graph<'a> {
        &self.0[graph as usize]
    }

    /// All graphs, each after those that its nodes stand for.
    pub(super) fn inside_out(&self, errors: &mut Vec<GraphError>) -> Vec<usize> {
        #[derive(Clone, Copy, PartialEq)]
        enum Visit {
            Not,
            Open,
            Done,
        }
        let mut visits = vec![Visit::Not; self.0.len()];
        let mut order = Vec::with_capacity(self.0.len());
        for start in 0..self.0.len() {
            if visits[start] != Visit::Not {
                continue;
            }
            visits[start] = Visit::Open;
            // The graphs being visited, each with the number of its next node.
            let mut stack = vec![(start, 0)];
            while let Some((graph, next)) = stack.last_mut() {
                let (graph, node) = (*graph, *next);
                *next += 1;
                let Some(inner) = self.0[graph].stands_for.get(node) else {
                    visits[graph] = Visit::Done;
                    order.push(graph);
                    stack.pop();
                    continue;
                };
                let Some(inner) = inner.map(|inner| inner as usize) else {
                    continue;
                };
                match visits[inner] {
                    Visit::Done => {}
                    Visit::Not => {
                        visits[inner] = Visit::Open;
                        stack.push((inner, 0));
                    }
                    Visit::Open => {
                        let name = &self.0[graph].spec.nodes[node].name;
                        let open = stack.iter().skip_while(|(open, _)| *open != inner);
                        let mut cycle: Vec<_> =
                            open.map(|(open, _)| self.0[*open].place.clone()).collect();
                        cycle.push(self.0[inner].place.clone());
                        errors.push(GraphError::GraphCycle {
                            place: grandchild(&self.0[graph].place, "nodes", name),
                            cycle,
                        });
                    }
                }
            }
        }
        order
    }

    /// Invariant SG1: what comes of the root must be of bearable size.
    pub(super) fn check_size(&self, inside_out: &[usize]) -> Result<(), GraphError> {
        let mut sizes: Vec<Option<Size>> = vec![None; self.0.len()];
        for index in inside_out {
            let graph = &self.0[*index];
            let size = |node: NodeId| {
                graph.stands_for[node.index()].and_then(|graph| sizes[graph as usize].as_ref())
            };
            let steps = |to: InputRef| size(to.node).map_or(1, |size| size.inputs[to.input]);
            let mut sum = Size {
                nodes: 0,
                scopes: 1,
                edges: graph.outputs.len() as u64,
                names: 0,
                inputs: Vec::with_capacity(graph.inputs.len()),
            };
            for (node, index) in graph.spec.nodes.iter().zip(0..) {
                let length = node.name.len() as u64;
                let Some(inner) = size(NodeId::new(index)) else {
                    add(&mut sum.nodes, 1);
                    add(&mut sum.names, length);
                    continue;
                };
                add(&mut sum.nodes, inner.nodes);
                add(&mut sum.scopes, inner.scopes);
                add(&mut sum.edges, inner.edges);
                add(&mut sum.names, inner.names);
                // The scope has its name as well.
                let named = inner.nodes.saturating_add(inner.scopes);
                add(&mut sum.names, named.saturating_mul(length + 1));
            }
            for edge in &graph.spec.edges {
                let to = InputRef {
                    node: edge.to,
                    input: edge.input,
                };
                add(&mut sum.edges, steps(to));
            }
            for (_, input) in &graph.inputs {
                let mut all = 1;
                input.to.iter().for_each(|to| add(&mut all, steps(*to)));
                sum.inputs.push(all);
            }
            sizes[*index] = Some(sum);
        }
        let Some(Some(root)) = sizes.first() else {
            return Ok(());
        };
        let mut edges = root.edges;
        root.inputs.iter().for_each(|steps| add(&mut edges, *steps));
        for (what, found, limit) in [
            ("nodes", root.nodes, MAX_NODES),
            ("uses of subgraphs", root.scopes, MAX_NODES),
            ("edges", edges, MAX_EDGES),
            ("bytes of names", root.names, MAX_NAMES),
        ] {
            if found > limit {
                return Err(GraphError::TooLarge { what, found, limit });
            }
        }
        Ok(())
    }
}

/// What is connected to an input.
#[derive(Clone)]
enum Connection<'a> {
    Edge(usize),
    Input(&'a str),
}

fn names<T>(slots: &[(&str, T)]) -> Vec<String> {
    slots.iter().map(|(name, _)| (*name).to_owned()).collect()
}

impl<'a> Graph<'a> {
    fn new(spec: &'a GraphSpec, place: String, around: Option<usize>) -> Self {
        let inputs = spec.inputs.iter();
        let outputs = spec.outputs.iter();
        Self {
            spec,
            place,
            around,
            own: BTreeMap::new(),
            stands_for: Vec::new(),
            inputs: inputs.map(|(name, input)| (name.as_str(), input)).collect(),
            outputs: outputs
                .map(|(name, output)| (name.as_str(), output))
                .collect(),
        }
    }

    /// The graph that a node stands for.
    fn inner<'g>(&self, node: NodeId, graphs: &'g Graphs<'a>) -> Option<&'g Graph<'a>> {
        let inner = self.stands_for.get(node.index()).copied().flatten()?;
        Some(graphs.get(inner))
    }
}
