//! How exactly a rate limiter keeps its rate, and what that costs.
//!
//! A source that is always ready, an owning rate limiter of 1 kHz, and a sink that writes down
//! when each frame came: 5 runs of a second each.
//!
//! - `rate/skipped_percent`: ticks of the schedule without a frame, of those between the first
//!   frame and the last.
//! - `rate/unaccounted_ticks`: by how much frames and skipped ticks of a run differ from the
//!   periods that it took. One may be lost to starting and one to rounding.
//! - `rate/p99_us`: 99th percentile of the error of the time between two frames; the median of
//!   the runs.
//! - `rate/cpu_ms`: processor time of all runs.
//!
//! Peer: a thread that sleeps until each tick, by what the standard library offers.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use holoflow_bench::Bench;
use holoflow_bench::stages::{Stage, chain, registry, run};
use holoflow_bench::usage::cpu_ms;
use holoflow_core::task::OpResult;
use serde_json::{Value, json};

const PERIOD: Duration = Duration::from_millis(1);
const FRAMES: u64 = 1_000;
const RUNS: usize = 5;

fn main() {
    let mut bench = Bench::from_args();
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let arrived = Arc::clone(&arrivals);
    let mut registry = registry();
    let note = Stage::sink(move |_| {
        let now = Instant::now();
        arrived.lock().expect("nobody panics with it").push(now);
        Ok(OpResult::Ok)
    });
    registry.register_sync("Note", note).expect("a new kind");
    let limiter = ("OwnedRateLimiter", json!({ "max_fps": 1000 }));
    let nodes = [("Words", Value::Null), limiter, ("Note", Value::Null)];
    let mut pipeline = chain(&registry, nodes);

    let mut ours = Runs::default();
    let mut sleeper = Runs::default();
    for _ in 0..RUNS {
        ours.add(|| {
            let noted = || arrivals.lock().expect("nobody panics with it");
            *noted() = Vec::with_capacity(FRAMES as usize);
            run(&mut pipeline, FRAMES);
            std::mem::take(&mut *noted())
        });
        sleeper.add(sleep_to_ticks);
    }
    let (frames, due): (u64, u64) = (ours.frames, ours.due);
    bench
        .figure("rate/skipped_percent")
        .at_most(0.2)
        .measured("%", 100.0 * (due - frames) as f64 / due as f64);
    bench
        .figure("rate/unaccounted_ticks")
        .at_most(2.0)
        .measured("ticks", ours.unaccounted as f64);
    bench
        .figure("rate/p99_us")
        .at_most(60.0)
        .ratio_at_most(1.1)
        .measured_with("us", "sleeping thread", &ours.p99_us, &sleeper.p99_us);
    bench.figure("rate/cpu_ms").at_most(250.0).measured_with(
        "ms",
        "sleeping thread",
        &[ours.cpu_ms],
        &[sleeper.cpu_ms],
    );
    bench.finish();
}

/// What came of some runs.
#[derive(Default)]
struct Runs {
    frames: u64,
    /// Ticks from the first frame to the last.
    due: u64,
    unaccounted: u64,
    p99_us: Vec<f64>,
    cpu_ms: f64,
}

impl Runs {
    fn add(&mut self, run: impl FnOnce() -> Vec<Instant>) {
        let start = Instant::now();
        let mut times = Vec::new();
        self.cpu_ms += cpu_ms(|| times = run());
        let period = PERIOD.as_secs_f64();
        // Counted from the middle, which is as late as most, and not from the first, which a
        // starting thread has made.
        let middle = times[times.len() / 2];
        let ticks: Vec<i64> = times
            .iter()
            .map(|time| {
                let after = time.saturating_duration_since(middle).as_secs_f64();
                let before = middle.saturating_duration_since(*time).as_secs_f64();
                ((after - before) / period).round() as i64
            })
            .collect();
        let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
        let due = (last - first).unsigned_abs() + 1;
        let took = times[times.len() - 1].duration_since(start).as_secs_f64();
        let by_clock = (took / period) as u64 + 1;
        self.due += due;
        self.frames += times.len() as u64;
        self.unaccounted = self.unaccounted.max(by_clock.abs_diff(due));
        let mut errors: Vec<f64> = times
            .windows(2)
            .map(|pair| ((pair[1] - pair[0]).as_secs_f64() - period).abs() * 1e6)
            .collect();
        errors.sort_by(f64::total_cmp);
        self.p99_us.push(errors[errors.len() * 99 / 100]);
    }
}

fn sleep_to_ticks() -> Vec<Instant> {
    let ticks = thread::spawn(|| {
        let mut times = Vec::with_capacity(FRAMES as usize);
        let start = Instant::now();
        let mut tick = 0;
        while (times.len() as u64) < FRAMES {
            let now = Instant::now();
            // Those that are over are skipped.
            let over = (now - start).as_nanos() / PERIOD.as_nanos();
            tick = (tick + 1).max(u32::try_from(over).expect("a short run"));
            let due = start + PERIOD * tick;
            thread::sleep(due.saturating_duration_since(now));
            times.push(Instant::now());
        }
        times
    });
    ticks.join().expect("it does not panic")
}
