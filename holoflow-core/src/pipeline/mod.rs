//! What an application holds: a compiled graph that can be run, watched and stopped.
//!
//! ```
//! use holoflow_core::graph::GraphBuilder;
//! use holoflow_core::pipeline::Pipeline;
//! use holoflow_core::registry::Registry;
//! use holoflow_core::task::{InferResult, OpResult};
//! use holoflow_core::tensor::TDesc;
//!
//! let mut graph = GraphBuilder::new();
//! let count = graph.sync_fn(
//!     "count",
//!     |_| Ok(InferResult::sync([], [TDesc::host::<u64>([1])?])),
//!     |ctx| {
//!         let sequence = ctx.meta().sequence;
//!         ctx.outputs.get_mut::<u64>(0)?[0] = sequence;
//!         Ok(if sequence < 10 { OpResult::Ok } else { OpResult::Eof })
//!     },
//! );
//! let double = graph.map_fn("double", |x: &[u64], y: &mut [u64]| y[0] = 2 * x[0]);
//! graph.connect(count, double);
//!
//! let mut pipeline = Pipeline::build(&graph.finish()?, &Registry::new())?;
//! let report = pipeline.run()?;
//! assert_eq!(report.node("double").map(|node| node.delivered), Some(10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What this layer does not know: how sections are run. It starts the scheduler, and puts
//! together what comes of it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::compiler::{CompileErrors, CompiledGraph, Compiler, Plan};
use crate::graph::{BuiltGraph, GraphSpec};
use crate::registry::{Registry, RegistryError};
use crate::scheduler::{
    Events, Kept, LastMetrics, Metrics, Report, Run, RunError, RunOptions, Running, StallReport,
    StartError, Waited, start,
};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex};
use crate::task::{Event, MailboxCounts};

/// A compiled graph ready to run.
///
/// It can be run again and again; async nodes keep what they hold, and tasks their state.
/// Dropping a pipeline that runs cancels it and waits for its end.
#[derive(Debug)]
pub struct Pipeline {
    graph: CompiledGraph,
    options: RunOptions,
    kept: Kept,
    running: Option<Running>,
    state: Arc<State>,
}

/// What handles share with their pipeline.
#[derive(Debug)]
struct State {
    /// The run, or the last one.
    run: Mutex<Option<Arc<Run>>>,
    /// Whether a run was started and not waited for.
    is_running: crate::sync::atomic::AtomicBool,
    last: Mutex<LastMetrics>,
    events: Events,
}

/// A handle to stop, watch and talk to a pipeline from anywhere.
#[derive(Debug, Clone)]
pub struct Control {
    state: Arc<State>,
}

/// What a builder made cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Its closures do not go with the registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The compiler refuses it.
    #[error(transparent)]
    Compile(#[from] CompileErrors),
}

/// An event that was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such node.
    #[error("there is no node `{node}` to send an event to")]
    UnknownNode {
        /// The name.
        node: String,
    },
    /// The node's mailbox is full; the event was dropped.
    #[error("the mailbox of `{node}` is full: the event was dropped")]
    Full {
        /// The name.
        node: String,
    },
}

impl Pipeline {
    /// Compiles a description; how it runs is taken from its `options`.
    ///
    /// # Errors
    /// What the compiler says, or options that make no sense.
    pub fn compile(graph: &GraphSpec, registry: &Registry) -> Result<Self, CompileErrors> {
        Self::compile_with(graph, &Compiler::new(registry))
    }

    /// Compiles a description with a compiler that has memory, devices or layouts of its own.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_with(graph: &GraphSpec, compiler: &Compiler<'_>) -> Result<Self, CompileErrors> {
        let options = RunOptions::from_json(&graph.options)?;
        let compiled = compiler.compile(graph)?;
        Ok(Self::new(compiled).with_options(options))
    }

    /// Compiles what a builder made, with its closures.
    ///
    /// # Errors
    /// As [`compile`](Self::compile), or if a closure has the name of a kind in the registry.
    pub fn build(graph: &BuiltGraph, registry: &Registry) -> Result<Self, BuildError> {
        Ok(Self::compile(&graph.spec, &registry.with(graph)?)?)
    }

    /// A pipeline of a compiled graph.
    #[must_use]
    pub fn new(graph: CompiledGraph) -> Self {
        let options = RunOptions::default();
        let kept = Kept::new(graph.plan(), &options);
        let state = State::new(&kept);
        Self {
            graph,
            options,
            kept,
            running: None,
            state: Arc::new(state),
        }
    }

    /// Sets how it is run, from the next start on. Handles made before are of no use then.
    #[must_use]
    pub fn with_options(mut self, options: RunOptions) -> Self {
        self.kept.renew_events(self.graph.plan(), &options);
        self.state = Arc::new(State::new(&self.kept));
        self.options = options;
        self
    }

    /// How it is run.
    #[must_use]
    pub fn options(&self) -> &RunOptions {
        &self.options
    }

    /// How it is run, to be changed; it counts from the next start on, but for the size of the
    /// mailbox, which [`with_options`](Self::with_options) sets.
    pub fn options_mut(&mut self) -> &mut RunOptions {
        &mut self.options
    }

    /// Where every byte lives, and in which order the nodes run.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.graph.plan()
    }

    /// Starts it, and returns at once.
    ///
    /// # Errors
    /// If it runs already, or cannot start; nothing has changed then, but for tasks that were
    /// told of a start before another refused.
    pub fn start(&mut self) -> Result<(), StartError> {
        if self.running.is_some() {
            return Err(StartError::AlreadyRunning);
        }
        let state = &self.state;
        // Before the first hook, so that a task can stop the run through a handle.
        let begins = |run: &Arc<Run>| {
            *state.run.lock() = Some(Arc::clone(run));
            *state.last.lock() = LastMetrics::default();
            state.is_running.store(true, Ordering::Release);
        };
        let running = match start(&mut self.graph, &self.kept, &self.options, begins) {
            Ok(running) => running,
            Err(error) => {
                state.is_running.store(false, Ordering::Release);
                return Err(error);
            }
        };
        self.running = Some(running);
        Ok(())
    }

    /// Starts it and waits for its end.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`wait`](Self::wait).
    pub fn run(&mut self) -> Result<Report, RunError> {
        self.start()?;
        self.wait()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What went wrong first, with what went wrong in consequence; if it was not started; or if
    /// a hook does not return for [`RunOptions::stop_timeout`] after a stop.
    pub fn wait(&mut self) -> Result<Report, RunError> {
        let running = self.running.take().ok_or(RunError::NotStarted)?;
        let report = running.wait(&mut self.graph, &self.kept);
        self.state.is_running.store(false, Ordering::Release);
        report
    }

    /// As [`wait`](Self::wait), for `timeout` at most; `None` if it has not ended by then.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<Result<Report, RunError>> {
        if let Some(running) = &self.running {
            let until = Instant::now().checked_add(timeout);
            if running.run.wait(until) == Waited::TimedOut {
                return None;
            }
        }
        Some(self.wait())
    }

    /// As [`wait`](Self::wait), to be awaited. A future that is dropped leaves the pipeline
    /// running.
    pub fn wait_async(&mut self) -> WaitAsync<'_> {
        WaitAsync {
            pipeline: self,
            watching: false,
        }
    }

    /// A handle to stop, watch and talk to it from anywhere.
    #[must_use]
    pub fn control(&self) -> Control {
        Control {
            state: Arc::clone(&self.state),
        }
    }

    /// Whether it was started and not waited for, even if it has ended by itself.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the run, or the last one, was told to stop.
    #[must_use]
    pub fn is_stop_requested(&self) -> bool {
        self.control().is_stop_requested()
    }

    /// Stops it now. Does not wait.
    pub fn cancel(&self) {
        self.control().cancel();
    }

    /// Stops its sources and lets everything drain. Does not wait.
    pub fn finish(&self) {
        self.control().finish();
    }

    /// The same as [`cancel`](Self::cancel).
    pub fn request_stop(&self) {
        self.cancel();
    }

    /// The figures of the run, or of the last one.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.control().metrics()
    }

    /// Sends an event to a node and wakes it.
    ///
    /// # Errors
    /// If there is no such node, or its mailbox is full.
    pub fn send(&self, node: &str, data: Value) -> Result<(), SendError> {
        self.control().send(node, data)
    }

    /// The next event from a node.
    #[must_use]
    pub fn receive(&self) -> Option<Event> {
        self.control().receive()
    }
}

/// A run that is going on is cancelled and waited for.
impl Drop for Pipeline {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.cancel();
            // Nobody is left to be told.
            drop(self.wait());
        }
    }
}

impl State {
    fn new(kept: &Kept) -> Self {
        Self {
            run: Mutex::new(None),
            is_running: crate::sync::atomic::AtomicBool::new(false),
            last: Mutex::default(),
            events: kept.events().clone(),
        }
    }

    fn run(&self) -> Option<Arc<Run>> {
        self.run.lock().clone()
    }
}

impl Control {
    /// As [`Pipeline::cancel`]. Before a start it does nothing.
    pub fn cancel(&self) {
        if let Some(run) = self.state.run().filter(|_| self.is_running()) {
            run.cancel();
        }
    }

    /// As [`Pipeline::finish`]. Before a start it does nothing.
    pub fn finish(&self) {
        if let Some(run) = self.state.run().filter(|_| self.is_running()) {
            run.finish();
        }
    }

    /// As [`Pipeline::request_stop`].
    pub fn request_stop(&self) {
        self.cancel();
    }

    /// As [`Pipeline::is_running`].
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state.is_running.load(Ordering::Acquire)
    }

    /// Whether all sections have ended, so that [`Pipeline::wait`] returns at once.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state.run().is_some_and(|run| run.is_ended())
    }

    /// As [`Pipeline::is_stop_requested`].
    #[must_use]
    pub fn is_stop_requested(&self) -> bool {
        self.state.run().is_some_and(|run| run.is_stop_requested())
    }

    /// As [`Pipeline::metrics`].
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let Some(run) = self.state.run() else {
            return Metrics::default();
        };
        Metrics::of(&run, &mut self.state.last.lock())
    }

    /// What the watchdog last said.
    #[must_use]
    pub fn stall(&self) -> Option<StallReport> {
        self.state.run()?.stall()
    }

    /// As [`Pipeline::send`].
    ///
    /// # Errors
    /// If there is no such node, or its mailbox is full.
    pub fn send(&self, node: &str, data: Value) -> Result<(), SendError> {
        let events = &self.state.events;
        let Some((id, mailbox)) = events.to_nodes.get(node) else {
            events.unknown.fetch_add(1, Ordering::Relaxed);
            let node = node.to_owned();
            return Err(SendError::UnknownNode { node });
        };
        let run = self.state.run();
        let now = run.as_ref().map(|run| run.now()).unwrap_or_default();
        let event = Event::new(node, now, data);
        let sent = match run {
            Some(run) => run.deliver(*id, mailbox, event),
            None => mailbox.send(event),
        };
        if sent {
            Ok(())
        } else {
            let node = node.to_owned();
            Err(SendError::Full { node })
        }
    }

    /// As [`Pipeline::receive`].
    #[must_use]
    pub fn receive(&self) -> Option<Event> {
        self.state.events.to_application.receive()
    }

    /// What has gone through a node's mailbox; `None` if there is no such node.
    #[must_use]
    pub fn mailbox_counts(&self, node: &str) -> Option<MailboxCounts> {
        let (_, mailbox) = self.state.events.to_nodes.get(node)?;
        Some(mailbox.counts())
    }

    /// What has gone through the mailbox to the application.
    #[must_use]
    pub fn outgoing_counts(&self) -> MailboxCounts {
        self.state.events.to_application.counts()
    }

    /// Events that were sent to nodes that are not there, and so were dropped.
    #[must_use]
    pub fn unknown_node_events(&self) -> u64 {
        self.state.events.unknown.load(Ordering::Relaxed)
    }
}

/// Waits for the end of a pipeline; see [`Pipeline::wait_async`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct WaitAsync<'a> {
    pipeline: &'a mut Pipeline,
    /// Whether a thread watches for a hook that does not return.
    watching: bool,
}

impl Future for WaitAsync<'_> {
    type Output = Result<Report, RunError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let run = match &self.pipeline.running {
            Some(running) => Arc::clone(&running.run),
            None => return Poll::Ready(self.pipeline.wait()),
        };
        if run.is_ended() || run.wait(Some(Instant::now())) != Waited::TimedOut {
            return Poll::Ready(self.pipeline.wait());
        }
        if !run.wake_at_end(cx.waker()) {
            return Poll::Ready(self.pipeline.wait());
        }
        if !self.watching {
            self.watching = true;
            // A runtime's timers are not known here, and the end may be that a hook does not
            // return.
            let waker = cx.waker().clone();
            let watch = move || {
                run.wait(None);
                waker.wake();
            };
            let named = std::thread::Builder::new().name("hf-wait".to_owned());
            if named.spawn(watch).is_err() {
                return Poll::Ready(self.pipeline.wait());
            }
        }
        Poll::Pending
    }
}
