//! Tests of the swap ring, by the numbers of the invariants in `swap_ring.rs`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::device::Stream;
use crate::memory::{HostProvider, Memory};
use crate::storage::TaskBuffer;
use crate::sync::Arc;
use crate::tensor::MemLoc;
use crate::testkit::{FakeDevice, Ledger};

fn region(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .unwrap()
        .into_region()
}

fn regions(capacity: usize) -> impl Iterator<Item = Region> {
    (0..capacity + SwapRing::<u8>::SPARES).map(|_| region(1))
}

/// The ring and tokens of one node, driven from both sides.
struct Node {
    sides: Sides,
    ring: SwapRing<u8>,
}

impl Node {
    fn new(capacity: usize, overflow: Overflow) -> Self {
        let sides = Sides::new();
        let ring = SwapRing::new(&sides, overflow, regions(capacity)).unwrap();
        Self { sides, ring }
    }

    fn acquire(&mut self) -> Result<Region, ContractError> {
        let found = self.ring.acquire(self.sides.split().0);
        found.map(|region| region.expect("the producer never waits"))
    }

    fn commit(&mut self, region: Region, value: u8) -> Result<Option<u8>, Refused> {
        self.ring.commit(self.sides.split().0, region, value)
    }

    fn pop(&mut self) -> Result<Option<(Region, u8)>, ContractError> {
        self.ring.pop(self.sides.split().1)
    }

    fn release(&mut self, region: Region) -> Result<(), Refused> {
        self.ring.release(self.sides.split().1, region)
    }

    fn push(&mut self, value: u8) -> Option<u8> {
        let mut region = self.acquire().unwrap();
        region.as_mut_bytes().unwrap()[0] = value;
        self.commit(region, value).unwrap()
    }

    fn take(&mut self) -> Option<u8> {
        let (region, value) = self.pop().unwrap()?;
        assert_eq!(region.as_bytes().unwrap(), [value]);
        self.release(region).unwrap();
        Some(value)
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Refused>) -> (Region, Refusal) {
    let Refused { region, refusal } = result.unwrap_err();
    (region, refusal)
}

// ---------------------------------------------------------------------------------------
// Random calls against a plain model

#[derive(Debug, Clone, Copy)]
enum Step {
    Acquire,
    Commit,
    DropAcquired,
    Pop,
    Release,
    DropPopped,
    Resize(usize),
    Rebind,
    Foreign,
}

fn policy() -> impl Strategy<Value = Overflow> {
    prop_oneof![Just(Overflow::DropNewest), Just(Overflow::DropOldest)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Acquire),
        8 => Just(Step::Commit),
        1 => Just(Step::DropAcquired),
        5 => Just(Step::Pop),
        5 => Just(Step::Release),
        1 => Just(Step::DropPopped),
        1 => (1_usize..6).prop_map(Step::Resize),
        1 => Just(Step::Rebind),
        1 => Just(Step::Foreign),
    ]
}

/// A ring, its model, and the regions that are out.
struct Run {
    node: Node,
    capacity: usize,
    overflow: Overflow,
    queued: VecDeque<u8>,
    /// The frame at the consumer: popped, and not released.
    popping: Option<u8>,
    acquired: Option<Region>,
    popped: Option<Region>,
    pushed: u64,
    released: u64,
    dropped: u64,
}

impl Run {
    fn new(capacity: usize, overflow: Overflow) -> Self {
        Self {
            node: Node::new(capacity, overflow),
            capacity,
            overflow,
            queued: VecDeque::new(),
            popping: None,
            acquired: None,
            popped: None,
            pushed: 0,
            released: 0,
            dropped: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Acquire => match (self.node.acquire(), &self.acquired) {
                (Ok(region), None) => self.acquired = Some(region),
                (Err(error), Some(_)) => assert_eq!(error, ContractError::WindowOut),
                (found, _) => panic!("{found:?}"),
            },
            Step::Commit => {
                let Some(mut region) = self.acquired.take() else {
                    return;
                };
                let value = u8::try_from(self.pushed % 251).unwrap();
                region.as_mut_bytes().unwrap()[0] = value;
                let dropped = self.node.commit(region, value).unwrap();
                self.pushed += 1;
                let expected = if self.queued.len() < self.capacity {
                    self.queued.push_back(value);
                    None
                } else if self.overflow == Overflow::DropNewest {
                    Some(value)
                } else {
                    self.queued.push_back(value);
                    self.queued.pop_front()
                };
                assert_eq!(dropped, expected);
                self.dropped += u64::from(expected.is_some());
            }
            Step::DropAcquired => self.acquired = None,
            Step::Pop => {
                let found = self.node.pop();
                if self.popped.is_some() {
                    assert_eq!(found.unwrap_err(), ContractError::WindowOut);
                    return;
                }
                let expected = self.popping.or_else(|| self.queued.pop_front());
                self.popping = expected;
                let found = found.unwrap();
                assert_eq!(found.as_ref().map(|(_, value)| *value), expected);
                self.popped = found.map(|(region, _)| region);
            }
            Step::Release => {
                let Some(region) = self.popped.take() else {
                    return;
                };
                let value = self.popping.take().unwrap();
                assert_eq!(region.as_bytes().unwrap(), [value]);
                self.node.release(region).unwrap();
                self.released += 1;
            }
            Step::DropPopped => self.popped = None,
            Step::Resize(capacity) => {
                let kept = self
                    .node
                    .ring
                    .resize(capacity, || Ok::<_, RingError>(region(1)))
                    .unwrap();
                assert_eq!(kept, self.queued.len() <= capacity);
                if kept {
                    self.capacity = capacity;
                }
            }
            Step::Rebind => {
                let sides = Sides::new();
                self.node.ring.rebind(&sides);
                let mut old = std::mem::replace(&mut self.node.sides, sides);
                assert!(self.node.ring.acquire(old.split().0).is_err());
            }
            Step::Foreign => {
                let mut others = Sides::new();
                let (producer, consumer) = others.split();
                let ring = &self.node.ring;
                assert!(ring.acquire(producer).is_err() && ring.pop(consumer).is_err());
                let (stray, why) = refusal(ring.commit(producer, region(1), 0));
                assert_eq!(why, Refusal::ForeignSide);
                let (stray, why) = refusal(ring.release(consumer, stray));
                assert_eq!(why, Refusal::ForeignSide);
                let (stray, why) = refusal(self.node.commit(stray, 0));
                assert_eq!(why, Refusal::ForeignWindow);
                assert_eq!(refusal(self.node.release(stray)).1, Refusal::ForeignWindow);
            }
        }
        self.check();
    }

    /// What must hold after every step.
    fn check(&mut self) {
        let ring = &mut self.node.ring;
        assert_eq!(ring.capacity(), self.capacity);
        assert_eq!(ring.filled(), self.queued.len());
        let there = self.queued.len() as u64 + u64::from(self.popping.is_some());
        assert_eq!(self.pushed, self.released + self.dropped + there, "SW2");
        let at = |side: &mut Option<Box<Place<u8>>>| usize::from(side.is_some());
        let places = ring.idle.len()
            + ring.filled.len()
            + at(ring.producer.get_mut())
            + at(ring.consumer.get_mut());
        assert_eq!(places, self.capacity + SwapRing::<u8>::SPARES, "SW1");
        if let (Some(region), Some(value)) = (&self.popped, self.popping) {
            assert_eq!(region.as_bytes().unwrap(), [value]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn sw2_what_was_pushed_was_popped_or_dropped_or_is_there(
        capacity in 1_usize..5,
        overflow in policy(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut run = Run::new(capacity, overflow);
        run.check();
        for step in steps {
            run.step(step);
        }
    }
}

// ---------------------------------------------------------------------------------------
// Each alone

#[test]
fn sw1_no_region_is_in_two_places() {
    let mut node = Node::new(2, Overflow::DropOldest);
    let popped = {
        node.push(1);
        node.pop().unwrap().unwrap().0
    };
    let mut seen = std::collections::BTreeSet::new();
    for value in 2..20 {
        let region = node.acquire().unwrap();
        assert_ne!(region.address(), popped.address());
        seen.insert(region.address().as_u64());
        node.commit(region, value).unwrap();
    }
    // Two filled, one going round with them; the fourth is popped.
    assert_eq!(seen.len(), 3);
    node.release(popped).unwrap();
}

#[test]
fn sw2_the_newest_or_the_oldest_is_dropped() {
    let run = |overflow, capacity| {
        let mut node = Node::new(capacity, overflow);
        let dropped: Vec<u8> = (0..5).filter_map(|value| node.push(value)).collect();
        let popped: Vec<u8> = std::iter::from_fn(|| node.take()).collect();
        (dropped, popped)
    };
    assert_eq!(run(Overflow::DropNewest, 3), (vec![3, 4], vec![0, 1, 2]));
    assert_eq!(run(Overflow::DropOldest, 3), (vec![0, 1], vec![2, 3, 4]));
    assert_eq!(run(Overflow::DropOldest, 1), (vec![0, 1, 2, 3], vec![4]));
}

#[test]
fn sw3_a_region_dropped_out_there_is_handed_out_again() {
    let mut node = Node::new(1, Overflow::DropOldest);
    let region = node.acquire().unwrap();
    let address = region.address();
    drop(region);
    assert_eq!(node.acquire().unwrap().address(), address);

    node.push(7);
    for _ in 0..3 {
        let (region, value) = node.pop().unwrap().unwrap();
        assert_eq!((region.as_bytes().unwrap(), value), (&[7_u8][..], 7));
    }
    // Also if there are newer ones by now: it was popped.
    node.push(8);
    assert_eq!(node.take(), Some(7));
    assert_eq!(node.take(), Some(8));
}

#[test]
fn sw3_only_the_region_that_is_out_comes_back() {
    let mut node = Node::new(1, Overflow::DropNewest);
    let acquired = node.acquire().unwrap();
    let (acquired, why) = refusal(node.release(acquired));
    assert_eq!(why, Refusal::ForeignWindow);
    let (_, why) = refusal(node.commit(region(1), 0));
    assert_eq!(why, Refusal::ForeignWindow);
    node.commit(acquired, 1).unwrap();

    let (mut popped, _) = node.pop().unwrap().unwrap();
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| {});
    popped.not_before(stream.record().unwrap());
    let (popped, why) = refusal(node.release(popped));
    assert_eq!(why, Refusal::InUse);
    assert_eq!(node.pop().unwrap_err(), ContractError::WindowOut);
    stream.synchronize().unwrap();
    node.release(popped).unwrap();
}

#[test]
fn sw4_the_producer_never_waits() {
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        for capacity in 1..4 {
            let mut node = Node::new(capacity, overflow);
            node.push(0);
            // With a region out at the consumer, and all filled.
            let popped = node.pop().unwrap();
            for value in 0..20 {
                node.push(value);
            }
            assert!(popped.is_some());
        }
    }
}

#[test]
fn sw5_in_steady_state_nothing_is_allocated() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let regions = (0..4).map(|_| {
        TaskBuffer::allocate(&memory, MemLoc::Host, 1)
            .unwrap()
            .into_region()
    });
    let sides = Sides::new();
    let ring = SwapRing::new(&sides, Overflow::DropOldest, regions).unwrap();
    let mut node = Node { sides, ring };
    let mut places = std::collections::BTreeSet::new();
    for turn in 0..100 {
        node.push(turn);
        if turn % 3 == 0 {
            node.take();
        }
        if let Some(place) = node.ring.producer.get_mut() {
            places.insert(std::ptr::from_ref(&**place).addr());
        }
    }
    assert!(places.len() <= 4, "boxes go round");
    assert_eq!(ledger.counts().allocations, 4);
    drop(node);
    assert_eq!(ledger.counts().live_blocks, 0);
}

#[test]
fn two_threads_lose_no_frame_unseen() {
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        let sides = Sides::new();
        let ring = SwapRing::<u32>::new(&sides, overflow, (0..5).map(|_| region(4))).unwrap();
        let (mut producer, mut consumer) = sides.into_parts();
        let count = if cfg!(miri) { 50 } else { 20_000_u32 };
        let pushing = crate::sync::atomic::AtomicBool::new(true);
        let (mut dropped, mut popped) = (0_u32, 0_u32);
        std::thread::scope(|scope| {
            let pushed = scope.spawn(|| {
                let mut dropped = 0;
                for number in 0..count {
                    let mut region = ring.acquire(&mut producer).unwrap().unwrap();
                    region.as_mut_slice::<u32>().unwrap()[0] = number;
                    let lost = ring.commit(&mut producer, region, number).unwrap();
                    dropped += u32::from(lost.is_some());
                }
                pushing.store(false, crate::sync::atomic::Ordering::Release);
                dropped
            });
            let mut last = None;
            loop {
                let going = pushing.load(crate::sync::atomic::Ordering::Acquire);
                let Some((region, number)) = ring.pop(&mut consumer).unwrap() else {
                    if going {
                        std::thread::yield_now();
                        continue;
                    }
                    break;
                };
                assert_eq!(region.as_slice::<u32>().unwrap(), [number]);
                assert!(last.is_none_or(|last| last < number));
                last = Some(number);
                ring.release(&mut consumer, region).unwrap();
                popped += 1;
            }
            dropped = pushed.join().unwrap();
            if overflow == Overflow::DropOldest {
                assert_eq!(last, Some(count - 1), "the newest always comes");
            }
        });
        assert_eq!(popped + dropped, count);
    }
}

#[test]
fn a_ring_of_too_few_regions_says_how_many_it_needs() {
    let sides = Sides::new();
    let error = SwapRing::<u8>::new(&sides, Overflow::DropNewest, (0..2).map(|_| region(1)));
    assert_eq!(
        error.unwrap_err().to_string(),
        "the ring has 2 regions, at least 3 are needed"
    );
    let shared = region(1).into_shared();
    let of_shared = (0..3).map(|_| shared.to_region());
    let error = SwapRing::<u8>::new(&sides, Overflow::DropNewest, of_shared);
    assert_eq!(error.unwrap_err(), RingError::Shared);
}

#[test]
fn a_ring_that_cannot_be_resized_has_not_changed() {
    let mut node = Node::new(1, Overflow::DropNewest);
    node.push(7);
    let error = node.ring.resize(4, || Err(RingError::InUse)).unwrap_err();
    assert_eq!(error, RingError::InUse);
    assert_eq!((node.ring.capacity(), node.ring.filled()), (1, 1));
    assert_eq!(node.push(8), Some(8));
    assert_eq!(node.take(), Some(7));
}
