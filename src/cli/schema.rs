//! `holoflow schema`: what graph files look like, as JSON Schema, for editors.
//!
//! It is of draft 2020-12, and knows the settings of every kind: after `"type": "X"` an editor
//! offers the settings of `X`. The settings' schemas come from the factories and refer to
//! parts of themselves (`#/$defs/Mode`), so each becomes a definition of its own, and its
//! references are made to lead there. Names need not be merged, and cannot clash.
//!
//! It is stricter than the reader in one point: unknown keys, of which the reader warns, are
//! refused. It is laxer in several: it knows nothing of which nodes there are, or what the
//! tasks make of their inputs.

use std::collections::BTreeMap;
use std::io;

use holoflow_core::registry::Registry;
use holoflow_core::tensor::DType;
use serde_json::{Map, Value, json};

use super::{SUCCESS, Streams};

/// Prints the JSON Schema of graph files, with the settings of every kind.
#[derive(Debug, clap::Args)]
pub(super) struct Schema {}

impl Schema {
    pub(super) fn run(&self, registry: &Registry, streams: &mut Streams<'_>) -> io::Result<u8> {
        writeln!(streams.output, "{:#}", schema(registry))?;
        Ok(SUCCESS)
    }
}

/// The schema of graph files of the kinds in `registry`.
fn schema(registry: &Registry) -> Value {
    let mut settings: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (kind, _, factory) in registry.factories() {
        let found = factory.describe().settings;
        let known = settings.entry(kind).or_default();
        // A kind for host and device memory mostly has the same settings in both.
        if !known.contains(&found) {
            known.push(found);
        }
    }
    let mut definitions = Map::new();
    for (kind, schemas) in settings {
        let count = schemas.len();
        let schemas = schemas.into_iter().enumerate().map(|(number, mut schema)| {
            let place = match count {
                1 => format!("#/$defs/{}", fragment(&definition(kind))),
                _ => format!("#/$defs/{}/anyOf/{number}", fragment(&definition(kind))),
            };
            embed(&mut schema, &place);
            schema
        });
        let mut schemas: Vec<_> = schemas.collect();
        let merged = match count {
            1 => schemas.remove(0),
            _ => json!({ "anyOf": schemas }),
        };
        definitions.insert(definition(kind), merged);
    }
    definitions.insert("node".to_owned(), node(registry, &definitions));
    definitions.extend(fixed());
    let root = graph(true);
    let mut document = Map::new();
    document.insert(
        "$schema".to_owned(),
        json!("https://json-schema.org/draft/2020-12/schema"),
    );
    document.insert("title".to_owned(), json!("Holoflow graph file"));
    if let Value::Object(root) = root {
        document.extend(root);
    }
    document.insert("$defs".to_owned(), Value::Object(definitions));
    Value::Object(document)
}

/// Name of the definition of a kind's settings.
fn definition(kind: &str) -> String {
    format!("settings of {kind}")
}

/// A graph: the whole file, or a subgraph.
fn graph(root: bool) -> Value {
    let mut properties = json!({
        "nodes": {
            "description": "The nodes by name.",
            "type": "object",
            "propertyNames": { "minLength": 1 },
            "additionalProperties": { "$ref": "#/$defs/node" },
        },
        "edges": {
            "description": "From outputs of nodes to inputs of nodes.",
            "type": "array",
            "items": { "$ref": "#/$defs/edge" },
        },
        "inputs": {
            "description": "What comes in from outside, by name.",
            "type": "object",
            "propertyNames": { "minLength": 1 },
            "additionalProperties": { "$ref": "#/$defs/input" },
        },
        "outputs": {
            "description": "What goes out, by name.",
            "type": "object",
            "propertyNames": { "minLength": 1 },
            "additionalProperties": { "$ref": "#/$defs/output" },
        },
        "graphs": {
            "description": "Subgraphs by name. A node of type `graph:` and the name stands for one.",
            "type": "object",
            "propertyNames": { "minLength": 1 },
            "additionalProperties": { "$ref": "#/$defs/graph" },
        },
        "version": { "description": "Version of the format.", "const": 1 },
    });
    if root {
        properties["options"] = json!({ "$ref": "#/$defs/options" });
        properties["$schema"] = json!({
            "description": "Where editors find this schema. It means nothing else.",
            "type": "string",
        });
    }
    json!({
        "type": "object",
        "required": ["nodes"],
        "additionalProperties": false,
        "properties": properties,
    })
}

/// The definitions that are the same for every registry, but for `node`.
fn fixed() -> Map<String, Value> {
    let dtypes: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
    let node = json!({ "description": "Name of a node.", "type": "string", "minLength": 1 });
    let slot = |of: &str| {
        json!({
            "description": format!("Number of the {of}, from 0."),
            "type": "integer",
            "minimum": 0,
            "maximum": u32::MAX,
        })
    };
    let whole = json!({ "type": "integer", "minimum": 0 });
    let target = json!({
        "type": "object",
        "required": ["to", "in"],
        "additionalProperties": false,
        "properties": { "to": node, "in": slot("input") },
    });
    let targets = json!({ "type": "array", "items": target });
    let definitions = json!({
        "graph": graph(false),
        "edge": {
            "type": "object",
            "required": ["from", "to", "out", "in"],
            "additionalProperties": false,
            "properties": {
                "from": node, "to": node, "out": slot("output"), "in": slot("input"),
            },
        },
        "input": {
            "anyOf": [
                {
                    "type": "object",
                    "required": ["to", "in"],
                    "additionalProperties": false,
                    "properties": {
                        "to": node, "in": slot("input"), "desc": { "$ref": "#/$defs/layout" },
                    },
                },
                {
                    "description": "Several inputs of nodes that get the same.",
                    "type": "object",
                    "required": ["to"],
                    "additionalProperties": false,
                    "properties": { "to": targets, "desc": { "$ref": "#/$defs/layout" } },
                },
                targets,
            ],
        },
        "output": {
            "type": "object",
            "required": ["from", "out"],
            "additionalProperties": false,
            "properties": { "from": node, "out": slot("output") },
        },
        "layout": {
            "description": "Layout of a tensor.",
            "type": "object",
            "required": ["shape", "dtype", "mem_loc"],
            "additionalProperties": false,
            "properties": {
                "shape": {
                    "description": "Elements along each axis.", "type": "array", "items": whole,
                },
                "dtype": { "description": "Type of the elements.", "enum": dtypes },
                "mem_loc": {
                    "description": "The memory: `Host`, `HostPinned`, `Device` or `Device:1`.",
                    "type": "string",
                    "pattern": "^(Host|HostPinned|Device(:[0-9]+)?)$",
                },
                "strides": {
                    "description": "Bytes between neighbours along each axis; without gaps unless given.",
                    "type": ["array", "null"],
                    "items": whole,
                },
                "offset": {
                    "description": "Bytes before the first element.",
                    "type": "integer",
                    "minimum": 0,
                    "default": 0,
                },
            },
        },
        "options": {
            "description": "What else belongs to the pipeline.",
            "type": "object",
            "properties": {
                "on_ownership_conflict": {
                    "description": "What to do where two slots own one storage, or a node overwrites \
                        what others still read: insert a copy, or refuse the graph.",
                    "enum": ["copy", "error"],
                    "default": "copy",
                },
            },
        },
    });
    match definitions {
        Value::Object(definitions) => definitions,
        _ => Map::new(),
    }
}

/// A node: its kind, and what its settings are then.
fn node(registry: &Registry, definitions: &Map<String, Value>) -> Value {
    let mut kinds = Vec::new();
    let mut cases = Vec::new();
    for kind in registry.kinds() {
        let help = registry
            .get(kind, None)
            .map(|factory| factory.describe().help);
        kinds.push(json!({ "const": kind, "description": help.unwrap_or_default() }));
        let settings = definitions.get(&definition(kind));
        let reference = json!({ "$ref": format!("#/$defs/{}", fragment(&definition(kind))) });
        // Absent settings are an empty object, and so is null.
        let then = if settings.is_some_and(takes_nothing) {
            let nothing = json!({ "type": "null" });
            json!({ "properties": { "params": { "anyOf": [reference, nothing] } } })
        } else {
            json!({ "required": ["params"], "properties": { "params": reference } })
        };
        cases.push(json!({
            "if": { "required": ["type"], "properties": { "type": { "const": kind } } },
            "then": then,
        }));
    }
    cases.push(json!({
        "if": { "required": ["type"], "properties": { "type": { "pattern": "^graph:" } } },
        "then": { "properties": { "params": {
            "description": "A subgraph takes no settings.",
            "anyOf": [{ "type": "object", "maxProperties": 0 }, { "type": "null" }],
        } } },
    }));
    kinds.push(json!({
        "description": "A subgraph: `graph:` and its name in `graphs`.",
        "type": "string",
        "pattern": "^graph:.",
    }));
    json!({
        "type": "object",
        "required": ["type"],
        "additionalProperties": false,
        "properties": {
            "type": { "description": "Kind of task, or `graph:` and the name of a subgraph.", "anyOf": kinds },
            "params": { "description": "Settings of the task." },
            "debug": {
                "description": "Whether drawings show the settings.",
                "type": "boolean",
                "default": true,
            },
        },
        "allOf": cases,
    })
}

/// Whether an empty object fits `schema`, as far as can be seen without a validator.
fn takes_nothing(schema: &Value) -> bool {
    let choices = schema.get("anyOf").and_then(Value::as_array);
    if let Some(choices) = choices {
        return choices.iter().any(takes_nothing);
    }
    let required = schema.get("required").and_then(Value::as_array);
    required.is_none_or(Vec::is_empty)
}

/// Makes a schema part of another one, in which it stands at `place`.
fn embed(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(schema) => drop(schema.remove("$schema")),
        Value::Bool(_) => {}
        // No schema, so it says nothing.
        _ => *schema = Value::Bool(true),
    }
    redirect(schema, place);
}

/// Makes references within `schema` lead to where it stands now.
fn redirect(schema: &mut Value, place: &str) {
    match schema {
        // References are relative to the identity that a schema has.
        Value::Object(schema) if schema.contains_key("$id") => {}
        Value::Object(schema) => {
            for (key, value) in schema {
                match (key.as_str(), value) {
                    ("$ref" | "$dynamicRef", Value::String(reference)) => {
                        if let Some(pointer) = reference.strip_prefix('#')
                            && (pointer.is_empty() || pointer.starts_with('/'))
                        {
                            *reference = format!("{place}{pointer}");
                        }
                    }
                    // Values, in which a key `$ref` is only a key.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    // Schemas by name.
                    (
                        "properties" | "patternProperties" | "dependentSchemas" | "$defs"
                        | "definitions",
                        Value::Object(schemas),
                    ) => schemas
                        .values_mut()
                        .for_each(|value| redirect(value, place)),
                    (_, value) => redirect(value, place),
                }
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(|value| redirect(value, place)),
        _ => {}
    }
}

/// A key as a part of a JSON pointer in a reference.
fn fragment(key: &str) -> String {
    let mut part = String::new();
    for byte in key.replace('~', "~0").replace('/', "~1").bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                part.push(char::from(byte));
            }
            byte => part.push_str(&format!("%{byte:02X}")),
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_lead_to_where_the_schema_stands_now() {
        let mut schema = json!({
            "$schema": "x",
            "properties": {
                "a": { "$ref": "#/$defs/A" },
                "self": { "$ref": "#" },
                "far": { "$ref": "https://example.org/#/a" },
                "named": { "$ref": "#anchor" },
                "default": { "items": [{ "$ref": "#/$defs/A" }] },
                "data": { "default": { "$ref": "#/$defs/A" }, "enum": [{ "$ref": "#/x" }] },
                "own": { "$id": "urn:x", "$ref": "#/y" },
            },
            "$defs": { "A": { "$ref": "#/$defs/B" } },
        });
        embed(&mut schema, "#/$defs/K");
        let expected = json!({
            "properties": {
                "a": { "$ref": "#/$defs/K/$defs/A" },
                "self": { "$ref": "#/$defs/K" },
                "far": { "$ref": "https://example.org/#/a" },
                "named": { "$ref": "#anchor" },
                "default": { "items": [{ "$ref": "#/$defs/K/$defs/A" }] },
                "data": { "default": { "$ref": "#/$defs/A" }, "enum": [{ "$ref": "#/x" }] },
                "own": { "$id": "urn:x", "$ref": "#/y" },
            },
            "$defs": { "A": { "$ref": "#/$defs/K/$defs/B" } },
        });
        assert_eq!(schema, expected);
    }

    #[test]
    fn what_is_no_schema_says_nothing() {
        for mut schema in [json!(3), json!(null), json!(["a"])] {
            embed(&mut schema, "#");
            assert_eq!(schema, json!(true));
        }
        let mut nothing = json!(false);
        embed(&mut nothing, "#");
        assert_eq!(nothing, json!(false));
    }

    #[test]
    fn a_kind_of_any_name_can_be_referred_to() {
        assert_eq!(fragment("a/b~c d%é"), "a~1b~0c%20d%25%C3%A9");
    }
}
