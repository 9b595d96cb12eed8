//! How many frames may be between sources and sinks.
//!
//! A frame counts once in each section that works on it, and once in each async node that
//! holds it. A source section takes one before it makes a frame; a push makes one more; an
//! iteration that ends gives its own back, and those of the frames that it popped; a frame that
//! is dropped gives its own back.
//!
//! What it does not know: who waits for it. The [`Run`](super::shared::Run) tells the sources.

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicI64, Ordering};

#[derive(Debug)]
pub(crate) struct Credit {
    limit: i64,
    /// Below zero for a moment where a frame is popped before its push was counted.
    in_flight: CachePadded<AtomicI64>,
    /// The sections that wait for it.
    pub(super) sources: Box<[usize]>,
}

impl Credit {
    pub(super) fn new(limit: usize, held: u64, sources: Box<[usize]>) -> Self {
        Self {
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            in_flight: CachePadded::new(AtomicI64::new(held as i64)),
            sources,
        }
    }

    /// Takes the place of one frame more; `false` if there is none.
    pub(super) fn take(&self) -> bool {
        let update = |count: i64| (count < self.limit).then_some(count + 1);
        self.in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
            .is_ok()
    }

    /// A frame is in one place more.
    pub(super) fn add(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives `count` places back; whether sources can begin that could not.
    pub(super) fn give_back(&self, count: u64) -> bool {
        // Frames are fewer than 2^63.
        let count = count as i64;
        let before = self.in_flight.fetch_sub(count, Ordering::Relaxed);
        before >= self.limit && before - count < self.limit
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed).max(0).unsigned_abs()
    }
}
