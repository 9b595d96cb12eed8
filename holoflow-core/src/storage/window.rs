//! What is handed out of a region and comes back, or is dropped out there.
//!
//! A [`Window`] is a place for one region, which is cut anew from a larger one whenever it goes
//! out; rings are made of them. A [`LentRegion`] is the window of a whole region: what a task
//! lends out again and again.
//!
//! What it does not know: sides, cursors and threads. Who holds a window mutably decides where
//! it lies next.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **WN1** A window is in, without bytes, or out, and is handed out only while it is in. Held
//!   by: `Window::rest`.
//! - **WN2** What comes back is the region that went out. Held by: its bytes and its keeper are
//!   compared with what went out.
//! - **WN3** A region that is dropped out there counts as back once its last piece is gone. Held
//!   by: [`WindowFate`].

use std::ptr::NonNull;

use super::region::{Keep, WindowFate};
use super::ring::RingError;
use super::{ContractError, Refusal, Refused, Region};
use crate::memory::Address;
use crate::sync::Arc;
use crate::tensor::MemLoc;

/// Rings that may lie one within the other: each keeps the next, and dropping the innermost
/// drops them all, one call within the other.
pub(super) const MAX_DEPTH: usize = 16;

/// The region, to cut windows from.
///
/// # Errors
/// If it is shared or in use, or lies in too many rings already.
pub(super) fn to_cut(region: Region) -> Result<Arc<Region>, RingError> {
    if region.is_shared() {
        return Err(RingError::Shared);
    }
    if !region.is_idle() {
        return Err(RingError::InUse);
    }
    let depth = region.ring_depth();
    if depth > MAX_DEPTH {
        return Err(RingError::TooDeep { depth });
    }
    Ok(Arc::new(region))
}

/// The one window of a side, in or out.
#[derive(Debug)]
pub(super) struct Window {
    /// Without bytes while it is in; `None` while it is out.
    rest: Option<Region>,
    /// Address of its keeper, to know the window again.
    pub(super) keeper: *const Keep,
    pub(super) fate: Arc<WindowFate>,
    /// Whether it is only to be read.
    shared: bool,
}

// SAFETY: `keeper` is compared and never dereferenced; the rest is `Send`.
unsafe impl Send for Window {}

impl Window {
    pub(super) fn new(whole: &Arc<Region>) -> Self {
        Self::of_kind(whole, false)
    }

    /// A window that is only to be read, so that others may show the same bytes.
    pub(super) fn read_only(whole: &Arc<Region>) -> Self {
        Self::of_kind(whole, true)
    }

    fn of_kind(whole: &Arc<Region>, shared: bool) -> Self {
        let fate = WindowFate::new(whole);
        let (rest, keeper) = Self::make(whole, shared, &fate);
        Self {
            rest: Some(rest),
            keeper,
            fate,
            shared,
        }
    }

    /// A window without bytes, and the address of its keeper. It carries the device work
    /// that its predecessor left outstanding, which was on the same bytes.
    fn make(whole: &Arc<Region>, shared: bool, fate: &Arc<WindowFate>) -> (Region, *const Keep) {
        let keep = Arc::new(Keep::Window {
            fate: Arc::clone(fate),
        });
        let keeper = Arc::as_ptr(&keep);
        (
            Region::window(whole, shared, fate.take_pending(), keep),
            keeper,
        )
    }

    /// Whether it is in.
    #[inline]
    pub(super) fn is_in(&self) -> bool {
        self.rest.is_some()
    }

    /// Whether a window can be handed out: none is out, or it was dropped out there.
    #[inline]
    pub(super) fn reclaim(&mut self, whole: &Arc<Region>) -> Result<(), ContractError> {
        if self.rest.is_some() || self.remade(whole) {
            Ok(())
        } else {
            Err(ContractError::WindowOut)
        }
    }

    /// Whether the window is in, or dropped, and no device work is outstanding on the bytes that
    /// it had last: only then may it go elsewhere without being handed out once more.
    pub(super) fn is_done(&mut self, whole: &Arc<Region>) -> bool {
        self.reclaim(whole).is_ok() && self.rest.as_ref().is_some_and(Region::is_idle)
    }

    /// Makes a new window if the one that is out was dropped there.
    #[cold]
    #[inline(never)]
    fn remade(&mut self, whole: &Arc<Region>) -> bool {
        if !self.fate.take_dropped() {
            return false;
        }
        let (rest, keeper) = Self::make(whole, self.shared, &self.fate);
        self.rest = Some(rest);
        self.keeper = keeper;
        true
    }

    /// Hands out the window of `len` bytes that begins `offset` bytes into `whole`; `None`
    /// if it is out.
    ///
    /// # Safety
    ///
    /// The range lies in `whole`. Until the window is in again, no region that is not of this
    /// window has any byte of it; if the window is only to be read, none that may be written.
    #[inline]
    pub(super) unsafe fn hand_out(
        &mut self,
        whole: &Region,
        offset: usize,
        len: usize,
    ) -> Option<Region> {
        let mut window = self.rest.take()?;
        // SAFETY: the range lies in `whole`, as the caller promises.
        let ptr = unsafe { whole.ptr().add(offset) };
        // SAFETY: a window that was in has no bytes, nor has any region that its keeper keeps.
        // The keeper keeps `whole`, and the caller promises the rest.
        unsafe { window.place(ptr, len) };
        Some(window)
    }

    /// Takes the window back if `region` is it.
    #[inline]
    pub(super) fn take_back(
        &mut self,
        ptr: NonNull<u8>,
        len: usize,
        mut region: Region,
    ) -> Result<(), Refused> {
        // Of a region that is not shared, whole is all there is.
        if self.rest.is_some() || !region.is_window(ptr, len, self.keeper, false) {
            return Err(Refused {
                region,
                refusal: Refusal::ForeignWindow,
            });
        }
        // Refusals are made here, not out of line: with a call less, callers inline all of it.
        if !region.is_idle() {
            return Err(Refused {
                region,
                refusal: Refusal::InUse,
            });
        }
        region.vacate();
        self.rest = Some(region);
        Ok(())
    }

    /// Takes the window back if `region` is it, and it is one that is only to be read.
    #[inline]
    pub(super) fn take_back_read(
        &mut self,
        ptr: NonNull<u8>,
        len: usize,
        mut region: Region,
    ) -> Result<(), Refused> {
        if self.rest.is_some() || !region.is_window(ptr, len, self.keeper, true) {
            return Err(refuse(region, Refusal::ForeignWindow));
        }
        if !region.is_sole() {
            return Err(refuse(region, Refusal::StillShared));
        }
        // What others left outstanding on the same bytes.
        if let Some(token) = self.fate.take_pending() {
            region.not_before(token);
        }
        if !region.is_idle() {
            return Err(refuse(region, Refusal::InUse));
        }
        region.vacate();
        self.rest = Some(region);
        Ok(())
    }
}

#[cold]
fn refuse(region: Region, refusal: Refusal) -> Refused {
    Refused { region, refusal }
}

/// A region that is lent out and comes back, again and again.
///
/// If it is dropped out there (by a failure, a cancelled acquisition, an update of the graph)
/// it counts as back. Lending it allocates nothing.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::{LentRegion, TaskBuffer};
/// use holoflow_core::tensor::MemLoc;
///
/// let region = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4)?.into_region();
/// let mut lent = LentRegion::new(region)?;
///
/// let mut window = lent.lend()?;
/// window.as_mut_bytes()?.fill(7);
/// assert!(lent.lend().is_err(), "it is out");
/// lent.take_back(window)?;
///
/// drop(lent.lend()?);
/// assert_eq!(lent.lend()?.as_bytes()?, [7; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LentRegion {
    whole: Arc<Region>,
    window: Window,
}

impl LentRegion {
    /// A place for `region`, which is in it.
    ///
    /// # Errors
    /// If the region is shared or in use, or lies in too many rings already.
    pub fn new(region: Region) -> Result<Self, RingError> {
        let whole = to_cut(region)?;
        Ok(Self {
            window: Window::new(&whole),
            whole,
        })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Where the bytes lie.
    #[must_use]
    pub fn location(&self) -> MemLoc {
        self.whole.location()
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> Address {
        self.whole.address()
    }

    /// The region.
    ///
    /// # Errors
    /// [`ContractError::WindowOut`] if it is out.
    #[inline]
    pub fn lend(&mut self) -> Result<Region, ContractError> {
        self.window.reclaim(&self.whole)?;
        let len = self.whole.len();
        // SAFETY: it is all of `whole`, which only this window cuts, and which is in: its former
        // regions are back or dropped.
        let region = unsafe { self.window.hand_out(&self.whole, 0, len) };
        region.ok_or(ContractError::WindowOut)
    }

    /// Takes the region back.
    ///
    /// # Errors
    /// Gives the region back if it is not the one that was lent, or device work on it is
    /// outstanding.
    #[inline]
    pub fn take_back(&mut self, region: Region) -> Result<(), Refused> {
        self.window
            .take_back(self.whole.ptr(), self.whole.len(), region)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::storage::TaskBuffer;
    use crate::testkit::FakeDevice;

    fn region(bytes: usize) -> Region {
        TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
            .unwrap()
            .into_region()
    }

    #[test]
    fn wn1_a_lent_region_is_out_until_it_is_back() {
        let mut lent = LentRegion::new(region(4)).unwrap();
        assert_eq!((lent.len(), lent.location()), (4, MemLoc::Host));
        for _ in 0..3 {
            let out = lent.lend().unwrap();
            assert_eq!((out.address(), out.len()), (lent.address(), 4));
            assert_eq!(lent.lend().unwrap_err(), ContractError::WindowOut);
            lent.take_back(out).unwrap();
        }
    }

    #[test]
    fn wn2_only_the_very_region_comes_back() {
        let (mut lent, mut other) = (
            LentRegion::new(region(4)).unwrap(),
            LentRegion::new(region(4)).unwrap(),
        );
        let refusal = |lent: &mut LentRegion, region| lent.take_back(region).unwrap_err();
        let foreign = other.lend().unwrap();
        assert_eq!(
            refusal(&mut lent, foreign).refusal,
            Refusal::ForeignWindow,
            "while it is in"
        );
        let out = lent.lend().unwrap();
        let stray = refusal(&mut lent, region(4));
        assert_eq!(stray.refusal, Refusal::ForeignWindow);
        let (head, tail) = out.split_at(3).unwrap();
        let head = refusal(&mut lent, head).region;
        let shared = head.into_shared();
        assert!(lent.take_back(shared.to_region()).is_err());
        drop((shared, tail));

        let mut out = lent.lend().unwrap();
        let stream = FakeDevice::new(0).stream();
        stream.submit(|| {});
        out.not_before(crate::device::Stream::record(&*stream).unwrap());
        let busy = refusal(&mut lent, out);
        assert_eq!(busy.refusal, Refusal::InUse);
        crate::device::Stream::synchronize(&*stream).unwrap();
        lent.take_back(busy.region).unwrap();
    }

    #[test]
    fn wn3_a_region_dropped_out_there_is_lent_again_once_its_last_piece_is_gone() {
        let mut lent = LentRegion::new(region(4)).unwrap();
        let mut out = lent.lend().unwrap();
        out.as_mut_bytes().unwrap().fill(7);
        let (head, tail) = out.split_at(1).unwrap();
        drop(head);
        assert_eq!(lent.lend().unwrap_err(), ContractError::WindowOut);
        drop(tail);
        assert_eq!(lent.lend().unwrap().as_bytes().unwrap(), [7; 4]);
    }

    #[test]
    fn wn3_a_region_outlives_the_place_it_was_lent_from() {
        let mut lent = LentRegion::new(region(4)).unwrap();
        let mut out = lent.lend().unwrap();
        drop(lent);
        out.as_mut_bytes().unwrap().fill(7);
        assert_eq!(out.as_bytes().unwrap(), [7; 4]);
    }

    #[test]
    fn what_cannot_be_lent_says_why() {
        let shared = region(4).into_shared();
        let error = LentRegion::new(shared.to_region()).unwrap_err();
        assert_eq!(error, RingError::Shared);
    }
}
