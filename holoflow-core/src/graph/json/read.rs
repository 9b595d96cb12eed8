//! From JSON to a description.
//!
//! Reading goes on after an error, so that all are found; what could not be read is left out
//! of the description, which is then not returned. A name is not checked against nodes that
//! could not be read.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::super::check::MAX_SLOT;
use super::super::near::Near;
use super::super::place::{child, element, shown};
use super::super::{
    EdgeSpec, GraphError, GraphErrors, GraphSpec, GraphWarning, InputRef, InputSpec, NodeSpec,
    OutputSpec,
};
use super::MAX_LEVELS;
use crate::ids::NodeId;
use crate::tensor::TDesc;

const DOCUMENT: &[&str] = &[
    "nodes", "edges", "inputs", "outputs", "graphs", "options", "version",
];
/// Keys of `options` that say how a pipeline is run. What they mean, the scheduler knows.
pub(crate) const RUN_OPTIONS: [&str; 10] = [
    "threads",
    "wait",
    "watchdog",
    "watchdog_period",
    "in_flight",
    "drain_timeout",
    "stop_timeout",
    "frames",
    "cores",
    "mailbox",
];
/// Those that the compiler reads.
const COMPILER_OPTIONS: [&str; 1] = ["on_ownership_conflict"];

/// Keys of the root: as of a graph, and where editors find the schema.
const ROOT: &[&str] = &[
    "nodes", "edges", "inputs", "outputs", "graphs", "options", "version", "$schema",
];
const NODE: &[&str] = &["type", "params", "debug"];
const EDGE: &[&str] = &["from", "to", "out", "in"];
const INPUT: &[&str] = &["to", "in", "desc"];
const INPUTS: &[&str] = &["to", "desc"];
const TARGET: &[&str] = &["to", "in"];
const OUTPUT: &[&str] = &["from", "out"];

const KIND_WANTED: &str = "the kind of task, a string";
const NAME_WANTED: &str = "the name of a node";
const SLOT_WANTED: &str = "a slot number, a whole number from 0 to 4294967295";

pub(super) struct Reader {
    pub(super) errors: Vec<GraphError>,
    warnings: Vec<GraphWarning>,
    near: Near,
}

/// The nodes of the graph being read by name; `None` if they could not be read.
type Names<'v> = Option<Table<'v>>;

/// Names and what they are the names of.
struct Table<'v> {
    /// In order.
    names: Vec<&'v str>,
    ids: HashMap<&'v str, NodeId>,
}

type Object = Map<String, Value>;

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            errors: Vec::new(),
            warnings: Vec::new(),
            near: Near::new(),
        }
    }

    pub(super) fn document(
        mut self,
        value: &Value,
    ) -> Result<(GraphSpec, Vec<GraphWarning>), GraphErrors> {
        let graph = self.graph(value, "", 0);
        if self.errors.is_empty() {
            return Ok((graph, self.warnings));
        }
        GraphErrors::check(self.errors, self.warnings)?;
        Ok((graph, Vec::new()))
    }

    fn graph(&mut self, value: &Value, place: &str, level: usize) -> GraphSpec {
        let mut graph = GraphSpec::default();
        let Some(document) = self.object(value, place) else {
            return graph;
        };
        let keys = if level == 0 { ROOT } else { DOCUMENT };
        self.unknown_keys(document, keys, place);
        if let Some(version) = document.get("version")
            && version.as_u64() != Some(1)
        {
            self.value(child(place, "version"), version, "1");
        }
        let names = self.nodes(document, place, &mut graph);
        self.edges(document, place, &names, &mut graph);
        for (name, value, place) in self.named(document, "inputs", place) {
            let input = self.input(value, &place, &names);
            graph.inputs.insert(name.to_owned(), input);
        }
        for (name, value, place) in self.named(document, "outputs", place) {
            if let Some(output) = self.output(value, &place, &names) {
                graph.outputs.insert(name.to_owned(), output);
            }
        }
        for (name, value, place) in self.named(document, "graphs", place) {
            if level < MAX_LEVELS {
                let inner = self.graph(value, &place, level + 1);
                graph.graphs.insert(name.to_owned(), inner);
            } else {
                self.errors.push(GraphError::TooDeep {
                    place,
                    found: level + 1,
                    limit: MAX_LEVELS,
                });
            }
        }
        if let Some(options) = document.get("options") {
            let place = child(place, "options");
            if let Some(options) = self.object(options, &place) {
                if level > 0 && !options.is_empty() {
                    self.warnings.push(GraphWarning::SubgraphOptions { place });
                } else {
                    let known = [&COMPILER_OPTIONS[..], &RUN_OPTIONS].concat();
                    self.unknown_keys(options, &known, &place);
                }
                graph.options = options.clone();
            }
        }
        graph
    }

    fn nodes<'v>(&mut self, document: &'v Object, place: &str, graph: &mut GraphSpec) -> Names<'v> {
        let expected = "an object of nodes by name";
        let nodes = self.required(document, "nodes", DOCUMENT, place, expected)?;
        let place = child(place, "nodes");
        let nodes = self.object(nodes, &place)?;
        let mut table = Table {
            names: Vec::with_capacity(nodes.len()),
            ids: HashMap::with_capacity(nodes.len()),
        };
        for (name, value) in sorted(nodes) {
            let place = child(&place, name);
            self.check_name(name, &place);
            let node = self.node(name, value, &place);
            // A node that cannot be read is known all the same.
            let node = node.unwrap_or_else(|| NodeSpec::new(name, ""));
            table.names.push(name);
            table.ids.insert(name, graph.add(node));
        }
        Some(table)
    }

    fn node(&mut self, name: &str, value: &Value, place: &str) -> Option<NodeSpec> {
        let value = self.object(value, place)?;
        self.unknown_keys(value, NODE, place);
        let mut node = NodeSpec::new(name, "");
        if let Some(debug) = value.get("debug") {
            match debug.as_bool() {
                Some(debug) => node.debug = debug,
                None => self.value(child(place, "debug"), debug, "true or false"),
            }
        }
        match value.get("params") {
            None | Some(Value::Null) => {}
            Some(params) => node.settings = params.clone(),
        }
        let kind = self.required(value, "type", NODE, place, KIND_WANTED)?;
        match kind.as_str() {
            Some(kind) => kind.clone_into(&mut node.kind),
            None => self.value(child(place, "type"), kind, KIND_WANTED),
        }
        Some(node)
    }

    fn edges(&mut self, document: &Object, place: &str, names: &Names<'_>, graph: &mut GraphSpec) {
        let Some(edges) = document.get("edges") else {
            return;
        };
        let place = child(place, "edges");
        let Some(edges) = edges.as_array() else {
            self.value(place, edges, "an array of edges");
            return;
        };
        graph.edges.reserve(edges.len());
        for (index, edge) in edges.iter().enumerate() {
            let at = || element(&place, index);
            let Some(edge) = edge.as_object() else {
                self.value(at(), edge, "an object");
                continue;
            };
            self.unknown_keys_at(edge, EDGE, &at);
            let from = self.end(edge, "from", EDGE, &at, names);
            let to = self.end(edge, "to", EDGE, &at, names);
            let output = self.slot(edge, "out", EDGE, &at);
            let input = self.slot(edge, "in", EDGE, &at);
            if let (Some(from), Some(output), Some(to), Some(input)) = (from, output, to, input) {
                graph.edges.push(EdgeSpec {
                    from,
                    output,
                    to,
                    input,
                });
            }
        }
    }

    fn input(&mut self, value: &Value, place: &str, names: &Names<'_>) -> InputSpec {
        let mut input = InputSpec::default();
        match value {
            Value::Array(targets) => self.targets(targets, place, names, &mut input.to),
            Value::Object(value) => {
                if let Some(desc) = value.get("desc") {
                    input.desc = self.layout(desc, &child(place, "desc"));
                }
                if let Some(Value::Array(targets)) = value.get("to") {
                    self.unknown_keys(value, INPUTS, place);
                    self.targets(targets, &child(place, "to"), names, &mut input.to);
                } else {
                    self.unknown_keys(value, INPUT, place);
                    input.to.extend(self.target(value, INPUT, place, names));
                }
            }
            _ => {
                let expected = "an object, or a list of objects, with `to` and `in`";
                self.value(place.to_owned(), value, expected);
            }
        }
        input
    }

    fn targets(
        &mut self,
        values: &[Value],
        place: &str,
        names: &Names<'_>,
        to: &mut Vec<InputRef>,
    ) {
        for (index, value) in values.iter().enumerate() {
            let place = element(place, index);
            if let Some(value) = self.object(value, &place) {
                self.unknown_keys(value, TARGET, &place);
                to.extend(self.target(value, TARGET, &place, names));
            }
        }
    }

    fn target(
        &mut self,
        value: &Object,
        keys: &[&'static str],
        place: &str,
        names: &Names<'_>,
    ) -> Option<InputRef> {
        let at = || place.to_owned();
        let node = self.end(value, "to", keys, &at, names);
        let input = self.slot(value, "in", keys, &at);
        Some(InputRef {
            node: node?,
            input: input?,
        })
    }

    fn output(&mut self, value: &Value, place: &str, names: &Names<'_>) -> Option<OutputSpec> {
        let value = self.object(value, place)?;
        self.unknown_keys(value, OUTPUT, place);
        let at = || place.to_owned();
        let node = self.end(value, "from", OUTPUT, &at, names);
        let output = self.slot(value, "out", OUTPUT, &at);
        Some(OutputSpec {
            node: node?,
            output: output?,
        })
    }

    fn layout(&mut self, value: &Value, place: &str) -> Option<TDesc> {
        if !value.is_object() {
            let expected = "an object with `shape`, `dtype` and `mem_loc`";
            self.value(place.to_owned(), value, expected);
            return None;
        }
        match serde_path_to_error::deserialize(value) {
            Ok(desc) => Some(desc),
            Err(error) => {
                let path = error.path().to_string();
                let place = match path.as_str() {
                    "." => place.to_owned(),
                    path => format!("{place}.{path}"),
                };
                let problem = error.inner().to_string();
                self.errors.push(GraphError::Layout { place, problem });
                None
            }
        }
    }

    /// The entries of the object at `key`, sorted by name, each with its place.
    fn named<'v>(
        &mut self,
        document: &'v Object,
        key: &str,
        place: &str,
    ) -> Vec<(&'v str, &'v Value, String)> {
        let place = child(place, key);
        let object = document
            .get(key)
            .and_then(|value| self.object(value, &place));
        let mut entries = Vec::new();
        for (name, value) in object.map(sorted).unwrap_or_default() {
            let place = child(&place, name);
            self.check_name(name, &place);
            entries.push((name, value, place));
        }
        entries
    }

    fn check_name(&mut self, name: &str, place: &str) {
        if name.is_empty() {
            self.errors.push(GraphError::Value {
                place: place.to_owned(),
                found: "an empty name".to_owned(),
                expected: "a name",
            });
        }
    }

    fn end(
        &mut self,
        object: &Object,
        key: &'static str,
        keys: &[&'static str],
        at: &dyn Fn() -> String,
        names: &Names<'_>,
    ) -> Option<NodeId> {
        let value = self.required_at(object, key, keys, at, NAME_WANTED)?;
        let Some(name) = value.as_str() else {
            self.value(child(&at(), key), value, NAME_WANTED);
            return None;
        };
        let table = names.as_ref()?;
        let found = table.ids.get(name).copied();
        if found.is_none() {
            let nearest = self.near.find(name, table.names.iter().copied());
            self.errors.push(GraphError::UnknownNode {
                place: child(&at(), key),
                found: name.to_owned(),
                nearest,
            });
        }
        found
    }

    fn slot(
        &mut self,
        object: &Object,
        key: &'static str,
        keys: &[&'static str],
        at: &dyn Fn() -> String,
    ) -> Option<usize> {
        let value = self.required_at(object, key, keys, at, SLOT_WANTED)?;
        let slot = value.as_u64().and_then(|slot| usize::try_from(slot).ok());
        let slot = slot.filter(|slot| *slot <= MAX_SLOT);
        if slot.is_none() {
            self.value(child(&at(), key), value, SLOT_WANTED);
        }
        slot
    }

    fn object<'v>(&mut self, value: &'v Value, place: &str) -> Option<&'v Object> {
        let object = value.as_object();
        if object.is_none() {
            self.value(place.to_owned(), value, "an object");
        }
        object
    }

    fn required<'v>(
        &mut self,
        object: &'v Object,
        key: &'static str,
        keys: &[&'static str],
        place: &str,
        expected: &'static str,
    ) -> Option<&'v Value> {
        self.required_at(object, key, keys, &|| place.to_owned(), expected)
    }

    /// The value of `key`; an error if there is none, with the key that is meant as it.
    fn required_at<'v>(
        &mut self,
        object: &'v Object,
        key: &'static str,
        keys: &[&'static str],
        at: &dyn Fn() -> String,
        expected: &'static str,
    ) -> Option<&'v Value> {
        let value = object.get(key);
        if value.is_none() {
            let unknown = sorted(object)
                .into_iter()
                .map(|(found, _)| found)
                .filter(|found| !keys.contains(found));
            let meant = unknown
                .into_iter()
                .find(|found| self.near.find(found, [key]).is_some());
            self.errors.push(GraphError::Missing {
                place: child(&at(), key),
                expected,
                nearest: meant.map(str::to_owned),
            });
        }
        value
    }

    fn unknown_keys(&mut self, object: &Object, keys: &[&'static str], place: &str) {
        self.unknown_keys_at(object, keys, &|| place.to_owned());
    }

    fn unknown_keys_at(&mut self, object: &Object, keys: &[&'static str], at: &dyn Fn() -> String) {
        // Checked before anything is allocated: most objects have no unknown key.
        if object.keys().all(|key| keys.contains(&key.as_str())) {
            return;
        }
        for (key, _) in sorted(object) {
            if !keys.contains(&key) {
                let absent = keys
                    .iter()
                    .copied()
                    .filter(|key| !object.contains_key(*key));
                self.warnings.push(GraphWarning::UnknownKey {
                    place: child(&at(), key),
                    nearest: self.near.find(key, absent),
                });
            }
        }
    }

    fn value(&mut self, place: String, found: &Value, expected: &'static str) {
        self.errors.push(GraphError::Value {
            place,
            found: shown(found),
            expected,
        });
    }
}

/// The entries of an object, sorted by key: a parser's objects may be in another order.
fn sorted(object: &Object) -> Vec<(&str, &Value)> {
    let entries = object.iter().map(|(key, value)| (key.as_str(), value));
    let mut entries: Vec<_> = entries.collect();
    if !entries.is_sorted_by_key(|(key, _)| *key) {
        entries.sort_unstable_by_key(|(key, _)| *key);
    }
    entries
}
