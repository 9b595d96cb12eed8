//! Subgraphs put in place: one flat graph, in which no node stands for a graph.
//!
//! A node `outer` of kind `graph:name` is replaced by the nodes of the subgraph `name`,
//! called `outer/inner`. The name is looked up among the graph's own subgraphs, then among
//! those of the graphs around it. Edges across the border are joined to what is inside, and
//! nothing is inserted. An output of a subgraph is always an output of one of its nodes, so
//! no subgraph passes an input straight through.
//!
//! All subgraphs are checked, also those that no node stands for; errors are in terms of
//! the description, once each, however often a subgraph is used.
//!
//! Order: nodes as in the description, with a subgraph's where its node was. Edges of a
//! subgraph come before those of the graph around it; one that feeds several inputs becomes
//! one for each, in order.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **SG1** Nothing is expanded before it is known that the description is right and what
//!   comes of it is of bearable size: descriptions grow exponentially when expanded.
//! - **SG2** Time is linear in what goes in and what comes out, and depth costs no stack.

use std::borrow::Cow;
use std::collections::HashMap;

use super::check::check_graph;
use super::place::{child, element, grandchild};
use super::{GraphError, GraphErrors, GraphSpec};
use crate::ids::NodeId;
use expand::Expansion;
use graphs::Graphs;

mod expand;
mod graphs;
#[cfg(test)]
mod tests;

/// A graph without subgraphs, and where its nodes and edges are in the description.
#[derive(Debug, Clone)]
pub struct FlatGraph<'a> {
    /// The flat graph; has no `graphs`. That of the description if it had no subgraphs.
    pub spec: Cow<'a, GraphSpec>,
    scopes: Vec<Scope>,
    /// Places of the graphs of the description.
    graphs: Vec<String>,
    /// For each node its scope. Empty if all are of the root, as are `edges`.
    nodes: Vec<u32>,
    /// For each edge its scope and its number there.
    edges: Vec<(u32, u32)>,
}

/// One use of a graph.
#[derive(Debug, Clone, Copy)]
struct Scope {
    graph: u32,
    /// Bytes of the nodes' full names before their own.
    prefix: u32,
}

/// Puts the subgraphs of `spec` in place.
///
/// A graph without subgraphs is returned as it is, and unchecked.
///
/// ```
/// use holoflow_core::graph::{GraphSpec, flatten};
///
/// let (graph, _) = GraphSpec::from_json_str(r#"{
///     "nodes": { "src": { "type": "Camera" }, "left": { "type": "graph:denoise" } },
///     "edges": [ { "from": "src", "to": "left", "out": 0, "in": 0 } ],
///     "graphs": { "denoise": {
///         "nodes": { "blur": { "type": "Blur" } },
///         "inputs": { "frame": { "to": "blur", "in": 0 } }
///     } }
/// }"#)?;
/// let flat = flatten(&graph)?;
/// let blur = flat.spec.find("left/blur").unwrap();
/// assert_eq!(flat.spec.edges[0].to, blur);
/// assert_eq!(flat.place(blur), "graphs.denoise.nodes.blur");
/// assert_eq!(flat.edge_place(0), "edges[0]");
/// # Ok::<(), holoflow_core::graph::GraphErrors>(())
/// ```
///
/// # Errors
/// All that is wrong with names, indices and subgraphs.
pub fn flatten(spec: &GraphSpec) -> Result<FlatGraph<'_>, GraphErrors> {
    let standing = spec.nodes.iter().any(|node| node.subgraph().is_some());
    if !standing && spec.graphs.is_empty() {
        return Ok(FlatGraph {
            spec: Cow::Borrowed(spec),
            scopes: vec![Scope {
                graph: 0,
                prefix: 0,
            }],
            graphs: vec![String::new()],
            nodes: Vec::new(),
            edges: Vec::new(),
        });
    }
    let mut errors = Vec::new();
    let mut graphs = Graphs::collect(spec);
    for graph in &graphs.0 {
        check_graph(graph.spec, &graph.place, &mut errors);
    }
    GraphErrors::check(std::mem::take(&mut errors), Vec::new())?;
    graphs.resolve(&mut errors);
    for graph in &graphs.0 {
        graphs.check_uses(graph, &mut errors);
    }
    let order = graphs.inside_out(&mut errors);
    GraphErrors::check(std::mem::take(&mut errors), Vec::new())?;
    graphs.check_size(&order)?;
    let flat = Expansion::of(&graphs).run();
    flat.check_names()?;
    Ok(flat)
}

impl FlatGraph<'_> {
    /// Place of a node in the description, such as `graphs.denoise.nodes.blur`.
    #[must_use]
    pub fn place(&self, node: NodeId) -> String {
        let Some(found) = self.spec.node(node) else {
            return element("nodes", node.index());
        };
        let scope = self.scope(self.nodes.get(node.index()).copied());
        let name = found.name.get(scope.prefix as usize..);
        let graph = &self.graphs[scope.graph as usize];
        grandchild(graph, "nodes", name.unwrap_or(&found.name))
    }

    /// Place of an edge in the description, such as `graphs.denoise.edges[0]`. An edge across
    /// a border is the one in the outer graph.
    #[must_use]
    pub fn edge_place(&self, edge: usize) -> String {
        let found = self.edges.get(edge).copied();
        let (scope, number) = found.map_or((None, edge), |(scope, number)| {
            (Some(scope), number as usize)
        });
        let graph = &self.graphs[self.scope(scope).graph as usize];
        element(&child(graph, "edges"), number)
    }

    fn scope(&self, scope: Option<u32>) -> Scope {
        self.scopes[scope.map_or(0, |scope| scope as usize)]
    }

    /// The nodes by their full names.
    #[must_use]
    pub fn by_name(&self) -> HashMap<&str, NodeId> {
        let nodes = self.spec.nodes.iter().zip(0..);
        nodes
            .map(|(node, index)| (node.name.as_str(), NodeId::new(index)))
            .collect()
    }

    /// Only names with a slash can clash: the others differ within their scope, and full
    /// names begin with the name of their scope.
    fn check_names(&self) -> Result<(), GraphErrors> {
        let slash = self
            .spec
            .nodes
            .iter()
            .zip(&self.nodes)
            .any(|(node, scope)| {
                let prefix = self.scopes[*scope as usize].prefix as usize;
                node.name[prefix..].contains('/')
            });
        if !slash {
            return Ok(());
        }
        let mut errors = Vec::new();
        let mut known = HashMap::with_capacity(self.spec.nodes.len());
        for (node, index) in self.spec.nodes.iter().zip(0..) {
            if let Some(first) = known.insert(node.name.as_str(), index) {
                errors.push(GraphError::FlatNameClash {
                    name: node.name.clone(),
                    first: self.place(NodeId::new(first)),
                    second: self.place(NodeId::new(index)),
                });
            }
        }
        GraphErrors::check(errors, Vec::new())
    }
}
