//! A description built in Rust: with handles where files have names.
//!
//! Outputs and inputs are different types, so that the two cannot be mixed up. What is wrong
//! otherwise (a name twice, settings that JSON cannot hold, a handle of another builder) is
//! kept until [`GraphBuilder::finish`], which reports all of it.
//!
//! What the builder does not know: kinds and their slots. The compiler checks them.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::{Map, Value};

use super::closure::{CLOSURE_PREFIX, ClosureFactory, Map as MapClosure, infer_map};
use super::place::{child, element, grandchild};
use super::{
    EdgeSpec, GraphError, GraphErrors, GraphSpec, InputRef, NodeSpec, OutputSpec, SUBGRAPH_PREFIX,
    settings,
};
use crate::ids::NodeId;
use crate::sync::{Arc, next_id};
use crate::task::{ISyncTaskFactory, InferResult, OpResult, SyncCtx, TaskRequest, TaskResult};
use crate::tensor::{Element, TDesc};

/// Builds a [`GraphSpec`].
///
/// ```
/// use holoflow_core::graph::GraphBuilder;
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Camera {
///     fps: u32,
/// }
///
/// let mut graph = GraphBuilder::new();
/// let camera = graph.node("camera", "Camera", Camera { fps: 100 });
/// let double = graph.map_fn("double", |x: &[f32], y: &mut [f32]| {
///     y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
/// });
/// let show = graph.node("show", "Display", ());
/// graph.connect(camera, double);
/// graph.connect(double.output(0), show.input(0));
/// graph.output("doubled", double);
/// let built = graph.finish()?;
/// assert_eq!(built.spec.nodes[0].settings["fps"], 100);
/// assert_eq!(built.closures().collect::<Vec<_>>(), ["closure:double"]);
/// # Ok::<(), holoflow_core::graph::GraphErrors>(())
/// ```
///
/// An output goes where an output is asked for, and nowhere else:
///
/// ```compile_fail,E0277
/// use holoflow_core::graph::GraphBuilder;
///
/// let mut graph = GraphBuilder::new();
/// let a = graph.node("a", "Copy", ());
/// let b = graph.node("b", "Copy", ());
/// graph.connect(a.output(0), b.output(0));
/// ```
#[derive(Debug)]
pub struct GraphBuilder {
    /// Distinguishes handles of this builder from others.
    id: u64,
    spec: GraphSpec,
    closures: Closures,
    errors: Vec<GraphError>,
}

/// Factories of closures by kind.
type Closures = BTreeMap<String, Arc<dyn ISyncTaskFactory>>;

/// A description and the closures in it.
///
/// A description with closures can be written as a file, but the closures are not in it:
/// their kinds are only known to a registry made with
/// [`Registry::with`](crate::registry::Registry::with).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BuiltGraph {
    /// The description.
    pub spec: GraphSpec,
    closures: Closures,
}

/// A node of a [`GraphBuilder`]. As an output or input it stands for the one numbered 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node {
    builder: u64,
    id: NodeId,
}

/// An output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Out {
    node: Node,
    output: usize,
}

/// An input of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct In {
    node: Node,
    input: usize,
}

/// A graph that nodes of a [`GraphBuilder`] can stand for; see [`GraphBuilder::graph`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphRef {
    builder: u64,
    name: String,
    inputs: Arc<[String]>,
    outputs: Arc<[String]>,
}

/// A node that stands for a subgraph; its inputs and outputs have names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subgraph {
    node: Node,
    name: String,
    graph: GraphRef,
}

impl Node {
    /// The index of the node in the description.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.id
    }

    /// Output `output`.
    #[must_use]
    pub fn output(self, output: usize) -> Out {
        Out { node: self, output }
    }

    /// Input `input`.
    #[must_use]
    pub fn input(self, input: usize) -> In {
        In { node: self, input }
    }
}

impl From<Node> for Out {
    fn from(node: Node) -> Self {
        node.output(0)
    }
}

impl From<Node> for In {
    fn from(node: Node) -> Self {
        node.input(0)
    }
}

impl Subgraph {
    /// The node.
    #[must_use]
    pub fn node(&self) -> Node {
        self.node
    }

    /// The output with this name.
    ///
    /// # Errors
    /// If the subgraph has none.
    pub fn output(&self, name: &str) -> Result<Out, GraphError> {
        let number = self.port(&self.graph.outputs, name, "an output")?;
        Ok(self.node.output(number))
    }

    /// The input with this name.
    ///
    /// # Errors
    /// If the subgraph has none.
    pub fn input(&self, name: &str) -> Result<In, GraphError> {
        let number = self.port(&self.graph.inputs, name, "an input")?;
        Ok(self.node.input(number))
    }

    fn port(
        &self,
        names: &[String],
        name: &str,
        expected: &'static str,
    ) -> Result<usize, GraphError> {
        // In the order of their names, as the description numbers them.
        let number = names.binary_search_by(|known| known.as_str().cmp(name));
        number.map_err(|_| GraphError::UnknownPort {
            place: grandchild("", "nodes", &self.name),
            found: name.to_owned(),
            expected,
            nearest: crate::text::nearest(name, names.iter().map(String::as_str))
                .map(str::to_owned),
        })
    }
}

impl BuiltGraph {
    /// Kinds of the closures.
    pub fn closures(&self) -> impl Iterator<Item = &str> {
        self.closures.keys().map(String::as_str)
    }

    /// The closures' factories by kind.
    pub(crate) fn factories(&self) -> impl Iterator<Item = (&str, &Arc<dyn ISyncTaskFactory>)> {
        let closures = self.closures.iter();
        closures.map(|(kind, factory)| (kind.as_str(), factory))
    }
}

impl From<GraphSpec> for BuiltGraph {
    fn from(spec: GraphSpec) -> Self {
        Self {
            spec,
            closures: Closures::new(),
        }
    }
}

impl Default for GraphBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphBuilder {
    /// A graph without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            id: next_id(),
            spec: GraphSpec::default(),
            closures: Closures::new(),
            errors: Vec::new(),
        }
    }

    /// Adds a node. `()` stands for no settings.
    pub fn node(
        &mut self,
        name: impl Into<String>,
        kind: impl Into<String>,
        settings: impl Serialize,
    ) -> Node {
        let name = name.into();
        let place = || child(&grandchild("", "nodes", &name), "params");
        let settings = match settings::to_json(&settings, &place()) {
            Ok(Value::Null) => Value::Object(Map::new()),
            Ok(settings) => settings,
            Err(mut errors) => {
                self.errors.append(&mut errors);
                Value::Null
            }
        };
        let id = self
            .spec
            .add(NodeSpec::new(name, kind).with_settings(settings));
        Node {
            builder: self.id,
            id,
        }
    }

    /// Whether drawings show the node's settings; they do unless told otherwise.
    pub fn debug(&mut self, node: Node, debug: bool) {
        if node.builder == self.id {
            self.spec.nodes[node.id.index()].debug = debug;
        } else {
            let place = child(&element("nodes", node.id.index()), "debug");
            self.errors.push(GraphError::ForeignHandle { place });
        }
    }

    /// Adds an edge. Of a node given instead of an output or input, number 0 is meant.
    pub fn connect(&mut self, from: impl Into<Out>, to: impl Into<In>) {
        let (from, to) = (from.into(), to.into());
        let place = element("edges", self.spec.edges.len());
        if self.own(from.node, || child(&place, "from")) & self.own(to.node, || child(&place, "to"))
        {
            let edge = EdgeSpec::new((from.node.id, from.output), (to.node.id, to.input));
            self.spec.edges.push(edge);
        }
    }

    /// Connects the graph's input `name`, which is made if there is none yet.
    pub fn input(&mut self, name: impl Into<String>, to: impl Into<In>) {
        let (name, to) = (name.into(), to.into());
        if self.own(to.node, || child(&grandchild("", "inputs", &name), "to")) {
            let to = InputRef {
                node: to.node.id,
                input: to.input,
            };
            self.spec.inputs.entry(name).or_default().to.push(to);
        }
    }

    /// Sets the layout of the graph's input `name`, which is made if there is none yet.
    pub fn input_layout(&mut self, name: impl Into<String>, desc: TDesc) {
        let name = name.into();
        let place = child(&grandchild("", "inputs", &name), "desc");
        let input = self.spec.inputs.entry(name).or_default();
        if input.desc.replace(desc).is_some() {
            self.errors.push(GraphError::NamedTwice { place });
        }
    }

    /// Makes an output the graph's output `name`.
    pub fn output(&mut self, name: impl Into<String>, from: impl Into<Out>) {
        let (name, from) = (name.into(), from.into());
        let place = grandchild("", "outputs", &name);
        if self.own(from.node, || child(&place, "from")) {
            let output = OutputSpec::new(from.node.id, from.output);
            if self.spec.outputs.insert(name, output).is_some() {
                self.errors.push(GraphError::NamedTwice { place });
            }
        }
    }

    /// Sets an option of the pipeline.
    pub fn option(&mut self, name: impl Into<String>, value: impl Serialize) {
        let name = name.into();
        let place = grandchild("", "options", &name);
        match settings::to_json(&value, &place) {
            Ok(value) => {
                if self.spec.options.insert(name, value).is_some() {
                    self.errors.push(GraphError::NamedTwice { place });
                }
            }
            Err(mut errors) => self.errors.append(&mut errors),
        }
    }

    /// Adds a graph that nodes can stand for, any number of them unless there are closures
    /// in it. Those are then called `closure:` and the names of the graph and of the closure.
    ///
    /// ```
    /// use holoflow_core::graph::GraphBuilder;
    ///
    /// let mut filter = GraphBuilder::new();
    /// let blur = filter.node("blur", "Blur", ());
    /// filter.input("frame", blur);
    /// filter.output("smooth", blur);
    ///
    /// let mut graph = GraphBuilder::new();
    /// let filter = graph.graph("filter", filter.finish()?);
    /// let camera = graph.node("camera", "Camera", ());
    /// let left = graph.subgraph("left", &filter);
    /// graph.connect(camera, left.input("frame")?);
    /// graph.output("image", left.output("smooth")?);
    /// assert_eq!(
    ///     left.input("fram").unwrap_err().to_string(),
    ///     "nodes.left: found `fram`, expected an input of the subgraph: did you mean `frame`?"
    /// );
    /// # Ok::<(), holoflow_core::graph::GraphErrors>(())
    /// ```
    pub fn graph(&mut self, name: impl Into<String>, graph: impl Into<BuiltGraph>) -> GraphRef {
        let name = name.into();
        let BuiltGraph { mut spec, closures } = graph.into();
        let mut renamed = HashMap::new();
        for (kind, factory) in closures {
            let own = kind.strip_prefix(CLOSURE_PREFIX).unwrap_or(&kind);
            let new = self.add_closure(&format!("{name}/{own}"), factory);
            renamed.insert(kind, new);
        }
        rename(&mut spec, &renamed);
        let graph = GraphRef {
            builder: self.id,
            name: name.clone(),
            inputs: spec.inputs.keys().cloned().collect(),
            outputs: spec.outputs.keys().cloned().collect(),
        };
        let place = grandchild("", "graphs", &name);
        if self.spec.graphs.insert(name, spec).is_some() {
            self.errors.push(GraphError::NamedTwice { place });
        }
        graph
    }

    /// Adds a node that stands for `graph`.
    pub fn subgraph(&mut self, name: impl Into<String>, graph: &GraphRef) -> Subgraph {
        let name = name.into();
        if graph.builder != self.id {
            let place = child(&grandchild("", "nodes", &name), "type");
            self.errors.push(GraphError::ForeignHandle { place });
        }
        let kind = format!("{SUBGRAPH_PREFIX}{}", graph.name);
        Subgraph {
            node: self.node(name.clone(), kind, ()),
            name,
            graph: graph.clone(),
        }
    }

    /// Adds a sync task made of two closures: what the task makes of its inputs, and what it
    /// does with a frame. It is of the kind `closure:name`, and makes one task at a time.
    ///
    /// ```
    /// use holoflow_core::graph::GraphBuilder;
    /// use holoflow_core::task::{InferResult, OpResult};
    /// use holoflow_core::tensor::TDesc;
    ///
    /// let mut graph = GraphBuilder::new();
    /// let mut next = 0.0;
    /// let ramp = graph.sync_fn(
    ///     "ramp",
    ///     |_| Ok(InferResult::sync([], [TDesc::host::<f32>([4])?])),
    ///     move |ctx| {
    ///         for y in ctx.outputs.get_mut::<f32>(0)? {
    ///             *y = next;
    ///             next += 1.0;
    ///         }
    ///         Ok(OpResult::Ok)
    ///     },
    /// );
    /// graph.output("ramp", ramp);
    /// # graph.finish()?;
    /// # Ok::<(), holoflow_core::graph::GraphErrors>(())
    /// ```
    pub fn sync_fn(
        &mut self,
        name: impl Into<String>,
        infer: impl Fn(&TaskRequest<'_>) -> TaskResult<InferResult> + Send + Sync + 'static,
        execute: impl FnMut(&mut SyncCtx<'_>) -> TaskResult<OpResult> + Send + 'static,
    ) -> Node {
        let name = name.into();
        let factory = ClosureFactory::new(&name, infer, execute);
        self.closure(name, Arc::new(factory))
    }

    /// Adds a sync task that makes the elements of its output of those of its input, in
    /// row-major order. Both are on the host and have the same shape.
    pub fn map_fn<X: Element, Y: Element>(
        &mut self,
        name: impl Into<String>,
        map: impl FnMut(&[X], &mut [Y]) + Send + 'static,
    ) -> Node {
        let name = name.into();
        let map = MapClosure::<X, Y, _>::new(map);
        let factory = ClosureFactory::new(&name, infer_map::<X, Y>, map);
        self.closure(name, Arc::new(factory))
    }

    fn closure(&mut self, name: String, factory: Arc<dyn ISyncTaskFactory>) -> Node {
        let kind = self.add_closure(&name, factory);
        self.node(name, kind, ())
    }

    /// Adds a closure under a kind that is not taken yet.
    fn add_closure(&mut self, name: &str, factory: Arc<dyn ISyncTaskFactory>) -> String {
        let mut kind = format!("{CLOSURE_PREFIX}{name}");
        while self.closures.contains_key(&kind) {
            kind.push('\'');
        }
        self.closures.insert(kind.clone(), factory);
        kind
    }

    fn own(&mut self, node: Node, place: impl FnOnce() -> String) -> bool {
        let own = node.builder == self.id;
        if !own {
            let place = place();
            self.errors.push(GraphError::ForeignHandle { place });
        }
        own
    }

    /// The graph.
    ///
    /// # Errors
    /// All that went wrong, and what [`GraphSpec::check`] finds.
    pub fn finish(self) -> Result<BuiltGraph, GraphErrors> {
        let mut errors = self.errors;
        if let Err(more) = self.spec.check() {
            errors.extend(more);
        }
        GraphErrors::check(errors, Vec::new())?;
        Ok(BuiltGraph {
            spec: self.spec,
            closures: self.closures,
        })
    }
}

/// Gives the kinds in `graph` and in its subgraphs their new names.
fn rename(graph: &mut GraphSpec, renamed: &HashMap<String, String>) {
    for node in &mut graph.nodes {
        if let Some(kind) = renamed.get(&node.kind) {
            node.kind.clone_from(kind);
        }
    }
    for inner in graph.graphs.values_mut() {
        rename(inner, renamed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::graph::flatten;
    use crate::registry::Registry;
    use crate::tensor::{DType, MemLoc};
    use crate::testkit::TaskHarness;

    #[derive(Serialize)]
    struct Gain {
        factor: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<f32>,
    }

    fn gain(factor: f64) -> Gain {
        let limit = None;
        Gain { factor, limit }
    }

    #[test]
    fn a_built_graph_is_that_of_the_same_file() {
        let mut graph = GraphBuilder::new();
        let a = graph.node("a", "Gain", gain(2.0));
        let b = graph.node("b", "Add", ());
        graph.debug(b, false);
        graph.connect(a, b);
        graph.connect(a.output(1), b.input(1));
        graph.input("frames", a);
        graph.input("frames", b.input(2));
        let desc = TDesc::new([2], DType::U8, MemLoc::Host).unwrap();
        graph.input_layout("frames", desc);
        graph.output("sum", b);
        graph.option("threads", 2);
        let built = graph.finish().unwrap();
        let document = json!({
            "nodes": {
                "a": { "type": "Gain", "params": { "factor": 2.0 } },
                "b": { "type": "Add", "params": {}, "debug": false },
            },
            "edges": [
                { "from": "a", "to": "b", "out": 0, "in": 0 },
                { "from": "a", "to": "b", "out": 1, "in": 1 },
            ],
            "inputs": { "frames": {
                "to": [ { "to": "a", "in": 0 }, { "to": "b", "in": 2 } ],
                "desc": { "shape": [2], "dtype": "U8", "mem_loc": "Host", "strides": [1] },
            } },
            "outputs": { "sum": { "from": "b", "out": 0 } },
            "options": { "threads": 2 },
        });
        assert_eq!(built.spec.to_json().unwrap(), document);
        assert_eq!(built.closures().count(), 0);
    }

    #[test]
    fn all_that_is_wrong_is_reported_when_the_graph_is_finished() {
        let mut other = GraphBuilder::new();
        let stranger = other.node("stranger", "Copy", ());
        let strange = other.graph("g", GraphSpec::default());
        let mut graph = GraphBuilder::new();
        let a = graph.node("a", "Gain", gain(f64::NAN));
        graph.node("a", "Gain", ());
        graph.connect(a, stranger);
        graph.connect(stranger, stranger);
        graph.input("i", stranger);
        graph.output("o", stranger);
        graph.output("p", a);
        graph.output("p", a);
        graph.debug(stranger, true);
        graph.subgraph("s", &strange);
        graph.option("x", f32::INFINITY);
        graph.option("y", 1);
        graph.option("y", 1);
        graph.graph("h", GraphSpec::default());
        graph.graph("h", GraphSpec::default());
        let desc = TDesc::new([2], DType::U8, MemLoc::Host).unwrap();
        graph.input_layout("i", desc.clone());
        graph.input_layout("i", desc);
        let errors = graph.finish().unwrap_err();
        let foreign = "found a handle of another builder, expected one of this";
        let twice = "named twice, expected once";
        let expected = [
            "nodes.a.params.factor: found NaN, expected a value that JSON can hold",
            &format!("edges[0].to: {foreign}"),
            &format!("edges[0].from: {foreign}"),
            &format!("edges[0].to: {foreign}"),
            &format!("inputs.i.to: {foreign}"),
            &format!("outputs.o.from: {foreign}"),
            &format!("outputs.p: {twice}"),
            &format!("nodes[0].debug: {foreign}"),
            &format!("nodes.s.type: {foreign}"),
            "options.x: found inf, expected a value that JSON can hold",
            &format!("options.y: {twice}"),
            &format!("graphs.h: {twice}"),
            &format!("inputs.i.desc: {twice}"),
            "nodes.a: found twice, as nodes 0 and 1, expected once",
        ];
        assert_eq!(errors.to_string(), expected.join("\n"));
    }

    #[test]
    fn closures_are_found_in_a_registry_with_the_graph_only() {
        let mut graph = GraphBuilder::new();
        graph.map_fn("double", |x: &[f32], y: &mut [f32]| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        });
        let built = graph.finish().unwrap();
        // A file has the kind, not the closure.
        let document = built.spec.to_json().unwrap();
        assert_eq!(document["nodes"]["double"]["type"], "closure:double");
        let empty = Registry::new();
        let registry = empty.with(&built).unwrap();
        assert!(!empty.is_registered("closure:double"));
        let factory = registry.get_sync("closure:double", None).unwrap();
        let frame = TDesc::host::<f32>([2]).unwrap();
        let mut task = TaskHarness::sync(&**factory, json!({}), [frame]).unwrap();
        let result = task.run::<f32, f32>(&[1.0, 2.0]).unwrap();
        assert_eq!(result, Some(vec![2.0, 4.0]));
        let error = registry.with(&built).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kind `closure:double` already has a Sync factory for Host memory"
        );
    }

    #[test]
    fn closures_of_subgraphs_keep_apart() {
        let inner = |factor: f32| {
            let mut graph = GraphBuilder::new();
            let scale = graph.map_fn("scale", move |x: &[f32], y: &mut [f32]| {
                y.iter_mut().zip(x).for_each(|(y, x)| *y = factor * x);
            });
            graph.input("x", scale);
            graph.output("y", scale);
            graph.finish().unwrap()
        };
        let mut graph = GraphBuilder::new();
        let (two, three) = (
            graph.graph("two", inner(2.0)),
            graph.graph("three", inner(3.0)),
        );
        let (a, b) = (graph.subgraph("a", &two), graph.subgraph("b", &three));
        let own = graph.map_fn("scale", |x: &[f32], y: &mut [f32]| y.copy_from_slice(x));
        graph.connect(own, a.input("x").unwrap());
        graph.connect(a.output("y").unwrap(), b.input("x").unwrap());
        let built = graph.finish().unwrap();
        let kinds: Vec<_> = built.closures().collect();
        assert_eq!(
            kinds,
            ["closure:scale", "closure:three/scale", "closure:two/scale"]
        );
        let flat = flatten(&built.spec).unwrap();
        let nodes = flat.spec.nodes.iter();
        let nodes: Vec<_> = nodes
            .map(|node| (node.name.as_str(), node.kind.as_str()))
            .collect();
        assert_eq!(
            nodes,
            [
                ("a/scale", "closure:two/scale"),
                ("b/scale", "closure:three/scale"),
                ("scale", "closure:scale"),
            ]
        );
        let registry = Registry::new().with(&built).unwrap();
        let frame = TDesc::host::<f32>([1]).unwrap();
        let factory = registry.get_sync("closure:three/scale", None).unwrap();
        let mut task = TaskHarness::sync(&**factory, json!({}), [frame]).unwrap();
        assert_eq!(task.run::<f32, f32>(&[5.0]).unwrap(), Some(vec![15.0]));
    }

    #[test]
    fn an_unknown_port_of_a_subgraph_is_an_error_with_a_near_match() {
        let mut inner = GraphSpec::default();
        let node = inner.add(NodeSpec::new("x", "Copy"));
        inner
            .outputs
            .insert("image".into(), OutputSpec::new(node, 0));
        let mut graph = GraphBuilder::new();
        let inner = graph.graph("inner", inner);
        let sub = graph.subgraph("s", &inner);
        assert_eq!(sub.output("image").unwrap(), sub.node().output(0));
        assert_eq!(
            sub.output("imgae").unwrap_err().to_string(),
            "nodes.s: found `imgae`, expected an output of the subgraph: did you mean `image`?"
        );
        assert_eq!(
            sub.input("image").unwrap_err().to_string(),
            "nodes.s: found `image`, expected an input of the subgraph"
        );
    }
}
