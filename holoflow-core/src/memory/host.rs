//! Plain host memory, zeroed, from the system allocator.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::{ALIGNMENT, Block, MemoryError, MemoryProvider};
use crate::tensor::MemLoc;

/// Provider of [`MemLoc::Host`] memory.
///
/// It keeps nothing: each request goes to the system allocator and each block back.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostProvider;

/// The layout of a block for a request of `bytes`; `None` if no block can be so large.
fn layout(bytes: usize) -> Option<Layout> {
    // Requests of zero bytes get a block too, so that each has an address of its own.
    Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()
}

// SAFETY: the system allocator gives zeroed, writable, unshared memory of the layout's
// size and alignment until it is freed; a `Layout` is never longer than `isize::MAX`.
unsafe impl MemoryProvider for HostProvider {
    fn location(&self) -> MemLoc {
        MemLoc::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Block, MemoryError> {
        let location = MemLoc::Host;
        let layout = layout(bytes).ok_or(MemoryError::TooLarge { location, bytes })?;
        // SAFETY: the layout's size is at least one.
        let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
        match NonNull::new(ptr) {
            Some(ptr) => Ok(Block::new(ptr, layout.size())),
            None => Err(MemoryError::Exhausted {
                location,
                bytes,
                reason: "the system allocator refused".to_owned(),
            }),
        }
    }

    unsafe fn deallocate(&self, block: Block) {
        let layout = layout(block.bytes()).expect("the block was allocated with this layout");
        // SAFETY: the caller gives back a block of this provider, whose `bytes` is the
        // size of the layout it was allocated with; the alignment is the same constant.
        unsafe { std::alloc::dealloc(block.ptr().as_ptr(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_too_large_for_any_block_is_an_error() {
        let error = HostProvider.allocate(usize::MAX).unwrap_err();
        assert_eq!(
            error,
            MemoryError::TooLarge {
                location: MemLoc::Host,
                bytes: usize::MAX
            }
        );
    }
}
