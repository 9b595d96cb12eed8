//! The loop of one section, as a state machine that can stop after every hook and go on.
//!
//! One iteration: acquire owned inputs; pop; execute; complete the stream; push; release. A
//! [`turn`](SectionRun::turn) goes on from where the last one stopped until nothing can be
//! done, the budget is used up, or the section has ended. Whoever calls it decides on which
//! thread, and how to wait in between: a thread of its own, a pool, or a test that steps.
//!
//! What it does not know: threads, sleeping, other sections but by their signals and links.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **SC1** Phases are in the order above, and hooks within a phase in the order of the plan.
//! - **SC2** Each acquired input is pushed, executed or cancelled once; each popped output is
//!   released once. Held by the ports (PT1, PT2), and by `conclude` for what an end leaves.
//! - **SC3** A node that needs an output which was not made in this iteration is not called in
//!   it. What was acquired for it stays acquired.
//! - **SC4** An async node is told that its producer has ended after its last push, and its
//!   consumer side sees the flag only after that. The flag is read before the pop whose answer
//!   is judged by it.
//! - **SC5** A section ends once, and gives back what it holds before it says so.
//!
//! Why neighbours are told of progress at the end of an iteration and not after each hook: the
//! fence costs as much as a small hook. Before the section waits, works long (where a pop has
//! freed a place), or ends, it tells them too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::failure::{Failure, FailureCause, Phase};
use super::layout::{Acquire, Layout, Of};
use super::shared::{Counters, Place, Run, SectionShared, add};
use crate::clock::Timestamp;
use crate::compiler::Section;
use crate::ids::NodeId;
use crate::storage::CellBank;
use crate::sync::Arc;
use crate::sync::atomic::{Ordering, fence};
use crate::task::port::Port;
use crate::task::{
    Entered, FrameMeta, Hook, HookError, OpResult, StopFlags, TaskError, TaskErrorKind, TaskResult,
};

/// One iteration of so many is timed, and every one that took longer than [`SLOW`].
const SAMPLED: u64 = 64;
const SLOW: Duration = Duration::from_micros(200);

/// A section and how far it has come.
#[derive(Debug)]
pub(crate) struct SectionRun {
    index: usize,
    run: Arc<Run>,
    stop: Arc<StopFlags>,
    section: Section,
    layout: Layout,
    /// Metadata of the frame of each origin, boxed as a node has it.
    #[allow(
        clippy::vec_box,
        reason = "the boxes are swapped with those of the nodes"
    )]
    metas: Vec<Box<FrameMeta>>,
    phase: Phase,
    cursor: usize,
    iterations: u64,
    /// Hooks that got on.
    advances: u64,
    /// Some node has made nothing in this iteration.
    lacking: bool,
    sampled: bool,
    was_slow: bool,
    began: Timestamp,
    /// Places in flight that this iteration holds.
    units: u64,
    /// Neighbours to be told of progress, by bit; the last bit stands for all from there on.
    touched: u64,
    hint: Option<Timestamp>,
    soft: Option<Timestamp>,
    /// Nodes that said nothing of when they will be ready.
    asked: Vec<Of>,
    backoff: Duration,
}

/// What came of a turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// There may be more to do.
    Again,
    /// Nothing can be done now.
    Idle(Idle),
    /// The section has ended.
    Ended,
}

/// When a section that can do nothing is to be called again, if nothing wakes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    /// When a hook said it will be ready: to be met as exactly as can be.
    pub(crate) hint: Option<Timestamp>,
    /// When something is to be looked at; a little later will do.
    pub(crate) soft: Option<Timestamp>,
}

enum Step {
    Next,
    Wait,
    Yield,
}

/// Why a section ends.
enum Stop {
    /// Nothing comes any more, or nobody takes it.
    Finished,
    Cancelled,
    Failed(Box<Failure>),
}

type Stepped = Result<Step, Stop>;

impl SectionRun {
    pub(super) fn new(index: usize, mut section: Section, run: &Arc<Run>) -> Self {
        let layout = Layout::new(index, &mut section, run);
        let origins = layout.origins;
        Self {
            index,
            stop: Arc::clone(&run.stop),
            run: Arc::clone(run),
            section,
            layout,
            metas: (0..origins).map(|_| Box::default()).collect(),
            phase: Phase::Begin,
            cursor: 0,
            iterations: 0,
            advances: 0,
            lacking: false,
            sampled: false,
            was_slow: false,
            began: Timestamp::ZERO,
            units: 0,
            touched: 0,
            hint: None,
            soft: None,
            asked: Vec::new(),
            backoff: Duration::ZERO,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn run(&self) -> &Arc<Run> {
        &self.run
    }

    pub(super) fn shared(&self) -> &SectionShared {
        &self.run.sections[self.index]
    }

    /// The section itself, once it has ended.
    pub(super) fn into_section(self) -> Section {
        self.section
    }

    /// Hooks that got on so far.
    pub(super) fn advances(&self) -> u64 {
        self.advances
    }

    /// Goes on until nothing can be done, for `budget` iterations at most. With `STEP` it
    /// returns after every hook that got on.
    pub(super) fn turn<const STEP: bool>(&mut self, budget: u32) -> Turn {
        let done = catch_unwind(AssertUnwindSafe(|| self.advance::<STEP>(budget)));
        let stop = match done {
            Ok(Ok(turn)) => return turn,
            Ok(Err(stop)) => stop,
            Err(payload) => Stop::Failed(Box::new(self.panicked(payload))),
        };
        self.conclude(stop);
        Turn::Ended
    }

    /// Before the section goes to sleep, or once it runs again.
    pub(super) fn sleeps(&mut self, asleep: bool) {
        if asleep {
            let now = self.run.clock.now();
            let shared = self.shared();
            add(&shared.waits, 1);
            shared.waits_since(Some(now));
        } else {
            self.shared().waits_since(None);
        }
    }

    /// When to call the section again at the latest, if nothing wakes it. Looks at what
    /// concerns the whole run, and grows the interval for hooks that say nothing.
    pub(super) fn deadline(&mut self, idle: &Idle) -> Option<Timestamp> {
        let mut soft = idle.soft;
        let now = self.run.clock.now();
        self.run.look(now);
        if let Some(look) = self.run.next_look(now) {
            soft = Some(soft.map_or(look, |soft| soft.min(look)));
        }
        if let Some((first, most)) = self.run.fallback.filter(|_| self.falls_back()) {
            self.backoff = (self.backoff * 2).clamp(first, most);
            let again = now.saturating_add(self.backoff);
            soft = Some(soft.map_or(again, |soft| soft.min(again)));
        }
        soft
    }

    fn advance<const STEP: bool>(&mut self, mut budget: u32) -> Result<Turn, Stop> {
        self.hint = None;
        self.soft = None;
        self.asked.clear();
        let before = self.advances;
        loop {
            let step = match self.phase {
                Phase::Begin => self.begin()?,
                Phase::AcquireOwnedInputs => self.acquire::<STEP>()?,
                Phase::ExecuteAsyncConsumer => self.pop::<STEP>()?,
                Phase::ExecuteSync => self.execute::<STEP>()?,
                Phase::CompleteStream => self.complete()?,
                Phase::ExecuteAsyncProducer => self.push::<STEP>()?,
                Phase::ReleaseOwnedOutputs => {
                    let step = self.release::<STEP>()?;
                    if self.phase == Phase::Begin {
                        budget = budget.saturating_sub(1);
                        if budget == 0 || STEP {
                            return Ok(Turn::Again);
                        }
                    }
                    step
                }
                Phase::End | Phase::Ended => return Ok(Turn::Ended),
            };
            match step {
                Step::Next => {}
                Step::Yield => {
                    self.flush();
                    return Ok(Turn::Again);
                }
                Step::Wait => {
                    if self.advances != before {
                        self.backoff = Duration::ZERO;
                    }
                    return self.idle();
                }
            }
        }
    }

    fn idle(&mut self) -> Result<Turn, Stop> {
        self.flush();
        let shared = self.shared();
        shared.advances.store(self.advances, Ordering::Relaxed);
        if self.stop.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if self.layout.source && self.stop.is_finishing() && self.has_begun_nothing() {
            return Err(Stop::Finished);
        }
        // Nobody may be left to take what it waits for.
        if self.phase != Phase::Begin && self.has_begun_nothing() {
            self.notice_finished_consumers()?;
        }
        Ok(Turn::Idle(Idle {
            hint: self.hint,
            soft: self.soft,
        }))
    }

    /// Whether this iteration has no frame yet.
    fn has_begun_nothing(&self) -> bool {
        let popped = self.layout.pops.iter().any(|part| part.popped);
        let executing = self.phase == Phase::ExecuteSync && self.cursor > 0;
        let pushing = self.phase == Phase::ExecuteAsyncProducer;
        !popped && !executing && !pushing
    }

    fn next(&mut self, phase: Phase) -> Step {
        self.phase = phase;
        self.cursor = 0;
        Step::Next
    }

    fn begin(&mut self) -> Stepped {
        if self.stop.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if self.layout.source && (self.stop.is_finishing() || self.has_made_enough()) {
            return Err(Stop::Finished);
        }
        self.shared().enter(Place::encode(Phase::Begin, None, None));
        self.notice_finished_consumers()?;
        if let Some(credit) = self.run.credit.as_ref().filter(|_| self.layout.source) {
            if !credit.take() {
                return Ok(Step::Wait);
            }
            self.units = 1;
        }
        self.sampled = self.was_slow || self.iterations.is_multiple_of(SAMPLED);
        if self.sampled {
            self.began = self.run.clock.now();
        }
        Ok(self.next(Phase::AcquireOwnedInputs))
    }

    /// Whether a source of the section has made as many frames as it may.
    fn has_made_enough(&self) -> bool {
        self.run.options.frames.is_some_and(|frames| {
            let layout = &self.layout;
            layout
                .sync
                .iter()
                .any(|part| part.source && part.made >= frames)
                || layout
                    .pops
                    .iter()
                    .any(|part| part.source && part.made >= frames)
        })
    }

    /// Leaves async nodes whose consumer side has ended alone from now on.
    fn notice_finished_consumers(&mut self) -> Result<(), Stop> {
        let mut left = false;
        for push in 0..self.layout.pushes.len() {
            let part = &self.layout.pushes[push];
            if part.finished {
                continue;
            }
            if part.downstream.is_some() && part.link.is_consumer_done() {
                self.leave(push)?;
            } else {
                left = true;
            }
        }
        if left || self.layout.terminal || self.layout.pushes.is_empty() {
            Ok(())
        } else {
            Err(Stop::Finished)
        }
    }

    /// Pushes nothing more into an async node. Other nodes go on to work on what it owned, in a
    /// spare region.
    fn leave(&mut self, push: usize) -> Result<(), Stop> {
        let part = &mut self.layout.pushes[push];
        part.finished = true;
        part.link.no_push_follows();
        self.run.give_back(part.link.settle());
        let (node, port) = &mut self.section.pushes[push];
        let place = Place {
            phase: self.phase,
            node: Some(*node),
            slot: None,
        };
        let shared = &self.run.sections[self.index];
        let before = shared.word();
        shared.enter(Place::encode(self.phase, Some(*node), None));
        port.cancel(&mut self.section.bank);
        for acquire in &mut self.layout.acquires {
            if acquire.of == Of::Push(push) {
                acquire.done = false;
            }
        }
        match port.lend_spare(&mut self.section.bank) {
            Ok(()) => {
                shared.enter(before);
                Ok(())
            }
            Err(error) => Err(self.failed(place, error)),
        }
    }

    fn acquire<const STEP: bool>(&mut self) -> Stepped {
        while let Some(acquire) = self.layout.acquires.get(self.cursor) {
            let Acquire { of, input, done } = *acquire;
            if done || self.is_left(of) {
                self.cursor += 1;
                continue;
            }
            if self.stop.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let bank = &mut self.section.bank;
            let (node, port) = match of {
                Of::Sync(index) => &mut self.section.sync[index],
                Of::Push(index) => &mut self.section.pushes[index],
                Of::Pop(index) => &mut self.section.pops[index],
            };
            let node = *node;
            let shared = &self.run.sections[self.index];
            shared.enter(Place::encode(self.phase, Some(node), Some(input)));
            match port.acquire(bank, input) {
                Ok(true) => {
                    self.layout.acquires[self.cursor].done = true;
                    self.advances += 1;
                    self.cursor += 1;
                    if STEP {
                        return Ok(Step::Yield);
                    }
                }
                Ok(false) => {
                    let wake_at = port.node.wake_at;
                    if let Of::Push(push) = of {
                        let part = &self.layout.pushes[push];
                        if part.downstream.is_some() && part.link.is_consumer_done() {
                            self.leave(push)?;
                            self.notice_finished_consumers()?;
                            continue;
                        }
                    }
                    self.waits_for(wake_at, of);
                    return Ok(Step::Wait);
                }
                Err(error) => {
                    let place = self.shared().place();
                    return Err(self.hook_failed(place, error));
                }
            }
        }
        if self.stop.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        Ok(self.next(Phase::ExecuteAsyncConsumer))
    }

    fn is_left(&self, of: Of) -> bool {
        matches!(of, Of::Push(push) if self.layout.pushes[push].finished)
    }

    fn pop<const STEP: bool>(&mut self) -> Stepped {
        let mut waits = false;
        let mut index = 0;
        while index < self.layout.pops.len() {
            if self.layout.pops[index].popped {
                index += 1;
                continue;
            }
            if self.stop.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            match self.pop_one(index)? {
                // The frame inside has failed: there may be another.
                None => continue,
                Some(true) if STEP => return Ok(Step::Yield),
                Some(true) => {}
                Some(false) => waits = true,
            }
            index += 1;
        }
        if waits {
            return Ok(Step::Wait);
        }
        // Who waits for a place is not to wait for the work on this frame.
        self.flush();
        Ok(self.next(Phase::ExecuteSync))
    }

    /// Pops from one async node: whether there was a frame; `None` if one has failed.
    fn pop_one(&mut self, index: usize) -> Result<Option<bool>, Stop> {
        let part = &mut self.layout.pops[index];
        let (node, port) = &mut self.section.pops[index];
        let node = *node;
        // Before the pop that is judged by it (SC4).
        let finished = !part.source && part.link.is_producer_done();
        let meta = &mut self.metas[part.origin];
        let frame = part.link.head();
        match &part.link.meta {
            Some(ring) if ring.get(frame, meta) => {}
            Some(_) => meta.renumber(frame),
            None => meta.renumber(part.link.taken()),
        }
        if self.sampled && part.source {
            meta.set_entered(Some(entered(self.run.clock.now(), node)));
        }
        let shared = &self.run.sections[self.index];
        shared.enter(Place::encode(Phase::ExecuteAsyncConsumer, Some(node), None));
        std::mem::swap(meta, &mut port.node.meta);
        let answer = port.pop(&mut self.section.bank);
        std::mem::swap(meta, &mut port.node.meta);
        let counters = &shared.pops[index];
        if port.node.dropped > 0 {
            let count = lost(counters, port);
            if !part.source {
                part.link.skip(count, finished);
                self.run.give_back(count);
            }
        }
        match answer {
            Ok(OpResult::Ok) => {
                if self.run.credit.is_some() {
                    self.units += match (part.source, finished) {
                        (true, _) => 0,
                        // The last may be made of fewer.
                        (false, true) => part.frames_per_output.min(part.link.held()),
                        (false, false) => part.frames_per_output,
                    };
                }
                part.link.take(finished);
                part.popped = true;
                part.made += 1;
                part.drains_since = None;
                self.advances += 1;
                if part.frees_on_pop {
                    self.touched |= part.upstream;
                }
                if self.sampled {
                    let now = self.run.clock.now();
                    counters.durations.add(now.saturating_since(self.began));
                    self.began = now;
                }
                Ok(Some(true))
            }
            Ok(OpResult::Eof) => Err(Stop::Finished),
            Ok(OpResult::Cancelled) => Err(self.stopped_by_a_task()),
            Ok(OpResult::NotReady | OpResult::Skip) => {
                let wake_at = port.node.wake_at;
                if finished {
                    if part.link.is_drained() {
                        return Err(Stop::Finished);
                    }
                    self.waits_to_drain(index, wake_at)?;
                } else {
                    self.waits_for(wake_at, Of::Pop(index));
                }
                Ok(Some(false))
            }
            Err(error) if is_frame(&error) => {
                add(&counters.failed, part.frames_per_output);
                if !part.source {
                    part.link.skip(part.frames_per_output, finished);
                    self.run.give_back(part.frames_per_output);
                }
                self.advances += 1;
                Ok(None)
            }
            Err(error) => {
                let place = self.shared().place();
                Err(self.hook_failed(place, error))
            }
        }
    }

    /// Waits for an async node whose producer has ended; an error if it does not drain.
    fn waits_to_drain(&mut self, index: usize, wake_at: Option<Timestamp>) -> Result<(), Stop> {
        let part = &mut self.layout.pops[index];
        // Whoever keeps a waker knows when it will be ready, and answers Eof itself.
        let live = Arc::strong_count(&part.waker) > 2;
        if wake_at.is_some() || live {
            part.drains_since = None;
            if wake_at.is_some() || !live {
                self.waits_for(wake_at, Of::Pop(index));
            }
            return Ok(());
        }
        let now = self.run.clock.now();
        let since = *part.drains_since.get_or_insert(now);
        let timeout = self.run.options.drain_timeout;
        let waited = now.saturating_since(since);
        if waited >= timeout {
            let held = part.link.flow().map(|_| part.link.held());
            let place = self.shared().place();
            let cause = FailureCause::DidNotDrain { held, waited };
            let failure = self.run.failure(self.index, place, cause);
            return Err(Stop::Failed(Box::new(failure)));
        }
        self.waits_for(None, Of::Pop(index));
        self.soft_at(since.saturating_add(timeout));
        Ok(())
    }

    /// Notes that a hook is not ready: when it says it will be, or else whose it was.
    fn waits_for(&mut self, wake_at: Option<Timestamp>, of: Of) {
        match wake_at {
            Some(at) => self.hint = Some(self.hint.map_or(at, |hint| hint.min(at))),
            None => self.asked.push(of),
        }
    }

    /// Whether some node that said nothing of when it will be ready may become so by itself.
    fn falls_back(&self) -> bool {
        self.asked.iter().any(|of| match *of {
            Of::Sync(_) => true,
            Of::Pop(index) => {
                let part = &self.layout.pops[index];
                // With too few frames inside, only the producer can help.
                part.source || part.drains_since.is_some() || !part.link.is_drained()
            }
            Of::Push(index) => {
                let part = &self.layout.pushes[index];
                // What is full gets a place when the other side takes something out.
                part.downstream.is_none() || part.link.flow().is_none() || part.link.held() == 0
            }
        })
    }

    fn soft_at(&mut self, at: Timestamp) {
        self.soft = Some(self.soft.map_or(at, |soft| soft.min(at)));
    }

    fn execute<const STEP: bool>(&mut self) -> Stepped {
        let count = self.section.sync.len();
        let mut first = None;
        if !STEP && !self.lacking && !self.sampled {
            first = self.execute_run();
        }
        while self.cursor < count {
            if let Some(answer) = first.take() {
                let index = self.cursor;
                let answer = self.section.sync[index].1.judge_plain(answer);
                if let Some(step) = self.lacks(index, answer)? {
                    return Ok(step);
                }
                continue;
            }
            if self.stop.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let index = self.cursor;
            let part = &mut self.layout.sync[index];
            if self.lacking && self.layout.lacks.any(&part.needs) {
                self.layout.lacks.set(index);
                self.cursor += 1;
                continue;
            }
            let (node, port) = &mut self.section.sync[index];
            let shared = &self.run.sections[self.index];
            shared.enter(Place::encode(Phase::ExecuteSync, Some(*node), None));
            let meta = &mut self.metas[part.origin];
            if part.source {
                meta.renumber(part.made);
                if self.sampled {
                    self.began = self.run.clock.now();
                    meta.set_entered(Some(entered(self.began, *node)));
                }
            }
            std::mem::swap(meta, &mut port.node.meta);
            let answer = port.execute(&mut self.section.bank);
            std::mem::swap(meta, &mut port.node.meta);
            match answer {
                Ok(OpResult::Ok) => {
                    part.made += 1;
                    self.advances += 1;
                    self.cursor += 1;
                    if self.sampled {
                        self.sample(index);
                    }
                    if STEP {
                        return Ok(Step::Yield);
                    }
                }
                answer => {
                    if let Some(step) = self.lacks(index, answer)? {
                        return Ok(step);
                    }
                    if STEP {
                        return Ok(Step::Yield);
                    }
                }
            }
        }
        if self.section.stream.is_some() {
            return Ok(self.next(Phase::CompleteStream));
        }
        Ok(self.next(Phase::ExecuteAsyncProducer))
    }

    /// Executes sync nodes from the cursor on for as long as they own no slots and answer `Ok`,
    /// which is what most do; the first other answer. As `execute`, without what is rare.
    #[inline]
    fn execute_run(&mut self) -> Option<TaskResult<OpResult>> {
        let shared = &self.run.sections[self.index];
        let Section { bank, sync, .. } = &mut self.section;
        let ports = sync[self.cursor..].iter_mut();
        let parts = self.layout.sync[self.cursor..].iter_mut();
        let mut done = 0;
        let mut other = None;
        for ((_, port), part) in ports.zip(parts) {
            if self.stop.is_cancelled() {
                break;
            }
            shared.enter(part.place);
            let meta = &mut self.metas[part.origin];
            if part.source {
                meta.renumber(part.made);
            }
            std::mem::swap(meta, &mut port.node.meta);
            let answer = port.execute_plain(bank);
            std::mem::swap(meta, &mut port.node.meta);
            match answer {
                Some(Ok(OpResult::Ok)) => {
                    part.made += u64::from(part.source);
                    done += 1;
                }
                answer => {
                    other = answer;
                    break;
                }
            }
        }
        self.cursor += done;
        self.advances += done as u64;
        other
    }

    /// Times the sync node that was just executed.
    #[cold]
    fn sample(&mut self, index: usize) {
        let now = self.run.clock.now();
        let part = &self.layout.sync[index];
        let (node, port) = &self.section.sync[index];
        let counters = &self.run.sections[self.index].sync[index];
        counters.durations.add(now.saturating_since(self.began));
        counters
            .copied_bytes
            .store(port.node.copied_bytes, Ordering::Relaxed);
        self.began = now;
        if part.end {
            arrived(&self.run, &self.metas[part.origin], *node, now);
        }
    }

    /// A sync node has made nothing.
    #[cold]
    fn lacks(
        &mut self,
        index: usize,
        answer: Result<OpResult, HookError>,
    ) -> Result<Option<Step>, Stop> {
        let counters = &self.run.sections[self.index].sync[index];
        let port = &mut self.section.sync[index].1;
        match answer {
            Ok(OpResult::Skip) => add(&counters.skipped, 1),
            Ok(OpResult::Eof) => return Err(Stop::Finished),
            Ok(OpResult::Cancelled) => return Err(self.stopped_by_a_task()),
            Ok(OpResult::NotReady | OpResult::Ok) => {
                let wake_at = port.node.wake_at;
                self.waits_for(wake_at, Of::Sync(index));
                return Ok(Some(Step::Wait));
            }
            Err(error) if is_frame(&error) => {
                tracing::debug!(target: "holoflow", "{error:#}");
                add(&counters.failed, 1);
                port.cancel(&mut self.section.bank);
            }
            Err(error) => {
                let place = self.shared().place();
                return Err(self.hook_failed(place, error));
            }
        }
        self.lacking = true;
        self.layout.lacks.set(index);
        self.advances += 1;
        self.cursor += 1;
        Ok(None)
    }

    fn complete(&mut self) -> Stepped {
        if let Some(stream) = &self.section.stream {
            let place = Place::encode(Phase::CompleteStream, None, None);
            self.run.sections[self.index].enter(place);
            if let Err(error) = stream.synchronize() {
                let place = self.shared().place();
                let cause = FailureCause::Stream(error);
                let failure = self.run.failure(self.index, place, cause);
                return Err(Stop::Failed(Box::new(failure)));
            }
        }
        Ok(self.next(Phase::ExecuteAsyncProducer))
    }

    fn push<const STEP: bool>(&mut self) -> Stepped {
        while self.cursor < self.section.pushes.len() {
            if self.stop.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let index = self.cursor;
            let part = &mut self.layout.pushes[index];
            let shared = &self.run.sections[self.index];
            let counters = &shared.pushes[index];
            if self.lacking && self.layout.lacks.any(&part.needs) {
                self.cursor += 1;
                continue;
            }
            if part.finished {
                add(&counters.consumer_finished, 1);
                self.cursor += 1;
                continue;
            }
            let (node, port) = &mut self.section.pushes[index];
            shared.enter(Place::encode(
                Phase::ExecuteAsyncProducer,
                Some(*node),
                None,
            ));
            let meta = &mut self.metas[part.origin];
            if let Some(ring) = &part.link.meta {
                ring.put(part.link.tail(), meta);
            }
            std::mem::swap(meta, &mut port.node.meta);
            let answer = port.push(&mut self.section.bank);
            std::mem::swap(meta, &mut port.node.meta);
            match answer {
                Ok(OpResult::Ok) => {
                    part.link.accept();
                    if let Some(credit) = &self.run.credit
                        && part.downstream.is_some()
                    {
                        credit.add();
                    }
                    if port.node.dropped > 0 {
                        let count = lost(counters, port);
                        if part.downstream.is_some() {
                            part.link.drop_newest(count);
                            self.run.give_back(count);
                        }
                    }
                    self.advances += 1;
                    self.touched |= part.touches;
                    self.cursor += 1;
                    if self.sampled {
                        let now = self.run.clock.now();
                        counters.durations.add(now.saturating_since(self.began));
                        self.began = now;
                        if part.downstream.is_none() {
                            arrived(&self.run, &self.metas[part.origin], *node, now);
                        }
                    }
                }
                Ok(OpResult::NotReady | OpResult::Skip) => {
                    let wake_at = port.node.wake_at;
                    if part.downstream.is_some() && part.link.is_consumer_done() {
                        self.leave(index)?;
                        continue;
                    }
                    self.waits_for(wake_at, Of::Push(index));
                    return Ok(Step::Wait);
                }
                Ok(OpResult::Eof) => {
                    self.leave(index)?;
                    continue;
                }
                Ok(OpResult::Cancelled) => return Err(self.stopped_by_a_task()),
                Err(error) if is_frame(&error) => {
                    tracing::debug!(target: "holoflow", "{error:#}");
                    add(&counters.failed, 1);
                    port.cancel(&mut self.section.bank);
                    self.advances += 1;
                    self.cursor += 1;
                    for acquire in &mut self.layout.acquires {
                        if acquire.of == Of::Push(index) {
                            acquire.done = false;
                        }
                    }
                }
                Err(error) => {
                    let place = self.shared().place();
                    return Err(self.hook_failed(place, error));
                }
            }
            if STEP {
                return Ok(Step::Yield);
            }
        }
        Ok(self.next(Phase::ReleaseOwnedOutputs))
    }

    fn release<const STEP: bool>(&mut self) -> Stepped {
        while let Some((of, output)) = self.layout.releases.get(self.cursor).copied() {
            self.cursor += 1;
            let (node, port) = match of {
                Of::Sync(index) if self.lacking && self.layout.lacks.has(index) => continue,
                Of::Sync(index) => &mut self.section.sync[index],
                Of::Pop(index) => &mut self.section.pops[index],
                Of::Push(_) => continue,
            };
            let shared = &self.run.sections[self.index];
            let place = Place::encode(Phase::ReleaseOwnedOutputs, Some(*node), Some(output));
            shared.enter(place);
            if let Err(error) = port.release(&mut self.section.bank, output) {
                let place = shared.place();
                return Err(self.hook_failed(place, error));
            }
            if STEP {
                return Ok(Step::Yield);
            }
        }
        self.end_iteration();
        Ok(self.next(Phase::Begin))
    }

    fn end_iteration(&mut self) {
        for part in &mut self.layout.pops {
            part.popped = false;
            self.touched |= part.upstream;
        }
        if self.lacking {
            self.end_lacking_iteration();
        } else {
            for acquire in &mut self.layout.acquires {
                acquire.done = false;
            }
        }
        self.iterations += 1;
        let shared = &self.run.sections[self.index];
        shared.iterations.store(self.iterations, Ordering::Relaxed);
        shared.advances.store(self.advances, Ordering::Relaxed);
        if self.sampled {
            let now = self.run.clock.now();
            self.was_slow = now.saturating_since(self.began) > SLOW || self.layout.is_slow(shared);
        }
        if self.units > 0 {
            self.run.give_back(std::mem::take(&mut self.units));
        }
        self.flush();
    }

    #[cold]
    fn end_lacking_iteration(&mut self) {
        let shared = &self.run.sections[self.index];
        for index in self.layout.lacks.drain() {
            add(&shared.sync[index].lacking, 1);
        }
        self.lacking = false;
        for acquire in &mut self.layout.acquires {
            let port = match acquire.of {
                Of::Sync(index) => &self.section.sync[index].1,
                Of::Push(index) => &self.section.pushes[index].1,
                Of::Pop(index) => &self.section.pops[index].1,
            };
            acquire.done = port.holds_input(acquire.input);
        }
    }

    /// Tells the neighbours of progress made.
    #[inline]
    fn flush(&mut self) {
        if self.touched == 0 {
            return;
        }
        fence(Ordering::SeqCst);
        let touched = std::mem::take(&mut self.touched);
        for (bit, peer) in self.layout.peers.iter().enumerate() {
            if touched & 1 << bit.min(63) != 0 {
                self.run.sections[*peer].signal.progress();
            }
        }
    }

    /// A task has answered `Cancelled`: if nobody else has, it has stopped the run.
    #[cold]
    fn stopped_by_a_task(&mut self) -> Stop {
        if !self.stop.is_cancelled() {
            self.run.cancel();
        }
        Stop::Cancelled
    }

    fn failed(&self, place: Place, error: TaskError) -> Stop {
        let node = place.node.and_then(|node| self.run.node_name(node));
        let error = HookError::new(node.unwrap_or_default(), Hook::AcquireInput, error);
        self.hook_failed(place, error)
    }

    #[cold]
    fn hook_failed(&self, place: Place, error: HookError) -> Stop {
        let cause = FailureCause::Hook(error);
        Stop::Failed(Box::new(self.run.failure(self.index, place, cause)))
    }

    /// After a panic: the node in whose hook it was gets no other.
    #[cold]
    fn panicked(&mut self, payload: Box<dyn std::any::Any + Send>) -> Failure {
        let place = self.shared().place();
        let error = TaskError::panicked(payload);
        let node = place.node;
        let hook = match place.phase {
            Phase::AcquireOwnedInputs => Hook::AcquireInput,
            Phase::ExecuteAsyncConsumer => Hook::TryPop,
            Phase::ExecuteAsyncProducer => Hook::TryPush,
            Phase::ReleaseOwnedOutputs => Hook::ReleaseOutput,
            _ => Hook::Execute,
        };
        if let Some(node) = node {
            poison(&mut self.section, node);
            // Those before it have executed, which `execute_run` notes at its end only.
            if self.phase == Phase::ExecuteSync
                && let Some(at) = self.section.sync.iter().position(|(of, _)| *of == node)
            {
                self.cursor = at;
            }
        }
        let name = node.and_then(|node| self.run.node_name(node));
        let error = HookError::new(name.unwrap_or_default(), hook, error);
        self.run
            .failure(self.index, place, FailureCause::Hook(error))
    }

    /// Ends the section: completes its stream, gives back what it holds, and tells its
    /// neighbours.
    fn conclude(&mut self, stop: Stop) {
        let in_iteration = self.phase != Phase::Begin;
        let ended_in = self.phase;
        self.phase = Phase::End;
        match stop {
            Stop::Failed(failure) => self.run.fail(*failure),
            Stop::Cancelled => self.run.cut_short(),
            Stop::Finished => {}
        }
        let run = Arc::clone(&self.run);
        let shared = &run.sections[self.index];
        shared.enter(Place::encode(Phase::End, None, None));
        if let Some(stream) = &self.section.stream
            && let Err(error) = stream.synchronize()
        {
            let cause = FailureCause::Stream(error);
            run.fail(run.failure(self.index, shared.place(), cause));
        }
        if in_iteration {
            self.count_cut_iteration(ended_in);
        }
        let Section {
            bank,
            sync,
            pops,
            pushes,
            ..
        } = &mut self.section;
        let mut end = Ending {
            run: &run,
            section: self.index,
            bank,
        };
        for (of, output) in std::mem::take(&mut self.layout.releases) {
            let held = match of {
                Of::Sync(index) => &mut sync[index],
                Of::Pop(index) => &mut pops[index],
                Of::Push(_) => continue,
            };
            if held.1.holds_output(output) {
                end.call(held, Hook::ReleaseOutput, |port, bank| {
                    port.release(bank, output)
                });
            }
        }
        for taker in pushes.iter_mut().rev().chain(sync.iter_mut().rev()) {
            end.call(taker, Hook::CancelInput, |port, bank| {
                port.cancel(bank);
                Ok(())
            });
        }
        for (push, part) in pushes.iter_mut().zip(&self.layout.pushes) {
            end.tell(push);
            part.link.producer_is_done();
            part.link.no_push_follows();
            run.give_back(part.link.settle());
        }
        for (pop, part) in pops.iter_mut().zip(&self.layout.pops) {
            end.tell(pop);
            part.link.consumer_is_done();
            run.give_back(part.link.settle());
        }
        if self.units > 0 {
            run.give_back(std::mem::take(&mut self.units));
        }
        self.count_copies();
        shared.advances.store(self.advances + 1, Ordering::Relaxed);
        for peer in &self.layout.peers {
            run.sections[*peer].signal.wake();
        }
        self.phase = Phase::Ended;
    }

    /// Counts what an iteration that was not ended has done.
    fn count_cut_iteration(&mut self, ended_in: Phase) {
        let shared = &self.run.sections[self.index];
        for (part, counters) in self.layout.pops.iter_mut().zip(&shared.pops) {
            if std::mem::take(&mut part.popped) {
                add(&counters.discarded, 1);
            }
        }
        let executed = match ended_in {
            Phase::ExecuteSync => self.cursor,
            Phase::CompleteStream | Phase::ExecuteAsyncProducer | Phase::ReleaseOwnedOutputs => {
                self.section.sync.len()
            }
            _ => 0,
        };
        if executed == 0 {
            return;
        }
        self.iterations += 1;
        shared.iterations.store(self.iterations, Ordering::Relaxed);
        for (index, counters) in shared.sync.iter().enumerate() {
            if index >= executed || self.layout.lacks.has(index) {
                add(&counters.lacking, 1);
            }
        }
    }

    fn count_copies(&self) {
        let shared = &self.run.sections[self.index];
        let of = |ports: &[(NodeId, Port)], counters: &[Counters]| {
            for ((_, port), counters) in ports.iter().zip(counters) {
                let copied = port.node.copied_bytes;
                counters.copied_bytes.store(copied, Ordering::Relaxed);
            }
        };
        of(&self.section.sync, &shared.sync);
        of(&self.section.pops, &shared.pops);
        of(&self.section.pushes, &shared.pushes);
    }
}

fn entered(at: Timestamp, node: NodeId) -> Entered {
    Entered {
        at,
        // Ids are made of 32 bits.
        source: node.index() as u32,
    }
}

/// A frame has come to an end of the pipeline.
fn arrived(run: &Run, meta: &FrameMeta, sink: NodeId, now: Timestamp) {
    if let Some(entered) = meta.entered() {
        let path = (NodeId::new(entered.source), sink);
        let since = meta.captured.unwrap_or(entered.at);
        let mut latency = run.latency.lock();
        let histogram = latency.entry(path).or_default();
        histogram.add(now.saturating_since(since));
    }
}

/// Counts what the task of a port says it has dropped.
#[cold]
fn lost(counters: &Counters, port: &mut Port) -> u64 {
    let count = std::mem::take(&mut port.node.dropped);
    add(&counters.dropped, count);
    count
}

/// Whether only this frame has failed.
fn is_frame(error: &HookError) -> bool {
    matches!(error.error.kind(), TaskErrorKind::Frame(_))
}

/// The task in whose hook the section was gets no other. A section has one side of a node only.
fn poison(section: &mut Section, node: NodeId) {
    let ports = section.sync.iter_mut().chain(&mut section.pushes);
    let mut ports = ports.chain(&mut section.pops);
    if let Some((_, port)) = ports.find(|(of, _)| *of == node) {
        port.poison(&mut section.bank);
    }
}

/// Calls hooks while a section ends: whatever comes of one, the ending goes on.
struct Ending<'a> {
    run: &'a Run,
    section: usize,
    bank: &'a mut CellBank,
}

impl Ending<'_> {
    /// Tells a task that nothing follows on the side that is in this section.
    fn tell(&mut self, node: &mut (NodeId, Port)) {
        let hook = node.1.finish_hook();
        self.call(node, hook, |port, _| {
            port.finished();
            Ok(())
        });
    }

    fn call(
        &mut self,
        (node, port): &mut (NodeId, Port),
        hook: Hook,
        call: impl FnOnce(&mut Port, &mut CellBank) -> Result<(), HookError>,
    ) {
        let Self { run, section, bank } = self;
        let shared = &run.sections[*section];
        shared.enter(Place::encode(Phase::End, Some(*node), None));
        let known = port.is_poisoned();
        let done = catch_unwind(AssertUnwindSafe(|| call(port, bank)));
        let error = match done {
            Ok(Ok(())) => return,
            // That its task has panicked is no news: the port has emptied its cells.
            Ok(Err(_)) if known => return,
            Ok(Err(error)) => error,
            Err(payload) => {
                let error = TaskError::panicked(payload);
                port.poison(bank);
                HookError::new(run.node_name(*node).unwrap_or_default(), hook, error)
            }
        };
        run.fail(run.failure(*section, shared.place(), FailureCause::Hook(error)));
    }
}
