//! What many nodes, many sections, and more sections than cores cost.
//!
//! - `scale/chain_ns_per_item_node`: 10 000 sync nodes in a row, in one section.
//! - `scale/pool_us_per_item_section`: 2 000 sections in a row on two threads, with queues of 8
//!   between them.
//! - `scale/oversubscribed_ratio`: 20 000 frames through 8 nodes, each in a section of its own,
//!   with queues of 64 between them and all threads on one core; over the same 8 nodes in one
//!   section on that core. The nodes do nothing, so it is what a hand-over costs over what a call
//!   costs, and a switch of threads for so many frames as a queue holds.
//! - `scale/oversubscribed_1us_ratio`: the same where each node works for about a microsecond.

use std::hint::black_box;
use std::num::NonZeroUsize;

use holoflow_bench::Bench;
use holoflow_bench::stages::{Stage, chain, queue, registry, run};
use holoflow_core::registry::Registry;
use holoflow_core::scheduler::Threads;
use holoflow_core::task::OpResult;
use serde_json::Value;

const CHAIN: usize = 10_000;
const CHAIN_ITEMS: u64 = 500;
const SECTIONS: usize = 2_000;
const POOL_ITEMS: u64 = 100;
const CROWD: usize = 8;
const CROWD_FRAMES: u64 = 20_000;

fn main() {
    let mut bench = Bench::from_args();
    let mut registry = registry();
    let work = Stage::pass(|ctx| {
        let mut x = ctx.inputs.get::<u64>(0)?[0];
        for _ in 0..STEPS {
            x = black_box(x);
        }
        ctx.outputs.get_mut::<u64>(0)?[0] = x;
        Ok(OpResult::Ok)
    });
    registry.register_sync("Work", work).expect("a new kind");

    let name = "scale/chain_ns_per_item_node";
    if bench.selects(name) {
        let mut pipeline = chain(&registry, row(CHAIN, "Pass", None));
        bench.figure(name).at_most(20.0).sample("ns", || {
            let (elapsed, _) = run(&mut pipeline, CHAIN_ITEMS);
            elapsed.as_secs_f64() * 1e9 / (CHAIN_ITEMS * CHAIN as u64) as f64
        });
    }
    let name = "scale/pool_us_per_item_section";
    if bench.selects(name) {
        let mut pipeline = chain(&registry, row(SECTIONS, "Pass", Some(8)));
        assert_eq!(pipeline.plan().sections.len(), SECTIONS);
        pipeline.options_mut().threads = Threads::Pool(NonZeroUsize::MIN.saturating_add(1));
        bench.figure(name).at_most(1.0).sample("us", || {
            let (elapsed, _) = run(&mut pipeline, POOL_ITEMS);
            elapsed.as_secs_f64() * 1e6 / (POOL_ITEMS * SECTIONS as u64) as f64
        });
    }
    crowd(&mut bench, &registry, "scale/oversubscribed_ratio", "Pass");
    crowd(
        &mut bench,
        &registry,
        "scale/oversubscribed_1us_ratio",
        "Work",
    );
    bench.finish();
}

/// Steps of about a nanosecond.
const STEPS: u32 = 1_000;

/// Nodes in a row: a source, `count` - 2 nodes of `kind`, and a sink; with queues of so many
/// slots between them.
fn row(count: usize, kind: &'static str, slots: Option<usize>) -> Vec<(&'static str, Value)> {
    let mut nodes = vec![("Words", Value::Null)];
    for number in 1..count {
        nodes.extend(slots.map(queue));
        let kind = if number == count - 1 { "Take" } else { kind };
        nodes.push((kind, Value::Null));
    }
    nodes
}

fn crowd(bench: &mut Bench, registry: &Registry, name: &str, kind: &'static str) {
    if !bench.selects(name) {
        return;
    }
    let mut one = chain(registry, row(CROWD, kind, None));
    let mut many = chain(registry, row(CROWD, kind, Some(64)));
    assert_eq!(many.plan().sections.len(), CROWD);
    one.options_mut().cores = vec![0];
    many.options_mut().cores = vec![0];
    bench.figure(name).at_most(2.5).sample("ratio", || {
        let (many, _) = run(&mut many, CROWD_FRAMES);
        let (one, _) = run(&mut one, CROWD_FRAMES);
        many.as_secs_f64() / one.as_secs_f64()
    });
}
