//! What happened in a run, node by node; and the same while it goes on.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::histogram::Durations;
use super::link::Link;
use super::shared::{Counters, Run};
use crate::compiler::PlanNode;
use crate::ids::NodeId;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::task::TaskKind;
use crate::tensor::MemLoc;

/// How a run ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// By itself: its sources, or those who take the frames, had enough.
    Completed,
    /// It was told to finish, and has drained.
    Finished,
    /// It was cancelled.
    Cancelled,
}

/// What happened in a run.
///
/// Printed, it is a table of the nodes. It can be written as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub elapsed: Duration,
    /// Frames in flight at the end, if they were limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// The nodes, in the order of the plan.
    pub nodes: Vec<NodeReport>,
    /// From each source to each end, how long frames took.
    pub latency: Vec<PathLatency>,
}

/// What happened at one node in a run.
///
/// For every node, `frames_in` is what came out (`delivered` and `discarded_at_end`, times the
/// frames that go in for one that comes out), and `dropped`, `consumer_finished`, `skipped`,
/// `failed`, and what is `held` now beyond what was held before the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Frames offered to it; of a source, frames made.
    pub frames_in: u64,
    /// Frames that it gave, and that were worked on.
    pub delivered: u64,
    /// Frames that it dropped by a policy of its own.
    pub dropped: u64,
    /// Frames offered to it when nobody took any more from it.
    pub consumer_finished: u64,
    /// Frames that it gave as the section that took them ended.
    pub discarded_at_end: u64,
    /// Frames for which it made no output.
    pub skipped: u64,
    /// Frames that failed in it.
    pub failed: u64,
    /// Frames inside of it now.
    pub held: u64,
    /// Frames inside of it before the run.
    pub held_before: u64,
    /// Frames delivered a second.
    pub rate: f64,
    /// Bytes of the tensors it read and wrote, by location.
    pub bytes: BTreeMap<MemLoc, u64>,
    /// Bytes that it said it copied.
    pub copied_bytes: u64,
    /// How long its calls took that were timed.
    pub durations: Durations,
    /// What it had to say of the run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, Value>,
}

/// How long frames took from a source to an end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PathLatency {
    /// The source.
    pub from: String,
    /// The end.
    pub to: String,
    /// From the frame's capture, if its source says when that was, or else from when the
    /// source was asked for it; of some frames.
    pub latency: Durations,
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl Report {
    pub(super) fn of(run: &Arc<Run>, links: &[Option<Arc<Link>>]) -> Self {
        let outcome = if run.was_cut_short() {
            Outcome::Cancelled
        } else if run.stop.is_finishing() {
            Outcome::Finished
        } else {
            Outcome::Completed
        };
        let elapsed = run.end_time().saturating_since(run.started);
        let name = |node: NodeId| run.node_name(node).unwrap_or_default();
        let latency = run.latency.lock();
        let latency = latency.iter().map(|((from, to), histogram)| PathLatency {
            from: name(*from),
            to: name(*to),
            latency: histogram.durations(),
        });
        Self {
            outcome,
            elapsed,
            in_flight: run.credit.as_ref().map(|credit| credit.in_flight()),
            nodes: node_reports(run, links, elapsed),
            latency: latency.collect(),
        }
    }

    /// What happened at the node with this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Whether frames were dropped by a node's policy, or failed.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.nodes.iter().any(NodeReport::has_losses)
    }
}

impl NodeReport {
    /// As [`Report::has_losses`], for this node.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.dropped > 0 || self.failed > 0
    }
}

/// The state of all nodes.
pub(super) fn node_reports(
    run: &Run,
    links: &[Option<Arc<Link>>],
    elapsed: Duration,
) -> Vec<NodeReport> {
    let mut sync: Vec<Option<(usize, usize)>> = vec![None; run.plan.nodes.len()];
    let (mut pops, mut pushes) = (sync.clone(), sync.clone());
    for (section, planned) in run.plan.sections.iter().enumerate() {
        for (places, nodes) in [
            (&mut sync, &planned.sync),
            (&mut pops, &planned.pops),
            (&mut pushes, &planned.pushes),
        ] {
            for (index, node) in nodes.iter().enumerate() {
                places[node.index()] = Some((section, index));
            }
        }
    }
    let results = run.results.lock();
    let reports = run.plan.nodes.iter().enumerate().map(|(index, planned)| {
        let id = NodeId::new(u32::try_from(index).unwrap_or(u32::MAX));
        let mut report = NodeReport {
            name: planned.name.clone(),
            kind: planned.kind.clone(),
            frames_in: 0,
            delivered: 0,
            dropped: 0,
            consumer_finished: 0,
            discarded_at_end: 0,
            skipped: 0,
            failed: 0,
            held: 0,
            held_before: 0,
            rate: 0.0,
            bytes: BTreeMap::new(),
            copied_bytes: 0,
            durations: Durations::default(),
            results: results.get(&id).cloned().unwrap_or_default(),
        };
        let sections = &run.sections;
        if let Some((section, index)) = sync[index] {
            let shared = &sections[section];
            let counters = &shared.sync[index];
            report.delivered = load(&shared.iterations).saturating_sub(load(&counters.lacking));
            report.skipped = load(&counters.skipped);
            report.failed = load(&counters.failed);
            report.frames_in = report.delivered + report.skipped + report.failed;
            report.copied_bytes = load(&counters.copied_bytes);
            report.durations = counters.durations.durations();
            let runs = report.delivered;
            report.count_bytes(run, planned, runs, runs);
        }
        if let Some(link) = &links[index] {
            let push = pushes[index].map(|(section, index)| &sections[section].pushes[index]);
            let pop = pops[index].map(|(section, index)| &sections[section].pops[index]);
            report.of_link(run, planned, index, link, push, pop);
        }
        let seconds = elapsed.as_secs_f64();
        if seconds > 0.0 {
            report.rate = report.delivered as f64 / seconds;
        }
        report
    });
    reports.collect()
}

impl NodeReport {
    fn of_link(
        &mut self,
        run: &Run,
        planned: &PlanNode,
        index: usize,
        link: &Link,
        push: Option<&Counters>,
        pop: Option<&Counters>,
    ) {
        let before = run.held_before[index];
        let accepted = link.accepted().saturating_sub(before.accepted);
        let taken = link.taken().saturating_sub(before.taken);
        if let Some(push) = push {
            self.consumer_finished = load(&push.consumer_finished);
            self.failed += load(&push.failed);
            self.dropped += load(&push.dropped);
            self.copied_bytes += load(&push.copied_bytes);
            self.frames_in = accepted + self.consumer_finished + load(&push.failed);
            self.durations = push.durations.durations();
        }
        if let Some(pop) = pop {
            self.discarded_at_end = load(&pop.discarded);
            self.failed += load(&pop.failed);
            self.dropped += load(&pop.dropped);
            self.copied_bytes += load(&pop.copied_bytes);
            self.delivered = taken.saturating_sub(self.discarded_at_end);
            self.durations = pop.durations.durations();
        }
        match (push, pop) {
            // A source holds nothing that was counted.
            (None, Some(_)) => self.frames_in = taken,
            (Some(_), None) => self.delivered = accepted.saturating_sub(self.dropped),
            _ => {
                self.held = link.held();
                self.held_before = before.held;
            }
        }
        self.count_bytes(run, planned, accepted, taken);
    }

    /// Each tensor counts in full each time it was read or written.
    fn count_bytes(&mut self, run: &Run, planned: &PlanNode, read: u64, written: u64) {
        for (tensors, times) in [(&planned.inputs, read), (&planned.outputs, written)] {
            for tensor in tensors {
                let desc = &run.plan.tensors[tensor.index()].desc;
                let bytes = (desc.num_bytes() as u64).saturating_mul(times);
                let sum = self.bytes.entry(desc.location()).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Completed => "completed",
            Outcome::Finished => "finished",
            Outcome::Cancelled => "cancelled",
        };
        writeln!(f, "{outcome} after {:.3} s", self.elapsed.as_secs_f64())?;
        let name = |node: &NodeReport| node.name.chars().count();
        let width = self.nodes.iter().map(name).max().unwrap_or(0).max(4);
        writeln!(
            f,
            "{:width$}  {:>10}  {:>10}  {:>8}  {:>8}  {:>8}  {:>12}",
            "node", "in", "delivered", "dropped", "failed", "held", "frames/s"
        )?;
        for node in &self.nodes {
            writeln!(
                f,
                "{:width$}  {:>10}  {:>10}  {:>8}  {:>8}  {:>8}  {:>12.1}",
                node.name,
                node.frames_in,
                node.delivered,
                node.dropped,
                node.failed,
                node.held,
                node.rate
            )?;
            for (what, count) in [
                ("skipped", node.skipped),
                (
                    "offered after its consumer had ended",
                    node.consumer_finished,
                ),
                ("discarded at the end", node.discarded_at_end),
            ] {
                if count > 0 {
                    writeln!(f, "{:width$}  {what}: {count}", "")?;
                }
            }
            for (key, value) in &node.results {
                writeln!(f, "{:width$}  {key}: {value}", "")?;
            }
        }
        for path in &self.latency {
            let PathLatency { from, to, latency } = path;
            writeln!(
                f,
                "latency {from} to {to}: p50 {:.3} ms, p99 {:.3} ms, longest {:.3} ms",
                latency.p50_ms, latency.p99_ms, latency.max_ms
            )?;
        }
        Ok(())
    }
}

/// The figures of a pipeline, since its start and since they were last asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Time since the start of the run.
    pub elapsed: Duration,
    /// Time since the figures were last asked for, or since the start.
    pub interval: Duration,
    /// Frames in flight, if they are limited.
    pub in_flight: Option<u64>,
    /// The nodes by name; none before the first start.
    pub nodes: BTreeMap<String, NodeMetrics>,
}

/// The figures of one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// Since the start of the run; durations among them.
    pub total: NodeReport,
    /// Frames delivered in the interval.
    pub delivered: u64,
    /// Frames dropped in the interval.
    pub dropped: u64,
    /// Frames delivered a second in the interval.
    pub rate: f64,
    /// Mean duration of the calls that were timed in the interval, in milliseconds.
    pub mean_ms: f64,
    /// Bytes by location in the interval.
    pub bytes: BTreeMap<MemLoc, u64>,
    /// Times that its section has gone to sleep, since the start.
    pub waits: u64,
    /// Frames it can hold, if it is async and says so.
    pub capacity: Option<usize>,
}

/// What an interval begins with.
#[derive(Debug, Default)]
pub(crate) struct LastMetrics {
    elapsed: Duration,
    nodes: Vec<NodeReport>,
}

impl Metrics {
    /// The figures now; `last` is what they were, and becomes what they are.
    pub(crate) fn of(run: &Arc<Run>, last: &mut LastMetrics) -> Self {
        let elapsed = run.end_time().saturating_since(run.started);
        let reports = node_reports(run, &run.links, elapsed);
        let interval = elapsed.saturating_sub(last.elapsed);
        let seconds = interval.as_secs_f64();
        let nodes = reports.iter().zip(&run.plan.nodes).enumerate();
        let nodes = nodes.map(|(index, (total, planned))| {
            let before = last.nodes.get(index);
            let since = |of: fn(&NodeReport) -> u64| of(total).saturating_sub(before.map_or(0, of));
            let sum =
                |report: &NodeReport| report.durations.mean_ms * report.durations.samples as f64;
            let samples = since(|report| report.durations.samples);
            let timed = sum(total) - before.map_or(0.0, sum);
            let delivered = since(|report| report.delivered);
            let bytes = total.bytes.iter().map(|(location, bytes)| {
                let before = before.and_then(|before| before.bytes.get(location));
                (
                    *location,
                    bytes.saturating_sub(before.copied().unwrap_or(0)),
                )
            });
            let section = planned.producer.or(planned.consumer);
            let section = section.and_then(|section| run.sections.get(section.index()));
            let metrics = NodeMetrics {
                delivered,
                dropped: since(|report| report.dropped),
                rate: if seconds > 0.0 {
                    delivered as f64 / seconds
                } else {
                    0.0
                },
                mean_ms: if samples > 0 {
                    timed / samples as f64
                } else {
                    0.0
                },
                bytes: bytes.collect(),
                waits: section.map_or(0, |section| load(&section.waits)),
                capacity: planned
                    .flow
                    .filter(|_| planned.task == TaskKind::Async)
                    .map(|flow| flow.capacity)
                    .filter(|capacity| *capacity != usize::MAX),
                total: total.clone(),
            };
            (planned.name.clone(), metrics)
        });
        let metrics = Self {
            elapsed,
            interval,
            in_flight: run.credit.as_ref().map(|credit| credit.in_flight()),
            nodes: nodes.collect(),
        };
        *last = LastMetrics {
            elapsed,
            nodes: reports,
        };
        metrics
    }
}
