//! Attacks on bytes that several hold: regions shared, cut up, shared again and turned
//! unique, with device work on them and as windows of rings.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Range;
use std::sync::{Arc, Barrier};
use std::thread;

use holoflow::device::{ReadyAfter, Stream};
use holoflow::memory::{HostProvider, Memory};
use holoflow::prelude::*;
use holoflow::storage::{
    ContractError, Refusal, Region, RegionError, RegionSlot, RingError, RingLayout, SharedRegion,
    Sides, SlotRing, TaskBuffer,
};
use holoflow::testkit::{FakeDevice, FakeStream, Ledger};
use holoflow_soundness::fixture::{nothing_leaks, stray};

/// Counted bytes, marked 0, 1, 2 and so on.
fn counted(bytes: u8) -> (Ledger, Region) {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let mut region = TaskBuffer::allocate(&memory, MemLoc::Host, bytes.into())
        .unwrap()
        .into_region();
    for (byte, mark) in region.as_mut_bytes().unwrap().iter_mut().zip(0..) {
        *byte = mark;
    }
    (ledger, region)
}

/// A stream with one item of work to do, and the token of that work.
fn busy() -> (Arc<FakeStream>, ReadyAfter) {
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| {});
    let token = stream.record().unwrap();
    (stream, token)
}

/// A part of what `shared` holds, shared in turn.
fn part(shared: &SharedRegion, bytes: Range<usize>) -> SharedRegion {
    let (head, _) = shared.to_region().split_at(bytes.end).unwrap();
    let (_, part) = head.split_at(bytes.start).unwrap();
    part.into_shared()
}

#[test]
fn a_part_is_not_unique_while_another_part_lives_even_one_it_has_no_byte_in_common_with() {
    let (ledger, region) = counted(8);
    let shared = region.into_shared();
    let (left, right) = (part(&shared, 0..3), part(&shared, 5..8));
    drop(shared);
    let left = left.try_into_unique().unwrap_err();
    let reader = right.to_region();
    drop(right);
    let left = left.try_into_unique().unwrap_err();
    assert_eq!(reader.as_bytes().unwrap(), [5, 6, 7]);
    drop(reader);
    let mut left = left.try_into_unique().unwrap();
    assert_eq!(left.as_mut_bytes().unwrap(), [0, 1, 2]);
    assert_eq!(ledger.counts().live_blocks, 1);
    drop(left);
    nothing_leaks(&ledger);
}

#[test]
fn a_part_turned_unique_is_that_part_and_no_byte_more() {
    let (ledger, region) = counted(8);
    let start = region.address();
    let shared = region.into_shared();
    let middle = part(&part(&shared, 1..7), 2..4);
    drop(shared);
    let mut region = middle.try_into_unique().unwrap();
    assert_eq!((region.address(), region.len()), (start.plus(3), 2));
    assert_eq!(region.as_bytes().unwrap(), [3, 4]);
    region.as_mut_bytes().unwrap().fill(9);
    let region = region.split_at(3).unwrap_err();
    let again = region.into_shared();
    assert_eq!(again.to_region().address(), start.plus(3));
    assert_eq!(again.to_region().as_bytes().unwrap(), [9, 9]);
    drop(again);
    nothing_leaks(&ledger);
}

#[test]
fn an_empty_part_turned_unique_reaches_no_bytes() {
    for at in [0, 8] {
        let (ledger, region) = counted(8);
        let shared = region.into_shared();
        let empty = part(&shared, at..at);
        let empty = empty.try_into_unique().unwrap_err();
        drop(shared);
        let mut empty = empty.try_into_unique().unwrap();
        assert!(empty.as_mut_bytes().unwrap().is_empty());
        assert!(empty.as_mut_slice::<u64>().unwrap_or_default().is_empty());
        assert_eq!(ledger.counts().live_blocks, 1);
        drop(empty);
        nothing_leaks(&ledger);
    }
}

#[test]
fn a_clone_of_a_part_and_the_whole_are_refused_alike() {
    let shared = stray(8).into_shared();
    let some = part(&shared, 2..4);
    let twin = some.clone();
    let shared = shared.try_into_unique().unwrap_err();
    let some = some.try_into_unique().unwrap_err();
    let twin = twin.try_into_unique().unwrap_err();
    drop((shared, some));
    assert_eq!(twin.try_into_unique().unwrap().len(), 2);
}

#[test]
fn of_many_threads_that_turn_their_parts_unique_at_most_one_succeeds() {
    for _ in 0..50 {
        let (ledger, region) = counted(8);
        let shared = region.into_shared();
        let parts: Vec<_> = (0..4).map(|n| part(&shared, 2 * n..2 * n + 2)).collect();
        drop(shared);
        let start = Barrier::new(parts.len());
        let won: usize = thread::scope(|scope| {
            let threads: Vec<_> = parts
                .into_iter()
                .map(|part| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        match part.try_into_unique() {
                            Ok(mut region) => {
                                region.as_mut_bytes().unwrap().fill(0xFF);
                                1
                            }
                            Err(part) => {
                                // Nobody writes while this one reads.
                                let reader = part.to_region();
                                assert!(!reader.as_bytes().unwrap().contains(&0xFF));
                                0
                            }
                        }
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert!(won <= 1, "{won}");
        nothing_leaks(&ledger);
    }
}

// ---------------------------------------------------------------------------------------
// With device work

#[test]
fn a_region_with_outstanding_work_shared_again_still_waits_for_it() {
    // `not_before` says that the bytes are not read before; sharing is no way around it.
    let (stream, token) = busy();
    let mut reader = stray(8).into_shared().to_region();
    reader.not_before(token);
    let (head, tail) = reader.split_at(4).unwrap();
    let again = tail.into_shared();
    let mut readers = vec![
        head.into_shared().to_region(),
        again.to_region(),
        again.clone().to_region(),
    ];
    readers.push(again.to_region().into_shared().to_region());
    readers.push(again.to_region().split_at(1).unwrap().1);
    for reader in &readers {
        assert_eq!(reader.as_bytes().unwrap_err(), RegionError::InUse);
    }
    drop(readers);
    let mut region = again.try_into_unique().unwrap();
    assert_eq!(region.as_mut_bytes().unwrap_err(), RegionError::InUse);
    assert!(stream.step());
    assert_eq!(region.as_mut_bytes().unwrap(), [0; 4]);
}

#[test]
fn work_on_one_part_holds_back_whoever_has_any_part_alone() {
    let (ledger, region) = counted(8);
    let (stream, token) = busy();
    let shared = region.into_shared();
    let (mut left, right) = (part(&shared, 0..4).to_region(), part(&shared, 4..8));
    drop(shared);
    left.not_before(token);
    assert_eq!(right.to_region().as_bytes().unwrap(), [4, 5, 6, 7]);
    let twice = left.into_shared().to_region().into_shared();
    drop(twice);
    let mut right = right.try_into_unique().unwrap();
    assert_eq!(right.as_mut_bytes().unwrap_err(), RegionError::InUse);
    let shared = right.into_shared();
    assert_eq!(
        shared.to_region().as_bytes().unwrap_err(),
        RegionError::InUse
    );
    drop(shared);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
    assert!(stream.step());
}

#[test]
fn an_open_event_that_every_reader_brings_back_is_kept_once() {
    let (stream, token) = busy();
    let mut region = stray(4);
    region.not_before(token);
    let shared = region.into_shared();
    for _ in 0..100 {
        drop(shared.to_region().into_shared());
        let mut reader = shared.to_region();
        reader.not_before(stream.record().unwrap());
        reader.not_before(reader.ready_after().unwrap().clone());
        assert!(reader.ready_after().unwrap().events().count() <= 2);
    }
    let region = shared.try_into_unique().unwrap();
    let events = region.ready_after().unwrap().events().count();
    assert!(events <= 101, "{events} events of 101");
}

#[test]
fn work_that_holds_a_region_is_dropped_with_the_last_token_of_its_stream() {
    // The token keeps the stream's queue, the queue a region, and the region goes back to the
    // very keeper that has the token.
    let (ledger, region) = counted(8);
    let (head, tail) = region.split_at(2).unwrap();
    let (mut middle, mut tail) = tail.split_at(2).unwrap();
    let mut head = head;
    let (stream, token) = busy();
    let other = busy().1;
    assert!(stream.step());
    tail.not_before(other.clone());
    stream.submit(move || drop(tail));
    head.not_before(token);
    drop(stream);
    drop(head);
    middle.not_before(other);
    drop(middle);
    assert_eq!(ledger.counts().live_blocks, 1, "work of the other stream");
}

// ---------------------------------------------------------------------------------------
// Windows

#[test]
fn a_window_shared_cut_up_and_made_whole_again_is_committed_and_a_part_is_not() {
    let (ledger, region) = counted(4);
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, region).unwrap();
    let (producer, consumer) = sides.split();
    let shared = slot.acquire(producer).unwrap().unwrap().into_shared();
    let (some, all) = (part(&shared, 1..3), part(&shared, 0..4));
    drop(shared);
    let all = all.try_into_unique().unwrap_err();

    // A reader of all of the window is not the window.
    let refused = slot.commit(producer, all.to_region()).unwrap_err();
    assert_eq!(refused.refusal, Refusal::ForeignWindow);
    drop(refused);
    drop(some);
    // All of the window, shared twice over and alone again, is.
    let mut window = all.to_region().into_shared();
    drop(all);
    window = window.try_into_unique().unwrap().into_shared();
    let mut window = window.try_into_unique().unwrap();
    window.as_mut_bytes().unwrap().fill(5);
    slot.commit(producer, window).unwrap();

    let popped = slot.pop(consumer).unwrap().unwrap().into_shared();
    let some = part(&popped, 0..3);
    drop(popped);
    let refused = slot
        .release(consumer, some.try_into_unique().unwrap())
        .unwrap_err();
    assert_eq!(refused.refusal, Refusal::ForeignWindow);
    assert_eq!(refused.region.as_bytes().unwrap(), [5; 3]);
    assert_eq!(
        slot.pop(consumer).unwrap_err(),
        ContractError::WindowOut,
        "the part keeps the rows"
    );
    drop(refused);
    let popped = slot.pop(consumer).unwrap().unwrap();
    assert_eq!(popped.as_bytes().unwrap(), [5; 4]);
    slot.release(consumer, popped).unwrap();
    drop(slot);
    nothing_leaks(&ledger);
}

#[test]
fn a_window_whose_readers_left_work_outstanding_is_not_taken_back_before_it_is_done() {
    let (ledger, region) = counted(4);
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, region).unwrap();
    let (producer, consumer) = sides.split();
    let (stream, token) = busy();
    let shared = slot.acquire(producer).unwrap().unwrap().into_shared();
    let mut reader = part(&shared, 3..4).to_region();
    reader.not_before(token);
    drop(reader.into_shared());
    let window = shared.try_into_unique().unwrap();
    let refused = slot.commit(producer, window).unwrap_err();
    assert_eq!(refused.refusal, Refusal::InUse);
    assert!(slot.pop(consumer).unwrap().is_none());
    drop(refused);
    // Dropped, and handed out again with the work on it.
    let window = slot.acquire(producer).unwrap().unwrap();
    assert_eq!(window.as_bytes().unwrap_err(), RegionError::InUse);
    let window = slot.commit(producer, window).unwrap_err().region;
    assert!(stream.step());
    slot.commit(producer, window).unwrap();
    drop(slot);
    nothing_leaks(&ledger);
}

#[test]
fn a_part_of_a_window_makes_a_ring_and_is_a_window_of_neither() {
    let (ledger, region) = counted(4);
    let mut sides = Sides::new();
    let outer = RegionSlot::new(&sides, region).unwrap();
    let shared = outer
        .acquire(sides.split().0)
        .unwrap()
        .unwrap()
        .into_shared();
    let error = RegionSlot::new(&sides, shared.to_region()).unwrap_err();
    assert_eq!(error, RingError::Shared);
    let some = part(&shared, 0..4);
    drop(shared);
    let inner = RegionSlot::new(&sides, some.try_into_unique().unwrap()).unwrap();
    let (producer, consumer) = sides.split();
    // Same address, same length, another keeper.
    let window = inner.acquire(producer).unwrap().unwrap();
    let refused = outer.commit(producer, window).unwrap_err();
    assert_eq!(refused.refusal, Refusal::ForeignWindow);
    inner.commit(producer, refused.region).unwrap();
    let popped = inner.pop(consumer).unwrap().unwrap();
    let refused = outer.release(consumer, popped).unwrap_err();
    drop(inner);
    assert_eq!(
        outer.acquire(producer).unwrap_err(),
        ContractError::WindowOut
    );
    drop(refused);
    assert!(outer.acquire(producer).unwrap().is_some());
    drop(outer);
    nothing_leaks(&ledger);
}

#[test]
fn rings_lie_in_each_other_as_deep_as_the_limit_and_no_deeper() {
    let (ledger, mut region) = counted(4);
    let mut sides = Sides::new();
    let mut rings = Vec::new();
    let error = loop {
        match RegionSlot::new(&sides, region) {
            Err(error) => break error,
            Ok(ring) => {
                // Sharing on the way is no way around the limit.
                let window = ring.acquire(sides.split().0).unwrap().unwrap();
                region = window.into_shared().try_into_unique().unwrap();
                rings.push(ring);
            }
        }
    };
    // The first lies in the allocation itself, and the region refused was dropped.
    assert_eq!(rings.len(), 17);
    assert_eq!(error, RingError::TooDeep { depth: 17 });
    let innermost = rings.last().unwrap();
    let mut window = innermost.acquire(sides.split().0).unwrap().unwrap();
    window.as_mut_bytes().unwrap().fill(7);
    // Outermost first: each is kept by what lies in it.
    for ring in rings.drain(..) {
        assert!(ring.acquire(sides.split().0).is_err());
    }
    assert_eq!(window.as_bytes().unwrap(), [7; 4]);
    assert_eq!(ledger.counts().live_blocks, 1);
    drop(window);
    nothing_leaks(&ledger);
}

#[test]
fn work_on_the_innermost_of_nested_windows_keeps_the_block() {
    let (ledger, mut region) = counted(4);
    let (_stream, token) = busy();
    let mut sides = Sides::new();
    let mut rings = Vec::new();
    for _ in 0..17 {
        let ring = RegionSlot::new(&sides, region).unwrap();
        region = ring.acquire(sides.split().0).unwrap().unwrap();
        rings.push(ring);
    }
    let mut reader = region.into_shared().to_region();
    reader.not_before(token);
    drop(reader);
    drop(rings);
    assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
}

// ---------------------------------------------------------------------------------------
// Anything, in any order

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

/// Who holds bytes.
enum Holder {
    Region(Region),
    Shared(SharedRegion),
}

impl Holder {
    fn bytes(&self) -> Range<u64> {
        let (address, len) = match self {
            Self::Region(region) => (region.address(), region.len()),
            Self::Shared(shared) => {
                let region = shared.to_region();
                (region.address(), region.len())
            }
        };
        address.as_u64()..address.plus(len).as_u64()
    }

    fn is_alone(&self) -> bool {
        matches!(self, Self::Region(region) if !region.is_shared())
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// All that hold bytes of one ring, and the device work that is not done.
struct Play {
    dice: Dice,
    held: Vec<Holder>,
    stream: Arc<FakeStream>,
    working: Vec<Range<u64>>,
}

impl Play {
    /// No byte of one who may write is another's, or under work that the writer ignores.
    fn check(&mut self) {
        let ranges: Vec<_> = self.held.iter().map(Holder::bytes).collect();
        for (number, holder) in self.held.iter_mut().enumerate() {
            if !holder.is_alone() {
                if let Holder::Region(region) = holder {
                    assert_eq!(region.as_mut_bytes(), Err(RegionError::ReadOnly));
                }
                continue;
            }
            let own = &ranges[number];
            for (other, range) in ranges.iter().enumerate() {
                assert!(other == number || !overlap(own, range), "bytes held twice");
            }
            let Holder::Region(region) = holder else {
                continue;
            };
            let worked_on = self.working.iter().any(|range| overlap(own, range));
            match region.as_mut_bytes() {
                Ok(bytes) => {
                    assert!(!worked_on, "bytes are written under running work");
                    bytes.fill(u8::try_from(number % 256).unwrap());
                }
                Err(error) => {
                    assert_eq!(error, RegionError::InUse);
                    assert!(!self.working.is_empty(), "nothing runs");
                }
            }
        }
    }

    fn turn(&mut self, ring: &SlotRing, sides: &mut Sides) {
        let (producer, consumer) = sides.split();
        let what = self.dice.below(12);
        if what < 2 {
            let window = if what == 0 {
                ring.acquire(producer)
            } else {
                ring.pop(consumer)
            };
            if let Ok(Some(window)) = window {
                self.held.push(Holder::Region(window));
            }
            return;
        }
        if what == 2 {
            self.stream.synchronize().unwrap();
            self.working.clear();
            return;
        }
        if self.held.is_empty() {
            return;
        }
        let which = self.dice.below(self.held.len());
        match (what, self.held.swap_remove(which)) {
            (3 | 4, Holder::Region(region)) => {
                let given = if what == 3 {
                    ring.commit(producer, region)
                } else {
                    ring.release(consumer, region)
                };
                if let Err(refused) = given {
                    self.held.push(Holder::Region(refused.region));
                }
            }
            (5 | 6, Holder::Region(region)) => {
                let mid = self.dice.below(region.len() + 1);
                let (head, tail) = region.split_at(mid).unwrap();
                self.held
                    .extend([Holder::Region(head), Holder::Region(tail)]);
            }
            (7, Holder::Region(region)) => self.held.push(Holder::Shared(region.into_shared())),
            (8, Holder::Region(mut region)) => {
                self.stream.submit(|| {});
                region.not_before(self.stream.record().unwrap());
                let holder = Holder::Region(region);
                self.working.push(holder.bytes());
                self.held.push(holder);
            }
            (3 | 4, Holder::Shared(shared)) => {
                self.held
                    .extend([Holder::Shared(shared.clone()), Holder::Shared(shared)]);
            }
            (5 | 6, Holder::Shared(shared)) => {
                self.held.push(Holder::Region(shared.to_region()));
                self.held.push(Holder::Shared(shared));
            }
            (7 | 8, Holder::Shared(shared)) => {
                let holder = Holder::Shared(shared.clone());
                let before = holder.bytes();
                drop(holder);
                let holder = match shared.try_into_unique() {
                    Ok(region) => Holder::Region(region),
                    Err(shared) => Holder::Shared(shared),
                };
                assert_eq!(holder.bytes(), before, "another range than was shared");
                self.held.push(holder);
            }
            (_, holder) => drop(holder),
        }
    }
}

#[test]
fn whatever_is_done_to_windows_no_byte_is_written_beside_a_reader_or_running_work() {
    let layout = RingLayout {
        row_bytes: 3,
        rows: 6,
        push_rows: 2,
        pop_rows: 1,
        pop_stride: 3,
    };
    let mut largest = 0;
    for seed in 0..200 {
        let (ledger, region) = counted(18);
        let mut sides = Sides::new();
        let mut ring = Some(SlotRing::new(&sides, layout, region).unwrap());
        let mut play = Play {
            dice: Dice(seed),
            held: Vec::new(),
            stream: FakeDevice::new(0).stream(),
            working: Vec::new(),
        };
        for _ in 0..150 {
            if let Some(ring) = &ring {
                play.turn(ring, &mut sides);
            }
            play.check();
            largest = largest.max(play.held.len());
        }
        // In one half of the games the ring goes first, in the other the holders.
        if seed % 2 == 0 {
            ring = None;
            play.check();
        }
        if seed % 4 < 2 {
            play.stream.synchronize().unwrap();
            play.working.clear();
            play.check();
        }
        play.held.clear();
        drop(ring);
        if play.working.is_empty() {
            nothing_leaks(&ledger);
        } else {
            assert_eq!(ledger.counts().live_blocks, 1, "freed under running work");
        }
    }
    assert!(largest > 8, "the games are too short: {largest}");
}
