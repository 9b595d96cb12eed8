//! The move-only owner of one allocation.
//!
//! Nobody reads or writes bytes through a handle; it only keeps them. The device work
//! that may still touch the bytes is noted on it, and its drop waits for that work
//! before the block goes back.

use std::fmt;

use super::{Address, Block, MemoryProvider};
use crate::device::{Pending, ReadyAfter};
use crate::sync::Arc;
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
    pending: Pending,
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
            pending: Pending::new(),
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
        self.pending.add(token);
    }
}

impl Drop for AllocationHandle {
    fn drop(&mut self) {
        if let Some(token) = self.pending.take()
            && token.wait().is_err()
        {
            // Whether a device still touches the bytes cannot be known any more: the block
            // stays allocated rather than be reused under running work.
            return;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceError, Event, StreamKey};
    use crate::memory::{HostProvider, Memory, MemoryError};
    use crate::sync::Mutex;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// Host memory that writes down when it goes back.
    #[derive(Debug)]
    struct Noted(Log);

    // SAFETY: all is passed on to the provider of the host.
    unsafe impl MemoryProvider for Noted {
        fn location(&self) -> MemLoc {
            MemLoc::Host
        }

        fn allocate(&self, bytes: usize) -> Result<Block, MemoryError> {
            HostProvider.allocate(bytes)
        }

        unsafe fn deallocate(&self, block: Block) {
            self.0.lock().push("freed");
            // SAFETY: passed on as the caller promises.
            unsafe { HostProvider.deallocate(block) }
        }
    }

    /// Work that is done when it is waited for, or that a lost device never does.
    #[derive(Debug)]
    struct Work {
        name: &'static str,
        lost: bool,
        log: Log,
    }

    // SAFETY: there is no work, so nothing touches memory.
    unsafe impl Event for Work {
        fn stream(&self) -> StreamKey {
            StreamKey::fresh(MemLoc::Host)
        }

        fn is_complete(&self) -> Result<bool, DeviceError> {
            Ok(false)
        }

        fn wait(&self) -> Result<(), DeviceError> {
            self.log.lock().push(self.name);
            if self.lost {
                return Err(DeviceError::new("test", "wait", "the device is lost"));
            }
            Ok(())
        }
    }

    fn noted() -> (Log, AllocationHandle) {
        let log = Log::default();
        let memory = Memory::none().with(Arc::new(Noted(Arc::clone(&log))));
        (log, memory.allocate(MemLoc::Host, 10).unwrap())
    }

    fn work(name: &'static str, lost: bool, log: &Log) -> ReadyAfter {
        let log = Arc::clone(log);
        ReadyAfter::new(Arc::new(Work { name, lost, log }))
    }

    #[test]
    fn an_allocation_goes_back_once() {
        let (log, handle) = noted();
        assert_eq!(handle.size(), 10);
        assert!(handle.capacity() >= 10);
        assert_eq!(handle.location(), MemLoc::Host);
        assert_eq!(
            handle.address().as_u64() % super::super::ALIGNMENT as u64,
            0
        );
        assert!(log.lock().is_empty());
        drop(handle);
        assert_eq!(*log.lock(), ["freed"]);
    }

    #[test]
    fn an_allocation_goes_back_after_all_work_noted_on_it() {
        let (log, handle) = noted();
        handle.note_pending(work("first", false, &log));
        handle.note_pending(work("second", false, &log));
        assert!(log.lock().is_empty(), "noting does not wait");
        drop(handle);
        assert_eq!(*log.lock(), ["first", "second", "freed"]);
    }

    #[test]
    fn an_allocation_that_a_lost_device_may_touch_is_leaked() {
        let (log, handle) = noted();
        handle.note_pending(work("lost", true, &log));
        handle.note_pending(work("second", false, &log));
        drop(handle);
        // The rest has been waited for all the same.
        assert_eq!(*log.lock(), ["lost", "second"]);
    }

    #[test]
    fn what_is_printed_of_a_handle_is_where_it_lies() {
        let (_, handle) = noted();
        let text = format!("{handle:?}");
        assert!(text.contains("size: 10") && text.contains("Host"), "{text}");
    }
}
