//! The README and the pages of `docs/`, so that their Rust blocks are compiled and run as
//! doctests. `tests/docs.rs` checks that no page is missing here.

#[doc = include_str!("../README.md")]
mod readme {}

#[doc = include_str!("../docs/README.md")]
mod index {}

#[doc = include_str!("../docs/architecture.md")]
mod architecture {}

#[doc = include_str!("../docs/performance.md")]
mod performance {}

#[doc = include_str!("../docs/guide/concepts.md")]
mod concepts {}

#[doc = include_str!("../docs/guide/sync-task.md")]
mod sync_task {}

#[doc = include_str!("../docs/guide/async-task.md")]
mod async_task {}

#[doc = include_str!("../docs/guide/composing.md")]
mod composing {}

#[doc = include_str!("../docs/guide/graph-files.md")]
mod graph_files {}

#[doc = include_str!("../docs/guide/running.md")]
mod running {}

#[doc = include_str!("../docs/guide/stopping-and-errors.md")]
mod stopping_and_errors {}

#[doc = include_str!("../docs/guide/timing-and-waiting.md")]
mod timing_and_waiting {}

#[doc = include_str!("../docs/guide/testing-without-a-gpu.md")]
mod testing_without_a_gpu {}

#[doc = include_str!("../docs/decisions/0001-side-tokens.md")]
mod decision_0001 {}

#[doc = include_str!("../docs/decisions/0002-contexts-per-call.md")]
mod decision_0002 {}

#[doc = include_str!("../docs/decisions/0003-one-pointer-errors.md")]
mod decision_0003 {}

#[doc = include_str!("../docs/decisions/0004-the-command-is-a-package.md")]
mod decision_0004 {}
