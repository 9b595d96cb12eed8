//! What a backend promises about the memory it hands out.

use std::fmt;
use std::ptr::NonNull;

use super::MemoryError;
use crate::tensor::MemLoc;

/// Alignment in bytes of the start of every allocation.
pub const ALIGNMENT: usize = 256;

/// An address as a number: to compare, to print, to hand to a foreign interface. Device
/// addresses are not pointers of the host, so safe code can do no more with one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    pub(crate) fn of(ptr: NonNull<u8>) -> Self {
        Self(ptr.addr().get() as u64)
    }

    /// The number.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The address `bytes` further on, wrapping like the pointer would.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes as u64))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An allocation as a provider hands it out and takes it back.
#[derive(Debug)]
pub struct Block {
    ptr: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block is an address and a length; its bytes are reached only under the rules
// of the handle that owns it.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block gives out copies of the address only.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `bytes` bytes from `ptr` on. Only a provider has a use for one.
    #[must_use]
    pub fn new(ptr: NonNull<u8>, bytes: usize) -> Self {
        Self { ptr, bytes }
    }

    /// First byte. Not to be dereferenced on the host unless the block's provider is of a
    /// host location.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Allocates memory of one location.
///
/// # Safety
///
/// The storage layer makes slices of what `allocate` returns. An implementor promises:
///
/// - `location` is always the same.
/// - A block has at least the bytes asked for, starts at a multiple of [`ALIGNMENT`],
///   is no longer than `isize::MAX`, and overlaps no other block until it is given back.
/// - If the location is a host location ([`MemLoc::is_host`]), the whole block is
///   readable and writable host memory, initialised (zeroed), and stays so until it is
///   given back.
/// - `allocate` and `deallocate` may be called from any thread and do not unwind.
///
/// Safe code cannot implement it:
///
/// ```compile_fail,E0200
/// use holoflow_core::memory::{Block, MemoryError, MemoryProvider};
/// use holoflow_core::tensor::MemLoc;
///
/// #[derive(Debug)]
/// struct Liar;
/// impl MemoryProvider for Liar {
///     fn location(&self) -> MemLoc { MemLoc::Host }
///     fn allocate(&self, bytes: usize) -> Result<Block, MemoryError> {
///         Ok(Block::new(std::ptr::NonNull::dangling(), bytes))
///     }
///     unsafe fn deallocate(&self, _: Block) {}
/// }
/// ```
pub unsafe trait MemoryProvider: Send + Sync + fmt::Debug {
    /// Where the memory lies.
    fn location(&self) -> MemLoc;

    /// A zeroed block of at least `bytes` bytes; zero is a valid request.
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`] or [`MemoryError::Exhausted`].
    fn allocate(&self, bytes: usize) -> Result<Block, MemoryError>;

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// `block` came from `allocate` of this provider, was not given back before, and
    /// neither host nor device touches it any more.
    unsafe fn deallocate(&self, block: Block);
}
