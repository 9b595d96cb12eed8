//! How regions cross from the push side of an async node to its pop side.
//!
//! A [`SlotRing`] owns one region, seen as a ring of rows. The producer side takes a
//! window of `push_rows` rows, has it filled, and commits it; the consumer side pops a
//! window of `pop_rows` rows and releases `pop_stride` rows. No bytes move, and no window
//! wraps. A [`RegionSlot`] is the ring of one window.
//!
//! At the end of a stream fewer rows may be left than a stride: [`SlotRing::pop_short`] hands
//! them out, and [`SlotRing::realign`] begins anew before the next stream. Whoever has to show
//! a whole window copies them, once a stream: the missing rows are those that the producer
//! fills next, and to take them away from it would cost every acquisition a fence.
//!
//! What it does not know: cells, hooks, policies of overflow, when a stream ends, and what rows
//! mean.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **RG1** A window handed to one side overlaps no window of the other. Held by: the
//!   producer's window lies in the `rows - filled` free rows behind its cursor, the
//!   consumer's in the `filled` rows before it; `filled` is the difference of two counts
//!   that each side publishes only when it has its window back. No window begins at a cursor
//!   that a short release left in the middle of a stride, and cursors are set anew only with
//!   both tokens, or the ring, in hand and no window out.
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

use super::window::{MAX_DEPTH, Window, to_cut};
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
    /// There are too few rows for a delay.
    #[error("rows is {rows}, more than delay and push_rows together are needed, {needed}")]
    DelayTooLong {
        /// Rows of the ring.
        rows: usize,
        /// Rows that the delay and a push take up.
        needed: usize,
    },
    /// The region is too short, or the size overflows.
    #[error("the ring needs {} bytes, the region has {found}", needed_text(.needed))]
    TooSmall {
        /// Bytes needed; `None` if they overflow.
        needed: Option<usize>,
        /// Bytes of the region.
        found: usize,
    },
    /// There are too few regions.
    #[error("the ring has {found} regions, at least {expected} are needed")]
    TooFew {
        /// Regions that there are.
        found: usize,
        /// Regions that are needed.
        expected: usize,
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
    /// Of the consumer: how many rows giving back its window frees, if they are fewer than a
    /// stride.
    short: Option<usize>,
    /// Of the consumer: whether it gave back fewer rows than a stride, so that its cursor lies
    /// where no window may begin.
    uneven: bool,
    window: Window,
}

impl End {
    /// Whether a window can be handed out: none is out, or it was dropped out there.
    #[inline]
    fn reclaim(&mut self, whole: &Arc<Region>) -> Result<(), ContractError> {
        if self.window.is_in() {
            return Ok(());
        }
        self.window.reclaim(whole)?;
        // If it was a short one, it is gone.
        self.short = None;
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
        let whole = to_cut(region)?;
        let end = || End {
            cursor: 0,
            count: 0,
            seen: 0,
            short: None,
            uneven: false,
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
        end.reclaim(&self.whole)?;
        if end.seen.wrapping_sub(end.count) < pop_stride {
            // All that was seen was released before the cursor became uneven, so no way leads
            // past here until `realign`.
            if end.uneven {
                return Ok(None);
            }
            end.seen = self.pushed.load(Ordering::Acquire);
            if end.seen.wrapping_sub(end.count) < pop_stride {
                return Ok(None);
            }
        }
        let offset = end.cursor * row_bytes;
        // SAFETY: the cursor is a multiple of `pop_stride` below `rows`, itself a multiple,
        // and `pop_rows` is at most `pop_stride`, so the window ends within the ring. Its
        // rows are filled: the producer's window lies in the free rows, as the count it
        // pushed shows, and this side's former window is back or dropped (RG1).
        Ok(unsafe {
            end.window
                .hand_out(&self.whole, offset, pop_rows * row_bytes)
        })
    }

    /// The last rows of a stream, which are too few for [`pop`](Self::pop): a window of at most
    /// `pop_rows` of them, and how many there are. `None` if there are none, or enough for `pop`.
    ///
    /// Releasing the window frees all of them. The next window would begin in the middle of a
    /// stride then, so there is none until [`realign`](Self::realign). Only a caller that knows
    /// that no row follows should ask.
    ///
    /// # Errors
    /// As [`pop`](Self::pop).
    pub fn pop_short(
        &self,
        side: &mut ConsumerSide,
    ) -> Result<Option<(Region, usize)>, ContractError> {
        let RingLayout {
            row_bytes,
            pop_rows,
            pop_stride,
            ..
        } = self.layout;
        let end = self.consumer.open(side)?;
        end.reclaim(&self.whole)?;
        if end.uneven {
            return Ok(None);
        }
        end.seen = self.pushed.load(Ordering::Acquire);
        let rows = end.seen.wrapping_sub(end.count);
        if rows == 0 || rows >= pop_stride {
            return Ok(None);
        }
        end.short = Some(rows);
        let (offset, len) = (end.cursor * row_bytes, rows.min(pop_rows) * row_bytes);
        // SAFETY: as in `pop`: the cursor is even, and the window is no longer than one there.
        // All its rows are filled.
        let window = unsafe { end.window.hand_out(&self.whole, offset, len) };
        Ok(window.map(|window| (window, rows)))
    }

    /// Before a new stream: lets windows begin at the first row again, if the last stream ended
    /// in the middle of a stride. Gives the number of rows pushed since, which are dropped.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for a token of another node,
    /// [`ContractError::WindowOut`] if a window is out, or was dropped with device work
    /// outstanding.
    pub fn realign(
        &self,
        producer: &mut ProducerSide,
        consumer: &mut ConsumerSide,
    ) -> Result<usize, ContractError> {
        let front = self.producer.open(producer)?;
        let back = self.consumer.open(consumer)?;
        if !back.uneven {
            return Ok(0);
        }
        // Cursors may jump only while no window lies at them, nor device work.
        if !front.window.is_done(&self.whole) || !back.window.is_done(&self.whole) {
            return Err(ContractError::WindowOut);
        }
        let dropped = front.count.wrapping_sub(back.count);
        front.cursor = 0;
        back.cursor = 0;
        back.count = front.count;
        back.seen = front.count;
        front.seen = front.count;
        back.uneven = false;
        self.released.store(back.count, Ordering::Release);
        Ok(dropped)
    }

    /// Fills the ring, which must be empty, with copies of the rows that `from` holds, as a
    /// factory's `update` does when only the number of rows has changed. `copy` gets stretches
    /// of the old ring and of this one, of one length, in order. `from` stays as it is.
    ///
    /// `false`, and nothing is copied, if the rows do not fit, the rings' windows differ, or a
    /// window is out.
    ///
    /// # Errors
    /// What `copy` says, or that it left device work outstanding. This ring then is empty.
    pub fn refill<E: From<Refused>>(
        &mut self,
        from: &mut Self,
        mut copy: impl FnMut(&Region, &mut Region) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (rows, old_rows) = (self.layout.rows, from.layout.rows);
        let same_windows = RingLayout {
            rows: old_rows,
            ..self.layout
        } == from.layout;
        let (front, back) = (self.producer.get_mut(), self.consumer.get_mut());
        let (old_front, old) = (from.producer.get_mut(), from.consumer.get_mut());
        let filled = old_front.count.wrapping_sub(old.count);
        if !same_windows
            || filled > rows
            || front.count != back.count
            || !front.window.is_done(&self.whole)
            || !back.window.is_done(&self.whole)
            || !old.window.is_done(&from.whole)
            || (old.uneven && filled > 0)
        {
            return Ok(false);
        }
        let row_bytes = self.layout.row_bytes;
        // Multiples of both `push_rows` and `pop_stride` less leave both cursors where windows
        // may begin. There is such a number, since `rows` is one. If nothing is filled any place
        // will do.
        let unit = common_multiple(self.layout.push_rows, self.layout.pop_stride);
        let start = match unit {
            Some(unit) if filled > 0 => old.cursor % unit,
            _ => 0,
        };
        let (mut source, mut target, mut left) = (old.cursor, start, filled);
        while left > 0 {
            let stretch = left.min(old_rows - source).min(rows - target);
            let len = stretch * row_bytes;
            // SAFETY: the stretch ends within the old ring. Its rows are filled and not of the
            // producer, and the consumer's window is in.
            let read = unsafe { old.window.hand_out(&from.whole, source * row_bytes, len) };
            // SAFETY: the stretch ends within this ring, of which both windows are in.
            let written = unsafe { front.window.hand_out(&self.whole, target * row_bytes, len) };
            let (Some(read), Some(mut written)) = (read, written) else {
                return Ok(false);
            };
            // `copy` may put another region in the place of `written`, which is refused then.
            let (read_at, written_at) = (read.ptr(), written.ptr());
            copy(&read, &mut written)?;
            old.window.take_back(read_at, len, read)?;
            front.window.take_back(written_at, len, written)?;
            source = (source + stretch) % old_rows;
            target = (target + stretch) % rows;
            left -= stretch;
        }
        back.cursor = start;
        back.uneven = false;
        front.cursor = (start + filled) % rows;
        back.seen = back.count;
        front.seen = back.count;
        front.count = back.count.wrapping_add(filled);
        self.pushed.store(front.count, Ordering::Release);
        Ok(true)
    }

    /// Releases the window that `pop` or `pop_short` handed out, and the rows skipped after it.
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
        if end.short.is_some() {
            return self.release_short(end, window);
        }
        let ptr = self.row(end.cursor);
        end.window.take_back(ptr, pop_rows * row_bytes, window)?;
        end.cursor = advance(end.cursor, pop_stride, rows);
        end.count = end.count.wrapping_add(pop_stride);
        // Release: what the consumer did with the rows happens before the producer, which
        // acquires this count, overwrites them.
        self.released.store(end.count, Ordering::Release);
        Ok(())
    }

    /// Releases the window that `pop_short` handed out.
    #[cold]
    #[inline(never)]
    fn release_short(&self, end: &mut End, window: Region) -> Result<(), Refused> {
        let RingLayout {
            row_bytes,
            rows,
            pop_rows,
            ..
        } = self.layout;
        let short = end.short.unwrap_or(0);
        let ptr = self.row(end.cursor);
        end.window
            .take_back(ptr, short.min(pop_rows) * row_bytes, window)?;
        end.short = None;
        end.uneven = true;
        end.cursor = advance(end.cursor, short, rows);
        end.count = end.count.wrapping_add(short);
        // Release: as in `release`.
        self.released.store(end.count, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn row(&self, row: usize) -> NonNull<u8> {
        // SAFETY: cursors stay below `rows`, and `rows` rows lie within the region.
        unsafe { self.whole.ptr().add(row * self.layout.row_bytes) }
    }
}

/// The next cursor. No step leads past the end: each is one of those that `rows` is a multiple
/// of, or less from the beginning of one.
#[inline]
fn advance(cursor: usize, step: usize, rows: usize) -> usize {
    let next = cursor + step;
    if next == rows { 0 } else { next }
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
    let unit = common_multiple(push_rows, pop_stride)?;
    target
        .max(pop_stride)
        .checked_add(push_rows)?
        .checked_next_multiple_of(unit)
}

/// The least common multiple of two numbers above 0; `None` if it overflows.
fn common_multiple(a: usize, b: usize) -> Option<usize> {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).checked_mul(b)
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "ring_tests.rs"]
mod tests;
