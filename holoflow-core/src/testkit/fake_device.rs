//! A device whose streams record work and complete it only when a test says so.
//!
//! Work is a closure. Submitting it runs nothing; [`FakeStream::step`] runs the oldest
//! item, `synchronize` runs all. So a test can look at every state that lateness makes
//! possible. The device's memory has addresses that the host cannot read; its bytes are
//! reached through [`FakeDevice::read`] and [`FakeDevice::write`].
//!
//! What it does not do: run streams by itself, find races, or model a driver.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ptr::NonNull;

use crate::device::{DeviceBackend, DeviceError, Event, ReadyAfter, Stream, StreamKey};
use crate::memory::{ALIGNMENT, Address, Block, MemoryError, MemoryProvider};
use crate::sync::{Arc, Mutex};
use crate::tensor::MemLoc;

const BACKEND: &str = "fake";

/// A device under a test's control.
///
/// ```
/// use holoflow_core::device::Stream;
/// use holoflow_core::testkit::FakeDevice;
///
/// let device = FakeDevice::new(0);
/// let stream = device.stream();
/// stream.submit(|| {});
/// let token = stream.record()?;
/// assert!(!token.is_complete()?);
/// stream.step();
/// assert!(token.is_complete()?);
/// # Ok::<(), holoflow_core::device::DeviceError>(())
/// ```
#[derive(Debug, Clone)]
pub struct FakeDevice {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    location: MemLoc,
    blocks: Mutex<Blocks>,
}

#[derive(Debug)]
struct Blocks {
    next: usize,
    bytes: BTreeMap<Address, Vec<u8>>,
}

/// Addresses start here: no process has memory mapped so high.
const FIRST_ADDRESS: usize = 1 << (usize::BITS - 2);

impl FakeDevice {
    /// Device number `ordinal`.
    #[must_use]
    pub fn new(ordinal: u32) -> Self {
        let blocks = Mutex::new(Blocks {
            next: FIRST_ADDRESS,
            bytes: BTreeMap::new(),
        });
        Self {
            inner: Arc::new(Inner {
                location: MemLoc::Device(ordinal),
                blocks,
            }),
        }
    }

    /// Where its memory is.
    #[must_use]
    pub fn location(&self) -> MemLoc {
        self.inner.location
    }

    /// The provider of its memory.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn MemoryProvider> {
        Arc::clone(&self.inner) as Arc<dyn MemoryProvider>
    }

    /// A new stream, with the means to step it.
    #[must_use]
    pub fn stream(&self) -> Arc<FakeStream> {
        Arc::new(FakeStream {
            key: StreamKey::fresh(self.location()),
            queue: Arc::new(Mutex::new(Queue::default())),
        })
    }

    /// Copies device bytes to the host; `None` if they are not all in one live block.
    #[must_use]
    pub fn read(&self, address: Address, bytes: usize) -> Option<Vec<u8>> {
        self.with(address, bytes, |found| found.to_vec())
    }

    /// Copies host bytes to the device; `None` if the place is not all in one live block.
    pub fn write(&self, address: Address, from: &[u8]) -> Option<()> {
        self.with(address, from.len(), |found| found.copy_from_slice(from))
    }

    fn with<R>(&self, address: Address, bytes: usize, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let mut blocks = self.inner.blocks.lock();
        let (start, block) = blocks.bytes.range_mut(..=address).next_back()?;
        let from = usize::try_from(address.as_u64() - start.as_u64()).ok()?;
        Some(f(block.get_mut(from..from.checked_add(bytes)?)?))
    }
}

// SAFETY: the streams made are `FakeStream`s, whose contract is upheld below.
unsafe impl DeviceBackend for FakeDevice {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn device(&self) -> MemLoc {
        self.location()
    }

    fn create_stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
        Ok(self.stream())
    }
}

// SAFETY: addresses are never reused or dereferenced on the host, grow by whole multiples
// of the alignment, and the location is a device's.
unsafe impl MemoryProvider for Inner {
    fn location(&self) -> MemLoc {
        self.location
    }

    fn allocate(&self, bytes: usize) -> Result<Block, MemoryError> {
        let location = self.location;
        let too_large = || MemoryError::TooLarge { location, bytes };
        // One alignment more than needed, so that no two blocks touch.
        let room = bytes
            .checked_next_multiple_of(ALIGNMENT)
            .and_then(|room| room.checked_add(ALIGNMENT))
            .ok_or_else(too_large)?;
        let mut content = Vec::new();
        if content.try_reserve_exact(bytes).is_err() {
            let reason = "the host has not as much to keep its bytes in".to_owned();
            return Err(MemoryError::Exhausted {
                location,
                bytes,
                reason,
            });
        }
        content.resize(bytes, 0);
        let mut blocks = self.blocks.lock();
        let start = blocks.next;
        blocks.next = start.checked_add(room).ok_or_else(too_large)?;
        let ptr = NonNull::new(std::ptr::without_provenance_mut(start)).ok_or_else(too_large)?;
        blocks.bytes.insert(Address::of(ptr), content);
        Ok(Block::new(ptr, bytes))
    }

    unsafe fn deallocate(&self, block: Block) {
        self.blocks.lock().bytes.remove(&Address::of(block.ptr()));
    }
}

/// An in-order queue of work that runs when a test steps it.
pub struct FakeStream {
    key: StreamKey,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    submitted: u64,
    done: u64,
    /// An item is running, on whatever thread stepped it.
    running: bool,
    lost: bool,
}

enum Work {
    Run(Box<dyn FnOnce() + Send>),
    WaitFor(ReadyAfter),
}

impl FakeStream {
    /// Submits work; it runs in a later step.
    pub fn submit(&self, work: impl FnOnce() + Send + 'static) {
        self.push(Work::Run(Box::new(work)));
    }

    /// Runs the oldest item. `false` if there is none, it waits for a token that is not
    /// complete, or an item is running.
    pub fn step(&self) -> bool {
        // The stream is claimed first, so that the item in front stays there while it is
        // looked at without the lock: its token may be of this very stream.
        let awaited = {
            let mut queue = self.queue.lock();
            if queue.lost || queue.running {
                return false;
            }
            let awaited = match queue.work.front() {
                None => return false,
                Some(Work::Run(_)) => None,
                Some(Work::WaitFor(token)) => Some(token.clone()),
            };
            queue.running = true;
            awaited
        };
        let ready = awaited.is_none_or(|token| token.is_complete().unwrap_or(false));
        let work = {
            let mut queue = self.queue.lock();
            if !ready {
                queue.running = false;
                return false;
            }
            queue.work.pop_front()
        };
        // Run without the lock: the work may touch this stream. If it panics, the stream is
        // stuck, and nothing behind it ever counts as done.
        if let Some(Work::Run(run)) = work {
            run();
        }
        let mut queue = self.queue.lock();
        queue.running = false;
        queue.done += 1;
        true
    }

    /// Items submitted and not done: waiting, running, or stuck since one panicked.
    #[must_use]
    pub fn pending(&self) -> usize {
        let queue = self.queue.lock();
        usize::try_from(queue.submitted - queue.done).unwrap_or(usize::MAX)
    }

    /// From now on the device is lost: nothing runs any more, and every call fails.
    pub fn lose(&self) {
        self.queue.lock().lost = true;
    }

    fn push(&self, work: Work) {
        let mut queue = self.queue.lock();
        queue.work.push_back(work);
        queue.submitted += 1;
    }

    fn check(&self, call: &'static str) -> Result<(), DeviceError> {
        check(&self.queue, call)
    }
}

fn check(queue: &Mutex<Queue>, call: &'static str) -> Result<(), DeviceError> {
    if queue.lock().lost {
        return Err(DeviceError::new(BACKEND, call, "the device is lost").reported_late());
    }
    Ok(())
}

impl fmt::Debug for FakeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeStream")
            .field("key", &self.key)
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

// SAFETY: the key is fresh; work runs in order, one item at a time; the event of `record`
// completes when as many items are done as were submitted before; `synchronize` returns
// `Ok` only when nothing is left.
unsafe impl Stream for FakeStream {
    fn key(&self) -> StreamKey {
        self.key
    }

    fn record(&self) -> Result<ReadyAfter, DeviceError> {
        self.check("record")?;
        let after = self.queue.lock().submitted;
        let event = FakeEvent {
            key: self.key,
            queue: Arc::clone(&self.queue),
            after,
        };
        Ok(ReadyAfter::new(Arc::new(event)))
    }

    fn wait_for(&self, token: &ReadyAfter) -> Result<(), DeviceError> {
        self.check("wait_for")?;
        self.push(Work::WaitFor(token.clone()));
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.check("synchronize")?;
        while self.step() {}
        match self.pending() {
            0 => Ok(()),
            _ => Err(DeviceError::new(
                BACKEND,
                "synchronize",
                "work is left: it waits for another stream, is running, or panicked",
            )),
        }
    }
}

struct FakeEvent {
    key: StreamKey,
    queue: Arc<Mutex<Queue>>,
    after: u64,
}

impl fmt::Debug for FakeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeEvent")
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

// SAFETY: the key is that of the stream that recorded it. Complete once as many items are
// done as were submitted before the record; items
// done never become fewer. `wait` cannot step the stream (its work may need the caller's
// thread), so it fails rather than return early.
unsafe impl Event for FakeEvent {
    fn stream(&self) -> StreamKey {
        self.key
    }

    fn is_complete(&self) -> Result<bool, DeviceError> {
        check(&self.queue, "is_complete")?;
        Ok(self.queue.lock().done >= self.after)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        if self.is_complete()? {
            return Ok(());
        }
        Err(DeviceError::new(
            BACKEND,
            "wait",
            "the stream was not stepped so far",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_late_and_in_order_across_a_wait() {
        let device = FakeDevice::new(0);
        let (a, b) = (device.stream(), device.stream());
        let log = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let log = Arc::clone(&log);
            move || log.lock().push(name)
        };
        a.submit(note("a"));
        b.wait_for(&a.record().unwrap()).unwrap();
        b.submit(note("b"));
        assert!(!b.step(), "b waits for a");
        assert!(log.lock().is_empty());
        assert!(a.step());
        b.synchronize().unwrap();
        assert_eq!(*log.lock(), ["a", "b"]);
    }

    #[test]
    fn device_bytes_are_reached_within_one_live_block_only() {
        let device = FakeDevice::new(1);
        let provider = device.provider();
        let block = provider.allocate(4).unwrap();
        let start = Address::of(block.ptr());
        device.write(start, &[1, 2, 3, 4]).unwrap();
        assert_eq!(device.read(start.plus(2), 2), Some(vec![3, 4]));
        assert_eq!(device.read(start.plus(2), 3), None);
        // SAFETY: the block came from this provider and goes back once.
        unsafe { provider.deallocate(block) };
        assert_eq!(device.read(start, 1), None);
    }

    #[test]
    fn a_lost_device_fails_every_call() {
        let stream = FakeDevice::new(0).stream();
        stream.submit(|| {});
        let token = stream.record().unwrap();
        stream.lose();
        assert!(token.is_complete().is_err());
        assert!(stream.synchronize().is_err());
        assert!(!stream.step());
    }
}
