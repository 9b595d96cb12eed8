//! Attacks that drop what bytes belong to (buffer, ring, task, harness) while the bytes
//! are published or held elsewhere.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use holoflow::clock::Timestamp;
use holoflow::memory::{HostProvider, Memory};
use holoflow::prelude::*;
use holoflow::storage::{
    Region, RegionSlot, RingLayout, SharedRegion, Sides, SlotRing, TaskBuffer,
};
use holoflow::testkit::Ledger;
use holoflow_soundness::fixture::{AsyncHooks, Stash, limiter, nothing_leaks, owner};
use serde_json::json;

#[test]
fn a_region_outlives_buffer_memory_and_neighbours() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let mut buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 8).unwrap();
    let mut region = buffer.take(4).unwrap();
    let neighbour = buffer.take(2).unwrap();
    drop((memory, buffer, neighbour));
    region.as_mut_bytes().unwrap().fill(3);
    assert_eq!(region.as_bytes().unwrap(), [3; 4]);
    assert_eq!(ledger.counts().live_blocks, 1);
    drop(region);
    nothing_leaks(&ledger);
}

#[test]
fn windows_of_both_sides_outlive_their_ring() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 2)
        .unwrap()
        .into_region();
    let mut sides = Sides::new();
    let layout = RingLayout {
        row_bytes: 1,
        rows: 2,
        push_rows: 1,
        pop_rows: 1,
        pop_stride: 1,
    };
    let ring = SlotRing::new(&sides, layout, region).unwrap();
    let (producer, consumer) = sides.split();
    let window = ring.acquire(producer).unwrap().unwrap();
    ring.commit(producer, window).unwrap();
    let mut popped = ring.pop(consumer).unwrap().unwrap();
    let mut free = ring.acquire(producer).unwrap().unwrap();
    drop((ring, sides));
    popped.as_mut_bytes().unwrap()[0] = 1;
    free.as_mut_bytes().unwrap()[0] = 2;
    assert_eq!(
        (popped.as_bytes().unwrap(), free.as_bytes().unwrap()),
        (&[1][..], &[2][..])
    );
    drop(popped);
    assert_eq!(ledger.counts().live_blocks, 1);
    drop(free);
    nothing_leaks(&ledger);
}

#[test]
fn the_last_reader_of_a_shared_region_keeps_it_after_all_else_is_gone() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 4)
        .unwrap()
        .into_region();
    let shared = region.into_shared();
    let clone = shared.clone();
    let reader = clone.to_region().split_at(3).unwrap().1;
    drop((shared, clone, memory));
    assert_eq!(reader.as_bytes().unwrap(), [0]);
    assert_eq!(ledger.counts().live_blocks, 1);
    drop(reader);
    nothing_leaks(&ledger);
}

/// Where regions hide that outlive the harness, as an application's statics do.
static HIDDEN: Mutex<Vec<Region>> = Mutex::new(Vec::new());

#[test]
fn a_region_hidden_in_a_static_is_read_after_the_harness_is_gone() {
    let mut task = limiter(|hooks, _| {
        hooks.push(|ctx| {
            HIDDEN.lock().unwrap().push(ctx.take_input(0)?);
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    let ledger = task.ledger();
    assert_eq!(task.push(&[1_u8, 2, 3, 4]).unwrap(), OpResult::Ok);
    drop(task);
    assert_eq!(ledger.counts().live_blocks, 1);
    let mut region = HIDDEN.lock().unwrap().pop().unwrap();
    region.as_mut_bytes().unwrap()[0] = 9;
    assert_eq!(region.as_bytes().unwrap(), [9, 2, 3, 4]);
    drop(region);
    nothing_leaks(&ledger);
}

#[test]
fn a_region_sent_to_another_thread_is_used_and_dropped_there_after_the_harness_is_gone() {
    let (send, receive) = mpsc::channel::<Region>();
    let (gone, wait) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        let mut region = receive.recv().unwrap();
        wait.recv().unwrap();
        region.as_mut_bytes().unwrap()[3] = 7;
        region.as_bytes().unwrap().to_vec()
    });
    let send = Mutex::new(Some(send));
    let mut task = limiter(|hooks, _| {
        let send = send.lock().unwrap().take().unwrap();
        hooks.push(move |ctx| {
            send.send(ctx.take_input(0)?).map_err(TaskError::other)?;
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    let ledger = task.ledger();
    assert_eq!(task.push(&[1_u8, 2, 3, 4]).unwrap(), OpResult::Ok);
    drop(task);
    gone.send(()).unwrap();
    assert_eq!(reader.join().unwrap(), [1, 2, 3, 7]);
    nothing_leaks(&ledger);
}

#[test]
fn a_popped_frame_shared_with_the_application_outlives_the_harness() {
    let lease: Stash<SharedRegion> = Stash::new();
    let hidden = lease.clone();
    let mut task = limiter(move |hooks, _| {
        let hidden = hidden.clone();
        hooks.release(move |index, ctx| {
            hidden.hide(ctx.take_back(index)?.into_shared());
            Ok(())
        })
    })
    .unwrap();
    let ledger = task.ledger();
    assert_eq!(task.push(&[4_u8, 3, 2, 1]).unwrap(), OpResult::Ok);
    assert_eq!(task.pop::<u8>().unwrap(), Some(vec![4, 3, 2, 1]));
    let error = task.consumer().try_pop().unwrap_err();
    assert!(
        format!("{error:#}").contains("window is still out"),
        "{error:#}"
    );
    drop(task);
    let lease = lease.seek();
    let reader = lease.to_region();
    drop(lease);
    assert_eq!(reader.as_bytes().unwrap(), [4, 3, 2, 1]);
    drop(reader);
    nothing_leaks(&ledger);
}

#[test]
fn a_harness_dropped_with_an_input_lent_and_an_output_published_gives_everything_back() {
    for stage in 0..4 {
        let mut task = limiter(|hooks, _| hooks).unwrap();
        let ledger = task.ledger();
        if stage > 0 {
            assert!(task.producer().acquire(0).unwrap());
        }
        if stage > 1 {
            assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
        }
        if stage > 2 {
            assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
        }
        drop(task);
        nothing_leaks(&ledger);
    }
}

#[test]
fn a_task_that_drops_its_ring_while_a_window_is_lent_leaves_the_window_valid() {
    // The ring is in a lock, so that a hook can drop it while its window is in the cell.
    let mut task = owner(|ctx| {
        let region = ctx.buffer(MemLoc::Host, 4)?.into_region();
        let slot = Arc::new(Mutex::new(Some(RegionSlot::new(ctx.sides(), region)?)));
        let gone = Arc::clone(&slot);
        let hooks = AsyncHooks::idle().acquire(move |index, ctx| {
            let lent = ctx.lend(index, |side| match &*slot.lock().unwrap() {
                Some(slot) => slot.acquire(side),
                None => Ok(None),
            })?;
            Ok(lent.map(|_| index))
        });
        Ok(hooks.push(move |_| {
            drop(gone.lock().unwrap().take());
            Ok(OpResult::NotReady)
        }))
    })
    .unwrap();
    let ledger = task.ledger();
    assert_eq!(task.push(&[1_u8, 2, 3, 4]).unwrap(), OpResult::NotReady);
    let lent = task.producer().input_mut::<u8>(0).unwrap();
    assert_eq!(lent, [1, 2, 3, 4]);
    lent.fill(5);
    task.producer().cancel_inputs().unwrap();
    assert_eq!(ledger.counts().live_blocks, 0);
    assert!(!task.producer().acquire(0).unwrap());
}

#[test]
fn a_waker_an_event_and_a_clock_kept_past_the_harness_are_harmless() {
    let kept = Stash::new();
    let hidden = kept.clone();
    let mut task = limiter(move |hooks, _| {
        let hidden = hidden.clone();
        hooks.pop(move |ctx| {
            hidden.hide((ctx.waker(), Arc::clone(ctx.clock()), ctx.next_event()));
            Ok(OpResult::NotReady)
        })
    })
    .unwrap();
    assert!(task.send_event(json!({ "gain": 2 })));
    assert_eq!(task.pop::<u8>().unwrap(), None);
    drop(task);
    let (waker, clock, event) = kept.seek();
    thread::spawn(move || {
        waker.wake_by_ref();
        waker.wake();
    })
    .join()
    .unwrap();
    assert_eq!(clock.now(), Timestamp::ZERO);
    assert_eq!(event.unwrap().data["gain"], 2);
}
