//! How many frames may be between sources and sinks.
//!
//! A frame counts once in each section that works on it, and once in each async node that
//! holds it. A source section takes one before it makes a frame; a push makes one more; an
//! iteration that ends gives its own back, and those of the frames that it popped; a frame that
//! is dropped gives its own back.
//!
//! What it does not know: who waits for it. The [`Run`](super::shared::Run) tells the sources.

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Credit {
    limit: u64,
    in_flight: CachePadded<AtomicU64>,
    /// The sections that wait for it.
    pub(super) sources: Box<[usize]>,
}

impl Credit {
    pub(super) fn new(limit: u64, held: u64, sources: Box<[usize]>) -> Self {
        Self {
            limit,
            in_flight: CachePadded::new(AtomicU64::new(held)),
            sources,
        }
    }

    /// Takes the place of one frame more; `false` if there is none.
    pub(super) fn take(&self) -> bool {
        let update = |count: u64| (count < self.limit).then_some(count + 1);
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
        let before = self.in_flight.fetch_sub(count, Ordering::Relaxed);
        before >= self.limit && before.saturating_sub(count) < self.limit
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }
}
