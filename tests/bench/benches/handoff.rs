//! What it costs to hand frames from one section to another.
//!
//! - `handoff/ns_per_item`: frames of 8 bytes from a source to a sink in another section,
//!   through a queue of 8 slots that owns both of its sides. 300 000 a round, with starting
//!   and ending the run.
//! - `handoff/round_trip_p50_ns`: the same with one frame in flight at most: the source begins
//!   the next when the sink is done with the last. The median of the times from one begin to
//!   the next, which the source takes.
//!
//! Peers move the same 8 bytes by value between two threads: a `crossbeam` channel and an
//! `rtrb` ring of 8 slots, the ring by looking again and again; for the round trip two channels of one slot,
//! one for the item and one for the answer.

use std::hint::{black_box, spin_loop};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::bounded;
use holoflow_bench::stages::{Stage, chain, queue, registry, run, word};
use holoflow_bench::{Bench, median};
use holoflow_core::task::OpResult;
use serde_json::Value;

const ITEMS: u64 = 300_000;
const ROUND_TRIPS: u64 = 50_000;
const SLOTS: usize = 8;

fn main() {
    let mut bench = Bench::from_args();
    let laps = Arc::new(Mutex::new(Laps::default()));
    let mut registry = registry();
    let begun = Arc::clone(&laps);
    let timed = Stage::source(word(), move |ctx| {
        begun.lock().expect("nobody panics with it").lap();
        ctx.outputs.get_mut::<u64>(0)?[0] = 0;
        Ok(OpResult::Ok)
    });
    registry
        .register_sync("TimedWords", timed)
        .expect("a new kind");

    let nodes = [("Words", Value::Null), queue(SLOTS), ("Take", Value::Null)];
    let mut pipeline = chain(&registry, nodes);
    let each = |elapsed: Duration| elapsed.as_secs_f64() * 1e9 / ITEMS as f64;
    bench
        .figure("handoff/ns_per_item")
        .ratio_at_most(1.5)
        .peer_sample("crossbeam", || each(through_crossbeam()))
        .peer_sample("rtrb", || each(through_rtrb()))
        .sample("ns", || each(run(&mut pipeline, ITEMS).0));

    let nodes = [
        ("TimedWords", Value::Null),
        queue(SLOTS),
        ("Take", Value::Null),
    ];
    let mut pipeline = chain(&registry, nodes);
    pipeline.options_mut().in_flight = NonZeroUsize::new(1);
    bench
        .figure("handoff/round_trip_p50_ns")
        .ratio_at_most(1.0)
        .peer_sample("crossbeam", crossbeam_round_trips)
        .sample("ns", || {
            *laps.lock().expect("nobody panics with it") = Laps::default();
            run(&mut pipeline, ROUND_TRIPS);
            laps.lock().expect("nobody panics with it").median()
        });
    bench.finish();
}

/// Times from one call to the next.
#[derive(Default)]
struct Laps {
    last: Option<Instant>,
    ns: Vec<f64>,
}

impl Laps {
    fn lap(&mut self) {
        let now = Instant::now();
        match self.last.replace(now) {
            Some(last) => self.ns.push((now - last).as_nanos() as f64),
            None => self.ns.reserve(ROUND_TRIPS as usize),
        }
    }

    fn median(&self) -> f64 {
        median(&self.ns)
    }
}

fn through_crossbeam() -> Duration {
    let (sender, receiver) = bounded(SLOTS);
    let start = Instant::now();
    thread::scope(|threads| {
        threads.spawn(move || {
            for n in 0..ITEMS {
                sender.send(n).expect("the receiver takes all");
            }
        });
        let sum = threads.spawn(move || receiver.iter().fold(0, u64::wrapping_add));
        assert_eq!(sum.join().ok(), Some(ITEMS * (ITEMS - 1) / 2));
    });
    start.elapsed()
}

fn through_rtrb() -> Duration {
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(SLOTS);
    let start = Instant::now();
    thread::scope(|threads| {
        threads.spawn(move || {
            for n in 0..ITEMS {
                again_and_again(|| producer.push(n).ok());
            }
        });
        threads.spawn(move || {
            for _ in 0..ITEMS {
                black_box(again_and_again(|| consumer.pop().ok()));
            }
        });
    });
    start.elapsed()
}

/// Looks until there is something; on a busy machine the other side may need the core.
fn again_and_again<R>(mut look: impl FnMut() -> Option<R>) -> R {
    let mut looks = 0_u32;
    loop {
        if let Some(found) = look() {
            return found;
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(64) {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

fn crossbeam_round_trips() -> f64 {
    let (there, arrivals) = bounded(1);
    let (back, answers) = bounded(1);
    let mut laps = Laps::default();
    thread::scope(|threads| {
        threads.spawn(move || {
            for n in arrivals {
                if back.send(n).is_err() {
                    return;
                }
            }
        });
        for n in 0..ROUND_TRIPS {
            laps.lap();
            there.send(n).expect("the other thread takes all");
            assert_eq!(answers.recv(), Ok(n));
        }
        drop(there);
    });
    laps.median()
}
