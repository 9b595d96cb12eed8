//! What the two sides of one async node know of each other.
//!
//! Counts of the frames that went in, came out and were dropped, a flag for each side that has
//! ended, and the metadata of the frames inside. A link lives as long as its pipeline, over all
//! its runs, since an async node keeps what it holds from run to run.
//!
//! What it does not know: the task, and who runs the sides.
//!
//! Ordering: `accepted` is written by the producer section only, `taken` by the consumer
//! section only. The flags are stored with release after the side's last hook and loaded with
//! acquire, so that the counts read after a flag that is set are final. The metadata ring has
//! an ordering of its own, since the task's may be any.

use super::meta_ring::MetaRing;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::task::Flow;

/// Most slots of a metadata ring: a task that claims to hold more gets no metadata from the
/// scheduler.
const META_LIMIT: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Link {
    flow: Option<Flow>,
    /// Frames pushed.
    accepted: CachePadded<AtomicU64>,
    /// Frames popped, in frames that came out.
    taken: CachePadded<AtomicU64>,
    /// Frames that the task dropped, or that failed inside of it, in frames that went in.
    lost: CachePadded<AtomicU64>,
    producer_done: AtomicBool,
    consumer_done: AtomicBool,
    pub(super) meta: Option<MetaRing>,
}

impl Link {
    pub(super) fn new(flow: Option<Flow>) -> Self {
        let slots = flow.and_then(|flow| flow.capacity.checked_add(flow.frames_per_output));
        let slots = slots.filter(|slots| *slots <= META_LIMIT);
        Self {
            flow,
            accepted: CachePadded::new(AtomicU64::new(0)),
            taken: CachePadded::new(AtomicU64::new(0)),
            lost: CachePadded::new(AtomicU64::new(0)),
            producer_done: AtomicBool::new(false),
            consumer_done: AtomicBool::new(false),
            meta: slots.map(MetaRing::new),
        }
    }

    /// Before a run: both sides are there.
    pub(super) fn open(&self, producer: bool, consumer: bool) {
        self.producer_done.store(!producer, Ordering::Release);
        self.consumer_done.store(!consumer, Ordering::Release);
    }

    pub(super) fn flow(&self) -> Option<Flow> {
        self.flow
    }

    /// Frames in for one out; one where the task does not say.
    pub(super) fn frames_per_output(&self) -> u64 {
        self.flow.map_or(1, |flow| flow.frames_per_output as u64)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// One frame more was pushed. By the producer section.
    #[inline]
    pub(super) fn accept(&self) {
        self.accepted.store(self.accepted() + 1, Ordering::Relaxed);
    }

    /// One frame more was popped. By the consumer section.
    #[inline]
    pub(super) fn take(&self) {
        self.taken.store(self.taken() + 1, Ordering::Relaxed);
    }

    /// Frames inside that will not come out.
    pub(super) fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Frames that are inside now, as far as this thread sees; exact once both sides have
    /// ended, if the task declares its flow or passes on one frame for each.
    pub(super) fn held(&self) -> u64 {
        let gone = self.taken().saturating_mul(self.frames_per_output());
        self.accepted()
            .saturating_sub(gone.saturating_add(self.lost()))
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
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn held_counts_in_frames_that_went_in() {
        let link = Link::new(Some(Flow {
            frames_per_output: 3,
            held_back: 1,
            capacity: 8,
        }));
        for _ in 0..5 {
            link.accept();
        }
        assert_eq!(link.held(), 5);
        assert!(!link.is_drained());
        link.take();
        assert_eq!(link.held(), 2);
        assert!(link.is_drained(), "three and the one held back are needed");
        link.lose(1);
        assert_eq!(link.held(), 1);
    }

    #[test]
    fn a_task_that_declares_no_flow_is_not_judged() {
        let link = Link::new(None);
        assert!(!link.is_drained());
        assert!(link.meta.is_none());
    }

    #[test]
    fn a_side_that_is_not_there_has_ended() {
        let link = Link::new(None);
        link.open(false, true);
        assert!(link.is_producer_done());
        assert!(!link.is_consumer_done());
    }
}
