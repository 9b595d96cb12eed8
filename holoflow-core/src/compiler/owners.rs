//! Pass: who owns each storage, and where a copy is needed.
//!
//! Four things may stand in the way, and each is resolved by a copy, or is an error if
//! copies are not allowed:
//!
//! 1. A graph output is of a storage that a task or the application owns. The output gets a
//!    copy, since what goes out must outlive the iteration.
//! 2. A version is read by something that cannot come before its end: an async node or a
//!    graph output (both read when the section's nodes are done), another node that ends it,
//!    another input of the same node, a node that needs the result of the one that ends it, or
//!    the task that publishes it read-only. The end gets a copy; of several ends, the first by order of the edges needs none
//!    for the sake of the others.
//! 3. A storage has two owners: a slot whose task publishes it, or the application for a
//!    graph input. The first owner keeps it, by order of the edges; others get a copy. So
//!    does an owner of a part of it, since who publishes a storage publishes all of it.
//! 4. Two async nodes each own what the other borrows, so that neither can be pushed first,
//!    or one node owns and borrows the same storage. The borrower gets a copy.
//!
//! Inserting a copy changes the graph, so the pass starts over, until nothing is in the way.
//! Each copy settles an edge for good: what a copy gives has one reader, which may overwrite
//! or own it. All that one stage finds is settled in one round, so the number of rounds does
//! not grow with the graph.
//!
//! What this pass does not know: sections and memory.

use std::collections::HashSet;

use super::insert::{Before, COPY, Need, insert_copy};
use super::ir::{Ir, Reader, Source};
use super::storage::{Owner, Storages, Version};
use super::wishes::{Wish, unkept};
use super::{CompileError, CompileErrors, Conflicts};
use crate::registry::Registry;
use crate::storage::Slot;

/// Assigns storages, inserting the copies that are needed.
pub(super) fn assign(
    ir: &mut Ir,
    registry: &Registry,
    conflicts: Conflicts,
) -> Result<Storages, CompileErrors> {
    // Names that a copy could have too.
    let names = ir.nodes.iter().map(|node| &node.name);
    let alike = names.filter(|name| name.starts_with(COPY));
    let mut names: HashSet<String> = alike.cloned().collect();
    loop {
        ir.before.clear();
        let mut found = Storages::collect(ir);
        if conflicts == Conflicts::Error {
            let mut needs = settle_published(ir, &found);
            needs.extend(order_ends(ir, &found));
            needs.extend(settle_owners(ir, &mut found));
            needs.extend(order_pushes(ir, &found).err().unwrap_or_default());
            CompileErrors::check(needs.into_iter().map(|need| need.error).collect())?;
            return Ok(found);
        }
        let mut needs = settle_published(ir, &found);
        if needs.is_empty() {
            needs = order_ends(ir, &found);
        }
        if needs.is_empty() {
            needs = settle_owners(ir, &mut found);
        }
        if needs.is_empty() {
            needs = order_pushes(ir, &found).err().unwrap_or_default();
        }
        if needs.is_empty() {
            return Ok(found);
        }
        let mut errors = Vec::new();
        for need in needs {
            if let Err(error) = insert_copy(ir, registry, need, &mut names) {
                errors.push(error);
            }
        }
        CompileErrors::check(errors)?;
        ir.before.clear();
        ir.sort()?;
    }
}

/// Graph outputs and owned inputs that need a copy whatever else is decided. Since their copies
/// are readers that can be ordered before an end, this comes first.
fn settle_published(ir: &Ir, found: &Storages) -> Vec<Need> {
    let outputs = outputs_owned(ir, found, |source| found.is_published(source));
    let inputs = owned_edges(ir)
        .filter(|(source, _)| found.is_published(*source))
        .map(|(source, reader)| owner_need(ir, reader, found.owner(source)));
    outputs.into_iter().chain(inputs).collect()
}

/// The edges to owned inputs.
fn owned_edges(ir: &Ir) -> impl Iterator<Item = (Source, Reader)> {
    let owned = |reader: Reader| ir.inferred(reader.node).owned_inputs[reader.input];
    let edges = ir.edges.iter().copied();
    edges.filter(move |(_, reader)| owned(*reader))
}

/// The graph outputs of storages with an owner, as far as `which` says.
fn outputs_owned(ir: &Ir, found: &Storages, which: impl Fn(Source) -> bool) -> Vec<Need> {
    let mut needs = Vec::new();
    for (index, output) in ir.outputs.iter().enumerate() {
        let owner = found.owner(output.source);
        if owner == Owner::Compiler || !which(output.source) {
            continue;
        }
        let (first, slot) = owner_name(ir, owner);
        let name = &output.name;
        needs.push(Need {
            before: Before::Output(index),
            why: format!("graph output `{name}` is kept by the application, and {first} owns it"),
            error: CompileError::OutputOwned {
                output: name.clone(),
                owner: first,
                slot,
            },
        });
    }
    needs
}

/// Orders the readers of every version before its end. What cannot be ordered needs a copy.
fn order_ends(ir: &mut Ir, found: &Storages) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut ends = Vec::new();
    let mut wishes = Vec::new();
    let late = LateReaders::new(ir, found);
    for version in &found.versions {
        let Some((first, others)) = version.ends.split_first() else {
            continue;
        };
        // The first end keeps the version; others read it like anyone, from a copy.
        for end in others {
            let name = format!("`{}`", ir.nodes[first.node].name);
            needs.push(overwrite_need(ir, *end, &name));
        }
        if let Some(reader) = late.of(version, *first) {
            needs.push(overwrite_need(ir, *first, &reader));
            continue;
        }
        let readers = version
            .tensors
            .iter()
            .flat_map(|tensor| found.readers(*tensor));
        let readers = readers.filter(|reader| reader.node != first.node);
        wishes.extend(readers.map(|reader| Wish {
            first: reader.node,
            then: first.node,
            group: ends.len(),
            rank: ir.nodes[reader.node].edges[reader.input],
        }));
        ends.push(*first);
    }
    if !needs.is_empty() {
        by_edge(ir, &mut needs);
        return needs;
    }
    ir.before = wishes.iter().map(|wish| (wish.first, wish.then)).collect();
    if wishes.is_empty() || ir.try_sort().is_ok() {
        return needs;
    }
    // Some reader needs what comes after the end.
    for wish in unkept(ir.nodes.len(), |node| ir.needs(node), &wishes) {
        let name = format!("`{}`", ir.nodes[wish.first].name);
        needs.push(overwrite_need(ir, ends[wish.group], &name));
    }
    by_edge(ir, &mut needs);
    needs
}

/// Sorts by the edges, since the order of the nodes decides nothing but who runs first.
fn by_edge(ir: &Ir, needs: &mut [Need]) {
    needs.sort_by_key(|need| match need.before {
        Before::Input(reader) => ir.nodes[reader.node].edges[reader.input],
        Before::Output(output) => output,
    });
}

/// Finds those readers of a version that read only when the section's nodes are done.
struct LateReaders<'a> {
    ir: &'a Ir,
    found: &'a Storages,
    /// For each tensor, the first graph output that it is.
    output: Vec<Option<usize>>,
}

impl<'a> LateReaders<'a> {
    fn new(ir: &'a Ir, found: &'a Storages) -> Self {
        let mut output = vec![None; found.tensors.len()];
        for (index, of) in ir.outputs.iter().enumerate().rev() {
            output[found.tensor(of.source)] = Some(index);
        }
        Self { ir, found, output }
    }

    /// One that keeps `end` from ending the version where it is.
    fn of(&self, version: &Version, end: Reader) -> Option<String> {
        let (ir, found) = (self.ir, self.found);
        let first = found.tensors[*version.tensors.first()?];
        if matches!(found.owner(first), Owner::Input(_)) {
            return Some("the application, whose memory it is,".to_owned());
        }
        let shares = |tensor: &&usize| match found.tensors[**tensor] {
            Source::Node { node, output } => ir.inferred(node).read_only_outputs[output],
            Source::Input(_) => false,
        };
        if let Some(Source::Node { node, .. }) = version
            .tensors
            .iter()
            .find(shares)
            .map(|tensor| found.tensors[*tensor])
        {
            return Some(format!("`{}`", ir.nodes[node].name));
        }
        // Of what somebody publishes, owners and graph outputs get copies.
        let published = found.is_published(first);
        let late = |reader: &&Reader| {
            let owned = ir.inferred(reader.node).owned_inputs[reader.input];
            // Other ends get copies anyway.
            let itself = reader.node == end.node && !version.ends.contains(reader);
            itself || ir.is_async(reader.node) && !(owned && published)
        };
        let tensors = version.tensors.iter();
        let readers = tensors.clone().flat_map(|tensor| found.readers(*tensor));
        let reader = readers
            .filter(late)
            .min_by_key(|reader| ir.nodes[reader.node].edges[reader.input]);
        if let Some(reader) = reader {
            return Some(if reader.node == end.node {
                format!("its {}", Slot::Input(reader.input))
            } else {
                format!("`{}`", ir.nodes[reader.node].name)
            });
        }
        let outputs = tensors.filter_map(|tensor| self.output[*tensor]);
        let output = outputs.min().filter(|_| !published)?;
        Some(format!("graph output `{}`", ir.outputs[output].name))
    }
}

fn overwrite_need(ir: &Ir, end: Reader, reader: &str) -> Need {
    let node = &ir.nodes[end.node].name;
    let ends = if ir.inferred(end.node).owned_inputs[end.input] {
        "consumes"
    } else {
        "overwrites"
    };
    Need {
        before: Before::Input(end),
        why: format!("`{node}` {ends} it, and {reader} still reads it"),
        error: CompileError::OverwriteConflict {
            node: node.clone(),
            ends,
            input: Slot::Input(end.input),
            reader: reader.to_owned(),
        },
    }
}

/// Gives every storage its owner. A second owner needs a copy, and so does a graph output of a
/// storage that somebody owns; those of [`settle_published`] have theirs.
fn settle_owners(ir: &Ir, found: &mut Storages) -> Vec<Need> {
    let mut needs = Vec::new();
    for (source, reader) in owned_edges(ir) {
        if found.is_published(source) {
            continue;
        }
        let tensor = found.tensor(source);
        let bytes = ir.desc(source).num_bytes();
        let wanted = &ir.inferred(reader.node).input_descs[reader.input];
        let begin = found.offset[tensor];
        let root = found.storages[found.of[tensor]].root;
        let whole = (found.offset[found.tensor(root)], ir.desc(root).num_bytes());
        let storage = &mut found.storages[found.of[tensor]];
        match storage.owner {
            Owner::Compiler if (begin, bytes) == whole && begin + bytes == storage.bytes => {
                storage.owner = Owner::NodeInput(reader);
                storage.shift = wanted.offset().wrapping_sub(begin).cast_signed();
                storage.bytes = wanted.end();
            }
            Owner::Compiler => needs.push(part_need(ir, source, reader)),
            owner => needs.push(owner_need(ir, reader, owner)),
        }
    }
    let outputs = outputs_owned(ir, found, |source| !found.is_published(source));
    needs.extend(outputs);
    needs
}

fn owner_name(ir: &Ir, owner: Owner) -> (String, String) {
    match owner {
        Owner::Compiler => ("the compiler".to_owned(), "allocated".to_owned()),
        Owner::Input(input) => (
            format!("graph input `{}`", ir.inputs[input].name),
            "given from outside".to_owned(),
        ),
        Owner::NodeInput(reader) => (
            format!("`{}`", ir.nodes[reader.node].name),
            Slot::Input(reader.input).to_string(),
        ),
        Owner::NodeOutput { node, output } => (
            format!("`{}`", ir.nodes[node].name),
            Slot::Output(output).to_string(),
        ),
    }
}

fn owner_need(ir: &Ir, reader: Reader, owner: Owner) -> Need {
    let (first, first_slot) = owner_name(ir, owner);
    let (second, input) = (ir.nodes[reader.node].name.clone(), reader.input);
    Need {
        before: Before::Input(reader),
        why: format!("`{second}` owns its input {input}, and {first} owns it too"),
        error: CompileError::OwnershipConflict {
            first,
            first_slot,
            second,
            second_slot: Slot::Input(input),
        },
    }
}

fn part_need(ir: &Ir, source: Source, reader: Reader) -> Need {
    let (node, input) = (ir.nodes[reader.node].name.clone(), reader.input);
    let part = ir.source_name(source);
    Need {
        before: Before::Input(reader),
        why: format!("`{node}` owns its input {input}, and {part} is a part of a larger storage"),
        error: CompileError::OwnedPart {
            node,
            input: Slot::Input(input),
            part,
        },
    }
}

fn borrow_need(ir: &Ir, borrower: Reader, owner: usize) -> Need {
    let node = ir.nodes[borrower.node].name.clone();
    let other = ir.nodes[owner].name.clone();
    Need {
        before: Before::Input(borrower),
        why: if borrower.node == owner {
            format!("`{node}` borrows it in one input and owns it in another")
        } else {
            format!("`{node}` borrows it and `{other}` owns it, and the other way round")
        },
        error: CompileError::BorrowConflict {
            node,
            input: Slot::Input(borrower.input),
            owner: other,
        },
    }
}

/// The async nodes, so that each that borrows a tensor comes before the one that owns it.
pub(super) fn push_order(ir: &Ir, found: &Storages) -> Vec<usize> {
    order_pushes(ir, found).unwrap_or_default()
}

fn order_pushes(ir: &Ir, found: &Storages) -> Result<Vec<usize>, Vec<Need>> {
    let mut needs = Vec::new();
    let mut wishes: Vec<Wish> = Vec::new();
    let mut borrowers = Vec::new();
    for (source, borrower) in &ir.edges {
        let Owner::NodeInput(owner) = found.owner(*source) else {
            continue;
        };
        if *borrower == owner || !ir.is_async(borrower.node) || !ir.is_async(owner.node) {
            continue;
        }
        if borrower.node == owner.node {
            needs.push(borrow_need(ir, *borrower, owner.node));
        } else {
            wishes.push(Wish {
                first: borrower.node,
                then: owner.node,
                group: borrowers.len(),
                rank: ir.nodes[borrower.node].edges[borrower.input],
            });
            borrowers.push(*borrower);
        }
    }
    let mut waits = vec![0_usize; ir.nodes.len()];
    let mut then: Vec<Vec<usize>> = vec![Vec::new(); ir.nodes.len()];
    for wish in &wishes {
        waits[wish.then] += 1;
        then[wish.first].push(wish.then);
    }
    let asyncs = ir.order.iter().copied().filter(|node| ir.is_async(*node));
    let mut order: Vec<usize> = asyncs.clone().filter(|node| waits[*node] == 0).collect();
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        next += 1;
        for after in &then[node] {
            waits[*after] -= 1;
            if waits[*after] == 0 {
                order.push(*after);
            }
        }
    }
    if order.len() < asyncs.count() {
        let given_up = unkept(ir.nodes.len(), |_| std::iter::empty(), &wishes);
        let borrowed = given_up
            .into_iter()
            .map(|wish| borrow_need(ir, borrowers[wish.group], wish.then));
        needs.extend(borrowed);
    }
    if needs.is_empty() {
        Ok(order)
    } else {
        Err(needs)
    }
}
