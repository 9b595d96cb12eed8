//! Runs a pipeline on one thread, in an order that a seed chooses, by a clock that stands
//! still until nothing else can be done.
//!
//! The sections are the same state machines that threads run. Here they stop after every
//! hook, and the seed says which goes on. So an order that goes wrong is found again by its
//! seed, and a wake-up that is lost is a run that stands still.
//!
//! What it does not do: let two hooks run at the same time. What is between two hooks of one
//! task, its atomics and its locks, is for loom and for runs on threads.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::clock::{Clock, ManualClock, Timestamp};
use crate::compiler::CompiledGraph;
use crate::ids::SectionId;
use crate::scheduler::stepping::{Stepping, Waits};
use crate::scheduler::{NodeReport, Report, RunError, RunOptions, StartError};
use crate::sync::Arc;

/// Runs a compiled graph step by step.
///
/// ```
/// use holoflow_core::compiler::Compiler;
/// use holoflow_core::graph::GraphBuilder;
/// use holoflow_core::registry::Registry;
/// use holoflow_core::scheduler::RunOptions;
/// use holoflow_core::task::{InferResult, OpResult};
/// use holoflow_core::tensor::TDesc;
/// use holoflow_core::testkit::StepScheduler;
///
/// StepScheduler::explore(0..8, |seed| {
///     let mut graph = GraphBuilder::new();
///     graph.sync_fn(
///         "ten",
///         |_| Ok(InferResult::sync([], [TDesc::host::<u8>([1])?])),
///         |ctx| Ok(if ctx.meta().sequence < 10 { OpResult::Ok } else { OpResult::Eof }),
///     );
///     let built = graph.finish().expect("a graph");
///     let registry = Registry::new().with(&built).expect("no other closures");
///     let graph = Compiler::new(&registry).compile(&built.spec).expect("compiles");
///     let mut steps = StepScheduler::new(graph, RunOptions::default(), seed);
///     let report = steps.run().expect("nothing fails");
///     assert_eq!(report.node("ten").map(|node| node.delivered), Some(10));
/// });
/// ```
#[derive(Debug)]
pub struct StepScheduler {
    stepping: Stepping,
    graph: CompiledGraph,
    clock: ManualClock,
    random: u64,
    steps: u64,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stepped {
    /// A section went on.
    Ran(SectionId),
    /// Nothing could be done, and the clock was moved to when something could.
    Advanced(Timestamp),
    /// All sections wait, and nothing will wake them.
    Stuck,
    /// All sections have ended.
    Ended,
}

impl StepScheduler {
    /// A scheduler for `graph` that takes its order from `seed`. The clock of `options` is
    /// replaced by one of its own.
    #[must_use]
    pub fn new(graph: CompiledGraph, mut options: RunOptions, seed: u64) -> Self {
        let clock = ManualClock::new();
        options.clock = Arc::new(clock.clone());
        Self {
            stepping: Stepping::new(graph.plan(), options),
            graph,
            clock,
            random: seed,
            steps: 0,
        }
    }

    /// Asks hooks that say nothing of when they will be ready again after `first`, then after
    /// twice as long, up to `most`, as threads do. Unless set they are only asked again when
    /// something has happened, so that a lost wake-up shows.
    #[must_use]
    pub fn with_fallback(mut self, first: Duration, most: Duration) -> Self {
        self.stepping.fallback = Some((first, most));
        self
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Tells the tasks that a run begins; the first step follows.
    ///
    /// # Errors
    /// As [`Pipeline::start`](crate::pipeline::Pipeline::start).
    pub fn start(&mut self) -> Result<(), StartError> {
        self.steps = 0;
        self.stepping.start(&mut self.graph)
    }

    /// Lets one section, which the seed chooses, go on by one hook; or moves the clock to where
    /// one can.
    pub fn step(&mut self) -> Stepped {
        if self.stepping.is_ended() {
            return Stepped::Ended;
        }
        self.steps += 1;
        let now = self.clock.now();
        let ready = self.stepping.ready(now);
        if !ready.is_empty() {
            let choice = self.below(ready.len());
            let section = ready[choice];
            self.stepping.advance(section);
            let section = SectionId::new(u32::try_from(section).unwrap_or(u32::MAX));
            return Stepped::Ran(section);
        }
        match self.stepping.next_deadline() {
            Waits::Until(at) => Stepped::Advanced(self.clock.set(at)),
            Waits::ForEver => Stepped::Stuck,
        }
    }

    /// Starts, if that was not done, and steps to the end. If all sections wait for nothing,
    /// the run fails and says where they are.
    ///
    /// # Errors
    /// As [`Pipeline::run`](crate::pipeline::Pipeline::run).
    pub fn run(&mut self) -> Result<Report, RunError> {
        if !self.stepping.is_started() {
            self.start()?;
        }
        loop {
            match self.step() {
                Stepped::Ran(_) | Stepped::Advanced(_) => {}
                Stepped::Stuck => self.stepping.fail_stuck(),
                Stepped::Ended => return self.stepping.finish(&mut self.graph),
            }
        }
    }

    /// Steps taken in this run.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// As [`Pipeline::cancel`](crate::pipeline::Pipeline::cancel).
    pub fn cancel(&self) {
        self.stepping.cancel();
    }

    /// As [`Pipeline::finish`](crate::pipeline::Pipeline::finish).
    pub fn finish(&self) {
        self.stepping.request_finish();
    }

    /// What has happened so far at each node; none before a start.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeReport> {
        self.stepping.nodes()
    }

    /// Frames in flight, if they are limited.
    #[must_use]
    pub fn in_flight(&self) -> Option<u64> {
        self.stepping.in_flight()
    }

    /// Runs `test` with each seed. If one fails, the seed is printed, and the environment
    /// variable `HOLOFLOW_SEED` set to it runs that one alone.
    ///
    /// # Panics
    /// As `test` does.
    pub fn explore(seeds: Range<u64>, test: impl Fn(u64)) {
        let chosen = std::env::var("HOLOFLOW_SEED").ok();
        let chosen = chosen.and_then(|seed| seed.parse::<u64>().ok());
        let seeds = chosen.map_or(seeds, |seed| seed..seed.saturating_add(1));
        for seed in seeds {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
                eprintln!("failed with seed {seed}: run it again with HOLOFLOW_SEED={seed}");
                resume_unwind(payload);
            }
        }
    }

    /// A number below `count`, by splitmix64 (Steele, Lea, Flood 2014).
    fn below(&mut self, count: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The remainder is below `count`.
        (z % count.max(1) as u64) as usize
    }
}
