//! What a frame allocates once a run is warm: nothing.
//!
//! - `alloc/per_frame/dispatch`: the chain of the `dispatch` bench;
//! - `alloc/per_frame/handoff`: the two sections of the `handoff` bench;
//! - `alloc/per_frame/rate`: a source, an owning rate limiter and a sink, at 1 kHz.
//!
//! An allocator counts the calls of all threads that allocate or reallocate. The source reads
//! the count after a tenth of the frames and at the last one, so what a run allocates as it
//! starts and ends is not in it.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holoflow_bench::Bench;
use holoflow_bench::stages::{Stage, chain, queue, registry, run, word};
use holoflow_core::task::OpResult;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let mut bench = Bench::from_args();
    let counts = Arc::new(Counts::default());
    let mut registry = registry();
    let counted = Arc::clone(&counts);
    let source = Stage::source(word(), move |ctx| {
        let n = ctx.node.meta().sequence;
        counted.count(n);
        ctx.outputs.get_mut::<u64>(0)?[0] = n;
        Ok(OpResult::Ok)
    });
    registry
        .register_sync("Counted", source)
        .expect("a new kind");

    let source = || ("Counted", Value::Null);
    let sink = || ("Take", Value::Null);
    let dispatch = std::iter::once(source())
        .chain(std::iter::repeat_n(("Pass", Value::Null), 8))
        .chain([sink()]);
    let limiter = ("OwnedRateLimiter", json!({ "max_fps": 1000 }));
    for (name, nodes, frames) in [
        ("dispatch", dispatch.collect(), 1_000_000),
        ("handoff", vec![source(), queue(8), sink()], 1_000_000),
        ("rate", vec![source(), limiter, sink()], 2_000),
    ] {
        let name = format!("alloc/per_frame/{name}");
        if !bench.selects(&name) {
            continue;
        }
        let mut pipeline = chain(&registry, nodes);
        counts.begin(frames);
        run(&mut pipeline, frames);
        let figure = bench.figure(&name).at_most(0.0);
        figure.measured("allocations", counts.per_frame());
    }
    bench.finish();
}

/// Allocations made so far, at two frames of a run.
#[derive(Default)]
struct Counts {
    first: AtomicU64,
    last: AtomicU64,
    before: AtomicU64,
    after: AtomicU64,
}

impl Counts {
    fn begin(&self, frames: u64) {
        self.first.store(frames / 10, Ordering::Relaxed);
        self.last.store(frames - 1, Ordering::Relaxed);
    }

    fn count(&self, frame: u64) {
        let place = if frame == self.first.load(Ordering::Relaxed) {
            &self.before
        } else if frame == self.last.load(Ordering::Relaxed) {
            &self.after
        } else {
            return;
        };
        let stats = ALLOCATOR.stats();
        let count = stats.allocations + stats.reallocations;
        place.store(count as u64, Ordering::Relaxed);
    }

    fn per_frame(&self) -> f64 {
        let load = |place: &AtomicU64| place.load(Ordering::Relaxed) as f64;
        (load(&self.after) - load(&self.before)) / (load(&self.last) - load(&self.first))
    }
}
