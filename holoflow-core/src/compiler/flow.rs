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
//! Nodes that declare no flow are not judged, nor is anything behind them. A queue that drops
//! frames declares a capacity of `usize::MAX`: it never makes its producer wait.
//!
//! [`Flow`]: crate::task::Flow

use std::collections::{BTreeSet, HashMap};

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
        if let Some(flow) = ir.inferred(*node).flow {
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

/// Gives each node the set of skipping nodes that its frames depend on; inputs of one node must
/// agree. Sets are numbered, since most nodes share a few.
fn check_skips(ir: &Ir, errors: &mut Vec<CompileError>) {
    if !ir.order.iter().any(|node| ir.inferred(*node).may_skip) {
        return;
    }
    let mut numbers: HashMap<BTreeSet<usize>, usize> = HashMap::from([(BTreeSet::new(), 0)]);
    let mut sets = vec![BTreeSet::new()];
    let mut of = vec![0_usize; ir.nodes.len()];
    for node in &ir.order {
        let of_source = |source: &Source| match source {
            Source::Input(_) => 0,
            Source::Node { node, .. } => of[*node],
        };
        let inputs: Vec<usize> = ir.nodes[*node].inputs.iter().map(of_source).collect();
        let mut set = inputs.first().copied().unwrap_or(0);
        if let Some(other) = inputs.iter().position(|input| *input != set) {
            let (a, b) = (&sets[set], &sets[inputs[other]]);
            // Whichever has a node that the other lacks.
            let (skipping, lacking) = match (a.difference(b).next(), b.difference(a).next()) {
                (Some(skipping), _) => (*skipping, other),
                (None, skipping) => (skipping.copied().unwrap_or(*node), 0),
            };
            errors.push(CompileError::SkipMeetsNoSkip {
                join: ir.nodes[*node].name.clone(),
                skipping: ir.nodes[skipping].name.clone(),
                other: Slot::Input(lacking),
            });
        }
        if ir.inferred(*node).may_skip {
            let mut larger = sets[set].clone();
            larger.insert(*node);
            set = *numbers.entry(larger).or_insert_with_key(|larger| {
                sets.push(larger.clone());
                sets.len() - 1
            });
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
    /// The last async node on it.
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
            .is_some_and(|flow| flow.frames_per_output + flow.held_back > 1)
    });
    if !uneven {
        return;
    }
    // Sections in the order in which frames pass: a section's number need not be that order.
    let order = section_order(found.sections.len(), &flows);
    let mut leaving: Vec<Vec<(usize, usize)>> = vec![Vec::new(); found.sections.len()];
    for (node, from, to) in &flows {
        leaving[*from].push((*node, *to));
    }
    let mut reported = BTreeSet::new();
    for (start, split) in order.iter().enumerate() {
        if leaving[*split].len() < 2 {
            continue;
        }
        let mut paths: HashMap<usize, Paths> = HashMap::new();
        for section in &order[start..] {
            let here = paths.get(section).copied();
            if here.is_none() && section != split {
                continue;
            }
            for (node, to) in &leaving[*section] {
                let Some(next) = extend(ir, here, *node) else {
                    continue;
                };
                match paths.get_mut(to) {
                    None => {
                        paths.insert(*to, next);
                    }
                    Some(known) => {
                        let error = meet(ir, found, *split, *to, known, &next);
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
    split: usize,
    to: usize,
    known: &mut Paths,
    next: &Paths,
) -> Option<CompileError> {
    let name = |node: usize| ir.nodes[node].name.clone();
    let in_section = |section: usize, first: bool| {
        let section = &found.sections[section];
        let sync = if first {
            section.sync.first()
        } else {
            section.sync.last()
        };
        let other = if first {
            section.pops.first()
        } else {
            section.pushes.first()
        };
        sync.or(other).map_or_else(String::new, |node| name(*node))
    };
    let (a, b) = (known.slowest, next.slowest);
    let mut error = None;
    if a.rate != b.rate {
        let (slow, fast) = if a.rate > b.rate { (a, b) } else { (b, a) };
        // A branch that drops what it cannot hold lets the slower one set the rate.
        if fast.holds != usize::MAX {
            error = Some(CompileError::UnevenRates {
                join: in_section(to, true),
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
            split: in_section(split, false),
            join: in_section(to, true),
            slow: name(known.slowest.last),
            needed: known.slowest.needed,
            queue: name(known.shallowest.last),
            available: known.shallowest.holds,
        });
    }
    error
}
