//! The command as a user has it: the binary, with files and pipes.
//!
//! Every message is provoked here or in the facade's `cli::tests`, which reach what a process
//! cannot.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holoflow::compiler::Compiler;
use holoflow::graph::GraphSpec;
use holoflow::registry::Registry;
use serde_json::{Value, json};

/// Exit status, output and errors.
type Answer = (Option<i32>, String, String);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn holoflow(arguments: &[&str], input: &str) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holoflow"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads nothing may have ended before it is written to.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let answer = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        answer.status.code(),
        text(answer.stdout),
        text(answer.stderr),
    )
}

#[track_caller]
fn assert_answer(answer: Answer, status: i32, output: &str, errors: &str) {
    assert_eq!(answer, (Some(status), output.to_owned(), errors.to_owned()));
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    holoflow::cpu::register_all(&mut registry).unwrap();
    registry
}

/// The example files, as paths from the root.
fn examples() -> Vec<String> {
    let entries = fs::read_dir(root().join("examples/pipelines")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut paths: Vec<_> = names
        .filter(|name| name.ends_with(".json"))
        .map(|name| format!("examples/pipelines/{name}"))
        .collect();
    paths.sort();
    assert!(paths.len() > 2, "{paths:?}");
    paths
}

#[test]
fn the_example_files_are_right() {
    for path in examples() {
        let (status, output, errors) = holoflow(&["check", &path], "");
        assert_eq!((status, &*errors), (Some(0), ""), "{path}");
        assert!(output.starts_with(&format!("{path}: ok, ")), "{output}");
    }
}

#[test]
fn plans_and_drawings_are_those_of_the_library() {
    let registry = registry();
    for path in examples() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let (graph, _) = GraphSpec::from_json_str(&text).unwrap();
        let plan = Compiler::new(&registry).plan(&graph).unwrap();
        assert_answer(holoflow(&["plan", &path], ""), 0, &plan.to_string(), "");
        assert_answer(holoflow(&["dot", &path], ""), 0, &graph.to_dot(), "");
        let compiled = holoflow(&["dot", "--compiled", &path], "");
        assert_answer(compiled, 0, &plan.to_dot(), "");
    }
}

#[test]
fn a_right_file_is_counted() {
    let limited = holoflow(&["check", "examples/pipelines/limited.json"], "");
    let output = "examples/pipelines/limited.json: ok, 1 node in 2 sections\n";
    assert_answer(limited, 0, output, "");
    let empty = holoflow(&["check", "-"], r#"{ "nodes": {} }"#);
    assert_answer(empty, 0, "<stdin>: ok, 0 nodes in 0 sections\n", "");
}

#[test]
fn all_that_is_wrong_with_a_text_is_said_line_by_line() {
    let text = r#"{
        "nodes": { "src": { "kind": "Camera" }, "fft": { "type": "Fft", "parms": {} } },
        "edges": [
            { "from": "scr", "to": "fft", "out": 0, "in": 1.0 },
            { "from": "src", "to": "fft", "out": 0 }
        ],
        "outputs": { "x": { "from": "fft", "out": 0 }, "x": { "from": "fft", "out": 0 } },
        "version": 2
    }"#;
    let expected = [
        "warning: nodes.fft.parms: unknown key, which is ignored: did you mean `params`?",
        "warning: nodes.src.kind: unknown key, which is ignored",
        "error: outputs.x: found twice, expected once",
        "error: version: found 2, expected 1",
        "error: nodes.src.type: found nothing, expected the kind of task, a string",
        "error: edges[0].from: found `scr`, expected the name of a node: did you mean `src`?",
        "error: edges[0].in: found 1.0, expected a slot number, a whole number from 0 to 4294967295",
        "error: edges[1].in: found nothing, expected a slot number, a whole number from 0 to 4294967295",
    ];
    let expected: String = expected
        .iter()
        .map(|line| format!("<stdin>: {line}\n"))
        .collect();
    for arguments in [
        &["check", "-"][..],
        &["plan", "-"],
        &["dot", "-"],
        &["dot", "--compiled", "-"],
    ] {
        assert_answer(holoflow(arguments, text), 1, "", &expected);
    }
}

#[test]
fn all_that_is_wrong_with_a_graph_is_said_line_by_line() {
    let graph = json!({
        "nodes": {
            "a": { "type": "RateLimter", "params": { "max_fps": 1 } },
            "b": { "type": "RateLimiter", "params": { "max_fps": 1 } },
        },
        "inputs": { "frames": [ { "to": "a", "in": 0 }, { "to": "b", "in": 0 } ] },
    });
    let expected = "\
        <stdin>: error: nodes.a.type: no task of kind `RateLimter` is registered: did you mean \
        `RateLimiter`?\n\
        <stdin>: error: inputs.frames: the layout is not known: write it as `desc`, or give it when \
        compiling\n";
    for arguments in [
        &["check", "-"][..],
        &["plan", "-"],
        &["dot", "--compiled", "-"],
    ] {
        assert_answer(holoflow(arguments, &graph.to_string()), 1, "", expected);
    }
    // It can be drawn all the same.
    let (status, output, errors) = holoflow(&["dot", "-"], &graph.to_string());
    assert_eq!((status, &*errors), (Some(0), ""));
    assert!(output.contains("[RateLimter]"), "{output}");
}

#[test]
fn what_a_factory_refuses_is_said_with_its_place() {
    let mut graph: Value = serde_json::from_str(
        &fs::read_to_string(root().join("examples/pipelines/limited.json")).unwrap(),
    )
    .unwrap();
    for (settings, expected) in [
        (
            json!({}),
            "`max_fps`: found nothing, expected a value: it has no default",
        ),
        (
            json!({ "max_fps": 0 }),
            "`max_fps`: found 0, expected a rate from 1e-6 to 1e9 frames a second",
        ),
        (
            json!({ "max_fps": "x" }),
            "`max_fps`: found \"x\", expected a number",
        ),
    ] {
        graph["nodes"]["limit"]["params"] = settings;
        let expected = format!("<stdin>: error: nodes.limit: setting {expected}\n");
        assert_answer(
            holoflow(&["check", "-"], &graph.to_string()),
            1,
            "",
            &expected,
        );
    }
}

#[test]
fn errors_in_subgraphs_have_their_place_in_the_file() {
    let graph = json!({
        "nodes": { "a": { "type": "graph:smoth" } },
        "graphs": { "smooth": { "nodes": {} } },
    });
    let expected = "<stdin>: error: nodes.a.type: found `graph:smoth`, expected the name of a subgraph \
                    there is: did you mean `smooth`?\n";
    assert_answer(
        holoflow(&["check", "-"], &graph.to_string()),
        1,
        "",
        expected,
    );
}

#[test]
fn a_warning_is_said_and_changes_nothing_else() {
    let text =
        r#"{ "nodes": {}, "edge": [], "graphs": { "g": { "nodes": {}, "options": { "x": 1 } } } }"#;
    let expected = "<stdin>: warning: edge: unknown key, which is ignored: did you mean `edges`?\n\
                    <stdin>: warning: graphs.g.options: options of a subgraph have no effect\n";
    let output = "<stdin>: ok, 0 nodes in 0 sections\n";
    assert_answer(holoflow(&["check", "-"], text), 0, output, expected);
}

#[test]
fn what_is_no_json_is_said_with_line_and_column() {
    let expected = "<stdin>: error: line 2, column 0: EOF while parsing an object\n";
    assert_answer(holoflow(&["check", "-"], "{\n"), 1, "", expected);
    let expected = "<stdin>: error: the document: found [], expected an object\n";
    assert_answer(holoflow(&["check", "-"], "[]"), 1, "", expected);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let (status, output, errors) = holoflow(&["check", "no/such.json"], "");
    assert_eq!((status, &*output), (Some(1), ""));
    assert!(
        errors.starts_with("no/such.json: error: the file cannot be read: "),
        "{errors}"
    );
}

#[test]
fn tasks_are_listed_with_memory_and_help() {
    let (status, output, errors) = holoflow(&["tasks"], "");
    assert_eq!((status, &*errors), (Some(0), ""));
    let registry = registry();
    let mut lines = output.lines();
    let head: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["KIND", "TASK", "MEMORY", "HELP"]);
    for (kind, _, factory) in registry.factories() {
        let line = lines.next().unwrap();
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some(kind));
        assert!(matches!(words.next(), Some("sync" | "async")), "{line}");
        assert!(matches!(words.next(), Some("host" | "device")), "{line}");
        assert!(line.ends_with(&factory.describe().help), "{line}");
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn the_settings_of_a_kind_are_a_table() {
    let (status, output, errors) = holoflow(&["tasks", "OwnedRateLimiter"], "");
    assert_eq!((status, &*errors), (Some(0), ""));
    let expected = "\
OwnedRateLimiter: async task in host memory
Passes on at most `max_fps` frames a second, without copying.

SETTING  TYPE                     DEFAULT     DESCRIPTION
max_fps  number from 1e-6 to 1e9  required    Highest rate, in frames a second, from 1e-6 to 1e9.
pacing   \"schedule\" | \"spacing\"   \"schedule\"  `schedule`: at whole periods from the start, missed ones are \
skipped. `spacing`: one period after the last frame.
";
    assert_eq!(output, expected);
}

#[test]
fn tasks_as_json_hold_all_that_the_factories_say() {
    let (status, output, _) = holoflow(&["tasks", "--json"], "");
    assert_eq!(status, Some(0));
    let found: Value = serde_json::from_str(&output).unwrap();
    let registry = registry();
    let factories: Vec<_> = registry.factories().collect();
    assert_eq!(found.as_array().unwrap().len(), factories.len());
    for (number, (kind, _, factory)) in factories.into_iter().enumerate() {
        assert_eq!(found[number]["kind"], kind);
        assert_eq!(found[number]["settings"], factory.describe().settings);
    }
    let (_, output, _) = holoflow(&["tasks", "RateLimiter", "--json"], "");
    let one: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(one.as_array().unwrap().len(), 1);
    assert_eq!(one[0]["task"], "async");
}

#[test]
fn an_unknown_kind_is_an_error_with_a_near_match() {
    let expected =
        "error: no task of kind `ratelimter` is registered: did you mean `RateLimiter`?\n";
    assert_answer(holoflow(&["tasks", "ratelimter"], ""), 1, "", expected);
    assert_answer(
        holoflow(&["tasks", "ratelimter", "--json"], ""),
        1,
        "",
        expected,
    );
}

/// 1000 numbers through a queue into a sum.
fn numbers() -> Value {
    json!({
        "nodes": {
            "numbers": { "type": "Counter",
                "params": { "count": 1000, "shape": [4], "dtype": "U16" } },
            "queue": { "type": "BatchQueue",
                "params": { "target_capacity": 64, "output_size": 4, "output_stride": 4 } },
            "copy": { "type": "Copy" },
            "sum": { "type": "Checksum" },
            "none": { "type": "NullSink" },
        },
        "edges": [
            { "from": "numbers", "to": "queue", "out": 0, "in": 0 },
            { "from": "queue", "to": "copy", "out": 0, "in": 0 },
            { "from": "copy", "to": "sum", "out": 0, "in": 0 },
            { "from": "queue", "to": "none", "out": 0, "in": 0 },
        ],
    })
}

#[test]
fn a_graph_is_run_and_reported() {
    let graph = numbers().to_string();
    let (status, output, errors) = holoflow(&["run", "-"], &graph);
    assert_eq!((status, &*errors), (Some(0), ""));
    assert!(output.starts_with("completed after "), "{output}");
    assert!(output.contains("checksum: \"9c875736\"\n"), "{output}");

    let arguments = [
        "run",
        "-",
        "--report=json",
        "--set=numbers.count=null",
        "--frames=10",
    ];
    let (status, output, errors) = holoflow(&arguments, &graph);
    assert_eq!((status, &*errors), (Some(0), ""));
    let report: Value = serde_json::from_str(&output).unwrap();
    let nodes = report["nodes"].as_array().unwrap();
    let sum = nodes.iter().find(|node| node["name"] == "sum").unwrap();
    assert_eq!(sum["kind"], "Checksum");
    assert_eq!(sum["results"]["frames"], 10);
    assert_eq!(report["outcome"], "completed");
}

#[test]
fn the_status_says_how_a_run_ended() {
    let graph = numbers().to_string();
    let discard = [
        "--set=numbers.shape=[1]",
        "--set=numbers.count=3",
        "--set=queue.output_size=2",
        "--set=queue.output_stride=2",
        "--set=queue.at_end=discard",
    ];
    for (arguments, expected, begins, message) in [
        (
            &["--set=numbers.count=null", "--duration=0"][..],
            0,
            "finished after ",
            "",
        ),
        (
            &["--set=qeue.output_size=1"],
            1,
            "",
            "<stdin>: error: --set qeue.output_size: found `qeue`, expected the name of a node: \
             did you mean `queue`?\n",
        ),
        (
            &["--set=sum.expect=x"],
            1,
            "",
            "<stdin>: error: nodes.sum: setting `expect`: found \"x\", expected eight hexadecimal \
             digits",
        ),
        (
            &["--set=sum.expect=\"00000000\""],
            2,
            "completed after ",
            "<stdin>: error: node `sum`, run_ended: the task failed: the checksum of 1000 frames: \
             found 9c875736, expected 00000000 ",
        ),
        (
            &discard,
            3,
            "completed after ",
            "<stdin>: warning: node `queue`: 1 dropped, 0 failed\n",
        ),
    ] {
        let arguments = [&["run", "-"], arguments].concat();
        let (status, output, errors) = holoflow(&arguments, &graph);
        assert_eq!(status, Some(expected), "{errors}");
        assert!(output.starts_with(begins), "{output}");
        assert!(errors.starts_with(message), "{errors}");
        let silent = (begins.is_empty(), message.is_empty());
        assert_eq!((output.is_empty(), errors.is_empty()), silent);
    }
}

#[test]
fn arguments_that_make_no_sense_have_status_2() {
    for (arguments, expected) in [
        (&["chek"][..], "unrecognized subcommand 'chek'"),
        (&["plann"], "a similar subcommand exists: 'plan'"),
        (&["check"], "<FILE>"),
        (
            &["check", "a.json", "b.json"],
            "unexpected argument 'b.json'",
        ),
        (
            &["plan", "--compiled", "a.json"],
            "unexpected argument '--compiled'",
        ),
        (&["dot", "a.json", "--compild"], "'--compiled'"),
        (&["schema", "x"], "unexpected argument 'x'"),
    ] {
        let (status, output, errors) = holoflow(arguments, "");
        assert_eq!((status, &*output), (Some(2), ""), "{arguments:?}");
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn every_subcommand_has_help() {
    let (status, output, errors) = holoflow(&[], "");
    assert_eq!((status, &*errors), (Some(0), ""));
    for name in ["check", "plan", "dot", "run", "tasks", "schema"] {
        assert!(output.contains(&format!("\n  {name} ")), "{output}");
        let (status, output, errors) = holoflow(&[name, "--help"], "");
        assert_eq!((status, &*errors), (Some(0), ""));
        assert!(
            output.contains(&format!("Usage: holoflow {name}")),
            "{output}"
        );
    }
}
