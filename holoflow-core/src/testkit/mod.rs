//! Tests of tasks and pipelines without threads or a device.
//!
//! - [`TaskHarness`] runs one task: settings and input layouts in, hooks in any order,
//!   frames as typed slices.
//! - [`StepScheduler`] runs a pipeline on one thread, in an order that a seed chooses, by a
//!   clock that the test moves.
//! - [`Ledger`] counts allocations and proves that each goes back once.
//! - [`FakeDevice`] has streams that record work and complete it when told to, and memory
//!   that the host cannot read.
//!
//! Nothing here is needed to run a pipeline; the module is behind the feature `testkit`.

#[allow(unsafe_code, reason = "a backend and a provider that tests control")]
mod fake_device;
mod harness;
#[allow(unsafe_code, reason = "a provider that counts what another hands out")]
mod ledger;
mod step;

pub use fake_device::{FakeDevice, FakeStream};
pub use harness::{HarnessBuilder, HarnessReport, HarnessSide, TaskHarness};
pub use ledger::{Ledger, LedgerCounts};
pub use step::{StepScheduler, Stepped};
