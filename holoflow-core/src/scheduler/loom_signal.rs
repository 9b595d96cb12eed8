//! Loom models of how sections wait, wake each other, and end: every interleaving of two or
//! three threads.
//!
//! A section here is the protocol alone, as `threads` and `pool` keep to it: look; announce;
//! look again; commit; wait; resume. A wake-up that is lost is a section that waits when
//! nobody is left to wake it, which loom reports as a deadlock. What is looked at is written
//! relaxed, so that no ordering but that of the signal helps.

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::thread;

use super::credit::Credit;
use super::link::Link;
use super::meta_ring::MetaRing;
use super::signal::{Signal, Wakee};
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{Arc, ArrayQueue};
use crate::task::{Flow, FrameMeta};

/// Runs every interleaving with at most `LOOM_MAX_PREEMPTIONS` preemptions, or three.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(f);
}

/// The same with two at most, for models in which more takes minutes.
fn large_model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    let asked = builder.preemption_bound.unwrap_or(2);
    builder.preemption_bound = Some(asked.min(2));
    builder.check(f);
}

/// A thread that parks, and how often it was woken.
struct Parked {
    notify: Notify,
    wakes: AtomicUsize,
}

impl Parked {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            notify: Notify::new(),
            wakes: AtomicUsize::new(0),
        })
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

impl Wakee for Arc<Parked> {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.notify.notify();
    }
}

/// A section with a thread of its own.
struct Sleeper {
    signal: Signal<Arc<Parked>>,
    parked: Arc<Parked>,
}

impl Sleeper {
    fn new() -> Arc<Self> {
        let parked = Parked::new();
        Arc::new(Self {
            signal: Signal::new(Arc::clone(&parked)),
            parked,
        })
    }

    /// Waits until `look` finds something; how often it committed.
    fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> (T, usize) {
        let mut commitments = 0;
        loop {
            if let Some(found) = look() {
                return (found, commitments);
            }
            if !self.signal.announce() {
                self.signal.resume();
                continue;
            }
            if let Some(found) = look() {
                self.signal.resume();
                return (found, commitments);
            }
            if self.signal.commit() {
                commitments += 1;
                self.parked.notify.wait();
            }
            self.signal.resume();
        }
    }
}

/// Progress, as a section tells its neighbours of it.
fn tell(section: &Sleeper) {
    fence(Ordering::SeqCst);
    section.signal.progress();
}

#[test]
fn loom_si1_progress_is_seen_or_wakes() {
    model(|| {
        let section = Sleeper::new();
        let work = Arc::new(AtomicUsize::new(0));
        let other = {
            let (section, work) = (Arc::clone(&section), Arc::clone(&work));
            thread::spawn(move || {
                work.store(1, Ordering::Relaxed);
                tell(&section);
            })
        };
        section.until(|| (work.load(Ordering::Relaxed) == 1).then_some(()));
        other.join().unwrap();
    });
}

#[test]
fn loom_si1_two_sections_wake_each_other_over_a_queue_of_one() {
    model(|| {
        const FRAMES: usize = 2;
        let (producer, consumer) = (Sleeper::new(), Sleeper::new());
        let pushed = Arc::new(AtomicUsize::new(0));
        let popped = Arc::new(AtomicUsize::new(0));
        let pushing = {
            let (producer, consumer) = (Arc::clone(&producer), Arc::clone(&consumer));
            let (pushed, popped) = (Arc::clone(&pushed), Arc::clone(&popped));
            thread::spawn(move || {
                for frame in 0..FRAMES {
                    producer.until(|| (popped.load(Ordering::Relaxed) == frame).then_some(()));
                    pushed.store(frame + 1, Ordering::Relaxed);
                    tell(&consumer);
                }
            })
        };
        for frame in 0..FRAMES {
            consumer.until(|| (pushed.load(Ordering::Relaxed) > frame).then_some(()));
            popped.store(frame + 1, Ordering::Relaxed);
            tell(&producer);
        }
        pushing.join().unwrap();
    });
}

#[test]
fn loom_si1_two_sections_tell_one() {
    model(|| {
        let section = Sleeper::new();
        let work = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (section, work) = (Arc::clone(&section), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Relaxed);
                    tell(&section);
                })
            })
            .collect();
        section.until(|| (work.load(Ordering::Relaxed) == 2).then_some(()));
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn loom_si2_a_foreign_wake_is_remembered_and_orders_what_was_done_before() {
    model(|| {
        let section = Sleeper::new();
        let frame = Arc::new(UnsafeCell::new(()));
        let camera = {
            let (section, frame) = (Arc::clone(&section), Arc::clone(&frame));
            thread::spawn(move || {
                frame.with_mut(|_| ());
                section.signal.wake();
            })
        };
        // The section knows of the frame by the wake alone.
        if section.signal.announce() && section.signal.commit() {
            while !section.signal.is_notified() {
                section.parked.notify.wait();
            }
        }
        section.signal.resume();
        assert!(section.signal.announce(), "it is said once");
        // Loom reports it if nothing orders this after the camera's access.
        frame.with(|_| ());
        camera.join().unwrap();
    });
}

#[test]
fn loom_si3_a_section_is_woken_once_a_commitment() {
    model(|| {
        let section = Sleeper::new();
        let work = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (0..2)
            .map(|number| {
                let (section, work) = (Arc::clone(&section), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Relaxed);
                    if number == 0 {
                        section.signal.wake();
                    } else {
                        tell(&section);
                    }
                })
            })
            .collect();
        let look = || (work.load(Ordering::Relaxed) == 2).then_some(());
        let ((), commitments) = section.until(look);
        for other in others {
            other.join().unwrap();
        }
        let wakes = section.parked.wakes();
        assert!(wakes <= commitments, "{wakes} of {commitments}");
    });
}

/// A section of a pool: its signal puts it into the run queue.
struct Pooled {
    signal: Signal<Arc<RunQueue>>,
    queue: Arc<RunQueue>,
    /// 1 while it lies there for a worker to take.
    lies_there: AtomicUsize,
}

struct RunQueue {
    queue: ArrayQueue<usize>,
    notify: Notify,
}

impl Wakee for Arc<RunQueue> {
    fn wake(&self) {
        self.queue.push(0).expect("it is queued twice");
        self.notify.notify();
    }
}

#[test]
fn loom_si3_a_section_of_a_pool_is_queued_once_and_never_lost() {
    model(|| {
        let queue = Arc::new(RunQueue {
            queue: ArrayQueue::new(1),
            notify: Notify::new(),
        });
        let section = Arc::new(Pooled {
            signal: Signal::new(Arc::clone(&queue)),
            queue,
            lies_there: AtomicUsize::new(1),
        });
        section.queue.queue.push(0).unwrap();
        let work = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (0..2)
            .map(|number| {
                let (section, work) = (Arc::clone(&section), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    if number == 0 {
                        section.signal.wake();
                    } else {
                        section.signal.progress();
                    }
                })
            })
            .collect();
        let look = || work.load(Ordering::Relaxed) == 2;
        'queued: loop {
            while section.queue.queue.pop().is_none() {
                section.queue.notify.wait();
            }
            let taken = section.lies_there.swap(0, Ordering::AcqRel);
            assert_eq!(taken, 1, "it is queued and not there");
            section.signal.resume();
            loop {
                if look() {
                    break 'queued;
                }
                if !section.signal.announce() {
                    section.signal.resume();
                    continue;
                }
                if look() {
                    break 'queued;
                }
                section.lies_there.store(1, Ordering::Release);
                if section.signal.commit() {
                    continue 'queued;
                }
                let taken = section.lies_there.swap(0, Ordering::AcqRel);
                assert_eq!(taken, 1, "it was taken without a commitment");
                section.signal.resume();
            }
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn loom_sc4_the_last_frame_before_the_end_is_popped() {
    model(|| {
        const FRAMES: usize = 2;
        let link = Arc::new(Link::new(Some(Flow::one_to_one(FRAMES)), true));
        link.open(true, true);
        let consumer = Sleeper::new();
        // What the task holds, as weakly ordered as may be.
        let inside = Arc::new(AtomicUsize::new(0));
        let pushing = {
            let (link, consumer, inside) = (
                Arc::clone(&link),
                Arc::clone(&consumer),
                Arc::clone(&inside),
            );
            thread::spawn(move || {
                for _ in 0..FRAMES {
                    inside.fetch_add(1, Ordering::Relaxed);
                    link.accept();
                }
                tell(&consumer);
                link.producer_is_done();
                consumer.signal.wake();
            })
        };
        let mut popped = 0;
        consumer.until(|| {
            loop {
                let finished = link.is_producer_done();
                if inside.load(Ordering::Relaxed) > popped {
                    popped += 1;
                    link.take(false);
                } else {
                    return (finished && link.is_drained()).then_some(());
                }
            }
        });
        assert_eq!(popped, FRAMES);
        assert_eq!((link.accepted(), link.taken(), link.held()), (2, 2, 0));
        pushing.join().unwrap();
    });
}

#[test]
fn loom_sc4_a_producer_learns_that_nobody_pops() {
    model(|| {
        let link = Arc::new(Link::new(Some(Flow::one_to_one(1)), true));
        link.open(true, true);
        link.accept();
        let producer = Sleeper::new();
        let popping = {
            let (link, producer) = (Arc::clone(&link), Arc::clone(&producer));
            thread::spawn(move || {
                link.take(false);
                tell(&producer);
                link.consumer_is_done();
                producer.signal.wake();
            })
        };
        producer.until(|| link.is_consumer_done().then_some(()));
        assert_eq!(link.held(), 0, "counts read after the flag are final");
        popping.join().unwrap();
    });
}

#[test]
fn loom_two_sources_share_what_comes_back() {
    large_model(|| {
        let sources = [Sleeper::new(), Sleeper::new()];
        let credit = Arc::new(Credit::new(2, 2, Box::new([0, 1])));
        let second = {
            let (source, credit) = (Arc::clone(&sources[1]), Arc::clone(&credit));
            thread::spawn(move || {
                source.until(|| credit.take().then_some(()));
            })
        };
        let giving = {
            let (sources, credit) = (sources.clone(), Arc::clone(&credit));
            thread::spawn(move || {
                for _ in 0..2 {
                    if credit.give_back(1) {
                        fence(Ordering::SeqCst);
                        for source in &sources {
                            source.signal.progress();
                        }
                    }
                }
            })
        };
        sources[0].until(|| credit.take().then_some(()));
        second.join().unwrap();
        giving.join().unwrap();
        assert_eq!(credit.in_flight(), 2);
    });
}

#[test]
fn loom_metadata_that_is_overwritten_is_not_half_read() {
    model(|| {
        let ring = Arc::new(MetaRing::new(1));
        let meta = |value: u64| {
            let mut meta = FrameMeta::numbered(value);
            meta.valid = Some(value);
            meta
        };
        ring.put(0, &meta(10));
        let writing = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.put(1, &meta(11)))
        };
        let mut found = FrameMeta::default();
        if ring.get(0, &mut found) {
            assert_eq!((found.sequence, found.valid), (10, Some(10)));
        }
        if ring.get(1, &mut found) {
            assert_eq!((found.sequence, found.valid), (11, Some(11)));
        }
        writing.join().unwrap();
        assert!(ring.get(1, &mut found));
    });
}
