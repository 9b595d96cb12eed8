//! Attacks with device work: bytes read, lent, reused or freed before the work on them is
//! done, and streams that are asked to say so.
//!
//! The device is a fake one whose work runs when the test steps it, so "not done" is a
//! state that stays. Whether memory was given back too early is read off the ledger: a
//! block whose work never finished must never go back.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use holoflow::device::{ReadyAfter, Stream};
use holoflow::memory::{HostProvider, Memory};
use holoflow::prelude::*;
use holoflow::storage::{
    ContractError, Refusal, Region, RegionError, RegionSlot, RingError, Sides, Slot, TaskBuffer,
};
use holoflow::task::Hook;
use holoflow::testkit::{FakeDevice, FakeStream, Ledger};
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{
    AsyncHooks, Factory, builder, frame, limiter, nothing_leaks, stray,
};
use serde_json::json;

/// A stream with one item of work to do, and the token of that work.
fn busy() -> (Arc<FakeStream>, ReadyAfter) {
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| {});
    let token = stream.record().unwrap();
    (stream, token)
}

/// Four counted bytes.
fn counted() -> (Ledger, Region) {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 4)
        .unwrap()
        .into_region();
    (ledger, region)
}

#[test]
fn bytes_with_outstanding_work_are_not_read_or_written_by_the_host() {
    let (stream, token) = busy();
    let mut region = stray(4);
    region.not_before(token);
    assert_eq!(region.as_bytes().unwrap_err(), RegionError::InUse);
    assert_eq!(region.as_mut_bytes().unwrap_err(), RegionError::InUse);
    assert!(region.complete().is_err(), "nobody steps the stream");
    let (head, tail) = region.split_at(1).unwrap();
    assert_eq!(head.as_bytes().unwrap_err(), RegionError::InUse);
    assert_eq!(tail.as_bytes().unwrap_err(), RegionError::InUse);
    let shared = tail.into_shared();
    assert_eq!(
        shared.to_region().as_bytes().unwrap_err(),
        RegionError::InUse
    );
    assert!(stream.step());
    assert_eq!(head.as_bytes().unwrap(), [0]);
    assert_eq!(shared.to_region().as_bytes().unwrap(), [0; 3]);
}

#[test]
fn a_published_region_with_outstanding_work_is_not_read_by_downstream() {
    let (stream, token) = busy();
    let mut task = limiter(move |hooks, _| {
        let token = token.clone();
        hooks.pop(move |ctx| {
            let mut region = stray(4);
            region.not_before(token.clone());
            ctx.publish(0, region)?;
            assert!(ctx.outputs.get_mut::<u8>(0).is_err());
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let slot = Slot::Output(0);
    assert_eq!(
        task.consumer().output::<u8>(0).unwrap_err(),
        ContractError::InUse { slot }
    );
    stream.synchronize().unwrap();
    assert_eq!(task.consumer().output::<u8>(0).unwrap(), [0; 4]);
}

#[test]
fn a_lent_region_with_outstanding_work_is_not_written_by_upstream() {
    let (stream, token) = busy();
    let mut task = limiter(move |hooks, slot| {
        let (token, slot) = (token.clone(), Arc::clone(slot));
        hooks.acquire(move |index, ctx| {
            let lent = ctx.lend(index, |side| {
                let window = slot.acquire(side)?;
                TaskResult::Ok(window.map(|mut window| {
                    window.not_before(token.clone());
                    window
                }))
            })?;
            Ok(lent.map(|_| index))
        })
    })
    .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    let slot = Slot::Input(0);
    assert_eq!(
        task.producer().input_mut::<u8>(0).unwrap_err(),
        ContractError::InUse { slot }
    );
    assert!(stream.step());
    task.producer().write(0, &[1_u8; 4]).unwrap();
    assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
    assert_eq!(task.pop::<u8>().unwrap(), Some(vec![1; 4]));
}

#[test]
fn a_window_with_outstanding_work_is_neither_committed_nor_released() {
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, stray(4)).unwrap();
    let (producer, consumer) = sides.split();
    let (stream, token) = busy();
    let mut window = slot.acquire(producer).unwrap().unwrap();
    window.not_before(token);
    let refused = slot.commit(producer, window).unwrap_err();
    assert_eq!(refused.refusal, Refusal::InUse);
    assert!(stream.step());
    slot.commit(producer, refused.region).unwrap();

    let (stream, token) = busy();
    let mut window = slot.pop(consumer).unwrap().unwrap();
    window.not_before(token);
    let refused = slot.release(consumer, window).unwrap_err();
    assert_eq!(refused.refusal, Refusal::InUse);
    assert!(slot.acquire(producer).unwrap().is_none(), "not released");
    assert!(stream.step());
    slot.release(consumer, refused.region).unwrap();
}

#[test]
fn a_window_dropped_with_outstanding_work_is_handed_out_again_with_it() {
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, stray(4)).unwrap();
    let (producer, consumer) = sides.split();
    let (stream, token) = busy();
    let mut window = slot.acquire(producer).unwrap().unwrap();
    window.not_before(token);
    drop(window);
    let window = slot.acquire(producer).unwrap().unwrap();
    assert_eq!(window.as_bytes().unwrap_err(), RegionError::InUse);
    let window = slot.commit(producer, window).unwrap_err().region;
    assert!(stream.step());
    slot.commit(producer, window).unwrap();

    // The same with the parts of a window of the other side, and through a shared region.
    let (stream, token) = busy();
    let (mut head, tail) = slot.pop(consumer).unwrap().unwrap().split_at(2).unwrap();
    head.not_before(token);
    drop(head.into_shared().to_region());
    drop(tail);
    let window = slot.pop(consumer).unwrap().unwrap();
    assert_eq!(window.as_bytes().unwrap_err(), RegionError::InUse);
    assert!(stream.step());
    assert_eq!(window.as_bytes().unwrap(), [0; 4]);
}

#[test]
fn a_ring_is_not_made_of_a_region_with_outstanding_work() {
    let sides = Sides::new();
    let (_stream, token) = busy();
    let mut region = stray(4);
    region.not_before(token);
    assert_eq!(
        RegionSlot::new(&sides, region).unwrap_err(),
        RingError::InUse
    );
}

#[test]
fn a_unique_region_waits_for_the_work_of_those_who_read_it_while_it_was_shared() {
    let (stream, token) = busy();
    let shared = stray(4).into_shared();
    let mut reader = shared.to_region();
    reader.not_before(token);
    let mut other = shared.to_region();
    assert_eq!(other.as_bytes().unwrap(), [0; 4], "reading beside a reader");
    assert_eq!(other.as_mut_bytes().unwrap_err(), RegionError::ReadOnly);
    drop((reader, other));
    let mut region = shared.try_into_unique().unwrap();
    assert_eq!(region.as_mut_bytes().unwrap_err(), RegionError::InUse);
    assert!(stream.step());
    region.as_mut_bytes().unwrap().fill(1);
}

// ---------------------------------------------------------------------------------------
// Memory that goes back before the work on it is done

#[test]
fn a_region_dropped_with_unfinished_work_never_goes_back() {
    let (ledger, mut region) = counted();
    let (_stream, token) = busy();
    region.not_before(token);
    drop(region);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

#[test]
fn a_region_dropped_with_finished_work_goes_back() {
    let (ledger, mut region) = counted();
    let (stream, token) = busy();
    region.not_before(token);
    assert!(stream.step());
    drop(region);
    nothing_leaks(&ledger);
}

#[test]
fn one_part_of_a_buffer_with_unfinished_work_keeps_the_whole_block() {
    let (ledger, region) = counted();
    let (_stream, token) = busy();
    let (mut head, tail) = region.split_at(2).unwrap();
    head.not_before(token);
    drop(head);
    drop(tail);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

#[test]
fn the_last_reader_of_a_shared_region_with_unfinished_work_keeps_the_block() {
    let (ledger, region) = counted();
    let (_stream, token) = busy();
    let shared = region.into_shared();
    let mut reader = shared.to_region();
    reader.not_before(token);
    drop(shared);
    drop(reader);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

#[test]
fn a_lost_device_keeps_the_blocks_its_work_may_still_touch() {
    let (ledger, mut region) = counted();
    let (stream, token) = busy();
    region.not_before(token);
    stream.lose();
    assert_eq!(region.as_bytes().unwrap_err(), RegionError::InUse);
    assert!(region.complete().is_err());
    drop(region);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

// The token of a dropped window waits in the ring for the next window. If there is none,
// the allocation must get it.
#[test]
fn a_ring_dropped_after_a_window_with_unfinished_work_keeps_the_block() {
    let (ledger, region) = counted();
    let (_stream, token) = busy();
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, region).unwrap();
    let mut window = slot.acquire(sides.split().0).unwrap().unwrap();
    window.not_before(token);
    drop(window);
    drop(slot);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

#[test]
fn a_window_with_unfinished_work_dropped_after_its_ring_keeps_the_block() {
    let (ledger, region) = counted();
    let (_stream, token) = busy();
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, region).unwrap();
    let mut window = slot.acquire(sides.split().0).unwrap().unwrap();
    window.not_before(token);
    drop(slot);
    drop(window);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

// Nothing of this is out of the way: a task fails while its window is lent to a section
// whose stream writes it, and the pipeline is dropped.
#[test]
fn a_harness_dropped_while_a_stream_writes_the_lent_window_keeps_the_block() {
    let (_stream, token) = busy();
    let mut task = limiter(move |hooks, slot| {
        let (token, slot) = (token.clone(), Arc::clone(slot));
        hooks.acquire(move |index, ctx| {
            let mut window = slot.acquire(ctx.side)?.unwrap();
            window.not_before(token.clone());
            ctx.owned_input_storage(index)?.publish(window)?;
            Ok(Some(index))
        })
    })
    .unwrap();
    let ledger = task.ledger();
    assert!(task.producer().acquire(0).unwrap());
    drop(task);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

// ---------------------------------------------------------------------------------------
// Streams and tokens

#[test]
fn a_token_of_two_streams_is_complete_only_when_both_are() {
    let ((a, first), (b, second)) = (busy(), busy());
    let both = first.and(&second);
    let mut region = stray(4);
    region.not_before(both.clone());
    assert!(a.step());
    assert_eq!(region.as_bytes().unwrap_err(), RegionError::InUse);
    assert!(!both.is_only_on(a.key()));
    assert!(b.step());
    assert!(region.as_bytes().is_ok());
}

#[test]
fn work_submitted_after_an_event_is_not_waited_for() {
    let (stream, token) = busy();
    stream.submit(|| {});
    assert!(stream.step());
    assert!(token.is_complete().unwrap());
    assert!(!stream.record().unwrap().is_complete().unwrap());
}

#[test]
fn a_stream_asked_from_within_its_own_work_does_not_claim_that_all_is_done() {
    let stream = FakeDevice::new(0).stream();
    let answer = Arc::new(Mutex::new(None));
    let (inner, told) = (Arc::clone(&stream), Arc::clone(&answer));
    stream.submit(move || {
        let claimed = inner.synchronize().is_ok();
        let complete = inner.record().unwrap().is_complete().unwrap();
        *told.lock().unwrap() = Some((claimed, complete));
    });
    assert!(stream.step());
    assert_eq!(*answer.lock().unwrap(), Some((false, false)));
}

#[test]
fn a_stream_whose_work_panicked_does_not_claim_that_all_is_done() {
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| resume_unwind(Box::new("fault")));
    let token = stream.record().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| stream.step())).is_err());
    assert!(!token.is_complete().unwrap());
    assert!(stream.synchronize().is_err());
}

#[test]
fn a_stream_that_waits_for_its_own_earlier_work_goes_on() {
    let (stream, token) = busy();
    stream.wait_for(&token).unwrap();
    stream.submit(|| {});
    stream.synchronize().unwrap();
    assert_eq!(stream.pending(), 0);
}

#[test]
fn a_stream_that_waits_for_its_own_later_work_is_stuck_and_says_so() {
    let (a, b) = (FakeDevice::new(0).stream(), FakeDevice::new(0).stream());
    a.submit(|| {});
    b.wait_for(&a.record().unwrap()).unwrap();
    assert!(b.synchronize().is_err());
    assert_eq!(b.pending(), 1);
    assert!(a.step());
    b.synchronize().unwrap();
}

// The stream comes from the event itself, so safe code cannot name another.
#[test]
fn a_token_made_of_anothers_event_is_of_the_events_stream() {
    let (a, token) = busy();
    let b = FakeDevice::new(0).stream();
    let event = token.events().next().unwrap();
    let copied = ReadyAfter::new(Arc::clone(event));
    assert!(copied.is_only_on(a.key()));
    assert!(!copied.is_only_on(b.key()));
}

#[test]
fn a_region_that_is_busy_every_frame_does_not_hoard_finished_events() {
    let stream = FakeDevice::new(0).stream();
    let (mut region, shared) = (stray(4), stray(4).into_shared());
    for _ in 0..1000 {
        stream.submit(|| {});
        let token = stream.record().unwrap();
        assert!(stream.step());
        region.not_before(token.clone());
        let mut reader = shared.to_region();
        reader.not_before(token);
    }
    let events = |region: &Region| {
        region
            .ready_after()
            .map_or(0, |token| token.events().count())
    };
    assert!(events(&region) <= 1, "{} events", events(&region));
    let unique = shared.try_into_unique().unwrap();
    assert!(events(&unique) <= 1, "{} events", events(&unique));
}

#[test]
fn device_memory_of_a_dropped_region_is_gone_and_not_another_blocks() {
    let device = FakeDevice::new(0);
    let memory = Memory::none().with(device.provider());
    let allocate = || {
        TaskBuffer::allocate(&memory, MemLoc::Device(0), 4)
            .unwrap()
            .into_region()
    };
    let (first, second) = (allocate(), allocate());
    device.write(first.address(), &[1, 2, 3, 4]).unwrap();
    assert_eq!(device.read(second.address(), 4), Some(vec![0; 4]));
    assert_eq!(device.read(first.address(), 5), None);
    assert_eq!(device.read(first.address().plus(3), usize::MAX), None);
    let address = first.address();
    drop(first);
    assert_eq!(device.read(address, 1), None);
    assert_ne!(allocate().address(), address);
}

#[test]
fn work_that_holds_a_region_keeps_it_until_it_ran() {
    let (ledger, mut region) = counted();
    let stream = FakeDevice::new(0).stream();
    stream.submit(move || region.as_mut_bytes().unwrap().fill(1));
    assert_eq!(ledger.counts().live_blocks, 1);
    assert!(stream.step());
    nothing_leaks(&ledger);
}

#[test]
fn the_stream_of_a_hook_orders_work_behind_what_the_task_recorded() {
    let device = FakeDevice::new(0);
    let (before, after) = (device.stream(), device.stream());
    let factory = Factory::new(
        InferResult::asynchronous([], [frame()]).owning_outputs(),
        |_: &mut CreateCtx<'_>| {
            Ok(AsyncHooks::idle().pop(|ctx| {
                let token = ctx.stream().unwrap().record()?;
                let mut region = stray(4);
                region.not_before(token);
                ctx.publish(0, region)?;
                Ok(OpResult::Ok)
            }))
        },
    );
    let mut task = builder()
        .streams(before, Arc::clone(&after) as Arc<dyn Stream>)
        .asynchronous(&factory, json!({}), [])
        .unwrap();
    after.submit(|| {});
    let error = task.consumer().pop::<u8>().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::InUse { .. }
    );
    assert!(after.step());
    assert_eq!(task.consumer().output::<u8>(0).unwrap(), [0; 4]);
}
