//! A few threads for many sections.
//!
//! A section is idle, queued or running. An idle one is queued by its signal, once a
//! commitment (SI3); a running one that has not done all it can queues itself. So it has one
//! entry in the queue at most, and the queue, made for all of them, is never full.
//!
//! What it does not know: what a section does in its turn.
//!
//! Ordering: who queues a section issues a fence and then looks for sleeping workers; a worker
//! says that it sleeps, issues a fence and then looks at the queue. The rest is under locks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use super::section::{SectionRun, Turn};
use super::shared::Run;
use super::start::Finished;
use crate::clock::Timestamp;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Arc, ArrayQueue, Condvar, Mutex};

/// Iterations of a section before another gets its turn.
const BUDGET: u32 = 32;
/// Sections between two looks at the timers.
const TIMER_INTERVAL: u32 = 16;
const NEVER: u64 = u64::MAX;

/// What the workers of a pool share.
pub(crate) struct Pool {
    sections: Box<[Mutex<Option<SectionRun>>]>,
    queue: ArrayQueue<usize>,
    sleepers: AtomicUsize,
    /// Sections of the pool that have not ended.
    left: AtomicUsize,
    /// The earliest timer, in nanoseconds.
    next: AtomicU64,
    timers: Mutex<Timers>,
    wake: Condvar,
}

struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// The timer of each section that counts; later entries of the heap are stale.
    armed: Box<[Option<Timestamp>]>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool for `sections` sections, `left` of which it runs.
    pub(super) fn new(sections: usize, left: usize) -> Self {
        Self {
            sections: (0..sections).map(|_| Mutex::new(None)).collect(),
            queue: ArrayQueue::new(sections.max(1)),
            sleepers: AtomicUsize::new(0),
            left: AtomicUsize::new(left),
            next: AtomicU64::new(NEVER),
            timers: Mutex::new(Timers {
                heap: BinaryHeap::with_capacity(4 * sections),
                armed: vec![None; sections].into(),
            }),
            wake: Condvar::new(),
        }
    }

    /// Takes a section in, to be run. Before the workers start.
    pub(super) fn add(&self, section: SectionRun) {
        let index = section.index();
        *self.sections[index].lock() = Some(section);
        self.enqueue(index);
    }

    /// Lets a section run that no worker has.
    pub(super) fn enqueue(&self, section: usize) {
        // There is room for every section, and each is in it once at most.
        let queued = self.queue.push(section);
        debug_assert!(queued.is_ok(), "section {section} is queued twice");
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            let _timers = self.timers.lock();
            self.wake.notify_one();
        }
    }

    /// Runs sections until all have ended.
    pub(super) fn work(&self, run: &Run, finished: &Finished) {
        let mut since = 0;
        loop {
            if let Some(section) = self.queue.pop() {
                self.run_one(section, run, finished);
                since += 1;
                if since >= TIMER_INTERVAL {
                    since = 0;
                    self.expire(run);
                }
            } else if self.left.load(Ordering::Acquire) == 0 {
                return;
            } else {
                since = 0;
                self.expire(run);
                self.sleep(run);
            }
        }
    }

    fn sleep(&self, run: &Run) {
        let mut timers = self.timers.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.queue.is_empty() && self.left.load(Ordering::Acquire) > 0 {
            let next = timers.heap.peek().map(|Reverse((at, _))| *at);
            match next {
                None => self.wake.wait(&mut timers),
                Some(at) => {
                    let left = at.saturating_since(run.clock.now());
                    self.wake.wait_for(&mut timers, left);
                }
            }
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes the sections whose time has come.
    fn expire(&self, run: &Run) {
        if self.next.load(Ordering::Relaxed) == NEVER {
            return;
        }
        let now = run.clock.now();
        if now.as_nanos() < self.next.load(Ordering::Relaxed) {
            return;
        }
        loop {
            let due = {
                let mut timers = self.timers.lock();
                let due = timers.heap.peek().copied();
                let due = due.filter(|Reverse((at, _))| *at <= now);
                let Some(Reverse((at, section))) = due else {
                    self.note_next(&timers);
                    return;
                };
                timers.heap.pop();
                if timers.armed[section] != Some(at) {
                    continue;
                }
                timers.armed[section] = None;
                section
            };
            run.sections[due].signal.wake();
        }
    }

    fn note_next(&self, timers: &Timers) {
        let next = timers.heap.peek();
        let next = next.map_or(NEVER, |Reverse((at, _))| at.as_nanos());
        self.next.store(next, Ordering::Relaxed);
    }

    /// Wakes a section at `at`, or earlier.
    fn arm(&self, section: usize, at: Timestamp) {
        let mut timers = self.timers.lock();
        if timers.armed[section].is_some_and(|armed| armed <= at) {
            return;
        }
        let earliest = timers
            .heap
            .peek()
            .is_none_or(|Reverse((next, _))| at < *next);
        timers.armed[section] = Some(at);
        timers.heap.push(Reverse((at, section)));
        self.note_next(&timers);
        if earliest {
            self.wake.notify_one();
        }
    }

    fn run_one(&self, index: usize, run: &Run, finished: &Finished) {
        let Some(mut section) = self.sections[index].lock().take() else {
            return;
        };
        let signal = &run.sections[index].signal;
        signal.resume();
        section.sleeps(false);
        loop {
            match section.turn::<false>(BUDGET) {
                Turn::Again => return self.again(section),
                Turn::Ended => return self.end(section, run, finished),
                Turn::Idle(_) => {}
            }
            if !signal.announce() {
                signal.resume();
                continue;
            }
            let idle = match section.turn::<false>(BUDGET) {
                Turn::Again => {
                    signal.resume();
                    return self.again(section);
                }
                Turn::Ended => return self.end(section, run, finished),
                Turn::Idle(idle) => idle,
            };
            let soft = section.deadline(&idle);
            let at = match (idle.hint, soft) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            section.sleeps(true);
            if let Some(at) = at {
                self.arm(index, at);
            }
            // It must lie there before anybody can queue it.
            *self.sections[index].lock() = Some(section);
            if signal.commit() {
                return;
            }
            match self.sections[index].lock().take() {
                Some(taken) => section = taken,
                None => return,
            }
            signal.resume();
            section.sleeps(false);
        }
    }

    fn again(&self, section: SectionRun) {
        let index = section.index();
        *self.sections[index].lock() = Some(section);
        self.enqueue(index);
    }

    fn end(&self, section: SectionRun, run: &Run, finished: &Finished) {
        finished.put(section, run);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _timers = self.timers.lock();
            self.wake.notify_all();
        }
    }
}

/// Starts the workers of a pool.
pub(super) fn start_workers(
    pool: &Arc<Pool>,
    count: usize,
    run: &Arc<Run>,
    finished: &Finished,
    cores: &[usize],
) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
    let mut threads = Vec::with_capacity(count);
    for number in 0..count {
        let (pool, run, finished) = (Arc::clone(pool), Arc::clone(run), finished.clone());
        let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
        let name = format!("hf-pool-{number}");
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            super::threads::prepare_thread(core);
            pool.work(&run, &finished);
        })?;
        threads.push(thread);
    }
    Ok(threads)
}
