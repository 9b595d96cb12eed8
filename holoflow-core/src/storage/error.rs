//! How the storage contract can be broken, as values.
//!
//! An error here names the slot where one is known; the layer that called the hook adds
//! node and hook.

use std::fmt;

use crate::memory::Address;
use crate::tensor::{DType, MemLoc};

/// One numbered input or output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a slot is an input or an output")]
pub enum Slot {
    /// Input with this number.
    Input(usize),
    /// Output with this number.
    Output(usize),
}

impl Slot {
    /// The slot's number.
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        match self {
            Self::Input(index) | Self::Output(index) => index,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(index) => write!(f, "input {index}"),
            Self::Output(index) => write!(f, "output {index}"),
        }
    }
}

/// Why a cell or a ring does not take a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The cell holds a region already.
    #[error("the cell already holds a region: retract it first")]
    Full,
    /// The region is shorter than the tensor.
    #[error("the region has {found} bytes, the tensor needs {expected}")]
    TooSmall {
        /// Bytes of the region.
        found: usize,
        /// Bytes of the tensor.
        expected: usize,
    },
    /// The region lies in another memory.
    #[error("the region lies in {found}, the tensor belongs in {expected}")]
    WrongLocation {
        /// Where the region lies.
        found: MemLoc,
        /// Where the tensor belongs.
        expected: MemLoc,
    },
    /// The region starts at an address the element type cannot have.
    #[error("the region starts at {address:?}, which is no multiple of {align}")]
    Misaligned {
        /// Start of the region.
        address: Address,
        /// Alignment that the tensor's elements need, in bytes.
        align: usize,
    },
    /// The region is shared, and some node writes this tensor.
    #[error("the region is shared and read-only, but a node writes this tensor")]
    ReadOnly,
    /// The region is not the one that the ring gave out.
    #[error("the region is not the window that this ring has out on this side")]
    ForeignWindow,
    /// Others hold parts of a shared region that was handed out once.
    #[error("others still hold parts of the region, which is shared: drop them first")]
    StillShared,
    /// Device work on the region's bytes is outstanding where none may be.
    #[error("device work on the region is outstanding: complete the stream first")]
    InUse,
    /// The ring belongs to another node, or the call is on the wrong side.
    #[error("this ring belongs to another node: make it from this node's create context")]
    ForeignSide,
}

/// How a task broke the storage contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The node has no such slot.
    #[error("{slot} is out of range: the node has {count}")]
    SlotOutOfRange {
        /// Slot asked for.
        slot: Slot,
        /// Slots there are of this direction.
        count: usize,
    },
    /// The slot's storage is the compiler's.
    #[error("{slot} is not owned: `infer` did not mark it so, so its storage is the compiler's")]
    SlotNotOwned {
        /// Slot asked for.
        slot: Slot,
    },
    /// The slot is owned, and the task lacks the hook for it.
    #[error("{slot} is owned, but the task does not implement its hook")]
    HookMissing {
        /// Slot the hook was called for.
        slot: Slot,
    },
    /// The hook was called for another slot.
    #[error("the storage of {slot} is out of reach here: the hook was called for slot {asked}")]
    OtherSlot {
        /// Slot asked for.
        slot: Slot,
        /// Number of the slot that the hook was called for.
        asked: usize,
    },
    /// The hook has no access to cells of this direction.
    #[error(
        "the storage of {slot} is out of reach here: input cells belong to the producer \
         side, output cells to the consumer side"
    )]
    WrongSide {
        /// Slot asked for.
        slot: Slot,
    },
    /// Nothing is published in the slot's cell.
    #[error("{slot} is empty: nothing is published in its cell")]
    Empty {
        /// Slot asked for.
        slot: Slot,
    },
    /// The cell of the slot did not take the region.
    #[error("cannot publish in {slot}: {refusal}")]
    Publish {
        /// Slot published in.
        slot: Slot,
        /// Why not.
        refusal: Refusal,
    },
    /// A cell or ring did not take the region.
    #[error("a region was refused: {refusal}")]
    Refused {
        /// Why not.
        refusal: Refusal,
    },
    /// The slot holds elements of another type.
    #[error("{slot} holds {found}, asked for as {expected}")]
    WrongType {
        /// Slot asked for.
        slot: Slot,
        /// Type of the slot's elements.
        found: DType,
        /// Type asked for.
        expected: DType,
    },
    /// The bytes are not host memory.
    #[error("{slot} lies in {location}, which the host cannot read")]
    NotOnHost {
        /// Slot asked for.
        slot: Slot,
        /// Where it lies.
        location: MemLoc,
    },
    /// The layout has gaps or misaligned elements, so that it is no slice of elements.
    #[error("{slot} is no slice of elements ({layout} has gaps or is misaligned): use `bytes`")]
    NotContiguous {
        /// Slot asked for.
        slot: Slot,
        /// Its descriptor.
        layout: String,
    },
    /// An input's bytes are being overwritten through an output.
    #[error(
        "{input} shares its storage with {output}, which this node overwrites: reach it \
         through `outputs`"
    )]
    Overwritten {
        /// Input asked for.
        input: Slot,
        /// Output that shares its storage.
        output: Slot,
    },
    /// The output is a view of an input and has no bytes of its own.
    #[error("{output} is a view of an input's storage, so it cannot be written")]
    ViewOutput {
        /// Output asked for.
        output: Slot,
    },
    /// The bytes are shared.
    #[error("{slot} is shared and read-only")]
    ReadOnly {
        /// Slot asked for.
        slot: Slot,
    },
    /// The published region is not what the plan says.
    #[error("the region in {slot} does not fit the plan: {refusal}")]
    Misfit {
        /// Slot asked for.
        slot: Slot,
        /// What does not fit.
        refusal: Refusal,
    },
    /// Device work on the bytes is outstanding.
    #[error("{slot} is in use by device work: complete the stream first")]
    InUse {
        /// Slot asked for.
        slot: Slot,
    },
    /// A pair of outputs was asked for that is one output.
    #[error("{slot} was asked for twice in one call")]
    SameSlotTwice {
        /// Slot asked for.
        slot: Slot,
    },
    /// A side's token was shown to a cell or ring of another node.
    #[error(
        "this side's state belongs to another node: make cells and rings from this node's \
         create context"
    )]
    ForeignSide,
    /// A ring's window was asked for while one is out.
    #[error("the ring's window is still out on this side: commit, release or drop it first")]
    WindowOut,
    /// A hook gave a result that it cannot have, or is not one that the task has.
    #[error("{found}, but {expected}")]
    Unexpected {
        /// What was seen.
        found: &'static str,
        /// What the contract asks.
        expected: &'static str,
    },
    /// A hook was called out of order, or did not leave the cells as its result says.
    #[error("{slot}: {found}, but {expected}")]
    Order {
        /// Slot it concerns.
        slot: Slot,
        /// What was seen.
        found: &'static str,
        /// What the contract asks.
        expected: &'static str,
    },
}

impl ContractError {
    /// The same error, about another slot: the test kit reaches a task's inputs as its
    /// upstream does, through outputs.
    #[cfg(feature = "testkit")]
    pub(crate) fn about(mut self, named: Slot) -> Self {
        match &mut self {
            Self::SlotOutOfRange { slot, .. }
            | Self::Empty { slot }
            | Self::WrongType { slot, .. }
            | Self::NotOnHost { slot, .. }
            | Self::NotContiguous { slot, .. }
            | Self::ReadOnly { slot }
            | Self::Misfit { slot, .. }
            | Self::InUse { slot }
            | Self::ViewOutput { output: slot } => *slot = named,
            _ => {}
        }
        self
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
