//! Unique owners of byte ranges, and what they share.
//!
//! A region is made from a whole allocation, by splitting another region, by a ring that
//! owns the region its windows lie in, or from a [`SharedRegion`]. In each case it owns
//! a count ([`Keep`]) on what its bytes lie in, so that they outlive it whatever happens
//! to buffer, ring or task.
//!
//! What it does not know: which cell it is published in, and what its bytes mean.
//!
//! Why a ready-after token goes to the keeper when a region is dropped: device work may
//! still touch the bytes of a region that is gone. Whoever may hand the same bytes out
//! again (the allocation's provider, the ring, the owner of a shared region) finds the
//! token there. A ring that is dropped leaves it to the keeper of the region it cut up.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use crate::device::{DeviceError, Pending, ReadyAfter};
use crate::memory::{Address, AllocationHandle, Memory, MemoryError};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tensor::{Element, MemLoc};

/// Move-only owner of a range of bytes of one allocation.
///
/// Bytes are reached through `&Region` or `&mut Region`, so the compiler sees every use.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::TaskBuffer;
/// use holoflow_core::tensor::MemLoc;
///
/// let mut region = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 8)?.into_region();
/// region.as_mut_slice::<u32>()?.copy_from_slice(&[7, 9]);
/// let (head, tail) = region.split_at(4).expect("4 is within the region");
/// assert_eq!(head.as_slice::<u32>()?, [7]);
/// assert_eq!(tail.as_slice::<u32>()?, [9]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Region {
    body: Box<Body>,
}

/// What a region is. It is boxed since a region is moved some ten times a frame: one word
/// stays in a register, also through calls and in an enum, and several go through memory,
/// where reading them back in other pieces than they were written in stalls the processor.
struct Body {
    ptr: NonNull<u8>,
    len: usize,
    location: MemLoc,
    shared: bool,
    ready: Option<ReadyAfter>,
    keep: Arc<Keep>,
}

const _: () = assert!(size_of::<Option<Region>>() == size_of::<usize>());

// SAFETY: a region owns its bytes alone, or shares them with others that only read; the
// bytes are plain memory, bound to no thread.
unsafe impl Send for Region {}
// SAFETY: through `&Region` bytes are only read.
unsafe impl Sync for Region {}

/// What keeps a region's bytes.
#[derive(Debug)]
pub(super) enum Keep {
    /// The allocation itself.
    Allocation(AllocationHandle),
    /// The region that a ring cuts windows from, and what tells the ring when it is gone.
    Window { fate: Arc<WindowFate> },
    /// A region that nobody writes as long as it is shared.
    Shared { region: Region, pending: Pending },
}

impl Keep {
    /// Keeps `token` for whoever hands these bytes out next.
    fn note_pending(&self, token: ReadyAfter) {
        match self {
            Self::Allocation(handle) => handle.note_pending(token),
            Self::Window { fate } => fate.pending.add(token),
            Self::Shared { pending, .. } => pending.add(token),
        }
    }
}

fn merge(pending: &mut Option<ReadyAfter>, token: ReadyAfter) {
    *pending = Some(match pending.take() {
        Some(earlier) => earlier.and(&token),
        None => token,
    });
}

impl Drop for Keep {
    fn drop(&mut self) {
        match self {
            Self::Allocation(_) => {}
            // Release: pairs with the acquire in `WindowFate::take_dropped`. Every use of the
            // window's bytes happened before its regions were dropped.
            Self::Window { fate } => fate.dropped.store(true, Ordering::Release),
            Self::Shared { region, pending } => {
                if let Some(token) = pending.take() {
                    region.not_before(token);
                }
            }
        }
    }
}

/// What a ring learns of a window that does not come back by `commit` or `release`.
#[derive(Debug)]
pub(super) struct WindowFate {
    whole: Arc<Region>,
    dropped: AtomicBool,
    pending: Pending,
}

impl WindowFate {
    pub(super) fn new(whole: &Arc<Region>) -> Arc<Self> {
        Arc::new(Self {
            whole: Arc::clone(whole),
            dropped: AtomicBool::new(false),
            pending: Pending::new(),
        })
    }

    /// Whether every region of the window has been dropped; asks once.
    pub(super) fn take_dropped(&self) -> bool {
        if self.dropped.load(Ordering::Acquire) {
            // Only the ring's side writes `false`, and no window is out that could write.
            self.dropped.store(false, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// Device work that dropped regions of the window left outstanding.
    pub(super) fn take_pending(&self) -> Option<ReadyAfter> {
        self.pending.take()
    }
}

impl Drop for WindowFate {
    fn drop(&mut self) {
        // Ring and windows are gone: the keeper of the ring's region is next in line.
        if let Some(token) = self.pending.take() {
            self.whole.body.keep.note_pending(token);
        }
    }
}

impl Region {
    /// Length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.body.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.len == 0
    }

    /// Where the bytes lie.
    #[must_use]
    #[inline]
    pub fn location(&self) -> MemLoc {
        self.body.location
    }

    /// Address of the first byte.
    #[must_use]
    #[inline]
    pub fn address(&self) -> Address {
        Address::of(self.body.ptr)
    }

    /// Whether it shares its bytes with others, so that nobody writes them.
    #[must_use]
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.body.shared
    }

    /// The device work that must be done before the bytes are read or overwritten.
    #[must_use]
    #[inline]
    pub fn ready_after(&self) -> Option<&ReadyAfter> {
        self.body.ready.as_ref()
    }

    /// Adds device work that must be done before the bytes are read or overwritten.
    pub fn not_before(&mut self, token: ReadyAfter) {
        merge(&mut self.body.ready, token);
    }

    /// Waits on the host for the outstanding device work.
    ///
    /// # Errors
    /// What the device reports; the token then stays.
    pub fn complete(&mut self) -> Result<(), DeviceError> {
        if let Some(token) = &self.body.ready {
            token.wait()?;
            self.body.ready = None;
        }
        Ok(())
    }

    /// Cuts the region in two at byte `mid`.
    ///
    /// # Errors
    /// Gives the region back if `mid` lies behind its end.
    pub fn split_at(mut self, mid: usize) -> Result<(Self, Self), Self> {
        let body = &mut *self.body;
        if mid > body.len {
            return Err(self);
        }
        let tail = Body {
            // SAFETY: `mid` is within the region, so the pointer stays in or one past the
            // end of the same allocation.
            ptr: unsafe { body.ptr.add(mid) },
            len: body.len - mid,
            location: body.location,
            shared: body.shared,
            ready: body.ready.clone(),
            keep: Arc::clone(&body.keep),
        };
        body.len = mid;
        Ok((self, tail.into()))
    }

    /// Gives up writing, so that several may hold the bytes.
    #[must_use]
    pub fn into_shared(self) -> SharedRegion {
        let Body {
            ptr,
            len,
            location,
            shared,
            ref ready,
            ref keep,
        } = *self.body;
        let ready = ready.clone();
        let keep = if shared {
            // The one keeper of all who share serves this one too: were each to keep the next,
            // a chain of them could grow too long to be dropped. It also gets the token, from
            // the drop of `self`.
            Arc::clone(keep)
        } else {
            Arc::new(Keep::Shared {
                region: self,
                pending: Pending::new(),
            })
        };
        SharedRegion {
            ptr,
            len,
            location,
            ready,
            keep,
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// If they are not host memory, or device work on them is outstanding.
    pub fn as_bytes(&self) -> Result<&[u8], RegionError> {
        self.as_slice::<u8>()
    }

    /// The bytes, to be written.
    ///
    /// # Errors
    /// As [`as_bytes`](Self::as_bytes), or if the region is shared.
    pub fn as_mut_bytes(&mut self) -> Result<&mut [u8], RegionError> {
        self.as_mut_slice::<u8>()
    }

    /// The bytes as whole elements; a rest too short for one is left out.
    ///
    /// # Errors
    /// If they are not host memory, start at an address that `T` cannot have, or device
    /// work on them is outstanding.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], RegionError> {
        let count = self.elements::<T>()?;
        // SAFETY: `elements` found aligned, idle host memory for `count` elements. It is
        // initialised (memory invariant 3), any bit pattern is an element, and nobody
        // writes it while `self` is borrowed: this region owns the bytes alone or shares
        // them with readers.
        Ok(unsafe { std::slice::from_raw_parts(self.ptr().as_ptr().cast::<T>(), count) })
    }

    /// The bytes as whole elements, to be written.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice), or if the region is shared.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], RegionError> {
        if self.is_shared() {
            return Err(RegionError::ReadOnly);
        }
        let count = self.elements::<T>()?;
        // SAFETY: as in `as_slice`; the region is not shared, so it owns the bytes alone,
        // and it is borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.ptr().as_ptr().cast::<T>(), count) })
    }

    /// How many whole elements there are, if the host may touch them now.
    fn elements<T: Element>(&self) -> Result<usize, RegionError> {
        if !self.location().is_host() {
            return Err(RegionError::NotOnHost {
                location: self.location(),
            });
        }
        if !self.is_idle() {
            return Err(RegionError::InUse);
        }
        if !self.ptr().addr().get().is_multiple_of(align_of::<T>()) {
            return Err(RegionError::Misaligned {
                address: self.address(),
                align: align_of::<T>(),
            });
        }
        Ok(self.len() / size_of::<T>())
    }

    /// Whether no device work on the bytes is outstanding.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        match &self.body.ready {
            None => true,
            Some(token) => is_done(token),
        }
    }

    /// First byte. Valid for reads of `len` bytes while the region is borrowed, and for
    /// writes while it is borrowed mutably and not shared, if the location is a host one.
    #[inline]
    pub(super) fn ptr(&self) -> NonNull<u8> {
        self.body.ptr
    }

    /// A region of no bytes in `whole`, kept by `keep`, to be placed on windows of it; a shared
    /// one if they are only to be read.
    pub(super) fn window(
        whole: &Self,
        shared: bool,
        ready: Option<ReadyAfter>,
        keep: Arc<Keep>,
    ) -> Self {
        let Body { ptr, location, .. } = *whole.body;
        Body {
            ptr,
            len: 0,
            location,
            shared,
            ready,
            keep,
        }
        .into()
    }

    /// How many rings the region's bytes lie in, one within the other.
    pub(super) fn ring_depth(&self) -> usize {
        let mut depth = 0;
        let mut keep = &*self.body.keep;
        while let Keep::Window { fate } = keep {
            depth += 1;
            keep = &*fate.whole.body.keep;
        }
        depth
    }

    /// Moves the region to the window of `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The region has no bytes now, the window lies in what its keeper keeps, and until the
    /// keeper is gone no other region has any byte of it; if this one is shared, none that is
    /// not.
    #[inline]
    pub(super) unsafe fn place(&mut self, ptr: NonNull<u8>, len: usize) {
        self.body.ptr = ptr;
        self.body.len = len;
    }

    /// Gives up the bytes and the token of device work, which is done.
    #[inline]
    pub(super) fn vacate(&mut self) {
        self.body.len = 0;
        self.body.ready = None;
    }

    /// Whether this is the region of `len` bytes at `ptr` that `keep` keeps, made as a window
    /// that is shared, or not.
    #[inline]
    pub(super) fn is_window(
        &self,
        ptr: NonNull<u8>,
        len: usize,
        keep: *const Keep,
        shared: bool,
    ) -> bool {
        let body = &*self.body;
        body.ptr == ptr
            && body.len == len
            && Arc::as_ptr(&body.keep) == keep
            && body.shared == shared
    }

    /// Whether nothing else is kept by its keeper. If so, what others did with the bytes
    /// happened before.
    #[inline]
    pub(super) fn is_sole(&mut self) -> bool {
        Arc::get_mut(&mut self.body.keep).is_some()
    }
}

impl From<Body> for Region {
    fn from(body: Body) -> Self {
        Self {
            body: Box::new(body),
        }
    }
}

/// Out of line, so that regions of the host alone pay for a comparison only.
#[cold]
#[inline(never)]
fn is_done(token: &ReadyAfter) -> bool {
    // A fault counts as outstanding: nobody knows what the device still does.
    token.is_complete().unwrap_or(false)
}

impl Drop for Body {
    #[inline]
    fn drop(&mut self) {
        if let Some(token) = self.ready.take() {
            self.keep.note_pending(token);
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("address", &self.address())
            .field("len", &self.len())
            .field("location", &self.location())
            .field("shared", &self.is_shared())
            .field("ready_after", &self.ready_after())
            .finish_non_exhaustive()
    }
}

/// A region that several hold and nobody writes.
///
/// Clones share the bytes. Publish one with [`to_region`](Self::to_region).
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::TaskBuffer;
/// use holoflow_core::tensor::MemLoc;
///
/// let region = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4)?.into_region();
/// let shared = region.into_shared();
/// let mut reader = shared.to_region();
/// assert_eq!(reader.as_bytes()?, [0; 4]);
/// assert!(reader.as_mut_bytes().is_err());
///
/// let shared = shared.try_into_unique().unwrap_err(); // the reader still holds it
/// drop(reader);
/// assert!(shared.try_into_unique().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedRegion {
    /// The range shared here: all that the keeper keeps, or a part.
    ptr: NonNull<u8>,
    len: usize,
    location: MemLoc,
    /// The device work that must be done before the bytes are read. The keeper knows of it
    /// too, so it need not be left to it.
    ready: Option<ReadyAfter>,
    /// A [`Keep::Shared`], or a [`Keep::Window`] whose windows are only read.
    keep: Arc<Keep>,
}

// SAFETY: as for a region: plain memory, bound to no thread, and here only read.
unsafe impl Send for SharedRegion {}
// SAFETY: as above.
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// A read-only region of the same bytes, for a cell that nobody writes.
    #[must_use]
    pub fn to_region(&self) -> Region {
        Body {
            ptr: self.ptr,
            len: self.len,
            location: self.location,
            shared: true,
            ready: self.ready.clone(),
            keep: Arc::clone(&self.keep),
        }
        .into()
    }

    /// The region itself, to be written again, if nobody else holds any part of it. Of a part
    /// comes that part.
    ///
    /// # Errors
    /// Gives the shared region back if others hold it too, or if it was never to be written: it
    /// comes from a ring whose windows are only read.
    pub fn try_into_unique(self) -> Result<Region, Self> {
        if matches!(*self.keep, Keep::Window { .. }) {
            return Err(self);
        }
        let Self {
            ptr,
            len,
            location,
            ready,
            keep,
        } = self;
        match Arc::try_unwrap(keep) {
            Ok(keep) => {
                let mut region = keep.into_shared_region();
                // Within the region: parts are made by splitting it.
                region.body.ptr = ptr;
                region.body.len = len;
                Ok(region)
            }
            Err(keep) => Err(Self {
                ptr,
                len,
                location,
                ready,
                keep,
            }),
        }
    }
}

impl Keep {
    /// The region of a `Shared`, with the work its readers left outstanding.
    fn into_shared_region(self) -> Region {
        let mut this = ManuallyDrop::new(self);
        match &mut *this {
            Self::Shared { region, pending } => {
                if let Some(token) = pending.take() {
                    region.not_before(token);
                }
                // SAFETY: `this` is never dropped or used again, so the region is moved out
                // once; what else the variant holds (an empty `Pending`) needs no drop.
                unsafe { ptr::read(region) }
            }
            Self::Allocation(_) | Self::Window { .. } => {
                unreachable!("only a region with `Keep::Shared` is taken out of sharing")
            }
        }
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRegion")
            .field("address", &Address::of(self.ptr))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Memory that belongs to a task, from which it takes the regions that it publishes.
///
/// The buffer gives no bytes itself. Its regions keep the allocation, so it may be
/// dropped before them.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::TaskBuffer;
/// use holoflow_core::tensor::MemLoc;
///
/// let mut buffer = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 1024)?;
/// let first = buffer.take(512).expect("512 of 1024 are left");
/// let second = buffer.take(512).expect("512 of 512 are left");
/// assert!(buffer.take(1).is_none());
/// assert_eq!(second.address(), first.address().plus(512));
/// # Ok::<(), holoflow_core::memory::MemoryError>(())
/// ```
#[derive(Debug)]
pub struct TaskBuffer {
    rest: Option<Region>,
}

impl TaskBuffer {
    /// Allocates a buffer of `bytes` zeroed bytes.
    ///
    /// # Errors
    /// What [`Memory::allocate`] reports.
    pub fn allocate(memory: &Memory, location: MemLoc, bytes: usize) -> Result<Self, MemoryError> {
        let handle = memory.allocate(location, bytes)?;
        let rest = Body {
            ptr: handle.block().ptr(),
            len: bytes,
            location,
            shared: false,
            ready: None,
            keep: Arc::new(Keep::Allocation(handle)),
        };
        Ok(Self {
            rest: Some(rest.into()),
        })
    }

    /// Bytes not taken yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.as_ref().map_or(0, Region::len)
    }

    /// The next `bytes` bytes as a region of their own; `None` if fewer are left.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> Option<Region> {
        match self.rest.take()?.split_at(bytes) {
            Ok((head, tail)) => {
                self.rest = Some(tail);
                Some(head)
            }
            Err(rest) => {
                self.rest = Some(rest);
                None
            }
        }
    }

    /// All that is left as one region.
    #[must_use]
    pub fn into_region(self) -> Region {
        self.rest.expect("`take` always puts the rest back")
    }
}

/// Why the host cannot reach a region's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The bytes are not host memory.
    #[error("the region lies in {location}, which the host cannot read")]
    NotOnHost {
        /// Where they lie.
        location: MemLoc,
    },
    /// Device work on the bytes is outstanding.
    #[error("device work on the region is outstanding: complete it first")]
    InUse,
    /// The bytes are shared.
    #[error("the region is shared and read-only")]
    ReadOnly,
    /// The region starts at an address the element type cannot have.
    #[error("the region starts at {address:?}, which is no multiple of {align}")]
    Misaligned {
        /// Start of the region.
        address: Address,
        /// Alignment that the elements need, in bytes.
        align: usize,
    },
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "region_tests.rs"]
mod tests;
