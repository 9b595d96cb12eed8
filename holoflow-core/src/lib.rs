//! The heart of Holoflow: what a tensor is, who may touch which bytes when, what a task is,
//! and how tasks are composed and run.
//!
//! This crate knows no GPU interface and does no input or output. Its modules form
//! layers; each uses only those named before it:
//!
//! 1. [`clock`], [`ids`] and the private `sync`: time, names for numbers, atomics and locks;
//! 2. [`tensor`]: what bytes mean;
//! 3. [`device`]: streams, events and ready-after tokens;
//! 4. [`memory`]: where bytes come from and how they go back;
//! 5. [`storage`]: who may touch which bytes when;
//! 6. [`task`]: all that a task author sees;
//! 7. [`graph`]: the description of a pipeline;
//! 8. [`registry`]: from a kind's name to its factory;
//! 9. [`compiler`]: from a description to where every byte lives;
//! 10. [`scheduler`]: runs a compiled graph;
//! 11. [`pipeline`]: what an application holds;
//! 12. `testkit` (feature `testkit`): one task without a scheduler, a pipeline step by step.

pub mod clock;
pub mod compiler;
#[allow(unsafe_code, reason = "declares what a device backend promises")]
pub mod device;
pub mod graph;
pub mod ids;
pub mod memory;
pub mod pipeline;
pub mod registry;
pub mod scheduler;
pub mod storage;
mod sync;
pub mod task;
pub mod tensor;
#[cfg(feature = "testkit")]
pub mod testkit;
mod text;
