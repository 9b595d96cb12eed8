//! What is fixed about a section before it runs: who needs what, in which order.
//!
//! Made of the plan once a run, so that the loop looks nothing up. With it are the few flags
//! that an iteration keeps of each node.

use std::collections::HashMap;

use super::failure::Phase;
use super::link::Link;
use super::shared::{Place, Run, SectionShared, SectionWaker};
use crate::clock::Timestamp;
use crate::compiler::{Plan, PlanNode, Section};
use crate::ids::{NodeId, TensorId};
use crate::sync::Arc;

/// A node of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Sync(usize),
    Pop(usize),
    Push(usize),
}

/// An owned input to be acquired in every iteration.
#[derive(Debug)]
pub(super) struct Acquire {
    pub(super) of: Of,
    pub(super) input: usize,
    pub(super) done: bool,
}

#[derive(Debug)]
pub(super) struct SyncPart {
    /// Where the section is while it executes the node.
    pub(super) place: u64,
    /// Which metadata it works on.
    pub(super) origin: usize,
    pub(super) source: bool,
    /// Nobody reads what it makes.
    pub(super) end: bool,
    /// Sync nodes of the section whose outputs it reads.
    pub(super) needs: Box<[usize]>,
    /// Frames made in this run.
    pub(super) made: u64,
}

#[derive(Debug)]
pub(super) struct PopPart {
    pub(super) link: Arc<Link>,
    pub(super) frames_per_output: u64,
    pub(super) origin: usize,
    /// Nobody pushes into it.
    pub(super) source: bool,
    /// Bit of the section that pushes into it.
    pub(super) upstream: u64,
    /// Some output is borrowed: the node has given the frame away with the pop, not only with
    /// the release.
    pub(super) frees_on_pop: bool,
    pub(super) popped: bool,
    /// Since when it has not drained.
    pub(super) drains_since: Option<Timestamp>,
    pub(super) made: u64,
    /// What its waker is made of; counted to know whether the task keeps one.
    pub(super) waker: Arc<SectionWaker>,
}

#[derive(Debug)]
pub(super) struct PushPart {
    pub(super) link: Arc<Link>,
    pub(super) origin: usize,
    pub(super) needs: Box<[usize]>,
    /// The section that pops from it.
    pub(super) downstream: Option<usize>,
    /// Its bit.
    pub(super) touches: u64,
    /// It takes no more.
    pub(super) finished: bool,
}

/// Sync nodes that have made nothing in this iteration.
#[derive(Debug)]
pub(super) struct Lacks {
    flags: Box<[bool]>,
    set: Vec<usize>,
}

impl Lacks {
    pub(super) fn set(&mut self, index: usize) {
        if !std::mem::replace(&mut self.flags[index], true) {
            self.set.push(index);
        }
    }

    pub(super) fn has(&self, index: usize) -> bool {
        self.flags[index]
    }

    pub(super) fn any(&self, needs: &[usize]) -> bool {
        needs.iter().any(|need| self.flags[*need])
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = usize> + '_ {
        for index in &self.set {
            self.flags[*index] = false;
        }
        self.set.drain(..)
    }
}

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) sync: Box<[SyncPart]>,
    pub(super) pops: Box<[PopPart]>,
    pub(super) pushes: Box<[PushPart]>,
    pub(super) acquires: Vec<Acquire>,
    pub(super) releases: Vec<(Of, usize)>,
    pub(super) lacks: Lacks,
    /// The sections beside this one.
    pub(super) peers: Vec<usize>,
    pub(super) origins: usize,
    /// Frames come from this section alone: all that it pops from are sources.
    pub(super) source: bool,
    /// It has an end of its own, beside what it pushes.
    pub(super) terminal: bool,
}

impl Layout {
    pub(super) fn new(index: usize, section: &mut Section, run: &Arc<Run>) -> Self {
        let plan = &*run.plan;
        let mut peers: Vec<usize> = Vec::new();
        let mut bit = |peer: Option<usize>| -> u64 {
            let Some(peer) = peer.filter(|peer| *peer != index) else {
                return 0;
            };
            let known = peers.iter().position(|known| *known == peer);
            let number = known.unwrap_or_else(|| {
                peers.push(peer);
                peers.len() - 1
            });
            1 << number.min(63)
        };
        let mut origin_of: HashMap<NodeId, usize> = HashMap::new();
        let mut origins = 0;
        let mut new_origin = || {
            origins += 1;
            origins - 1
        };
        let mut pops = Vec::with_capacity(section.pops.len());
        for (node, port) in &mut section.pops {
            let planned = &plan.nodes[node.index()];
            let upstream = planned.producer.map(|section| section.index());
            let waker = Arc::new(SectionWaker {
                run: Arc::clone(run),
                section: index,
            });
            port.node.waker = Arc::clone(&waker).into();
            let origin = new_origin();
            origin_of.insert(*node, origin);
            let link = link(run, *node);
            pops.push(PopPart {
                frames_per_output: link.frames_per_output(),
                link,
                origin,
                source: upstream.is_none(),
                upstream: bit(upstream),
                frees_on_pop: planned.owned_outputs.iter().any(|owned| !owned),
                popped: false,
                drains_since: None,
                made: 0,
                waker,
            });
        }
        let numbers: HashMap<NodeId, usize> = section
            .sync
            .iter()
            .enumerate()
            .map(|(index, (node, _))| (*node, index))
            .collect();
        let mut sync = Vec::with_capacity(section.sync.len());
        for (node, _) in &section.sync {
            let planned = &plan.nodes[node.index()];
            let source = planned.inputs.is_empty();
            let inherited = first_maker(plan, planned).and_then(|node| origin_of.get(&node));
            let origin = inherited.copied().unwrap_or_else(&mut new_origin);
            origin_of.insert(*node, origin);
            sync.push(SyncPart {
                place: Place::encode(Phase::ExecuteSync, Some(*node), None),
                origin,
                source,
                end: is_end(plan, planned),
                needs: needs(plan, planned, &numbers),
                made: 0,
            });
        }
        let mut pushes = Vec::with_capacity(section.pushes.len());
        for (node, _) in &section.pushes {
            let planned = &plan.nodes[node.index()];
            let downstream = planned.consumer.map(|section| section.index());
            let inherited = first_maker(plan, planned).and_then(|node| origin_of.get(&node));
            pushes.push(PushPart {
                link: link(run, *node),
                origin: inherited.copied().unwrap_or_else(&mut new_origin),
                needs: needs(plan, planned, &numbers),
                downstream,
                touches: bit(downstream),
                finished: false,
            });
        }
        let waker = Arc::new(SectionWaker {
            run: Arc::clone(run),
            section: index,
        });
        let others = section.sync.iter_mut().chain(&mut section.pushes);
        for (_, port) in others {
            port.node.waker = Arc::clone(&waker).into();
        }
        let declared = plan
            .outputs
            .values()
            .filter_map(|tensor| maker(plan, *tensor));
        let declared: std::collections::HashSet<NodeId> = declared.collect();
        let gives = section.sync.iter().chain(&section.pops);
        let terminal = sync.iter().any(|part| part.end)
            || pushes.iter().any(|part| part.downstream.is_none())
            || gives.into_iter().any(|(node, _)| declared.contains(node));
        let mut acquires = Vec::new();
        for (of, ports) in [
            (Of::Sync as fn(usize) -> Of, &section.sync),
            (Of::Push as fn(usize) -> Of, &section.pushes),
        ] {
            for (index, (_, port)) in ports.iter().enumerate() {
                acquires.extend(port.owned_inputs().map(|input| Acquire {
                    of: of(index),
                    input,
                    done: false,
                }));
            }
        }
        let mut releases = Vec::new();
        for (of, ports) in [
            (Of::Pop as fn(usize) -> Of, &section.pops),
            (Of::Sync as fn(usize) -> Of, &section.sync),
        ] {
            for (index, (_, port)) in ports.iter().enumerate() {
                releases.extend(port.owned_outputs().map(|output| (of(index), output)));
            }
        }
        Self {
            lacks: Lacks {
                flags: vec![false; sync.len()].into(),
                set: Vec::with_capacity(sync.len()),
            },
            source: pops.iter().all(|part| part.source),
            sync: sync.into(),
            pops: pops.into(),
            pushes: pushes.into(),
            acquires,
            releases,
            peers,
            origins,
            terminal,
        }
    }

    /// Whether some sync node takes so long that timing each of its calls costs nothing.
    pub(super) fn is_slow(&self, shared: &SectionShared) -> bool {
        const SLOW_NANOS: u64 = 20_000;
        shared.sync.iter().take(64).any(|counters| {
            let (count, sum) = counters.durations.totals();
            count > 0 && sum / count > SLOW_NANOS
        })
    }
}

fn link(run: &Run, node: NodeId) -> Arc<Link> {
    // Every async node has one.
    run.link(node)
        .cloned()
        .unwrap_or_else(|| Arc::new(Link::new(None, false)))
}

fn maker(plan: &Plan, tensor: TensorId) -> Option<NodeId> {
    let (node, _) = plan.tensors.get(tensor.index())?.producer?;
    Some(node)
}

fn first_maker(plan: &Plan, node: &PlanNode) -> Option<NodeId> {
    maker(plan, *node.inputs.first()?)
}

fn is_end(plan: &Plan, node: &PlanNode) -> bool {
    let mut outputs = node.outputs.iter();
    outputs.all(|tensor| {
        plan.tensors
            .get(tensor.index())
            .is_none_or(|tensor| tensor.readers.is_empty())
    })
}

fn needs(plan: &Plan, node: &PlanNode, numbers: &HashMap<NodeId, usize>) -> Box<[usize]> {
    let makers = node.inputs.iter().filter_map(|tensor| maker(plan, *tensor));
    let mut needs: Vec<usize> = makers
        .filter_map(|node| numbers.get(&node).copied())
        .collect();
    needs.sort_unstable();
    needs.dedup();
    needs.into()
}
