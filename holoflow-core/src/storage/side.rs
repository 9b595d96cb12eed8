//! The two sides of an async node, as tokens.
//!
//! Push side and pop side of an async task run at the same time, on `&self`. State that
//! belongs to one side needs no lock all the same: core makes one [`ProducerSide`] and
//! one [`ConsumerSide`] for each node, hands each to the hooks of its side as `&mut`, and
//! a [`ProducerCell`] or [`ConsumerCell`] opens only to the mutable borrow of the token
//! it was made for.
//!
//! What this module does not know: hooks and schedulers. It trusts nobody to call in
//! turn: whoever holds the token mutably is alone.
//!
//! Invariants:
//!
//! 1. A side's id is on one token only: [`Sides::new`] takes a fresh one, and tokens are
//!    neither `Clone` nor built elsewhere.
//! 2. A cell's value is reached only while its side's token is mutably borrowed (or the
//!    cell itself is), so never by two at once.
//!
//! Why no atomics: the token itself moves between threads by means that order memory (a
//! thread's start, a queue), and with it the right to the cells.

use std::cell::UnsafeCell;
use std::fmt;

use super::ContractError;
use crate::sync::next_id;

/// Both sides of one async node.
///
/// ```
/// use holoflow_core::storage::{ConsumerCell, Sides};
///
/// let mut sides = Sides::new();
/// let next_frame = ConsumerCell::new(&sides, 0_u64);
/// let (_producer, consumer) = sides.split();
/// *next_frame.open(consumer)? += 1;
/// assert_eq!(*next_frame.open(consumer)?, 1);
///
/// let mut other = Sides::new();
/// assert!(next_frame.open(other.split().1).is_err());
/// # Ok::<(), holoflow_core::storage::ContractError>(())
/// ```
#[derive(Debug)]
pub struct Sides {
    producer: ProducerSide,
    consumer: ConsumerSide,
}

impl Sides {
    /// The sides of a new node.
    #[must_use]
    pub fn new() -> Self {
        let id = next_id();
        Self {
            producer: ProducerSide { id },
            consumer: ConsumerSide { id },
        }
    }

    /// Both tokens, to be used at the same time.
    pub fn split(&mut self) -> (&mut ProducerSide, &mut ConsumerSide) {
        (&mut self.producer, &mut self.consumer)
    }

    /// Both tokens, to go to two threads.
    #[must_use]
    pub fn into_parts(self) -> (ProducerSide, ConsumerSide) {
        (self.producer, self.consumer)
    }
}

impl Default for Sides {
    fn default() -> Self {
        Self::new()
    }
}

/// Token of the side that pushes. Whoever holds it mutably acts alone on that side.
#[derive(Debug)]
pub struct ProducerSide {
    id: u64,
}

/// Token of the side that pops. Whoever holds it mutably acts alone on that side.
#[derive(Debug)]
pub struct ConsumerSide {
    id: u64,
}

mod sealed {
    pub trait Sealed {
        fn id(&self) -> u64;
        fn id_in(sides: &super::Sides) -> u64;
    }
}

/// One of the two tokens; sealed, since a cell believes its id.
pub trait SideToken: sealed::Sealed {}

impl sealed::Sealed for ProducerSide {
    fn id(&self) -> u64 {
        self.id
    }

    fn id_in(sides: &Sides) -> u64 {
        sides.producer.id
    }
}

impl sealed::Sealed for ConsumerSide {
    fn id(&self) -> u64 {
        self.id
    }

    fn id_in(sides: &Sides) -> u64 {
        sides.consumer.id
    }
}

impl SideToken for ProducerSide {}
impl SideToken for ConsumerSide {}

/// A value that belongs to the side whose token is `S`.
///
/// See [`ProducerCell`] and [`ConsumerCell`].
pub struct SideCell<T, S> {
    id: u64,
    value: UnsafeCell<T>,
    side: std::marker::PhantomData<fn(&S)>,
}

/// A value that only the push side of its node reaches, without a lock.
pub type ProducerCell<T> = SideCell<T, ProducerSide>;

/// A value that only the pop side of its node reaches, without a lock.
pub type ConsumerCell<T> = SideCell<T, ConsumerSide>;

// SAFETY: through `&SideCell` the value is reached only by `open`, under the mutable
// borrow of the one token with the cell's id, so by one thread at a time; `T: Send` lets
// the value be used on the thread where the token is.
unsafe impl<T: Send, S> Sync for SideCell<T, S> {}

impl<T, S: SideToken> SideCell<T, S> {
    /// A cell for the node whose sides are `sides`.
    #[must_use]
    pub fn new(sides: &Sides, value: T) -> Self {
        Self {
            id: S::id_in(sides),
            value: UnsafeCell::new(value),
            side: std::marker::PhantomData,
        }
    }

    /// The value, for as long as the token is borrowed.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] if the token is of another node.
    #[inline]
    pub fn open<'a>(&'a self, side: &'a mut S) -> Result<&'a mut T, ContractError> {
        if side.id() != self.id {
            return Err(ContractError::ForeignSide);
        }
        // SAFETY: the token with this id exists once and is mutably borrowed for `'a`, so
        // no other `open` of this cell returned a reference that still lives; `get_mut`
        // and `into_inner` need the cell itself, which is borrowed for `'a` too.
        Ok(unsafe { &mut *self.value.get() })
    }

    /// The value, for whoever has the cell to itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value out of the cell.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Gives the cell to another node, as a factory's `update` does with the state of the
    /// task that it replaces.
    pub fn rebind(&mut self, sides: &Sides) {
        self.id = S::id_in(sides);
    }
}

impl<T, S> fmt::Debug for SideCell<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideCell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_opens_to_its_own_side_only() {
        let (mut a, mut b) = (Sides::new(), Sides::new());
        let cell = ProducerCell::new(&a, 1);
        *cell.open(a.split().0).unwrap() = 2;
        assert_eq!(
            cell.open(b.split().0).unwrap_err(),
            ContractError::ForeignSide
        );
        assert_eq!(*cell.open(a.split().0).unwrap(), 2);
    }

    #[test]
    fn a_rebound_cell_opens_to_the_new_node_and_no_more_to_the_old() {
        let (mut old, mut new) = (Sides::new(), Sides::new());
        let mut cell = ConsumerCell::new(&old, 7);
        cell.rebind(&new);
        assert!(cell.open(old.split().1).is_err());
        assert_eq!(*cell.open(new.split().1).unwrap(), 7);
    }

    #[test]
    fn a_swapped_token_opens_what_it_is_of() {
        let (mut a, mut b) = (Sides::new(), Sides::new());
        let cell = ProducerCell::new(&a, 1);
        std::mem::swap(a.split().0, b.split().0);
        assert!(cell.open(a.split().0).is_err());
        assert!(cell.open(b.split().0).is_ok());
    }
}
