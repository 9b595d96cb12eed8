//! Attacks on what queues are built of: windows that are only to be read, regions that are lent,
//! rings that drop or begin anew.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holoflow::memory::{HostProvider, Memory};
use holoflow::prelude::*;
use holoflow::storage::{
    ContractError, DelayLayout, DelayReader, DelayRing, LentRegion, Overflow, Refusal, Refused,
    Region, RingError, RingLayout, Sides, SlotRing, SwapRing, TaskBuffer,
};
use holoflow::testkit::Ledger;
use holoflow_soundness::fixture::{nothing_leaks, stray};

fn refused<T: std::fmt::Debug>(result: Result<T, Refused>) -> (Region, Refusal) {
    let refused = result.unwrap_err();
    (refused.region, refused.refusal)
}

fn delay_ring(sides: &Sides, rows: usize, delay: usize) -> DelayRing {
    let layout = DelayLayout {
        row_bytes: 1,
        rows,
        push_rows: 1,
        delay,
    };
    DelayRing::new(sides, layout, stray(rows + 1)).unwrap()
}

fn slot_ring(sides: &Sides, rows: usize, pop_rows: usize) -> SlotRing {
    let layout = RingLayout {
        row_bytes: 1,
        rows,
        push_rows: 1,
        pop_rows,
        pop_stride: pop_rows,
    };
    SlotRing::new(sides, layout, stray(rows)).unwrap()
}

#[test]
fn a_row_read_twice_at_once_is_never_to_be_written() {
    let mut sides = Sides::new();
    let ring = delay_ring(&sides, 2, 0);
    let (producer, consumer) = sides.split();
    let mut window = ring.acquire(producer).unwrap().unwrap();
    window.as_mut_bytes().unwrap()[0] = 7;
    ring.commit(producer, window).unwrap();
    let pair = ring.pop(consumer).unwrap().unwrap();
    let (mut a, b) = (pair.current, pair.delayed);
    assert_eq!(a.address(), b.address());
    assert!(a.as_mut_bytes().is_err() && a.as_mut_slice::<u8>().is_err());
    // Shared with nobody else, and alone: two writers of one byte if either came out unique.
    let a = a.into_shared().try_into_unique().unwrap_err();
    let b = b.into_shared().try_into_unique().unwrap_err();
    let (a, b) = (a.to_region(), b.to_region());
    let (a, rest) = a.split_at(1).unwrap();
    assert!(rest.into_shared().try_into_unique().is_err());
    // Nor does another ring cut it up.
    let layout = RingLayout {
        row_bytes: 1,
        rows: 1,
        push_rows: 1,
        pop_rows: 1,
        pop_stride: 1,
    };
    let error = SlotRing::new(&Sides::new(), layout, b).unwrap_err();
    assert_eq!(error, RingError::Shared);
    assert_eq!(a.as_bytes().unwrap(), [7]);
}

#[test]
fn who_keeps_a_reader_keeps_its_row_as_it_is() {
    let mut sides = Sides::new();
    let ring = delay_ring(&sides, 3, 1);
    let (producer, consumer) = sides.split();
    let mut push = |value: u8| {
        let Some(mut window) = ring.acquire(producer).unwrap() else {
            return false;
        };
        window.as_mut_bytes().unwrap()[0] = value;
        ring.commit(producer, window).unwrap();
        true
    };
    assert!(push(1) && push(2));
    let pair = ring.pop(consumer).unwrap().unwrap();
    let kept = pair.current.into_shared();
    let back = kept.to_region();
    let (back, refusal) = refused(ring.release(consumer, DelayReader::Current, back));
    assert_eq!(refusal, Refusal::StillShared);
    drop(back);
    ring.release(consumer, DelayReader::Delayed, pair.delayed)
        .unwrap();
    // The producer fills what is free, and no more.
    assert!(!push(3));
    assert_eq!(ring.pop(consumer).unwrap_err(), ContractError::WindowOut);
    assert_eq!(kept.to_region().as_bytes().unwrap(), [1]);
    // Past the ring's end, too.
    let region = kept.to_region();
    drop((ring, kept));
    assert_eq!(region.as_bytes().unwrap(), [1]);
}

#[test]
fn a_reader_forgotten_stops_the_ring_and_nothing_else() {
    let mut sides = Sides::new();
    let ring = delay_ring(&sides, 3, 0);
    let (producer, consumer) = sides.split();
    for _ in 0..2 {
        let window = ring.acquire(producer).unwrap().unwrap();
        ring.commit(producer, window).unwrap();
    }
    let pair = ring.pop(consumer).unwrap().unwrap();
    std::mem::forget(pair.delayed);
    ring.release(consumer, DelayReader::Current, pair.current)
        .unwrap();
    assert_eq!(ring.pop(consumer).unwrap_err(), ContractError::WindowOut);
    assert!(ring.acquire(producer).unwrap().is_none());
}

#[test]
fn readers_do_not_change_places() {
    let mut sides = Sides::new();
    let ring = delay_ring(&sides, 3, 0);
    let other = delay_ring(&sides, 3, 0);
    let (producer, consumer) = sides.split();
    for ring in [&ring, &other] {
        let window = ring.acquire(producer).unwrap().unwrap();
        ring.commit(producer, window).unwrap();
    }
    let pair = ring.pop(consumer).unwrap().unwrap();
    let foreign = other.pop(consumer).unwrap().unwrap();
    for (reader, region) in [
        (DelayReader::Delayed, pair.current),
        (DelayReader::Current, pair.delayed),
        (DelayReader::Current, foreign.current),
        (DelayReader::Delayed, foreign.delayed),
    ] {
        let (_, refusal) = refused(ring.release(consumer, reader, region));
        assert_eq!(refusal, Refusal::ForeignWindow);
    }
}

#[test]
fn a_short_window_and_the_producers_meet_in_no_byte() {
    let sides = Sides::new();
    let ring = slot_ring(&sides, 8, 4);
    let (mut producer, mut consumer) = sides.into_parts();
    for _ in 0..200 {
        for value in 0..3 {
            let mut window = ring.acquire(&mut producer).unwrap().unwrap();
            window.as_mut_bytes().unwrap()[0] = value;
            ring.commit(&mut producer, window).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // It is not finished at all.
                for _ in 0..2 {
                    let mut window = ring.acquire(&mut producer).unwrap().unwrap();
                    window.as_mut_bytes().unwrap()[0] = 99;
                    ring.commit(&mut producer, window).unwrap();
                }
            });
            while let Some((short, rows)) = ring.pop_short(&mut consumer).unwrap() {
                assert_eq!(rows, 3);
                assert_eq!(short.as_bytes().unwrap(), [0, 1, 2]);
                ring.release(&mut consumer, short).unwrap();
            }
            while let Some(whole) = ring.pop(&mut consumer).unwrap() {
                assert_eq!(whole.as_bytes().unwrap(), [0, 1, 2, 99]);
                ring.release(&mut consumer, whole).unwrap();
            }
        });
        // Whatever came first, the next stream begins anew.
        if let Some((short, _)) = ring.pop_short(&mut consumer).unwrap() {
            ring.release(&mut consumer, short).unwrap();
        }
        ring.realign(&mut producer, &mut consumer).unwrap();
        assert_eq!(ring.filled(), 0);
    }
}

#[test]
fn a_ring_does_not_begin_anew_under_a_window() {
    let mut sides = Sides::new();
    let ring = slot_ring(&sides, 4, 2);
    let (producer, consumer) = sides.split();
    let window = ring.acquire(producer).unwrap().unwrap();
    ring.commit(producer, window).unwrap();
    let (short, _) = ring.pop_short(consumer).unwrap().unwrap();
    assert_eq!(ring.realign(producer, consumer), Ok(0), "it is even yet");
    ring.release(consumer, short).unwrap();
    let kept = ring.acquire(producer).unwrap().unwrap();
    let (head, tail) = kept.split_at(0).unwrap();
    drop(tail);
    assert_eq!(
        ring.realign(producer, consumer),
        Err(ContractError::WindowOut)
    );
    drop(head);
    assert_eq!(ring.realign(producer, consumer), Ok(0));
    let mut others = Sides::new();
    let (stranger, other) = others.split();
    assert!(ring.realign(stranger, consumer).is_err());
    assert!(ring.realign(producer, other).is_err());
}

#[test]
fn a_copy_that_keeps_what_it_gets_has_it_alone() {
    let sides = Sides::new();
    let mut old = slot_ring(&sides, 4, 2);
    let mut new = slot_ring(&sides, 8, 2);
    let (mut producer, mut consumer) = sides.into_parts();
    for _ in 0..3 {
        let window = old.acquire(&mut producer).unwrap().unwrap();
        old.commit(&mut producer, window).unwrap();
    }
    let mut kept = Vec::new();
    let result = new.refill(&mut old, |_, to| {
        let other = stray(to.len());
        kept.push(std::mem::replace(to, other));
        Ok::<_, Refused>(())
    });
    assert_eq!(refused(result).1, Refusal::ForeignWindow);
    kept[0].as_mut_bytes().unwrap().fill(1);
    // What it keeps is handed out to nobody else.
    assert!(new.acquire(&mut producer).is_err());
    assert!(new.pop(&mut consumer).unwrap().is_none());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        kept.clear();
        new.refill(&mut old, |_, _| -> Result<(), Refused> {
            panic!("in the middle")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(new.filled(), 0);
    assert!(new.refill(&mut old, |_, _| Ok::<_, Refused>(())).unwrap());
    assert_eq!((new.filled(), old.filled()), (3, 3));
}

#[test]
fn lent_regions_within_each_other_are_counted() {
    let mut region = stray(2);
    let mut places = Vec::new();
    let error = loop {
        match LentRegion::new(region) {
            Ok(mut lent) => {
                region = lent.lend().unwrap();
                places.push(lent);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RingError::TooDeep { .. }), "{error}");
}

#[test]
fn a_lent_region_goes_to_another_thread_and_its_place_to_a_third() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 4).unwrap();
    let mut lent = LentRegion::new(buffer.into_region()).unwrap();
    for turn in 0..50 {
        let mut out = lent.lend().unwrap();
        let (lent_back, ()) = std::thread::scope(|scope| {
            let third = scope.spawn(move || {
                // Not before the other thread is done with the bytes.
                loop {
                    match lent.lend() {
                        Ok(again) => {
                            assert_eq!(again.as_bytes().unwrap(), [turn; 4]);
                            lent.take_back(again).unwrap();
                            return lent;
                        }
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
            scope.spawn(move || {
                out.as_mut_bytes().unwrap().fill(turn);
                drop(out);
            });
            (third.join().unwrap(), ())
        });
        lent = lent_back;
    }
    drop(lent);
    nothing_leaks(&ledger);
}

/// A value whose copy panics when it is told to.
#[derive(Debug)]
struct Moody<'a>(&'a AtomicBool);

impl Clone for Moody<'_> {
    fn clone(&self) -> Self {
        assert!(!self.0.load(Ordering::Relaxed), "not now");
        Self(self.0)
    }
}

#[test]
fn a_value_that_panics_when_it_is_copied_loses_no_region() {
    let panics = AtomicBool::new(false);
    let mut sides = Sides::new();
    let regions = (0..3).map(|_| stray(1));
    let ring = SwapRing::new(&sides, Overflow::DropOldest, regions).unwrap();
    let (producer, consumer) = sides.split();
    let mut window = ring.acquire(producer).unwrap().unwrap();
    window.as_mut_bytes().unwrap()[0] = 7;
    ring.commit(producer, window, Moody(&panics)).unwrap();
    panics.store(true, Ordering::Relaxed);
    let popped = catch_unwind(AssertUnwindSafe(|| ring.pop(consumer)));
    assert!(popped.is_err());
    panics.store(false, Ordering::Relaxed);
    let (window, _) = ring.pop(consumer).unwrap().unwrap();
    assert_eq!(window.as_bytes().unwrap(), [7]);
    ring.release(consumer, window).unwrap();
}

/// A value whose drop panics.
struct Sulking;

impl Drop for Sulking {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "on its way out");
    }
}

#[test]
fn a_value_that_panics_when_it_is_dropped_tears_no_place() {
    let mut sides = Sides::new();
    let regions = (0..3).map(|_| stray(1));
    let ring = SwapRing::new(&sides, Overflow::DropNewest, regions).unwrap();
    let producer = sides.split().0;
    for turn in 0..5 {
        let window = ring.acquire(producer).unwrap().unwrap();
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            drop(ring.commit(producer, window, Sulking));
        }));
        assert_eq!(dropped.is_err(), turn > 0);
    }
    assert_eq!(ring.filled(), 1);
    std::mem::forget(ring);
}

#[test]
fn places_of_a_swap_ring_do_not_mix() {
    let mut sides = Sides::new();
    let ring = || {
        SwapRing::new(
            &Sides::new(),
            Overflow::DropOldest,
            (0..3).map(|_| stray(1)),
        )
    };
    let mut a = ring().unwrap();
    let mut b = ring().unwrap();
    a.rebind(&sides);
    b.rebind(&sides);
    let (producer, consumer) = sides.split();
    let of_a = a.acquire(producer).unwrap().unwrap();
    let of_b = b.acquire(producer).unwrap().unwrap();
    let (of_a, refusal) = refused(b.commit(producer, of_a, 1));
    assert_eq!(refusal, Refusal::ForeignWindow);
    let (of_a, refusal) = refused(a.release(consumer, of_a));
    assert_eq!(refusal, Refusal::ForeignWindow);
    a.commit(producer, of_a, 1).unwrap();
    b.commit(producer, of_b, 2).unwrap();
    let (popped, _) = a.pop(consumer).unwrap().unwrap();
    let (popped, refusal) = refused(a.commit(producer, popped, 3));
    assert_eq!(refusal, Refusal::ForeignWindow);
    // Kept while the others go round, it is nobody else's.
    for value in 0..10 {
        let next = a.acquire(producer).unwrap().unwrap();
        assert_ne!(next.address(), popped.address());
        a.commit(producer, next, value).unwrap();
    }
    a.release(consumer, popped).unwrap();
}
