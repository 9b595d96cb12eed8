//! Safe programs that try to break the storage contract: to get two `&mut` to one byte, a
//! `&` beside a `&mut`, or bytes that are freed, uninitialised or somebody else's.
//!
//! Each ends in one of three ways. Programs that must not compile are the doctests of the
//! modules here, each below a twin that does compile. Programs that compile are the tests
//! in `tests/`, a file a subject: they end in an error that names node, hook and slot, or
//! change nothing. [`fixture`] has the tasks that both are made of.
//!
//! What is not attacked here: compiler and scheduler, which have not run when a task
//! stands alone in a harness.
//!
//! Run all of it with `cargo test -p holoflow-soundness`. Two checks need unstable
//! features: that programs are refused with the right error code (doctests, with
//! `RUSTC_BOOTSTRAP=1`), and AddressSanitizer (`.ci/soundness`).
//!
//! Tests that are ignored with a reason that begins with `hole` succeed as attacks: what
//! they assert is what should hold.

#![forbid(unsafe_code)]

pub mod cells;
pub mod fixture;
pub mod promises;
pub mod regions;
pub mod sides;
pub mod slices;
pub mod threads;
