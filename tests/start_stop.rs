//! W-15: a thousand starts and stops leave nothing behind.
//!
//! Alone in its process, since it counts the process's threads and open files.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use holoflow::compiler::Compiler;
use holoflow::cpu::{BatchQueueSettings, CounterSettings};
use holoflow::graph::GraphBuilder;
use holoflow::memory::{HostProvider, Memory};
use holoflow::pipeline::Pipeline;
use holoflow::prelude::*;
use holoflow::registry::Registry;
use holoflow::testkit::Ledger;

/// Threads and open files of this process, where they can be counted.
fn threads_and_files() -> Option<(usize, usize)> {
    let count = |path| Some(std::fs::read_dir(path).ok()?.count());
    Some((count("/proc/self/task")?, count("/proc/self/fd")?))
}

#[test]
fn w_15_a_thousand_starts_and_stops_leave_nothing_behind() {
    let mut graph = GraphBuilder::new();
    let mut node = graph.node("source", "Counter", CounterSettings::new(300));
    for name in ["a", "b", "c"] {
        let queue = graph.node(name, "BatchQueue", BatchQueueSettings::new(4, 1));
        graph.connect(node, queue);
        node = graph.node(format!("after {name}"), "Copy", ());
        graph.connect(queue, node);
    }
    let mut count = 0_u64;
    let sink = graph.sync_fn(
        "sink",
        |request| Ok(InferResult::sync([request.input(0)?.clone()], [])),
        move |_| {
            count += 1;
            if count.is_multiple_of(5_000) {
                return Err(TaskError::other("enough"));
            }
            Ok(OpResult::Ok)
        },
    );
    graph.connect(node, sink);
    let built = graph.finish().unwrap();
    let mut registry = Registry::new();
    holoflow::cpu::register_all(&mut registry).unwrap();
    let registry = registry.with(&built).unwrap();
    let ledger = Ledger::new(Arc::new(HostProvider));
    let compiler = Compiler::new(&registry).memory(Memory::host().with(ledger.provider()));
    let graph = compiler.compile(&built.spec).unwrap();
    let mut pipeline = Pipeline::new(graph);
    pipeline.options_mut().stop_timeout = Duration::from_secs(60);
    let before = threads_and_files();
    let live = ledger.counts().live_bytes;
    let mut failed = 0;
    for round in 0..1_000_u32 {
        pipeline.start().unwrap();
        for _ in 0..round % 97 {
            std::thread::yield_now();
        }
        match round % 3 {
            0 => pipeline.cancel(),
            1 => pipeline.finish(),
            _ => {}
        }
        failed += u32::from(pipeline.wait().is_err());
    }
    assert!((1..500).contains(&failed), "{failed} runs failed");
    assert_eq!(threads_and_files(), before);
    assert_eq!(ledger.counts().live_bytes, live);
    drop(pipeline);
    assert_eq!(ledger.counts().live_bytes, 0);
}
