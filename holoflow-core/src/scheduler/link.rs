//! What the two sides of one async node know of each other.
//!
//! Counts of the frames that went in, came out and were dropped, a flag for each side that has
//! ended, and the metadata of the frames inside. A link lives as long as its pipeline, over all
//! its runs, since an async node keeps what it holds from run to run.
//!
//! What it does not know: the task, and who runs the sides.
//!
//! Ordering: each count is written by one section only. The flags are stored with release after the side's last hook and loaded with
//! acquire, so that the counts read after a flag that is set are final. The metadata ring has
//! an ordering of its own, since the task's may be any.

use super::meta_ring::MetaRing;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::task::Flow;

/// Most slots of a metadata ring: a task that claims to hold more gets no metadata from the
/// scheduler.
const META_LIMIT: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Link {
    flow: Option<Flow>,
    /// Written by the producer section.
    pushed: CachePadded<Pushed>,
    /// Written by the consumer section.
    popped: CachePadded<Popped>,
    producer_done: AtomicBool,
    consumer_done: AtomicBool,
    /// No push follows, though the producer section may go on.
    pushes_ended: AtomicBool,
    /// What is inside is no longer in flight.
    settled: AtomicBool,
    pub(super) meta: Option<MetaRing>,
}

#[derive(Debug, Default)]
struct Pushed {
    /// Frames pushed.
    accepted: AtomicU64,
    /// Number of the next frame to go in: those pushed, without those dropped as they came.
    tail: AtomicU64,
}

#[derive(Debug, Default)]
struct Popped {
    /// Frames popped, in frames that came out.
    taken: AtomicU64,
    /// Number of the next frame to come out, in frames that went in.
    head: AtomicU64,
}

impl Link {
    /// The link of a task; `passes` says that it has both sides, and so hands metadata on.
    pub(super) fn new(flow: Option<Flow>, passes: bool) -> Self {
        let slots = flow.filter(|_| passes);
        let slots = slots.and_then(|flow| flow.capacity.checked_add(flow.frames_per_output));
        let slots = slots.filter(|slots| *slots <= META_LIMIT);
        Self {
            flow,
            pushed: CachePadded::default(),
            popped: CachePadded::default(),
            producer_done: AtomicBool::new(false),
            consumer_done: AtomicBool::new(false),
            pushes_ended: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            meta: slots.map(MetaRing::new),
        }
    }

    /// Before a run: which sides there are. If it holds nothing, frames are numbered from 0
    /// again, as sources number theirs.
    pub(super) fn open(&self, producer: bool, consumer: bool) {
        if self.held() == 0 {
            self.pushed.tail.store(0, Ordering::Relaxed);
            self.popped.head.store(0, Ordering::Relaxed);
            if let Some(ring) = &self.meta {
                ring.clear();
            }
        }
        self.producer_done.store(!producer, Ordering::Release);
        self.consumer_done.store(!consumer, Ordering::Release);
        self.pushes_ended.store(!producer, Ordering::Release);
        // Only what has two sides has frames in flight inside.
        self.settled
            .store(!producer || !consumer, Ordering::Release);
    }

    pub(super) fn flow(&self) -> Option<Flow> {
        self.flow
    }

    /// Frames in for one out; one where the task does not say.
    pub(super) fn frames_per_output(&self) -> u64 {
        self.flow.map_or(1, |flow| flow.frames_per_output as u64)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.pushed.accepted.load(Ordering::Relaxed)
    }

    pub(super) fn taken(&self) -> u64 {
        self.popped.taken.load(Ordering::Relaxed)
    }

    /// Number of the next frame to go in.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.pushed.tail.load(Ordering::Relaxed)
    }

    /// Number of the next frame to come out, in frames that went in.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.popped.head.load(Ordering::Relaxed)
    }

    /// One frame more was pushed. By the producer section.
    #[inline]
    pub(super) fn accept(&self) {
        let Pushed { accepted, tail } = &*self.pushed;
        accepted.store(self.accepted() + 1, Ordering::Relaxed);
        tail.store(self.tail() + 1, Ordering::Relaxed);
    }

    /// Frames were dropped as they came. By the producer section.
    pub(super) fn drop_newest(&self, count: u64) {
        let tail = self.tail().saturating_sub(count);
        self.pushed.tail.store(tail, Ordering::Relaxed);
    }

    /// One frame more was popped; `last` if no push follows, so that it may be made of fewer
    /// than usual. By the consumer section.
    #[inline]
    pub(super) fn take(&self, last: bool) {
        self.popped.taken.store(self.taken() + 1, Ordering::Relaxed);
        self.skip(self.frames_per_output(), last);
    }

    /// Frames inside will not come out: those that would have come next. By the consumer
    /// section.
    #[inline]
    pub(super) fn skip(&self, count: u64, last: bool) {
        let mut head = self.head().saturating_add(count);
        if last {
            head = head.min(self.tail());
        }
        self.popped.head.store(head, Ordering::Relaxed);
    }

    /// Frames that are inside now, as far as this thread sees; exact once both sides have
    /// ended, if the task declares its flow or passes on one frame for each.
    pub(super) fn held(&self) -> u64 {
        self.tail().saturating_sub(self.head())
    }

    /// Whether the frames inside do not suffice for one more to come out. Only a task that
    /// declares its flow is judged.
    pub(super) fn is_drained(&self) -> bool {
        self.flow.is_some_and(|flow| {
            let needed = flow.frames_per_output.saturating_add(flow.held_back);
            self.held() < needed as u64
        })
    }

    #[inline]
    pub(super) fn is_producer_done(&self) -> bool {
        self.producer_done.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_consumer_done(&self) -> bool {
        self.consumer_done.load(Ordering::Acquire)
    }

    pub(super) fn producer_is_done(&self) {
        self.producer_done.store(true, Ordering::Release);
    }

    pub(super) fn consumer_is_done(&self) {
        self.consumer_done.store(true, Ordering::Release);
    }

    pub(super) fn no_push_follows(&self) {
        self.pushes_ended.store(true, Ordering::Release);
    }

    /// The frames that are left inside once nobody pushes and nobody pops, said once. Each side
    /// asks after it has set its flag.
    pub(super) fn settle(&self) -> u64 {
        fence(Ordering::SeqCst);
        let ended = self.pushes_ended.load(Ordering::Acquire) && self.is_consumer_done();
        if ended && !self.settled.swap(true, Ordering::AcqRel) {
            self.held()
        } else {
            0
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn held_counts_in_frames_that_went_in() {
        let link = Link::new(
            Some(Flow {
                frames_per_output: 3,
                held_back: 1,
                capacity: 8,
            }),
            true,
        );
        for _ in 0..5 {
            link.accept();
        }
        assert_eq!(link.held(), 5);
        assert!(!link.is_drained());
        link.take(false);
        assert_eq!(link.held(), 2);
        assert!(link.is_drained(), "three and the one held back are needed");
        link.drop_newest(1);
        assert_eq!(link.held(), 1);
        // The last comes made of what is left.
        link.take(true);
        assert_eq!((link.held(), link.head(), link.tail()), (0, 4, 4));
    }

    #[test]
    fn a_task_that_declares_no_flow_is_not_judged() {
        let link = Link::new(None, true);
        assert!(!link.is_drained());
        assert!(link.meta.is_none());
    }

    #[test]
    fn a_side_that_is_not_there_has_ended() {
        let link = Link::new(None, true);
        link.open(false, true);
        assert!(link.is_producer_done());
        assert!(!link.is_consumer_done());
    }
}
