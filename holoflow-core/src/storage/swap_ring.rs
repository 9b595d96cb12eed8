//! How regions cross from the push side to the pop side where frames may be dropped on the way.
//!
//! A [`SwapRing`] has a number of places, each for one region. Idle places lie in one queue,
//! filled ones, each with a value of its own beside the region, in another. The producer side
//! takes an idle place, has its region filled and commits it; the consumer side pops and
//! releases. What does not fit is dropped, the newest or the oldest, and its place is the
//! producer's next. There are two places more than can be filled, so the producer never waits.
//!
//! Unlike windows of a `SlotRing`, regions have nothing to do with each other. So the oldest may
//! be dropped while any other is written or read.
//!
//! What it does not know: cells, hooks, what the values mean, and whom to tell of a drop.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **SW1** A place is idle, filled, or at one of the sides. Held by moving it.
//! - **SW2** What was committed was popped and released, was dropped, or is there: `commit` says
//!   of each drop.
//! - **SW3** Only the region that a side has out comes back there, and one that is dropped out
//!   there is handed out again, with what is in it. Held by: the place stays at the side, and is
//!   a [`LentRegion`].
//! - **SW4** The producer never waits. Held by: of `capacity + 2` places at most `capacity` are
//!   filled and one is at the consumer, also while it is on its way there or back.
//! - **SW5** In steady state nothing is allocated: places are boxed, and the boxes move.
//!
//! Threads: each side has its end to itself, by its token ([`Sides`]). Places cross in two queues
//! that any thread may use; the producer takes from the filled one, too, to drop the oldest. A
//! place that is taken was put there with release and is taken with acquire.

use super::{ConsumerCell, ConsumerSide, ContractError, LentRegion, ProducerCell, ProducerSide};
use super::{Refusal, Refused, Region, RingError, Sides};
use crate::sync::{ArrayQueue, CachePadded};

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

/// Regions between two sides, of which those that do not fit are dropped.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::storage::{Overflow, Sides, SwapRing, TaskBuffer};
/// use holoflow_core::tensor::MemLoc;
///
/// // Two may be filled.
/// let regions = (0..2 + SwapRing::<u8>::SPARES)
///     .map(|_| Ok(TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 1)?.into_region()));
/// let regions: Vec<_> = regions.collect::<Result<_, holoflow_core::memory::MemoryError>>()?;
/// let mut sides = Sides::new();
/// let ring = SwapRing::new(&sides, Overflow::DropOldest, regions)?;
/// let (producer, consumer) = sides.split();
///
/// for (number, dropped) in [(10, None), (11, None), (12, Some(10))] {
///     let mut window = ring.acquire(producer)?.expect("there are spares");
///     window.as_mut_bytes()?[0] = number;
///     assert_eq!(ring.commit(producer, window, number)?, dropped);
/// }
/// let (window, number) = ring.pop(consumer)?.expect("two are filled");
/// assert_eq!((window.as_bytes()?[0], number), (11, 11));
/// ring.release(consumer, window)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SwapRing<T> {
    overflow: Overflow,
    idle: ArrayQueue<Box<Place<T>>>,
    filled: ArrayQueue<Box<Place<T>>>,
    producer: CachePadded<ProducerCell<Option<Box<Place<T>>>>>,
    consumer: CachePadded<ConsumerCell<Option<Box<Place<T>>>>>,
}

/// One region, here or out, and what was committed with it.
#[derive(Debug)]
struct Place<T> {
    lent: LentRegion,
    /// There while the place is filled or at the consumer.
    value: Option<T>,
}

impl<T> Place<T> {
    fn new(region: Region) -> Result<Box<Self>, RingError> {
        let lent = LentRegion::new(region)?;
        Ok(Box::new(Self { lent, value: None }))
    }
}

impl<T> SwapRing<T> {
    /// Places that there are more than can be filled: one for each side.
    pub const SPARES: usize = 2;

    /// A ring of `regions` for the node whose sides are `sides`. As many can be filled as there
    /// are more than [`SPARES`](Self::SPARES).
    ///
    /// # Errors
    /// If there are too few regions, or one is shared or in use.
    pub fn new(
        sides: &Sides,
        overflow: Overflow,
        regions: impl IntoIterator<Item = Region>,
    ) -> Result<Self, RingError> {
        let places: Vec<_> = regions
            .into_iter()
            .map(Place::new)
            .collect::<Result<_, _>>()?;
        let (found, expected) = (places.len(), Self::SPARES + 1);
        if found < expected {
            return Err(RingError::TooFew { found, expected });
        }
        let idle = ArrayQueue::new(found);
        for place in places {
            put(&idle, place);
        }
        Ok(Self {
            overflow,
            idle,
            filled: ArrayQueue::new(found - Self::SPARES),
            producer: CachePadded::new(ProducerCell::new(sides, None)),
            consumer: CachePadded::new(ConsumerCell::new(sides, None)),
        })
    }

    /// Gives the ring, with what it holds, to another node, as a factory's `update` does.
    pub fn rebind(&mut self, sides: &Sides) {
        self.producer.rebind(sides);
        self.consumer.rebind(sides);
    }

    /// How many regions can be filled.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.filled.capacity()
    }

    /// How many regions are filled and not popped, as far as this thread sees.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled.len()
    }

    /// A region to fill; there always is one, but for a place that was leaked.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for the token of another node,
    /// [`ContractError::WindowOut`] if a region is out on this side.
    #[inline]
    pub fn acquire(&self, side: &mut ProducerSide) -> Result<Option<Region>, ContractError> {
        let place = self.producer.open(side)?;
        if place.is_none() {
            *place = self.idle.pop();
        }
        place.as_mut().map(|place| place.lent.lend()).transpose()
    }

    /// Commits the region that `acquire` handed out, with a value beside it. If all are filled,
    /// the value of the frame that was dropped: this one, or the oldest.
    ///
    /// # Errors
    /// Gives the region back if it is not that one, device work on it is outstanding, or the
    /// token is of another node.
    #[inline]
    pub fn commit(
        &self,
        side: &mut ProducerSide,
        region: Region,
        value: T,
    ) -> Result<Option<T>, Refused> {
        let end = match self.producer.open(side) {
            Ok(end) => end,
            Err(_) => return Err(refuse(region, Refusal::ForeignSide)),
        };
        let Some(place) = end else {
            return Err(refuse(region, Refusal::ForeignWindow));
        };
        place.lent.take_back(region)?;
        place.value = Some(value);
        let Some(place) = end.take() else {
            return Ok(None);
        };
        let left = match self.overflow {
            Overflow::DropNewest => self.filled.push(place).err(),
            Overflow::DropOldest => self.filled.force_push(place),
        };
        *end = left;
        Ok(end.as_mut().and_then(|place| place.value.take()))
    }

    /// The filled region that has waited longest, and its value; `None` if none is filled.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] for the token of another node,
    /// [`ContractError::WindowOut`] if a region is out on this side.
    #[inline]
    pub fn pop(&self, side: &mut ConsumerSide) -> Result<Option<(Region, T)>, ContractError>
    where
        T: Clone,
    {
        let end = self.consumer.open(side)?;
        if end.is_none() {
            *end = self.filled.pop();
        }
        let Some(place) = end else {
            return Ok(None);
        };
        let region = place.lent.lend()?;
        // A copy: if the region is dropped, it is popped again.
        Ok(place.value.clone().map(|value| (region, value)))
    }

    /// Releases the region that `pop` handed out, so that it can be filled again.
    ///
    /// # Errors
    /// Gives the region back if it is not that one, device work on it is outstanding, or the
    /// token is of another node.
    #[inline]
    pub fn release(&self, side: &mut ConsumerSide, region: Region) -> Result<(), Refused> {
        let end = match self.consumer.open(side) {
            Ok(end) => end,
            Err(_) => return Err(refuse(region, Refusal::ForeignSide)),
        };
        let Some(place) = end else {
            return Err(refuse(region, Refusal::ForeignWindow));
        };
        place.lent.take_back(region)?;
        if let Some(mut place) = end.take() {
            place.value = None;
            put(&self.idle, place);
        }
        Ok(())
    }

    /// Makes room for another number of filled regions, at least one, with the frames it holds;
    /// `false` if they are more, and then nothing has changed. `make` gives the regions that it
    /// takes more; those that it takes fewer are dropped.
    ///
    /// # Errors
    /// What `make` says, or that its region is shared or in use; nothing has changed then.
    pub fn resize<E: From<RingError>>(
        &mut self,
        capacity: usize,
        mut make: impl FnMut() -> Result<Region, E>,
    ) -> Result<bool, E> {
        let capacity = capacity.max(1);
        let frames = self.filled.len();
        if frames > capacity {
            return Ok(false);
        }
        if capacity == self.capacity() {
            return Ok(true);
        }
        // Beside the filled: one for each side, whether or not the side has one now, and idle
        // ones.
        let at_sides = usize::from(self.producer.get_mut().is_some())
            + usize::from(self.consumer.get_mut().is_some());
        let wanted = capacity + Self::SPARES - frames - at_sides;
        let mut more = Vec::new();
        while self.idle.len() + more.len() < wanted {
            more.push(Place::new(make()?)?);
        }
        let idle = ArrayQueue::new(capacity + Self::SPARES);
        let old = std::iter::from_fn(|| self.idle.pop()).take(wanted);
        for place in old.chain(more) {
            put(&idle, place);
        }
        let filled = ArrayQueue::new(capacity);
        while let Some(place) = self.filled.pop() {
            put(&filled, place);
        }
        self.idle = idle;
        self.filled = filled;
        Ok(true)
    }
}

/// Puts a place in a queue that has room for all that can come.
#[inline]
fn put<T>(queue: &ArrayQueue<Box<Place<T>>>, place: Box<Place<T>>) {
    let full = queue.push(place).is_err();
    debug_assert!(!full, "there are as many places as the queue has room for");
}

#[cold]
fn refuse(region: Region, refusal: Refusal) -> Refused {
    Refused { region, refusal }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "swap_ring_tests.rs"]
mod tests;
