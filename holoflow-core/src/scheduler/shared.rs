//! What all threads of a run share: signals, links, counts, stops, failures.
//!
//! A [`Run`] is made when a pipeline starts and outlives its sections: reports are made of it,
//! and handles and wakers that an application keeps refer to it. It owns no section, so that
//! nobody who holds it can touch one.
//!
//! What it does not know: how sections are run, and what a section does in its turn.
//!
//! Ordering: counts are written by one section each and read by anybody, relaxed; what is
//! read after `wait` is exact, since the lock of the end orders it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::credit::Credit;
use super::failure::{Failure, FailureCause, Phase};
use super::histogram::Histogram;
use super::link::Link;
use super::options::{RunOptions, Watchdog};
use super::pool::Pool;
use super::signal::{Signal, Wakee};
use super::stall::{StallReport, StalledSection, Watch};
use crate::clock::{Clock, Timestamp};
use crate::compiler::Plan;
use crate::ids::{NodeId, SectionId};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Arc, CachePadded, Condvar, Mutex, Unparker};
use crate::task::{Event, Mailbox, StopFlags};

/// What lets a section run.
pub(crate) enum Runner {
    /// A thread of its own, which parks.
    Thread(Unparker),
    /// Number so many of a pool.
    Pool(Arc<Pool>, usize),
    /// Whoever steps the sections looks at their signals.
    #[cfg(feature = "testkit")]
    Step,
}

impl Wakee for Runner {
    fn wake(&self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Pool(pool, section) => pool.enqueue(*section),
            #[cfg(feature = "testkit")]
            Self::Step => {}
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Thread",
            Self::Pool(..) => "Pool",
            #[cfg(feature = "testkit")]
            Self::Step => "Step",
        })
    }
}

/// Where a section is: phase, node and slot in one word, so that others read it whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) phase: Phase,
    pub(super) node: Option<NodeId>,
    pub(super) slot: Option<usize>,
}

impl Place {
    const NO_NODE: u64 = 0xffff_ffff;
    const NO_SLOT: u64 = 0xff_ffff;

    #[inline]
    pub(super) fn encode(phase: Phase, node: Option<NodeId>, slot: Option<usize>) -> u64 {
        let node = node.map_or(Self::NO_NODE, |node| node.index() as u64);
        let slot = slot.map_or(Self::NO_SLOT, |slot| (slot as u64).min(Self::NO_SLOT - 1));
        (phase as u64) << 56 | slot << 32 | node
    }

    fn decode(word: u64) -> Self {
        let node = word & Self::NO_NODE;
        let slot = word >> 32 & Self::NO_SLOT;
        Self {
            phase: Phase::numbered(word >> 56),
            // Below 2^32, as masked.
            node: (node != Self::NO_NODE).then(|| NodeId::new(node as u32)),
            slot: (slot != Self::NO_SLOT).then_some(slot as usize),
        }
    }
}

/// What is counted of one node in one section. All of it is rare: what happens in every
/// iteration is counted once for the section.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Iterations in which the node did not answer `Ok`.
    pub(super) lacking: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// Frames offered to an async node whose consumer side had ended.
    pub(super) consumer_finished: AtomicU64,
    /// Frames popped that the section could not work on any more.
    pub(super) discarded: AtomicU64,
    pub(super) copied_bytes: AtomicU64,
    pub(super) durations: Histogram,
}

/// Adds to a count that only this thread writes.
pub(super) fn add(count: &AtomicU64, more: u64) {
    let sum = count.load(Ordering::Relaxed).wrapping_add(more);
    count.store(sum, Ordering::Relaxed);
}

/// What others see of a section.
#[derive(Debug)]
pub(crate) struct SectionShared {
    /// Apart from what its section writes in every hook: neighbours look at it in every
    /// iteration of theirs.
    pub(super) signal: CachePadded<Signal<Runner>>,
    place: AtomicU64,
    /// Iterations done.
    pub(super) iterations: AtomicU64,
    /// Grows whenever the section has got on, as it says before it waits.
    pub(super) advances: AtomicU64,
    /// How often it has gone to sleep.
    pub(super) waits: AtomicU64,
    /// Time since which it waits, and one; 0 while it does not.
    waiting_since: AtomicU64,
    /// Name of its thread, once it runs.
    pub(super) thread: Mutex<String>,
    pub(super) sync: Box<[Counters]>,
    pub(super) pops: Box<[Counters]>,
    pub(super) pushes: Box<[Counters]>,
}

impl SectionShared {
    #[inline]
    pub(super) fn enter(&self, place: u64) {
        self.place.store(place, Ordering::Relaxed);
    }

    pub(super) fn place(&self) -> Place {
        Place::decode(self.word())
    }

    /// The place as `enter` takes it.
    pub(super) fn word(&self) -> u64 {
        self.place.load(Ordering::Relaxed)
    }

    pub(super) fn waits_since(&self, now: Option<Timestamp>) {
        let since = now.map_or(0, |now| now.as_nanos().saturating_add(1));
        self.waiting_since.store(since, Ordering::Relaxed);
    }

    fn waiting_since(&self) -> Option<Timestamp> {
        let since = self.waiting_since.load(Ordering::Relaxed);
        since.checked_sub(1).map(Timestamp::from_nanos)
    }
}

/// A value that a task gave at the end of a run.
pub(crate) type Results = BTreeMap<String, Value>;

#[derive(Debug)]
pub(crate) struct Run {
    pub(super) plan: Arc<Plan>,
    pub(super) options: RunOptions,
    /// How long a hook that says nothing of when it will be ready is left alone at first, and
    /// at most; `None` if it is only called again when something has happened.
    pub(super) fallback: Option<(Duration, Duration)>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) started: Timestamp,
    pub(super) stop: Arc<StopFlags>,
    pub(super) sections: Box<[CachePadded<SectionShared>]>,
    /// By node: those of async nodes.
    pub(super) links: Box<[Option<Arc<Link>>]>,
    /// What the links held before the run, by node.
    pub(super) held_before: Box<[LinkCounts]>,
    pub(super) credit: Option<Credit>,
    pub(super) latency: Mutex<BTreeMap<(NodeId, NodeId), Histogram>>,
    pub(super) results: Mutex<BTreeMap<NodeId, Results>>,
    failures: Mutex<Vec<Failure>>,
    /// Whether a section ended because the run was cancelled.
    cut: AtomicBool,
    /// Nanoseconds of the clock at which draining becomes a cancellation.
    drain_deadline: AtomicU64,
    watch: Mutex<Watch>,
    end: Mutex<EndState>,
    ended: Condvar,
    token_watch: Mutex<Option<TokenWatch>>,
}

/// What a link had counted before the run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkCounts {
    pub(super) accepted: u64,
    pub(super) taken: u64,
    pub(super) held: u64,
}

/// The mailboxes of a pipeline: they live as long as it does.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    pub(crate) to_nodes: Arc<HashMap<Arc<str>, (NodeId, Mailbox)>>,
    pub(crate) to_application: Mailbox,
    /// Events for nodes that are not there.
    pub(crate) unknown: Arc<AtomicU64>,
}

impl Events {
    pub(super) fn new(plan: &Plan, capacity: usize) -> Self {
        let nodes = plan.nodes.iter().enumerate().map(|(index, node)| {
            let id = NodeId::new(u32::try_from(index).unwrap_or(u32::MAX));
            let mailbox = Mailbox::new(Mailbox::DEFAULT_CAPACITY);
            (Arc::from(node.name.as_str()), (id, mailbox))
        });
        Self {
            to_nodes: Arc::new(nodes.collect()),
            to_application: Mailbox::new(capacity),
            unknown: Arc::new(AtomicU64::new(0)),
        }
    }
}

#[derive(Debug)]
struct EndState {
    /// Sections that have not ended.
    left: usize,
    /// When the run was cancelled, and when it was told to drain.
    cancelled: Option<Instant>,
    draining: Option<Instant>,
    wakers: Vec<Waker>,
    at: Option<Timestamp>,
}

/// Registered with a token, for as long as it lives.
struct TokenWatch(
    #[allow(dead_code, reason = "only its being there counts")]
    std::pin::Pin<Box<WaitForCancellationFutureOwned>>,
);

impl fmt::Debug for TokenWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenWatch")
    }
}

/// What came of waiting for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    Ended,
    /// A section does not return from a hook.
    Stuck,
    TimedOut,
}

impl Run {
    #[allow(clippy::too_many_arguments, reason = "called in one place")]
    pub(super) fn new(
        plan: Arc<Plan>,
        options: RunOptions,
        fallback: Option<(Duration, Duration)>,
        runners: Vec<Runner>,
        links: Box<[Option<Arc<Link>>]>,
        credit: Option<Credit>,
        stop: Arc<StopFlags>,
    ) -> Self {
        let counters = |count: usize| (0..count).map(|_| Counters::default()).collect();
        let sections = plan.sections.iter().zip(runners).map(|(section, runner)| {
            CachePadded::new(SectionShared {
                signal: CachePadded::new(Signal::new(runner)),
                place: AtomicU64::new(Place::encode(Phase::Begin, None, None)),
                iterations: AtomicU64::new(0),
                advances: AtomicU64::new(0),
                waits: AtomicU64::new(0),
                waiting_since: AtomicU64::new(0),
                thread: Mutex::new(String::new()),
                sync: counters(section.sync.len()),
                pops: counters(section.pops.len()),
                pushes: counters(section.pushes.len()),
            })
        });
        let held_before = links.iter().map(|link| {
            link.as_ref()
                .map_or_else(LinkCounts::default, |link| LinkCounts {
                    accepted: link.accepted(),
                    taken: link.taken(),
                    held: link.held(),
                })
        });
        let clock = Arc::clone(&options.clock);
        let started = clock.now();
        Self {
            sections: sections.collect(),
            held_before: held_before.collect(),
            end: Mutex::new(EndState {
                left: plan.sections.len(),
                cancelled: None,
                draining: None,
                wakers: Vec::new(),
                at: None,
            }),
            plan,
            options,
            fallback,
            clock,
            started,
            stop,
            links,
            credit,
            latency: Mutex::default(),
            results: Mutex::default(),
            failures: Mutex::default(),
            cut: AtomicBool::new(false),
            drain_deadline: AtomicU64::new(u64::MAX),
            watch: Mutex::new(Watch::new(started)),
            ended: Condvar::new(),
            token_watch: Mutex::new(None),
        }
    }

    /// Keeps the future that wakes when a token from outside is cancelled.
    pub(super) fn keep_token_watch(
        &self,
        watch: std::pin::Pin<Box<WaitForCancellationFutureOwned>>,
    ) {
        *self.token_watch.lock() = Some(TokenWatch(watch));
    }

    pub(super) fn drop_token_watch(&self) {
        let watch = self.token_watch.lock().take();
        drop(watch);
    }

    pub(super) fn link(&self, node: NodeId) -> Option<&Arc<Link>> {
        self.links.get(node.index())?.as_ref()
    }

    /// Lets every section look at what has changed.
    pub(super) fn wake_all(&self) {
        for section in &self.sections {
            section.signal.wake();
        }
    }

    /// Stops everything now.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
        {
            let mut end = self.end.lock();
            end.cancelled.get_or_insert_with(Instant::now);
        }
        self.ended.notify_all();
        self.wake_all();
    }

    /// Stops the sources, and lets everything drain.
    pub(crate) fn finish(&self) {
        {
            let mut end = self.end.lock();
            if end.draining.is_none() {
                end.draining = Some(Instant::now());
                let deadline = self.clock.now().saturating_add(self.options.drain_timeout);
                self.drain_deadline
                    .store(deadline.as_nanos(), Ordering::Release);
            }
        }
        self.stop.finish();
        self.ended.notify_all();
        self.wake_all();
    }

    pub(crate) fn is_stop_requested(&self) -> bool {
        self.stop.is_cancelled() || self.stop.is_finishing()
    }

    /// Keeps a failure and stops everything.
    pub(super) fn fail(&self, failure: Failure) {
        self.failures.lock().push(failure);
        self.cancel();
    }

    pub(super) fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut self.failures.lock())
    }

    /// A section ends because the run is cancelled.
    pub(super) fn cut_short(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_cut_short(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// When the run ended, or now.
    pub(super) fn end_time(&self) -> Timestamp {
        self.end.lock().at.unwrap_or_else(|| self.clock.now())
    }

    pub(super) fn section_name(&self, section: usize) -> String {
        self.plan.section_name(section_id(section))
    }

    pub(super) fn node_name(&self, node: NodeId) -> Option<String> {
        let node = self.plan.nodes.get(node.index())?;
        Some(node.name.clone())
    }

    /// A failure of what `section` is doing.
    pub(super) fn failure(&self, section: usize, place: Place, cause: FailureCause) -> Failure {
        Failure {
            node: place.node.and_then(|node| self.node_name(node)),
            vertex: place.node,
            phase: place.phase,
            section: section_id(section),
            section_name: self.section_name(section),
            thread: self.thread_of(section),
            cause,
        }
    }

    /// Name of a section's thread: its own, or the one that has it now.
    fn thread_of(&self, section: usize) -> String {
        let own = self.sections[section].thread.lock().clone();
        if !own.is_empty() {
            return own;
        }
        let current = std::thread::current();
        current.name().unwrap_or("without a name").to_owned()
    }

    /// A section has ended and given all of itself back.
    pub(super) fn section_ended(&self, section: usize) {
        self.sections[section].enter(Place::encode(Phase::Ended, None, None));
        let wakers = {
            let mut end = self.end.lock();
            end.left -= 1;
            if end.left > 0 {
                return;
            }
            end.at = Some(self.clock.now());
            std::mem::take(&mut end.wakers)
        };
        self.ended.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.end.lock().left == 0
    }

    /// Wakes `waker` at the end; `false` if it is there already.
    pub(crate) fn wake_at_end(&self, waker: &Waker) -> bool {
        let mut end = self.end.lock();
        if end.left == 0 {
            return false;
        }
        if !end.wakers.iter().any(|known| known.will_wake(waker)) {
            end.wakers.push(waker.clone());
        }
        true
    }

    /// Waits until every section has ended, `until` has come, or a section has not returned
    /// from a hook for the stop timeout.
    ///
    /// It is also who notices that draining takes too long, and a stall, where every section
    /// is in a hook.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Waited {
        let RunOptions {
            drain_timeout,
            stop_timeout,
            watchdog_period,
            ..
        } = self.options;
        let mut end = self.end.lock();
        loop {
            if end.left == 0 {
                return Waited::Ended;
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Waited::TimedOut;
            }
            let stuck = end
                .cancelled
                .and_then(|since| since.checked_add(stop_timeout));
            if stuck.is_some_and(|stuck| now >= stuck) {
                return Waited::Stuck;
            }
            let drained = end.draining.filter(|_| end.cancelled.is_none());
            let drained = drained.and_then(|since| since.checked_add(drain_timeout));
            if drained.is_some_and(|drained| now >= drained) {
                drop(end);
                self.cancel();
                end = self.end.lock();
                continue;
            }
            let watch = self.watches().then(|| now.checked_add(watchdog_period));
            let next = [until, stuck, drained, watch.flatten()];
            match next.into_iter().flatten().min() {
                Some(next) => {
                    let _ = self.ended.wait_until(&mut end, next);
                }
                None => self.ended.wait(&mut end),
            }
            if self.watches() {
                drop(end);
                self.look_for_stall(self.clock.now());
                end = self.end.lock();
            }
        }
    }

    /// The sections that have not ended.
    pub(super) fn stuck_sections(&self) -> Vec<usize> {
        let all = 0..self.sections.len();
        all.filter(|section| self.sections[*section].place().phase != Phase::Ended)
            .collect()
    }

    fn watches(&self) -> bool {
        self.options.watchdog != Watchdog::Off && !self.is_stop_requested()
    }

    /// The next time by which a waiting section is to look at what concerns the whole run.
    pub(super) fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        let draining = self.drain_deadline.load(Ordering::Acquire);
        let draining = (draining != u64::MAX).then(|| Timestamp::from_nanos(draining));
        let watch = self
            .watches()
            .then(|| now.saturating_add(self.options.watchdog_period));
        match (draining, watch) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// What a section that waits does for the whole run.
    pub(super) fn look(&self, now: Timestamp) {
        if self.stop.is_finishing()
            && !self.stop.is_cancelled()
            && now.as_nanos() >= self.drain_deadline.load(Ordering::Acquire)
        {
            self.cancel();
        }
        if self.watches() {
            self.look_for_stall(now);
        }
    }

    /// Whether nothing has advanced for too long, which is then said once.
    fn look_for_stall(&self, now: Timestamp) {
        let advances = self.sections.iter();
        let advances = advances.fold(0_u64, |sum, section| {
            let more = section.advances.load(Ordering::Relaxed);
            sum.wrapping_add(more)
        });
        let stalled = self
            .watch
            .lock()
            .look(advances, now, self.options.watchdog_period);
        let Some(stalled_for) = stalled else {
            return;
        };
        let report = self.stall_report(now, stalled_for);
        tracing::warn!(target: "holoflow", "{report}");
        self.watch.lock().report = Some(report.clone());
        if self.options.watchdog == Watchdog::Stop {
            let section = self.stuck_sections().first().copied().unwrap_or(0);
            let place = self.sections[section].place();
            self.fail(self.failure(section, place, FailureCause::Stalled(report)));
        }
    }

    /// The last stall that was noticed.
    pub(crate) fn stall(&self) -> Option<StallReport> {
        self.watch.lock().report.clone()
    }

    /// What each section is doing.
    pub(super) fn stall_report(&self, now: Timestamp, stalled_for: Duration) -> StallReport {
        let sections = self.sections.iter().enumerate().map(|(index, section)| {
            let place = section.place();
            let link = place.node.and_then(|node| self.link(node));
            let flow = link.and_then(|link| link.flow());
            StalledSection {
                section: section_id(index),
                name: self.section_name(index),
                phase: place.phase,
                node: place.node.and_then(|node| self.node_name(node)),
                slot: place.slot,
                queued: link.map(|link| link.held()),
                capacity: flow
                    .map(|flow| flow.capacity)
                    .filter(|capacity| *capacity != usize::MAX),
                waiting: section
                    .waiting_since()
                    .map(|since| now.saturating_since(since)),
            }
        });
        StallReport {
            stalled_for,
            sections: sections
                .filter(|section| section.phase != Phase::Ended)
                .collect(),
        }
    }

    /// Gives back `count` frames in flight, and lets sources begin again.
    pub(super) fn give_back(&self, count: u64) {
        if let Some(credit) = &self.credit
            && credit.give_back(count)
        {
            fence(Ordering::SeqCst);
            for section in &credit.sources {
                self.sections[*section].signal.progress();
            }
        }
    }

    /// Puts an event into a node's mailbox and wakes its sections.
    pub(crate) fn deliver(&self, node: NodeId, mailbox: &Mailbox, event: Event) -> bool {
        let sent = mailbox.send(event);
        if let Some(node) = self.plan.nodes.get(node.index()) {
            for section in node.producer.iter().chain(&node.consumer) {
                self.sections[section.index()].signal.wake();
            }
        }
        sent
    }
}

pub(super) fn section_id(section: usize) -> SectionId {
    SectionId::new(u32::try_from(section).unwrap_or(u32::MAX))
}

/// Wakes one section, for tasks and their threads.
#[derive(Debug)]
pub(crate) struct SectionWaker {
    pub(super) run: Arc<Run>,
    pub(super) section: usize,
}

impl Wake for SectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.run.sections[self.section].signal.wake();
    }
}

/// Cancels a run when a token from outside is cancelled.
#[derive(Debug)]
pub(crate) struct TokenWaker {
    pub(super) run: Arc<Run>,
    pub(super) token: tokio_util::sync::CancellationToken,
}

impl Wake for TokenWaker {
    fn wake(self: Arc<Self>) {
        if self.token.is_cancelled() {
            self.run.cancel();
        }
    }
}
