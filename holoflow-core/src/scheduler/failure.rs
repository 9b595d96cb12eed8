//! What goes wrong in a run, and where.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::Serialize;

use super::{Report, StallReport};
use crate::device::DeviceError;
use crate::ids::{NodeId, SectionId};
use crate::task::HookError;

/// What a section is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Between two iterations: about to begin one, or waiting for a place in flight.
    Begin,
    /// Getting storage for owned inputs.
    AcquireOwnedInputs,
    /// Popping from async nodes.
    ExecuteAsyncConsumer,
    /// Executing sync nodes.
    ExecuteSync,
    /// Completing the device work of the section's stream.
    CompleteStream,
    /// Pushing into async nodes.
    ExecuteAsyncProducer,
    /// Giving popped outputs back.
    ReleaseOwnedOutputs,
    /// Ending: taking back, and telling its neighbours.
    End,
    /// Ended.
    Ended,
}

impl Phase {
    const ALL: [Self; 9] = [
        Self::Begin,
        Self::AcquireOwnedInputs,
        Self::ExecuteAsyncConsumer,
        Self::ExecuteSync,
        Self::CompleteStream,
        Self::ExecuteAsyncProducer,
        Self::ReleaseOwnedOutputs,
        Self::End,
        Self::Ended,
    ];

    /// The phase with this number; see [`Place`](super::shared::Place).
    pub(super) fn numbered(number: u64) -> Self {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        *Self::ALL.get(index).unwrap_or(&Self::Ended)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begin => "begin",
            Self::AcquireOwnedInputs => "acquire_owned_inputs",
            Self::ExecuteAsyncConsumer => "execute_async_consumer",
            Self::ExecuteSync => "execute_sync",
            Self::CompleteStream => "complete_stream",
            Self::ExecuteAsyncProducer => "execute_async_producer",
            Self::ReleaseOwnedOutputs => "release_owned_outputs",
            Self::End => "end",
            Self::Ended => "ended",
        })
    }
}

/// Something that went wrong in a run.
///
/// `{}` prints one line with the place and all causes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Name of the node, where it is one node's.
    pub node: Option<String>,
    /// Its number in the plan.
    pub vertex: Option<NodeId>,
    /// What the section was doing.
    pub phase: Phase,
    /// The section.
    pub section: SectionId,
    /// Its name.
    pub section_name: String,
    /// The thread that it ran on.
    pub thread: String,
    /// What went wrong.
    pub cause: FailureCause,
}

/// What a [`Failure`] is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FailureCause {
    /// A hook failed, panicked, or broke the contract.
    #[error("{0}")]
    Hook(#[source] HookError),
    /// The work of the section's stream could not be completed.
    #[error("the device work of the section failed")]
    Stream(#[source] DeviceError),
    /// An async node neither delivers what it holds nor says that it has ended.
    #[error(
        "it did not drain: after the last push it has answered NotReady for {waited:?} without \
         saying when it will be ready{}; let its `try_pop` answer Eof once it is empty, or \
         declare its `flow`", held_text(.held)
    )]
    DidNotDrain {
        /// Frames that it holds, if it declares its flow.
        held: Option<u64>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A hook did not return after the run was stopped.
    #[error(
        "it has not returned {after:?} after the run was stopped; its thread is left behind, \
         and memory that it may still touch is not freed"
    )]
    Stuck {
        /// How long it was waited for.
        after: Duration,
    },
    /// Nothing has advanced for the watchdog's period.
    #[error("{0}")]
    Stalled(StallReport),
}

fn held_text(held: &Option<u64>) -> String {
    held.map_or_else(String::new, |held| format!(", and it holds {held} frames"))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.cause, &self.node) {
            // A hook's error names its node.
            (FailureCause::Hook(error), _) => write!(f, "{error:#}")?,
            (FailureCause::Stream(error), _) => write!(f, "{}: {error}", self.cause)?,
            (cause, Some(node)) => write!(f, "node `{node}`: {cause}")?,
            (cause, None) => write!(f, "{cause}")?,
        }
        let (phase, section, thread) = (self.phase, &self.section_name, &self.thread);
        write!(f, " (in {phase} of {section}, thread {thread})")
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            FailureCause::Hook(error) => Some(error),
            FailureCause::Stream(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A run is going on, or has ended and was not waited for.
    #[error("the pipeline is running already: wait for it before it is started again")]
    AlreadyRunning,
    /// The graph has an input that nothing feeds.
    #[error("graph input `{input}` is fed by nothing: connect a source node to what it leads to")]
    InputNotFed {
        /// Name of the input.
        input: String,
    },
    /// A task refused to start.
    #[error("{0:#}")]
    Task(#[source] HookError),
    /// A frame cannot get through with so few in flight.
    #[error(
        "{limit} frames in flight are too few: before the first frame comes out, {needed} must \
         have gone in, for {node} alone {own}"
    )]
    InFlight {
        /// The limit.
        limit: usize,
        /// The lowest limit with which frames get through.
        needed: usize,
        /// The async node that needs most.
        node: String,
        /// What it needs.
        own: usize,
    },
    /// With a limit in flight, frames are counted, and a node does not say how it counts them.
    #[error(
        "a limit of frames in flight needs to know how many frames go in for one that comes \
         out, and `{node}` does not declare its `flow`"
    )]
    UncountedFlow {
        /// The async node.
        node: String,
    },
    /// A thread could not be started.
    #[error("a thread cannot be started")]
    Thread(#[source] io::Error),
    /// A hook of an earlier run has never returned, so its section is gone.
    #[error("section {section} is still in a hook of an earlier run: compile the graph anew")]
    SectionLost {
        /// The section.
        section: SectionId,
    },
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It did not begin.
    #[error("the pipeline did not start: {0}")]
    Start(#[source] StartError),
    /// There is no run to wait for.
    #[error("the pipeline was not started: there is no run to wait for")]
    NotStarted,
    /// Something went wrong in it.
    #[error("{0}")]
    Failed(#[source] Box<RunFailure>),
}

impl RunError {
    /// What went wrong first, in a run that began.
    #[must_use]
    pub fn first(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(&failure.first),
            _ => None,
        }
    }

    /// The report of a run that began.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Failed(failure) => Some(&failure.report),
            _ => None,
        }
    }
}

impl From<StartError> for RunError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

/// A run that failed: what went wrong, and what happened until then.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunFailure {
    /// What went wrong first; it ended the run.
    pub first: Failure,
    /// What went wrong after that, while the run was ending.
    pub consequences: Vec<Failure>,
    /// What had happened until then.
    pub report: Report,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        match self.consequences.len() {
            0 => Ok(()),
            1 => write!(f, "; and one failure in consequence"),
            count => write!(f, "; and {count} failures in consequence"),
        }
    }
}

impl std::error::Error for RunFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.first)
    }
}
