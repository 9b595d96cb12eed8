//! Tests of regions: ST1, ST2 and ST5 of the storage invariants, and every refusal.

use proptest::prelude::*;

use super::*;
use crate::device::Stream;
use crate::memory::HostProvider;
use crate::storage::{RegionSlot, Sides};
use crate::testkit::{FakeDevice, FakeStream, Ledger};

fn region(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .unwrap()
        .into_region()
}

/// Memory of the host that is counted, and poisoned when it goes back.
fn counted() -> (Ledger, Memory) {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    (ledger, memory)
}

/// A stream with one item of work to do.
fn busy_stream() -> Arc<FakeStream> {
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| {});
    stream
}

fn used(mut region: Region) -> (Region, Arc<FakeStream>) {
    let stream = busy_stream();
    region.not_before(stream.record().unwrap());
    (region, stream)
}

// ---------------------------------------------------------------------------------------
// ST1: no byte in two regions

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn st1_split_regions_have_every_byte_once(
        len in 0_usize..40,
        cuts in prop::collection::vec((0_usize..8, 0_usize..48), 0..12),
    ) {
        let whole = region(len);
        let start = whole.address();
        let mut pieces = vec![whole];
        for (which, at) in cuts {
            let piece = pieces.remove(which % pieces.len());
            let (address, length) = (piece.address(), piece.len());
            match piece.split_at(at) {
                Ok((head, tail)) => {
                    prop_assert!(at <= length);
                    prop_assert_eq!((head.address(), head.len()), (address, at));
                    prop_assert_eq!((tail.address(), tail.len()), (address.plus(at), length - at));
                    pieces.extend([tail, head]);
                }
                Err(piece) => {
                    prop_assert!(at > length);
                    prop_assert_eq!((piece.address(), piece.len()), (address, length));
                    pieces.push(piece);
                }
            }
        }
        for (number, piece) in pieces.iter_mut().enumerate() {
            piece.as_mut_bytes().unwrap().fill(u8::try_from(number).unwrap());
        }
        for (number, piece) in pieces.iter().enumerate() {
            let number = u8::try_from(number).unwrap();
            prop_assert!(piece.as_bytes().unwrap().iter().all(|byte| *byte == number));
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces.sort_by_key(Region::address);
        let mut next = start;
        for piece in &pieces {
            prop_assert_eq!(piece.address(), next);
            next = next.plus(piece.len());
        }
        prop_assert_eq!(next, start.plus(len));
    }
}

#[test]
fn st1_a_buffer_gives_each_byte_once() {
    let (_, memory) = counted();
    let mut buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 10).unwrap();
    let first = buffer.take(4).unwrap();
    assert!(buffer.take(7).is_none(), "6 are left");
    assert_eq!(buffer.remaining(), 6);
    let second = buffer.take(0).unwrap();
    let rest = buffer.into_region();
    assert_eq!((first.len(), second.len(), rest.len()), (4, 0, 6));
    assert_eq!(rest.address(), first.address().plus(4));
}

#[test]
fn st1_shared_bytes_are_written_by_nobody_until_one_holds_them() {
    let mut region = region(4);
    region.as_mut_bytes().unwrap().fill(1);
    let shared = region.into_shared();
    let other = shared.clone();
    let mut reader = shared.to_region();
    assert_eq!(reader.as_bytes().unwrap(), [1; 4]);
    assert_eq!(reader.as_mut_bytes().unwrap_err(), RegionError::ReadOnly);
    let (mut head, tail) = reader.split_at(1).unwrap();
    assert_eq!(head.as_mut_bytes().unwrap_err(), RegionError::ReadOnly);
    assert!(tail.is_shared());

    let shared = shared.try_into_unique().unwrap_err();
    drop((other, tail));
    let shared = shared.try_into_unique().unwrap_err();
    drop(head);
    let mut unique = shared.try_into_unique().unwrap();
    unique.as_mut_bytes().unwrap().fill(2);
    assert!(!unique.is_shared());
}

#[test]
fn st1_a_part_shared_again_is_never_written_beside_a_reader_of_the_whole() {
    let shared = region(4).into_shared();
    let (head, tail) = shared.to_region().split_at(1).unwrap();
    let part = tail.into_shared();
    drop(head);
    let part = part.try_into_unique().unwrap_err();
    let whole = shared.to_region();
    drop(shared);
    let part = part.try_into_unique().unwrap_err();
    drop(whole);
    let mut part = part.try_into_unique().unwrap();
    // Of a part comes that part, and nothing beside it.
    assert_eq!(part.as_mut_bytes().unwrap().len(), 3);
}

// ---------------------------------------------------------------------------------------
// ST2: bytes outlive their regions

#[test]
fn st2_regions_keep_the_allocation_that_the_buffer_had() {
    let (ledger, memory) = counted();
    let mut buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 8).unwrap();
    let mut first = buffer.take(4).unwrap();
    let second = buffer.take(4).unwrap();
    drop(buffer);
    drop(memory);
    first.as_mut_bytes().unwrap().fill(1);
    drop(second);
    assert_eq!(ledger.counts().live_blocks, 1);
    assert_eq!(first.as_bytes().unwrap(), [1; 4]);
    drop(first);
    assert_eq!(ledger.counts().live_blocks, 0);
    assert_eq!(ledger.counts().faults, 0);
}

#[test]
fn st2_readers_of_a_shared_region_keep_its_bytes() {
    let (ledger, memory) = counted();
    let buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 8).unwrap();
    let shared = buffer.into_region().into_shared();
    let (head, tail) = shared.to_region().split_at(4).unwrap();
    let nested = tail.into_shared();
    drop(shared);
    drop(head);
    assert_eq!(nested.to_region().as_bytes().unwrap(), [0; 4]);
    assert_eq!(ledger.counts().live_blocks, 1);
    let unique = nested.try_into_unique().unwrap();
    assert_eq!(ledger.counts().live_blocks, 1);
    drop(unique);
    assert_eq!(ledger.counts().live_blocks, 0);
    assert_eq!(ledger.counts().faults, 0);
}

#[test]
fn st2_a_chain_of_sharing_of_any_length_is_dropped() {
    let (ledger, memory) = counted();
    let buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 8).unwrap();
    let mut region = buffer.into_region();
    for _ in 0..200_000 {
        region = region.into_shared().to_region();
    }
    drop(region);
    assert_eq!(ledger.counts().live_blocks, 0);
}

// ---------------------------------------------------------------------------------------
// ST5: bytes that device work may touch

#[test]
fn st5_outstanding_work_keeps_the_host_away() {
    let (mut region, stream) = used(region(4));
    assert_eq!(region.as_bytes().unwrap_err(), RegionError::InUse);
    assert_eq!(region.as_mut_bytes().unwrap_err(), RegionError::InUse);
    // Waiting fails while nobody steps the stream; then the token stays.
    assert!(region.complete().is_err());
    assert!(region.ready_after().is_some());
    stream.synchronize().unwrap();
    assert!(region.as_bytes().is_ok(), "done work is no hindrance");
    region.complete().unwrap();
    assert!(region.ready_after().is_none());
}

#[test]
fn st5_work_of_a_lost_device_is_never_done() {
    let (mut region, stream) = used(region(4));
    stream.lose();
    assert_eq!(region.as_bytes().unwrap_err(), RegionError::InUse);
    assert!(region.complete().is_err());
    assert_eq!(region.as_bytes().unwrap_err(), RegionError::InUse);
}

#[test]
fn st5_both_parts_of_a_split_region_carry_the_work() {
    let (region, stream) = used(region(4));
    let (head, tail) = region.split_at(2).unwrap();
    assert!(head.as_bytes().is_err() && tail.as_bytes().is_err());
    stream.synchronize().unwrap();
    assert!(head.as_bytes().is_ok() && tail.as_bytes().is_ok());
}

#[test]
fn st5_work_added_to_work_is_waited_for_too() {
    let (mut region, first) = used(region(4));
    let second = busy_stream();
    region.not_before(second.record().unwrap());
    first.synchronize().unwrap();
    assert!(region.as_bytes().is_err());
    second.synchronize().unwrap();
    assert!(region.as_bytes().is_ok());
}

#[test]
fn st5_a_dropped_region_leaves_its_work_to_the_allocation() {
    let (ledger, memory) = counted();
    // What is done by then does not keep the allocation from going back.
    let buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 4).unwrap();
    let (head, tail) = buffer.into_region().split_at(2).unwrap();
    let (head, stream) = used(head);
    drop(head);
    assert!(tail.as_bytes().is_ok(), "the work was on other bytes");
    stream.synchronize().unwrap();
    drop(tail);
    assert_eq!(ledger.counts().live_blocks, 0);

    // What is not, does: the fake stream's events cannot be waited for.
    let buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 4).unwrap();
    let (region, stream) = used(buffer.into_region());
    drop(region);
    assert_eq!(ledger.counts().live_blocks, 1);
    stream.synchronize().unwrap();
    assert_eq!(ledger.counts().live_blocks, 1);
    assert_eq!(ledger.counts().faults, 0);
}

#[test]
fn st5_a_dropped_reader_leaves_its_work_to_whoever_writes_next() {
    let shared = region(4).into_shared();
    let (reader, stream) = used(shared.to_region());
    let (head, tail) = reader.split_at(2).unwrap();
    let (head, other) = used(head);
    drop((head, tail));
    // Those who only read need not wait for it.
    assert!(shared.to_region().as_bytes().is_ok());
    let mut unique = shared.try_into_unique().unwrap();
    assert_eq!(unique.as_mut_bytes().unwrap_err(), RegionError::InUse);
    stream.synchronize().unwrap();
    assert_eq!(unique.as_mut_bytes().unwrap_err(), RegionError::InUse);
    other.synchronize().unwrap();
    assert!(unique.as_mut_bytes().is_ok());
}

#[test]
fn st5_work_from_before_sharing_comes_with_every_reader() {
    let (region, stream) = used(region(4));
    let shared = region.into_shared();
    let reader = shared.to_region();
    assert_eq!(reader.as_bytes().unwrap_err(), RegionError::InUse);
    let again = reader.into_shared().to_region();
    assert_eq!(again.as_bytes().unwrap_err(), RegionError::InUse);
    drop(again);
    assert!(shared.to_region().as_bytes().is_err());
    stream.synchronize().unwrap();
    assert!(shared.to_region().as_bytes().is_ok());
    assert!(shared.try_into_unique().unwrap().as_bytes().is_ok());
}

#[test]
fn st5_the_work_of_readers_goes_on_when_the_last_of_them_is_gone() {
    for in_ring in [false, true] {
        let (ledger, memory) = counted();
        let sides = Sides::new();
        let whole = TaskBuffer::allocate(&memory, MemLoc::Host, 4)
            .unwrap()
            .into_region();
        let slot = in_ring.then(|| RegionSlot::new(&sides, region(4)).unwrap());
        let (mut producer, _) = sides.into_parts();
        let region = match &slot {
            Some(slot) => slot.acquire(&mut producer).unwrap().unwrap(),
            None => whole,
        };
        let shared = region.into_shared();
        let (reader, stream) = used(shared.to_region());
        drop(shared);
        drop(reader);
        if let Some(slot) = slot {
            // To the ring, whose next window has it.
            let window = slot.acquire(&mut producer).unwrap().unwrap();
            assert_eq!(window.as_bytes().unwrap_err(), RegionError::InUse);
            stream.synchronize().unwrap();
            assert!(window.as_bytes().is_ok());
        } else {
            // To the allocation, which does not go back.
            assert_eq!(ledger.counts().live_blocks, 1);
        }
    }
}

#[test]
fn st5_device_memory_is_kept_for_the_work_on_it() {
    let device = FakeDevice::new(0);
    let ledger = Ledger::new(device.provider());
    let memory = Memory::none().with(ledger.provider());
    let allocate = || {
        TaskBuffer::allocate(&memory, device.location(), 4)
            .unwrap()
            .into_region()
    };
    let (region, stream) = used(allocate());
    stream.synchronize().unwrap();
    drop(region);
    assert_eq!(ledger.counts().live_blocks, 0);
    let (region, stream) = used(allocate());
    stream.lose();
    drop(region);
    assert_eq!(ledger.counts().live_blocks, 1, "leaked, not freed");
    assert_eq!(ledger.counts().faults, 0);
}

// ---------------------------------------------------------------------------------------
// What the host cannot reach, and why

#[test]
fn each_refusal_says_why_the_bytes_cannot_be_reached() {
    let device = FakeDevice::new(1);
    let memory = Memory::none().with(device.provider());
    let mut on_device = TaskBuffer::allocate(&memory, MemLoc::Device(1), 4)
        .unwrap()
        .into_region();
    let error = on_device.as_mut_bytes().unwrap_err();
    assert_eq!(on_device.as_bytes().unwrap_err(), error);
    let location = MemLoc::Device(1);
    assert_eq!(error, RegionError::NotOnHost { location });
    assert_eq!(
        error.to_string(),
        "the region lies in Device:1, which the host cannot read"
    );

    let (busy, _stream) = used(region(4));
    assert_eq!(
        busy.as_bytes().unwrap_err().to_string(),
        "device work on the region is outstanding: complete it first"
    );

    let mut reader = region(4).into_shared().to_region();
    assert_eq!(
        reader.as_mut_bytes().unwrap_err().to_string(),
        "the region is shared and read-only"
    );

    let (_, odd) = region(9).split_at(1).unwrap();
    let error = odd.as_slice::<u32>().unwrap_err();
    let address = odd.address();
    assert_eq!(error, RegionError::Misaligned { address, align: 4 });
    assert_eq!(
        error.to_string(),
        format!("the region starts at {address:?}, which is no multiple of 4")
    );
    assert!(odd.as_slice::<u8>().is_ok());
}

#[test]
fn a_slice_has_the_whole_elements_that_fit() {
    let mut region = region(10);
    assert_eq!(region.as_slice::<u32>().unwrap().len(), 2);
    region.as_mut_slice::<u64>().unwrap()[0] = u64::MAX;
    assert_eq!(
        region.as_slice::<u16>().unwrap(),
        [65535, 65535, 65535, 65535, 0]
    );
    let (empty, _) = region.split_at(0).unwrap();
    assert!(empty.is_empty());
    assert!(empty.as_slice::<u64>().unwrap().is_empty());
}

#[test]
fn what_is_printed_of_a_region_is_where_it_lies_and_not_its_bytes() {
    let region = region(4);
    let text = format!("{region:?}");
    let address = format!("{:?}", region.address());
    assert!(text.contains(&address) && text.contains("len: 4"), "{text}");
    let text = format!("{:?}", region.into_shared());
    assert!(text.contains(&address) && text.contains("len: 4"), "{text}");
}
