//! Tests of the delay ring, by the numbers of the invariants in `delay_ring.rs` and of the
//! queue cases.

use proptest::prelude::*;

use super::*;
use crate::device::Stream;
use crate::memory::{HostProvider, Memory};
use crate::storage::{LentRegion, SharedRegion, TaskBuffer};
use crate::testkit::{FakeDevice, FakeStream, Ledger};

fn region(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .unwrap()
        .into_region()
}

fn layout(rows: usize, push_rows: usize, delay: usize) -> DelayLayout {
    DelayLayout {
        row_bytes: 1,
        rows,
        push_rows,
        delay,
    }
}

/// The ring and tokens of one node, driven from both sides.
struct Node {
    sides: Sides,
    ring: DelayRing,
}

impl Node {
    fn new(layout: DelayLayout) -> Self {
        let sides = Sides::new();
        let region = region(layout.bytes().unwrap());
        let ring = DelayRing::new(&sides, layout, region).unwrap();
        Self { sides, ring }
    }

    fn acquire(&mut self) -> Result<Option<Region>, ContractError> {
        self.ring.acquire(self.sides.split().0)
    }

    fn commit(&mut self, window: Region) -> Result<(), Refused> {
        self.ring.commit(self.sides.split().0, window)
    }

    fn pop(&mut self) -> Result<Option<DelayedPair>, ContractError> {
        self.ring.pop(self.sides.split().1)
    }

    fn release(&mut self, reader: DelayReader, window: Region) -> Result<(), Refused> {
        self.ring.release(self.sides.split().1, reader, window)
    }

    fn release_pair(&mut self, pair: DelayedPair) {
        self.release(Current, pair.current).unwrap();
        self.release(Delayed, pair.delayed).unwrap();
    }

    /// Pushes `push_rows` rows of one byte; `false` if there is no room.
    fn push(&mut self, rows: &[u8]) -> bool {
        let Some(mut window) = self.acquire().unwrap() else {
            return false;
        };
        window.as_mut_bytes().unwrap().copy_from_slice(rows);
        self.commit(window).unwrap();
        true
    }

    /// Pops and releases a pair: number, current and delayed row.
    fn take(&mut self) -> Option<(u64, u8, u8)> {
        let pair = self.pop().unwrap()?;
        let seen = (
            pair.number,
            pair.current.as_bytes().unwrap()[0],
            pair.delayed.as_bytes().unwrap()[0],
        );
        self.release_pair(pair);
        Some(seen)
    }

    /// Row at which a window begins.
    fn row_of(&self, window: &Region) -> usize {
        let bytes = window.address().as_u64() - self.ring.address().as_u64();
        usize::try_from(bytes).unwrap() / self.ring.layout().row_bytes
    }
}

use DelayReader::{Current, Delayed};

fn refusal(result: Result<(), Refused>) -> (Region, Refusal) {
    let Refused { region, refusal } = result.unwrap_err();
    (region, refusal)
}

/// A stream with one item of work to do.
fn busy_stream() -> Arc<FakeStream> {
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| {});
    stream
}

// ---------------------------------------------------------------------------------------
// Random calls against a plain model

#[derive(Debug, Clone, Copy)]
enum Step {
    Acquire,
    Commit,
    DropAcquired,
    Pop,
    Release(DelayReader),
    Drop(DelayReader),
    /// Clones a reader's region, which then cannot come back.
    Clone(DelayReader),
    DropClones,
    /// Gives a reader's window to the other reader.
    Swap,
    Rebind,
    Refill(usize),
    Foreign,
}

fn step() -> impl Strategy<Value = Step> {
    let reader = || prop_oneof![Just(Current), Just(Delayed)];
    prop_oneof![
        8 => Just(Step::Acquire),
        8 => Just(Step::Commit),
        1 => Just(Step::DropAcquired),
        8 => Just(Step::Pop),
        14 => reader().prop_map(Step::Release),
        1 => reader().prop_map(Step::Drop),
        1 => reader().prop_map(Step::Clone),
        1 => Just(Step::DropClones),
        1 => Just(Step::Swap),
        1 => Just(Step::Rebind),
        1 => (0_usize..9).prop_map(Step::Refill),
        1 => Just(Step::Foreign),
    ]
}

/// What the bytes of row `number` are.
fn content(number: u64, row_bytes: usize) -> Vec<u8> {
    (0..row_bytes)
        .map(|byte| u8::try_from((number * 7 + byte as u64 + 1) % 251).unwrap())
        .collect()
}

/// A ring, its model, and the windows that are out.
struct Run {
    node: Node,
    pushed: u64,
    /// Number of the current row.
    number: u64,
    /// Row where the producer's next window begins, and where row 0 would be.
    front: usize,
    acquired: Option<Region>,
    out: [Option<Region>; 2],
    /// Whether the window came back since the pair was popped.
    back: [bool; 2],
    clones: [Vec<SharedRegion>; 2],
}

impl Run {
    fn new(layout: DelayLayout) -> Self {
        Self {
            node: Node::new(layout),
            pushed: 0,
            number: 0,
            front: 0,
            acquired: None,
            out: [None, None],
            back: [false, false],
            clones: [vec![], vec![]],
        }
    }

    /// Number of the oldest row that is kept.
    fn oldest(&self) -> u64 {
        let delay = self.node.ring.layout().delay as u64;
        self.number.saturating_sub(delay)
    }

    fn kept(&self) -> usize {
        usize::try_from(self.pushed - self.oldest()).unwrap()
    }

    fn is_out(&self, reader: usize) -> bool {
        self.out[reader].is_some() || !self.clones[reader].is_empty()
    }

    fn step(&mut self, step: Step) {
        let layout = self.node.ring.layout();
        match step {
            Step::Acquire => {
                let found = self.node.acquire();
                if self.acquired.is_some() {
                    assert_eq!(found.unwrap_err(), ContractError::WindowOut);
                    return;
                }
                let free = layout.rows - self.kept();
                let Some(mut window) = found.unwrap() else {
                    assert!(free <= layout.push_rows);
                    return;
                };
                assert!(free > layout.push_rows, "DR-07");
                assert_eq!(self.node.row_of(&window), self.front);
                let bytes = window.as_mut_bytes().unwrap();
                for (row, to) in bytes.chunks_exact_mut(layout.row_bytes).enumerate() {
                    to.copy_from_slice(&content(self.pushed + row as u64, layout.row_bytes));
                }
                self.acquired = Some(window);
            }
            Step::Commit => {
                let Some(window) = self.acquired.take() else {
                    return;
                };
                self.node.commit(window).unwrap();
                self.pushed += layout.push_rows as u64;
                self.front = (self.front + layout.push_rows) % layout.rows;
            }
            Step::DropAcquired => self.acquired = None,
            Step::Pop => self.pop(),
            Step::Release(reader) => self.release(reader),
            Step::Drop(reader) => self.out[reader as usize] = None,
            Step::Clone(reader) => {
                let reader = reader as usize;
                if let Some(region) = self.out[reader].take() {
                    let shared = region.into_shared();
                    let shared = shared.try_into_unique().unwrap_err();
                    self.out[reader] = Some(shared.to_region());
                    self.clones[reader].push(shared);
                }
            }
            Step::DropClones => self.clones = [vec![], vec![]],
            Step::Swap => {
                if let Some(region) = self.out[0].take() {
                    let (region, why) = refusal(self.node.release(Delayed, region));
                    assert_eq!(why, Refusal::ForeignWindow);
                    let (region, why) = refusal(self.node.commit(region));
                    assert_eq!(why, Refusal::ForeignWindow);
                    self.out[0] = Some(region);
                }
            }
            Step::Rebind => {
                let sides = Sides::new();
                self.node.ring.rebind(&sides);
                let mut old = std::mem::replace(&mut self.node.sides, sides);
                assert!(self.node.ring.acquire(old.split().0).is_err());
            }
            Step::Refill(target) => self.refill(target),
            Step::Foreign => {
                let mut others = Sides::new();
                let (producer, consumer) = others.split();
                let ring = &self.node.ring;
                assert!(ring.acquire(producer).is_err() && ring.pop(consumer).is_err());
                let (stray, why) = refusal(ring.commit(producer, region(1)));
                assert_eq!(why, Refusal::ForeignSide);
                let (stray, why) = refusal(ring.release(consumer, Current, stray));
                assert_eq!(why, Refusal::ForeignSide);
                let (stray, why) = refusal(self.node.release(Current, stray));
                assert_eq!(why, Refusal::ForeignWindow);
                let (_, why) = refusal(self.node.commit(stray));
                assert_eq!(why, Refusal::ForeignWindow);
            }
        }
        self.check();
    }

    fn pop(&mut self) {
        let layout = self.node.ring.layout();
        let out = self.is_out(0) || self.is_out(1);
        let left = self.pushed - self.number - u64::from(out);
        let found = self.node.pop();
        if left == 0 {
            assert!(found.unwrap().is_none(), "DR-05: before anything else");
            return;
        }
        if out {
            assert_eq!(found.unwrap_err(), ContractError::WindowOut);
            return;
        }
        let pair = found.unwrap().unwrap();
        assert_eq!(pair.number, self.number);
        let zeros = self.number < layout.delay as u64;
        assert_eq!(
            self.node.row_of(&pair.delayed) == layout.rows,
            zeros,
            "the row behind the ring"
        );
        if layout.delay == 0 {
            assert_eq!(pair.current.address(), pair.delayed.address());
        }
        self.out = [Some(pair.current), Some(pair.delayed)];
        self.back = [false, false];
    }

    fn release(&mut self, reader: DelayReader) {
        let index = reader as usize;
        let Some(region) = self.out[index].take() else {
            return;
        };
        if !self.clones[index].is_empty() {
            let (region, why) = refusal(self.node.release(reader, region));
            assert_eq!(why, Refusal::StillShared);
            self.out[index] = Some(region);
            return;
        }
        self.node.release(reader, region).unwrap();
        self.back[index] = true;
        if self.back == [true, true] {
            self.back = [false, false];
            self.number += 1;
        }
    }

    fn refill(&mut self, target: usize) {
        let layout = self.node.ring.layout();
        let next = DelayLayout::holding(target, layout.row_bytes, layout.push_rows, layout.delay);
        let next = next.unwrap();
        let bytes = next.bytes().unwrap();
        let mut ring = DelayRing::new(&self.node.sides, next, region(bytes)).unwrap();
        let kept = ring
            .refill(&mut self.node.ring, |from, to| {
                assert_eq!(from.len(), to.len());
                to.as_mut_bytes()
                    .unwrap()
                    .copy_from_slice(from.as_bytes().unwrap());
                Ok::<_, Refused>(())
            })
            .unwrap();
        let out = self.is_out(0) || self.is_out(1);
        assert_eq!(kept, self.kept() <= next.rows && !out);
        if kept {
            let start = (self.front + layout.rows - self.kept() % layout.rows) % layout.rows;
            self.front = (start % layout.push_rows + self.kept()) % next.rows;
            self.node.ring = ring;
            self.acquired = None;
            self.back = [false, false];
        } else {
            assert_eq!(ring.left(), 0);
        }
    }

    /// What must hold after every step.
    fn check(&mut self) {
        let layout = self.node.ring.layout();
        let left = usize::try_from(self.pushed - self.number).unwrap();
        assert_eq!(self.node.ring.left(), left);

        // DL1: the producer's window meets no reader's.
        let start = self.node.ring.address().as_u64();
        let range = |region: &Region| {
            let from = region.address().as_u64();
            (from, from + region.len() as u64)
        };
        let end = start + layout.bytes().unwrap() as u64;
        for reader in self.out.iter().flatten() {
            let (from, to) = range(reader);
            assert!(start <= from && to <= end);
            if let Some(written) = &self.acquired {
                let (first, last) = range(written);
                assert!(to <= first || last <= from, "{reader:?} {written:?}");
            }
        }
        // What is read is what was pushed, now and later, or zero.
        let row = |number: u64| content(number, layout.row_bytes);
        if let Some(current) = &self.out[0] {
            assert_eq!(current.as_bytes().unwrap(), row(self.number));
        }
        if let Some(delayed) = &self.out[1] {
            let expected = match self.number.checked_sub(layout.delay as u64) {
                Some(number) => row(number),
                None => vec![0; layout.row_bytes],
            };
            assert_eq!(delayed.as_bytes().unwrap(), expected);
        }
        // DL2
        for reader in self.out.iter_mut().flatten() {
            assert!(reader.as_mut_bytes().is_err());
        }
    }

    /// Gives everything back and drains: no row is lost, and nothing is stuck.
    fn drain(mut self) {
        let rows = self.node.ring.layout().rows;
        self.step(Step::DropClones);
        self.step(Step::DropAcquired);
        self.step(Step::Release(Current));
        self.step(Step::Release(Delayed));
        let before = self.number;
        for _ in 0..2 * rows {
            self.step(Step::Acquire);
            self.step(Step::Commit);
            for _ in 0..rows {
                self.step(Step::Pop);
                self.step(Step::Release(Delayed));
                self.step(Step::Release(Current));
            }
            assert_eq!(self.number, self.pushed);
        }
        assert!(self.number > before + rows as u64);
    }
}

fn any_layout() -> impl Strategy<Value = DelayLayout> {
    (1_usize..3, 1_usize..4, 0_usize..4, 0_usize..6).prop_map(
        |(row_bytes, push_rows, delay, target)| {
            DelayLayout::holding(target, row_bytes, push_rows, delay).unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn dl1_the_producer_never_has_what_a_reader_needs(
        layout in any_layout(),
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut run = Run::new(layout);
        run.check();
        for step in steps {
            run.step(step);
        }
        run.drain();
    }
}

// ---------------------------------------------------------------------------------------
// Each alone

#[test]
fn dl1_rows_that_the_delayed_reader_needs_are_not_free() {
    let mut node = Node::new(layout(5, 1, 2));
    for row in 1..=4 {
        assert!(node.push(&[row]));
    }
    assert!(!node.push(&[5]), "a row is always left free");
    // The first two rows are current and gone, but needed again.
    assert_eq!(node.take(), Some((0, 1, 0)));
    assert_eq!(node.take(), Some((1, 2, 0)));
    assert!(!node.push(&[5]));
    assert_eq!(node.take(), Some((2, 3, 1)));
    assert!(node.push(&[5]));
    assert!(!node.push(&[6]));
    assert_eq!(node.take(), Some((3, 4, 2)));
}

#[test]
fn dl2_no_way_leads_from_a_reader_to_a_writer() {
    let mut node = Node::new(layout(4, 1, 0));
    assert!(node.push(&[7]));
    let DelayedPair {
        current, delayed, ..
    } = node.pop().unwrap().unwrap();
    // Both are the same row.
    assert_eq!(current.address(), delayed.address());
    for mut region in [current, delayed] {
        assert!(region.is_shared());
        assert!(region.as_mut_bytes().is_err());
        let (mut head, mut tail) = region.split_at(0).unwrap();
        assert!(head.as_mut_bytes().is_err() && tail.as_mut_bytes().is_err());
        drop(head);
        let shared = tail.into_shared();
        // It is the only one, and still not to be had.
        let shared = shared.try_into_unique().unwrap_err();
        let again = shared.to_region().into_shared();
        drop(shared);
        let shared = again.try_into_unique().unwrap_err();
        assert_eq!(
            LentRegion::new(shared.to_region()).unwrap_err(),
            RingError::Shared
        );
        assert_eq!(shared.to_region().as_bytes().unwrap(), [7]);
    }
    assert_eq!(node.take(), Some((0, 7, 7)), "both were dropped");
}

#[test]
fn dl3_the_windows_come_back_in_either_order_and_whole() {
    let mut node = Node::new(layout(8, 1, 1));
    for row in 1..=4 {
        assert!(node.push(&[row]));
    }
    let pair = node.pop().unwrap().unwrap();
    node.release(Delayed, pair.delayed).unwrap();
    assert_eq!(node.pop().unwrap_err(), ContractError::WindowOut);
    node.release(Current, pair.current).unwrap();

    let pair = node.pop().unwrap().unwrap();
    assert_eq!(pair.number, 1);
    node.release(Current, pair.current).unwrap();
    let (whole, rest) = pair.delayed.split_at(1).unwrap();
    let (whole, why) = refusal(node.release(Delayed, whole));
    assert_eq!(why, Refusal::StillShared);
    drop(rest);
    node.release(Delayed, whole).unwrap();
    assert_eq!(node.take(), Some((2, 3, 2)));

    // Nothing is out: nothing comes back.
    let pair = node.pop().unwrap().unwrap();
    node.release_pair(pair);
    let (stray, why) = refusal(node.release(Current, region(1)));
    assert_eq!(why, Refusal::ForeignWindow);
    assert_eq!(
        refusal(node.release(Delayed, stray)).1,
        Refusal::ForeignWindow
    );
}

#[test]
fn dl3_work_that_another_holder_left_is_waited_for() {
    let mut node = Node::new(layout(4, 1, 0));
    assert!(node.push(&[7]));
    let pair = node.pop().unwrap().unwrap();
    let shared = pair.current.into_shared();
    let mut reader = shared.to_region();
    let last = shared.to_region();
    let stream = busy_stream();
    reader.not_before(stream.record().unwrap());
    drop((reader, shared));
    // It is alone, and idle; but the other one's work goes on.
    let (last, why) = refusal(node.release(Current, last));
    assert_eq!(why, Refusal::InUse);
    stream.synchronize().unwrap();
    node.release(Current, last).unwrap();
    node.release(Delayed, pair.delayed).unwrap();
}

#[test]
fn dl4_a_pair_of_which_a_window_was_dropped_is_handed_out_again() {
    let mut node = Node::new(layout(8, 1, 1));
    assert!(node.push(&[1]) && node.push(&[2]));
    assert_eq!(node.take(), Some((0, 1, 0)));
    for turn in 0..3 {
        let pair = node.pop().unwrap().unwrap();
        assert_eq!(pair.number, 1);
        match turn {
            0 => drop(pair),
            1 => node.release(Current, pair.current).unwrap(),
            _ => node.release(Delayed, pair.delayed).unwrap(),
        }
    }
    assert_eq!(node.take(), Some((1, 2, 1)));
}

#[test]
fn dl5_windows_go_out_and_come_back_with_the_same_keepers() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let sides = Sides::new();
    let buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 6).unwrap();
    let ring = DelayRing::new(&sides, layout(5, 1, 2), buffer.into_region()).unwrap();
    let mut node = Node { sides, ring };
    let keepers = |node: &mut Node| {
        let front = node.ring.producer.get_mut();
        let back = node.ring.consumer.get_mut();
        [&front.window, &back.current.window, &back.delayed.window].map(|window| window.keeper)
    };
    let before = keepers(&mut node);
    for turn in 0..50 {
        assert!(node.push(&[turn]));
        assert!(node.take().is_some());
    }
    assert_eq!(keepers(&mut node), before);
    assert_eq!(ledger.counts().allocations, 1);
    // What outlives the ring keeps its region.
    assert!(node.push(&[7]));
    let pair = node.pop().unwrap().unwrap();
    drop(node);
    assert_eq!(ledger.counts().live_blocks, 1);
    assert_eq!(pair.current.as_bytes().unwrap(), [7]);
    drop(pair);
    assert_eq!(ledger.counts().live_blocks, 0);
}

#[test]
fn dl6_the_row_of_zeros_lies_behind_the_ring() {
    let mut node = Node::new(layout(8, 2, 3));
    for turn in 0..3 {
        assert!(node.push(&[9, 9]));
        let pair = node.pop().unwrap().unwrap();
        assert_eq!(node.row_of(&pair.delayed), 8, "{turn}");
        assert_eq!(pair.delayed.as_bytes().unwrap(), [0]);
        node.release_pair(pair);
    }
    let pair = node.pop().unwrap().unwrap();
    assert_eq!(node.row_of(&pair.delayed), 0);
}

#[test]
fn dr_02_pairs_are_apart_by_the_delay() {
    let mut node = Node::new(DelayLayout::holding(4, 1, 2, 1).unwrap());
    let mut seen = vec![];
    for row in (10..22).step_by(2) {
        assert!(node.push(&[row, row + 1]));
        seen.extend(std::iter::from_fn(|| node.take()));
    }
    let expected: Vec<(u64, u8, u8)> = (0..12)
        .map(|n| (u64::from(n), 10 + n, if n == 0 { 0 } else { 9 + n }))
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn dr_05_no_row_left_comes_before_not_released() {
    let mut node = Node::new(layout(6, 1, 1));
    assert!(node.push(&[1]));
    let pair = node.pop().unwrap().unwrap();
    assert!(node.pop().unwrap().is_none(), "no other row is left");
    assert!(node.push(&[2]));
    assert_eq!(node.pop().unwrap_err(), ContractError::WindowOut);
    node.release_pair(pair);
    assert_eq!(node.take(), Some((1, 2, 1)));
}

#[test]
fn counts_that_wrap_are_compared_rightly() {
    let mut node = Node::new(layout(6, 1, 2));
    let start = usize::MAX - 5;
    let (front, back) = (node.ring.producer.get_mut(), node.ring.consumer.get_mut());
    (front.pushed, front.seen) = (start, start);
    (back.passed, back.freed, back.seen) = (start, start, start);
    node.ring.pushed.store(start, Ordering::Release);
    node.ring.freed.store(start, Ordering::Release);
    for turn in 1..30 {
        assert!(node.push(&[turn]));
        assert_eq!(node.ring.left(), 1);
        let before = turn.saturating_sub(2);
        assert_eq!(node.take(), Some((u64::from(turn) - 1, turn, before)));
    }
}

#[test]
fn a_ring_is_filled_anew_from_one_that_differs_in_rows_only() {
    let mut old = Node::new(layout(6, 1, 2));
    assert!(old.push(&[1]));
    let mut refilled = |layout: DelayLayout, filled: bool| {
        let mut new = Node::new(layout);
        assert!(!filled || new.push(&vec![0; layout.push_rows]));
        new.ring
            .refill(&mut old.ring, |_, _| Ok::<_, Refused>(()))
            .unwrap()
    };
    assert!(!refilled(layout(6, 2, 2), false));
    assert!(!refilled(layout(6, 1, 1), false));
    let wider = DelayLayout {
        row_bytes: 2,
        ..layout(6, 1, 2)
    };
    assert!(!refilled(wider, false));
    assert!(!refilled(layout(8, 1, 2), true), "it is not new");
    assert!(refilled(layout(8, 1, 2), false));
}

#[test]
fn two_threads_read_every_row_twice() {
    let sides = Sides::new();
    let layout = DelayLayout::holding(5, 8, 2, 3).unwrap();
    let ring = DelayRing::new(&sides, layout, region(layout.bytes().unwrap())).unwrap();
    let (mut producer, mut consumer) = sides.into_parts();
    let rows = if cfg!(miri) { 40 } else { 20_000_u64 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for row in (0..rows).step_by(2) {
                let mut window = loop {
                    match ring.acquire(&mut producer).unwrap() {
                        Some(window) => break window,
                        None => std::thread::yield_now(),
                    }
                };
                let values = window.as_mut_slice::<u64>().unwrap();
                values.copy_from_slice(&[row + 1, row + 2]);
                ring.commit(&mut producer, window).unwrap();
            }
        });
        for row in 0..rows {
            let pair = loop {
                match ring.pop(&mut consumer).unwrap() {
                    Some(pair) => break pair,
                    None => std::thread::yield_now(),
                }
            };
            let value = |region: &Region| region.as_slice::<u64>().unwrap()[0];
            assert_eq!(value(&pair.current), row + 1);
            assert_eq!(value(&pair.delayed), (row + 1).saturating_sub(3));
            ring.release(&mut consumer, Current, pair.current).unwrap();
            ring.release(&mut consumer, Delayed, pair.delayed).unwrap();
        }
    });
}

#[test]
fn a_ring_that_cannot_be_says_why() {
    let sides = Sides::new();
    let message = |layout: DelayLayout, bytes: usize| {
        DelayRing::new(&sides, layout, region(bytes))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message(layout(4, 0, 1), 5),
        "push_rows is 0, at least 1 is needed"
    );
    assert_eq!(
        message(layout(5, 2, 1), 6),
        "rows is 5, which is no multiple of push_rows, 2"
    );
    assert_eq!(
        message(layout(4, 2, 2), 5),
        "rows is 4, more than delay and push_rows together are needed, 4"
    );
    assert_eq!(
        message(layout(4, 2, 1), 4),
        "the ring needs 5 bytes, the region has 4"
    );
    assert_eq!(DelayLayout::holding(usize::MAX, 1, 1, 0), None);
    assert_eq!(DelayLayout::holding(1, 1, 0, 0), None);
    let shared = region(5).into_shared();
    let error = DelayRing::new(&sides, layout(4, 2, 1), shared.to_region()).unwrap_err();
    assert_eq!(error, RingError::Shared);
}
