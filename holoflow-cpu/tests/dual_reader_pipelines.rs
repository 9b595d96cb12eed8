//! The dual reader in pipelines.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};

use holoflow_core::compiler::{CompiledGraph, Compiler};
use holoflow_core::graph::{GraphBuilder, Node};
use holoflow_core::registry::Registry;
use holoflow_core::scheduler::RunOptions;
use holoflow_core::task::{InferResult, OpResult};
use holoflow_core::tensor::TDesc;
use holoflow_core::testkit::StepScheduler;
use holoflow_cpu::DualReaderBatchQueueSettings;

type Seen = Arc<Mutex<Vec<(u64, u64, u8)>>>;

/// A source of `count` frames of `rows` numbers, from 1.
fn source(graph: &mut GraphBuilder, count: u64, rows: usize) -> Node {
    graph.sync_fn(
        "source",
        move |_| Ok(InferResult::sync([], [TDesc::host::<u64>([rows])?])),
        move |ctx| {
            let sequence = ctx.meta().sequence;
            if sequence == count {
                return Ok(OpResult::Eof);
            }
            let first = sequence * rows as u64 + 1;
            for (row, number) in ctx.outputs.get_mut::<u64>(0)?.iter_mut().zip(first..) {
                *row = number;
            }
            Ok(OpResult::Ok)
        },
    )
}

fn compile(graph: GraphBuilder) -> CompiledGraph {
    let mut registry = Registry::new();
    holoflow_cpu::register_all(&mut registry).unwrap();
    let built = graph.finish().unwrap();
    let registry = registry.with(&built).unwrap();
    Compiler::new(&registry).compile(&built.spec).unwrap()
}

/// What a sink sees of a dual reader, whose current row first passes a node of its own.
fn run(count: u64, rows: usize, window: usize, overwrites: bool) -> Vec<(u64, u64, u8)> {
    let mut graph = GraphBuilder::new();
    let source = source(&mut graph, count, rows);
    let settings = DualReaderBatchQueueSettings::new(4, window);
    let dual = graph.node("dual", "DualReaderBatchQueue", settings);
    graph.connect(source, dual);
    let double = graph.sync_fn(
        "double",
        move |request| {
            let row = request.input(0)?.clone();
            let result = InferResult::sync([row.clone()], [row]);
            Ok(if overwrites {
                result.overwriting(0, 0)
            } else {
                result
            })
        },
        move |ctx| {
            let value = if overwrites {
                ctx.outputs.get_mut::<u64>(0)?[0]
            } else {
                ctx.inputs.get::<u64>(0)?[0]
            };
            ctx.outputs.get_mut::<u64>(0)?[0] = 2 * value;
            Ok(OpResult::Ok)
        },
    );
    graph.connect(dual.output(0), double);
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    let sink = graph.sync_fn(
        "sink",
        |request| Ok(InferResult::sync(request.inputs().to_vec(), [])),
        move |ctx| {
            let current = ctx.inputs.get::<u64>(0)?[0];
            let delayed = ctx.inputs.get::<u64>(1)?[0];
            let valid = ctx.inputs.get::<u8>(2)?[0];
            kept.lock().unwrap().push((current, delayed, valid));
            Ok(OpResult::Ok)
        },
    );
    graph.connect(double, sink.input(0));
    graph.connect(dual.output(1), sink.input(1));
    graph.connect(dual.output(2), sink.input(2));
    let graph = compile(graph);
    let mut steps = StepScheduler::new(graph, RunOptions::default(), count);
    let report = steps.run().unwrap();
    assert_eq!(report.node("dual").unwrap().dropped, 0);
    std::mem::take(&mut *seen.lock().unwrap())
}

fn expected(count: u64, rows: usize, window: usize) -> Vec<(u64, u64, u8)> {
    let delay = (window as u64 - 1) / 2;
    (1..=count * rows as u64)
        .map(|n| (2 * n, n.saturating_sub(delay), u8::from(n >= window as u64)))
        .collect()
}

#[test]
fn dr_02_every_row_comes_twice_and_the_stream_ends() {
    for (rows, window) in [(1, 1), (1, 5), (2, 4), (3, 9)] {
        for count in [0, 1, 2, 20] {
            let seen = run(count, rows, window, false);
            assert_eq!(seen, expected(count, rows, window), "{rows} {window}");
        }
    }
}

#[test]
fn a_node_that_overwrites_the_current_row_does_not_change_the_delayed_one() {
    for window in [1, 3] {
        let seen = run(20, 2, window, true);
        assert_eq!(seen, expected(20, 2, window));
    }
}
