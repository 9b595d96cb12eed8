//! A description as a drawing, in the language of Graphviz.
//!
//! A node is a box with its name, its kind in brackets, and its settings if it is to show
//! them. A subgraph is drawn as its node. Inputs and outputs of the graph are small rounded
//! boxes. A description need not be right to be drawn: an edge to a node that is not there
//! ends in a dashed box.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::{GraphSpec, NodeSpec};
use crate::ids::NodeId;

/// The look of a graph's inputs and outputs.
const BORDER: &str = "style=rounded fontsize=10 height=0.3";

impl GraphSpec {
    /// Draws the graph, for Graphviz: `dot -Tsvg`.
    ///
    /// ```
    /// use holoflow_core::graph::{EdgeSpec, GraphSpec, NodeSpec};
    /// use serde_json::json;
    ///
    /// let mut graph = GraphSpec::default();
    /// let src = graph.add(NodeSpec::new("src", "Camera").with_settings(json!({ "fps": 100 })));
    /// let show = graph.add(NodeSpec::new("show", "Display"));
    /// graph.edges.push(EdgeSpec::new((src, 0), (show, 0)));
    /// assert_eq!(graph.to_dot(), r#"digraph holoflow {
    ///   rankdir=LR;
    ///   node [shape=box];
    ///   n0 [label="src\n[Camera]\n{\n  \"fps\": 100\n}"];
    ///   n1 [label="show\n[Display]"];
    ///   n0 -> n1 [taillabel="0" headlabel="0"];
    /// }
    /// "#);
    /// ```
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut lines = vec!["rankdir=LR;".to_owned(), "node [shape=box];".to_owned()];
        for (index, node) in self.nodes.iter().enumerate() {
            lines.push(format!("n{index} [label={}];", quoted(&label(node))));
        }
        for (number, (name, input)) in self.inputs.iter().enumerate() {
            let desc = input.desc.as_ref();
            let desc = desc.map_or_else(String::new, |desc| format!("\n{desc}"));
            let label = quoted(&format!("{name}{desc}"));
            lines.push(format!("i{number} [label={label} {BORDER}];"));
        }
        for (number, name) in self.outputs.keys().enumerate() {
            lines.push(format!("o{number} [label={} {BORDER}];", quoted(name)));
        }
        let mut absent = BTreeSet::new();
        let mut id = |node: NodeId| {
            if self.node(node).is_none() {
                absent.insert(node);
            }
            format!("n{node}")
        };
        let mut edges = Vec::with_capacity(self.edges.len());
        for edge in &self.edges {
            edges.push(format!(
                "{} -> {} [taillabel=\"{}\" headlabel=\"{}\"];",
                id(edge.from),
                id(edge.to),
                edge.output,
                edge.input
            ));
        }
        for (number, input) in self.inputs.values().enumerate() {
            for to in &input.to {
                let node = id(to.node);
                edges.push(format!("i{number} -> {node} [headlabel=\"{}\"];", to.input));
            }
        }
        for (number, output) in self.outputs.values().enumerate() {
            let node = id(output.node);
            let slot = output.output;
            edges.push(format!("{node} -> o{number} [taillabel=\"{slot}\"];"));
        }
        for node in absent {
            lines.push(format!("n{node} [label=\"(missing)\" style=dashed];"));
        }
        lines.append(&mut edges);
        let mut text = String::from("digraph holoflow {\n");
        for line in lines {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {line}");
        }
        text.push_str("}\n");
        text
    }
}

fn label(node: &NodeSpec) -> String {
    let mut text = match node.name.as_str() {
        "" => "(unnamed)".to_owned(),
        name => name.to_owned(),
    };
    if !node.kind.is_empty() {
        let _ = write!(text, "\n[{}]", node.kind);
    }
    let shown = match &node.settings {
        Value::Null => false,
        Value::Object(settings) => !settings.is_empty(),
        _ => true,
    };
    if node.debug && shown {
        // Pretty-printed by two spaces.
        let _ = write!(text, "\n{:#}", node.settings);
    }
    text
}

/// `text` as a quoted string of Graphviz.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", escape(text))
}

/// `text` for within a quoted string of Graphviz.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            '\r' => {}
            // Graphviz reads to the first zero only.
            '\0' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::graph::{EdgeSpec, InputSpec, OutputSpec};
    use crate::tensor::{DType, MemLoc, TDesc};

    fn one(node: NodeSpec) -> String {
        let mut graph = GraphSpec::default();
        graph.add(node);
        let dot = graph.to_dot();
        let line = dot.lines().find(|line| line.contains("n0 [")).unwrap();
        line.trim().to_owned()
    }

    #[test]
    fn d_01_source_graph() {
        let mut graph = GraphSpec::default();
        let settings = json!({ "fps": 100, "mode": ["a"] });
        let src = graph.add(NodeSpec::new("src", "Camera").with_settings(settings));
        let left = graph.add(NodeSpec::new("left", "graph:denoise"));
        graph.edges.push(EdgeSpec::new((src, 1), (left, 2)));
        graph.edges.push(EdgeSpec::new((src, 1), (left, 3)));
        let desc = TDesc::new([4, 4], DType::U8, MemLoc::Host).unwrap();
        let mut input = InputSpec::new(left, 0).with_desc(desc);
        input.to.push(InputSpec::new(left, 1).to[0]);
        graph.inputs.insert("frames".into(), input);
        graph
            .outputs
            .insert("image".into(), OutputSpec::new(left, 0));
        assert_eq!(
            graph.to_dot(),
            r#"digraph holoflow {
  rankdir=LR;
  node [shape=box];
  n0 [label="src\n[Camera]\n{\n  \"fps\": 100,\n  \"mode\": [\n    \"a\"\n  ]\n}"];
  n1 [label="left\n[graph:denoise]"];
  i0 [label="frames\nU8[4,4]@Host" style=rounded fontsize=10 height=0.3];
  o0 [label="image" style=rounded fontsize=10 height=0.3];
  n0 -> n1 [taillabel="1" headlabel="2"];
  n0 -> n1 [taillabel="1" headlabel="3"];
  i0 -> n1 [headlabel="0"];
  i0 -> n1 [headlabel="1"];
  n1 -> o0 [taillabel="0"];
}
"#
        );
    }

    #[test]
    fn d_02_settings_are_shown_only_if_debug_is_set_and_there_are_any() {
        for settings in [json!(null), json!({})] {
            let line = one(NodeSpec::new("a", "A").with_settings(settings));
            assert_eq!(line, r#"n0 [label="a\n[A]"];"#);
        }
        let mut node = NodeSpec::new("a", "A").with_settings(json!({ "x": 1 }));
        assert_eq!(
            one(node.clone()),
            r#"n0 [label="a\n[A]\n{\n  \"x\": 1\n}"];"#
        );
        node.debug = false;
        assert_eq!(one(node), r#"n0 [label="a\n[A]"];"#);
        let zero = NodeSpec::new("a", "A").with_settings(json!(0));
        assert_eq!(one(zero), r#"n0 [label="a\n[A]\n0"];"#);
    }

    #[test]
    fn d_03_escaping() {
        assert_eq!(escape("a\\b \"c\"\r\nd"), r#"a\\b \"c\"\nd"#);
        let line = one(NodeSpec::new("x\"]; evil [y=\"\\", "k\n"));
        assert_eq!(line, r#"n0 [label="x\"]; evil [y=\"\\\n[k\n]"];"#);
    }

    #[test]
    fn d_04_an_unnamed_node_says_so_and_an_empty_kind_shows_nothing() {
        assert_eq!(one(NodeSpec::new("", "")), r#"n0 [label="(unnamed)"];"#);
        assert_eq!(
            one(NodeSpec::new("", "A")),
            r#"n0 [label="(unnamed)\n[A]"];"#
        );
        assert_eq!(one(NodeSpec::new("a", "")), r#"n0 [label="a"];"#);
    }

    #[test]
    fn an_edge_to_a_node_that_is_not_there_is_drawn() {
        let mut graph = GraphSpec::default();
        let a = graph.add(NodeSpec::new("a", "A"));
        graph.edges.push(EdgeSpec::new((a, 0), (NodeId::new(7), 0)));
        let dot = graph.to_dot();
        assert!(
            dot.contains("n7 [label=\"(missing)\" style=dashed];\n"),
            "{dot}"
        );
        assert!(dot.contains("n0 -> n7 ["), "{dot}");
    }
}
