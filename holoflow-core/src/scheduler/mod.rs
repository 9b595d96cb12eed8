//! Runs a compiled graph.
//!
//! Each section is a state machine (`section`) that goes on until it can do nothing. Three
//! drivers call it: a thread of its own (`threads`), a few threads for many (`pool`), and a
//! test that steps (`testkit`). Sections know of each other by signals (`signal`) and by the
//! links of the async nodes between them (`link`, `meta_ring`).
//!
//! What this layer does not know: how a graph is written, where its bytes lie, and what an
//! application does with a pipeline.
//!
//! Threads: a section is driven by one thread at a time. All that is shared is in `shared`.
//!
//! Shutdown, in order:
//!
//! 1. A section ends: its source or consumer side has answered `Eof`, nobody takes what it
//!    pushes, the run is cancelled, or a hook of it failed. A failure cancels the run, and the
//!    signals of all sections are woken.
//! 2. It completes its stream; releases popped outputs; cancels acquired inputs, in reverse
//!    order; tells the async nodes it pushes into that no push will follow, and those that it
//!    pops from that no pop will.
//! 3. It wakes its neighbours, which judge by the links' flags whether they end too.
//! 4. The last section to end wakes whoever waits, who puts the graph together again and tells
//!    every task that the run has ended.

mod credit;
mod failure;
mod histogram;
mod layout;
mod link;
#[cfg(test)]
#[cfg(loom)]
mod loom_signal;
mod meta_ring;
mod options;
mod pool;
mod report;
mod section;
mod shared;
mod signal;
mod stall;
mod start;
#[cfg(feature = "testkit")]
pub(crate) mod stepping;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod threads;

pub use failure::{Failure, FailureCause, Phase, RunError, RunFailure, StartError};
pub use histogram::Durations;
pub use options::{RunOptions, Threads, WaitStrategy, Watchdog};
pub use report::{Metrics, NodeMetrics, NodeReport, Outcome, PathLatency, Report};
pub use stall::{StallReport, StalledSection};

pub(crate) use report::LastMetrics;
pub(crate) use shared::{Events, Run, Waited};
pub(crate) use start::{Kept, Running, start};
