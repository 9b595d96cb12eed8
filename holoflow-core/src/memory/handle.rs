//! The move-only owner of one allocation.
//!
//! Nobody reads or writes bytes through a handle; it only keeps them. The device work
//! that may still touch the bytes is noted on it, and its drop waits for that work
//! before the block goes back.

use std::fmt;

use super::{Address, Block, MemoryProvider};
use crate::device::ReadyAfter;
use crate::sync::{Arc, Mutex};
use crate::tensor::MemLoc;

/// Owns one allocation and gives it back once, on drop.
pub struct AllocationHandle {
    /// `None` only while the handle is being dropped.
    block: Option<Block>,
    address: Address,
    capacity: usize,
    size: usize,
    location: MemLoc,
    provider: Arc<dyn MemoryProvider>,
    /// Device work that may touch the bytes after the last region of them has gone.
    pending: Mutex<Option<ReadyAfter>>,
}

impl AllocationHandle {
    pub(super) fn new(block: Block, size: usize, provider: Arc<dyn MemoryProvider>) -> Self {
        Self {
            address: Address::of(block.ptr()),
            capacity: block.bytes(),
            size,
            location: provider.location(),
            block: Some(block),
            provider,
            pending: Mutex::new(None),
        }
    }

    /// Bytes asked for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes there are, at least [`size`](Self::size).
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the bytes lie.
    #[must_use]
    pub fn location(&self) -> MemLoc {
        self.location
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// The block, for the storage layer, which hands out regions of it.
    pub(crate) fn block(&self) -> &Block {
        self.block.as_ref().expect("only drop takes the block")
    }

    /// Notes device work that must be done before the block goes back.
    pub(crate) fn note_pending(&self, token: ReadyAfter) {
        let mut pending = self.pending.lock();
        *pending = Some(match pending.take() {
            Some(earlier) => earlier.and(&token),
            None => token,
        });
    }
}

impl Drop for AllocationHandle {
    fn drop(&mut self) {
        if let Some(token) = self.pending.get_mut().take() {
            if token.wait().is_err() {
                // Whether a device still touches the bytes cannot be known any more: the
                // block stays allocated rather than be reused under running work.
                return;
            }
        }
        if let Some(block) = self.block.take() {
            // SAFETY: the block came from this provider and is taken out of the handle, so
            // it goes back once; regions keep the handle alive, so none is left, and the
            // device work noted on it is done.
            unsafe { self.provider.deallocate(block) }
        }
    }
}

impl fmt::Debug for AllocationHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocationHandle")
            .field("address", &self.address)
            .field("size", &self.size)
            .field("capacity", &self.capacity)
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}
