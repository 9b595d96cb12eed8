//! Where bytes come from and how they go back.
//!
//! A [`MemoryProvider`] allocates in one memory location. [`Memory`] is the set of
//! providers a pipeline draws on, one for each location. An [`AllocationHandle`] is the
//! move-only owner of one allocation; dropping it gives the allocation back.
//!
//! This layer does not know who may touch which bytes (that is [`crate::storage`]) nor
//! what the bytes mean. No other part of the crate frees memory.
//!
//! Invariants:
//!
//! 1. An allocation goes back to the provider it came from, exactly once: the handle
//!    cannot be cloned, and its drop is the only caller of
//!    [`MemoryProvider::deallocate`].
//! 2. It goes back only after the device work noted on it is done.
//! 3. Bytes are initialised: providers zero what they hand out, so no safe code can
//!    read memory that nobody wrote.
//! 4. Every allocation starts at a multiple of [`ALIGNMENT`].
//!
//! Handles may be dropped on any thread.

mod error;
#[allow(unsafe_code, reason = "the one place that gives allocations back")]
mod handle;
#[allow(unsafe_code, reason = "the only caller of the system allocator")]
mod host;
#[allow(unsafe_code, reason = "declares what a provider promises")]
mod provider;
mod supply;

pub use error::MemoryError;
pub use handle::AllocationHandle;
pub use host::HostProvider;
pub use provider::{ALIGNMENT, Address, Block, MemoryProvider};
pub use supply::Memory;
