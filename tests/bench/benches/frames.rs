//! What it costs to hand large frames from one section to another.
//!
//! - `frames/1MiB`, `frames/8MiB`: the source fills a frame, the sink reads a byte of each of
//!   its pages; a queue for 4 frames, which owns both of its sides, is between them. Most of it
//!   is the memory's.
//! - `frames/copied_bytes`: what the run's report says was copied.
//! - `frames/faults_per_frame`: page faults for each frame after the first tenth of a run, as
//!   the source counts them.
//!
//! Peer: as many buffers as the queue has, which go to and fro between two threads in two
//! `crossbeam` channels of 4 slots.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::bounded;
use holoflow_bench::Bench;
use holoflow_bench::stages::{Stage, chain, queue, registry, run};
use holoflow_bench::usage::Usage;
use holoflow_core::task::OpResult;
use holoflow_core::tensor::TDesc;
use serde_json::Value;

const SLOTS: usize = 4;
/// Those of the queue: one more than it holds, so that one can be filled meanwhile.
const BUFFERS: usize = SLOTS + 1;
const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn main() {
    let mut bench = Bench::from_args();
    let mut copied = 0;
    let mut faults = 0.0;
    for (name, bytes, frames) in [
        ("frames/1MiB", MIB, 2_000_u64),
        ("frames/8MiB", 8 * MIB, 250),
    ] {
        let faulted = Arc::new(Faults::default());
        let mut registry = registry();
        let counted = Arc::clone(&faulted);
        let desc = TDesc::host::<u8>([1, bytes]).expect("a frame that fits into memory");
        let fill = Stage::source(desc, move |ctx| {
            let n = ctx.node.meta().sequence;
            counted.count(n, frames);
            ctx.outputs.get_mut::<u8>(0)?.fill(n as u8);
            Ok(OpResult::Ok)
        });
        let touch = Stage::sink(|ctx| {
            touch(ctx.inputs.get::<u8>(0)?);
            Ok(OpResult::Ok)
        });
        registry.register_sync("Fill", fill).expect("a new kind");
        registry.register_sync("Touch", touch).expect("a new kind");
        let nodes = [("Fill", Value::Null), queue(SLOTS), ("Touch", Value::Null)];
        let mut pipeline = chain(&registry, nodes);
        let each = |elapsed: Duration| elapsed.as_secs_f64() * 1e6 / frames as f64;
        let mut buffers: Vec<Vec<u8>> = vec![vec![0; bytes]; BUFFERS];
        bench
            .figure(name)
            .ratio_at_most(1.0)
            .peer_sample("crossbeam, pooled", || {
                each(through_crossbeam(&mut buffers, frames))
            })
            .sample("us", || {
                let (elapsed, report) = run(&mut pipeline, frames);
                copied = report.nodes.iter().map(|node| node.copied_bytes).sum();
                each(elapsed)
            });
        faults = f64::max(faults, faulted.per_frame(frames));
    }
    let copied = copied as f64;
    let figure = bench.figure("frames/copied_bytes").at_most(0.0);
    figure.measured("bytes", copied);
    let figure = bench.figure("frames/faults_per_frame").at_most(0.0);
    figure.measured("faults", faults);
    bench.finish();
}

/// Page faults in the last nine tenths of a run.
#[derive(Default)]
struct Faults {
    before: AtomicU64,
    after: AtomicU64,
}

impl Faults {
    fn count(&self, frame: u64, frames: u64) {
        let place = match frame {
            n if n == frames / 10 => &self.before,
            n if n == frames - 1 => &self.after,
            _ => return,
        };
        place.store(Usage::now().faults, Ordering::Relaxed);
    }

    fn per_frame(&self, frames: u64) -> f64 {
        let load = |place: &AtomicU64| place.load(Ordering::Relaxed) as f64;
        (load(&self.after) - load(&self.before)) / (frames - frames / 10) as f64
    }
}

fn touch(frame: &[u8]) {
    for page in frame.chunks(PAGE) {
        black_box(page[0]);
    }
}

fn through_crossbeam(buffers: &mut Vec<Vec<u8>>, frames: u64) -> Duration {
    let (fill, filled) = bounded::<Vec<u8>>(SLOTS);
    let (free, empty) = bounded(BUFFERS);
    for buffer in buffers.drain(..) {
        free.send(buffer).expect("there is room for each");
    }
    let back = free.clone();
    let start = Instant::now();
    thread::scope(|threads| {
        let empty = &empty;
        threads.spawn(move || {
            for n in 0..frames {
                let mut buffer = empty.recv().expect("buffers come back");
                buffer.fill(n as u8);
                fill.send(buffer).expect("the receiver takes all");
            }
        });
        threads.spawn(move || {
            for buffer in filled {
                touch(&buffer);
                back.send(buffer).expect("there is room for each");
            }
        });
    });
    let elapsed = start.elapsed();
    buffers.extend(empty.try_iter());
    assert_eq!(buffers.len(), BUFFERS);
    elapsed
}
