//! Starting a run, and putting together what is left of it.
//!
//! What can be refused is refused before a task is touched: graph inputs that nothing feeds, a
//! limit of frames in flight with which none gets through, sections that are gone. Then each
//! task is told that a run begins, and only then does a thread start.
//!
//! Shutdown, in order: each section concludes by itself (see `section.rs`), gives itself back
//! to [`Finished`] and counts itself as ended; the last one wakes whoever waits; that one joins
//! the threads, puts the sections back into the graph, tells each task that the run has ended,
//! and makes the report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;

use super::credit::Credit;
use super::failure::{Failure, FailureCause, Phase, RunError, RunFailure, StartError};
use super::link::Link;
use super::options::{RunOptions, Threads, WaitStrategy};
use super::pool::{Pool, start_workers};
use super::report::Report;
use super::section::SectionRun;
use super::shared::{Events, Place, Run, Runner, TokenWaker, section_id};
use super::threads::{drive, prepare_thread};
use crate::compiler::{CompiledGraph, Plan, Section};
use crate::ids::{NodeId, SectionId};
use crate::sync::{Arc, Mutex, Parker};
use crate::task::port::Port;
use crate::task::{Hook, HookError, StopFlags, TaskError, TaskKind};

/// Where sections go that have ended.
#[derive(Debug, Clone)]
pub(crate) struct Finished(Arc<[Mutex<Option<Section>>]>);

impl Finished {
    fn new(sections: usize) -> Self {
        Self((0..sections).map(|_| Mutex::new(None)).collect())
    }

    /// Gives a section back, and counts it as ended.
    pub(super) fn put(&self, section: SectionRun, run: &Run) {
        let index = section.index();
        *self.0[index].lock() = Some(section.into_section());
        run.section_ended(index);
    }

    fn take(&self, index: usize) -> Option<Section> {
        self.0[index].lock().take()
    }
}

/// A run and its threads.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) run: Arc<Run>,
    finished: Finished,
    threads: Vec<JoinHandle<()>>,
}

/// What a pipeline keeps from run to run, beside its graph.
#[derive(Debug)]
pub(crate) struct Kept {
    /// By node.
    pub(super) links: Box<[Option<Arc<Link>>]>,
    pub(super) events: Events,
    /// A section that is still in a hook of an earlier run.
    lost: Mutex<Option<SectionId>>,
}

impl Kept {
    pub(crate) fn new(plan: &Plan, options: &RunOptions) -> Self {
        let links = plan.nodes.iter().map(|node| {
            let is_async = node.task == TaskKind::Async;
            let passes = node.producer.is_some() && node.consumer.is_some();
            is_async.then(|| Arc::new(Link::new(node.flow, passes)))
        });
        Self {
            links: links.collect(),
            events: Events::new(plan, options.mailbox),
            lost: Mutex::new(None),
        }
    }
}

impl Kept {
    /// New mailboxes; the links stay, with what the async nodes hold.
    pub(crate) fn renew_events(&mut self, plan: &Plan, options: &RunOptions) {
        self.events = Events::new(plan, options.mailbox);
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }
}

/// A run whose sections wait to be driven.
pub(crate) struct Prepared {
    pub(crate) run: Arc<Run>,
    pub(crate) sections: Vec<SectionRun>,
    pub(crate) finished: Finished,
}

/// Checks what can be checked, and tells every task that a run begins.
pub(crate) fn prepare(
    graph: &mut CompiledGraph,
    kept: &Kept,
    options: &RunOptions,
    fallback: Option<(Duration, Duration)>,
    runners: impl FnOnce(&Plan, &[bool]) -> Vec<Runner>,
) -> Result<Prepared, StartError> {
    let plan = Arc::clone(graph.shared_plan());
    check(&plan, options)?;
    let mut sections = graph.take_sections();
    if sections.len() < plan.sections.len() {
        let section = kept.lost.lock().unwrap_or(section_id(sections.len()));
        graph.put_sections(sections);
        return Err(StartError::SectionLost { section });
    }
    let stop = Arc::new(StopFlags::new());
    if let Err(error) = begin(&plan, &mut sections, kept, options, &stop) {
        graph.put_sections(sections);
        return Err(StartError::Task(error));
    }
    for (link, node) in kept.links.iter().zip(&plan.nodes) {
        if let Some(link) = link {
            link.open(node.producer.is_some(), node.consumer.is_some());
        }
    }
    let blocking: Vec<bool> = sections
        .iter()
        .map(|section| {
            let ports = section.sync.iter().chain(&section.pops);
            let mut ports = ports.chain(&section.pushes);
            ports.any(|(node, _)| plan.nodes[node.index()].blocking)
        })
        .collect();
    let run = Arc::new(Run::new(
        Arc::clone(&plan),
        options.clone(),
        fallback,
        runners(&plan, &blocking),
        kept.links.clone(),
        credit(&plan, options, kept),
        stop,
    ));
    let finished = Finished::new(sections.len());
    let sections = sections.into_iter().enumerate();
    let sections = sections.map(|(index, section)| SectionRun::new(index, section, &run));
    let sections = sections.collect();
    Ok(Prepared {
        run,
        sections,
        finished,
    })
}

fn check(plan: &Plan, options: &RunOptions) -> Result<(), StartError> {
    let fed = |tensor: crate::ids::TensorId| plan.tensors[tensor.index()].readers.is_empty();
    if let Some((input, _)) = plan.inputs.iter().find(|(_, tensor)| !fed(**tensor)) {
        return Err(StartError::InputNotFed {
            input: input.clone(),
        });
    }
    let Some(limit) = options.in_flight else {
        return Ok(());
    };
    // In the worst case all that is held back lies in different nodes at once.
    let mut needed = 1_usize;
    let mut most = (0, String::new());
    for node in plan
        .nodes
        .iter()
        .filter(|node| node.task == TaskKind::Async)
    {
        if node.producer.is_none() || node.consumer.is_none() {
            continue;
        }
        let Some(flow) = node.flow else {
            return Err(StartError::UncountedFlow {
                node: node.name.clone(),
            });
        };
        let own = flow.frames_per_output.saturating_add(flow.held_back);
        needed = needed.saturating_add(own - 1);
        if own > most.0 {
            most = (own, node.name.clone());
        }
    }
    if needed > limit.get() {
        return Err(StartError::InFlight {
            limit: limit.get(),
            needed,
            node: most.1,
            own: most.0,
        });
    }
    Ok(())
}

fn credit(plan: &Plan, options: &RunOptions, kept: &Kept) -> Option<Credit> {
    let limit = options.in_flight?;
    let links = kept.links.iter().zip(&plan.nodes);
    // What only takes frames in holds none of them in flight.
    let links = links.filter(|(_, node)| node.producer.is_some() && node.consumer.is_some());
    let links = links.filter_map(|(link, _)| link.as_ref());
    let held = links.map(|link| link.held()).sum();
    let is_source = |section: &crate::compiler::PlanSection| {
        let mut pops = section.pops.iter();
        pops.all(|node| plan.nodes[node.index()].producer.is_none())
    };
    let sources = plan.sections.iter().enumerate();
    let sources = sources.filter(|(_, section)| is_source(section));
    let sources = sources.map(|(index, _)| index).collect();
    Some(Credit::new(limit.get(), held, sources))
}

/// Gives every node what it has in this run, and tells its task that the run begins.
fn begin(
    plan: &Plan,
    sections: &mut [Section],
    kept: &Kept,
    options: &RunOptions,
    stop: &Arc<StopFlags>,
) -> Result<(), HookError> {
    for section in sections.iter_mut() {
        let ports = section.sync.iter_mut().chain(&mut section.pops);
        for (node, port) in ports.chain(&mut section.pushes) {
            let name = plan.nodes[node.index()].name.as_str();
            let ctx = &mut port.node;
            ctx.clock = Arc::clone(&options.clock);
            ctx.stop = Arc::clone(stop);
            ctx.wake_at = None;
            ctx.dropped = 0;
            ctx.copied_bytes = 0;
            ctx.events_out = kept.events.to_application.clone();
            if let Some((_, mailbox)) = kept.events.to_nodes.get(name) {
                ctx.events_in = mailbox.clone();
            }
        }
    }
    for_each_task(sections, Hook::RunStarted, |_, ports| match ports {
        Ports::One(port) => port.run_started(),
        Ports::Two(producer, consumer) => Port::run_started_async(producer, consumer),
    })
}

/// The ports of one task.
pub(super) enum Ports<'a> {
    One(&'a mut Port),
    Two(&'a mut Port, &'a mut Port),
}

/// Calls `call` with the ports of each task, until one fails; a panic is a failure, and the
/// task gets no further hook.
pub(super) fn for_each_task(
    sections: &mut [Section],
    hook: Hook,
    mut call: impl FnMut(NodeId, Ports<'_>) -> Result<(), HookError>,
) -> Result<(), HookError> {
    // The pop sides, out of their sections for as long as both sides are needed.
    let mut pops: std::collections::HashMap<NodeId, (usize, Port)> =
        std::collections::HashMap::new();
    let mut order: Vec<Vec<NodeId>> = Vec::with_capacity(sections.len());
    for (index, section) in sections.iter_mut().enumerate() {
        let taken = std::mem::take(&mut section.pops);
        order.push(taken.iter().map(|(node, _)| *node).collect());
        pops.extend(taken.into_iter().map(|(node, port)| (node, (index, port))));
    }
    let mut result = Ok(());
    let mut guarded = |node: NodeId, mut ports: Ports<'_>, bank: &mut crate::storage::CellBank| {
        if result.is_err() {
            return;
        }
        let again = match &mut ports {
            Ports::One(port) => Ports::One(port),
            Ports::Two(producer, consumer) => Ports::Two(producer, consumer),
        };
        let done = catch_unwind(AssertUnwindSafe(|| call(node, again)));
        result = done.unwrap_or_else(|payload| {
            let (Ports::One(port) | Ports::Two(port, _)) = ports;
            port.poison(bank);
            let name = port.node.name.to_string();
            Err(HookError::new(name, hook, TaskError::panicked(payload)))
        });
    };
    let mut done = std::collections::HashSet::new();
    for section in sections.iter_mut() {
        for (node, port) in &mut section.sync {
            guarded(*node, Ports::One(port), &mut section.bank);
        }
        for (node, port) in &mut section.pushes {
            let ports = match pops.get_mut(node) {
                Some((_, pop)) => Ports::Two(port, pop),
                None => Ports::One(port),
            };
            done.insert(*node);
            guarded(*node, ports, &mut section.bank);
        }
    }
    for (section, nodes) in sections.iter_mut().zip(order) {
        for node in nodes {
            let Some((_, mut port)) = pops.remove(&node) else {
                continue;
            };
            if !done.contains(&node) {
                guarded(node, Ports::One(&mut port), &mut section.bank);
            }
            section.pops.push((node, port));
        }
    }
    result
}

/// Starts a run on threads; `begins` gets it before the first of them.
pub(crate) fn start(
    graph: &mut CompiledGraph,
    kept: &Kept,
    options: &RunOptions,
    begins: impl FnOnce(&Arc<Run>),
) -> Result<Running, StartError> {
    let mut parkers: Vec<Option<Parker>> = Vec::new();
    let mut pool = None;
    let first = Duration::from_millis(1);
    let fallback = Some((first, Duration::from_millis(100)));
    let prepared = prepare(graph, kept, options, fallback, |plan, blocking| {
        let count = plan.sections.len();
        let pooled = blocking.iter().filter(|blocking| !**blocking).count();
        if let Threads::Pool(_) = options.threads {
            pool = Some(Arc::new(Pool::new(count, pooled)));
        }
        let runner = |(index, blocking): (usize, &bool)| match &pool {
            Some(pool) if !blocking => {
                parkers.push(None);
                Runner::Pool(Arc::clone(pool), index)
            }
            _ => {
                let parker = Parker::new();
                let unparker = parker.unparker().clone();
                parkers.push(Some(parker));
                Runner::Thread(unparker)
            }
        };
        blocking.iter().enumerate().map(runner).collect()
    })?;
    let Prepared {
        run,
        sections,
        finished,
    } = prepared;
    let mut running = Running {
        run: Arc::clone(&run),
        finished: finished.clone(),
        threads: Vec::with_capacity(sections.len()),
    };
    begins(&run);
    watch_token(&run);
    let wait = wait_strategy(options, sections.len());
    let mut error = None;
    for (section, parker) in sections.into_iter().zip(parkers) {
        let index = section.index();
        match (parker, &pool) {
            (None, Some(pool)) => pool.add(section),
            (parker, _) => {
                let parker = parker.unwrap_or_default();
                let (run, finished) = (Arc::clone(&run), finished.clone());
                let core = core_of(options, index);
                let name = format!("hf-section-{index}");
                *run.sections[index].thread.lock() = name.clone();
                // Behind a lock of its own, so that it is not lost if there is no thread.
                let slot = Arc::new(Mutex::new(Some(section)));
                let taken = Arc::clone(&slot);
                let spawned = std::thread::Builder::new().name(name).spawn({
                    let (run, finished) = (Arc::clone(&run), finished.clone());
                    move || {
                        let Some(section) = taken.lock().take() else {
                            return;
                        };
                        prepare_thread(core);
                        finished.put(drive(section, &parker, wait), &run);
                    }
                });
                match spawned {
                    Ok(thread) => running.threads.push(thread),
                    Err(cause) => {
                        error.get_or_insert(cause);
                        if let Some(section) = slot.lock().take() {
                            finished.put(section, &run);
                        }
                    }
                }
            }
        }
    }
    if let (Some(pool), Threads::Pool(count)) = (&pool, options.threads) {
        match start_workers(pool, count.get(), &run, &finished, &options.cores) {
            Ok(threads) => running.threads.extend(threads),
            Err(cause) => {
                error.get_or_insert(cause);
            }
        }
    }
    match error {
        None => Ok(running),
        Some(cause) => {
            run.cancel();
            if let Some(pool) = &pool {
                // Whatever workers there are run the sections to their end; if there are none,
                // this thread does.
                pool.work(&run, &finished);
            }
            // How the run ended says nothing: it never began.
            let _ = running.wait(graph, kept);
            Err(StartError::Thread(cause))
        }
    }
}

/// Spinning takes the core from the section that is waited for, where there is none to spare.
fn wait_strategy(options: &RunOptions, sections: usize) -> WaitStrategy {
    if options.wait == WaitStrategy::SpinThenPark {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let cores = if options.cores.is_empty() {
            cores
        } else {
            options.cores.len().min(cores)
        };
        if sections > 2 * cores {
            return WaitStrategy::Park;
        }
    }
    options.wait
}

fn core_of(options: &RunOptions, index: usize) -> Option<usize> {
    let cores = &options.cores;
    (!cores.is_empty()).then(|| cores[index % cores.len()])
}

/// Cancels the run when the token from outside is cancelled.
pub(crate) fn watch_token(run: &Arc<Run>) {
    let Some(token) = run.options.cancellation.clone() else {
        return;
    };
    let waker = std::task::Waker::from(Arc::new(TokenWaker {
        run: Arc::clone(run),
        token: token.clone(),
    }));
    let mut cancelled = Box::pin(token.clone().cancelled_owned());
    let mut context = std::task::Context::from_waker(&waker);
    if std::future::Future::poll(cancelled.as_mut(), &mut context).is_ready() {
        run.cancel();
    } else {
        run.keep_token_watch(cancelled);
    }
}

impl Running {
    /// Waits for the end, puts the graph together again, and says what came of it.
    pub(crate) fn wait(
        mut self,
        graph: &mut CompiledGraph,
        kept: &Kept,
    ) -> Result<Report, RunError> {
        let stuck = self.run.wait(None) == super::shared::Waited::Stuck;
        if !stuck {
            for thread in self.threads.drain(..) {
                // A section's panics are caught in it.
                let _ = thread.join();
            }
        }
        finish(&self.run, &self.finished, graph, kept)
    }
}

/// Puts sections that have ended back into their graph, tells the tasks, and reports.
pub(crate) fn finish(
    run: &Arc<Run>,
    finished: &Finished,
    graph: &mut CompiledGraph,
    kept: &Kept,
) -> Result<Report, RunError> {
    run.drop_token_watch();
    let mut sections = Vec::with_capacity(run.sections.len());
    let mut failures = run.take_failures();
    for index in 0..run.sections.len() {
        match finished.take(index) {
            Some(section) => sections.push(section),
            None => {
                let place = run.sections[index].place();
                let after = run.options.stop_timeout;
                kept.lost.lock().get_or_insert(section_id(index));
                failures.push(run.failure(index, place, FailureCause::Stuck { after }));
            }
        }
    }
    let complete = sections.len() == run.sections.len();
    for section in &mut sections {
        for (_, port) in &mut section.pushes {
            port.take_spare(&mut section.bank);
        }
        let ports = section.sync.iter_mut().chain(&mut section.pops);
        for (_, port) in ports.chain(&mut section.pushes) {
            port.node.waker = std::task::Waker::noop().clone();
        }
    }
    if complete {
        end_tasks(run, &mut sections, &mut failures);
        graph.put_sections(sections);
    }
    let report = Report::of(run, &kept.links);
    let mut failures = failures.into_iter();
    match failures.next() {
        None => Ok(report),
        Some(first) => Err(RunError::Failed(Box::new(RunFailure {
            first,
            consequences: failures.collect(),
            report,
        }))),
    }
}

/// Tells every task that the run has ended, and keeps what they have to say of it.
fn end_tasks(run: &Arc<Run>, sections: &mut [Section], failures: &mut Vec<Failure>) {
    let _ = for_each_task(sections, Hook::RunEnded, |node, ports| {
        let ended = catch_unwind(AssertUnwindSafe(|| match ports {
            Ports::One(port) => port.run_ended(),
            Ports::Two(producer, consumer) => Port::run_ended_async(producer, consumer),
        }));
        let ended = ended.unwrap_or_else(|payload| {
            let name = run.node_name(node).unwrap_or_default();
            let error = TaskError::panicked(payload);
            Err(HookError::new(name, Hook::RunEnded, error))
        });
        match ended {
            Ok(values) if values.is_empty() => {}
            Ok(values) => {
                let values = values
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value));
                run.results.lock().insert(node, values.collect());
            }
            Err(error) => {
                let planned = &run.plan.nodes[node.index()];
                let section = planned.producer.or(planned.consumer);
                let section = section.map_or(0, crate::ids::SectionId::index);
                let place = Place {
                    phase: Phase::Ended,
                    node: Some(node),
                    slot: None,
                };
                failures.push(run.failure(section, place, FailureCause::Hook(error)));
            }
        }
        Ok(())
    });
}
