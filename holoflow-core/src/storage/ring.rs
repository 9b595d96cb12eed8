//! How regions cross from the push side of an async node to its pop side.
//!
//! A [`SlotRing`] owns one region, seen as a ring of rows. The producer side takes a
//! window of `push_rows` rows, has it filled, and commits it; the consumer side pops a
//! window of `pop_rows` rows and releases `pop_stride` rows. No bytes move, and no window
//! wraps. A [`RegionSlot`] is the ring of one window.
//!
//! What it does not know: cells, hooks, policies of overflow, and what rows mean.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **RG1** A window handed to one side overlaps no window of the other. Held by: the
//!   producer's window lies in the `rows - filled` free rows behind its cursor, the
//!   consumer's in the `filled` rows before it; `filled` is the difference of two counts
//!   that each side publishes only when it has its window back.
//! - **RG2** Each side has at most one window out. Held by: `End::window`, which is there
//!   or out.
//! - **RG3** A window that is dropped instead of given back counts as not committed, or
//!   not released: the next call hands out the same rows again. Held by: [`WindowFate`].
//! - **RG4** Windows outlive the ring. Held by: each keeps the ring's region.
//! - **RG5** In steady state nothing is allocated and no count is touched by both sides.
//!   Held by: a side's window is one boxed region with its keeper, which goes out and comes
//!   back, and has no bytes while it is in.
//!
//! Threads and ordering: each end belongs to the holder of its side's token
//! ([`Sides`]). `pushed` is written by the producer, `released` by the consumer, each
//! with release after its window is back, and read with acquire by the other, so what
//! was done to the rows before happens before what the other side does to them. Each end
//! remembers the other's count and reads it again only when that does not suffice.
//!
//! Why counts beside cursors: with cursors alone, full and empty look the same, and a
//! spare row would be needed to tell them apart.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use super::region::{Keep, WindowFate};
use super::{ConsumerCell, ConsumerSide, ContractError, ProducerCell, ProducerSide};
use super::{Refusal, Refused, Region, Sides};
use crate::memory::Address;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, CachePadded};
use crate::tensor::MemLoc;

/// Shape of a [`SlotRing`], in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "plain parameters, built by users"
)]
pub struct RingLayout {
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows of the ring; a multiple of `push_rows` and of `pop_stride`.
    pub rows: usize,
    /// Rows of a push window.
    pub push_rows: usize,
    /// Rows of a pop window.
    pub pop_rows: usize,
    /// Rows that a release frees; a multiple of `pop_rows`, so that windows never wrap.
    pub pop_stride: usize,
}

impl RingLayout {
    /// Bytes of the whole ring; `None` if they overflow.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        self.rows.checked_mul(self.row_bytes)
    }

    fn check(&self) -> Result<(), RingError> {
        for (field, value) in [
            ("rows", self.rows),
            ("push_rows", self.push_rows),
            ("pop_rows", self.pop_rows),
            ("pop_stride", self.pop_stride),
        ] {
            if value == 0 {
                return Err(RingError::Zero { field });
            }
        }
        for (field, value, of, unit) in [
            ("pop_stride", self.pop_stride, "pop_rows", self.pop_rows),
            ("rows", self.rows, "push_rows", self.push_rows),
            ("rows", self.rows, "pop_stride", self.pop_stride),
        ] {
            if value % unit != 0 {
                return Err(RingError::NotAMultiple {
                    field,
                    value,
                    of,
                    unit,
                });
            }
        }
        Ok(())
    }
}

/// Why a ring cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A number of rows is zero.
    #[error("{field} is 0, at least 1 is needed")]
    Zero {
        /// The field of [`RingLayout`].
        field: &'static str,
    },
    /// A number of rows is not a multiple of another.
    #[error("{field} is {value}, which is no multiple of {of}, {unit}")]
    NotAMultiple {
        /// The field of [`RingLayout`].
        field: &'static str,
        /// Its value.
        value: usize,
        /// The field it must be a multiple of.
        of: &'static str,
        /// That field's value.
        unit: usize,
    },
    /// The region is too short, or the size overflows.
    #[error("the ring needs {} bytes, the region has {found}", needed_text(.needed))]
    TooSmall {
        /// Bytes needed; `None` if they overflow.
        needed: Option<usize>,
        /// Bytes of the region.
        found: usize,
    },
    /// The region is shared.
    #[error("the region is shared and read-only, a ring must own it alone")]
    Shared,
    /// Device work on the region is outstanding.
    #[error("device work on the region is outstanding: complete it first")]
    InUse,
    /// The region is the window of a ring that is itself in the window of a ring, and so on.
    #[error(
        "the region lies in {depth} rings, one within the other, {MAX_DEPTH} at most are allowed"
    )]
    TooDeep {
        /// Rings that the region lies in.
        depth: usize,
    },
}

/// Rings that may lie one within the other: each keeps the next, and dropping the innermost
/// drops them all, one call within the other.
const MAX_DEPTH: usize = 16;

fn needed_text(needed: &Option<usize>) -> String {
    needed.map_or_else(
        || "uncountably many".to_owned(),
        |needed| needed.to_string(),
    )
}

/// Single-producer, single-consumer ring of windows of one region.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::{RingLayout, Sides, SlotRing, TaskBuffer};
/// use holoflow_core::tensor::MemLoc;
///
/// // Pairs go in, triples come out.
/// let layout = RingLayout { row_bytes: 1, rows: 6, push_rows: 2, pop_rows: 3, pop_stride: 3 };
/// let region = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 6)?.into_region();
/// let mut sides = Sides::new();
/// let ring = SlotRing::new(&sides, layout, region)?;
/// let (producer, consumer) = sides.split();
///
/// for pair in [[0, 1], [2, 3]] {
///     let mut window = ring.acquire(producer)?.expect("there is room");
///     window.as_mut_bytes()?.copy_from_slice(&pair);
///     ring.commit(producer, window)?;
/// }
/// let window = ring.pop(consumer)?.expect("three of four rows");
/// assert_eq!(window.as_bytes()?, [0, 1, 2]);
/// ring.release(consumer, window)?;
/// assert!(ring.pop(consumer)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SlotRing {
    layout: RingLayout,
    whole: Arc<Region>,
    /// Rows committed since the beginning, wrapping. Written by the producer.
    pushed: CachePadded<AtomicUsize>,
    /// Rows released since the beginning, wrapping. Written by the consumer.
    released: CachePadded<AtomicUsize>,
    producer: CachePadded<ProducerCell<End>>,
    consumer: CachePadded<ConsumerCell<End>>,
}

/// What one side keeps to itself.
#[derive(Debug)]
struct End {
    /// Row where the next window begins.
    cursor: usize,
    /// Rows this side has committed or released, as it published them.
    count: usize,
    /// The other side's count when it was last read.
    seen: usize,
    /// Rows of the window that is out, and rows that giving it back frees, if they are fewer
    /// than usual: of the consumer only, for the rest at the end of a stream.
    rest: Option<(usize, usize)>,
    window: Window,
}

/// The one window of a side, in or out.
#[derive(Debug)]
struct Window {
    /// Without bytes while it is in; `None` while it is out.
    rest: Option<Region>,
    /// Address of its keeper, to know the window again.
    keeper: *const Keep,
    fate: Arc<WindowFate>,
}

// SAFETY: `keeper` is compared and never dereferenced; the rest is `Send`.
unsafe impl Send for Window {}

impl Window {
    fn new(whole: &Arc<Region>) -> Self {
        let fate = WindowFate::new(whole);
        let (rest, keeper) = Self::make(whole, &fate);
        Self {
            rest: Some(rest),
            keeper,
            fate,
        }
    }

    /// A window without bytes, and the address of its keeper. It carries the device work
    /// that its predecessor left outstanding, which was on the same bytes.
    fn make(whole: &Arc<Region>, fate: &Arc<WindowFate>) -> (Region, *const Keep) {
        let keep = Arc::new(Keep::Window {
            fate: Arc::clone(fate),
        });
        let keeper = Arc::as_ptr(&keep);
        (Region::window(whole, fate.take_pending(), keep), keeper)
    }

    /// Whether a window can be handed out: none is out, or it was dropped out there.
    #[inline]
    fn reclaim(&mut self, whole: &Arc<Region>) -> Result<(), ContractError> {
        if self.rest.is_some() || self.remade(whole) {
            Ok(())
        } else {
            Err(ContractError::WindowOut)
        }
    }

    /// Makes a new window if the one that is out was dropped there.
    #[cold]
    #[inline(never)]
    fn remade(&mut self, whole: &Arc<Region>) -> bool {
        if !self.fate.take_dropped() {
            return false;
        }
        let (rest, keeper) = Self::make(whole, &self.fate);
        self.rest = Some(rest);
        self.keeper = keeper;
        true
    }

    /// Hands out the window of `len` bytes that begins `offset` bytes into `whole`; `None`
    /// if it is out.
    ///
    /// # Safety
    ///
    /// The range lies in `whole`, and no region but those of this window, all dropped,
    /// has any byte of it.
    #[inline]
    unsafe fn hand_out(&mut self, whole: &Region, offset: usize, len: usize) -> Option<Region> {
        let mut window = self.rest.take()?;
        // SAFETY: the range lies in `whole`, as the caller promises.
        let ptr = unsafe { whole.ptr().add(offset) };
        // SAFETY: a window that was in has no bytes. Its keeper keeps `whole`, and no other
        // region has the bytes, as the caller promises.
        unsafe { window.place(ptr, len) };
        Some(window)
    }

    /// Takes the window back if `region` is it.
    #[inline]
    fn take_back(
        &mut self,
        ptr: NonNull<u8>,
        len: usize,
        mut region: Region,
    ) -> Result<(), Refused> {
        if self.rest.is_some() || !region.is_window(ptr, len, self.keeper) {
            return Err(Refused {
                region,
                refusal: Refusal::ForeignWindow,
            });
        }
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
}

impl SlotRing {
    /// A ring over `region` for the node whose sides are `sides`.
    ///
    /// Sizes: `rows` times `row_bytes` bytes of the region are used.
    ///
    /// # Errors
    /// If the layout is not a ring, or the region is too small, shared or in use.
    pub fn new(sides: &Sides, layout: RingLayout, region: Region) -> Result<Self, RingError> {
        layout.check()?;
        let needed = layout.bytes();
        if needed.is_none_or(|needed| needed > region.len()) {
            return Err(RingError::TooSmall {
                needed,
                found: region.len(),
            });
        }
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
        let whole = Arc::new(region);
        let end = || End {
            cursor: 0,
            count: 0,
            seen: 0,
            rest: None,
            window: Window::new(&whole),
        };
        Ok(Self {
            layout,
            pushed: CachePadded::new(AtomicUsize::new(0)),
            released: CachePadded::new(AtomicUsize::new(0)),
            producer: CachePadded::new(ProducerCell::new(sides, end())),
            consumer: CachePadded::new(ConsumerCell::new(sides, end())),
            whole,
        })
    }

    /// Gives the ring, with what it holds, to another node, as a factory's `update` does.
    pub fn rebind(&mut self, sides: &Sides) {
        self.producer.rebind(sides);
        self.consumer.rebind(sides);
    }

    /// The layout that the ring was made with.
    #[must_use]
    pub fn layout(&self) -> RingLayout {
        self.layout
    }

    /// Where the rows lie.
    #[must_use]
    pub fn location(&self) -> MemLoc {
        self.whole.location()
    }

    /// Address of the first row.
    #[must_use]
    pub fn address(&self) -> Address {
        self.whole.address()
    }

    /// Rows committed and not yet released, as far as this thread sees.
    #[must_use]
    pub fn filled(&self) -> usize {
        // Released first: read the other way round, rows both pushed and released in
        // between would make the difference negative.
        let released = self.released.load(Ordering::Acquire);
        self.pushed
            .load(Ordering::Acquire)
            .wrapping_sub(released)
            .min(self.layout.rows)
    }

    /// The next window to fill; `None` unless `push_rows` rows are free.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for the token of another node,
    /// [`ContractError::WindowOut`] if a window is out on this side.
    #[inline]
    pub fn acquire(&self, side: &mut ProducerSide) -> Result<Option<Region>, ContractError> {
        let RingLayout {
            row_bytes,
            rows,
            push_rows,
            ..
        } = self.layout;
        let end = self.producer.open(side)?;
        end.window.reclaim(&self.whole)?;
        if rows - end.count.wrapping_sub(end.seen) < push_rows {
            end.seen = self.released.load(Ordering::Acquire);
            if rows - end.count.wrapping_sub(end.seen) < push_rows {
                return Ok(None);
            }
        }
        let offset = end.cursor * row_bytes;
        // SAFETY: the cursor is a multiple of `push_rows` below `rows`, itself a multiple, so
        // the window ends within the ring, which `new` found to fit the region. Its rows are
        // free: the consumer's window lies in the `filled` rows before the cursor, as the
        // count it released shows, and this side's former window is back or dropped (RG1).
        Ok(unsafe {
            end.window
                .hand_out(&self.whole, offset, push_rows * row_bytes)
        })
    }

    /// Commits the window that `acquire` handed out, so that the consumer side sees it.
    ///
    /// # Errors
    /// Gives the region back if it is not that window, device work on it is outstanding, or
    /// the token is of another node.
    #[inline]
    pub fn commit(&self, side: &mut ProducerSide, window: Region) -> Result<(), Refused> {
        let RingLayout {
            row_bytes,
            rows,
            push_rows,
            ..
        } = self.layout;
        let Ok(end) = self.producer.open(side) else {
            return Err(Refused {
                region: window,
                refusal: Refusal::ForeignSide,
            });
        };
        let ptr = self.row(end.cursor);
        end.window.take_back(ptr, push_rows * row_bytes, window)?;
        end.cursor = advance(end.cursor, push_rows, rows);
        end.count = end.count.wrapping_add(push_rows);
        // Release: what the producer wrote in the rows happens before the consumer, which
        // acquires this count, reads them.
        self.pushed.store(end.count, Ordering::Release);
        Ok(())
    }

    /// The next window of filled rows; `None` while fewer than `pop_stride` are filled.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for the token of another node,
    /// [`ContractError::WindowOut`] if a window is out on this side.
    #[inline]
    pub fn pop(&self, side: &mut ConsumerSide) -> Result<Option<Region>, ContractError> {
        let RingLayout {
            row_bytes,
            pop_rows,
            pop_stride,
            ..
        } = self.layout;
        let end = self.consumer.open(side)?;
        end.window.reclaim(&self.whole)?;
        end.rest = None;
        if end.seen.wrapping_sub(end.count) < pop_stride {
            end.seen = self.pushed.load(Ordering::Acquire);
            if end.seen.wrapping_sub(end.count) < pop_stride {
                return Ok(None);
            }
        }
        // Not so only after a rest was popped and more was pushed without a `realign`.
        if end.cursor + pop_rows > self.layout.rows {
            return Ok(None);
        }
        let offset = end.cursor * row_bytes;
        // SAFETY: the window ends within the ring, as was just checked. Its rows are filled:
        // they are the next `pop_rows`, at most `pop_stride`, from the cursor, which is where
        // the count that this side released stands; the producer's window lies in the free
        // rows, as the count it pushed shows, and this side's former window is back or dropped
        // (RG1).
        Ok(unsafe {
            end.window
                .hand_out(&self.whole, offset, pop_rows * row_bytes)
        })
    }

    /// The rows that are left at the end of a stream, when they are fewer than `pop_stride`: a
    /// window of `pop_rows` of them, or of all there are. `None` if there are none. If there
    /// are enough for [`pop`](Self::pop), it is that.
    ///
    /// Releasing it frees all of them, and leaves the cursors where windows may not begin:
    /// before the ring is used again both sides call [`realign`](Self::realign).
    ///
    /// # Errors
    /// As [`pop`](Self::pop).
    pub fn pop_rest(&self, side: &mut ConsumerSide) -> Result<Option<Region>, ContractError> {
        if let Some(window) = self.pop(side)? {
            return Ok(Some(window));
        }
        let RingLayout {
            row_bytes,
            rows,
            pop_rows,
            ..
        } = self.layout;
        let end = self.consumer.open(side)?;
        let left = end.seen.wrapping_sub(end.count);
        let count = left.min(pop_rows);
        if count == 0 || end.cursor + count > rows {
            return Ok(None);
        }
        end.rest = Some((count, left));
        let offset = end.cursor * row_bytes;
        // SAFETY: the window ends within the ring, as was just checked. Its rows are the first
        // of the `left` filled ones at the cursor, and this side's former window is in, as
        // `pop` found it (RG1).
        Ok(unsafe { end.window.hand_out(&self.whole, offset, count * row_bytes) })
    }

    /// Begins at the first row again if the ring is empty and no window is out; whether it
    /// could.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for the token of another node.
    pub fn realign(
        &self,
        producer: &mut ProducerSide,
        consumer: &mut ConsumerSide,
    ) -> Result<bool, ContractError> {
        let first = self.producer.open(producer)?;
        let second = self.consumer.open(consumer)?;
        let is_in =
            first.window.reclaim(&self.whole).is_ok() && second.window.reclaim(&self.whole).is_ok();
        if !is_in || first.count != second.count {
            return Ok(false);
        }
        first.cursor = 0;
        second.cursor = 0;
        Ok(true)
    }

    /// Releases the window that `pop` handed out, and the rows skipped after it.
    ///
    /// # Errors
    /// Gives the region back if it is not that window, device work on it is outstanding, or
    /// the token is of another node.
    #[inline]
    pub fn release(&self, side: &mut ConsumerSide, window: Region) -> Result<(), Refused> {
        let RingLayout {
            row_bytes,
            rows,
            pop_rows,
            pop_stride,
            ..
        } = self.layout;
        let Ok(end) = self.consumer.open(side) else {
            return Err(Refused {
                region: window,
                refusal: Refusal::ForeignSide,
            });
        };
        let ptr = self.row(end.cursor);
        let (out, freed) = end.rest.unwrap_or((pop_rows, pop_stride));
        end.window.take_back(ptr, out * row_bytes, window)?;
        end.rest = None;
        end.cursor = advance(end.cursor, freed, rows);
        end.count = end.count.wrapping_add(freed);
        // Release: what the consumer did with the rows happens before the producer, which
        // acquires this count, overwrites them.
        self.released.store(end.count, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn row(&self, row: usize) -> NonNull<u8> {
        // SAFETY: cursors stay below `rows`, and `rows` rows lie within the region.
        unsafe { self.whole.ptr().add(row * self.layout.row_bytes) }
    }
}

/// The next cursor; `step` is at most `rows`.
#[inline]
fn advance(cursor: usize, step: usize, rows: usize) -> usize {
    let next = cursor + step;
    if next >= rows { next - rows } else { next }
}

/// One region that goes to and fro between the two sides of a node.
///
/// The producer side acquires it, has it filled and commits it; the consumer side pops it
/// and releases it; only then can it be acquired again.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::{RegionSlot, Sides, TaskBuffer};
/// use holoflow_core::tensor::MemLoc;
///
/// let region = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4)?.into_region();
/// let mut sides = Sides::new();
/// let slot = RegionSlot::new(&sides, region)?;
/// let (producer, consumer) = sides.split();
///
/// let window = slot.acquire(producer)?.expect("free at first");
/// slot.commit(producer, window)?;
/// assert!(slot.acquire(producer)?.is_none(), "filled: the consumer's turn");
/// let window = slot.pop(consumer)?.expect("filled");
/// slot.release(consumer, window)?;
/// assert!(slot.acquire(producer)?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RegionSlot {
    ring: SlotRing,
}

impl RegionSlot {
    /// A slot with `region` in it, for the node whose sides are `sides`.
    ///
    /// # Errors
    /// If the region is shared or in use.
    pub fn new(sides: &Sides, region: Region) -> Result<Self, RingError> {
        let layout = RingLayout {
            row_bytes: region.len(),
            rows: 1,
            push_rows: 1,
            pop_rows: 1,
            pop_stride: 1,
        };
        Ok(Self {
            ring: SlotRing::new(sides, layout, region)?,
        })
    }

    /// Gives the slot, with what it holds, to another node, as a factory's `update` does.
    pub fn rebind(&mut self, sides: &Sides) {
        self.ring.rebind(sides);
    }

    /// Whether the region is filled and not yet released.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.ring.filled() > 0
    }

    /// The region, to be filled; `None` while it is filled.
    ///
    /// # Errors
    /// As [`SlotRing::acquire`].
    #[inline]
    pub fn acquire(&self, side: &mut ProducerSide) -> Result<Option<Region>, ContractError> {
        self.ring.acquire(side)
    }

    /// Commits the acquired region, so that the consumer side sees it.
    ///
    /// # Errors
    /// As [`SlotRing::commit`].
    #[inline]
    pub fn commit(&self, side: &mut ProducerSide, region: Region) -> Result<(), Refused> {
        self.ring.commit(side, region)
    }

    /// The filled region; `None` while it is not filled.
    ///
    /// # Errors
    /// As [`SlotRing::pop`].
    #[inline]
    pub fn pop(&self, side: &mut ConsumerSide) -> Result<Option<Region>, ContractError> {
        self.ring.pop(side)
    }

    /// Releases the popped region, so that it can be acquired again.
    ///
    /// # Errors
    /// As [`SlotRing::release`].
    #[inline]
    pub fn release(&self, side: &mut ConsumerSide, region: Region) -> Result<(), Refused> {
        self.ring.release(side, region)
    }
}

/// Rows a ring needs at least, given how many shall be held before the producer waits:
/// the smallest multiple of both `push_rows` and `pop_stride` that is at least
/// `max(target, pop_stride) + push_rows`. `None` if it overflows.
///
/// ```
/// use std::num::NonZeroUsize;
/// use holoflow_core::storage::rows_for;
///
/// let n = |value| NonZeroUsize::new(value).expect("not zero");
/// assert_eq!(rows_for(5, n(4), n(8)), Some(16));
/// assert_eq!(rows_for(64, n(4), n(16)), Some(80));
/// ```
#[must_use]
pub fn rows_for(target: usize, push_rows: NonZeroUsize, pop_stride: NonZeroUsize) -> Option<usize> {
    let (push_rows, pop_stride) = (push_rows.get(), pop_stride.get());
    let (mut a, mut b) = (push_rows, pop_stride);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let unit = (push_rows / a).checked_mul(pop_stride)?;
    target
        .max(pop_stride)
        .checked_add(push_rows)?
        .checked_next_multiple_of(unit)
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "ring_tests.rs"]
mod tests;
