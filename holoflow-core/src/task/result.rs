//! What a hook says of control flow.

use std::fmt;

/// Outcome of `execute`, `try_push` or `try_pop` that is not an error.
///
/// Word-sized, so that `Result<OpResult, TaskError>` stays in two registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
#[repr(usize)]
#[allow(
    clippy::exhaustive_enums,
    reason = "schedulers and tasks must handle every outcome"
)]
pub enum OpResult {
    /// Done: a frame was taken, made or passed on.
    Ok,
    /// Not now: call again later. For async tasks, and sync tasks without inputs.
    NotReady,
    /// The run is being cancelled, and the task stopped for that.
    Cancelled,
    /// No more frames will come (`execute`, `try_pop`) or be taken (`try_push`).
    Eof,
    /// No output this turn. For sync tasks that declare `may_skip`.
    Skip,
}

impl fmt::Display for OpResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "Ok",
            Self::NotReady => "NotReady",
            Self::Cancelled => "Cancelled",
            Self::Eof => "Eof",
            Self::Skip => "Skip",
        })
    }
}

const _: () = assert!(size_of::<OpResult>() == size_of::<usize>());
const _: () = assert!(size_of::<super::TaskResult<OpResult>>() == 2 * size_of::<usize>());
