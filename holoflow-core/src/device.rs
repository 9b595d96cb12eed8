//! Streams, events and ready-after tokens, and what a device backend is.
//!
//! A *stream* is an in-order queue of device work; an *event* is a point in it. A
//! [`ReadyAfter`] token names the device work that must be done before some bytes may
//! be read or overwritten; regions carry it, and whoever wants the bytes either waits
//! on the host ([`ReadyAfter::wait`]) or makes its own stream wait
//! ([`Stream::wait_for`]).
//!
//! This module knows no GPU interface, no memory and no task. The traits here are
//! `unsafe` because the storage layer believes them: a backend that calls an event
//! complete too early would let the host read bytes that a device still writes.
//!
//! Invariants:
//!
//! 1. A [`StreamKey`] is never used twice, not even when a driver gives a new stream
//!    the handle value of a destroyed one: [`StreamKey::fresh`] is the only source.
//! 2. A token is complete once every event in it is; merging tokens loses none.
//!
//! Streams, events and tokens may be used from any thread.

use std::fmt;

use smallvec::SmallVec;

use crate::sync::{Arc, Mutex, next_id};
use crate::tensor::MemLoc;

/// A fault that a device backend reports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{backend}: {call} failed: {message}{}", if *.asynchronous {
    " (reported late: earlier work on this stream may be the cause)" } else { "" })]
#[non_exhaustive]
pub struct DeviceError {
    /// Name of the backend.
    pub backend: &'static str,
    /// The backend's name of the call that noticed the fault.
    pub call: &'static str,
    /// What the backend says of it.
    pub message: String,
    /// Whether the fault may belong to work submitted earlier than the call.
    pub asynchronous: bool,
}

impl DeviceError {
    /// A fault of the call itself.
    #[must_use]
    pub fn new(backend: &'static str, call: &'static str, message: impl Into<String>) -> Self {
        Self {
            backend,
            call,
            message: message.into(),
            asynchronous: false,
        }
    }

    /// Marks the fault as one that earlier work on the stream may have caused.
    #[must_use]
    pub fn reported_late(mut self) -> Self {
        self.asynchronous = true;
        self
    }
}

/// Identity of one stream over the life of the process.
///
/// ```
/// use holoflow_core::device::StreamKey;
/// use holoflow_core::tensor::MemLoc;
///
/// let first = StreamKey::fresh(MemLoc::Device(0));
/// let second = StreamKey::fresh(MemLoc::Device(0));
/// assert_ne!(first, second);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    device: MemLoc,
    generation: u64,
}

impl StreamKey {
    /// A key that no stream had before.
    #[must_use]
    pub fn fresh(device: MemLoc) -> Self {
        Self {
            device,
            generation: next_id(),
        }
    }

    /// The device whose work the stream orders.
    #[must_use]
    pub fn device(&self) -> MemLoc {
        self.device
    }
}

/// A point in a stream's work.
///
/// # Safety
///
/// `is_complete` may answer `Ok(true)`, and `wait` return `Ok`, only when all work
/// submitted to the stream before the event was recorded no longer touches memory.
/// `stream` is the key of the stream it was recorded on. Completion never goes back. If the
/// device is lost, so that no work runs any more, both may say complete or return an error.
/// None of the methods panics: a token that is on its way from one holder to the next would
/// be lost.
pub unsafe trait Event: Send + Sync + fmt::Debug {
    /// The stream that the event was recorded on.
    fn stream(&self) -> StreamKey;

    /// Whether the work before the event is done. Does not block.
    ///
    /// # Errors
    /// What the backend reports.
    fn is_complete(&self) -> Result<bool, DeviceError>;

    /// Blocks the calling thread until the work before the event is done.
    ///
    /// # Errors
    /// What the backend reports.
    fn wait(&self) -> Result<(), DeviceError>;
}

/// An in-order queue of device work.
///
/// # Safety
///
/// - `key` is the one [`StreamKey`] of this stream, made for it by [`StreamKey::fresh`].
/// - The token of `record` covers all work submitted before the call.
/// - After `wait_for(token)` returned `Ok`, no work submitted later starts before every
///   event of `token` is complete.
/// - `synchronize` returns `Ok` only when all submitted work is done.
pub unsafe trait Stream: Send + Sync + fmt::Debug {
    /// Who this stream is.
    fn key(&self) -> StreamKey;

    /// Records an event behind the work submitted so far.
    ///
    /// # Errors
    /// What the backend reports.
    fn record(&self) -> Result<ReadyAfter, DeviceError>;

    /// Orders later work of this stream behind `token`, without blocking the host.
    ///
    /// # Errors
    /// What the backend reports; then the caller must wait on the host instead.
    fn wait_for(&self, token: &ReadyAfter) -> Result<(), DeviceError>;

    /// Blocks the calling thread until all submitted work is done.
    ///
    /// # Errors
    /// What the backend reports, faults of earlier work among it.
    fn synchronize(&self) -> Result<(), DeviceError>;
}

/// What makes streams for the sections of one device.
///
/// # Safety
///
/// The streams made uphold the contract of [`Stream`].
pub unsafe trait DeviceBackend: Send + Sync + fmt::Debug {
    /// Short name for reports.
    fn name(&self) -> &'static str;

    /// The device that the streams order work of.
    fn device(&self) -> MemLoc;

    /// A new, empty stream.
    ///
    /// # Errors
    /// What the backend reports.
    fn create_stream(&self) -> Result<Arc<dyn Stream>, DeviceError>;
}

/// The device work that must be done before some bytes may be read or overwritten.
///
/// Cloning shares the events.
#[derive(Clone)]
pub struct ReadyAfter(Arc<Points>);

type Points = SmallVec<[Arc<dyn Event>; 1]>;

impl ReadyAfter {
    /// Ready once `event` is complete.
    #[must_use]
    pub fn new(event: Arc<dyn Event>) -> Self {
        let mut points = Points::new();
        points.push(event);
        Self(Arc::new(points))
    }

    /// Ready once both tokens are. Events that are complete already, or in both, are left
    /// out, so that tokens added again and again do not grow.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let new = other.0.iter();
        let new = new.filter(|event| !self.0.iter().any(|known| Arc::ptr_eq(known, event)));
        let open = self.0.iter().chain(new);
        let open = open.filter(|event| !event.is_complete().unwrap_or(false));
        Self(Arc::new(open.cloned().collect()))
    }

    /// Whether all of it was recorded on `key`, so that later work on that stream needs
    /// no wait.
    #[must_use]
    pub fn is_only_on(&self, key: StreamKey) -> bool {
        self.0.iter().all(|event| event.stream() == key)
    }

    /// Whether all of the work is done. Does not block.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn is_complete(&self) -> Result<bool, DeviceError> {
        for event in self.0.iter() {
            if !event.is_complete()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Blocks the calling thread until all of the work is done.
    ///
    /// # Errors
    /// What the backend reports; the other events have been waited for all the same.
    pub fn wait(&self) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for event in self.0.iter() {
            result = result.and(event.wait());
        }
        result
    }

    /// The events, for a backend's `wait_for`.
    pub fn events(&self) -> impl Iterator<Item = &Arc<dyn Event>> {
        self.0.iter()
    }
}

/// Tokens left for whoever uses some bytes next, by any thread.
#[derive(Debug)]
pub(crate) struct Pending(Mutex<Option<ReadyAfter>>);

impl Pending {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Adds a token.
    ///
    /// Tokens are merged outside of the lock: with the last token of a stream all that the
    /// stream holds may be dropped, regions among it, which leave their tokens here in turn.
    pub(crate) fn add(&self, mut token: ReadyAfter) {
        loop {
            let mut left = self.0.lock();
            let Some(earlier) = left.take() else {
                *left = Some(token);
                return;
            };
            drop(left);
            token = earlier.and(&token);
        }
    }

    /// All that was added. Nobody may be adding now: a token on its way would be missed.
    pub(crate) fn take(&self) -> Option<ReadyAfter> {
        self.0.lock().take()
    }
}

impl fmt::Debug for ReadyAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|event| event.stream()))
            .finish()
    }
}

/// The backend of host memory: its work is done when the call that submits it returns.
///
/// ```
/// use holoflow_core::device::{DeviceBackend, HostBackend};
///
/// let stream = HostBackend.create_stream()?;
/// assert!(stream.record()?.is_complete()?);
/// # Ok::<(), holoflow_core::device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct HostBackend;

// SAFETY: the streams made here are `HostStream`s, whose contract is upheld below.
unsafe impl DeviceBackend for HostBackend {
    fn name(&self) -> &'static str {
        "host"
    }

    fn device(&self) -> MemLoc {
        MemLoc::Host
    }

    fn create_stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
        Ok(Arc::new(HostStream {
            key: StreamKey::fresh(MemLoc::Host),
        }))
    }
}

#[derive(Debug)]
struct HostStream {
    key: StreamKey,
}

#[derive(Debug)]
struct Done(StreamKey);

// SAFETY: host work is never submitted; whatever came before has returned. The key is that
// of the stream that made the event.
unsafe impl Event for Done {
    fn stream(&self) -> StreamKey {
        self.0
    }

    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

// SAFETY: the key is fresh and this stream's alone; there is no outstanding work to
// cover, and `wait_for` blocks until the token is complete, so nothing later overtakes it.
unsafe impl Stream for HostStream {
    fn key(&self) -> StreamKey {
        self.key
    }

    fn record(&self) -> Result<ReadyAfter, DeviceError> {
        Ok(ReadyAfter::new(Arc::new(Done(self.key))))
    }

    fn wait_for(&self, token: &ReadyAfter) -> Result<(), DeviceError> {
        token.wait()
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event that is never complete.
    #[derive(Debug)]
    struct Never(StreamKey);

    // SAFETY: it never says that work is done.
    unsafe impl Event for Never {
        fn stream(&self) -> StreamKey {
            self.0
        }

        fn is_complete(&self) -> Result<bool, DeviceError> {
            Ok(false)
        }

        fn wait(&self) -> Result<(), DeviceError> {
            Err(DeviceError::new("test", "wait", "never"))
        }
    }

    #[test]
    fn a_merged_token_keeps_the_open_events_of_both() {
        let keys = [
            StreamKey::fresh(MemLoc::Host),
            StreamKey::fresh(MemLoc::Host),
        ];
        let [a, b] = keys.map(|key| ReadyAfter::new(Arc::new(Never(key))));
        assert!(a.is_only_on(keys[0]));
        let both = a.and(&b);
        assert_eq!(both.events().count(), 2);
        assert!(!both.is_only_on(keys[0]));

        // What is complete already is left out.
        let stream = HostBackend.create_stream().unwrap();
        let mut token = stream.record().unwrap();
        for _ in 0..100 {
            token = token.and(&stream.record().unwrap());
        }
        assert_eq!(token.events().count(), 0);
        assert!(token.is_complete().unwrap());
    }

    #[test]
    fn a_late_fault_says_so() {
        let error = DeviceError::new("cuda", "cuStreamSynchronize", "illegal address");
        assert_eq!(
            error.to_string(),
            "cuda: cuStreamSynchronize failed: illegal address"
        );
        assert_eq!(
            error.reported_late().to_string(),
            "cuda: cuStreamSynchronize failed: illegal address \
             (reported late: earlier work on this stream may be the cause)"
        );
    }
}
