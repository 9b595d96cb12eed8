//! What the scheduler adds to the call of a small sync task.
//!
//! - `dispatch/ns_per_item_node`: a source, 8 tasks that pass on 8 bytes, and a sink, in one
//!   section, for each item and each of the 10 nodes. A million items a round, with starting and
//!   ending the run.
//!
//! Peer: the same stages as `Box<dyn …>`, called one after another in a plain loop, each with a
//! buffer for its input and one for its output. It checks nothing, measures nothing, and cannot
//! be stopped.

use std::hint::black_box;
use std::time::Instant;

use holoflow_bench::Bench;
use holoflow_bench::stages::{chain, registry, run};
use serde_json::Value;

const ITEMS: u64 = 1_000_000;
const PASSES: usize = 8;
const NODES: usize = PASSES + 2;

fn main() {
    let mut bench = Bench::from_args();
    let registry = registry();
    let kinds = std::iter::once("Words")
        .chain(["Pass"; PASSES])
        .chain(["Take"]);
    let mut pipeline = chain(&registry, kinds.map(|kind| (kind, Value::Null)));
    let mut stages = stages();
    bench
        .figure("dispatch/ns_per_item_node")
        .at_most(10.0)
        .ratio_at_most(4.0)
        .peer_sample("Box<dyn>", || {
            let start = Instant::now();
            plain_loop(&mut stages, ITEMS);
            start.elapsed().as_secs_f64() * 1e9 / (ITEMS * NODES as u64) as f64
        })
        .sample("ns", || {
            let (elapsed, _) = run(&mut pipeline, ITEMS);
            elapsed.as_secs_f64() * 1e9 / (ITEMS * NODES as u64) as f64
        });
    bench.finish();
}

trait Stage {
    fn call(&mut self, input: &[u64], output: &mut [u64]);
}

struct Words(u64);
struct Pass;
struct Take;

impl Stage for Words {
    fn call(&mut self, _: &[u64], output: &mut [u64]) {
        output[0] = self.0;
        self.0 += 1;
    }
}

impl Stage for Pass {
    fn call(&mut self, input: &[u64], output: &mut [u64]) {
        output[0] = input[0];
    }
}

impl Stage for Take {
    fn call(&mut self, input: &[u64], _: &mut [u64]) {
        black_box(input[0]);
    }
}

fn stages() -> Vec<(Box<dyn Stage>, Vec<u64>)> {
    let mut stages: Vec<(Box<dyn Stage>, Vec<u64>)> = vec![(Box::new(Words(0)), vec![0])];
    for _ in 0..PASSES {
        stages.push((Box::new(Pass), vec![0]));
    }
    stages.push((Box::new(Take), vec![0]));
    stages
}

fn plain_loop(stages: &mut [(Box<dyn Stage>, Vec<u64>)], items: u64) {
    for _ in 0..items {
        let mut input: &[u64] = &[];
        for (stage, output) in stages.iter_mut() {
            stage.call(input, output);
            input = output;
        }
    }
}
