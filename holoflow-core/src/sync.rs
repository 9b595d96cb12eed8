//! The one door to atomics and locks.
//!
//! Under `--cfg loom` the lock-free code of this crate is built against loom's
//! atomics, which run every interleaving; otherwise against the real ones. Code
//! elsewhere in the crate names neither directly; the workspace's `tests/tidy.rs`
//! checks that.
//!
//! Locks and `Arc` are the real ones in both builds: nothing that loom models takes a
//! lock, and loom's `Arc` cannot hold the crate's trait objects.

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

pub(crate) use std::sync::{Arc, OnceLock};

#[cfg(test)]
pub(crate) use std::sync::mpsc;

pub(crate) use crossbeam::queue::ArrayQueue;
pub(crate) use crossbeam::sync::{Parker, Unparker};
pub(crate) use crossbeam::utils::CachePadded;
pub(crate) use parking_lot::{Condvar, Mutex};

/// A number that this process has not given out before.
///
/// Taken from the real atomics in every build: loom's may only be used inside a model.
pub(crate) fn next_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
