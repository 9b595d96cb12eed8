//! Metadata of the frames inside one async node, beside its bytes.
//!
//! The producer section writes the metadata of the frame that it is about to push under the
//! frame's number, and the consumer section reads that of the frame that it is about to pop.
//! The task is not asked: that it passes frames on in order is what its `flow` says.
//!
//! What it does not know: whether the task keeps to that. If it does not, the number in the
//! slot is another one, and the reader gets nothing.
//!
//! Everything is atomic, so a reader that meets a writer in a slot reads nonsense at worst,
//! which the number before and after tells it. The number is stored last with release and
//! loaded first with acquire; the reader looks at it again behind a fence, and the writer
//! takes it away before it writes.

use crate::clock::Timestamp;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{CachePadded, Mutex};
use crate::task::{Entered, FrameMeta, MetaFields};

#[derive(Debug)]
pub(crate) struct MetaRing {
    slots: Box<[CachePadded<MetaSlot>]>,
    mask: u64,
}

#[derive(Debug, Default)]
struct MetaSlot {
    /// Number of the frame and one; 0 while it is being written.
    number: AtomicU64,
    sequence: AtomicU64,
    captured: AtomicU64,
    valid: AtomicU64,
    entered: AtomicU64,
    /// Which of the values are there, and the source in the upper half.
    flags: AtomicU64,
    fields: Mutex<MetaFields>,
}

const CAPTURED: u64 = 1;
const VALID: u64 = 2;
const ENTERED: u64 = 4;
const FIELDS: u64 = 8;

impl MetaRing {
    /// A ring for an async node that holds `slots` frames at most.
    pub(super) fn new(slots: usize) -> Self {
        let count = slots.max(1).next_power_of_two();
        Self {
            slots: (0..count).map(|_| CachePadded::default()).collect(),
            mask: count as u64 - 1,
        }
    }

    fn slot(&self, frame: u64) -> &MetaSlot {
        // The mask is below the number of slots.
        &self.slots[(frame & self.mask) as usize]
    }

    /// Forgets everything. Before a run, while neither section is there.
    pub(super) fn clear(&self) {
        for slot in &self.slots {
            slot.number.store(0, Ordering::Relaxed);
        }
    }

    /// Writes the metadata of frame number `frame`. By the producer section.
    ///
    /// That of most frames is their number and nothing else. It is not written, so that the
    /// slots stay in both sides' caches: `get` finds nothing, and the reader knows the number.
    #[inline]
    pub(super) fn put(&self, frame: u64, meta: &FrameMeta) {
        if meta.is_only_numbered(frame) {
            return;
        }
        let slot = self.slot(frame);
        slot.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut flags = 0;
        slot.sequence.store(meta.sequence, Ordering::Relaxed);
        if let Some(captured) = meta.captured {
            flags |= CAPTURED;
            slot.captured.store(captured.as_nanos(), Ordering::Relaxed);
        }
        if let Some(valid) = meta.valid {
            flags |= VALID;
            slot.valid.store(valid, Ordering::Relaxed);
        }
        if let Some(entered) = meta.entered() {
            flags |= ENTERED | u64::from(entered.source) << 32;
            slot.entered.store(entered.at.as_nanos(), Ordering::Relaxed);
        }
        if meta.has_fields() {
            flags |= FIELDS;
            meta.copy_fields_to(&mut slot.fields.lock());
        }
        slot.flags.store(flags, Ordering::Relaxed);
        slot.number.store(frame + 1, Ordering::Release);
    }

    /// Reads the metadata of frame number `frame` into `meta`; `false` if it is not there. By
    /// the consumer section.
    #[inline]
    pub(super) fn get(&self, frame: u64, meta: &mut FrameMeta) -> bool {
        let slot = self.slot(frame);
        if slot.number.load(Ordering::Acquire) != frame + 1 {
            return false;
        }
        let flags = slot.flags.load(Ordering::Relaxed);
        meta.sequence = slot.sequence.load(Ordering::Relaxed);
        let time = |value: &AtomicU64| Timestamp::from_nanos(value.load(Ordering::Relaxed));
        meta.captured = (flags & CAPTURED != 0).then(|| time(&slot.captured));
        meta.valid = (flags & VALID != 0).then(|| slot.valid.load(Ordering::Relaxed));
        meta.set_entered((flags & ENTERED != 0).then(|| Entered {
            at: time(&slot.entered),
            // The upper half of 64 bits.
            source: (flags >> 32) as u32,
        }));
        if flags & FIELDS != 0 {
            meta.copy_fields_from(&slot.fields.lock());
        } else {
            meta.clear_fields();
        }
        fence(Ordering::Acquire);
        slot.number.load(Ordering::Relaxed) == frame + 1
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::task::MetaValue;

    #[test]
    fn what_was_put_comes_out_under_its_number() {
        let ring = MetaRing::new(3);
        let mut first = FrameMeta::numbered(7);
        first.captured = Some(Timestamp::from_nanos(5));
        first.valid = Some(2);
        first.set("exposure", MetaValue::Int(250));
        first.set_entered(Some(Entered {
            at: Timestamp::from_nanos(9),
            source: 3,
        }));
        ring.put(0, &first);
        ring.put(1, &FrameMeta::numbered(8));
        ring.put(2, &FrameMeta::numbered(2));
        let mut found = FrameMeta::default();
        assert!(ring.get(0, &mut found));
        assert_eq!(found, first);
        assert!(ring.get(1, &mut found));
        assert_eq!(found, FrameMeta::numbered(8));
        assert!(!ring.get(2, &mut found), "numbered as it would be anyway");
        assert!(!ring.get(3, &mut found), "not put yet");
        ring.put(4, &FrameMeta::numbered(9));
        assert!(!ring.get(0, &mut found), "overwritten by another");
    }
}
