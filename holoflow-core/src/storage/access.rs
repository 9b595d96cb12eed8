//! How a task reaches the cells of its owned slots.

use super::{ContractError, Storage};

/// Access to the storage cells of a node's owned slots, for the length of one hook.
///
/// The contexts of hooks implement it: input cells are reached on the producer side,
/// output cells on the consumer side, both by sync tasks. A cell is borrowed from the
/// context, so it cannot be kept, and no slice of its bytes can live beside it.
pub trait IOStorageAccess {
    /// The cell of owned input `index`.
    ///
    /// # Errors
    /// If there is no such input, it is not owned, or the hook is on the other side.
    fn owned_input_storage(&mut self, index: usize) -> Result<&mut Storage, ContractError>;

    /// The cell of owned output `index`.
    ///
    /// # Errors
    /// If there is no such output, it is not owned, or the hook is on the other side.
    fn owned_output_storage(&mut self, index: usize) -> Result<&mut Storage, ContractError>;
}
