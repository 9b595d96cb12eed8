//! Pass: whether frames can flow at all.
//!
//! From what factories say of their tasks ([`Flow`], `may_skip`):
//!
//! 1. An async node must hold as many frames as its first output needs.
//! 2. Branches that part in one section and meet in another must deliver at one rate, and
//!    each must hold as many frames as the slowest needs before its first output, since the
//!    section where they part pushes one frame into each at a time.
//! 3. A frame that one branch may skip must be skipped on every branch it meets again.
//!
//! What it does not see: branches that do not part and meet directly, but by way of others. Of
//! two sections that each feed two joins, one may wait for the other's frames in one join while
//! the other waits for its own in the other join.
//!
//! Nodes that declare no flow are not judged, nor is anything behind them. A queue that drops
//! frames declares a capacity of `usize::MAX`: it never makes its producer wait.
//!
//! [`Flow`]: crate::task::Flow

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::ir::{Ir, Source};
use super::sections::Sections;
use super::{CompileError, CompileErrors};
use crate::storage::Slot;

pub(super) fn check(ir: &Ir, sections: &Sections) -> Result<(), CompileErrors> {
    let mut errors = Vec::new();
    check_windows(ir, &mut errors);
    check_skips(ir, &mut errors);
    CompileErrors::check(errors)?;
    let mut errors = Vec::new();
    check_branches(ir, sections, &mut errors);
    CompileErrors::check(errors)
}

fn check_windows(ir: &Ir, errors: &mut Vec<CompileError>) {
    for node in &ir.order {
        if let Some(flow) = ir.inferred(*node).flow
            && !ir.nodes[*node].inputs.is_empty()
        {
            let needed = flow.frames_per_output.saturating_add(flow.held_back);
            if needed > flow.capacity {
                errors.push(CompileError::WindowTooLarge {
                    node: ir.nodes[*node].name.clone(),
                    input: 0,
                    needed,
                    available: flow.capacity,
                });
            }
        }
    }
}

/// Sets of skipping nodes. Each set is another one and a node more, or empty, so two are equal
/// only if they are the same.
struct Skips(Vec<(usize, usize, usize)>);

impl Skips {
    fn new() -> Self {
        Self(vec![(0, 0, usize::MAX)])
    }

    fn with(&mut self, set: usize, node: usize) -> usize {
        self.0.push((self.0[set].0 + 1, set, node));
        self.0.len() - 1
    }

    /// The first node that only one of the sets has, and whether it is the first of them.
    fn difference(&self, mut a: usize, mut b: usize) -> (usize, bool) {
        let mut found = (usize::MAX, true);
        while a != b {
            let of_a = self.0[a].0 >= self.0[b].0;
            let set = if of_a { &mut a } else { &mut b };
            let (_, parent, node) = self.0[*set];
            found = (node, of_a);
            *set = parent;
        }
        found
    }
}

/// Gives each node the set of skipping nodes that its frames depend on; inputs of one node must
/// agree.
fn check_skips(ir: &Ir, errors: &mut Vec<CompileError>) {
    if !ir.order.iter().any(|node| ir.inferred(*node).may_skip) {
        return;
    }
    let mut skips = Skips::new();
    let mut of = vec![0_usize; ir.nodes.len()];
    for node in &ir.order {
        let of_source = |source: &Source| match source {
            Source::Input(_) => 0,
            Source::Node { node, .. } => of[*node],
        };
        let mut inputs = ir.nodes[*node].inputs.iter().map(of_source);
        let mut set = inputs.next().unwrap_or(0);
        if let Some((other, found)) = inputs.enumerate().find(|(_, input)| *input != set) {
            let (skipping, of_first) = skips.difference(set, found);
            let lacking = if of_first { other + 1 } else { 0 };
            errors.push(CompileError::SkipMeetsNoSkip {
                join: ir.nodes[*node].name.clone(),
                skipping: ir.nodes[skipping].name.clone(),
                other: Slot::Input(lacking),
            });
        }
        if ir.inferred(*node).may_skip {
            set = skips.with(set, *node);
        }
        of[*node] = set;
    }
}

/// What a path from one section to another does to frames.
#[derive(Debug, Clone, Copy)]
struct Path {
    /// Frames at its beginning for one at its end.
    rate: usize,
    /// Frames needed at its beginning for the first at its end.
    needed: usize,
    /// Frames that can go in before any comes out at its end.
    holds: usize,
    /// The first async node on it.
    first: usize,
    /// The last async node on it, or of a shallow path the one that holds least.
    last: usize,
}

/// The best and worst of all paths from one section to another.
#[derive(Debug, Clone, Copy)]
struct Paths {
    slowest: Path,
    shallowest: Path,
}

fn check_branches(ir: &Ir, found: &Sections, errors: &mut Vec<CompileError>) {
    let flows: Vec<(usize, usize, usize)> = ir
        .order
        .iter()
        .copied()
        .filter(|node| ir.is_async(*node) && ir.inferred(*node).flow.is_some())
        .filter_map(|node| Some((node, found.taking(node)?, found.popping(node)?)))
        .collect();
    // Where every node passes on frame by frame, any depth will do.
    let uneven = flows.iter().any(|(node, ..)| {
        ir.inferred(*node)
            .flow
            .is_some_and(|flow| flow.frames_per_output.saturating_add(flow.held_back) > 1)
    });
    if !uneven {
        return;
    }
    // Sections in the order in which frames pass: a section's number need not be that order.
    let order = section_order(found.sections.len(), &flows);
    let mut position = vec![0; found.sections.len()];
    for (index, section) in order.iter().enumerate() {
        position[*section] = index;
    }
    let mut leaving: Vec<Vec<(usize, usize)>> = vec![Vec::new(); found.sections.len()];
    let mut entering = vec![0_usize; found.sections.len()];
    for (node, from, to) in &flows {
        leaving[*from].push((*node, *to));
        entering[*to] += 1;
    }
    let mut reported = BTreeSet::new();
    for split in &order {
        if leaving[*split].len() < 2 {
            continue;
        }
        let mut paths: HashMap<usize, Paths> = HashMap::new();
        let mut next = BinaryHeap::from([Reverse(position[*split])]);
        while let Some(Reverse(index)) = next.pop() {
            let section = order[index];
            // All paths lead through it: what meets behind it has parted in it or behind it.
            if section != *split && next.is_empty() {
                break;
            }
            let here = paths.get(&section).copied();
            for (node, to) in &leaving[section] {
                let Some(prolonged) = extend(ir, here, *node) else {
                    continue;
                };
                match paths.get_mut(to) {
                    None => {
                        paths.insert(*to, prolonged);
                        // At a dead end with one way in nothing meets.
                        if !leaving[*to].is_empty() || entering[*to] > 1 {
                            next.push(Reverse(position[*to]));
                        }
                    }
                    Some(known) => {
                        let error = meet(ir, found, *to, known, &prolonged);
                        if let Some(error) = error
                            && reported.insert(*to)
                        {
                            errors.push(error);
                        }
                    }
                }
            }
        }
    }
}

/// The sections, each after those whose frames it gets. There are no circles any more.
fn section_order(count: usize, flows: &[(usize, usize, usize)]) -> Vec<usize> {
    let mut graph = petgraph::graph::DiGraph::<(), ()>::with_capacity(count, flows.len());
    let vertices: Vec<_> = (0..count).map(|_| graph.add_node(())).collect();
    for (_, from, to) in flows {
        graph.add_edge(vertices[*from], vertices[*to], ());
    }
    petgraph::algo::toposort(&graph, None)
        .map(|order| {
            order
                .into_iter()
                .map(petgraph::graph::NodeIndex::index)
                .collect()
        })
        .unwrap_or_default()
}

/// The paths to a section, prolonged by an async node that it pushes into.
fn extend(ir: &Ir, here: Option<Paths>, node: usize) -> Option<Paths> {
    let flow = ir.inferred(node).flow?;
    let own = Path {
        rate: flow.frames_per_output,
        needed: flow.frames_per_output.saturating_add(flow.held_back),
        holds: flow.capacity,
        first: node,
        last: node,
    };
    let Some(here) = here else {
        return Some(Paths {
            slowest: own,
            shallowest: own,
        });
    };
    let after = |path: Path| Path {
        rate: path.rate.saturating_mul(own.rate),
        // All but the last of what `own` needs come at the path's rate, the first takes what
        // the path needs.
        needed: path
            .needed
            .saturating_add((own.needed - 1).saturating_mul(path.rate)),
        holds: path
            .holds
            .saturating_add(own.holds.saturating_mul(path.rate)),
        first: path.first,
        last: if own.holds < path.holds {
            node
        } else {
            path.last
        },
    };
    Some(Paths {
        slowest: Path {
            last: node,
            ..after(here.slowest)
        },
        shallowest: after(here.shallowest),
    })
}

/// Joins the paths that meet in section `to`; what does not fit is an error.
fn meet(
    ir: &Ir,
    found: &Sections,
    to: usize,
    known: &mut Paths,
    next: &Paths,
) -> Option<CompileError> {
    let name = |node: usize| ir.nodes[node].name.clone();
    let (a, b) = (known.slowest, next.slowest);
    let mut error = None;
    if a.rate != b.rate {
        let (slow, fast) = if a.rate > b.rate { (a, b) } else { (b, a) };
        // A branch that drops what it cannot hold lets the slower one set the rate.
        if fast.holds != usize::MAX {
            error = Some(CompileError::UnevenRates {
                join: joint(ir, found, to, slow.last, fast.last),
                slow: name(slow.last),
                slow_frames: slow.rate.to_string(),
                fast: name(fast.last),
                fast_frames: fast.rate.to_string(),
            });
        }
    }
    if next.slowest.needed > known.slowest.needed {
        known.slowest = next.slowest;
    }
    if next.shallowest.holds < known.shallowest.holds {
        known.shallowest = next.shallowest;
    }
    if error.is_none() && known.shallowest.holds < known.slowest.needed {
        error = Some(CompileError::UnevenBranches {
            split: parting(ir, known.slowest.first),
            join: joint(ir, found, to, known.slowest.last, known.shallowest.last),
            slow: name(known.slowest.last),
            needed: known.slowest.needed,
            queue: name(known.shallowest.last),
            available: known.shallowest.holds,
        });
    }
    error
}

/// Name of what the async node `first` of a branch gets its frames from.
fn parting(ir: &Ir, first: usize) -> String {
    let mut node = first;
    while let Some(source) = ir.nodes[node].inputs.first() {
        match *source {
            Source::Input(input) => return ir.inputs[input].name.clone(),
            Source::Node { node: from, .. } => node = from,
        }
        if ir.nodes[node].inserted.is_none() {
            break;
        }
    }
    ir.nodes[node].name.clone()
}

/// Name of the node in section `to` at which frames of two async nodes that lead there meet.
fn joint(ir: &Ir, found: &Sections, to: usize, a: usize, b: usize) -> String {
    let section = &found.sections[to];
    let mut from: HashMap<usize, [bool; 2]> =
        HashMap::from([(a, [true, false]), (b, [false, true])]);
    for node in section.sync.iter().chain(&section.pushes) {
        let mut of = [false; 2];
        for needed in ir.needs(*node) {
            let known = from.get(&needed).copied().unwrap_or_default();
            of = [of[0] || known[0], of[1] || known[1]];
        }
        if of == [true; 2] {
            return ir.nodes[*node].name.clone();
        }
        if !ir.is_async(*node) {
            from.insert(*node, of);
        }
    }
    // They meet only in that one section pops from both.
    let any = section.sync.first().or(section.pushes.first());
    ir.nodes[any.copied().unwrap_or(a)].name.clone()
}
