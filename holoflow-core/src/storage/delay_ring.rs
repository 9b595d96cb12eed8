//! How rows cross to a pop side that reads each of them twice: now, and some rows later.
//!
//! A [`DelayRing`] owns one region, seen as a ring of rows. The producer side takes a window of
//! `push_rows` rows, has it filled and commits it, as with a `SlotRing`. The consumer side pops
//! pairs of windows of one row: the current row, and the one `delay` rows before it. Both are
//! shared regions, which nobody can write, since the row is needed again, or is one and the same
//! if there is no delay. Before the first rows the delayed window shows a row of zeros behind the
//! ring's own, which nobody ever writes. No bytes move.
//!
//! What it does not know: cells, hooks, and what rows mean.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **DL1** The producer's window has no row that a reader has or will still read. Held by: it
//!   lies in the rows that are free, and a row is free once the delayed reader is past it;
//!   `freed` counts those, and is published when both windows are back.
//! - **DL2** Nobody writes what is handed out to read. Held by: readers' windows are shared
//!   regions that can never be made unique.
//! - **DL3** The pair moves on once both of its windows are back, in either order, and nobody
//!   holds a part of them any more.
//! - **DL4** A pair of which a window is dropped instead of given back is handed out again.
//! - **DL5** In steady state nothing is allocated: windows go out and come back.
//! - **DL6** The row of zeros stays zero if it was: no window that may be written lies on it.
//!
//! Threads and ordering: as in `ring.rs`. `pushed` is written by the producer and `freed` by the
//! consumer, each with release, and read by the other with acquire.

use super::window::{Window, to_cut};
use super::{ConsumerCell, ConsumerSide, ContractError, ProducerCell, ProducerSide};
use super::{Refusal, Refused, Region, RingError, Sides};
use crate::memory::Address;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, CachePadded};
use crate::tensor::MemLoc;

/// Shape of a [`DelayRing`], in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "plain parameters, built by users"
)]
pub struct DelayLayout {
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows of the ring, without that of zeros: a multiple of `push_rows`, and more than `delay`
    /// and `push_rows` together.
    pub rows: usize,
    /// Rows of a push window.
    pub push_rows: usize,
    /// Rows from the delayed row of a pair to the current one.
    pub delay: usize,
}

impl DelayLayout {
    /// The layout that holds `target` rows before the producer waits, and those that the delay
    /// needs: `rows` is the smallest multiple of `push_rows` that is at least
    /// `target + push_rows + delay + 1`. `None` if it overflows or `push_rows` is 0.
    ///
    /// ```
    /// use holoflow_core::storage::DelayLayout;
    ///
    /// let layout = DelayLayout::holding(4, 1, 2, 1).expect("it is small");
    /// assert_eq!(layout.rows, 8);
    /// assert_eq!(layout.bytes(), Some(9));
    /// ```
    #[must_use]
    pub fn holding(
        target: usize,
        row_bytes: usize,
        push_rows: usize,
        delay: usize,
    ) -> Option<Self> {
        let rows = target
            .checked_add(push_rows)?
            .checked_add(delay)?
            .checked_add(1)?
            .checked_next_multiple_of(push_rows)?;
        Some(Self {
            row_bytes,
            rows,
            push_rows,
            delay,
        })
    }

    /// Bytes of the ring and the row of zeros; `None` if they overflow.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        self.rows.checked_add(1)?.checked_mul(self.row_bytes)
    }

    fn check(&self) -> Result<(), RingError> {
        let Self {
            rows,
            push_rows,
            delay,
            ..
        } = *self;
        if push_rows == 0 {
            return Err(RingError::Zero { field: "push_rows" });
        }
        if !rows.is_multiple_of(push_rows) {
            return Err(RingError::NotAMultiple {
                field: "rows",
                value: rows,
                of: "push_rows",
                unit: push_rows,
            });
        }
        let needed = delay.saturating_add(push_rows);
        if rows <= needed {
            return Err(RingError::DelayTooLong { rows, needed });
        }
        Ok(())
    }
}

/// A row, and the one before it by the ring's delay.
#[derive(Debug)]
#[non_exhaustive]
pub struct DelayedPair {
    /// Number of the current row, from 0 since the ring was made.
    pub number: u64,
    /// The current row.
    pub current: Region,
    /// The delayed row; that of zeros if there is none before.
    pub delayed: Region,
}

/// One of the two windows of a [`DelayedPair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a pair has two")]
pub enum DelayReader {
    /// That on the current row.
    Current,
    /// That on the delayed row.
    Delayed,
}

/// Single-producer, single-consumer ring whose rows are read twice.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::{DelayLayout, DelayReader, DelayRing, Sides, TaskBuffer};
/// use holoflow_core::tensor::MemLoc;
///
/// let layout = DelayLayout { row_bytes: 1, rows: 4, push_rows: 1, delay: 1 };
/// let region = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 5)?.into_region();
/// let mut sides = Sides::new();
/// let ring = DelayRing::new(&sides, layout, region)?;
/// let (producer, consumer) = sides.split();
///
/// for (row, before) in [(7, 0), (8, 7), (9, 8)] {
///     let mut window = ring.acquire(producer)?.expect("there is room");
///     window.as_mut_bytes()?[0] = row;
///     ring.commit(producer, window)?;
///
///     let mut pair = ring.pop(consumer)?.expect("a row is there");
///     assert_eq!(pair.current.as_bytes()?, [row]);
///     assert_eq!(pair.delayed.as_bytes()?, [before]);
///     assert!(pair.current.as_mut_bytes().is_err(), "it is only read");
///     ring.release(consumer, DelayReader::Delayed, pair.delayed)?;
///     ring.release(consumer, DelayReader::Current, pair.current)?;
/// }
/// assert!(ring.pop(consumer)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DelayRing {
    layout: DelayLayout,
    whole: Arc<Region>,
    /// Rows committed since the beginning, wrapping. Written by the producer.
    pushed: CachePadded<AtomicUsize>,
    /// Rows that no reader needs any more, wrapping. Written by the consumer.
    freed: CachePadded<AtomicUsize>,
    producer: CachePadded<ProducerCell<Front>>,
    consumer: CachePadded<ConsumerCell<Back>>,
}

/// What the producer keeps to itself.
#[derive(Debug)]
struct Front {
    /// Row where the next window begins.
    cursor: usize,
    /// Rows committed, as published.
    pushed: usize,
    /// `freed` when it was last read.
    seen: usize,
    window: Window,
}

/// What the consumer keeps to itself.
#[derive(Debug)]
struct Back {
    /// Number of the current row.
    number: u64,
    /// Rows that were current and are done with, wrapping.
    passed: usize,
    /// Rows that no reader needs any more, as published.
    freed: usize,
    /// `pushed` when it was last read.
    seen: usize,
    current: Reader,
    delayed: Reader,
}

#[derive(Debug)]
struct Reader {
    /// The row to be read, in the ring. Of the delayed reader also the oldest that is kept.
    cursor: usize,
    window: Window,
    /// Whether the window came back since it was last handed out.
    is_back: bool,
}

impl Reader {
    fn new(whole: &Arc<Region>) -> Self {
        Self {
            cursor: 0,
            window: Window::read_only(whole),
            is_back: false,
        }
    }
}

impl DelayRing {
    /// A ring over `region` for the node whose sides are `sides`. The last row of the layout's
    /// [`bytes`](DelayLayout::bytes) is what the delayed window shows before the first rows; it is
    /// zero in a region of a new buffer.
    ///
    /// # Errors
    /// If the layout is not a ring, or the region is too small, shared or in use.
    pub fn new(sides: &Sides, layout: DelayLayout, region: Region) -> Result<Self, RingError> {
        layout.check()?;
        let needed = layout.bytes();
        if needed.is_none_or(|needed| needed > region.len()) {
            return Err(RingError::TooSmall {
                needed,
                found: region.len(),
            });
        }
        let whole = to_cut(region)?;
        let front = Front {
            cursor: 0,
            pushed: 0,
            seen: 0,
            window: Window::new(&whole),
        };
        let back = Back {
            number: 0,
            passed: 0,
            freed: 0,
            seen: 0,
            current: Reader::new(&whole),
            delayed: Reader::new(&whole),
        };
        Ok(Self {
            layout,
            pushed: CachePadded::new(AtomicUsize::new(0)),
            freed: CachePadded::new(AtomicUsize::new(0)),
            producer: CachePadded::new(ProducerCell::new(sides, front)),
            consumer: CachePadded::new(ConsumerCell::new(sides, back)),
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
    pub fn layout(&self) -> DelayLayout {
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

    /// Rows that were not current yet, or are and not done with.
    #[must_use]
    pub fn left(&mut self) -> usize {
        let pushed = self.producer.get_mut().pushed;
        pushed.wrapping_sub(self.consumer.get_mut().passed)
    }

    /// The next window to fill; `None` unless more than `push_rows` rows are free.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for the token of another node,
    /// [`ContractError::WindowOut`] if a window is out on this side.
    #[inline]
    pub fn acquire(&self, side: &mut ProducerSide) -> Result<Option<Region>, ContractError> {
        let DelayLayout {
            row_bytes,
            rows,
            push_rows,
            ..
        } = self.layout;
        let front = self.producer.open(side)?;
        front.window.reclaim(&self.whole)?;
        if rows - front.pushed.wrapping_sub(front.seen) <= push_rows {
            front.seen = self.freed.load(Ordering::Acquire);
            if rows - front.pushed.wrapping_sub(front.seen) <= push_rows {
                return Ok(None);
            }
        }
        let offset = front.cursor * row_bytes;
        // SAFETY: the cursor is a multiple of `push_rows` below `rows`, itself a multiple, so
        // the window ends within the ring, which `new` found to fit the region. Its rows are
        // free: readers' windows lie in the rows from the one that `freed` counts to the
        // cursor, or on the row behind the ring; and this side's former window is back or
        // dropped (DL1).
        Ok(unsafe {
            front
                .window
                .hand_out(&self.whole, offset, push_rows * row_bytes)
        })
    }

    /// Commits the window that `acquire` handed out, so that the consumer side sees its rows.
    ///
    /// # Errors
    /// Gives the region back if it is not that window, device work on it is outstanding, or
    /// the token is of another node.
    #[inline]
    pub fn commit(&self, side: &mut ProducerSide, window: Region) -> Result<(), Refused> {
        let DelayLayout {
            row_bytes,
            rows,
            push_rows,
            ..
        } = self.layout;
        let Ok(front) = self.producer.open(side) else {
            return Err(foreign(window));
        };
        let ptr = self.row(front.cursor);
        front.window.take_back(ptr, push_rows * row_bytes, window)?;
        front.cursor = advance(front.cursor, push_rows, rows);
        front.pushed = front.pushed.wrapping_add(push_rows);
        // Release: what the producer wrote in the rows happens before the consumer, which
        // acquires this count, reads them.
        self.pushed.store(front.pushed, Ordering::Release);
        Ok(())
    }

    /// The next row and its delayed one, both only to be read; `None` while no row is left.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for the token of another node,
    /// [`ContractError::WindowOut`] if a row is left and a window of the last pair is out.
    #[inline]
    pub fn pop(&self, side: &mut ConsumerSide) -> Result<Option<DelayedPair>, ContractError> {
        let DelayLayout {
            row_bytes,
            rows,
            delay,
            ..
        } = self.layout;
        let back = self.consumer.open(side)?;
        let out = back
            .current
            .window
            .reclaim(&self.whole)
            .and(back.delayed.window.reclaim(&self.whole));
        // The row of a pair that is out is not left.
        let taken = usize::from(out.is_err());
        if back.seen.wrapping_sub(back.passed) <= taken {
            back.seen = self.pushed.load(Ordering::Acquire);
            if back.seen.wrapping_sub(back.passed) <= taken {
                return Ok(None);
            }
        }
        out?;
        back.current.is_back = false;
        back.delayed.is_back = false;
        let is_delayed = usize::try_from(back.number).is_ok_and(|number| number < delay);
        let delayed = if is_delayed {
            rows
        } else {
            back.delayed.cursor
        };
        let (current, delayed) = (back.current.cursor * row_bytes, delayed * row_bytes);
        // SAFETY: the cursor is below `rows`, so the row lies within the ring. It is filled and
        // not freed, so the producer's window does not have it (DL1). Nobody else may write it:
        // other windows of this side are only to be read (DL2).
        let current = unsafe {
            back.current
                .window
                .hand_out(&self.whole, current, row_bytes)
        };
        // SAFETY: as above, if it is a row of the ring; it is the oldest that is kept. Otherwise
        // it is the one behind them, where no other window ever lies.
        let delayed = unsafe {
            back.delayed
                .window
                .hand_out(&self.whole, delayed, row_bytes)
        };
        let (Some(current), Some(delayed)) = (current, delayed) else {
            return Ok(None);
        };
        Ok(Some(DelayedPair {
            number: back.number,
            current,
            delayed,
        }))
    }

    /// Releases one window of the pair that `pop` handed out. When both are back, the pair moves
    /// on by a row.
    ///
    /// # Errors
    /// Gives the region back if it is not that window, others hold parts of it, device work on
    /// it is outstanding, or the token is of another node.
    #[inline]
    pub fn release(
        &self,
        side: &mut ConsumerSide,
        reader: DelayReader,
        window: Region,
    ) -> Result<(), Refused> {
        let DelayLayout {
            row_bytes,
            rows,
            delay,
            ..
        } = self.layout;
        let Ok(back) = self.consumer.open(side) else {
            return Err(foreign(window));
        };
        let is_early = usize::try_from(back.number).is_ok_and(|number| number < delay);
        let of_zeros = is_early && reader == DelayReader::Delayed;
        let reader = match reader {
            DelayReader::Current => &mut back.current,
            DelayReader::Delayed => &mut back.delayed,
        };
        let row = if of_zeros { rows } else { reader.cursor };
        reader
            .window
            .take_back_read(self.row(row), row_bytes, window)?;
        reader.is_back = true;
        if !(back.current.is_back && back.delayed.is_back) {
            return Ok(());
        }
        back.current.is_back = false;
        back.delayed.is_back = false;
        back.current.cursor = advance(back.current.cursor, 1, rows);
        back.passed = back.passed.wrapping_add(1);
        back.number += 1;
        if !is_early {
            back.delayed.cursor = advance(back.delayed.cursor, 1, rows);
            back.freed = back.freed.wrapping_add(1);
            // Release: what the readers read of the row happens before the producer, which
            // acquires this count, overwrites it.
            self.freed.store(back.freed, Ordering::Release);
        }
        Ok(())
    }

    /// Fills the ring, which must be new, with copies of the rows that `from` holds, and goes on
    /// where it is, as a factory's `update` does when only the number of rows has changed. `copy`
    /// gets stretches of the old ring and of this one, of one length, in order. `from` stays as it
    /// is.
    ///
    /// `false`, and nothing is copied, if the rows do not fit, the layouts differ in more than
    /// their rows, or a window is out.
    ///
    /// # Errors
    /// What `copy` says, or that it left device work outstanding. This ring is then as new.
    pub fn refill<E: From<Refused>>(
        &mut self,
        from: &mut Self,
        mut copy: impl FnMut(&Region, &mut Region) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (rows, old_rows) = (self.layout.rows, from.layout.rows);
        let same_windows = DelayLayout {
            rows: old_rows,
            ..self.layout
        } == from.layout;
        let (front, back) = (self.producer.get_mut(), self.consumer.get_mut());
        let (old_front, old) = (from.producer.get_mut(), from.consumer.get_mut());
        let kept = old_front.pushed.wrapping_sub(old.freed);
        if !same_windows
            || kept > rows
            || front.pushed != 0
            || back.number != 0
            || !front.window.is_done(&self.whole)
            || !back.current.window.is_done(&self.whole)
            || !back.delayed.window.is_done(&self.whole)
            || !old.current.window.is_done(&from.whole)
            || !old.delayed.window.is_done(&from.whole)
        {
            return Ok(false);
        }
        // Multiples of `push_rows` less leave the producer where its windows may begin.
        let start = old.delayed.cursor % self.layout.push_rows;
        let row_bytes = self.layout.row_bytes;
        let (mut source, mut target, mut left) = (old.delayed.cursor, start, kept);
        while left > 0 {
            let stretch = left.min(old_rows - source).min(rows - target);
            let len = stretch * row_bytes;
            // SAFETY: the stretch ends within the old ring. Its rows are kept and not of the
            // producer, and all other windows of that side are in.
            let read = unsafe {
                let window = &mut old.current.window;
                window.hand_out(&from.whole, source * row_bytes, len)
            };
            // SAFETY: the stretch ends within this ring, of which all windows are in.
            let written = unsafe { front.window.hand_out(&self.whole, target * row_bytes, len) };
            let (Some(read), Some(mut written)) = (read, written) else {
                return Ok(false);
            };
            // `copy` may put another region in the place of `written`, which is refused then.
            let (read_at, written_at) = (read.ptr(), written.ptr());
            copy(&read, &mut written)?;
            old.current.window.take_back_read(read_at, len, read)?;
            front.window.take_back(written_at, len, written)?;
            source = (source + stretch) % old_rows;
            target = (target + stretch) % rows;
            left -= stretch;
        }
        let history = old.passed.wrapping_sub(old.freed);
        back.number = old.number;
        back.freed = 0;
        back.passed = history;
        back.seen = kept;
        back.delayed.cursor = start;
        back.current.cursor = (start + history) % rows;
        front.pushed = kept;
        front.seen = 0;
        front.cursor = (start + kept) % rows;
        self.pushed.store(kept, Ordering::Release);
        Ok(true)
    }

    #[inline]
    fn row(&self, row: usize) -> std::ptr::NonNull<u8> {
        // SAFETY: `row` is at most `rows`, and a row more than that lies within the region.
        unsafe { self.whole.ptr().add(row * self.layout.row_bytes) }
    }
}

/// The next cursor. `step` divides `rows`, so the end is met exactly.
#[inline]
fn advance(cursor: usize, step: usize, rows: usize) -> usize {
    let next = cursor + step;
    if next == rows { 0 } else { next }
}

#[cold]
fn foreign(region: Region) -> Refused {
    Refused {
        region,
        refusal: Refusal::ForeignSide,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "delay_ring_tests.rs"]
mod tests;
