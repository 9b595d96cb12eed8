//! Random pipelines, stopped at random moments, in random orders.
//!
//! Each case is made of a seed: sources of some length; sync nodes that map, work in place,
//! skip, or fail; queues of some depth; fan-out; branches that meet again; sinks that have
//! enough early. What the sinks must get is computed beside it, and every task counts for
//! itself what the report is to say of it.
//!
//! `HOLOFLOW_CASES` sets how many cases run step by step; a tenth of them runs on threads.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::json;

use super::kit::{Got, Kit, Log, assert_balanced, number};
use crate::graph::Node;
use crate::pipeline::{Control, Pipeline};
use crate::scheduler::{FailureCause, NodeReport, Outcome, Report, RunError, StartError, Threads};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, OnceLock};
use crate::task::{InferResult, OpResult, SyncCtx, TaskError, TaskErrorKind, TaskResult};
use crate::testkit::{StepScheduler, Stepped};

/// Cases unless the environment says otherwise.
const CASES: u64 = 2_000;

fn cases() -> u64 {
    let asked = std::env::var("HOLOFLOW_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

/// Numbers by splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % count.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn from(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// What a sync task says it did.
#[derive(Debug, Clone, Default)]
struct Tally(Arc<[AtomicU64; 3]>);

impl Tally {
    fn count(&self, what: &TaskResult<OpResult>) {
        let index = match what {
            Ok(OpResult::Ok) => 0,
            Ok(OpResult::Skip) => 1,
            Err(error) if matches!(error.kind(), TaskErrorKind::Frame(_)) => 2,
            _ => return,
        };
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Made, skipped and failed since it was last asked.
    fn take(&self) -> [u64; 3] {
        [0, 1, 2].map(|index| self.0[index].swap(0, Ordering::Relaxed))
    }
}

/// The output of some node, and what comes out of it.
#[derive(Clone)]
struct Stream {
    node: Node,
    values: Vec<u64>,
    /// Every frame of its sources comes through, or one of each for a join.
    whole: bool,
    read: bool,
    is_queue: bool,
    /// It is in the section of a join, which ends with the shorter of two.
    closed: bool,
}

/// Stops the run from inside of a hook, once a sink has got so many frames.
#[derive(Clone, Default)]
struct Trip(Arc<OnceLock<(Control, Stop, u64)>>);

impl Trip {
    fn got(&self, count: u64) {
        if let Some((control, stop, at)) = self.0.get()
            && count == *at
        {
            match stop {
                Stop::None => {}
                Stop::Cancel => control.cancel(),
                Stop::Finish => control.finish(),
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    None,
    Cancel,
    Finish,
}

/// A pipeline, and what is known of it.
struct Case {
    kit: Kit,
    sinks: Vec<(Got, Vec<u64>)>,
    tallies: Vec<(String, Tally)>,
    queues: Vec<String>,
    log: Log,
    trip: Trip,
    faulty: bool,
    joins: bool,
    ends_early: bool,
    stop: Stop,
}

struct Maker {
    random: Random,
    case: Case,
    streams: Vec<Stream>,
    names: u64,
}

impl Maker {
    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind} {}", self.names)
    }

    fn tally(&mut self, name: &str) -> Tally {
        let tally = Tally::default();
        self.case.tallies.push((name.to_owned(), tally.clone()));
        tally
    }

    fn add(&mut self, node: Node, values: Vec<u64>, whole: bool, is_queue: bool) {
        self.streams.push(Stream {
            node,
            values,
            whole,
            read: false,
            is_queue,
            closed: false,
        });
    }

    fn source(&mut self, count: u64) {
        let name = self.name("source");
        let tally = self.tally(&name);
        let node = self.case.kit.graph.sync_fn(
            &name,
            |_| Ok(InferResult::sync([], [number()?])),
            move |ctx: &mut SyncCtx<'_>| {
                let sequence = ctx.meta().sequence;
                if sequence >= count {
                    return Ok(OpResult::Eof);
                }
                ctx.outputs.get_mut::<u64>(0)?[0] = sequence;
                let done = Ok(OpResult::Ok);
                tally.count(&done);
                done
            },
        );
        self.add(node, (0..count).collect(), true, false);
    }

    /// Some stream to read from.
    fn pick(&mut self) -> usize {
        // Mostly one that nobody reads yet.
        let unread = self.streams.iter().enumerate();
        let unread: Vec<usize> = unread
            .filter(|(_, stream)| !stream.read)
            .map(|(index, _)| index)
            .collect();
        if unread.is_empty() || self.random.one_in(4) {
            let open = self.streams.iter().enumerate();
            let open = open.filter(|(_, stream)| !stream.closed);
            let open: Vec<usize> = open.map(|(index, _)| index).collect();
            open[self.random.below(open.len() as u64) as usize]
        } else {
            unread[self.random.below(unread.len() as u64) as usize]
        }
    }

    /// A node of one input and one output; `decide` is asked at each call, with its number.
    fn one(
        &mut self,
        kind: &str,
        skipping: bool,
        from: usize,
        mut decide: impl FnMut(u64) -> TaskResult<OpResult> + Send + 'static,
    ) -> Node {
        let name = self.name(kind);
        let tally = self.tally(&name);
        let mut calls = 0;
        let from = self.streams[from].node;
        self.case.kit.sync(&name, from, skipping, move |ctx, x| {
            calls += 1;
            ctx.outputs.get_mut::<u64>(0)?[0] = x.wrapping_mul(3) + 1;
            let done = decide(calls - 1);
            tally.count(&done);
            done
        })
    }

    fn in_place(&mut self, from: usize) {
        let name = self.name("in place");
        let tally = self.tally(&name);
        let node = self.case.kit.graph.sync_fn(
            &name,
            |request| {
                let [input] = request.exactly::<1>()?;
                Ok(InferResult::sync([input.clone()], [input.clone()]).overwriting(0, 0))
            },
            move |ctx: &mut SyncCtx<'_>| {
                let y = ctx.outputs.get_mut::<u64>(0)?;
                y[0] = y[0].wrapping_mul(3) + 1;
                let done = Ok(OpResult::Ok);
                tally.count(&done);
                done
            },
        );
        self.case.kit.graph.connect(self.streams[from].node, node);
        let values = tripled(&self.streams[from].values);
        self.add(node, values, self.streams[from].whole, false);
    }

    fn queue(&mut self, from: usize) -> usize {
        let name = self.name("queue");
        let flow = self.case.kit.options.in_flight.is_some() || !self.random.one_in(3);
        let eof = !flow || self.random.one_in(2);
        let slots = self.random.from(1, 4);
        let settings = json!({ "slots": slots, "flow": flow, "eof": eof });
        let graph = &mut self.case.kit.graph;
        let node = graph.node(&name, "Queue", settings);
        graph.connect(self.streams[from].node, node);
        self.streams[from].read = true;
        self.case.queues.push(name);
        let Stream { values, whole, .. } = self.streams[from].clone();
        self.add(node, values, whole, true);
        self.streams.len() - 1
    }

    /// Two branches meet, in a section of their own.
    fn join(&mut self, from: usize) {
        let others = self.streams.iter().enumerate();
        let others: Vec<usize> = others
            .filter(|(index, stream)| stream.whole && !stream.closed && *index != from)
            .map(|(index, _)| index)
            .collect();
        if !self.streams[from].whole || others.is_empty() {
            return;
        }
        let other = others[self.random.below(others.len() as u64) as usize];
        let (a, b) = (self.queue(from), self.queue(other));
        let name = self.name("join");
        let tally = self.tally(&name);
        let node = self.case.kit.graph.sync_fn(
            &name,
            |request| {
                let [a, b] = request.exactly::<2>()?;
                Ok(InferResult::sync([a.clone(), b.clone()], [a.clone()]))
            },
            move |ctx: &mut SyncCtx<'_>| {
                let a = ctx.inputs.get::<u64>(0)?[0];
                let b = ctx.inputs.get::<u64>(1)?[0];
                ctx.outputs.get_mut::<u64>(0)?[0] = a.wrapping_mul(5) ^ b;
                let done = Ok(OpResult::Ok);
                tally.count(&done);
                done
            },
        );
        for queue in [a, b] {
            self.streams[queue].closed = true;
        }
        let (a, b) = (self.read(a), self.read(b));
        let graph = &mut self.case.kit.graph;
        graph.connect(a.node, node.input(0));
        graph.connect(b.node, node.input(1));
        let pairs = a.values.iter().zip(&b.values);
        let values = pairs.map(|(a, b)| a.wrapping_mul(5) ^ b).collect();
        self.case.joins = true;
        self.add(node, values, true, false);
    }

    fn read(&mut self, stream: usize) -> Stream {
        self.streams[stream].read = true;
        self.streams[stream].clone()
    }

    fn sink(&mut self, from: usize) {
        let name = self.name("sink");
        let tally = self.tally(&name);
        let Stream { node, values, .. } = self.read(from);
        let enough = self.random.one_in(8).then(|| self.random.below(10));
        self.case.ends_early |= enough.is_some();
        let (got, trip) = (Got::default(), self.case.trip.clone());
        let kept = got.clone();
        let mut count = 0;
        self.case.kit.sink_fn(&name, node, move |_, x| {
            if Some(count) == enough {
                return Ok(OpResult::Eof);
            }
            count += 1;
            kept.push(x);
            trip.got(count);
            let done = Ok(OpResult::Ok);
            tally.count(&done);
            done
        });
        self.case.sinks.push((got, values));
    }

    fn node(&mut self) {
        let from = self.pick();
        match self.random.below(12) {
            0..4 => {
                let from = self.queue(from);
                if self.random.one_in(3) {
                    self.queue(from);
                }
            }
            4..6 => {
                self.in_place(from);
                self.streams[from].read = true;
            }
            6..8 => {
                let node = self.one("map", false, from, |_| Ok(OpResult::Ok));
                let Stream { values, whole, .. } = self.read(from);
                self.add(node, tripled(&values), whole, false);
            }
            8 => {
                let period = self.random.from(2, 4);
                let node = self.one("skip", true, from, move |call| {
                    Ok(if call % period == 1 {
                        OpResult::Skip
                    } else {
                        OpResult::Ok
                    })
                });
                self.sieved(node, from, period);
            }
            9 => {
                let period = self.random.from(2, 5);
                let node = self.one("blur", false, from, move |call| {
                    if call % period == 1 {
                        return Err(TaskError::frame("blurred"));
                    }
                    Ok(OpResult::Ok)
                });
                self.sieved(node, from, period);
            }
            10 => self.join(from),
            _ => {
                if !self.random.one_in(3) {
                    return;
                }
                let at = self.random.below(20);
                let panics = self.random.one_in(2);
                let node = self.one("faulty", false, from, move |call| {
                    if call == at {
                        assert!(!panics, "out of order");
                        return Err(TaskError::other("out of order"));
                    }
                    Ok(OpResult::Ok)
                });
                self.case.faulty = true;
                let Stream { values, whole, .. } = self.read(from);
                self.add(node, tripled(&values), whole, false);
            }
        }
    }

    fn sieved(&mut self, node: Node, from: usize, period: u64) {
        let values = tripled(&self.read(from).values);
        let kept = values.into_iter().zip(0_u64..);
        let kept = kept.filter(|(_, call)| call % period != 1);
        let values = kept.map(|(value, _)| value).collect();
        self.add(node, values, false, false);
    }
}

fn tripled(values: &[u64]) -> Vec<u64> {
    values.iter().map(|x| x.wrapping_mul(3) + 1).collect()
}

fn make(seed: u64, longest: u64) -> (Case, Random) {
    let kit = Kit::new();
    let case = Case {
        log: kit.log.clone(),
        kit,
        sinks: Vec::new(),
        tallies: Vec::new(),
        queues: Vec::new(),
        trip: Trip::default(),
        faulty: false,
        joins: false,
        ends_early: false,
        stop: Stop::None,
    };
    let mut maker = Maker {
        random: Random(seed),
        case,
        streams: Vec::new(),
        names: 0,
    };
    maker.case.stop = match maker.random.below(4) {
        0 => Stop::Cancel,
        1 => Stop::Finish,
        _ => Stop::None,
    };
    let sources = if maker.random.one_in(3) { 2 } else { 1 };
    if sources == 1 && maker.random.one_in(4) {
        let limit = maker.random.from(1, 4) as usize;
        maker.case.kit.options.in_flight = NonZeroUsize::new(limit);
    }
    for _ in 0..sources {
        let count = match maker.random.below(6) {
            0 => maker.random.below(3),
            _ => maker.random.below(longest),
        };
        maker.source(count);
    }
    for _ in 0..maker.random.from(1, 10) {
        maker.node();
    }
    for stream in 0..maker.streams.len() {
        let Stream {
            read,
            is_queue,
            closed,
            ..
        } = maker.streams[stream];
        if closed {
            continue;
        }
        if !read && (is_queue || !maker.random.one_in(8)) || maker.random.one_in(16) {
            maker.sink(stream);
        }
    }
    (maker.case, maker.random)
}

/// What is known of a case once its graph is compiled.
struct Known {
    sinks: Vec<(Got, Vec<u64>)>,
    tallies: Vec<(String, Tally)>,
    queues: Vec<String>,
    log: Log,
    faulty: bool,
    whole: bool,
    joins: bool,
    stop: Stop,
    /// At a join, frames that are held from a run that was cut short may have lost their
    /// partners: another run pairs them with others, or finds no room for those.
    starts_again: bool,
}

impl Known {
    fn of(case: Case) -> (Kit, Self, Trip) {
        let whole = !case.faulty && !case.ends_early && case.stop == Stop::None;
        let known = Self {
            starts_again: !case.joins,
            sinks: case.sinks,
            tallies: case.tallies,
            queues: case.queues,
            log: case.log,
            faulty: case.faulty,
            whole,
            joins: case.joins || case.ends_early,
            stop: case.stop,
        };
        (case.kit, known, case.trip)
    }

    /// After a first run.
    fn check(&self, result: &Result<Report, RunError>) {
        for (got, values) in &self.sinks {
            let got = got.values();
            assert!(values.starts_with(&got), "{got:?} of {values:?}");
            if self.whole {
                assert_eq!(got.len(), values.len(), "all is to come: {result:#?}");
            }
        }
        let report = self.check_any(result);
        if self.stop == Stop::Finish && result.is_ok() && !self.joins {
            assert_ne!(report.outcome, Outcome::Cancelled);
            for node in &report.nodes {
                assert_eq!(node.held, 0, "{} has not drained", node.name);
            }
        }
    }

    /// After any run.
    fn check_any<'a>(&self, result: &'a Result<Report, RunError>) -> &'a Report {
        let report = match result {
            Ok(report) => report,
            Err(error) => {
                assert!(self.faulty, "{error}");
                let failure = error.first().unwrap();
                let node = failure.node.as_deref().unwrap_or_default();
                assert!(node.starts_with("faulty"), "{error}");
                assert!(matches!(failure.cause, FailureCause::Hook(_)), "{error}");
                error.report().unwrap()
            }
        };
        assert_balanced(&report.nodes);
        for (name, tally) in &self.tallies {
            let node = report.node(name).unwrap();
            let reported = [node.delivered, node.skipped, node.failed];
            assert_eq!(reported, tally.take(), "{name}: {report}");
        }
        for queue in &self.queues {
            let node = report.node(queue).unwrap();
            let filled = node.results.get("filled").and_then(|held| held.as_u64());
            assert_eq!(filled, Some(node.held), "{queue}: {report}");
            let count = |hook: &str| self.log.count(&format!("{queue} {hook}"));
            assert_eq!(count("acquire"), count("push") + count("cancel"), "{queue}");
            assert_eq!(count("pop"), count("release"), "{queue}");
            assert_eq!(count("started"), count("ended"), "{queue}");
            assert_eq!(count("started"), count("producer_finished"), "{queue}");
            assert_eq!(count("started"), count("consumer_finished"), "{queue}");
        }
        if let Some(in_flight) = report.in_flight {
            assert_eq!(in_flight, 0, "{report}");
        }
        report
    }
}

fn has_panicked(result: &Result<Report, RunError>) -> bool {
    let Err(RunError::Failed(failed)) = result else {
        return false;
    };
    std::iter::once(&failed.first)
        .chain(&failed.consequences)
        .any(|failure| match &failure.cause {
            FailureCause::Hook(hook) => matches!(hook.error.kind(), TaskErrorKind::Panicked { .. }),
            _ => false,
        })
}

fn queues_balance(nodes: &[NodeReport], known: &Known) {
    assert_balanced(nodes);
    for node in nodes
        .iter()
        .filter(|node| known.queues.contains(&node.name))
    {
        let log = |hook: &str| known.log.count(&format!("{} {hook}", node.name)) as u64;
        let pushed = log("push");
        let popped = log("pop");
        assert_eq!(pushed - popped, node.held, "{}", node.name);
    }
}

fn step_by_step(seed: u64) {
    let (case, mut random) = make(seed, 25);
    let (kit, known, _) = Known::of(case);
    let at = random.below(1_500);
    let look_every = random.from(20, 200);
    let mut steps = kit.steps(seed);
    steps.start().unwrap();
    let mut step = 0;
    loop {
        if step == at {
            match known.stop {
                Stop::None => {}
                Stop::Cancel => steps.cancel(),
                Stop::Finish => steps.finish(),
            }
        }
        if step % look_every == 0 {
            queues_balance(&steps.nodes(), &known);
        }
        step += 1;
        assert!(step < 200_000, "it goes on and on");
        match steps.step() {
            Stepped::Ran(_) | Stepped::Advanced(_) => {}
            Stepped::Stuck | Stepped::Ended => break,
        }
    }
    let result = steps.run();
    known.check(&result);
    if has_panicked(&result) {
        assert!(matches!(steps.start(), Err(StartError::Task(_))));
        return;
    }
    if known.starts_again {
        known.check_any(&steps.run());
    }
}

#[test]
fn random_pipelines_step_by_step() {
    StepScheduler::explore(0..cases(), step_by_step);
}

#[test]
fn random_pipelines_on_threads_and_in_pools() {
    StepScheduler::explore(0..cases() / 10, |seed| {
        let (mut case, mut random) = make(seed ^ 0x5eed, 300);
        case.kit.options.threads = match random.below(4) {
            0 => Threads::PerSection,
            workers => Threads::Pool(NonZeroUsize::new(workers as usize).unwrap()),
        };
        case.kit.options.stop_timeout = Duration::from_secs(60);
        let (kit, known, trip) = Known::of(case);
        let mut pipeline = kit.pipeline();
        let at = random.below(200);
        let stop = (pipeline.control(), known.stop, at);
        assert!(trip.0.set(stop).is_ok(), "set once");
        pipeline.start().unwrap();
        if at == 0 {
            match known.stop {
                Stop::None => {}
                Stop::Cancel => pipeline.cancel(),
                Stop::Finish => pipeline.finish(),
            }
        }
        let result = ended(&mut pipeline);
        known.check(&result);
        if has_panicked(&result) {
            assert!(matches!(pipeline.start(), Err(StartError::Task(_))));
            return;
        }
        if known.starts_again {
            pipeline.start().unwrap();
            known.check_any(&ended(&mut pipeline));
        }
    });
}

fn ended(pipeline: &mut Pipeline) -> Result<Report, RunError> {
    let ended = pipeline.wait_for(Duration::from_secs(30));
    ended.unwrap_or_else(|| panic!("it does not end: {:#?}", pipeline.metrics()))
}
