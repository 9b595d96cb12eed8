//! Attacks by tasks inside a compiled graph: what they do when it is dropped, recompiled or
//! never finished.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use holoflow::compiler::{CompileError, CompiledGraph, Compiler};
use holoflow::graph::{EdgeSpec, GraphSpec, NodeSpec};
use holoflow::memory::{HostProvider, Memory};
use holoflow::prelude::*;
use holoflow::registry::Registry;
use holoflow::storage::{Region, RegionSlot};
use holoflow::task::{Hook, TaskErrorKind};
use holoflow::testkit::Ledger;
use holoflow_soundness::fixture::{AsyncHooks, Factory, Stash, SyncHooks, frame, nothing_leaks};

/// Panics when it is dropped, unless a panic is on its way already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            resume_unwind(Box::new("burst"));
        }
    }
}

fn counted() -> (Ledger, Memory) {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    (ledger, memory)
}

/// Kinds `source`, `twice` and `sink`, whose tasks panic when dropped, and which have memory
/// of their own; and a sink `fails`, whose factory does.
fn bombs() -> Registry {
    let mut registry = Registry::new();
    let owning = InferResult::asynchronous([], [frame()]).owning_outputs();
    let source = Factory::new(owning, |ctx: &mut CreateCtx<'_>| {
        let (bomb, slot) = (Bomb, ctx.region_slot(&frame())?);
        Ok(AsyncHooks::idle().finished(
            move || {
                let _kept = (&bomb, &slot);
            },
            || {},
        ))
    });
    registry.register_async("source", source).unwrap();
    let infer = InferResult::sync([frame()], [frame()]);
    let twice = Factory::new(infer, |ctx: &mut CreateCtx<'_>| {
        let (bomb, region) = (Bomb, ctx.region_for(&frame())?);
        Ok(SyncHooks::new(move |_| {
            let _kept = (&bomb, &region);
            Ok(OpResult::Ok)
        }))
    });
    registry.register_sync("twice", twice).unwrap();
    let infer = InferResult::asynchronous([frame()], []);
    let sink = Factory::new(infer.clone(), |ctx: &mut CreateCtx<'_>| {
        let (bomb, region) = (Bomb, ctx.region_for(&frame())?);
        Ok(AsyncHooks::idle().finished(
            || {},
            move || {
                let _kept = (&bomb, &region);
            },
        ))
    });
    registry.register_async("sink", sink).unwrap();
    let fails = Factory::new(infer, |_: &mut CreateCtx<'_>| -> TaskResult<AsyncHooks> {
        Err(TaskError::other("no"))
    });
    registry.register_async("fails", fails).unwrap();
    registry
}

/// A source, a node of kind `twice` for each of `names`, and a sink of kind `sink`.
fn chain(names: &[&str], sink: &str) -> GraphSpec {
    let mut graph = GraphSpec::default();
    let mut last = graph.add(NodeSpec::new("source", "source"));
    for name in names {
        let node = graph.add(NodeSpec::new(*name, "twice"));
        graph.edges.push(EdgeSpec::new((last, 0), (node, 0)));
        last = node;
    }
    let node = graph.add(NodeSpec::new("sink", sink));
    graph.edges.push(EdgeSpec::new((last, 0), (node, 0)));
    graph
}

fn compiled(registry: &Registry, memory: &Memory) -> CompiledGraph {
    let compiler = Compiler::new(registry).memory(memory.clone());
    compiler.compile(&chain(&["a", "b"], "sink")).unwrap()
}

/// Nothing unwinds out of `f`.
fn contained<R>(f: impl FnOnce() -> R) -> R {
    let outcome = catch_unwind(AssertUnwindSafe(f));
    let contained = outcome.is_ok();
    // The payload is text, so that dropping it is safe.
    assert!(contained, "a task's drop unwound");
    outcome.unwrap_or_else(|_| unreachable!())
}

#[test]
fn tasks_that_panic_when_dropped_do_not_unwind_out_of_their_graph() {
    let (ledger, memory) = counted();
    let registry = bombs();
    let graph = compiled(&registry, &memory);
    assert!(ledger.counts().live_blocks >= 4);
    contained(|| drop(graph));
    nothing_leaks(&ledger);
}

#[test]
fn tasks_that_panic_when_dropped_do_not_unwind_out_of_a_compilation_that_fails() {
    let (ledger, memory) = counted();
    let registry = bombs();
    let compiler = Compiler::new(&registry).memory(memory);
    let errors = contained(|| compiler.compile(&chain(&["a", "b"], "fails"))).unwrap_err();
    let found = errors.iter().any(|error| {
        matches!(error, CompileError::Create(error)
            if error.node == "sink" && error.hook == Hook::Create)
    });
    assert!(found, "{errors}");
    nothing_leaks(&ledger);
}

#[test]
fn tasks_that_panic_when_dropped_do_not_unwind_out_of_a_recompilation_without_them() {
    let (ledger, memory) = counted();
    let registry = bombs();
    let graph = compiled(&registry, &memory);
    let compiler = Compiler::new(&registry).memory(memory.clone());
    // `source` and `sink` are updated, which drops their tasks inside a hook; `b` is gone.
    let errors = contained(|| {
        let made = compiler.recompile(&chain(&["a"], "sink"), graph);
        made.map_err(Box::new)
    })
    .unwrap_err();
    for error in errors.errors.iter() {
        let CompileError::Create(error) = error else {
            panic!("another error: {error}");
        };
        assert_eq!(error.hook, Hook::Update);
        assert!(
            matches!(error.error.kind(), TaskErrorKind::Panicked { .. }),
            "{error:#}"
        );
    }
    assert!(errors.previous.is_none());
    drop(errors);
    nothing_leaks(&ledger);
}

#[test]
fn windows_and_shared_regions_of_tasks_outlive_their_graph() {
    let hand: Stash<Region> = Stash::new();
    let given = hand.clone();
    let mut registry = Registry::new();
    let owning = InferResult::asynchronous([], [frame()]).owning_outputs();
    let source = Factory::new(owning, move |ctx: &mut CreateCtx<'_>| {
        let slot: RegionSlot = ctx.region_slot(&frame())?;
        let mut own = ctx.region_for(&frame())?;
        own.as_mut_bytes()?.fill(3);
        let shared = own.into_shared();
        given.hide(shared.to_region().split_at(1).unwrap().1);
        Ok(AsyncHooks::idle().finished(
            || {},
            move || {
                let _kept = (&slot, &shared);
            },
        ))
    });
    registry.register_async("source", source).unwrap();
    let sink = InferResult::asynchronous([frame()], []);
    let sink = Factory::new(sink, |_: &mut CreateCtx<'_>| Ok(AsyncHooks::idle()));
    registry.register_async("sink", sink).unwrap();
    let (ledger, memory) = counted();
    let compiler = Compiler::new(&registry).memory(memory);
    let graph = compiler.compile(&chain(&[], "sink")).unwrap();
    drop(graph);
    assert_eq!(ledger.counts().live_blocks, 1);
    let mut kept = hand.seek();
    assert_eq!(kept.as_bytes().unwrap(), [3; 3]);
    assert!(kept.as_mut_bytes().is_err());
    let mut alone = kept.into_shared().try_into_unique().unwrap();
    alone.as_mut_bytes().unwrap().fill(4);
    drop(alone);
    nothing_leaks(&ledger);
}
