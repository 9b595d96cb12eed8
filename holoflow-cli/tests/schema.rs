//! What `holoflow schema` prints, against a validator of JSON Schema: it is a schema, takes
//! what the reader takes, and refuses what the reader refuses or warns of.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fuzz::graph_json;
use holoflow::cli::{Streams, execute};
use holoflow::graph::GraphSpec;
use holoflow::prelude::*;
use holoflow::registry::Registry;
use jsonschema::Validator;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

#[path = "../../fuzz/src"]
mod fuzz {
    #[allow(unreachable_pub, reason = "public in the crate of the fuzz targets")]
    pub(crate) mod graph_json;
}

fn schema(registry: &Registry) -> Value {
    let mut output = Vec::new();
    let mut streams = Streams {
        input: &mut io::empty(),
        output: &mut output,
        errors: &mut io::sink(),
    };
    assert_eq!(execute(registry, ["holoflow", "schema"], &mut streams), 0);
    serde_json::from_slice(&output).unwrap()
}

fn validator(registry: &Registry) -> Validator {
    let schema = schema(registry);
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    if let Err(error) = jsonschema::draft202012::meta::validate(&schema) {
        panic!("it is no schema: {error} at {}", error.instance_path());
    }
    jsonschema::draft202012::new(&schema).unwrap()
}

fn built_in() -> Registry {
    let mut registry = Registry::new();
    holoflow::cpu::register_all(&mut registry).unwrap();
    registry
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files of a folder, with their names.
fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let files = entries.map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

#[track_caller]
fn assert_fits(validator: &Validator, document: &Value) {
    let errors: Vec<_> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{document}\n  {}", errors.join("\n  "));
}

#[test]
fn the_example_files_fit() {
    let validator = validator(&built_in());
    for (_, text) in files("examples/pipelines") {
        assert_fits(&validator, &serde_json::from_slice(&text).unwrap());
    }
}

#[test]
fn whatever_compiles_without_a_warning_fits() {
    let registry = graph_json::registry();
    let validator = validator(&registry);
    let mut count = 0;
    for (name, bytes) in files("fuzz/corpus/graph_json") {
        let Ok(text) = str::from_utf8(&bytes) else {
            continue;
        };
        let reached = graph_json::graph_json(&registry, &bytes);
        if reached == graph_json::Reached::Plan
            && let Ok((_, warnings)) = GraphSpec::from_json_str(text)
            && warnings.is_empty()
        {
            let text = text.trim_start_matches('\u{feff}');
            println!("{name}");
            assert_fits(&validator, &serde_json::from_str(text).unwrap());
            count += 1;
        }
    }
    assert!(count > 5, "only {count} seeds");
}

#[test]
fn every_form_that_the_reader_takes_fits() {
    let validator = validator(&built_in());
    let limit = json!({ "type": "RateLimiter", "params": { "max_fps": 1e-6 }, "debug": false });
    let layout = json!({ "shape": [2, 3], "dtype": "CF32", "mem_loc": "Device:1", "strides": null, "offset": 4 });
    let document = json!({
        "$schema": "graph.schema.json",
        "version": 1,
        "nodes": { "a": limit, "b": limit, "c": limit, "d": { "type": "graph:g" },
                   "e": { "type": "graph:g", "params": {} }, "f": { "type": "graph:g", "params": null } },
        "edges": [ { "from": "a", "to": "b", "out": 0, "in": 4_294_967_295_u32 } ],
        "inputs": {
            "one": { "to": "a", "in": 0, "desc": layout },
            "list": [ { "to": "a", "in": 0 }, { "to": "b", "in": 0 } ],
            "none": [],
            "both": { "to": [ { "to": "a", "in": 0 } ], "desc": layout },
        },
        "outputs": { "o": { "from": "a", "out": 0 } },
        "graphs": { "g": { "nodes": { "a": limit }, "graphs": { "h": { "nodes": {} } } } },
        "options": { "on_ownership_conflict": "error" },
    });
    let (_, warnings) = GraphSpec::from_json(&document).unwrap();
    assert_eq!(warnings, []);
    assert_fits(&validator, &document);
}

#[test]
fn what_is_damaged_does_not_fit() {
    let validator = validator(&built_in());
    let text = fs::read(root().join("examples/pipelines/subgraph.json")).unwrap();
    let whole: Value = serde_json::from_slice(&text).unwrap();
    assert_fits(&validator, &whole);
    let inner = "/graphs/smooth/nodes/limit";
    let damages = [
        ("", json!([])),
        ("/nodes", json!([])),
        ("/nodes/left", json!("graph:smooth")),
        ("/nodes/left/type", json!(3)),
        ("/nodes/left/type", json!("Limiter")),
        ("/nodes/left/type", json!("graph:")),
        ("/nodes/left", json!({ "params": {} })),
        (
            "/nodes/left",
            json!({ "type": "graph:smooth", "params": { "max_fps": 1 } }),
        ),
        (
            "/nodes/left",
            json!({ "type": "graph:smooth", "parms": {} }),
        ),
        ("/nodes/left", json!({ "type": "graph:smooth", "debug": 1 })),
        ("/nodes/left", json!({ "type": "RateLimiter" })),
        (inner, json!({ "type": "RateLimiter", "params": null })),
        (inner, json!({ "type": "RateLimiter", "params": {} })),
        (
            inner,
            json!({ "type": "RateLimiter", "params": { "max_fps": "fast" } }),
        ),
        (
            inner,
            json!({ "type": "RateLimiter", "params": { "max_fps": 0 } }),
        ),
        (
            inner,
            json!({ "type": "RateLimiter", "params": { "max_fps": 1, "pacing": "even" } }),
        ),
        (
            inner,
            json!({ "type": "RateLimiter", "params": { "max_fps": 1, "x": 1 } }),
        ),
        (
            "/graphs/smooth/edges/0",
            json!({ "from": "limit", "to": "space", "out": 0 }),
        ),
        ("/graphs/smooth/edges/0/out", json!(-1)),
        ("/graphs/smooth/edges/0/out", json!(0.5)),
        ("/graphs/smooth/edges/0/in", json!(4_294_967_296_u64)),
        ("/graphs/smooth/edges/0/from", json!(0)),
        ("/graphs/smooth/edges", json!({})),
        ("/graphs/smooth/inputs/frames", json!({ "to": "limit" })),
        (
            "/graphs/smooth/inputs/frames",
            json!([{ "to": "limit", "in": 0, "desc": {} }]),
        ),
        (
            "/graphs/smooth/outputs/frames",
            json!({ "from": "space", "out": 0, "in": 0 }),
        ),
        ("/graphs/smooth", json!({})),
        (
            "/graphs/smooth",
            json!({ "nodes": {}, "graphs": { "x": [] } }),
        ),
        ("/graphs", json!({ "": { "nodes": {} } })),
        ("/inputs/left/desc/dtype", json!("F33")),
        ("/inputs/left/desc/mem_loc", json!("Device:x")),
        ("/inputs/left/desc/shape", json!([1, -1])),
        ("/inputs/left/desc", json!({ "shape": [1], "dtype": "F32" })),
        ("/outputs", json!({ "": { "from": "left", "out": 0 } })),
    ];
    let refuses = |place: &str, document: &Value| {
        assert!(!validator.is_valid(document), "{place}: {document}");
    };
    for (place, value) in damages {
        let mut document = whole.clone();
        *document.pointer_mut(place).unwrap() = value;
        refuses(place, &document);
    }
    for (key, value) in [
        ("version", json!(2)),
        ("edge", json!([])),
        ("options", json!([])),
        ("options", json!({ "on_ownership_conflict": "perhaps" })),
        ("graphs", json!({ "g": { "nodes": {}, "options": {} } })),
        ("$schema", json!(1)),
    ] {
        let mut document = whole.clone();
        document[key] = value;
        refuses(key, &document);
    }
}

// ---------------------------------------------------------------------------------------
// Settings whose schemas have parts of their own

/// A kind with these settings.
struct Kind(TaskInfo);

impl ISyncTaskFactory for Kind {
    fn describe(&self) -> TaskInfo {
        self.0.clone()
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(InferResult::sync([], []))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Err(TaskError::other("it is never run"))
    }
}

mod coarse {
    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only described")]
    pub(super) struct Settings {
        mode: Mode,
    }

    #[derive(Deserialize, JsonSchema)]
    enum Mode {
        Fast,
        Exact,
    }
}

mod fine {
    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only described")]
    pub(super) struct Settings {
        mode: Mode,
        #[serde(default)]
        within: Vec<Settings>,
    }

    #[derive(Deserialize, JsonSchema)]
    enum Mode {
        Short,
        Long,
    }
}

#[test]
fn parts_of_the_same_name_in_two_kinds_stay_apart() {
    let mut registry = Registry::new();
    let mut add = |kind: &str, info: TaskInfo| registry.register_sync(kind, Kind(info)).unwrap();
    add(
        "a/b~c d",
        TaskInfo::new("").with_settings::<coarse::Settings>(),
    );
    add("Fine", TaskInfo::new("").with_settings::<fine::Settings>());
    add(
        "Fine",
        TaskInfo::new("")
            .with_settings::<coarse::Settings>()
            .on_device(),
    );
    add("Plain", TaskInfo::new(""));
    let mut odd = TaskInfo::new("");
    odd.settings = json!("no schema");
    add("Odd", odd);
    let validator = validator(&registry);
    let fits = |kind: &str, settings: Value| {
        validator.is_valid(&json!({ "nodes": { "x": { "type": kind, "params": settings } } }))
    };
    assert!(fits("a/b~c d", json!({ "mode": "Fast" })));
    assert!(!fits("a/b~c d", json!({ "mode": "Short" })));
    assert!(fits(
        "Fine",
        json!({ "mode": "Short", "within": [{ "mode": "Long" }] })
    ));
    assert!(!fits(
        "Fine",
        json!({ "mode": "Short", "within": [{ "mode": "Fast" }] })
    ));
    // The settings of the kind for device memory.
    assert!(fits("Fine", json!({ "mode": "Exact" })));
    assert!(!fits("Fine", json!({ "mode": "Other" })));
    assert!(fits("Plain", Value::Null));
    assert!(fits("Odd", json!([1])));
}
