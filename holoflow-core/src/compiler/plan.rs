//! The compiled graph as plain data, and as text.
//!
//! Everything has an id, and ids count in the order in which things are listed. The text is
//! stable: the same graph gives the same text, so it can be compared.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::ids::{NodeId, SectionId, StorageId, TensorId};
use crate::storage::Slot;
use crate::task::{Aliasing, Flow, InPlace, Placement, TaskKind};
use crate::tensor::{MemLoc, TDesc};

/// Where every byte of a graph lives, and in which order its nodes run.
///
/// Printed, it is a report: nodes, tensors, storages, sections, copies and bytes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The nodes in the order of the description, then the copies inserted.
    pub nodes: Vec<PlanNode>,
    /// The tensors: graph inputs, then the nodes' outputs in topological order.
    pub tensors: Vec<PlanTensor>,
    /// The storages.
    pub storages: Vec<PlanStorage>,
    /// The sections.
    pub sections: Vec<PlanSection>,
    /// The tensors that come in, by name.
    pub inputs: BTreeMap<String, TensorId>,
    /// The tensors that go out, by name.
    pub outputs: BTreeMap<String, TensorId>,
}

/// A node of a [`Plan`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanNode {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its settings.
    pub settings: Value,
    /// Whether drawings show the settings.
    pub debug: bool,
    /// Whether it is sync or async.
    pub task: TaskKind,
    /// Which of the kind's factories makes it.
    pub placement: Placement,
    /// Why the compiler inserted it; `None` for nodes of the description.
    pub inserted: Option<String>,
    /// Tensor of each input.
    pub inputs: Vec<TensorId>,
    /// Tensor of each output.
    pub outputs: Vec<TensorId>,
    /// For each input, whether the task publishes its storage.
    pub owned_inputs: Vec<bool>,
    /// For each output, whether the task publishes its storage.
    pub owned_outputs: Vec<bool>,
    /// Outputs that share the storage of an input.
    pub in_place: Vec<InPlace>,
    /// Whether its `execute` may answer `Skip`.
    pub may_skip: bool,
    /// Whether a hook of it may block in foreign code.
    pub blocking: bool,
    /// How frames in and out of it relate, if it is async and says so.
    pub flow: Option<Flow>,
    /// The section of a sync node, or that which pushes into an async node.
    pub producer: Option<SectionId>,
    /// The section that pops from an async node.
    pub consumer: Option<SectionId>,
}

/// A tensor of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanTensor {
    /// Its layout, with the offset it has in its storage's region.
    pub desc: TDesc,
    /// The node whose output it is, with the number; `None` for graph inputs.
    pub producer: Option<(NodeId, usize)>,
    /// Who reads it, by order of the edges.
    pub readers: Vec<(NodeId, usize)>,
    /// The region it lies in.
    pub storage: StorageId,
}

/// Which memory a storage comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Intermediate: used within an iteration.
    Execution,
    /// Declared output: outlives the iteration.
    Io,
    /// Published by the task that owns the slot, from a buffer of its own.
    Task {
        /// The owner.
        node: NodeId,
        /// Its slot.
        slot: Slot,
    },
    /// Borrowed from the application: nothing is allocated.
    Borrowed,
}

/// A storage of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanStorage {
    /// Where it lies.
    pub location: MemLoc,
    /// Bytes of its region.
    pub bytes: usize,
    /// Which memory it comes from, and who owns it.
    pub role: Role,
    /// Whether some node of its section writes it.
    pub written: bool,
    /// The section that its cell belongs to; `None` for a graph input that nobody reads.
    pub section: Option<SectionId>,
    /// The tensors in it, the first one made for it.
    pub tensors: Vec<TensorId>,
}

/// A section of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanSection {
    /// Sync nodes in the order in which they run. None in a relay section.
    pub sync: Vec<NodeId>,
    /// Async nodes that it pops from.
    pub pops: Vec<NodeId>,
    /// Async nodes that it pushes into, in order.
    pub pushes: Vec<NodeId>,
    /// The device that its stream is of; `None` without device nodes.
    pub device: Option<MemLoc>,
}

impl Plan {
    /// Name of a section.
    #[must_use]
    pub fn section_name(&self, section: SectionId) -> String {
        let relay = self
            .sections
            .get(section.index())
            .is_some_and(|found| found.sync.is_empty());
        let kind = if relay { "relay" } else { "section" };
        format!("{kind} {section}")
    }

    /// Bytes that the compiler allocates, by location; the largest number stands for more.
    #[must_use]
    pub fn bytes(&self) -> BTreeMap<MemLoc, usize> {
        let mut bytes = BTreeMap::new();
        for storage in &self.storages {
            if matches!(storage.role, Role::Execution | Role::Io) {
                let sum: &mut usize = bytes.entry(storage.location).or_default();
                *sum = sum.saturating_add(storage.bytes);
            }
        }
        bytes
    }

    /// The copies that the compiler inserted, and why.
    pub fn copies(&self) -> impl Iterator<Item = (&PlanNode, &str)> {
        self.nodes
            .iter()
            .filter_map(|node| Some((node, node.inserted.as_deref()?)))
    }

    fn name(&self, node: NodeId) -> &str {
        self.nodes.get(node.index()).map_or("", |node| &node.name)
    }

    fn names(&self, nodes: &[NodeId]) -> String {
        if nodes.is_empty() {
            return "-".to_owned();
        }
        nodes
            .iter()
            .map(|node| self.name(*node))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// How an input or output of a node stands in the text: tensor, storage, and whose it is.
    fn slot(&self, tensor: TensorId, owned: bool, shared: Option<String>) -> String {
        let storage = self
            .tensors
            .get(tensor.index())
            .map(|tensor| tensor.storage);
        let storage = storage.map_or_else(String::new, |storage| format!("/s{storage}"));
        let owned = if owned { " owned" } else { "" };
        let shared = shared.map_or_else(String::new, |shared| format!(" {shared}"));
        format!("t{tensor}{storage}{owned}{shared}")
    }

    /// How output `output` of `node` shares an input's storage.
    pub(super) fn sharing(node: &PlanNode, output: usize) -> Option<String> {
        let pair = node.in_place.iter().find(|pair| pair.output == output)?;
        Some(match pair.aliasing {
            Aliasing::View => format!("view of input {}", pair.input),
            Aliasing::Overwrite => format!("overwrites input {}", pair.input),
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nodes")?;
        for (index, node) in self.nodes.iter().enumerate() {
            let task = match node.task {
                TaskKind::Sync => "sync",
                TaskKind::Async => "async",
            };
            let section = |section| self.section_name(section);
            let place = match (node.task, node.producer, node.consumer) {
                (TaskKind::Sync, Some(of), _) => format!(" in {}", section(of)),
                (_, Some(from), Some(to)) => format!(" from {} to {}", section(from), section(to)),
                (_, Some(from), None) => format!(" from {}", section(from)),
                (_, None, Some(to)) => format!(" to {}", section(to)),
                (_, None, None) => String::new(),
            };
            let (name, kind) = (&node.name, &node.kind);
            write!(f, "  n{index} {name} ({kind}) {task}{place}")?;
            if node.placement == Placement::Device {
                write!(f, ", device")?;
            }
            if node.may_skip {
                write!(f, ", may skip")?;
            }
            writeln!(f)?;
            for (input, tensor) in node.inputs.iter().enumerate() {
                let owned = node.owned_inputs.get(input) == Some(&true);
                writeln!(f, "    in {input}: {}", self.slot(*tensor, owned, None))?;
            }
            for (output, tensor) in node.outputs.iter().enumerate() {
                let owned = node.owned_outputs.get(output) == Some(&true);
                let shared = Self::sharing(node, output);
                writeln!(f, "    out {output}: {}", self.slot(*tensor, owned, shared))?;
            }
        }
        writeln!(f, "tensors")?;
        for (index, tensor) in self.tensors.iter().enumerate() {
            write!(f, "  t{index} {} in s{}", tensor.desc, tensor.storage)?;
            match tensor.producer {
                Some((node, output)) => writeln!(f, ", output {output} of {}", self.name(node))?,
                None => writeln!(f, ", graph input")?,
            }
        }
        writeln!(f, "storages")?;
        for (index, storage) in self.storages.iter().enumerate() {
            let role = match storage.role {
                Role::Execution => "execution memory".to_owned(),
                Role::Io => "i/o memory".to_owned(),
                Role::Borrowed => "borrowed from the application".to_owned(),
                Role::Task { node, slot } => format!("owned by {slot} of {}", self.name(node)),
            };
            let section = storage.section.map_or_else(String::new, |section| {
                format!(", {}", self.section_name(section))
            });
            let (bytes, location) = (storage.bytes, storage.location);
            writeln!(f, "  s{index} {bytes} bytes in {location}, {role}{section}")?;
        }
        writeln!(f, "sections")?;
        for (index, section) in self.sections.iter().enumerate() {
            let id = SectionId::new(u32::try_from(index).unwrap_or(u32::MAX));
            writeln!(f, "  {}", self.section_name(id))?;
            writeln!(f, "    pops: {}", self.names(&section.pops))?;
            writeln!(f, "    runs: {}", self.names(&section.sync))?;
            writeln!(f, "    pushes: {}", self.names(&section.pushes))?;
            if let Some(device) = section.device {
                writeln!(f, "    stream: {device}")?;
            }
        }
        for (title, border) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            if !border.is_empty() {
                writeln!(f, "{title}")?;
                for (name, tensor) in border {
                    writeln!(f, "  {name}: {}", self.slot(*tensor, false, None))?;
                }
            }
        }
        if self.copies().next().is_some() {
            writeln!(f, "copies")?;
            for (node, why) in self.copies() {
                writeln!(f, "  {}: {why}", node.name)?;
            }
        }
        writeln!(f, "bytes allocated")?;
        if self.bytes().is_empty() {
            writeln!(f, "  none")?;
        }
        for (location, bytes) in self.bytes() {
            writeln!(f, "  {location}: {bytes}")?;
        }
        Ok(())
    }
}
