//! A pipeline's description as plain data.
//!
//! Nodes have a name, a kind and settings; edges join numbered slots; named inputs and
//! outputs are the graph's border. What is written here need not be right: the compiler
//! checks it. So a graph can be read, changed and drawn before it is complete.
//!
//! What this module does not know: which kinds there are, and what they make of their
//! inputs.
//!
//! Edges refer to nodes by index, since names may be missing or doubled until the graph is
//! checked.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::ids::NodeId;
use crate::tensor::TDesc;

/// Kind of a node that stands for a subgraph: this prefix and the subgraph's name.
pub const SUBGRAPH_PREFIX: &str = "graph:";

/// Description of a pipeline.
///
/// ```
/// use holoflow_core::graph::{EdgeSpec, GraphSpec, NodeSpec};
/// use serde_json::json;
///
/// let mut graph = GraphSpec::default();
/// let camera = graph.add(NodeSpec::new("camera", "Camera").with_settings(json!({ "fps": 100 })));
/// let display = graph.add(NodeSpec::new("display", "Display"));
/// graph.edges.push(EdgeSpec::new((camera, 0), (display, 0)));
/// assert_eq!(graph.node(display).map(|node| node.kind.as_str()), Some("Display"));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GraphSpec {
    /// The nodes; edges refer to them by index.
    pub nodes: Vec<NodeSpec>,
    /// The edges, in the order they were added.
    pub edges: Vec<EdgeSpec>,
    /// What comes in from outside, by name. As the inputs of a subgraph's node they are
    /// numbered in the order of their names.
    pub inputs: BTreeMap<String, InputSpec>,
    /// What goes out, by name. As the outputs of a subgraph's node they are numbered in the
    /// order of their names.
    pub outputs: BTreeMap<String, OutputSpec>,
    /// Subgraphs, by name; a node of kind `graph:name` stands for one.
    pub graphs: BTreeMap<String, GraphSpec>,
    /// What else belongs to the pipeline, as written.
    pub options: Map<String, Value>,
}

/// A node of a [`GraphSpec`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeSpec {
    /// Name, unique within its graph once the graph is checked; may be empty before.
    pub name: String,
    /// Kind of task, as registered, or `graph:` and the name of a subgraph.
    pub kind: String,
    /// Settings of the task; null counts as an empty object.
    pub settings: Value,
    /// Whether drawings show the settings.
    pub debug: bool,
}

/// An edge of a [`GraphSpec`], from an output to an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "plain data: two ends")]
pub struct EdgeSpec {
    /// The node whose output it is.
    pub from: NodeId,
    /// Number of the output.
    pub output: usize,
    /// The node whose input it is.
    pub to: NodeId,
    /// Number of the input.
    pub input: usize,
}

/// One input of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "plain data: node and number")]
pub struct InputRef {
    /// The node.
    pub node: NodeId,
    /// Number of the input.
    pub input: usize,
}

/// A named input of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InputSpec {
    /// The inputs that it feeds.
    pub to: Vec<InputRef>,
    /// Its layout, if the description says so; otherwise it is given when the graph is
    /// compiled. That of a subgraph's input is the layout of what is connected to it.
    pub desc: Option<TDesc>,
}

/// A named output of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputSpec {
    /// The node whose output it is.
    pub node: NodeId,
    /// Number of the output.
    pub output: usize,
}

impl GraphSpec {
    /// Adds a node and returns its index.
    pub fn add(&mut self, node: NodeSpec) -> NodeId {
        let index = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(node);
        NodeId::new(index)
    }

    /// The node with this index.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodeSpec> {
        self.nodes.get(node.index())
    }

    /// The index of the first node with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let index = self.nodes.iter().position(|node| node.name == name)?;
        u32::try_from(index).ok().map(NodeId::new)
    }
}

impl NodeSpec {
    /// A node without settings.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            settings: Value::Object(Map::new()),
            debug: true,
        }
    }

    /// The same node with these settings.
    #[must_use]
    pub fn with_settings(mut self, settings: Value) -> Self {
        self.settings = settings;
        self
    }

    /// The name of the subgraph that the node stands for.
    #[must_use]
    pub fn subgraph(&self) -> Option<&str> {
        self.kind.strip_prefix(SUBGRAPH_PREFIX)
    }
}

impl EdgeSpec {
    /// An edge from an output, as node and number, to an input.
    #[must_use]
    pub fn new(from: (NodeId, usize), to: (NodeId, usize)) -> Self {
        Self {
            from: from.0,
            output: from.1,
            to: to.0,
            input: to.1,
        }
    }
}

impl InputSpec {
    /// An input that feeds input `input` of `node`.
    #[must_use]
    pub fn new(node: NodeId, input: usize) -> Self {
        Self {
            to: vec![InputRef { node, input }],
            desc: None,
        }
    }

    /// The same input with its layout.
    #[must_use]
    pub fn with_desc(mut self, desc: TDesc) -> Self {
        self.desc = Some(desc);
        self
    }
}

impl OutputSpec {
    /// Output `output` of `node`.
    #[must_use]
    pub fn new(node: NodeId, output: usize) -> Self {
        Self { node, output }
    }
}
