//! Graph files: a [`GraphSpec`] as JSON.
//!
//! ```json
//! { "nodes":   { "src": { "type": "Camera", "params": { "fps": 100 }, "debug": false } },
//!   "edges":   [ { "from": "src", "to": "fft", "out": 0, "in": 0 } ],
//!   "inputs":  { "frames": { "to": "fft", "in": 0, "desc": { … } } },
//!   "outputs": { "image": { "from": "fft", "out": 0 } },
//!   "graphs":  { "denoise": { "nodes": … } },
//!   "options": { "threads": 2 },
//!   "version": 1 }
//! ```
//!
//! Only `nodes` is needed, and of a node only `type`; `params` may be any JSON value, and
//! null counts as `{}`. Edges name nodes exactly, and always have both slot numbers. An
//! input that feeds several slots is a list, `[ { "to": …, "in": … }, … ]`; with a layout it
//! is `{ "to": [ { "to": …, "in": … }, … ], "desc": … }`. A subgraph has the form of the
//! whole document. `version` is 1 where present, and is not written; nor is `$schema`, a key
//! of the root by which editors find the schema, and which means nothing else.
//!
//! Reading reports everything that is wrong with a document at once. What it does not know
//! is kept apart from what is wrong: unknown keys are warnings. Nothing is dropped silently:
//! a key that is there twice is an error, at any depth, settings included.
//!
//! Nodes are numbered in the order of their names, by bytes, whatever the order in the text;
//! edges keep their order. Writing what was read gives an equal document, but for defaults,
//! unknown keys, `version` and `$schema`.

mod keys;
mod read;
mod write;

pub(crate) use read::RUN_OPTIONS;

use serde_json::Value;

use super::{GraphError, GraphErrors, GraphSpec, GraphWarning};
use read::Reader;

/// How deep graphs may be nested, the root not counted.
///
/// The JSON parser takes no text in which more than 127 brackets are open at once.
const MAX_LEVELS: usize = 60;

/// Brackets that may be open at once in a text.
const MAX_OPEN: usize = 127;

impl GraphSpec {
    /// Reads a graph file.
    ///
    /// ```
    /// use holoflow_core::graph::GraphSpec;
    ///
    /// let (graph, warnings) = GraphSpec::from_json_str(r#"{
    ///     "nodes": { "src": { "type": "Camera", "parms": { "fps": 100 } },
    ///                "show": { "type": "Display" } },
    ///     "edges": [ { "from": "src", "to": "show", "out": 0, "in": 0 } ]
    /// }"#)?;
    /// assert_eq!(graph.nodes.len(), 2);
    /// assert_eq!(
    ///     warnings[0].to_string(),
    ///     "nodes.src.parms: unknown key, which is ignored: did you mean `params`?"
    /// );
    ///
    /// let errors = GraphSpec::from_json_str(r#"{
    ///     "nodes": { "src": { "kind": "Camera" } },
    ///     "edges": [ { "from": "scr", "to": "src", "out": 0, "in": 1.0 } ]
    /// }"#).unwrap_err();
    /// assert_eq!(errors.to_string(), "\
    /// nodes.src.type: found nothing, expected the kind of task, a string
    /// edges[0].from: found `scr`, expected the name of a node: did you mean `src`?
    /// edges[0].in: found 1.0, expected a slot number, a whole number from 0 to 4294967295");
    /// # Ok::<(), holoflow_core::graph::GraphErrors>(())
    /// ```
    ///
    /// # Errors
    /// All that is wrong, each with its place; for a text that is no JSON, line and column of
    /// the first mistake.
    pub fn from_json_str(text: &str) -> Result<(Self, Vec<GraphWarning>), GraphErrors> {
        // Some editors begin a file with a mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let value: Value = serde_json::from_str(text).map_err(|error| syntax(&error))?;
        let mut reader = Reader::new();
        keys::find_duplicates(text, &mut reader.errors);
        reader.document(&value)
    }

    /// Reads a graph file that is parsed already. A key that was there twice is not seen any
    /// more; [`from_json_str`](Self::from_json_str) sees it.
    ///
    /// # Errors
    /// All that is wrong, each with its place.
    pub fn from_json(document: &Value) -> Result<(Self, Vec<GraphWarning>), GraphErrors> {
        Reader::new().document(document)
    }

    /// Writes a graph file.
    ///
    /// ```
    /// use holoflow_core::graph::{GraphSpec, NodeSpec};
    /// use serde_json::json;
    ///
    /// let mut graph = GraphSpec::default();
    /// graph.add(NodeSpec::new("src", "Camera").with_settings(json!({ "fps": 100 })));
    /// assert_eq!(
    ///     graph.to_json()?,
    ///     json!({ "nodes": { "src": { "type": "Camera", "params": { "fps": 100 } } }, "edges": [] })
    /// );
    /// # Ok::<(), holoflow_core::graph::GraphErrors>(())
    /// ```
    ///
    /// # Errors
    /// All that no file can say: names that are missing or doubled, indices beyond the nodes,
    /// a depth that no parser takes.
    pub fn to_json(&self) -> Result<Value, GraphErrors> {
        self.check()?;
        write::document(self)
    }
}

fn syntax(error: &serde_json::Error) -> GraphErrors {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let problem = text.strip_suffix(&format!(" at line {line} column {column}"));
    GraphError::Syntax {
        line,
        column,
        problem: problem.unwrap_or(&text).to_owned(),
    }
    .into()
}

#[cfg(test)]
mod tests;
