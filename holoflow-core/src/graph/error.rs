//! What can be wrong with a description, and what is only odd.
//!
//! Everything that looks at a whole description reports all that it finds: the list is a
//! [`GraphErrors`]. Each error names its place as a path ([`GraphError::place`]), what was
//! found and what was expected, and a near match where there is one.
//! [`GraphError::kind`] says which stage found it.

use std::error::Error;
use std::fmt;

use super::place::{called, cut};
use crate::storage::Slot;

/// One thing that is wrong with a description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The text is no JSON.
    #[error("line {line}, column {column}: {problem}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the parser says.
        problem: String,
    },
    /// An object has the same key twice.
    #[error("{place}: found twice, expected once")]
    DuplicateKey {
        /// The key's place.
        place: String,
    },
    /// A key is missing.
    #[error("{place}: found nothing, expected {expected}{}", hint(.nearest))]
    Missing {
        /// Where the key should be.
        place: String,
        /// What it should hold.
        expected: &'static str,
        /// A key there is that may be meant as this one.
        nearest: Option<String>,
    },
    /// A value is of the wrong type or out of range.
    #[error("{}: found {found}, expected {expected}", called(.place))]
    Value {
        /// Where the value is; empty for the whole document.
        place: String,
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A layout cannot be read.
    #[error("{place}: {problem}")]
    Layout {
        /// Where the value is.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A name is not that of a node.
    #[error(
        "{place}: found `{}`, expected the name of a node{}",
        short(.found),
        hint(.nearest)
    )]
    UnknownNode {
        /// Where the name is.
        place: String,
        /// The name.
        found: String,
        /// The nearest name there is.
        nearest: Option<String>,
    },
    /// The description is nested deeper than a text can be.
    #[error("{place}: nested {found} levels deep, expected at most {limit}")]
    TooDeep {
        /// Where the limit is passed.
        place: String,
        /// Levels there are.
        found: usize,
        /// Levels there may be.
        limit: usize,
    },
    /// A node, graph, input or output has no name.
    #[error("{place}: found an empty name, expected one")]
    EmptyName {
        /// What it is that has no name.
        place: String,
    },
    /// Two nodes of one graph have the same name.
    #[error("{place}: found twice, as nodes {first} and {second}, expected once")]
    DuplicateName {
        /// The node.
        place: String,
        /// Its name.
        name: String,
        /// Index of the first node with this name.
        first: usize,
        /// Index of the other one.
        second: usize,
    },
    /// An index is not that of a node.
    #[error("{place}: found node {found}, expected one of the {count} nodes there are")]
    NoSuchNode {
        /// Where the index is.
        place: String,
        /// The index.
        found: usize,
        /// How many nodes there are.
        count: usize,
    },
    /// A slot's number is larger than any slot's can be.
    #[error("{place}: found {found}, expected at most {limit}")]
    SlotNumber {
        /// Where the number is.
        place: String,
        /// The number.
        found: usize,
        /// The largest there can be.
        limit: usize,
    },
    /// A node stands for a subgraph that is not there.
    #[error(
        "{place}: found `graph:{}`, expected the name of a subgraph there is{}",
        short(.found),
        hint(.nearest)
    )]
    UnknownGraph {
        /// Where the kind is.
        place: String,
        /// The name.
        found: String,
        /// The nearest name there is.
        nearest: Option<String>,
    },
    /// A subgraph contains itself.
    #[error(
        "{place}: the subgraph contains itself: {}, expected none that does",
        .cycle.join(" > ")
    )]
    GraphCycle {
        /// The node that closes the cycle.
        place: String,
        /// The subgraphs on the way, from one to the same again.
        cycle: Vec<String>,
    },
    /// A connection names a slot that the subgraph does not have.
    #[error(
        "{place}: found {slot} of node `{}`, but its subgraph has {}",
        short(.node),
        slots(.slot, .names)
    )]
    NoSuchSlot {
        /// The connection.
        place: String,
        /// The slot.
        slot: Slot,
        /// The subgraph's node.
        node: String,
        /// Names of the slots that it has, in order.
        names: Vec<String>,
    },
    /// Nothing is connected to an input of a subgraph.
    #[error("{place}: nothing is connected to {slot} (`{name}`), expected one connection")]
    Unconnected {
        /// The subgraph's node.
        place: String,
        /// The slot.
        slot: Slot,
        /// Name of the input in the subgraph.
        name: String,
    },
    /// More than one thing is connected to an input of a subgraph.
    #[error(
        "{place}: {slot} (`{name}`) is connected twice, by {first} and {second}, \
         expected one connection"
    )]
    ConnectedTwice {
        /// The subgraph's node.
        place: String,
        /// The slot.
        slot: Slot,
        /// Name of the input in the subgraph.
        name: String,
        /// Place of the first connection.
        first: String,
        /// Place of another.
        second: String,
    },
    /// A node that stands for a subgraph has settings.
    #[error("{place}: found {found}, expected none: a subgraph takes no settings")]
    SubgraphSettings {
        /// Where the settings are.
        place: String,
        /// The settings.
        found: String,
    },
    /// Two nodes get the same name when the subgraphs are put in place.
    #[error(
        "{second}: found the full name `{}`, which {first} has too, expected another",
        short(.name)
    )]
    FlatNameClash {
        /// The name.
        name: String,
        /// Place of the first node.
        first: String,
        /// Place of the second node.
        second: String,
    },
    /// The graph is too large when the subgraphs are put in place.
    #[error("the subgraphs put in place make {found} {what}, expected at most {limit}")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// How many there are; the largest number stands for more.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A value given to a builder has no JSON form.
    #[error("{place}: found {found}, expected a value that JSON can hold")]
    NoJson {
        /// Place of the value.
        place: String,
        /// What was found there.
        found: String,
    },
    /// A handle given to a builder was made by another one.
    #[error("{place}: found a handle of another builder, expected one of this")]
    ForeignHandle {
        /// What the handle was used for.
        place: String,
    },
    /// Something has its name already.
    #[error("{place}: named twice, expected once")]
    NamedTwice {
        /// The place that both would have.
        place: String,
    },
    /// A subgraph has no input or output of this name.
    #[error(
        "{place}: found `{}`, expected {expected} of the subgraph{}",
        short(.found),
        hint(.nearest)
    )]
    UnknownPort {
        /// The subgraph's node.
        place: String,
        /// The name.
        found: String,
        /// `an input` or `an output`.
        expected: &'static str,
        /// The nearest name there is.
        nearest: Option<String>,
    },
}

/// Which stage finds an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphErrorKind {
    /// Reading a text: it does not have the form of a graph file.
    Json,
    /// Looking at a description in memory: it contradicts itself.
    Spec,
    /// Putting subgraphs in place.
    Subgraphs,
    /// Building a description in Rust.
    Builder,
}

impl fmt::Display for GraphErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "graph spec JSON",
            Self::Spec => "graph spec",
            Self::Subgraphs => "subgraphs",
            Self::Builder => "graph builder",
        })
    }
}

impl GraphError {
    /// Which stage finds it.
    #[must_use]
    pub fn kind(&self) -> GraphErrorKind {
        match self {
            Self::Syntax { .. }
            | Self::DuplicateKey { .. }
            | Self::Missing { .. }
            | Self::Value { .. }
            | Self::Layout { .. }
            | Self::UnknownNode { .. }
            | Self::TooDeep { .. } => GraphErrorKind::Json,
            Self::EmptyName { .. }
            | Self::DuplicateName { .. }
            | Self::NoSuchNode { .. }
            | Self::SlotNumber { .. } => GraphErrorKind::Spec,
            Self::UnknownGraph { .. }
            | Self::GraphCycle { .. }
            | Self::NoSuchSlot { .. }
            | Self::Unconnected { .. }
            | Self::ConnectedTwice { .. }
            | Self::SubgraphSettings { .. }
            | Self::FlatNameClash { .. }
            | Self::TooLarge { .. } => GraphErrorKind::Subgraphs,
            Self::NoJson { .. }
            | Self::ForeignHandle { .. }
            | Self::NamedTwice { .. }
            | Self::UnknownPort { .. } => GraphErrorKind::Builder,
        }
    }

    /// Path of the place; empty if the error is about the description as a whole.
    #[must_use]
    pub fn place(&self) -> &str {
        match self {
            Self::Syntax { .. } | Self::TooLarge { .. } => "",
            Self::FlatNameClash { second, .. } => second,
            Self::DuplicateKey { place }
            | Self::Missing { place, .. }
            | Self::Value { place, .. }
            | Self::Layout { place, .. }
            | Self::UnknownNode { place, .. }
            | Self::TooDeep { place, .. }
            | Self::EmptyName { place }
            | Self::DuplicateName { place, .. }
            | Self::NoSuchNode { place, .. }
            | Self::SlotNumber { place, .. }
            | Self::UnknownGraph { place, .. }
            | Self::GraphCycle { place, .. }
            | Self::NoSuchSlot { place, .. }
            | Self::Unconnected { place, .. }
            | Self::ConnectedTwice { place, .. }
            | Self::SubgraphSettings { place, .. }
            | Self::NoJson { place, .. }
            | Self::ForeignHandle { place }
            | Self::NamedTwice { place }
            | Self::UnknownPort { place, .. } => place,
        }
    }
}

fn hint(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

fn short(name: &str) -> String {
    cut(name.to_owned())
}

fn slots(slot: &Slot, names: &[String]) -> String {
    let direction = match slot {
        Slot::Input(_) => "inputs",
        Slot::Output(_) => "outputs",
    };
    if names.is_empty() {
        return format!("no {direction}");
    }
    let numbered: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| format!("{number} (`{name}`)"))
        .collect();
    format!("the {direction} {}", numbered.join(", "))
}

/// Something in a description that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphWarning {
    /// A key that nothing reads.
    UnknownKey {
        /// The key's place.
        place: String,
        /// The key that may be meant.
        nearest: Option<String>,
    },
    /// A subgraph has options; only those of the whole graph count.
    SubgraphOptions {
        /// Where they are.
        place: String,
    },
}

impl GraphWarning {
    /// Path of the place.
    #[must_use]
    pub fn place(&self) -> &str {
        match self {
            Self::UnknownKey { place, .. } | Self::SubgraphOptions { place } => place,
        }
    }
}

impl fmt::Display for GraphWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { place, nearest } => {
                write!(f, "{place}: unknown key, which is ignored{}", hint(nearest))
            }
            Self::SubgraphOptions { place } => {
                write!(f, "{place}: options of a subgraph have no effect")
            }
        }
    }
}

/// All that is wrong with a description: at least one error, in the order found.
///
/// Prints one error a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphErrors {
    errors: Vec<GraphError>,
    warnings: Vec<GraphWarning>,
}

impl GraphErrors {
    /// `Ok` if there are no errors.
    pub(crate) fn check(errors: Vec<GraphError>, warnings: Vec<GraphWarning>) -> Result<(), Self> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Self { errors, warnings })
        }
    }

    /// The errors.
    pub fn iter(&self) -> std::slice::Iter<'_, GraphError> {
        self.errors.iter()
    }

    /// The errors.
    #[must_use]
    pub fn as_slice(&self) -> &[GraphError] {
        &self.errors
    }

    /// What was odd besides.
    #[must_use]
    pub fn warnings(&self) -> &[GraphWarning] {
        &self.warnings
    }
}

impl From<GraphError> for GraphErrors {
    fn from(error: GraphError) -> Self {
        Self {
            errors: vec![error],
            warnings: Vec::new(),
        }
    }
}

impl IntoIterator for GraphErrors {
    type Item = GraphError;
    type IntoIter = std::vec::IntoIter<GraphError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.into_iter()
    }
}

impl<'a> IntoIterator for &'a GraphErrors {
    type Item = &'a GraphError;
    type IntoIter = std::slice::Iter<'a, GraphError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for GraphErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl Error for GraphErrors {}
