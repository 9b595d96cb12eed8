//! How a section waits, and how it is woken.
//!
//! A section that finds nothing to do *announces* that it is about to wait, looks at
//! everything once more, and only then *commits* to waiting. Whoever makes progress that may
//! concern it looks, after a fence, at whether it has announced. So either the section's second
//! look sees the progress, or the other side sees the announcement: no wake-up is lost.
//!
//! What it does not know: what a section waits for, and what waits: a thread that parks or
//! an entry of a pool's queue. That is the [`Wakee`].
//!
//! Invariants, modelled with loom in `loom_signal.rs`:
//!
//! - **SI1** Progress made before [`Signal::progress`] is seen by the section's look after
//!   [`Signal::announce`], or the section is woken.
//! - **SI2** A wake that comes while the section runs is remembered: the next announcement
//!   says so.
//! - **SI3** For one commitment the wakee is called once at most. So a section of a pool is in
//!   the run queue once at most.
//!
//! Ordering: `announce` and the caller of `progress` have a sequentially consistent fence
//! between their store and their load, each of the other's. `wake` needs none: it always
//! leaves its mark. Its `fetch_or` is a release, and `resume` an acquire, so what was done
//! before the wake happens before what the section does next.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// What is called when a committed section is to run.
pub(crate) trait Wakee {
    /// Lets the section run: unparks its thread, or queues it. Called once a commitment.
    fn wake(&self);
}

const ANNOUNCED: usize = 1;
const COMMITTED: usize = 2;
const NOTIFIED: usize = 4;

/// The signal of one section.
#[derive(Debug)]
pub(crate) struct Signal<W> {
    state: AtomicUsize,
    wakee: W,
}

impl<W: Wakee> Signal<W> {
    /// The signal of a section that runs.
    pub(crate) fn new(wakee: W) -> Self {
        Self {
            state: AtomicUsize::new(0),
            wakee,
        }
    }

    /// Says that the section is about to wait; `false` if it was woken since it last resumed.
    /// If `true`, it looks at everything once more before it commits.
    pub(crate) fn announce(&self) -> bool {
        let before = self.state.fetch_or(ANNOUNCED, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before & NOTIFIED == 0
    }

    /// Commits to waiting; `false` if the section was woken since it announced.
    pub(crate) fn commit(&self) -> bool {
        self.state
            .compare_exchange(
                ANNOUNCED,
                ANNOUNCED | COMMITTED,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }

    /// The section runs again, whether it was woken or not.
    pub(crate) fn resume(&self) {
        self.state.swap(0, Ordering::AcqRel);
    }

    /// Whether the section was woken since it last resumed.
    pub(crate) fn is_notified(&self) -> bool {
        self.state.load(Ordering::Acquire) & NOTIFIED != 0
    }

    /// Tells the section that something has changed, if it waits or is about to. The caller
    /// has made its change and then issued `fence(SeqCst)`.
    #[inline]
    pub(crate) fn progress(&self) {
        if self.state.load(Ordering::Relaxed) & ANNOUNCED != 0 {
            self.wake();
        }
    }

    /// Wakes the section, or lets it look again before it waits next.
    pub(crate) fn wake(&self) {
        let before = self.state.fetch_or(NOTIFIED, Ordering::AcqRel);
        if before & (COMMITTED | NOTIFIED) == COMMITTED {
            self.wakee.wake();
        }
    }
}
