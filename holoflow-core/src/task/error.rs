//! What a task can fail with, and where it did.
//!
//! A [`TaskError`] says what went wrong. The port that called the hook adds node and hook
//! and makes a [`HookError`] of it.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;

use crate::device::DeviceError;
use crate::memory::MemoryError;
use crate::storage::{ContractError, Refused, RegionError, RingError, Slot};
use crate::task::InferError;
use crate::tensor::TensorError;

/// Result of a hook.
pub type TaskResult<T> = Result<T, TaskError>;

/// Why a task failed. One pointer.
#[derive(Debug)]
pub struct TaskError(Box<TaskErrorKind>);

/// The kinds of [`TaskError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskErrorKind {
    /// A setting has a value that the task cannot work with.
    #[error("setting `{field}`: found {found}, expected {expected}")]
    Settings {
        /// Path of the setting.
        field: String,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// An input tensor is not one that the task can work with.
    #[error("{slot}: found {found}, expected {expected}")]
    Input {
        /// The input.
        slot: Slot,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The node has the wrong number of inputs.
    #[error("found {found} inputs, expected {expected}")]
    InputCount {
        /// Inputs there are.
        found: usize,
        /// Inputs there should be.
        expected: String,
    },
    /// The factory's inference contradicts itself.
    #[error("the factory's inference contradicts itself")]
    Infer(#[source] InferError),
    /// The storage contract was broken.
    #[error("the storage contract was broken")]
    Contract(#[source] ContractError),
    /// The bytes of a region cannot be reached.
    #[error("a region's bytes cannot be reached")]
    Region(#[source] RegionError),
    /// A ring cannot be made.
    #[error("the ring cannot be made")]
    Ring(#[source] RingError),
    /// A descriptor cannot be made.
    #[error("the tensor cannot be described")]
    Tensor(#[source] TensorError),
    /// Memory could not be had.
    #[error("memory could not be had")]
    Memory(#[source] MemoryError),
    /// A device reported a fault.
    #[error("the device reported a fault")]
    Device(#[source] DeviceError),
    /// This frame failed: it is counted and dropped, and the run goes on.
    #[error("this frame failed")]
    Frame(#[source] Box<dyn Error + Send + Sync>),
    /// The task panicked. It gets no further hook.
    #[error("the task panicked: {message}")]
    Panicked {
        /// Text of the panic.
        message: String,
    },
    /// Anything else.
    #[error("the task failed")]
    Other(#[source] Box<dyn Error + Send + Sync>),
}

impl TaskError {
    /// The setting `field` has a value that the task cannot work with.
    #[must_use]
    pub fn settings(
        field: impl Into<String>,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        TaskErrorKind::Settings {
            field: field.into(),
            found: found.to_string(),
            expected: expected.to_string(),
        }
        .into()
    }

    /// Input `index` is not a tensor that the task can work with.
    #[must_use]
    pub fn input(index: usize, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        TaskErrorKind::Input {
            slot: Slot::Input(index),
            found: found.to_string(),
            expected: expected.to_string(),
        }
        .into()
    }

    /// This frame failed: count it, drop it, go on.
    #[must_use]
    pub fn frame(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        TaskErrorKind::Frame(cause.into()).into()
    }

    /// Any other failure; it ends the run.
    #[must_use]
    pub fn other(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        TaskErrorKind::Other(cause.into()).into()
    }

    /// The panic of a task, from what [`std::panic::catch_unwind`] caught.
    #[must_use]
    pub(crate) fn panicked(payload: Box<dyn std::any::Any + Send>) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("with a value that is no text").to_owned();
        drop_guarded(payload);
        TaskErrorKind::Panicked { message }.into()
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> &TaskErrorKind {
        &self.0
    }

    /// The broken rule, if the storage contract was broken.
    #[must_use]
    pub fn contract(&self) -> Option<&ContractError> {
        match &*self.0 {
            TaskErrorKind::Contract(error) => Some(error),
            _ => None,
        }
    }
}

/// Drops what is a task's own. If that panics, the panic is caught and its payload, which may
/// panic in turn, is leaked.
pub(crate) fn drop_guarded<T>(value: T) {
    if let Err(payload) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(payload);
    }
}

impl From<TaskErrorKind> for TaskError {
    fn from(kind: TaskErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, &*self.0)
    }
}

impl Error for TaskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Writes `error`; with `{:#}` the causes too, as `error: cause: cause of the cause`.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    write!(f, "{error}")?;
    if f.alternate() {
        let mut cause = error.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
    }
    Ok(())
}

impl From<Refused> for TaskError {
    fn from(refused: Refused) -> Self {
        let refusal = refused.refusal;
        ContractError::Refused { refusal }.into()
    }
}

macro_rules! from_cause {
    ($($cause:ty => $kind:ident),* $(,)?) => {$(
        impl From<$cause> for TaskError {
            fn from(cause: $cause) -> Self {
                TaskErrorKind::$kind(cause).into()
            }
        }
    )*};
}

from_cause! {
    ContractError => Contract,
    DeviceError => Device,
    InferError => Infer,
    MemoryError => Memory,
    RegionError => Region,
    RingError => Ring,
    TensorError => Tensor,
}

/// A function of a task or factory that core calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// `infer` of the factory.
    Infer,
    /// `create` of the factory.
    Create,
    /// `update` of the factory.
    Update,
    /// `run_started`.
    RunStarted,
    /// `run_ended`.
    RunEnded,
    /// `acquire_input`.
    AcquireInput,
    /// `cancel_input`.
    CancelInput,
    /// `execute`.
    Execute,
    /// `try_push`.
    TryPush,
    /// `try_pop`.
    TryPop,
    /// `release_output`.
    ReleaseOutput,
    /// `producer_finished`.
    ProducerFinished,
    /// `consumer_finished`.
    ConsumerFinished,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Infer => "infer",
            Self::Create => "create",
            Self::Update => "update",
            Self::RunStarted => "run_started",
            Self::RunEnded => "run_ended",
            Self::AcquireInput => "acquire_input",
            Self::CancelInput => "cancel_input",
            Self::Execute => "execute",
            Self::TryPush => "try_push",
            Self::TryPop => "try_pop",
            Self::ReleaseOutput => "release_output",
            Self::ProducerFinished => "producer_finished",
            Self::ConsumerFinished => "consumer_finished",
        })
    }
}

/// A failure with the place where it was: node and hook. One pointer, so that what a hook
/// answers stays in registers.
///
/// It gives its [`HookFailure`]: `error.node`, `error.hook`, `error.error`. `{}` prints the
/// place, `{:#}` and `{:?}` the place and all causes, so that an `unwrap` in a test can be read.
pub struct HookError(Box<HookFailure>);

/// What a [`HookError`] says.
#[derive(Debug)]
#[non_exhaustive]
pub struct HookFailure {
    /// Name of the node.
    pub node: String,
    /// What was called.
    pub hook: Hook,
    /// What the task, or its port, says.
    pub error: TaskError,
}

impl Deref for HookError {
    type Target = HookFailure;

    fn deref(&self) -> &HookFailure {
        &self.0
    }
}

impl HookError {
    /// Adds the place to an error.
    #[must_use]
    pub fn new(node: impl Into<String>, hook: Hook, error: impl Into<TaskError>) -> Self {
        Self(Box::new(HookFailure {
            node: node.into(),
            hook,
            error: error.into(),
        }))
    }

    /// The broken rule, if the storage contract was broken.
    #[must_use]
    pub fn contract(&self) -> Option<&ContractError> {
        self.error.contract()
    }
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node `{}`, {}", self.node, self.hook)?;
        if f.alternate() {
            write!(f, ": {:#}", self.error)?;
        }
        Ok(())
    }
}

impl fmt::Debug for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl Error for HookError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
