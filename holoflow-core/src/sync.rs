//! The one door to atomics and locks.
//!
//! Under `--cfg loom` the lock-free code of this crate is built against loom's
//! atomics, which run every interleaving; otherwise against the real ones. Code
//! elsewhere in the crate names neither directly; the workspace's `tests/tidy.rs`
//! checks that.
//!
//! Locks and `Arc` are the real ones in both builds: nothing that loom models takes a
//! lock, and loom's `Arc` cannot hold the crate's trait objects. `ArrayQueue`, whose atomics
//! loom does not see, is a queue under one of loom's locks there: models show what is built on
//! a queue that orders what it passes on, not the queue.

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

pub(crate) use std::sync::{Arc, OnceLock};

#[cfg(all(test, not(loom)))]
pub(crate) use std::sync::mpsc;

#[cfg(not(loom))]
pub(crate) use crossbeam::queue::ArrayQueue;
#[cfg(loom)]
pub(crate) use locked::ArrayQueue;

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

/// Stands in for crossbeam's queue in loom's models.
#[cfg(loom)]
mod locked {
    use std::collections::VecDeque;

    use loom::sync::Mutex;

    #[derive(Debug)]
    pub(crate) struct ArrayQueue<T> {
        items: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            assert!(capacity > 0, "a queue has room for one at least");
            Self {
                items: Mutex::new(VecDeque::with_capacity(capacity)),
                capacity,
            }
        }

        fn with<R>(&self, f: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
            f(&mut self.items.lock().expect("no model panics with the lock"))
        }

        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            self.with(|items| {
                if items.len() == self.capacity {
                    return Err(item);
                }
                items.push_back(item);
                Ok(())
            })
        }

        pub(crate) fn force_push(&self, item: T) -> Option<T> {
            self.with(|items| {
                let oldest = (items.len() == self.capacity).then(|| items.pop_front());
                items.push_back(item);
                oldest.flatten()
            })
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.with(VecDeque::pop_front)
        }

        pub(crate) fn len(&self) -> usize {
            self.with(|items| items.len())
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.len() == 0
        }

        pub(crate) fn capacity(&self) -> usize {
            self.capacity
        }
    }
}
