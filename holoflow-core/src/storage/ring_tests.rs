//! Tests of rings and region slots, by the numbers of the invariants in `ring.rs` and of the
//! queue cases.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::device::Stream;
use crate::memory::{HostProvider, Memory};
use crate::storage::{SharedRegion, TaskBuffer};
use crate::sync::atomic::AtomicBool;
use crate::testkit::{FakeDevice, FakeStream, Ledger};

fn region(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .unwrap()
        .into_region()
}

/// The layout of a queue: `rows_for` rows of one byte.
fn queue(target: usize, push_rows: usize, pop_rows: usize, pop_stride: usize) -> RingLayout {
    let n = |value| NonZeroUsize::new(value).unwrap();
    RingLayout {
        row_bytes: 1,
        rows: rows_for(target, n(push_rows), n(pop_stride)).unwrap(),
        push_rows,
        pop_rows,
        pop_stride,
    }
}

/// The ring and tokens of one node, driven from both sides.
struct Node {
    sides: Sides,
    ring: SlotRing,
}

impl Node {
    fn new(layout: RingLayout) -> Self {
        let sides = Sides::new();
        let region = region(layout.bytes().unwrap());
        let ring = SlotRing::new(&sides, layout, region).unwrap();
        Self { sides, ring }
    }

    fn acquire(&mut self) -> Result<Option<Region>, ContractError> {
        self.ring.acquire(self.sides.split().0)
    }

    fn commit(&mut self, window: Region) -> Result<(), Refused> {
        self.ring.commit(self.sides.split().0, window)
    }

    fn pop(&mut self) -> Result<Option<Region>, ContractError> {
        self.ring.pop(self.sides.split().1)
    }

    fn release(&mut self, window: Region) -> Result<(), Refused> {
        self.ring.release(self.sides.split().1, window)
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

    /// Pops and releases one window.
    fn take(&mut self) -> Option<Vec<u8>> {
        let window = self.pop().unwrap()?;
        let rows = window.as_bytes().unwrap().to_vec();
        self.release(window).unwrap();
        Some(rows)
    }

    /// Row at which a window begins.
    fn row_of(&self, window: &Region) -> usize {
        let bytes = window.address().as_u64() - self.ring.address().as_u64();
        usize::try_from(bytes).unwrap() / self.ring.layout().row_bytes
    }
}

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

/// What a side's window has become outside the ring.
#[derive(Debug)]
enum Out {
    In,
    Whole(Region),
    /// Split: the pieces that still live.
    Pieces(Vec<Region>),
    Shared(SharedRegion, Vec<Region>),
}

impl Out {
    fn is_in(&self) -> bool {
        matches!(self, Self::In)
    }

    /// The bytes that live regions have, as ranges of addresses, and whether they are shared.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let regions: Vec<&Region> = match self {
            Self::In => vec![],
            Self::Whole(region) => vec![region],
            Self::Pieces(pieces) => pieces.iter().collect(),
            // Readers of a shared region have its bytes in common.
            Self::Shared(_, readers) => readers.iter().take(1).collect(),
        };
        regions
            .into_iter()
            .map(|region| {
                let start = region.address().as_u64();
                (start, start + region.len() as u64)
            })
            .collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Takes the next window.
    Take,
    /// Takes the last rows, which are too few for a window.
    TakeShort,
    /// Begins a new stream.
    Realign,
    /// Puts a ring of another size in the place of this one.
    Refill(usize),
    /// Gives the window back.
    Give,
    /// Drops it, or one of its pieces.
    Drop,
    /// Splits it, or a piece.
    Split(usize),
    /// Gives a piece of it back.
    GivePiece,
    /// Shares it with two readers.
    Share,
    /// Gives the region of a reader back.
    GiveReader,
    /// Takes it back from its readers.
    Unshare,
    /// Gives a region back that is not of this ring.
    GiveForeign,
    /// Gives the window to the other side.
    GiveAcross,
    /// Calls with the token of another node.
    CallForeign,
    /// Gives the ring to another node.
    Rebind,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Take),
        8 => Just(Step::Give),
        2 => Just(Step::TakeShort),
        2 => Just(Step::Realign),
        1 => (0_usize..14).prop_map(Step::Refill),
        2 => Just(Step::Drop),
        1 => (0_usize..20).prop_map(Step::Split),
        1 => Just(Step::GivePiece),
        1 => Just(Step::Share),
        1 => Just(Step::GiveReader),
        2 => Just(Step::Unshare),
        1 => Just(Step::GiveForeign),
        1 => Just(Step::GiveAcross),
        1 => Just(Step::CallForeign),
        1 => Just(Step::Rebind),
    ]
}

fn any_layout() -> impl Strategy<Value = RingLayout> {
    (
        1_usize..4,
        1_usize..6,
        1_usize..4,
        1_usize..4,
        0_usize..14,
        0_usize..3,
    )
        .prop_map(|(row_bytes, push_rows, pop_rows, skip, target, spare)| {
            let pop_stride = pop_rows * skip;
            let tight = queue(target, push_rows, pop_rows, pop_stride);
            // A ring may be larger than `rows_for` says, by whole units.
            let unit = queue(0, push_rows, pop_rows, pop_stride).rows;
            RingLayout {
                row_bytes,
                rows: tight.rows + spare * unit,
                ..tight
            }
        })
}

/// A ring, its model, and the windows that are out.
struct Run {
    node: Node,
    /// Numbers of the rows filled and not released.
    filled: VecDeque<usize>,
    /// Rows committed and released since the beginning.
    pushed: usize,
    released: usize,
    /// Rows where the next windows begin.
    front: usize,
    back: usize,
    /// Rows that the window of the consumer frees, if they are fewer than a stride.
    short: Option<usize>,
    uneven: bool,
    producer: Out,
    consumer: Out,
}

/// What the bytes of row `number` are.
fn content(number: usize, row_bytes: usize) -> Vec<u8> {
    (0..row_bytes)
        .map(|byte| u8::try_from((number * 7 + byte) % 251).unwrap())
        .collect()
}

impl Run {
    fn new(layout: RingLayout) -> Self {
        Self {
            node: Node::new(layout),
            filled: VecDeque::new(),
            pushed: 0,
            released: 0,
            front: 0,
            back: 0,
            short: None,
            uneven: false,
            producer: Out::In,
            consumer: Out::In,
        }
    }

    fn out(&mut self, push: bool) -> &mut Out {
        if push {
            &mut self.producer
        } else {
            &mut self.consumer
        }
    }

    fn give(&mut self, push: bool, window: Region) -> Result<(), Refused> {
        if push {
            self.node.commit(window)
        } else {
            self.node.release(window)
        }
    }

    fn step(&mut self, push: bool, step: Step) {
        match step {
            Step::Take if push => self.acquire(),
            Step::Take => self.pop(),
            Step::TakeShort => self.pop_short(),
            Step::Realign => self.realign(),
            Step::Refill(target) => self.refill(target),
            Step::Give => self.give_back(push),
            Step::Drop => match self.out(push) {
                Out::Pieces(pieces) if pieces.len() > 1 => drop(pieces.remove(0)),
                out => *out = Out::In,
            },
            Step::Split(at) => self.split(push, at),
            Step::GivePiece => self.give_piece(push),
            Step::Share => {
                let out = self.out(push);
                *out = match std::mem::replace(out, Out::In) {
                    Out::Whole(region) => {
                        let shared = region.into_shared();
                        let readers = vec![shared.to_region(), shared.to_region()];
                        Out::Shared(shared, readers)
                    }
                    other => other,
                };
            }
            Step::GiveReader => {
                if let Out::Shared(_, readers) = self.out(push)
                    && let Some(reader) = readers.pop()
                {
                    let (reader, refusal) = refusal(self.give(push, reader));
                    assert_eq!(refusal, Refusal::ForeignWindow);
                    drop(reader);
                }
            }
            Step::Unshare => {
                let out = self.out(push);
                *out = match std::mem::replace(out, Out::In) {
                    Out::Shared(shared, readers) => {
                        let shared = shared.try_into_unique().unwrap_or_else(|shared| {
                            assert!(!readers.is_empty());
                            drop(readers);
                            shared.try_into_unique().unwrap()
                        });
                        Out::Whole(shared)
                    }
                    other => other,
                };
            }
            Step::GiveForeign => {
                let foreign = region(self.node.ring.layout().bytes().unwrap());
                let (_, refusal) = refusal(self.give(push, foreign));
                assert_eq!(refusal, Refusal::ForeignWindow);
            }
            Step::GiveAcross => {
                let out = self.out(push);
                if let Out::Whole(window) = std::mem::replace(out, Out::In) {
                    let (window, refusal) = refusal(self.give(!push, window));
                    assert_eq!(refusal, Refusal::ForeignWindow);
                    *self.out(push) = Out::Whole(window);
                }
            }
            Step::CallForeign => {
                let mut others = Sides::new();
                let (producer, consumer) = others.split();
                let ring = &self.node.ring;
                let foreign = ContractError::ForeignSide;
                assert_eq!(ring.acquire(producer).unwrap_err(), foreign);
                assert_eq!(ring.pop(consumer).unwrap_err(), foreign);
            }
            Step::Rebind => {
                let sides = Sides::new();
                self.node.ring.rebind(&sides);
                let mut old = std::mem::replace(&mut self.node.sides, sides);
                assert!(self.node.ring.acquire(old.split().0).is_err());
            }
        }
        self.check();
    }

    fn acquire(&mut self) {
        let layout = self.node.ring.layout();
        let found = self.node.acquire();
        if !self.producer.is_in() {
            assert_eq!(found.unwrap_err(), ContractError::WindowOut);
            return;
        }
        let Some(mut window) = found.unwrap() else {
            assert!(layout.rows - self.filled.len() < layout.push_rows);
            return;
        };
        assert!(layout.rows - self.filled.len() >= layout.push_rows);
        assert_eq!(window.len(), layout.push_rows * layout.row_bytes);
        assert_eq!(self.node.row_of(&window), self.front);
        let bytes = window.as_mut_bytes().unwrap();
        for (row, to) in bytes.chunks_exact_mut(layout.row_bytes).enumerate() {
            to.copy_from_slice(&content(self.pushed + row, layout.row_bytes));
        }
        self.producer = Out::Whole(window);
    }

    fn pop(&mut self) {
        let layout = self.node.ring.layout();
        let found = self.node.pop();
        if !self.consumer.is_in() {
            assert_eq!(found.unwrap_err(), ContractError::WindowOut);
            return;
        }
        let Some(window) = found.unwrap() else {
            assert!(self.uneven || self.filled.len() < layout.pop_stride);
            return;
        };
        assert!(!self.uneven && self.filled.len() >= layout.pop_stride);
        assert_eq!(window.len(), layout.pop_rows * layout.row_bytes);
        assert_eq!(self.node.row_of(&window), self.back);
        self.short = None;
        self.consumer = Out::Whole(window);
    }

    fn pop_short(&mut self) {
        let layout = self.node.ring.layout();
        let found = self.node.ring.pop_short(self.node.sides.split().1);
        if !self.consumer.is_in() {
            assert_eq!(found.unwrap_err(), ContractError::WindowOut);
            return;
        }
        let filled = self.filled.len();
        let Some((window, rows)) = found.unwrap() else {
            assert!(self.uneven || filled == 0 || filled >= layout.pop_stride);
            return;
        };
        assert!(!self.uneven);
        assert_eq!(rows, filled);
        assert_eq!(window.len(), rows.min(layout.pop_rows) * layout.row_bytes);
        assert_eq!(self.node.row_of(&window), self.back);
        self.short = Some(rows);
        self.consumer = Out::Whole(window);
    }

    fn realign(&mut self) {
        let (producer, consumer) = self.node.sides.split();
        let found = self.node.ring.realign(producer, consumer);
        if !self.uneven {
            assert_eq!(found, Ok(0));
        } else if !self.producer.is_in() || !self.consumer.is_in() {
            assert_eq!(found, Err(ContractError::WindowOut));
        } else {
            assert_eq!(found, Ok(self.filled.len()));
            self.filled.clear();
            self.released = self.pushed;
            (self.front, self.back) = (0, 0);
            self.uneven = false;
        }
    }

    fn refill(&mut self, target: usize) {
        let layout = self.node.ring.layout();
        let n = |value| NonZeroUsize::new(value).unwrap();
        let rows = rows_for(target, n(layout.push_rows), n(layout.pop_stride)).unwrap();
        let next = RingLayout { rows, ..layout };
        let bytes = next.bytes().unwrap();
        let mut ring = SlotRing::new(&self.node.sides, next, region(bytes)).unwrap();
        let kept = ring
            .refill(&mut self.node.ring, |from, to| {
                assert_eq!(from.len(), to.len());
                let from = from.as_bytes().unwrap();
                to.as_mut_bytes().unwrap().copy_from_slice(from);
                Ok::<_, Refused>(())
            })
            .unwrap();
        let fits = self.filled.len() <= rows && (!self.uneven || self.filled.is_empty());
        assert_eq!(kept, fits && self.consumer.is_in());
        if !kept {
            assert_eq!(ring.filled(), 0);
            return;
        }
        // The windows of the old ring are nobody's any more.
        self.node.ring = ring;
        (self.producer, self.consumer) = (Out::In, Out::In);
        let unit = queue(0, layout.push_rows, 1, layout.pop_stride).rows;
        let unit = (1..=unit)
            .find(|unit| unit % layout.push_rows == 0 && unit % layout.pop_stride == 0)
            .unwrap();
        self.back = if self.filled.is_empty() {
            0
        } else {
            self.back % unit
        };
        self.front = (self.back + self.filled.len()) % rows;
        self.uneven = false;
    }

    fn give_back(&mut self, push: bool) {
        let layout = self.node.ring.layout();
        let out = self.out(push);
        let Out::Whole(window) = std::mem::replace(out, Out::In) else {
            return;
        };
        // A whole window that is out is always taken.
        self.give(push, window).unwrap();
        if push {
            for row in 0..layout.push_rows {
                self.filled.push_back(self.pushed + row);
            }
            self.pushed += layout.push_rows;
            self.front = (self.front + layout.push_rows) % layout.rows;
        } else {
            let step = self.short.unwrap_or(layout.pop_stride);
            self.uneven |= self.short.take().is_some();
            drop(self.filled.drain(..step));
            self.released += step;
            self.back = (self.back + step) % layout.rows;
        }
    }

    fn split(&mut self, push: bool, at: usize) {
        let out = self.out(push);
        *out = match std::mem::replace(out, Out::In) {
            Out::Whole(region) if region.len() > 1 => {
                // Neither piece is empty, so neither is the window.
                let at = 1 + at % (region.len() - 1);
                let (head, tail) = region.split_at(at).unwrap();
                Out::Pieces(vec![head, tail])
            }
            Out::Pieces(mut pieces) => {
                let last = pieces.pop().unwrap();
                let at = at % (last.len() + 1);
                let (head, tail) = last.split_at(at).unwrap();
                pieces.extend([head, tail]);
                Out::Pieces(pieces)
            }
            other => other,
        };
    }

    fn give_piece(&mut self, push: bool) {
        let Out::Pieces(pieces) = self.out(push) else {
            return;
        };
        let piece = pieces.remove(0);
        let (piece, refusal) = refusal(self.give(push, piece));
        assert_eq!(refusal, Refusal::ForeignWindow);
        let Out::Pieces(pieces) = self.out(push) else {
            unreachable!("giving back changes nothing here");
        };
        pieces.insert(0, piece);
    }

    /// What must hold after every step.
    fn check(&mut self) {
        let layout = self.node.ring.layout();
        assert_eq!(self.node.ring.filled(), self.filled.len());

        // RG1, and that windows never leave the ring.
        let start = self.node.ring.address().as_u64();
        let end = start + layout.bytes().unwrap() as u64;
        let mut ranges = self.producer.ranges();
        ranges.extend(self.consumer.ranges());
        ranges.retain(|(from, to)| from < to);
        ranges.sort_unstable();
        assert!(ranges.iter().all(|(from, to)| start <= *from && *to <= end));
        assert!(
            ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0),
            "{ranges:x?} overlap"
        );

        // What the consumer holds is what was pushed, in order.
        let expected: Vec<u8> = (0..layout.pop_rows.min(self.short.unwrap_or(usize::MAX)))
            .flat_map(|row| content(self.released + row, layout.row_bytes))
            .collect();
        match &self.consumer {
            Out::In => {}
            Out::Whole(window) => assert_eq!(window.as_bytes().unwrap(), expected),
            Out::Pieces(pieces) => {
                let window = start + (self.back * layout.row_bytes) as u64;
                for piece in pieces {
                    let at = usize::try_from(piece.address().as_u64() - window).unwrap();
                    assert_eq!(piece.as_bytes().unwrap(), &expected[at..at + piece.len()]);
                }
            }
            Out::Shared(_, readers) => {
                for reader in readers {
                    assert_eq!(reader.as_bytes().unwrap(), expected);
                }
            }
        }
    }

    /// Gives everything back and drains: no row is lost, and nothing is stuck.
    fn drain(mut self) {
        let layout = self.node.ring.layout();
        self.producer = Out::In;
        self.consumer = Out::In;
        self.realign();
        // Enough to go round whatever is left.
        for _ in 0..2 * layout.rows {
            self.acquire();
            self.give_back(true);
            loop {
                self.pop();
                self.check();
                if self.consumer.is_in() {
                    break;
                }
                self.give_back(false);
            }
        }
        assert!(self.released > layout.rows);
        // What is left of a stride comes out, too.
        self.pop_short();
        self.give_back(false);
        self.pop();
        self.pop_short();
        assert!(self.consumer.is_in() && self.filled.is_empty());
        assert_eq!(self.pushed, self.released);
        self.realign();
        assert!(!self.uneven);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn rg1_windows_of_both_sides_never_overlap(
        layout in any_layout(),
        steps in prop::collection::vec((any::<bool>(), step()), 0..120),
    ) {
        let mut run = Run::new(layout);
        for (push, step) in steps {
            run.step(push, step);
        }
        run.drain();
    }

    #[test]
    fn bq_02_rows_are_the_smallest_multiple_with_room_and_never_hang(
        target in 0_usize..70,
        push_rows in 1_usize..20,
        pop_stride in 1_usize..20,
    ) {
        let layout = queue(target, push_rows, pop_stride, pop_stride);
        let least = target.max(pop_stride) + push_rows;
        let smallest = (least..).find(|rows| rows % push_rows == 0 && rows % pop_stride == 0);
        prop_assert_eq!(Some(layout.rows), smallest);
        // With every window in, one side or the other can always go on.
        let mut node = Node::new(layout);
        let rows = vec![0; push_rows];
        for _ in 0..layout.rows {
            while node.push(&rows) {}
            prop_assert!(node.take().is_some());
        }
    }
}

#[test]
fn rg1_the_rows_after_a_short_window_are_the_producers() {
    // Three of four rows are filled; the fourth is the one that the producer fills next.
    let mut node = Node::new(queue(4, 1, 4, 4));
    for row in 0..3 {
        assert!(node.push(&[row]));
    }
    assert!(node.pop().unwrap().is_none());
    let mut next = node.acquire().unwrap().unwrap();
    let (short, rows) = node.ring.pop_short(node.sides.split().1).unwrap().unwrap();
    assert_eq!(rows, 3);
    next.as_mut_bytes().unwrap().fill(9);
    assert_eq!(short.as_bytes().unwrap(), [0, 1, 2]);
    node.release(short).unwrap();

    // A push all the same: no window may begin in the middle of the stride.
    node.commit(next).unwrap();
    for row in 0..4 {
        assert!(node.push(&[row]));
        assert!(node.pop().unwrap().is_none());
    }
    let (producer, consumer) = node.sides.split();
    assert_eq!(node.ring.realign(producer, consumer), Ok(5));
    for row in 0..4 {
        assert!(node.push(&[row]));
    }
    assert_eq!(node.take(), Some(vec![0, 1, 2, 3]));
}

#[test]
fn rg3_no_cursor_moves_over_work_that_a_dropped_window_left() {
    for push in [true, false] {
        let mut node = Node::new(queue(4, 1, 2, 2));
        assert!(node.push(&[1]));
        let (short, _) = node.ring.pop_short(node.sides.split().1).unwrap().unwrap();
        node.release(short).unwrap();
        let stream = busy_stream();
        if push {
            let mut window = node.acquire().unwrap().unwrap();
            window.not_before(stream.record().unwrap());
        } else {
            // Nothing can be popped any more: only what was out can be left behind.
            drop(node.acquire());
        }
        let (producer, consumer) = node.sides.split();
        let aligned = node.ring.realign(producer, consumer);
        assert_eq!(aligned.is_err(), push);
        stream.synchronize().unwrap();
        let (producer, consumer) = node.sides.split();
        assert_eq!(node.ring.realign(producer, consumer), Ok(0));
    }
    let (mut old, mut new) = (Node::new(queue(4, 1, 2, 2)), Node::new(queue(8, 1, 2, 2)));
    assert!(old.push(&[1]) && old.push(&[2]));
    let stream = busy_stream();
    let mut window = old.pop().unwrap().unwrap();
    window.not_before(stream.record().unwrap());
    drop(window);
    let mut refill = |old: &mut Node| {
        new.ring
            .refill(&mut old.ring, |_, _| Ok::<_, Refused>(()))
            .unwrap()
    };
    assert!(!refill(&mut old));
    stream.synchronize().unwrap();
    assert!(refill(&mut old));
}

#[test]
fn rg3_a_short_window_dropped_is_a_whole_one_once_more_rows_are_there() {
    let mut node = Node::new(queue(4, 1, 2, 4));
    for row in 0..3 {
        assert!(node.push(&[row]));
    }
    for _ in 0..2 {
        let (short, rows) = node.ring.pop_short(node.sides.split().1).unwrap().unwrap();
        assert_eq!((short.len(), rows), (2, 3));
    }
    assert!(node.push(&[3]));
    assert!(node.ring.pop_short(node.sides.split().1).unwrap().is_none());
    // Two rows, as the short window had, but they free a stride.
    assert_eq!(node.take(), Some(vec![0, 1]));
    assert_eq!(node.ring.filled(), 0);
    assert!(node.pop().unwrap().is_none());
}

#[test]
fn rg2_a_window_put_in_the_place_of_another_is_no_copy() {
    let (mut old, mut new) = (Node::new(queue(4, 1, 2, 2)), Node::new(queue(8, 1, 2, 2)));
    assert!(old.push(&[1]) && old.push(&[2]));
    let mut stolen = None;
    let error = new
        .ring
        .refill(&mut old.ring, |_, to| {
            stolen = Some(std::mem::replace(to, region(to.len())));
            Ok::<_, Refused>(())
        })
        .unwrap_err();
    assert_eq!(error.refusal, Refusal::ForeignWindow);
    assert_eq!(new.ring.filled(), 0);
    assert_eq!(new.acquire().unwrap_err(), ContractError::WindowOut);
    drop(stolen);
    assert!(new.push(&[3]));
    assert_eq!(old.take(), Some(vec![1, 2]), "the old ring stays as it is");
}

#[test]
fn a_ring_is_filled_anew_from_one_with_the_same_windows_only() {
    let mut old = Node::new(queue(4, 1, 2, 2));
    assert!(old.push(&[1]) && old.push(&[2]));
    let mut refilled = |layout: RingLayout, filled: bool| {
        let mut new = Node::new(layout);
        assert!(!filled || new.push(&vec![0; layout.push_rows]));
        new.ring
            .refill(&mut old.ring, |_, _| Ok::<_, Refused>(()))
            .unwrap()
    };
    assert!(!refilled(queue(4, 1, 1, 2), false));
    assert!(!refilled(queue(4, 1, 2, 4), false));
    assert!(!refilled(queue(4, 2, 2, 2), false));
    let wider = RingLayout {
        row_bytes: 2,
        ..queue(4, 1, 2, 2)
    };
    assert!(!refilled(wider, false));
    assert!(!refilled(queue(8, 1, 2, 2), true), "it is not empty");
    assert!(refilled(queue(8, 1, 2, 2), false));
}

#[test]
fn rg2_each_side_has_at_most_one_window_out() {
    let mut node = Node::new(queue(4, 1, 1, 1));
    let window = node.acquire().unwrap().unwrap();
    assert_eq!(node.acquire().unwrap_err(), ContractError::WindowOut);
    node.commit(window).unwrap();
    let other = node.acquire().unwrap().unwrap();
    let popped = node.pop().unwrap().unwrap();
    assert_eq!(node.pop().unwrap_err(), ContractError::WindowOut);
    node.release(popped).unwrap();
    assert!(node.pop().unwrap().is_none());
    node.commit(other).unwrap();
}

#[test]
fn rg2_nothing_can_be_given_back_while_no_window_is_out() {
    let mut node = Node::new(queue(4, 1, 1, 1));
    for give in [Node::commit, Node::release] {
        let (stray, refusal) = refusal(give(&mut node, region(1)));
        assert_eq!(refusal, Refusal::ForeignWindow);
        assert_eq!(stray.len(), 1, "it comes back unchanged");
    }
    assert_eq!(node.ring.filled(), 0);
}

#[test]
fn rg3_a_dropped_window_is_handed_out_again() {
    let mut node = Node::new(queue(2, 1, 1, 1));
    let mut window = node.acquire().unwrap().unwrap();
    window.as_mut_bytes().unwrap()[0] = 1;
    let address = window.address();
    drop(window);
    assert!(node.pop().unwrap().is_none(), "it does not count as filled");
    let window = node.acquire().unwrap().unwrap();
    assert_eq!(window.address(), address);
    node.commit(window).unwrap();

    let popped = node.pop().unwrap().unwrap();
    drop(popped);
    assert_eq!(node.ring.filled(), 1, "it does not count as released");
    let popped = node.pop().unwrap().unwrap();
    assert_eq!(popped.address(), address);
    assert_eq!(popped.as_bytes().unwrap(), [1]);
}

#[test]
fn rg3_a_window_is_dropped_once_its_last_piece_is() {
    let mut node = Node::new(queue(4, 4, 1, 1));
    let window = node.acquire().unwrap().unwrap();
    let (head, tail) = window.split_at(1).unwrap();
    let (middle, tail) = tail.split_at(1).unwrap();
    for piece in [tail, head] {
        drop(piece);
        assert_eq!(node.acquire().unwrap_err(), ContractError::WindowOut);
    }
    drop(middle);
    assert_eq!(node.acquire().unwrap().unwrap().len(), 4);
}

#[test]
fn rg3_the_work_left_on_a_dropped_window_comes_with_the_next() {
    for push in [true, false] {
        let mut node = Node::new(queue(1, 1, 1, 1));
        assert!(node.push(&[9]));
        let take = if push { Node::acquire } else { Node::pop };
        let mut window = take(&mut node).unwrap().unwrap();
        let stream = busy_stream();
        window.not_before(stream.record().unwrap());
        drop(window);
        let mut window = take(&mut node).unwrap().unwrap();
        assert!(window.as_bytes().is_err(), "the work is not done");
        assert!(window.complete().is_err());
        stream.synchronize().unwrap();
        window.complete().unwrap();
        assert!(window.as_bytes().is_ok());
        // It is told once.
        drop(window);
        assert!(take(&mut node).unwrap().unwrap().ready_after().is_none());
    }
}

#[test]
fn rg3_the_work_left_on_every_piece_comes_with_the_next_window() {
    let mut node = Node::new(queue(2, 2, 1, 1));
    let window = node.acquire().unwrap().unwrap();
    let (mut head, mut tail) = window.split_at(1).unwrap();
    let (a, b) = (busy_stream(), busy_stream());
    head.not_before(a.record().unwrap());
    tail.not_before(b.record().unwrap());
    drop(head);
    drop(tail);
    let window = node.acquire().unwrap().unwrap();
    assert_eq!(window.ready_after().unwrap().events().count(), 2);
    a.synchronize().unwrap();
    assert!(window.as_bytes().is_err());
    b.synchronize().unwrap();
    assert!(window.as_bytes().is_ok());
}

#[test]
fn rg3_a_window_in_use_is_not_taken_back_and_stays_out() {
    let mut node = Node::new(queue(1, 1, 1, 1));
    let stream = busy_stream();
    let mut window = node.acquire().unwrap().unwrap();
    window.not_before(stream.record().unwrap());
    let (window, found) = refusal(node.commit(window));
    assert_eq!(found, Refusal::InUse);
    assert_eq!(node.acquire().unwrap_err(), ContractError::WindowOut);
    assert_eq!(node.ring.filled(), 0);
    stream.synchronize().unwrap();
    node.commit(window).unwrap();
    // The next window does not carry the work that is done.
    assert!(node.pop().unwrap().unwrap().ready_after().is_none());
}

#[test]
fn rg4_windows_outlive_the_ring() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 2)
        .unwrap()
        .into_region();
    let mut sides = Sides::new();
    let ring = SlotRing::new(&sides, queue(1, 1, 1, 1), region).unwrap();
    let (producer, consumer) = sides.split();
    let mut first = ring.acquire(producer).unwrap().unwrap();
    first.as_mut_bytes().unwrap()[0] = 1;
    ring.commit(producer, first).unwrap();
    let mut second = ring.acquire(producer).unwrap().unwrap();
    let popped = ring.pop(consumer).unwrap().unwrap();
    drop(ring);
    assert_eq!(ledger.counts().live_blocks, 1);
    second.as_mut_bytes().unwrap()[0] = 2;
    assert_eq!(popped.as_bytes().unwrap(), [1]);
    drop(popped);
    assert_eq!(second.as_bytes().unwrap(), [2]);
    drop(second);
    assert_eq!(ledger.counts().live_blocks, 0);
    assert_eq!(ledger.counts().faults, 0);
}

#[test]
fn rg4_the_work_left_on_a_window_outlives_the_ring() {
    // A ring over the window of another: what the inner one leaves, the outer one finds.
    for ring_first in [true, false] {
        let sides = Sides::new();
        let mut node = Node::new(queue(4, 4, 1, 1));
        let outer = node.acquire().unwrap().unwrap();
        let inner = RegionSlot::new(&sides, outer).unwrap();
        let (mut producer, _) = sides.into_parts();
        let mut window = inner.acquire(&mut producer).unwrap().unwrap();
        let stream = busy_stream();
        window.not_before(stream.record().unwrap());
        if ring_first {
            drop(inner);
            assert_eq!(node.acquire().unwrap_err(), ContractError::WindowOut);
            drop(window);
        } else {
            drop(window);
            assert_eq!(node.acquire().unwrap_err(), ContractError::WindowOut);
            drop(inner);
        }
        let outer = node.acquire().unwrap().unwrap();
        assert!(outer.as_bytes().is_err());
        stream.synchronize().unwrap();
        assert!(outer.as_bytes().is_ok());
    }
}

#[test]
fn rg5_a_window_goes_out_and_comes_back_with_the_same_keeper() {
    let mut node = Node::new(queue(3, 1, 1, 1));
    let look = |node: &mut Node| {
        let (producer, consumer) = node.sides.split();
        let producer = &node.ring.producer.open(producer).unwrap().window;
        let consumer = &node.ring.consumer.open(consumer).unwrap().window;
        (
            (producer.keeper, consumer.keeper),
            (
                Arc::strong_count(&producer.fate),
                Arc::strong_count(&consumer.fate),
            ),
            Arc::strong_count(&node.ring.whole),
        )
    };
    let before = look(&mut node);
    for turn in 0..50 {
        assert!(node.push(&[turn]));
        let window = node.acquire().unwrap().unwrap();
        assert_eq!(node.take(), Some(vec![turn]));
        node.commit(window).unwrap();
        assert!(node.take().is_some());
    }
    assert_eq!(look(&mut node), before);
    // A window that is dropped is made anew, and nothing of the old one is left.
    for _ in 0..5 {
        drop(node.acquire().unwrap());
    }
    let window = node.acquire().unwrap().unwrap();
    node.commit(window).unwrap();
    assert_eq!(look(&mut node).1, before.1);
}

#[test]
fn rg5_the_counts_of_the_two_sides_share_no_cache_line() {
    let node = Node::new(queue(1, 1, 1, 1));
    let line = |count: *const AtomicUsize| count.addr() / 64;
    assert_ne!(
        line(&raw const *node.ring.pushed),
        line(&raw const *node.ring.released)
    );
}

#[test]
fn counts_that_wrap_are_compared_rightly() {
    let mut node = Node::new(queue(3, 1, 1, 1));
    let start = usize::MAX - 5;
    let (producer, consumer) = node.sides.split();
    for end in [
        node.ring.producer.open(producer).unwrap(),
        node.ring.consumer.open(consumer).unwrap(),
    ] {
        end.count = start;
        end.seen = start;
    }
    node.ring.pushed.store(start, Ordering::Release);
    node.ring.released.store(start, Ordering::Release);
    for turn in 0..20 {
        assert!(node.push(&[turn]));
        assert_eq!(node.ring.filled(), 1);
        assert_eq!(node.take(), Some(vec![turn]));
        assert!(node.pop().unwrap().is_none());
    }
    let rows = u8::try_from(node.ring.layout().rows).unwrap();
    assert!((0..rows).all(|turn| node.push(&[turn])));
    assert!(!node.push(&[0]));
}

#[test]
fn only_the_part_of_the_region_that_the_rows_need_is_used() {
    let sides = Sides::new();
    let ring = SlotRing::new(&sides, queue(1, 1, 1, 1), region(100)).unwrap();
    assert_eq!(ring.layout().bytes(), Some(2));
    assert_eq!(ring.location(), MemLoc::Host);
    let (mut producer, _) = sides.into_parts();
    assert_eq!(ring.acquire(&mut producer).unwrap().unwrap().len(), 1);
}

#[test]
fn a_region_slot_goes_to_and_fro() {
    let mut sides = Sides::new();
    let whole = region(4);
    let address = whole.address();
    let mut slot = RegionSlot::new(&sides, whole).unwrap();
    for turn in 0..3 {
        let (producer, consumer) = sides.split();
        assert!(slot.pop(consumer).unwrap().is_none());
        let mut window = slot.acquire(producer).unwrap().unwrap();
        window.as_mut_bytes().unwrap().fill(turn);
        assert!(!slot.is_filled());
        slot.commit(producer, window).unwrap();
        assert!(slot.is_filled());
        assert!(slot.acquire(producer).unwrap().is_none());

        // The slot, and what it holds, go to another node.
        sides = Sides::new();
        slot.rebind(&sides);
        let (producer, consumer) = sides.split();
        let window = slot.pop(consumer).unwrap().unwrap();
        assert_eq!(window.address(), address);
        assert_eq!(window.as_bytes().unwrap(), [turn; 4]);
        assert!(
            slot.acquire(producer).unwrap().is_none(),
            "popped, not released"
        );
        slot.release(consumer, window).unwrap();
    }
}

#[test]
fn a_call_on_another_node_gives_the_window_back() {
    let mut node = Node::new(queue(1, 1, 1, 1));
    let mut others = Sides::new();
    let window = node.acquire().unwrap().unwrap();
    let (window, found) = refusal(node.ring.commit(others.split().0, window));
    assert_eq!(found, Refusal::ForeignSide);
    node.commit(window).unwrap();
    let window = node.pop().unwrap().unwrap();
    let (window, found) = refusal(node.ring.release(others.split().1, window));
    assert_eq!(found, Refusal::ForeignSide);
    node.release(window).unwrap();
}

// ---------------------------------------------------------------------------------------
// The queue cases

#[test]
fn bq_02_slot_counts_are_those_of_the_table() {
    let rows = |target, push_rows, pop_stride| queue(target, push_rows, 1, pop_stride).rows;
    assert_eq!(rows(5, 4, 8), 16);
    assert_eq!(rows(1, 1, 1), 2);
    assert_eq!(rows(64, 4, 16), 80);
    assert_eq!(rows(1, 1, 10), 20);
}

#[test]
fn bq_02_a_count_that_overflows_is_none() {
    let n = |value| NonZeroUsize::new(value).unwrap();
    assert_eq!(rows_for(usize::MAX, n(1), n(1)), None);
    assert_eq!(rows_for(usize::MAX - 1, n(1), n(2)), None);
    assert_eq!(rows_for(1, n(usize::MAX), n(usize::MAX - 1)), None);
    assert_eq!(rows_for(0, n(usize::MAX), n(1)), None);
    assert_eq!(rows_for(usize::MAX - 1, n(1), n(1)), Some(usize::MAX));
}

#[test]
fn bq_03_acquire_is_none_unless_enough_slots_are_free() {
    // 8 rows, pushed in twos and released in fours.
    let mut node = Node::new(RingLayout {
        rows: 8,
        ..queue(0, 2, 2, 4)
    });
    for turn in 0..4 {
        let window = node.acquire().unwrap().unwrap();
        assert_eq!(node.row_of(&window), 2 * turn);
        node.commit(window).unwrap();
    }
    // The cursors are equal now, as in an empty ring: the fill count tells.
    assert!(node.acquire().unwrap().is_none());
    assert_eq!(node.ring.filled(), 8);
    let popped = node.pop().unwrap().unwrap();
    assert!(node.acquire().unwrap().is_none(), "popped is not released");
    node.release(popped).unwrap();
    let window = node.acquire().unwrap().unwrap();
    assert_eq!(node.row_of(&window), 0);
}

#[test]
fn bq_04_push_never_fails_once_acquired_and_wraps_at_the_end() {
    let mut node = Node::new(queue(4, 2, 2, 2));
    assert_eq!(node.ring.layout().rows, 6);
    for turn in 0..12 {
        let window = node.acquire().unwrap().unwrap();
        assert_eq!(node.row_of(&window), 2 * turn % 6);
        // Whatever the other side does meanwhile.
        let popped = node.pop().unwrap();
        if turn % 2 == 0 {
            drop(popped);
            node.commit(window).unwrap();
        } else {
            node.commit(window).unwrap();
            node.release(popped.unwrap()).unwrap();
        }
        while node.ring.filled() > 2 {
            assert!(node.take().is_some());
        }
    }
}

#[test]
fn bq_05_pop_waits_for_a_whole_stride_and_never_gives_two() {
    let mut node = Node::new(queue(8, 1, 2, 4));
    for row in 0..3 {
        assert!(node.push(&[row]));
        assert!(node.pop().unwrap().is_none());
    }
    assert!(node.push(&[3]));
    let popped = node.pop().unwrap().unwrap();
    assert_eq!(popped.as_bytes().unwrap(), [0, 1]);
    assert_eq!(node.pop().unwrap_err(), ContractError::WindowOut);
    node.release(popped).unwrap();
    assert!(node.pop().unwrap().is_none());
}

#[test]
fn bq_06_release_advances_by_the_stride_and_skips_what_lies_between() {
    // One of three is seen.
    let mut node = Node::new(queue(6, 1, 1, 3));
    let mut seen = vec![];
    for row in 0..30 {
        assert!(node.push(&[row]));
        seen.extend(node.take().unwrap_or_default());
    }
    assert_eq!(seen, [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]);
}

#[test]
fn bq_07_no_bytes_move_and_no_window_wraps() {
    let mut node = Node::new(queue(9, 2, 3, 3));
    let rows = node.ring.layout().rows;
    let mut pushed = VecDeque::new();
    for turn in 0..60_u8 {
        if let Some(mut window) = node.acquire().unwrap() {
            assert!(node.row_of(&window) + 2 <= rows);
            for (row, byte) in window.as_mut_bytes().unwrap().iter_mut().enumerate() {
                *byte = 2 * turn + u8::try_from(row).unwrap();
            }
            let address = window.address();
            pushed.extend([(address, 2 * turn), (address.plus(1), 2 * turn + 1)]);
            node.commit(window).unwrap();
        }
        if let Some(window) = node.pop().unwrap() {
            assert!(node.row_of(&window) + 3 <= rows);
            for (row, byte) in window.as_bytes().unwrap().iter().enumerate() {
                let (address, value) = pushed.pop_front().unwrap();
                assert_eq!((window.address().plus(row), *byte), (address, value));
            }
            node.release(window).unwrap();
        }
    }
}

#[test]
fn bq_08_batches_come_out_in_order_and_none_is_lost() {
    for (push_rows, pop_rows) in [(2, 3), (4, 2)] {
        let mut node = Node::new(queue(4, push_rows, pop_rows, pop_rows));
        let frames: Vec<u8> = (0..12).collect();
        let mut batches = vec![];
        for pushed in frames.chunks(push_rows) {
            while !node.push(pushed) {
                batches.push(node.take().unwrap());
            }
        }
        while let Some(batch) = node.take() {
            batches.push(batch);
        }
        assert_eq!(batches, frames.chunks(pop_rows).collect::<Vec<_>>());
    }
}

/// Tells the other thread, which waits for this one, that this one panicked.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Alarm<'_> {
    /// Tries until there is a window.
    fn until(&self, mut window: impl FnMut() -> Option<Region>) -> Region {
        loop {
            if let Some(window) = window() {
                return window;
            }
            assert!(!self.0.load(Ordering::Relaxed), "the other side panicked");
            std::thread::yield_now();
        }
    }
}

#[test]
fn bq_14_two_threads_pass_rows_without_locks() {
    let layout = queue(5, 2, 3, 3);
    let sides = Sides::new();
    let ring = SlotRing::new(&sides, layout, region(layout.rows)).unwrap();
    let (mut producer, mut consumer) = sides.into_parts();
    let rows = 6 * if cfg!(miri) { 20 } else { 5000 };
    let byte = |row: usize| u8::try_from(row % 251).unwrap();
    let panicked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let alarm = Alarm(&panicked);
            for row in (0..rows).step_by(2) {
                let mut window = alarm.until(|| ring.acquire(&mut producer).unwrap());
                let bytes = window.as_mut_bytes().unwrap();
                bytes.copy_from_slice(&[row, row + 1].map(byte));
                ring.commit(&mut producer, window).unwrap();
            }
        });
        let alarm = Alarm(&panicked);
        for row in (0..rows).step_by(3) {
            let window = alarm.until(|| ring.pop(&mut consumer).unwrap());
            let expected = [row, row + 1, row + 2].map(byte);
            assert_eq!(window.as_bytes().unwrap(), expected);
            assert!(ring.filled() <= layout.rows);
            ring.release(&mut consumer, window).unwrap();
        }
    });
    assert_eq!(ring.filled(), 0);
}

// ---------------------------------------------------------------------------------------
// What is refused when a ring is made

#[test]
fn a_ring_that_cannot_be_says_why() {
    let sides = Sides::new();
    let base = RingLayout {
        row_bytes: 1,
        rows: 12,
        push_rows: 2,
        pop_rows: 2,
        pop_stride: 4,
    };
    let message = |change: &dyn Fn(&mut RingLayout)| {
        let mut layout = base;
        change(&mut layout);
        SlotRing::new(&sides, layout, region(12))
            .unwrap_err()
            .to_string()
    };
    for (field, change) in [
        ("rows", &|layout: &mut RingLayout| layout.rows = 0),
        ("push_rows", &|layout: &mut RingLayout| layout.push_rows = 0),
        ("pop_rows", &|layout: &mut RingLayout| layout.pop_rows = 0),
        ("pop_stride", &|layout: &mut RingLayout| {
            layout.pop_stride = 0
        }),
    ] as [(&str, &dyn Fn(&mut RingLayout)); 4]
    {
        assert_eq!(
            message(change),
            format!("{field} is 0, at least 1 is needed")
        );
    }
    assert_eq!(
        message(&|layout| layout.pop_stride = 3),
        "pop_stride is 3, which is no multiple of pop_rows, 2"
    );
    assert_eq!(
        message(&|layout| layout.push_rows = 5),
        "rows is 12, which is no multiple of push_rows, 5"
    );
    assert_eq!(
        message(&|layout| layout.pop_stride = 8),
        "rows is 12, which is no multiple of pop_stride, 8"
    );
    assert_eq!(
        message(&|layout| layout.row_bytes = 2),
        "the ring needs 24 bytes, the region has 12"
    );
    assert_eq!(
        message(&|layout| layout.row_bytes = usize::MAX),
        "the ring needs uncountably many bytes, the region has 12"
    );
    // Rings in the windows of rings: 16 are allowed, 17 are not.
    let mut inmost = region(12);
    let mut rings = vec![];
    let error = loop {
        let sides = Sides::new();
        match RegionSlot::new(&sides, inmost) {
            Ok(ring) => {
                let (mut producer, _) = sides.into_parts();
                inmost = ring.acquire(&mut producer).unwrap().unwrap();
                rings.push(ring);
            }
            Err(error) => break error,
        }
    };
    assert_eq!(rings.len(), MAX_DEPTH + 1);
    assert_eq!(
        error.to_string(),
        "the region lies in 17 rings, one within the other, 16 at most are allowed"
    );
    let shared = region(12).into_shared();
    assert_eq!(
        SlotRing::new(&sides, base, shared.to_region())
            .unwrap_err()
            .to_string(),
        "the region is shared and read-only, a ring must own it alone"
    );
    let mut used = region(12);
    let stream = busy_stream();
    used.not_before(stream.record().unwrap());
    assert_eq!(
        SlotRing::new(&sides, base, used).unwrap_err().to_string(),
        "device work on the region is outstanding: complete it first"
    );
}
