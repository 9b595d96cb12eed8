//! Attacks on rings and region slots: windows that are foreign, split, shared, dropped or
//! kept, and tokens of other nodes.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use holoflow::memory::{HostProvider, Memory};
use holoflow::prelude::*;
use holoflow::storage::{
    ConsumerCell, ContractError, ProducerCell, Refusal, Region, RegionError, RegionSlot, RingError,
    RingLayout, Sides, SlotRing, TaskBuffer,
};
use holoflow::task::Hook;
use holoflow::testkit::Ledger;
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{AsyncHooks, Stash, limiter, named, nothing_leaks, owner, stray};

/// Rows of one byte, pushed and popped one by one.
fn layout(rows: usize) -> RingLayout {
    RingLayout {
        row_bytes: 1,
        rows,
        push_rows: 1,
        pop_rows: 1,
        pop_stride: 1,
    }
}

/// A ring of two rows over the middle of a buffer marked 0xAA, and that buffer's ends.
fn ring_between_marks(sides: &Sides, ledger: &Ledger) -> (SlotRing, Region, Region) {
    let memory = Memory::none().with(ledger.provider());
    let mut buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 6).unwrap();
    let mut cut = || {
        let mut region = buffer.take(2).unwrap();
        region.as_mut_bytes().unwrap().fill(0xAA);
        region
    };
    let (before, inside, after) = (cut(), cut(), cut());
    (
        SlotRing::new(sides, layout(2), inside).unwrap(),
        before,
        after,
    )
}

fn ledger() -> Ledger {
    Ledger::new(Arc::new(HostProvider))
}

fn refused(result: Result<(), holoflow::storage::Refused>) -> (Region, Refusal) {
    let refused = result.unwrap_err();
    (refused.region, refused.refusal)
}

#[test]
fn filling_every_window_of_a_ring_writes_nothing_beside_it() {
    let ledger = ledger();
    let mut sides = Sides::new();
    let (ring, before, after) = ring_between_marks(&sides, &ledger);
    let (producer, consumer) = sides.split();
    for turn in 0..5_u8 {
        while let Some(mut window) = ring.acquire(producer).unwrap() {
            window.as_mut_bytes().unwrap().fill(turn);
            ring.commit(producer, window).unwrap();
        }
        while let Some(window) = ring.pop(consumer).unwrap() {
            assert_eq!(window.as_bytes().unwrap(), [turn]);
            ring.release(consumer, window).unwrap();
        }
    }
    assert_eq!(before.as_bytes().unwrap(), [0xAA; 2]);
    assert_eq!(after.as_bytes().unwrap(), [0xAA; 2]);
    drop((ring, before, after));
    nothing_leaks(&ledger);
}

#[test]
fn a_region_that_was_never_a_window_is_refused() {
    let mut sides = Sides::new();
    let ring = SlotRing::new(&sides, layout(2), stray(2)).unwrap();
    let (producer, consumer) = sides.split();
    let (_, refusal) = refused(ring.commit(producer, stray(1)));
    assert_eq!(refusal, Refusal::ForeignWindow);
    let window = ring.acquire(producer).unwrap().unwrap();
    let (_, refusal) = refused(ring.commit(producer, stray(1)));
    assert_eq!(refusal, Refusal::ForeignWindow);
    let (_, refusal) = refused(ring.release(consumer, stray(1)));
    assert_eq!(refusal, Refusal::ForeignWindow);
    ring.commit(producer, window).unwrap();
}

#[test]
fn a_window_of_another_ring_or_of_the_other_side_is_refused() {
    let mut sides = Sides::new();
    let a = SlotRing::new(&sides, layout(2), stray(2)).unwrap();
    let b = SlotRing::new(&sides, layout(2), stray(2)).unwrap();
    let (producer, consumer) = sides.split();
    let of_a = a.acquire(producer).unwrap().unwrap();
    let of_b = b.acquire(producer).unwrap().unwrap();
    let (of_a, refusal) = refused(b.commit(producer, of_a));
    assert_eq!(refusal, Refusal::ForeignWindow);
    b.commit(producer, of_b).unwrap();
    a.commit(producer, of_a).unwrap();

    let filled = a.pop(consumer).unwrap().unwrap();
    let free = a.acquire(producer).unwrap().unwrap();
    let (filled, refusal) = refused(a.commit(producer, filled));
    assert_eq!(refusal, Refusal::ForeignWindow);
    let (free, refusal) = refused(a.release(consumer, free));
    assert_eq!(refusal, Refusal::ForeignWindow);
    a.release(consumer, filled).unwrap();
    a.commit(producer, free).unwrap();
}

#[test]
fn part_of_a_window_is_refused_and_the_rows_stay_out_until_every_part_is_gone() {
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, stray(4)).unwrap();
    let producer = sides.split().0;
    let window = slot.acquire(producer).unwrap().unwrap();
    let (head, mut tail) = window.split_at(1).unwrap();
    let (head, refusal) = refused(slot.commit(producer, head));
    assert_eq!(refusal, Refusal::ForeignWindow);
    let (_, refusal) = refused(slot.commit(producer, stray(4)));
    assert_eq!(refusal, Refusal::ForeignWindow);
    drop(head);
    assert_eq!(
        slot.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    tail.as_mut_bytes().unwrap().fill(3);
    drop(tail);
    let again = slot.acquire(producer).unwrap().unwrap();
    assert_eq!(again.as_bytes().unwrap(), [0, 3, 3, 3]);
}

#[test]
fn an_empty_part_kept_from_a_committed_window_reaches_no_bytes() {
    for (mid, empty_first) in [(0, true), (4, false)] {
        let mut sides = Sides::new();
        let slot = RegionSlot::new(&sides, stray(4)).unwrap();
        let (producer, consumer) = sides.split();
        let mut window = slot.acquire(producer).unwrap().unwrap();
        window.as_mut_bytes().unwrap().fill(1);
        let (head, tail) = window.split_at(mid).unwrap();
        let (mut kept, window) = if empty_first {
            (head, tail)
        } else {
            (tail, head)
        };
        slot.commit(producer, window).unwrap();
        assert!(kept.as_mut_bytes().unwrap().is_empty());

        // The keeper of the kept part is the one that the next window of this side has.
        let popped = slot.pop(consumer).unwrap().unwrap();
        assert_eq!(popped.as_bytes().unwrap(), [1; 4]);
        slot.release(consumer, popped).unwrap();
        drop(slot.acquire(producer).unwrap().unwrap());
        assert!(kept.as_mut_bytes().unwrap().is_empty());
        assert_eq!(
            slot.acquire(producer).unwrap_err(),
            ContractError::WindowOut
        );
        drop(kept);
        assert!(slot.acquire(producer).unwrap().is_some());
    }
}

#[test]
fn a_shared_window_is_refused_as_long_as_it_is_shared() {
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, stray(4)).unwrap();
    let producer = sides.split().0;
    let shared = slot.acquire(producer).unwrap().unwrap().into_shared();
    let reader = shared.to_region();
    let (reader, refusal) = refused(slot.commit(producer, reader));
    assert_eq!(refusal, Refusal::ForeignWindow);
    // Turned back while a reader holds it: not possible.
    let shared = shared.try_into_unique().unwrap_err();
    assert_eq!(
        slot.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    assert_eq!(reader.as_bytes().unwrap(), [0; 4]);
    drop(reader);
    let window = shared.try_into_unique().unwrap();
    slot.commit(producer, window).unwrap();
}

#[test]
fn readers_of_a_shared_window_keep_its_rows_from_being_handed_out_again() {
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, stray(4)).unwrap();
    let producer = sides.split().0;
    let shared = slot.acquire(producer).unwrap().unwrap().into_shared();
    let (head, tail) = shared.to_region().split_at(2).unwrap();
    let nested = tail.into_shared();
    drop(shared);
    drop(head);
    assert_eq!(
        slot.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    let mut reader = nested.to_region();
    assert_eq!(reader.as_mut_bytes(), Err(RegionError::ReadOnly));
    let nested = nested.try_into_unique().unwrap_err();
    drop(reader);
    // The last holder has its part of the window alone: it is no window, and keeps the rows.
    let mut unique = nested.try_into_unique().unwrap();
    assert!(!unique.is_shared());
    unique.as_mut_bytes().unwrap().copy_from_slice(&[8, 9]);
    let (unique, refusal) = refused(slot.commit(producer, unique));
    assert_eq!(refusal, Refusal::ForeignWindow);
    assert_eq!(
        slot.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    drop(unique);
    let again = slot.acquire(producer).unwrap().unwrap();
    assert_eq!(again.as_bytes().unwrap(), [0, 0, 8, 9]);
}

#[test]
fn a_window_asked_for_twice_is_an_error() {
    let mut sides = Sides::new();
    let ring = SlotRing::new(&sides, layout(4), stray(4)).unwrap();
    let (producer, consumer) = sides.split();
    let first = ring.acquire(producer).unwrap().unwrap();
    assert_eq!(
        ring.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    ring.commit(producer, first).unwrap();
    let popped = ring.pop(consumer).unwrap().unwrap();
    assert_eq!(ring.pop(consumer).unwrap_err(), ContractError::WindowOut);
    ring.release(consumer, popped).unwrap();
    assert_eq!(ring.filled(), 0);
}

#[test]
fn a_forgotten_window_is_never_handed_out_again() {
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, stray(4)).unwrap();
    let producer = sides.split().0;
    std::mem::forget(slot.acquire(producer).unwrap().unwrap());
    assert_eq!(
        slot.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
}

#[test]
fn a_dropped_window_counts_as_neither_committed_nor_released() {
    let mut sides = Sides::new();
    let ring = SlotRing::new(&sides, layout(2), stray(2)).unwrap();
    let (producer, consumer) = sides.split();
    drop(ring.acquire(producer).unwrap().unwrap());
    assert!(ring.pop(consumer).unwrap().is_none());
    let mut window = ring.acquire(producer).unwrap().unwrap();
    window.as_mut_bytes().unwrap()[0] = 5;
    ring.commit(producer, window).unwrap();
    drop(ring.pop(consumer).unwrap().unwrap());
    let popped = ring.pop(consumer).unwrap().unwrap();
    assert_eq!(popped.as_bytes().unwrap(), [5]);
}

#[test]
fn windows_of_no_bytes_confused_with_each_other_reach_no_bytes() {
    // All windows of a ring of empty rows lie at one address.
    let mut sides = Sides::new();
    let empty = RingLayout {
        row_bytes: 0,
        ..layout(3)
    };
    let ring = SlotRing::new(&sides, empty, stray(4)).unwrap();
    let (producer, consumer) = sides.split();
    for _ in 0..8 {
        let window = ring.acquire(producer).unwrap().unwrap();
        ring.commit(producer, window).unwrap();
        drop(ring.acquire(producer).unwrap());
        let Some(mut popped) = ring.pop(consumer).unwrap() else {
            continue;
        };
        assert!(popped.as_mut_bytes().unwrap().is_empty());
        let popped = match ring.commit(producer, popped) {
            Ok(()) => continue,
            Err(refused) => refused.region,
        };
        ring.release(consumer, popped).unwrap();
    }
}

#[test]
fn a_layout_with_gaps_overflow_or_nothing_in_it_is_refused() {
    let sides = Sides::new();
    let base = layout(4);
    for bad in [
        RingLayout { rows: 0, ..base },
        RingLayout {
            push_rows: 0,
            ..base
        },
        RingLayout {
            pop_rows: 0,
            ..base
        },
        RingLayout {
            pop_stride: 0,
            ..base
        },
        RingLayout {
            push_rows: 3,
            ..base
        },
        RingLayout {
            pop_stride: 3,
            ..base
        },
        RingLayout {
            pop_rows: 2,
            pop_stride: 1,
            ..base
        },
        RingLayout {
            push_rows: 8,
            ..base
        },
        RingLayout { rows: 5, ..base },
        RingLayout {
            row_bytes: usize::MAX,
            ..base
        },
        RingLayout {
            row_bytes: usize::MAX / 2 + 1,
            rows: 2,
            ..base
        },
    ] {
        assert!(SlotRing::new(&sides, bad, stray(4)).is_err(), "{bad:?}");
    }
    let shared = stray(4).into_shared();
    let error = SlotRing::new(&sides, base, shared.to_region()).unwrap_err();
    assert_eq!(error, RingError::Shared);
}

#[test]
fn rows_without_end_overflow_nothing() {
    let mut sides = Sides::new();
    let endless = RingLayout {
        row_bytes: 0,
        ..layout(usize::MAX)
    };
    let ring = SlotRing::new(&sides, endless, stray(0)).unwrap();
    let (producer, consumer) = sides.split();
    for _ in 0..3 {
        let window = ring.acquire(producer).unwrap().unwrap();
        ring.commit(producer, window).unwrap();
        let window = ring.pop(consumer).unwrap().unwrap();
        ring.release(consumer, window).unwrap();
    }
    let whole = RingLayout {
        push_rows: usize::MAX,
        pop_stride: usize::MAX,
        ..endless
    };
    let ring = SlotRing::new(&sides, whole, stray(0)).unwrap();
    let (producer, consumer) = sides.split();
    for _ in 0..3 {
        let window = ring.acquire(producer).unwrap().unwrap();
        ring.commit(producer, window).unwrap();
        assert!(ring.acquire(producer).unwrap().is_none());
        let window = ring.pop(consumer).unwrap().unwrap();
        ring.release(consumer, window).unwrap();
    }
}

#[test]
fn a_ring_within_a_window_of_a_ring_keeps_the_outer_rows() {
    let ledger = ledger();
    let memory = Memory::none().with(ledger.provider());
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 4)
        .unwrap()
        .into_region();
    let mut sides = Sides::new();
    let outer = RegionSlot::new(&sides, region).unwrap();
    let window = outer.acquire(sides.split().0).unwrap().unwrap();
    let inner = RegionSlot::new(&sides, window).unwrap();
    let producer = sides.split().0;
    let within = inner.acquire(producer).unwrap().unwrap();
    let (within, refusal) = refused(outer.commit(producer, within));
    assert_eq!(refusal, Refusal::ForeignWindow);
    assert_eq!(
        outer.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    drop(inner);
    assert_eq!(
        outer.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    drop(within);
    assert!(outer.acquire(producer).unwrap().is_some());
    drop(outer);
    nothing_leaks(&ledger);
}

#[test]
fn a_ring_opens_to_no_other_nodes_tokens() {
    let (sides, mut others) = (Sides::new(), Sides::new());
    let ring = SlotRing::new(&sides, layout(2), stray(2)).unwrap();
    let (producer, consumer) = others.split();
    assert_eq!(
        ring.acquire(producer).unwrap_err(),
        ContractError::ForeignSide
    );
    assert_eq!(ring.pop(consumer).unwrap_err(), ContractError::ForeignSide);
    assert_eq!(
        refused(ring.commit(producer, stray(1))).1,
        Refusal::ForeignSide
    );
    assert_eq!(
        refused(ring.release(consumer, stray(1))).1,
        Refusal::ForeignSide
    );
}

#[test]
fn a_ring_shared_by_two_tasks_serves_the_one_it_was_made_for() {
    let mut first: Option<Arc<RegionSlot>> = None;
    let cell = std::sync::Mutex::new(&mut first);
    let mut a = limiter(|hooks, slot| {
        **cell.lock().unwrap() = Some(Arc::clone(slot));
        hooks
    })
    .unwrap();
    let slot = first.unwrap();
    let mut b = owner(|_| Ok(AsyncHooks::limiter(&slot))).unwrap();

    assert_eq!(a.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    let error = b.producer().acquire(0).unwrap_err();
    broken!(error, Hook::AcquireInput, None, ContractError::ForeignSide);
    let error = b.consumer().try_pop().unwrap_err();
    broken!(error, Hook::TryPop, None, ContractError::ForeignSide);
    assert_eq!(a.pop::<u8>().unwrap(), Some(vec![1; 4]));
}

#[test]
fn a_task_that_commits_a_stray_region_for_its_window_gets_it_refused() {
    let mut task = limiter(|hooks, slot| {
        let slot = Arc::clone(slot);
        hooks.push(move |ctx| {
            let window = ctx.take_input(0)?;
            std::mem::forget(window);
            slot.commit(ctx.side, stray(4))?;
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    let error = task.push(&[1_u8; 4]).unwrap_err();
    named(&error, Hook::TryPush, None);
    let refusal = Refusal::ForeignWindow;
    assert_eq!(error.contract(), Some(&ContractError::Refused { refusal }));
}

#[test]
fn a_task_that_gives_its_own_ring_the_input_window_as_output_moves_it_and_copies_nothing() {
    // The window is never committed: it goes straight from the input to the output.
    let loot = Stash::new();
    let (hide, seek) = (loot.clone(), loot);
    let mut task = limiter(move |hooks, _| {
        let (hide, seek) = (hide.clone(), seek.clone());
        hooks
            .push(move |ctx| {
                hide.hide(ctx.take_input(0)?);
                Ok(OpResult::Ok)
            })
            .pop(move |ctx| {
                ctx.publish(0, seek.seek())?;
                Ok(OpResult::Ok)
            })
    })
    .unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().output::<u8>(0).unwrap(), [1; 4]);
    let error = task.producer().acquire(0).unwrap_err();
    broken!(error, Hook::AcquireInput, None, ContractError::WindowOut);
    // Released to the wrong side of the ring.
    let error = task.consumer().release(0).unwrap_err();
    named(&error, Hook::ReleaseOutput, None);
    let refusal = Refusal::ForeignWindow;
    assert_eq!(error.contract(), Some(&ContractError::Refused { refusal }));
    assert!(task.producer().acquire(0).unwrap());
}

#[test]
fn a_cell_opens_to_no_other_node_and_follows_a_rebinding() {
    let (mut a, mut b) = (Sides::new(), Sides::new());
    let mut cell = ProducerCell::new(&a, vec![1]);
    assert_eq!(
        cell.open(b.split().0).unwrap_err(),
        ContractError::ForeignSide
    );
    cell.rebind(&b);
    assert_eq!(
        cell.open(a.split().0).unwrap_err(),
        ContractError::ForeignSide
    );
    cell.open(b.split().0).unwrap().push(2);
    assert_eq!(cell.into_inner(), [1, 2]);
}

#[test]
fn a_rebound_ring_keeps_the_window_that_is_out() {
    let (mut a, mut b) = (Sides::new(), Sides::new());
    let mut slot = RegionSlot::new(&a, stray(4)).unwrap();
    let window = slot.acquire(a.split().0).unwrap().unwrap();
    slot.rebind(&b);
    assert_eq!(
        slot.acquire(a.split().0).unwrap_err(),
        ContractError::ForeignSide
    );
    assert_eq!(
        slot.acquire(b.split().0).unwrap_err(),
        ContractError::WindowOut
    );
    slot.commit(b.split().0, window).unwrap();
    assert!(slot.pop(b.split().1).unwrap().is_some());
}

#[test]
fn tokens_exchanged_by_a_task_open_what_they_are_of() {
    let spare = std::sync::Mutex::new(Sides::new());
    let mut task = owner(move |ctx| {
        let own = ctx.consumer_cell(0);
        let spare = Arc::new(std::sync::Mutex::new(std::mem::take(
            &mut *spare.lock().unwrap(),
        )));
        let of_spare = ConsumerCell::new(&spare.lock().unwrap(), 0);
        Ok(AsyncHooks::idle().pop(move |ctx| {
            let mut spare = spare.lock().unwrap();
            std::mem::swap(ctx.side, spare.split().1);
            *of_spare.open(ctx.side)? += 1;
            *own.open(spare.split().1)? += 1;
            assert!(own.open(ctx.side).is_err());
            own.open(ctx.side)?;
            Ok(OpResult::NotReady)
        }))
    })
    .unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(error, Hook::TryPop, None, ContractError::ForeignSide);
}
