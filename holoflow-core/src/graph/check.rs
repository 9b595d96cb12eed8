//! Whether a description in memory contradicts itself.
//!
//! The data model allows what no graph file can say: nodes without a name or with the same
//! one, indices beyond the nodes. Writing a file and putting subgraphs in place need that
//! to be absent, and check it here. Kinds, slots and layouts are the compiler's business.

use std::collections::HashMap;

use super::place::{child, element, grandchild};
use super::{GraphError, GraphErrors, GraphSpec};
use crate::ids::NodeId;

/// The largest number of a slot: what 32 bits hold.
pub(crate) const MAX_SLOT: usize = u32::MAX as usize;

impl GraphSpec {
    /// Checks names and indices, here and in all subgraphs: every node, input, output and
    /// subgraph has a name, no two nodes of one graph have the same one, and every index is
    /// that of a node.
    ///
    /// ```
    /// use holoflow_core::graph::{GraphSpec, NodeSpec};
    ///
    /// let mut graph = GraphSpec::default();
    /// graph.add(NodeSpec::new("fft", "Fft"));
    /// graph.add(NodeSpec::new("fft", "Fft"));
    /// let errors = graph.check().unwrap_err();
    /// assert_eq!(
    ///     errors.to_string(),
    ///     "nodes.fft: found twice, as nodes 0 and 1, expected once"
    /// );
    /// ```
    ///
    /// # Errors
    /// All that is wrong.
    pub fn check(&self) -> Result<(), GraphErrors> {
        let mut errors = Vec::new();
        // Depth first, in order; a stack of its own, since graphs may be nested deeply.
        let mut stack = vec![(String::new(), self)];
        while let Some((place, graph)) = stack.pop() {
            check_graph(graph, &place, &mut errors);
            for (name, graph) in graph.graphs.iter().rev() {
                stack.push((grandchild(&place, "graphs", name), graph));
            }
        }
        GraphErrors::check(errors, Vec::new())
    }
}

/// Checks one graph, without its subgraphs.
pub(crate) fn check_graph(graph: &GraphSpec, place: &str, errors: &mut Vec<GraphError>) {
    let nodes = child(place, "nodes");
    let mut known: HashMap<&str, usize> = HashMap::with_capacity(graph.nodes.len());
    for (index, node) in graph.nodes.iter().enumerate() {
        if node.name.is_empty() {
            let place = element(&nodes, index);
            errors.push(GraphError::EmptyName { place });
        } else if let Some(first) = known.insert(&node.name, index) {
            errors.push(GraphError::DuplicateName {
                place: child(&nodes, &node.name),
                name: node.name.clone(),
                first,
                second: index,
            });
        }
    }
    let count = graph.nodes.len();
    let mut end = |node: NodeId, slot: usize, key: &str, number: &str, at: &dyn Fn() -> String| {
        if node.index() >= count {
            let (place, found) = (child(&at(), key), node.index());
            let error = GraphError::NoSuchNode {
                place,
                found,
                count,
            };
            errors.push(error);
        }
        if slot > MAX_SLOT {
            errors.push(GraphError::SlotNumber {
                place: child(&at(), number),
                found: slot,
                limit: MAX_SLOT,
            });
        }
    };
    for (index, edge) in graph.edges.iter().enumerate() {
        let at = || element(&child(place, "edges"), index);
        end(edge.from, edge.output, "from", "out", &at);
        end(edge.to, edge.input, "to", "in", &at);
    }
    for (name, input) in &graph.inputs {
        for (index, to) in input.to.iter().enumerate() {
            let at = || {
                let place = grandchild(place, "inputs", name);
                if input.to.len() == 1 {
                    place
                } else {
                    element(&place, index)
                }
            };
            end(to.node, to.input, "to", "in", &at);
        }
    }
    for (name, output) in &graph.outputs {
        let at = || grandchild(place, "outputs", name);
        end(output.node, output.output, "from", "out", &at);
    }
    let empty = [
        ("inputs", graph.inputs.contains_key("")),
        ("outputs", graph.outputs.contains_key("")),
        ("graphs", graph.graphs.contains_key("")),
    ];
    for (object, found) in empty {
        if found {
            let place = grandchild(place, object, "");
            errors.push(GraphError::EmptyName { place });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{EdgeSpec, InputSpec, NodeSpec, OutputSpec};

    #[test]
    fn all_that_is_wrong_is_reported_with_its_place() {
        let mut inner = GraphSpec::default();
        inner.add(NodeSpec::new("", "Copy"));
        inner.graphs.insert(String::new(), GraphSpec::default());
        let mut graph = GraphSpec::default();
        let a = graph.add(NodeSpec::new("a", "Copy"));
        graph.add(NodeSpec::new("a", "Copy"));
        let far = NodeId::new(7);
        graph
            .edges
            .push(EdgeSpec::new((a, 0), (far, usize::MAX >> 1)));
        let mut input = InputSpec::new(a, 0);
        input.to.push(InputSpec::new(far, 0).to[0]);
        graph.inputs.insert("x".into(), input);
        graph.outputs.insert(String::new(), OutputSpec::new(far, 0));
        graph.graphs.insert("inner".into(), inner);
        let errors = graph.check().unwrap_err();
        let expected = [
            "nodes.a: found twice, as nodes 0 and 1, expected once",
            "edges[0].to: found node 7, expected one of the 2 nodes there are",
            "edges[0].in: found 9223372036854775807, expected at most 4294967295",
            "inputs.x[1].to: found node 7, expected one of the 2 nodes there are",
            r#"outputs[""].from: found node 7, expected one of the 2 nodes there are"#,
            r#"outputs[""]: found an empty name, expected one"#,
            "graphs.inner.nodes[0]: found an empty name, expected one",
            r#"graphs.inner.graphs[""]: found an empty name, expected one"#,
        ];
        assert_eq!(errors.to_string(), expected.join("\n"));
        assert!(
            errors
                .iter()
                .all(|error| error.kind().to_string() == "graph spec")
        );
    }
}
