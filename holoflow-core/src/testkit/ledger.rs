//! A provider that counts what another hands out, and checks that it comes back.
//!
//! It knows nothing of who uses the memory. What it finds wrong (a block that comes back
//! twice, with another size, or was never handed out) it counts; it never panics, since
//! memory goes back in drops.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::memory::{Address, Block, MemoryError, MemoryProvider};
use crate::sync::{Arc, Mutex};
use crate::tensor::MemLoc;

/// Counts the allocations made from a provider.
///
/// ```
/// use std::sync::Arc;
/// use holoflow_core::memory::{HostProvider, Memory};
/// use holoflow_core::tensor::MemLoc;
/// use holoflow_core::testkit::Ledger;
///
/// let ledger = Ledger::new(Arc::new(HostProvider));
/// let memory = Memory::none().with(ledger.provider());
/// let handle = memory.allocate(MemLoc::Host, 10)?;
/// assert_eq!(ledger.counts().live_blocks, 1);
/// drop(handle);
/// assert_eq!(ledger.counts().live_blocks, 0);
/// assert_eq!(ledger.counts().faults, 0);
/// # Ok::<(), holoflow_core::memory::MemoryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

/// What a [`Ledger`] has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerCounts {
    /// Blocks handed out since the beginning.
    pub allocations: u64,
    /// Blocks handed out and not back.
    pub live_blocks: usize,
    /// Bytes of those blocks.
    pub live_bytes: usize,
    /// Blocks that came back wrongly.
    pub faults: u64,
}

#[derive(Debug)]
struct Inner {
    provider: Arc<dyn MemoryProvider>,
    live: Mutex<Live>,
}

#[derive(Debug, Default)]
struct Live {
    counts: LedgerCounts,
    blocks: BTreeMap<Address, usize>,
}

impl Ledger {
    /// A ledger over `provider`.
    #[must_use]
    pub fn new(provider: Arc<dyn MemoryProvider>) -> Self {
        Self {
            inner: Arc::new(Inner {
                provider,
                live: Mutex::new(Live::default()),
            }),
        }
    }

    /// The provider to allocate from, so that it is counted.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn MemoryProvider> {
        Arc::clone(&self.inner) as Arc<dyn MemoryProvider>
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> LedgerCounts {
        self.inner.live.lock().counts
    }
}

// SAFETY: blocks come from the wrapped provider, which upholds the contract, and go back
// to it unchanged.
unsafe impl MemoryProvider for Inner {
    fn location(&self) -> MemLoc {
        self.provider.location()
    }

    fn allocate(&self, bytes: usize) -> Result<Block, MemoryError> {
        let block = self.provider.allocate(bytes)?;
        let mut live = self.live.lock();
        live.blocks.insert(Address::of(block.ptr()), block.bytes());
        live.counts.allocations += 1;
        live.counts.live_blocks += 1;
        live.counts.live_bytes += block.bytes();
        Ok(block)
    }

    unsafe fn deallocate(&self, block: Block) {
        {
            let mut live = self.live.lock();
            if live.blocks.remove(&Address::of(block.ptr())) != Some(block.bytes()) {
                live.counts.faults += 1;
                return;
            }
            live.counts.live_blocks -= 1;
            live.counts.live_bytes -= block.bytes();
        }
        if self.provider.location().is_host() {
            poison(block.ptr(), block.bytes());
        }
        // SAFETY: the block came from this provider and was live until now, as the ledger
        // has just found.
        unsafe { self.provider.deallocate(block) }
    }
}

/// Overwrites a block that goes back, so that a stale reader sees nonsense.
fn poison(ptr: NonNull<u8>, bytes: usize) {
    // SAFETY: the block is host memory of `bytes` bytes that nobody uses any more and that
    // has not been given back yet.
    unsafe { ptr.write_bytes(0xDD, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HostProvider;

    #[test]
    fn a_block_that_was_never_handed_out_is_a_fault_and_not_freed() {
        let ledger = Ledger::new(Arc::new(HostProvider));
        let provider = ledger.provider();
        let block = provider.allocate(8).unwrap();
        let twice = Block::new(block.ptr(), block.bytes());
        // SAFETY: the block came from this provider and goes back once.
        unsafe { provider.deallocate(block) };
        // SAFETY: the ledger finds that the block is not live and does not pass it on.
        unsafe { provider.deallocate(twice) };
        assert_eq!(ledger.counts().faults, 1);
        assert_eq!(ledger.counts().live_bytes, 0);
    }
}
