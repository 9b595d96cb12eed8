//! How regions cross from push side to pop side where frames may be dropped on the way.
//!
//! A [`SwapRing`] owns a few regions of one size. Free ones lie in one queue, filled ones, each
//! with a value of its own beside it, in another. The producer side takes a free region, has it
//! filled and commits it; the consumer side pops and releases. What does not fit is dropped by
//! a policy, and its region is free again at once, so the producer never waits. There are as
//! many regions as can be filled, and spares for those on their way.
//!
//! Unlike windows of a `SlotRing`, regions move by value and each is an allocation of its own:
//! dropping the oldest frame while the newest is written needs no order among their bytes.
//!
//! What it does not know: cells, hooks, and what the values mean.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **SW1** A region is in one place: free, filled, or out. Held by moving it.
//! - **SW2** What is committed is popped or counted as dropped: `commit` says how many.
//! - **SW3** Regions given back are of the ring's size and location; others are refused.
//! - **SW4** In steady state nothing is allocated.
//!
//! Threads: both queues take any number of threads. A region that is dropped out there is
//! gone; tasks give theirs back in `cancel_input`.

use super::{Refusal, Refused, Region};
use crate::sync::ArrayQueue;
use crate::tensor::MemLoc;

/// What a full [`SwapRing`] does with one frame more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "there are two ends to drop a frame from"
)]
pub enum Overflow {
    /// It drops that one.
    DropNewest,
    /// It drops the one that has waited longest.
    DropOldest,
}

/// Regions of one size between two sides, which drops what does not fit.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::{Overflow, SwapRing, TaskBuffer};
/// use holoflow_core::tensor::MemLoc;
///
/// let regions = (0..4).map(|_| {
///     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 1).map(TaskBuffer::into_region)
/// });
/// let ring = SwapRing::new(2, Overflow::DropOldest, regions.collect::<Result<Vec<_>, _>>()?);
/// for (number, expected) in [(0, 0), (1, 0), (2, 1)] {
///     let mut region = ring.acquire().expect("there are spares");
///     region.as_mut_bytes()?[0] = number;
///     assert_eq!(ring.commit(region, number)?, expected);
/// }
/// let (region, number) = ring.pop().expect("two are filled");
/// assert_eq!((region.as_bytes()?[0], number), (1, 1));
/// ring.release(region)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SwapRing<T> {
    free: ArrayQueue<Region>,
    filled: ArrayQueue<(Region, T)>,
    overflow: Overflow,
    bytes: usize,
    location: MemLoc,
}

impl<T> SwapRing<T> {
    /// Regions that are out at once: one on each side, and one in the middle of an exchange.
    pub const SPARES: usize = 3;

    /// A ring that holds `capacity` filled regions of `regions`, at least one. There should be
    /// [`SPARES`](Self::SPARES) more regions than that.
    #[must_use]
    pub fn new(capacity: usize, overflow: Overflow, regions: Vec<Region>) -> Self {
        let bytes = regions.iter().map(Region::len).min().unwrap_or(0);
        let location = regions.first().map_or(MemLoc::Host, Region::location);
        let free = ArrayQueue::new(regions.len().max(1));
        for region in regions {
            // There is room for each.
            let _ = free.push(region);
        }
        Self {
            free,
            filled: ArrayQueue::new(capacity.max(1)),
            overflow,
            bytes,
            location,
        }
    }

    /// A region to fill; `None` if all are filled or out.
    #[must_use]
    pub fn acquire(&self) -> Option<Region> {
        self.free.pop()
    }

    /// Commits a filled region, with a value beside it. How many frames were dropped for it, or
    /// instead of it: 0 or 1.
    ///
    /// # Errors
    /// Gives the region back if it is not one of this ring's kind.
    pub fn commit(&self, region: Region, value: T) -> Result<u64, Refused> {
        let region = self.checked(region)?;
        let displaced = match self.overflow {
            Overflow::DropOldest => self.filled.force_push((region, value)),
            Overflow::DropNewest => self.filled.push((region, value)).err(),
        };
        let Some((region, _)) = displaced else {
            return Ok(0);
        };
        self.put_back(region);
        Ok(1)
    }

    /// The filled region that has waited longest, with its value.
    #[must_use]
    pub fn pop(&self) -> Option<(Region, T)> {
        self.filled.pop()
    }

    /// Gives back a region that was acquired or popped, so that it can be filled again.
    ///
    /// # Errors
    /// Gives the region back if it is not one of this ring's kind.
    pub fn release(&self, region: Region) -> Result<(), Refused> {
        let region = self.checked(region)?;
        self.put_back(region);
        Ok(())
    }

    /// How many regions can be filled at once.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.filled.capacity()
    }

    /// How many regions are filled.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled.len()
    }

    fn checked(&self, region: Region) -> Result<Region, Refused> {
        let refusal = if region.location() != self.location {
            Refusal::WrongLocation {
                found: region.location(),
                expected: self.location,
            }
        } else if region.len() < self.bytes {
            Refusal::TooSmall {
                found: region.len(),
                expected: self.bytes,
            }
        } else if region.is_shared() {
            Refusal::ReadOnly
        } else {
            return Ok(region);
        };
        Err(Refused { region, refusal })
    }

    /// A region too many, which is somebody else's, is dropped.
    fn put_back(&self, region: Region) {
        drop(self.free.push(region));
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::storage::TaskBuffer;

    fn region(bytes: usize) -> Region {
        let buffer = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes);
        buffer.unwrap().into_region()
    }

    fn ring(capacity: usize, overflow: Overflow) -> SwapRing<u32> {
        let count = capacity + SwapRing::<u32>::SPARES;
        SwapRing::new(capacity, overflow, (0..count).map(|_| region(4)).collect())
    }

    #[test]
    fn sw1_no_region_is_in_two_places() {
        let ring = ring(2, Overflow::DropOldest);
        let mut seen = std::collections::BTreeSet::new();
        let mut out = Vec::new();
        while let Some(region) = ring.acquire() {
            assert!(seen.insert(region.address().as_u64()));
            out.push(region);
        }
        assert_eq!(out.len(), 5);
        for region in out {
            ring.release(region).unwrap();
        }
        assert_eq!(std::iter::from_fn(|| ring.acquire()).count(), 5);
    }

    #[test]
    fn sw2_every_frame_is_popped_or_counted_as_dropped() {
        for overflow in [Overflow::DropOldest, Overflow::DropNewest] {
            let ring = ring(3, overflow);
            let (mut dropped, mut popped) = (0, Vec::new());
            for number in 0..100_u32 {
                let region = ring.acquire().unwrap();
                dropped += ring.commit(region, number).unwrap();
                if number % 4 == 3 {
                    let (region, value) = ring.pop().unwrap();
                    popped.push(value);
                    ring.release(region).unwrap();
                }
                let known = dropped + popped.len() as u64 + ring.filled() as u64;
                assert_eq!(known, u64::from(number) + 1, "{overflow:?}");
            }
            assert!(popped.is_sorted());
            match overflow {
                Overflow::DropOldest => assert_eq!(popped[0], 1),
                Overflow::DropNewest => assert_eq!(popped[..3], [0, 1, 2]),
            }
        }
    }

    #[test]
    fn sw3_a_foreign_region_is_refused_and_given_back() {
        let ring = ring(1, Overflow::DropOldest);
        let refused = ring.commit(region(3), 0).unwrap_err();
        assert_eq!(refused.region.len(), 3);
        assert!(matches!(
            refused.refusal,
            Refusal::TooSmall {
                found: 3,
                expected: 4
            }
        ));
        assert!(ring.release(region(3)).is_err());
    }
}
