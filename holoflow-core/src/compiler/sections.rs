//! Pass: cuts the graph into sections.
//!
//! A sync node is one vertex, an async node two: its push side and its pop side. An edge
//! joins the side that gives to the side that takes. What is connected then is a section:
//! so sync nodes joined by an edge, all that push into one async node, and all that pop from
//! one async node are in one section, and between two async nodes in a row there is a relay
//! section without a node of its own. A graph input is a vertex too, since its tensor is in
//! one section.
//!
//! Async nodes lead from section to section. If they lead round in a circle, a section would
//! wait for itself, which is an error.

use std::collections::{HashMap, HashSet, VecDeque};

use petgraph::unionfind::UnionFind;
use petgraph::visit::EdgeRef;

use super::ir::{Ir, Source};
use super::{CompileError, CompileErrors};
use crate::tensor::MemLoc;

/// The sections of a graph, and which of them each thing is in.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) sections: Vec<IrSection>,
    /// For each node: that of a sync node, or that which pushes into an async node.
    producer: Vec<Option<usize>>,
    /// For each async node: that which pops from it.
    consumer: Vec<Option<usize>>,
    /// For each graph input.
    input: Vec<Option<usize>>,
}

#[derive(Debug, Default)]
pub(super) struct IrSection {
    /// Sync nodes in the order in which they run.
    pub(super) sync: Vec<usize>,
    /// Async nodes that it pops from.
    pub(super) pops: Vec<usize>,
    /// Async nodes that it pushes into, borrowers of a tensor before its owner.
    pub(super) pushes: Vec<usize>,
    /// The device whose nodes it has, and one of them.
    pub(super) device: Option<(MemLoc, usize)>,
}

impl Sections {
    /// The section whose cells hold what `source` gives.
    pub(super) fn giving(&self, ir: &Ir, source: Source) -> Option<usize> {
        match source {
            Source::Input(input) => self.input[input],
            Source::Node { node, .. } if ir.is_async(node) => self.consumer[node],
            Source::Node { node, .. } => self.producer[node],
        }
    }

    /// The section that a sync node is in, or that pushes into an async node.
    pub(super) fn taking(&self, node: usize) -> Option<usize> {
        self.producer[node]
    }

    /// The section that pops from an async node.
    pub(super) fn popping(&self, node: usize) -> Option<usize> {
        self.consumer[node]
    }
}

/// Cuts `ir`; `push_order` are the async nodes in the order in which they may be pushed.
pub(super) fn cut(ir: &Ir, push_order: &[usize]) -> Result<Sections, CompileErrors> {
    let count = ir.nodes.len();
    let taking = |node: usize| 2 * node;
    let giving = |source: Source| match source {
        Source::Input(input) => 2 * count + input,
        Source::Node { node, .. } => 2 * node + usize::from(ir.is_async(node)),
    };
    let mut joined = UnionFind::<usize>::new(2 * count + ir.inputs.len());
    for (source, reader) in &ir.edges {
        joined.union(giving(*source), taking(reader.node));
    }
    // For the vertex that stands for a section, the section's number.
    let mut numbers: Vec<Option<usize>> = vec![None; joined.len()];
    let mut found = Sections {
        sections: Vec::new(),
        producer: vec![None; count],
        consumer: vec![None; count],
        input: vec![None; ir.inputs.len()],
    };
    let mut section_of = |sections: &mut Vec<IrSection>, vertex: usize| {
        *numbers[joined.find(vertex)].get_or_insert_with(|| {
            sections.push(IrSection::default());
            sections.len() - 1
        })
    };
    // Sync nodes first: they number the sections. Relay sections come after.
    for node in ir.order.iter().copied().filter(|node| !ir.is_async(*node)) {
        let section = section_of(&mut found.sections, taking(node));
        found.producer[node] = Some(section);
        found.sections[section].sync.push(node);
    }
    for node in ir.order.iter().copied().filter(|node| ir.is_async(*node)) {
        if !ir.nodes[node].inputs.is_empty() {
            found.producer[node] = Some(section_of(&mut found.sections, taking(node)));
        }
        if !ir.inferred(node).output_descs.is_empty() {
            let section = section_of(&mut found.sections, 2 * node + 1);
            found.consumer[node] = Some(section);
            found.sections[section].pops.push(node);
        }
    }
    for node in push_order {
        if let Some(section) = found.producer[*node] {
            found.sections[section].pushes.push(*node);
        }
    }
    for (source, _) in &ir.edges {
        if let Source::Input(input) = source {
            found.input[*input] = Some(section_of(&mut found.sections, giving(*source)));
        }
    }
    let mut errors = Vec::new();
    find_circles(ir, &found, &mut errors);
    find_devices(ir, &mut found, &mut errors);
    CompileErrors::check(errors)?;
    Ok(found)
}

/// For each group of sections that wait for each other: an async node and the shortest way
/// from its consumers back to its producers.
fn find_circles(ir: &Ir, found: &Sections, errors: &mut Vec<CompileError>) {
    let mut graph = petgraph::graph::DiGraph::<(), usize>::with_capacity(found.sections.len(), 0);
    let vertices: Vec<_> = found.sections.iter().map(|_| graph.add_node(())).collect();
    for node in ir.order.iter().copied() {
        if let (true, Some(from), Some(to)) = (
            ir.is_async(node),
            found.producer[node],
            found.consumer[node],
        ) {
            graph.add_edge(vertices[from], vertices[to], node);
        }
    }
    let mut group_of = vec![0; found.sections.len()];
    // Not Tarjan's, which is recursive: there may be more sections than the stack is deep.
    for (number, group) in petgraph::algo::kosaraju_scc(&graph).iter().enumerate() {
        for vertex in group {
            group_of[vertex.index()] = number;
        }
    }
    let mut reported = HashSet::new();
    // An async node between a section and the same one tells more than a longer way round.
    let (one, several): (Vec<usize>, Vec<usize>) = ir
        .order
        .iter()
        .partition(|node| found.producer[**node] == found.consumer[**node]);
    for node in one.into_iter().chain(several) {
        let (Some(from), Some(to)) = (found.producer[node], found.consumer[node]) else {
            continue;
        };
        if group_of[from] == group_of[to] && reported.insert(group_of[from]) {
            let back = way(&graph, vertices[to], vertices[from]);
            let nodes = std::iter::once(node).chain(back);
            errors.push(CompileError::SectionCycle {
                nodes: nodes.map(|node| ir.nodes[node].name.clone()).collect(),
            });
        }
    }
}

/// The async nodes on a shortest way from one section to another.
fn way(
    graph: &petgraph::graph::DiGraph<(), usize>,
    from: petgraph::graph::NodeIndex,
    to: petgraph::graph::NodeIndex,
) -> Vec<usize> {
    let mut came = HashMap::from([(from, None)]);
    let mut queue = VecDeque::from([from]);
    while let Some(vertex) = queue.pop_front() {
        for edge in graph.edges(vertex) {
            came.entry(edge.target()).or_insert_with(|| {
                queue.push_back(edge.target());
                Some((vertex, *edge.weight()))
            });
        }
    }
    let mut nodes = Vec::new();
    let mut vertex = to;
    while let Some(Some((before, node))) = came.get(&vertex) {
        nodes.push(*node);
        vertex = *before;
    }
    nodes.reverse();
    nodes
}

/// Finds each section's device; two in one section are an error.
fn find_devices(ir: &Ir, found: &mut Sections, errors: &mut Vec<CompileError>) {
    let (producer, consumer) = (&found.producer, &found.consumer);
    for node in &ir.order {
        let result = ir.inferred(*node);
        let inputs = ir.nodes[*node].inputs.iter().map(|source| ir.desc(*source));
        let takes = inputs.map(|desc| (producer[*node], desc.location()));
        let gives = if ir.is_async(*node) {
            consumer[*node]
        } else {
            producer[*node]
        };
        let gives = result
            .output_descs
            .iter()
            .map(|desc| (gives, desc.location()));
        // Each section of the node once.
        let mut reported = [None; 2];
        for (section, location) in takes.chain(gives) {
            let Some(section) = section.filter(|_| location.is_device()) else {
                continue;
            };
            match found.sections[section].device {
                None => found.sections[section].device = Some((location, *node)),
                Some((expected, other))
                    if expected != location && !reported.contains(&Some(section)) =>
                {
                    reported[usize::from(reported[0].is_some())] = Some(section);
                    errors.push(CompileError::MixedDevices {
                        node: ir.nodes[*node].name.clone(),
                        found: location,
                        expected,
                        other: ir.nodes[other].name.clone(),
                    });
                }
                Some(_) => {}
            }
        }
    }
}
