//! Loom models of the rings and the region slot: every interleaving of two or three threads.
//!
//! Loom does not see accesses to a window's bytes. So beside the ring there is one of loom's
//! cells for each row, found by the window's address and accessed while the window is held.
//! Loom reports two accesses of a cell that nothing orders, which is what a too weak
//! ordering in `ring.rs` or `region.rs` would lead to. The bytes hold the row's number, so
//! that order and loss show too: loom runs all threads of a model on one real thread.
//!
//! What the models cannot see: the counts of `Arc`, which are the real ones. So no model
//! drops two pieces of one window on two threads. Nor the queues of the swap ring: a queue under
//! a lock stands in for them (`sync.rs`).

use loom::cell::UnsafeCell;
use loom::thread;

use super::{
    ConsumerSide, DelayLayout, DelayReader, DelayRing, DelayedPair, Overflow, ProducerSide, Region,
    RegionSlot, RingLayout, Sides, SlotRing, SwapRing, TaskBuffer,
};
use crate::memory::{Address, Memory};
use crate::sync::Arc;
use crate::tensor::MemLoc;

/// Runs every interleaving with at most `LOOM_MAX_PREEMPTIONS` preemptions, or three.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(f);
}

/// What loom sees of the rows.
struct Watch {
    start: Address,
    rows: Vec<UnsafeCell<()>>,
}

impl Watch {
    fn new(start: Address, rows: usize) -> Self {
        let rows = (0..rows).map(|_| UnsafeCell::new(())).collect();
        Self { start, rows }
    }

    /// The cells of a window's rows, which have one byte each.
    fn of(&self, window: &Region) -> &[UnsafeCell<()>] {
        let first = window.address().as_u64() - self.start.as_u64();
        let first = usize::try_from(first).unwrap();
        &self.rows[first..first + window.len()]
    }

    /// Writes `values` to the rows of a window.
    fn write(&self, window: &mut Region, values: &[u8]) {
        for cell in self.of(window) {
            cell.with_mut(|_| ());
        }
        window.as_mut_bytes().unwrap().copy_from_slice(values);
    }

    /// Reads the rows of a window.
    fn read(&self, window: &Region) -> Vec<u8> {
        for cell in self.of(window) {
            cell.with(|_| ());
        }
        window.as_bytes().unwrap().to_vec()
    }
}

/// A ring of one node, and what loom sees of it.
struct Node {
    ring: SlotRing,
    watch: Watch,
}

fn node(rows: usize, push_rows: usize, pop_rows: usize) -> (Arc<Node>, ProducerSide, ConsumerSide) {
    let layout = RingLayout {
        row_bytes: 1,
        rows,
        push_rows,
        pop_rows,
        pop_stride: pop_rows,
    };
    let sides = Sides::new();
    let ring = SlotRing::new(&sides, layout, region(rows)).unwrap();
    let watch = Watch::new(ring.address(), rows);
    let (producer, consumer) = sides.into_parts();
    (Arc::new(Node { ring, watch }), producer, consumer)
}

fn region(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .unwrap()
        .into_region()
}

/// Tries until there is something.
fn until<T>(mut f: impl FnMut() -> Option<T>) -> T {
    loop {
        match f() {
            Some(found) => return found,
            None => thread::yield_now(),
        }
    }
}

impl Node {
    fn acquire(&self, side: &mut ProducerSide) -> Region {
        until(|| self.ring.acquire(side).unwrap())
    }

    fn pop(&self, side: &mut ConsumerSide) -> Region {
        until(|| self.ring.pop(side).unwrap())
    }

    fn push(&self, side: &mut ProducerSide, values: &[u8]) {
        let mut window = self.acquire(side);
        self.watch.write(&mut window, values);
        self.ring.commit(side, window).unwrap();
    }

    fn take(&self, side: &mut ConsumerSide) -> Vec<u8> {
        let window = self.pop(side);
        let values = self.watch.read(&window);
        self.ring.release(side, window).unwrap();
        values
    }
}

#[test]
fn loom_a_ring_passes_rows_in_order_and_wraps() {
    model(|| {
        let (node, mut producer, mut consumer) = node(2, 1, 1);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            for value in 1..=3 {
                pushing.push(&mut producer, &[value]);
            }
        });
        for value in 1..=3 {
            assert_eq!(node.take(&mut consumer), [value]);
        }
        pushed.join().unwrap();
        assert_eq!(node.ring.filled(), 0);
    });
}

#[test]
fn loom_windows_of_two_sizes_never_overlap() {
    model(|| {
        let (node, mut producer, mut consumer) = node(4, 1, 2);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            for value in 1..=6 {
                pushing.push(&mut producer, &[value]);
            }
        });
        for first in [1, 3, 5] {
            assert_eq!(node.take(&mut consumer), [first, first + 1]);
        }
        pushed.join().unwrap();
    });
}

#[test]
fn loom_sides_that_do_not_wait_see_whole_windows_only() {
    model(|| {
        let (node, mut producer, mut consumer) = node(2, 1, 1);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            for value in 1..=3 {
                if let Some(mut window) = pushing.ring.acquire(&mut producer).unwrap() {
                    pushing.watch.write(&mut window, &[value]);
                    pushing.ring.commit(&mut producer, window).unwrap();
                }
            }
        });
        let mut last = 0;
        for _ in 0..3 {
            if let Some(window) = node.ring.pop(&mut consumer).unwrap() {
                let value = node.watch.read(&window)[0];
                assert!(value > last, "{value} after {last}");
                last = value;
                node.ring.release(&mut consumer, window).unwrap();
            }
        }
        pushed.join().unwrap();
    });
}

#[test]
fn loom_a_region_slot_goes_to_and_fro() {
    model(|| {
        let sides = Sides::new();
        let whole = region(1);
        let watch = Arc::new(Watch::new(whole.address(), 1));
        let slot = Arc::new(RegionSlot::new(&sides, whole).unwrap());
        let (mut producer, mut consumer) = sides.into_parts();
        let pushed = {
            let (slot, watch) = (Arc::clone(&slot), Arc::clone(&watch));
            thread::spawn(move || {
                for value in 1..=2 {
                    let mut window = until(|| slot.acquire(&mut producer).unwrap());
                    watch.write(&mut window, &[value]);
                    slot.commit(&mut producer, window).unwrap();
                }
            })
        };
        for value in 1..=2 {
            let mut window = until(|| slot.pop(&mut consumer).unwrap());
            assert_eq!(watch.read(&window), [value]);
            // The side that holds the window may write in it too.
            watch.write(&mut window, &[9]);
            slot.release(&mut consumer, window).unwrap();
        }
        pushed.join().unwrap();
        assert!(!slot.is_filled());
    });
}

#[test]
fn loom_a_window_dropped_by_the_producer_is_acquired_again() {
    model(|| {
        let (node, mut producer, mut consumer) = node(2, 1, 1);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            for value in 1..=3 {
                let mut window = pushing.acquire(&mut producer);
                let address = window.address();
                pushing.watch.write(&mut window, &[0]);
                drop(window);
                let mut window = pushing.acquire(&mut producer);
                assert_eq!(window.address(), address);
                pushing.watch.write(&mut window, &[value]);
                pushing.ring.commit(&mut producer, window).unwrap();
            }
        });
        for value in 1..=3 {
            assert_eq!(node.take(&mut consumer), [value]);
        }
        pushed.join().unwrap();
    });
}

#[test]
fn loom_a_window_dropped_by_the_consumer_is_popped_again() {
    model(|| {
        let (node, mut producer, mut consumer) = node(2, 1, 1);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            for value in 1..=3 {
                pushing.push(&mut producer, &[value]);
            }
        });
        for value in 1..=3 {
            let window = node.pop(&mut consumer);
            assert_eq!(node.watch.read(&window), [value]);
            drop(window);
            assert_eq!(node.take(&mut consumer), [value]);
        }
        pushed.join().unwrap();
    });
}

#[test]
fn loom_a_window_dropped_on_a_third_thread_is_acquired_again() {
    model(|| {
        let (node, mut producer, mut consumer) = node(1, 1, 1);
        let popping = Arc::clone(&node);
        let popped = thread::spawn(move || popping.take(&mut consumer));

        let mut window = node.acquire(&mut producer);
        let writing = Arc::clone(&node);
        let dropped = thread::spawn(move || {
            writing.watch.write(&mut window, &[1]);
            drop(window);
        });
        // Out until the other thread has dropped it.
        let mut window = until(|| node.ring.acquire(&mut producer).ok().flatten());
        node.watch.write(&mut window, &[2]);
        node.ring.commit(&mut producer, window).unwrap();
        dropped.join().unwrap();
        assert_eq!(popped.join().unwrap(), [2]);
    });
}

#[test]
fn loom_a_window_dropped_on_a_third_thread_is_popped_again() {
    model(|| {
        let (node, mut producer, mut consumer) = node(1, 1, 1);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            pushing.push(&mut producer, &[1]);
            pushing.push(&mut producer, &[2]);
        });

        let window = node.pop(&mut consumer);
        let reading = Arc::clone(&node);
        let dropped = thread::spawn(move || {
            assert_eq!(reading.watch.read(&window), [1]);
            drop(window);
        });
        // Popped again, written in, and released: the reader must be done by then.
        let mut window = until(|| node.ring.pop(&mut consumer).ok().flatten());
        node.watch.write(&mut window, &[1]);
        node.ring.release(&mut consumer, window).unwrap();
        dropped.join().unwrap();
        assert_eq!(node.take(&mut consumer), [2]);
        pushed.join().unwrap();
    });
}

#[test]
fn loom_a_window_is_dropped_twice_on_other_threads() {
    model(|| {
        let (node, mut producer, _consumer) = node(1, 1, 1);
        let mut turn = |value: u8| {
            let mut window = until(|| node.ring.acquire(&mut producer).ok().flatten());
            let writing = Arc::clone(&node);
            thread::spawn(move || {
                writing.watch.write(&mut window, &[value]);
                drop(window);
            })
        };
        let first = turn(1);
        let second = turn(2);
        let mut window = until(|| node.ring.acquire(&mut producer).ok().flatten());
        node.watch.write(&mut window, &[3]);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn loom_a_third_thread_never_sees_more_rows_than_were_pushed() {
    model(|| {
        let (node, mut producer, mut consumer) = node(3, 1, 1);
        let popping = Arc::clone(&node);
        let popped = thread::spawn(move || {
            if let Some(window) = popping.ring.pop(&mut consumer).unwrap() {
                popping.ring.release(&mut consumer, window).unwrap();
            }
        });
        let looking = Arc::clone(&node);
        let looked = thread::spawn(move || looking.ring.filled());
        node.push(&mut producer, &[1]);
        assert!(looked.join().unwrap() <= 1);
        popped.join().unwrap();
    });
}

#[test]
fn loom_the_last_rows_are_taken_while_the_producer_acquires() {
    model(|| {
        let (node, mut producer, mut consumer) = node(4, 1, 2);
        node.push(&mut producer, &[1]);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            // All the others are free; they are not in the short window.
            let mut window = pushing.acquire(&mut producer);
            pushing.watch.write(&mut window, &[2]);
            pushing.ring.commit(&mut producer, window).unwrap();
            producer
        });
        let short = match node.ring.pop_short(&mut consumer).unwrap() {
            Some((window, rows)) => {
                assert_eq!((node.watch.read(&window), rows), (vec![1], 1));
                node.ring.release(&mut consumer, window).unwrap();
                true
            }
            // Two rows by now.
            None => false,
        };
        let mut producer = pushed.join().unwrap();
        let popped = node.ring.pop(&mut consumer).unwrap();
        assert_eq!(popped.is_some(), !short);
        drop(popped);
        let lost = node.ring.realign(&mut producer, &mut consumer).unwrap();
        assert_eq!(lost, usize::from(short));
        node.push(&mut producer, &[3]);
        assert_eq!(node.ring.filled(), if short { 1 } else { 3 });
    });
}

/// A swap ring of one node, and what loom sees of its regions: two of them, or more.
struct Swap {
    ring: SwapRing<u8>,
    cells: Vec<(Address, UnsafeCell<()>)>,
}

fn swap(capacity: usize, overflow: Overflow) -> (Arc<Swap>, ProducerSide, ConsumerSide) {
    let regions: Vec<Region> = (0..capacity + SwapRing::<u8>::SPARES)
        .map(|_| region(1))
        .collect();
    let cells = regions
        .iter()
        .map(|region| (region.address(), UnsafeCell::new(())))
        .collect();
    let sides = Sides::new();
    let ring = SwapRing::new(&sides, overflow, regions).unwrap();
    let (producer, consumer) = sides.into_parts();
    (Arc::new(Swap { ring, cells }), producer, consumer)
}

impl Swap {
    fn cell(&self, region: &Region) -> &UnsafeCell<()> {
        let mut cells = self.cells.iter();
        let found = cells.find(|(address, _)| *address == region.address());
        &found.unwrap().1
    }

    /// The value of the frame dropped for it, if any.
    fn push(&self, side: &mut ProducerSide, value: u8) -> Option<u8> {
        let acquired = self.ring.acquire(side).unwrap();
        let mut region = acquired.expect("the producer never waits");
        self.cell(&region).with_mut(|_| ());
        region.as_mut_bytes().unwrap()[0] = value;
        self.ring.commit(side, region, value).unwrap()
    }

    fn take(&self, side: &mut ConsumerSide) -> Option<u8> {
        let (region, value) = self.ring.pop(side).unwrap()?;
        self.cell(&region).with(|_| ());
        assert_eq!(region.as_bytes().unwrap(), [value]);
        self.ring.release(side, region).unwrap();
        Some(value)
    }
}

fn no_frame_is_lost_unseen(overflow: Overflow) {
    model(move || {
        let (node, mut producer, mut consumer) = swap(1, overflow);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            let values = 1..=3;
            let dropped = values.filter_map(|value| pushing.push(&mut producer, value));
            dropped.collect::<Vec<_>>()
        });
        let mut seen: Vec<u8> = (0..2).filter_map(|_| node.take(&mut consumer)).collect();
        let dropped = pushed.join().unwrap();
        seen.extend(node.take(&mut consumer));
        assert!(seen.is_sorted(), "{seen:?}");
        if overflow == Overflow::DropOldest {
            assert_eq!(seen.last(), Some(&3));
        }
        let mut all = [seen, dropped].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}

#[test]
fn loom_a_swap_ring_drops_the_oldest_while_it_is_popped() {
    no_frame_is_lost_unseen(Overflow::DropOldest);
}

#[test]
fn loom_a_swap_ring_drops_the_newest_while_it_is_popped() {
    no_frame_is_lost_unseen(Overflow::DropNewest);
}

#[test]
fn loom_a_swap_rings_region_dropped_out_there_is_handed_out_again() {
    model(|| {
        let (node, mut producer, mut consumer) = swap(1, Overflow::DropOldest);
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            drop(pushing.ring.acquire(&mut producer).unwrap());
            pushing.push(&mut producer, 1);
            pushing.push(&mut producer, 2)
        });
        let first = node.ring.pop(&mut consumer).unwrap();
        let again = first.map(|(region, value)| {
            node.cell(&region).with(|_| ());
            drop(region);
            value
        });
        let dropped = pushed.join().unwrap();
        let next = node.take(&mut consumer);
        match again {
            Some(value) => assert_eq!(next, Some(value), "it was popped"),
            None => assert_eq!((next, dropped), (Some(2), Some(1))),
        }
    });
}

/// A delay ring of one node, and what loom sees of the rows.
struct Twice {
    ring: DelayRing,
    watch: Watch,
}

fn twice(layout: DelayLayout) -> (Arc<Twice>, ProducerSide, ConsumerSide) {
    let sides = Sides::new();
    let rows = layout.bytes().unwrap();
    let ring = DelayRing::new(&sides, layout, region(rows)).unwrap();
    let watch = Watch::new(ring.address(), rows);
    let (producer, consumer) = sides.into_parts();
    (Arc::new(Twice { ring, watch }), producer, consumer)
}

impl Twice {
    fn push(&self, side: &mut ProducerSide, value: u8) {
        let mut window = until(|| self.ring.acquire(side).unwrap());
        self.watch.write(&mut window, &[value]);
        self.ring.commit(side, window).unwrap();
    }

    /// The values of the next pair; it stays out.
    fn look(&self, side: &mut ConsumerSide) -> (u8, u8, DelayedPair) {
        let pair = until(|| self.ring.pop(side).unwrap());
        let current = self.watch.read(&pair.current)[0];
        let delayed = self.watch.read(&pair.delayed)[0];
        (current, delayed, pair)
    }

    fn release(&self, side: &mut ConsumerSide, pair: DelayedPair) {
        let DelayedPair {
            current, delayed, ..
        } = pair;
        self.ring
            .release(side, DelayReader::Delayed, delayed)
            .unwrap();
        self.ring
            .release(side, DelayReader::Current, current)
            .unwrap();
    }
}

/// The least ring with this delay: a row more than delay and push.
fn least(delay: usize) -> DelayLayout {
    DelayLayout {
        row_bytes: 1,
        rows: delay + 2,
        push_rows: 1,
        delay,
    }
}

#[test]
fn loom_a_row_is_read_again_before_it_is_overwritten() {
    for delay in 0..=1 {
        model(move || {
            let (node, mut producer, mut consumer) = twice(least(delay));
            let pushing = Arc::clone(&node);
            let pushed = thread::spawn(move || {
                for value in 1..=3 {
                    pushing.push(&mut producer, value);
                }
            });
            for value in 1..=3_u8 {
                let before = value.saturating_sub(u8::try_from(delay).unwrap());
                let (current, delayed, pair) = node.look(&mut consumer);
                assert_eq!((current, delayed), (value, before));
                node.release(&mut consumer, pair);
            }
            pushed.join().unwrap();
        });
    }
}

#[test]
fn loom_a_reader_dropped_on_a_third_thread_reads_again() {
    model(|| {
        let (node, mut producer, mut consumer) = twice(least(0));
        let pushing = Arc::clone(&node);
        let pushed = thread::spawn(move || {
            pushing.push(&mut producer, 1);
            pushing.push(&mut producer, 2);
        });
        let (_, _, pair) = node.look(&mut consumer);
        let (current, delayed) = (pair.current, pair.delayed);
        node.ring
            .release(&mut consumer, DelayReader::Delayed, delayed)
            .unwrap();
        let reading = Arc::clone(&node);
        let dropped = thread::spawn(move || {
            assert_eq!(reading.watch.read(&current), [1]);
            drop(current);
        });
        // Not before the other thread has dropped it; and only then may the row be overwritten.
        let pair = until(|| node.ring.pop(&mut consumer).ok().flatten());
        assert_eq!(pair.number, 0);
        node.release(&mut consumer, pair);
        dropped.join().unwrap();
        pushed.join().unwrap();
    });
}
