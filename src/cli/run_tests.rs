//! `holoflow run`: statuses, streams and messages, with a source that does what it is told to.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use holoflow_core::graph::GraphSpec;
use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, RunCtx, SyncCtx, TaskError,
    TaskInfo, TaskRequest, TaskResult,
};
use holoflow_core::tensor::TDesc;
use serde_json::{Value, json};

use super::*;

/// A source of numbers without end. Settings: `fail_at` fails with that frame, `refuse` at the
/// start, `complain` at the end; `tell` is emitted with the first frame; `hang` lasts until the
/// run is cancelled, and `wait` at the gate.
struct Numbers {
    settings: Value,
    gate: Option<Gate<Sender<()>, Receiver<()>>>,
    made: u64,
}

struct NumbersFactory(Mutex<Option<Gate<Sender<()>, Receiver<()>>>>);

/// Where the source waits with its first frame, as one of its sides sees it.
struct Gate<R, O> {
    reached: R,
    opened: O,
}

impl ISyncTask for Numbers {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        if self.settings["fail_at"] == self.made {
            return Err(TaskError::other("out of numbers"));
        }
        if self.made == 0 {
            if self.settings["tell"] != Value::Null {
                ctx.emit(self.settings["tell"].clone());
            }
            if let Some(gate) = self.gate.take() {
                gate.reached.send(()).unwrap();
                // Not for ever: a test that fails is to end.
                gate.opened.recv_timeout(Duration::from_secs(20)).unwrap();
            }
        }
        if self.settings["hang"] == true {
            while !ctx.is_cancelled() {
                std::thread::yield_now();
            }
            return Ok(OpResult::Cancelled);
        }
        ctx.outputs.get_mut::<u64>(0)?[0] = self.made;
        self.made += 1;
        Ok(OpResult::Ok)
    }

    fn run_started(&mut self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        match self.settings["refuse"] == true {
            true => Err(TaskError::other("no numbers today")),
            false => Ok(()),
        }
    }

    fn run_ended(&mut self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        match self.settings["complain"] == true {
            true => Err(TaskError::other("numbers are left")),
            false => Ok(()),
        }
    }
}

impl ISyncTaskFactory for NumbersFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Numbers without end.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [] = request.exactly::<0>()?;
        Ok(InferResult::sync([], [TDesc::host::<u64>([1])?]))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        let settings = request.settings::<Value>()?;
        let waits = settings["wait"] == true;
        Ok(Box::new(Numbers {
            gate: self.0.lock().unwrap().take().filter(|_| waits),
            settings,
            made: 0,
        }))
    }
}

/// The registry, and the gate.
fn registry() -> (Registry, Gate<Receiver<()>, Sender<()>>) {
    let (reaches, reached) = channel();
    let (opens, opened) = channel();
    let gate = Gate {
        reached: reaches,
        opened,
    };
    let mut registry = Registry::new();
    holoflow_cpu::register_all(&mut registry).unwrap();
    let numbers = NumbersFactory(Mutex::new(Some(gate)));
    registry.register_sync("Numbers", numbers).unwrap();
    let gate = Gate {
        reached,
        opened: opens,
    };
    (registry, gate)
}

/// Numbers go through a queue into a sum.
const GRAPH: &str = r#"{
    "nodes": {
        "numbers": { "type": "Numbers" },
        "queue": { "type": "BatchQueue",
            "params": { "target_capacity": 8, "output_size": 1, "output_stride": 1 } },
        "sum": { "type": "Checksum" }
    },
    "edges": [
        { "from": "numbers", "to": "queue", "out": 0, "in": 0 },
        { "from": "queue", "to": "sum", "out": 0, "in": 0 }
    ]
}"#;

/// Exit status, output and errors of `run -`.
fn run(arguments: &[&str]) -> (u8, String, String) {
    run_graph(GRAPH, arguments)
}

fn run_graph(graph: &str, arguments: &[&str]) -> (u8, String, String) {
    let process = Process {
        is_terminal: false,
        on_interrupt: &|_| Ok(()),
    };
    let mut errors = Vec::new();
    let (status, output) = run_in(&registry().0, graph, arguments, &process, &mut errors);
    (status, output, String::from_utf8(errors).unwrap())
}

fn run_in(
    registry: &Registry,
    graph: &str,
    arguments: &[&str],
    process: &Process<'_>,
    errors: &mut dyn Write,
) -> (u8, String) {
    let mut output = Vec::new();
    let mut streams = Streams {
        input: &mut graph.as_bytes(),
        output: &mut output,
        errors,
    };
    let arguments = ["x", "run", "-"].iter().chain(arguments);
    let arguments = arguments.map(OsString::from).collect();
    let status = execute_in(registry, arguments, &mut streams, process);
    (status, String::from_utf8(output).unwrap())
}

#[test]
fn rn1_the_report_is_all_of_the_output_as_a_table_or_as_json() {
    let (status, output, errors) = run(&["--frames", "5"]);
    assert_eq!((status, &*errors), (0, ""));
    assert!(output.starts_with("completed after "), "{output}");
    assert!(output.contains("\n         frames: 5\n"), "{output}");

    let (status, output, errors) = run(&["--frames", "5", "--report", "json", "-v"]);
    assert_eq!(status, 0);
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["outcome"], "completed");
    assert_eq!(report["nodes"][2]["name"], "sum");
    assert_eq!(report["nodes"][2]["delivered"], 5);
    assert_eq!(
        errors,
        "<stdin>: info: section 0, runs numbers, pushes queue\n\
         <stdin>: info: section 1, pops queue, runs sum\n\
         <stdin>: info: threads PerSection, wait SpinThenPark, watchdog Off\n"
    );
}

#[test]
fn rn1_a_reader_who_has_gone_does_not_hide_how_it_ended() {
    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    let mut errors = Vec::new();
    let mut streams = Streams {
        input: &mut GRAPH.as_bytes(),
        output: &mut BufWriter::new(Gone),
        errors: &mut errors,
    };
    let arguments = ["x", "run", "-", "--set", "numbers.fail_at=1"];
    assert_eq!(execute(&registry().0, arguments, &mut streams), 2);
    let errors = String::from_utf8(errors).unwrap();
    assert!(errors.contains("out of numbers"), "{errors}");
}

#[test]
fn rn2_what_cannot_be_run_has_status_1() {
    let queue = "--set=queue.output_size";
    for (arguments, expected) in [
        (
            &["--option", "in_flight=0"][..],
            "options.in_flight: found 0, expected a whole number above 0",
        ),
        (
            &["--set", "queue.target_capacity=few"],
            "nodes.queue: setting `target_capacity`: found \"few\", expected a whole number above 0",
        ),
        (
            &["--set", "numbers.refuse=true"],
            "the pipeline did not start: node `numbers`, run_started: the task failed: no numbers today",
        ),
        (
            &[
                &format!("{queue}=4"),
                "--set=queue.output_stride=4",
                "--option=in_flight=1",
            ],
            "the pipeline did not start: 1 frames in flight are too few: before the first frame \
             comes out, 4 must have gone in, for queue alone 4",
        ),
    ] {
        let (status, output, errors) = run(arguments);
        assert_eq!((status, &*output), (1, ""), "{errors}");
        assert_eq!(errors, format!("<stdin>: error: {expected}\n"));
    }
    let unfed = r#"{
        "nodes": { "sink": { "type": "NullSink" } },
        "inputs": { "frames": { "to": "sink", "in": 0,
            "desc": { "shape": [4], "dtype": "U8", "mem_loc": "Host" } } }
    }"#;
    let (status, output, errors) = run_graph(unfed, &[]);
    assert_eq!((status, &*output), (1, ""));
    assert_eq!(
        errors,
        "<stdin>: error: the pipeline did not start: graph input `frames` is fed by nothing: \
         connect a source node to what it leads to\n"
    );
    assert_eq!(run_graph("{", &[]).0, 1);
}

#[test]
fn rn2_a_run_that_failed_has_status_2_and_a_report() {
    let settings = [
        "--set",
        "numbers.fail_at=3",
        "--set",
        "numbers.complain=true",
    ];
    let (status, output, errors) = run(&settings);
    assert_eq!(status, 2, "{errors}");
    assert!(output.contains("\nnumbers "), "{output}");
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(lines.len(), 2, "{errors}");
    let expected = "<stdin>: error: node `numbers`, execute: the task failed: out of numbers (in \
                    execute_sync of section 0, thread ";
    assert!(lines[0].starts_with(expected), "{errors}");
    let expected = "<stdin>: error: in consequence: node `numbers`, run_ended: the task failed: numbers are \
                    left ";
    assert!(lines[1].starts_with(expected), "{errors}");
}

#[test]
fn rn2_a_run_that_lost_frames_has_status_3() {
    let (status, output, errors) = run(&[
        "--frames=5",
        "--set=queue.output_size=2",
        "--set=queue.output_stride=2",
        "--set=queue.at_end=discard",
    ]);
    assert_eq!(status, 3, "{errors}");
    assert!(output.starts_with("completed"), "{output}");
    assert_eq!(
        errors,
        "<stdin>: warning: node `queue`: 1 dropped, 0 failed\n"
    );
}

#[test]
fn rn2_one_interrupt_lets_it_drain_and_two_cancel_it() {
    for (interrupts, expected, outcome) in [(1, 0, "finished"), (2, 130, "cancelled")] {
        let (registry, gate) = registry();
        let process = Process {
            is_terminal: false,
            on_interrupt: &|mut interrupt| {
                gate.reached.recv().unwrap();
                (0..interrupts).for_each(|_| interrupt());
                gate.opened.send(()).unwrap();
                Ok(())
            },
        };
        let arguments = ["--set", "numbers.wait=true"];
        let mut errors = Vec::new();
        let (status, output) = run_in(&registry, GRAPH, &arguments, &process, &mut errors);
        assert_eq!(status, expected, "{output}");
        assert!(output.starts_with(outcome), "{output}");
    }
}

#[test]
fn an_interrupt_is_answered_and_one_that_cannot_be_is_said_to_be() {
    /// Opens the gate once it has been told what it waits for.
    struct Told<'a>(&'a str, Vec<u8>, Option<Sender<()>>);

    impl Write for Told<'_> {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.1.extend(text);
            if String::from_utf8_lossy(&self.1).contains(self.0)
                && let Some(gate) = self.2.take()
            {
                gate.send(()).unwrap();
            }
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let twice = "cancelling it";
    let once = "stopping its sources, and letting the rest drain; Ctrl-C cancels it";
    let stall = "<stdin>: warning: nothing has advanced for ";
    let watchdog = [
        "--frames=3",
        "--option=watchdog=warn",
        "--option=watchdog_period=0.001",
    ];
    for (interrupts, told, more) in [(1, once, &[][..]), (2, twice, &[]), (0, stall, &watchdog)] {
        let (registry, Gate { reached, opened }) = registry();
        let process = Process {
            is_terminal: false,
            on_interrupt: &|mut interrupt| {
                reached.recv().unwrap();
                (0..interrupts).for_each(|_| interrupt());
                Err("no signals".to_owned())
            },
        };
        let mut arguments = vec![
            "--set",
            "numbers.wait=true",
            "--option",
            "drain_timeout=1e6",
        ];
        arguments.extend(more);
        let mut errors = Told(told, Vec::new(), Some(opened));
        run_in(&registry, GRAPH, &arguments, &process, &mut errors);
        let errors = String::from_utf8(errors.1).unwrap();
        assert!(errors.contains(told), "{errors}");
        let warning = "<stdin>: warning: Ctrl-C will not let it drain: no signals\n";
        assert!(errors.starts_with(warning), "{errors}");
    }
}

#[test]
fn rn2_a_graph_that_does_not_drain_in_time_is_cancelled() {
    let (status, output, errors) = run(&[
        "--duration=0",
        "--option=drain_timeout=0",
        "--set=numbers.hang=true",
    ]);
    assert_eq!(status, 130, "{errors}");
    assert!(output.starts_with("cancelled"), "{output}");
    assert_eq!(
        errors,
        "<stdin>: error: cancelled: it had not drained 0ns after its sources were stopped; the \
         option `drain_timeout` gives it longer\n"
    );
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let (status, output, errors) = run(&["--duration", "0"]);
    assert_eq!((status, &*errors), (0, ""));
    assert!(output.starts_with("finished"), "{output}");
    for wrong in ["-1", "soon", "NaN"] {
        let argument = format!("--duration={wrong}");
        let (status, _, errors) = run(&[&argument]);
        assert_eq!(status, 2);
        let expected = "expected a number of seconds, 0 or above";
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn events_are_told_to_those_who_want_to_know() {
    let settings = ["--frames=2", r#"--set=numbers.tell={"at":1}"#];
    let (_, _, errors) = run(&settings);
    assert_eq!(errors, "");
    let (_, _, errors) = run(&[&settings[..], &["-v"]].concat());
    let expected = "<stdin>: info: event from `numbers`: {\"at\":1}\n";
    assert!(errors.ends_with(expected), "{errors}");
}

#[test]
fn lv1_on_a_terminal_lines_are_cut_off_and_taken_back() {
    for (arguments, up) in [
        (&["--frames=5"][..], None),
        (&["--frames=5", "-v"], Some("\x1b[3A")),
    ] {
        let process = Process {
            is_terminal: true,
            on_interrupt: &|_| Ok(()),
        };
        let mut errors = Vec::new();
        let (status, output) = run_in(&registry().0, GRAPH, arguments, &process, &mut errors);
        assert_eq!(status, 0);
        assert!(!output.contains('\x1b'), "{output}");
        let errors = String::from_utf8(errors).unwrap();
        let (_, drawn) = errors.split_once("\x1b[?7l").unwrap();
        assert!(errors.ends_with("\r\x1b[J"), "{errors:?}");
        assert!(drawn.contains("numbers"), "{errors:?}");
        assert!(drawn.contains("\x1b[?7h"), "{errors:?}");
        match up {
            Some(up) => assert!(drawn.contains(up), "{errors:?}"),
            None => assert!(drawn.contains("; frames/s: numbers "), "{errors:?}"),
        }
    }
    // Elsewhere: see the other tests, none of which finds a command to a terminal.
}

#[test]
fn as1_the_longest_name_that_fits_is_set() {
    let graph = json!({
        "nodes": {
            "a": { "type": "X" },
            "a.b": { "type": "X", "params": { "c": 1, "list": [1, 2] } },
            "a=b": { "type": "X" },
            "s": { "type": "graph:sub" },
        },
        "graphs": { "sub": { "nodes": { "t": { "type": "X" } } } },
    });
    let (graph, _) = GraphSpec::from_json(&graph).unwrap();
    for (argument, node, expected) in [
        ("a.c=2", "a", json!({ "c": 2 })),
        ("a.b=2", "a", json!({ "b": 2 })),
        ("a.b.c=x", "a.b", json!({ "c": "x", "list": [1, 2] })),
        ("a.b.c=", "a.b", json!({ "c": "", "list": [1, 2] })),
        ("a.b.list.1=[3]", "a.b", json!({ "c": 1, "list": [1, [3]] })),
        ("a.c.d.e=1=2", "a", json!({ "c": { "d": { "e": "1=2" } } })),
        ("s/t.c=null", "s/t", json!({ "c": null })),
    ] {
        let setting = assign::setting(argument).unwrap();
        let found = assign::assign(graph.clone(), &[setting], &[]).unwrap();
        let node = found.find(node).and_then(|node| found.node(node));
        assert_eq!(node.unwrap().settings, expected, "{argument}");
        // Subgraphs are put in place only where they have to be.
        assert_eq!(found.graphs.is_empty(), argument.starts_with("s/"));
    }
}

#[test]
fn as2_what_cannot_be_set_is_refused_with_a_near_match() {
    for (argument, expected) in [
        (
            "--set=nubmers.fail_at=1",
            "--set nubmers.fail_at: found `nubmers`, expected the name of a node: did you mean \
             `numbers`?",
        ),
        (
            "--set=x.y.z=1",
            "--set x.y.z: found `x`, expected the name of a node",
        ),
        (
            "--set=queue.output_size.x=1",
            "--set queue.output_size.x: `output_size` is 1, expected an object",
        ),
        (
            "--option=thread=2",
            "--option thread: found `thread`, expected the name of an option: did you mean \
             `threads`?",
        ),
        (
            "--option=x=2",
            "--option x: found `x`, expected the name of an option",
        ),
        (
            "--set=queue.outputsize=2",
            "nodes.queue: setting `outputsize`: found 2, expected a setting of this task, which has \
             `target_capacity`, `output_size`, `output_stride`, `overflow`, `at_end`, did you mean \
             `output_size`?",
        ),
    ] {
        let (status, output, errors) = run(&[argument]);
        assert_eq!((status, &*output), (1, ""));
        assert_eq!(errors, format!("<stdin>: error: {expected}\n"));
    }
    let graph = GRAPH.replace(
        "{ \"type\": \"Numbers\" }",
        "{ \"type\": \"Numbers\", \"params\": [1] }",
    );
    let (_, _, errors) = run_graph(&graph, &["--set=numbers.1=2"]);
    assert_eq!(
        errors,
        "<stdin>: error: --set numbers.1: the settings are [1], expected a list with an element \
         `1`\n"
    );
    let graph = GRAPH.replace("Checksum", "graph:none");
    let (status, _, errors) = run_graph(&graph, &["--set=numbers.x=2"]);
    assert_eq!(status, 1);
    assert!(
        errors.contains("nodes.sum.type: found `graph:none`"),
        "{errors}"
    );
    for (argument, expected) in [
        ("--set=x=1", "expected NODE.SETTING=VALUE"),
        ("--set=x.y", "expected NODE.SETTING=VALUE"),
        ("--option=x", "expected KEY=VALUE"),
    ] {
        let (status, _, errors) = run(&[argument]);
        assert_eq!(status, 2);
        assert!(errors.contains(expected), "{errors}");
    }
}
