//! Tests of reading and writing graph files, by the numbers of the required cases.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::graph::{EdgeSpec, InputRef, InputSpec, NodeSpec, OutputSpec};
use crate::ids::NodeId;
use crate::tensor::{DType, MemLoc, TDesc};

fn read(document: &Value) -> GraphSpec {
    let (graph, warnings) = GraphSpec::from_json_str(&document.to_string()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(GraphSpec::from_json(document).unwrap().0, graph);
    graph
}

fn refused(document: &Value) -> String {
    let errors = GraphSpec::from_json(document).unwrap_err();
    for error in &errors {
        assert_eq!(error.kind().to_string(), "graph spec JSON", "{error}");
    }
    let text = GraphSpec::from_json_str(&document.to_string()).unwrap_err();
    assert_eq!(text, errors);
    println!("{errors}");
    errors.to_string()
}

fn two() -> GraphSpec {
    let mut graph = GraphSpec::default();
    let settings = json!({ "fps": 100 });
    let source = graph.add(NodeSpec::new("source", "Camera").with_settings(settings));
    let mut node = NodeSpec::new("sink", "Display");
    node.debug = false;
    let sink = graph.add(node);
    graph.edges.push(EdgeSpec::new((source, 0), (sink, 0)));
    graph
}

#[test]
fn g_01_minimal_round_trip() {
    let first = two().to_json().unwrap();
    let graph = read(&first);
    assert_eq!((graph.nodes.len(), graph.edges.len()), (2, 1));
    assert_eq!(graph.to_json().unwrap(), first);
    assert_eq!(
        first,
        json!({
            "nodes": {
                "source": { "type": "Camera", "params": { "fps": 100 } },
                "sink": { "type": "Display", "params": {}, "debug": false },
            },
            "edges": [ { "from": "source", "to": "sink", "out": 0, "in": 0 } ],
        })
    );
}

#[test]
fn g_02_deterministic_node_numbering() {
    let text = r#"{ "nodes": { "z": { "type": "A" }, "a": { "type": "B" }, "é": { "type": "C" },
                               "B": { "type": "D" } } }"#;
    let (graph, _) = GraphSpec::from_json_str(text).unwrap();
    let names: Vec<_> = graph.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["B", "a", "z", "é"]);
}

#[test]
fn g_03_debug_default() {
    let graph = read(&json!({ "nodes": {
        "a": { "type": "A" },
        "b": { "type": "A", "debug": false },
        "c": { "type": "A", "debug": true },
    } }));
    let debug: Vec<_> = graph.nodes.iter().map(|node| node.debug).collect();
    assert_eq!(debug, [true, false, true]);
}

#[test]
fn g_04_debug_is_only_written_when_false() {
    let written = two().to_json().unwrap();
    assert_eq!(written["nodes"]["source"].get("debug"), None);
    assert_eq!(written["nodes"]["sink"]["debug"], false);
}

#[test]
fn g_05_params_may_be_any_json_value() {
    for params in [
        json!(42),
        json!([1, "x"]),
        json!("text"),
        json!(true),
        json!({ "a": [] }),
    ] {
        let document = json!({ "nodes": { "a": { "type": "A", "params": params } }, "edges": [] });
        let graph = read(&document);
        assert_eq!(graph.nodes[0].settings, params);
        assert_eq!(graph.to_json().unwrap(), document);
    }
}

#[test]
fn g_06_params_null_becomes_an_empty_object() {
    for node in [
        json!({ "type": "A", "params": null }),
        json!({ "type": "A" }),
    ] {
        let graph = read(&json!({ "nodes": { "a": node } }));
        assert_eq!(graph.nodes[0].settings, json!({}));
    }
    let mut graph = GraphSpec::default();
    graph.add(NodeSpec::new("a", "A").with_settings(Value::Null));
    assert_eq!(graph.to_json().unwrap()["nodes"]["a"]["params"], json!({}));
}

#[test]
fn g_08_absent_edges_are_none_and_none_are_written_as_an_empty_array() {
    let graph = read(&json!({ "nodes": {} }));
    assert_eq!(graph, GraphSpec::default());
    assert_eq!(
        graph.to_json().unwrap(),
        json!({ "nodes": {}, "edges": [] })
    );
}

#[test]
fn g_09_rejected_documents() {
    let kind = "found nothing, expected the kind of task, a string";
    let slot = "expected a slot number, a whole number from 0 to 4294967295";
    for (document, expected) in [
        (json!([]), "the document: found [], expected an object"),
        (json!(null), "the document: found null, expected an object"),
        (
            json!({}),
            "nodes: found nothing, expected an object of nodes by name",
        ),
        (
            json!({ "nodes": null }),
            "nodes: found null, expected an object",
        ),
        (
            json!({ "nodes": [] }),
            "nodes: found [], expected an object",
        ),
        (
            json!({ "nodes": { "": { "type": "A" } } }),
            r#"nodes[""]: found an empty name, expected a name"#,
        ),
        (
            json!({ "nodes": { "a": 1 } }),
            "nodes.a: found 1, expected an object",
        ),
        (
            json!({ "nodes": { "a": {} } }),
            &format!("nodes.a.type: {kind}"),
        ),
        (
            json!({ "nodes": { "a": { "type": null } } }),
            "nodes.a.type: found null, expected the kind of task, a string",
        ),
        (
            json!({ "nodes": { "a": { "type": ["A"] } } }),
            r#"nodes.a.type: found ["A"], expected the kind of task, a string"#,
        ),
        (
            json!({ "nodes": { "a": { "type": "A", "debug": null } } }),
            "nodes.a.debug: found null, expected true or false",
        ),
        (
            json!({ "nodes": { "a": { "type": "A", "debug": 1 } } }),
            "nodes.a.debug: found 1, expected true or false",
        ),
        (
            json!({ "nodes": {}, "edges": null }),
            "edges: found null, expected an array of edges",
        ),
        (
            json!({ "nodes": {}, "edges": {} }),
            "edges: found {}, expected an array of edges",
        ),
        (
            json!({ "nodes": {}, "edges": [[]] }),
            "edges[0]: found [], expected an object",
        ),
    ] {
        assert_eq!(refused(&document), expected);
    }
    let name = "expected the name of a node";
    for (key, value, expected) in [
        ("from", json!(null), format!("found null, {name}")),
        ("to", json!(7), format!("found 7, {name}")),
        ("from", json!("zzz"), format!("found `zzz`, {name}")),
        (
            "to",
            json!("B"),
            format!("found `B`, {name}: did you mean `b`?"),
        ),
        ("out", json!(null), format!("found null, {slot}")),
        ("in", json!("0"), format!("found \"0\", {slot}")),
        ("out", json!(1.0), format!("found 1.0, {slot}")),
        ("in", json!(-1), format!("found -1, {slot}")),
        (
            "in",
            json!(4_294_967_296_u64),
            format!("found 4294967296, {slot}"),
        ),
        (
            "out",
            json!(u64::MAX),
            format!("found 18446744073709551615, {slot}"),
        ),
        ("out", json!(1e300), format!("found 1e300, {slot}")),
    ] {
        let mut edge = json!({ "from": "a", "to": "b", "out": 0, "in": 0 });
        edge[key] = value;
        let nodes = json!({ "a": { "type": "A" }, "b": { "type": "A" } });
        let found = refused(&json!({ "nodes": nodes, "edges": [edge.clone()] }));
        assert_eq!(
            found,
            format!("edges[0].{key}: {expected}").replace("1e300", "1e+300")
        );
        edge.as_object_mut().unwrap().remove(key);
        let found = refused(&json!({ "nodes": nodes, "edges": [edge] }));
        assert!(
            found.starts_with(&format!("edges[0].{key}: found nothing, expected ")),
            "{found}"
        );
    }
}

#[test]
fn a_text_that_is_no_json_is_refused_with_line_and_column() {
    let errors = GraphSpec::from_json_str("{ \"nodes\":\n  { , } }").unwrap_err();
    assert_eq!(
        errors.as_slice(),
        [GraphError::Syntax {
            line: 2,
            column: 5,
            problem: "key must be a string".to_owned()
        }]
    );
    assert_eq!(errors.to_string(), "line 2, column 5: key must be a string");
    for text in [
        "",
        "{",
        "{ \"nodes\": {} } x",
        "{ \"nodes\": { \"a\": 1e999 } }",
    ] {
        let errors = GraphSpec::from_json_str(text).unwrap_err();
        println!("{errors}");
        assert_eq!(errors.as_slice()[0].kind().to_string(), "graph spec JSON");
    }
    assert!(GraphSpec::from_json_str("\u{feff}{ \"nodes\": {} }").is_ok());
}

#[test]
fn a_key_that_is_there_twice_is_an_error_wherever_it_is() {
    let text = r#"{
        "nodes": {
            "a": { "type": "A", "params": { "x": [ { "y": 1, "y": 1 } ] }, "type": "A" },
            "a": { "type": "B" },
            "b.c": { "type": "B" }
        },
        "edges": [],
        "edges": [ { "from": "a", "to": "a", "out": 0, "out": 0, "in": 0 } ],
        "inputs": { "i": [], "i": [] },
        "outputs": { "o": { "from": "a", "from": "a", "out": 0 } },
        "graphs": { "g": { "nodes": {} }, "g": { "nodes": { "\u0061": {}, "a": {} } } },
        "options": { "threads": 1, "threads": 1, "threads": 1 }
    }"#;
    let errors = GraphSpec::from_json_str(text).unwrap_err();
    let expected = [
        "nodes.a.params.x[0].y: found twice, expected once",
        "nodes.a.type: found twice, expected once",
        "nodes.a: found twice, expected once",
        "edges: found twice, expected once",
        "edges[0].out: found twice, expected once",
        "inputs.i: found twice, expected once",
        "outputs.o.from: found twice, expected once",
        "graphs.g: found twice, expected once",
        "graphs.g.nodes.a: found twice, expected once",
        "options.threads: found twice, expected once",
        "options.threads: found twice, expected once",
        "graphs.g.nodes.a.type: found nothing, expected the kind of task, a string",
    ];
    assert_eq!(errors.to_string(), expected.join("\n"));
    let first = &errors.as_slice()[0];
    assert_eq!(first.kind().to_string(), "graph spec JSON");
    assert_eq!(first.place(), "nodes.a.params.x[0].y");
}

#[test]
fn g_11_error_messages_locate_the_fault_and_all_are_reported() {
    let found = refused(&json!({
        "nodes": { "fft": { "typ": "Fft" }, "we.ird": { "type": 1 }, "ok": { "type": "A" } },
        "edges": [
            { "from": "ok", "to": "fft", "out": 0, "in": 0 },
            { "form": "ok", "to": "ftf", "out": 0, "in": 0 },
            7,
        ],
        "inputs": {
            "a": { "to": "fft" },
            "b": [ { "to": "fft", "in": 0 }, { "to": "oks", "in": "x" }, 3 ],
            "c": { "to": [ 1 ], "desc": { "shape": [1, -1], "dtype": "F32", "mem_loc": "Host" } },
            "d": "fft",
            "": { "to": "ok", "in": 0, "desc": { "shape": [1], "dtype": "f32", "mem_loc": "Host" } },
            "e": { "to": "ok", "in": 0, "desc": null },
        },
        "outputs": { "o": { "from": "nowhere", "out": true }, "p": [] },
        "graphs": {
            "inner": {
                "nodes": { "a": { "type": "A", "debug": "no" } },
                "edges": [ { "from": "fft", "to": "a", "out": 0, "in": 0 } ],
                "version": 2,
            },
            "none": null,
        },
        "options": [],
        "version": 1.0,
    }));
    let kind = "expected the kind of task, a string";
    let name = "expected the name of a node";
    let slot = "expected a slot number, a whole number from 0 to 4294967295";
    let expected = [
        "version: found 1.0, expected 1",
        &format!("nodes.fft.type: found nothing, {kind}: did you mean `typ`?"),
        &format!(r#"nodes["we.ird"].type: found 1, {kind}"#),
        &format!("edges[1].from: found nothing, {name}: did you mean `form`?"),
        &format!("edges[1].to: found `ftf`, {name}: did you mean `fft`?"),
        "edges[2]: found 7, expected an object",
        r#"inputs[""]: found an empty name, expected a name"#,
        r#"inputs[""].desc.dtype: unknown element type `f32` (did you mean `F32`?), expected one of Bool, U8, I8, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64, CF32, CF64"#,
        &format!("inputs.a.in: found nothing, {slot}"),
        &format!("inputs.b[1].to: found `oks`, {name}: did you mean `ok`?"),
        &format!("inputs.b[1].in: found \"x\", {slot}"),
        "inputs.b[2]: found 3, expected an object",
        "inputs.c.desc.shape[1]: invalid value: integer `-1`, expected usize",
        "inputs.c.to[0]: found 1, expected an object",
        "inputs.d: found \"fft\", expected an object, or a list of objects, with `to` and `in`",
        "inputs.e.desc: found null, expected an object with `shape`, `dtype` and `mem_loc`",
        &format!("outputs.o.from: found `nowhere`, {name}"),
        &format!("outputs.o.out: found true, {slot}"),
        "outputs.p: found [], expected an object",
        "graphs.inner.version: found 2, expected 1",
        "graphs.inner.nodes.a.debug: found \"no\", expected true or false",
        &format!("graphs.inner.edges[0].from: found `fft`, {name}"),
        "graphs.none: found null, expected an object",
        "options: found [], expected an object",
    ];
    let mut found: Vec<_> = found.lines().collect();
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn g_14_writing_a_graph_with_an_unnamed_node_is_an_error() {
    let mut graph = GraphSpec::default();
    let a = graph.add(NodeSpec::new("a", "A"));
    let unnamed = graph.add(NodeSpec::new("", "A"));
    let message = "nodes[1]: found an empty name, expected one";
    assert_eq!(graph.to_json().unwrap_err().to_string(), message);
    graph.edges.push(EdgeSpec::new((a, 0), (unnamed, 0)));
    assert_eq!(graph.to_json().unwrap_err().to_string(), message);
}

#[test]
fn what_no_file_can_say_is_not_written() {
    let mut graph = two();
    graph.add(NodeSpec::new("sink", "Display"));
    let error = graph.to_json().unwrap_err();
    assert_eq!(
        error.to_string(),
        "nodes.sink: found twice, as nodes 1 and 2, expected once"
    );
    let mut graph = two();
    let far = NodeId::new(9);
    graph.outputs.insert("o".into(), OutputSpec::new(far, 0));
    let error = graph.to_json().unwrap_err();
    assert_eq!(
        error.to_string(),
        "outputs.o.from: found node 9, expected one of the 2 nodes there are"
    );
}

/// `value` in `depth` arrays.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |value, _| json!([value]))
}

#[test]
fn what_a_parser_would_not_read_again_is_not_written() {
    // As deep as can be: graphs in graphs, and settings in the innermost.
    let deep = |levels: usize, settings: usize| {
        let mut graph = GraphSpec::default();
        graph.add(NodeSpec::new("a", "A").with_settings(nested(settings)));
        for _ in 0..levels {
            let mut outer = GraphSpec::default();
            outer.graphs.insert("g".into(), graph);
            graph = outer;
        }
        graph
    };
    for (levels, settings) in [(0, 124), (60, 4)] {
        let graph = deep(levels, settings);
        assert_eq!(read(&graph.to_json().unwrap()), graph);
        let errors = deep(levels, settings + 1).to_json().unwrap_err();
        let expected = "params: nested 128 levels deep, expected at most 127";
        assert!(errors.to_string().ends_with(expected), "{errors}");
    }
    let mut graph = GraphSpec::default();
    graph.options.insert("x".into(), nested(126));
    assert_eq!(
        graph.to_json().unwrap_err().to_string(),
        "options.x: nested 128 levels deep, expected at most 127"
    );
    let errors = deep(61, 0).to_json().unwrap_err();
    let expected = "graphs.g: nested 61 levels deep, expected at most 60";
    assert!(errors.to_string().ends_with(expected), "{errors}");
    let mut document = json!({ "nodes": {} });
    for _ in 0..61 {
        document = json!({ "nodes": {}, "graphs": { "g": document } });
    }
    assert!(refused(&document).ends_with(expected));
}

#[test]
fn the_key_by_which_editors_find_the_schema_is_known_in_the_root_only() {
    let document = json!({
        "$schema": "graph.schema.json",
        "nodes": {},
        "graphs": { "g": { "nodes": {}, "$schema": "x" } },
    });
    let (graph, warnings) = GraphSpec::from_json(&document).unwrap();
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["graphs.g[\"$schema\"]: unknown key, which is ignored"]
    );
    assert!(graph.to_json().unwrap().get("$schema").is_none());
}

#[test]
fn g_17_unknown_extra_keys_are_warnings_with_a_near_match() {
    let document = json!({
        "nodes": { "a": { "type": "A", "parms": 1, "debgu": 2 }, "b": { "type": "A", "type2": 1 } },
        "edges": [ { "from": "a", "to": "b", "out": 0, "in": 0, "label": "x", "inn": 1 } ],
        "edge": [],
        "inputs": {
            "i": { "to": "a", "in": 0, "dsec": 1 },
            "j": [ { "to": "a", "in": 1, "desc": 1 } ],
            "k": { "to": [ { "to": "a", "in": 2 } ], "in": 1 },
        },
        "outputs": { "o": { "from": "b", "out": 0, "in": 0 } },
        "graphs": { "g": { "nodes": {}, "comment": "x", "options": { "threads": 1 } } },
        "option": {},
        "comment": "x",
    });
    let (graph, warnings) = GraphSpec::from_json(&document).unwrap();
    assert_eq!((graph.nodes.len(), graph.edges.len()), (2, 1));
    let expected = [
        "comment: unknown key, which is ignored",
        "edge: unknown key, which is ignored",
        "option: unknown key, which is ignored: did you mean `options`?",
        "nodes.a.debgu: unknown key, which is ignored: did you mean `debug`?",
        "nodes.a.parms: unknown key, which is ignored: did you mean `params`?",
        "nodes.b.type2: unknown key, which is ignored",
        "edges[0].inn: unknown key, which is ignored",
        "edges[0].label: unknown key, which is ignored",
        "inputs.i.dsec: unknown key, which is ignored: did you mean `desc`?",
        "inputs.j[0].desc: unknown key, which is ignored",
        "inputs.k.in: unknown key, which is ignored",
        "outputs.o.in: unknown key, which is ignored",
        "graphs.g.comment: unknown key, which is ignored",
        "graphs.g.options: options of a subgraph have no effect",
    ];
    let found: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
    assert_eq!(warnings[0].place(), "comment");
    // A document that is refused has its warnings too.
    let errors = GraphSpec::from_json_str(r#"{ "nodes": {}, "edge": [], "edges": 1 }"#);
    let errors = errors.unwrap_err();
    assert_eq!(errors.warnings()[0].place(), "edge");
}

#[test]
fn g_18_edges_keep_their_order_and_parallel_edges_are_kept() {
    let edge = |from: &str, to: &str, out: usize, input: usize| json!({ "from": from, "to": to, "out": out, "in": input });
    let document = json!({
        "nodes": {
            "b": { "type": "B", "params": {} },
            "a": { "type": "A", "params": {} },
        },
        "edges": [
            edge("b", "a", 1, 0),
            edge("a", "b", 0, 1),
            edge("a", "b", 0, 0),
            edge("a", "b", 0, 1),
        ],
    });
    let graph = read(&document);
    assert_eq!(graph.edges.len(), 4);
    assert_eq!(graph.to_json().unwrap(), document);
}

#[test]
fn g_20_edges_refer_to_nodes_by_exact_name() {
    for name in ["A", "a ", " a", "á"] {
        let found = refused(&json!({
            "nodes": { "a": { "type": "A" } },
            "edges": [ { "from": name, "to": "a", "out": 0, "in": 0 } ],
        }));
        assert!(
            found.starts_with(&format!("edges[0].from: found `{name}`, ")),
            "{found}"
        );
    }
}

#[test]
fn inputs_are_written_in_the_shortest_of_their_forms() {
    let desc = TDesc::new([2, 3], DType::F32, MemLoc::Host).unwrap();
    let layout = json!({ "shape": [2, 3], "dtype": "F32", "mem_loc": "Host", "strides": [12, 4] });
    let mut graph = GraphSpec::default();
    let a = graph.add(NodeSpec::new("a", "A"));
    let target = |input| InputRef { node: a, input };
    for (name, to, desc) in [
        ("none", vec![], None),
        ("none_desc", vec![], Some(&desc)),
        ("one", vec![target(0)], None),
        ("one_desc", vec![target(1)], Some(&desc)),
        ("two", vec![target(3), target(2)], None),
        ("two_desc", vec![target(4), target(5)], Some(&desc)),
    ] {
        let desc = desc.cloned();
        graph.inputs.insert(name.into(), InputSpec { to, desc });
    }
    let written = graph.to_json().unwrap();
    let at = |input: usize| json!({ "to": "a", "in": input });
    assert_eq!(
        written["inputs"],
        json!({
            "none": [],
            "none_desc": { "to": [], "desc": layout },
            "one": at(0),
            "one_desc": { "to": "a", "in": 1, "desc": layout },
            "two": [ at(3), at(2) ],
            "two_desc": { "to": [ at(4), at(5) ], "desc": layout },
        })
    );
    assert_eq!(read(&written), graph);
}

#[test]
fn a_document_full_of_misspelt_names_is_read_in_bounded_time() {
    let nodes: serde_json::Map<_, _> = (0..3_000)
        .map(|n| (format!("node_number_{n}"), json!({ "type": "A" })))
        .collect();
    let edges: Vec<_> = (0..3_000)
        .map(|n| json!({ "from": format!("node_nmuber_{n}"), "to": "x", "out": 0, "in": 0 }))
        .collect();
    let document = json!({ "nodes": nodes, "edges": edges });
    let errors = GraphSpec::from_json(&document).unwrap_err();
    assert_eq!(errors.as_slice().len(), 6_000);
    let hints = errors.to_string().matches("did you mean").count();
    assert!((1..200).contains(&hints), "{hints}");
}

/// The description as reading gives it: nodes by name, null settings as an empty object.
fn canonical(graph: &GraphSpec) -> GraphSpec {
    let mut order: Vec<_> = (0..graph.nodes.len()).collect();
    order.sort_by_key(|index| &graph.nodes[*index].name);
    let mut ids = vec![NodeId::new(0); order.len()];
    for (new, old) in (0..).zip(&order) {
        ids[*old] = NodeId::new(new);
    }
    let mut canon = graph.clone();
    canon.nodes = order
        .iter()
        .map(|index| graph.nodes[*index].clone())
        .collect();
    for node in &mut canon.nodes {
        if node.settings.is_null() {
            node.settings = json!({});
        }
    }
    for edge in &mut canon.edges {
        edge.from = ids[edge.from.index()];
        edge.to = ids[edge.to.index()];
    }
    for to in canon.inputs.values_mut().flat_map(|input| &mut input.to) {
        to.node = ids[to.node.index()];
    }
    for output in canon.outputs.values_mut() {
        output.node = ids[output.node.index()];
    }
    for inner in canon.graphs.values_mut() {
        *inner = canonical(inner);
    }
    canon
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,2}",
        "[ :./\"\\\\\\[\\]{}\n\r\t\u{0}é漢🦀]{1,4}",
        any::<String>().prop_filter("named", |name| !name.is_empty()),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn layout() -> impl Strategy<Value = Option<TDesc>> {
    let axes = prop::collection::vec((0_usize..5, 0_usize..64), 0..4);
    let locations = [MemLoc::Host, MemLoc::HostPinned, MemLoc::Device(3)];
    let desc = (axes, 0..DType::ALL.len(), 0..3_usize, 0_usize..9);
    prop::option::of(desc.prop_map(move |(axes, dtype, location, offset)| {
        let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
        let (dtype, location) = (DType::ALL[dtype], locations[location]);
        TDesc::with_layout(shape, dtype, location, strides, offset).unwrap()
    }))
}

type End = (prop::sample::Index, u32);

/// A graph around `graphs`, with any nodes, edges, inputs and outputs.
fn level(
    graphs: impl Strategy<Value = Vec<(String, GraphSpec)>>,
) -> impl Strategy<Value = GraphSpec> {
    let node = (".{0,6}", json_value(), any::<bool>());
    let nodes = prop::collection::btree_map(name(), node, 0..5);
    let end = any::<End>();
    let ends = prop::collection::vec((end.clone(), end.clone()), 0..6);
    let input = (prop::collection::vec(end.clone(), 0..4), layout());
    let inputs = prop::collection::btree_map(name(), input, 0..3);
    let outputs = prop::collection::btree_map(name(), end, 0..3);
    let options = prop::collection::btree_map(".{0,4}", json_value(), 0..2);
    let parts = (nodes, any::<u64>(), ends, inputs, outputs, graphs, options);
    parts.prop_map(|(nodes, seed, ends, inputs, outputs, graphs, options)| {
        let mut graph = GraphSpec::default();
        for (name, (kind, settings, debug)) in nodes {
            let mut node = NodeSpec::new(name, kind).with_settings(settings);
            node.debug = debug;
            graph.add(node);
        }
        // In an order of no meaning.
        let count = graph.nodes.len();
        if count > 0 {
            graph.nodes.rotate_left(seed as usize % count);
            let id = |(index, slot): &End| {
                let node = u32::try_from(index.index(count)).unwrap();
                (NodeId::new(node), *slot as usize)
            };
            let edges = ends
                .iter()
                .map(|(from, to)| EdgeSpec::new(id(from), id(to)));
            graph.edges = edges.collect();
            for (name, (to, desc)) in inputs {
                let to = to.iter().map(|to| {
                    let (node, input) = id(to);
                    InputRef { node, input }
                });
                let to = to.collect();
                graph.inputs.insert(name, InputSpec { to, desc });
            }
            for (name, from) in outputs {
                let (node, output) = id(&from);
                graph.outputs.insert(name, OutputSpec { node, output });
            }
        }
        graph.graphs = graphs.into_iter().collect();
        graph.options = options.into_iter().collect();
        graph
    })
}

fn any_graph() -> impl Strategy<Value = GraphSpec> {
    let inner = level(Just(Vec::new()));
    let middle = level(prop::collection::vec((name(), inner), 0..3));
    level(prop::collection::vec((name(), middle), 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..Default::default() })]
    #[test]
    fn what_is_written_reads_back_equal(graph in any_graph()) {
        let written = graph.to_json().unwrap();
        let expected = canonical(&graph);
        prop_assert_eq!(&GraphSpec::from_json(&written).unwrap().0, &expected);
        prop_assert_eq!(&expected.to_json().unwrap(), &written);
        for text in [written.to_string(), serde_json::to_string_pretty(&written).unwrap()] {
            prop_assert_eq!(&GraphSpec::from_json_str(&text).unwrap().0, &expected);
        }
    }

    #[test]
    fn no_document_makes_the_reader_panic(document in json_value(), text in ".{0,40}") {
        let _ = GraphSpec::from_json(&document);
        let _ = GraphSpec::from_json_str(&text);
        for key in ["nodes", "edges", "inputs", "outputs", "graphs", "options", "version"] {
            let mut valid = two().to_json().unwrap();
            valid[key] = document.clone();
            let _ = GraphSpec::from_json_str(&valid.to_string());
        }
    }
}
