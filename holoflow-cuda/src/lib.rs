//! The CUDA backend of Holoflow.
//!
//! A skeleton: the crate has its place in the workspace and no items yet. What will be
//! here is described in `docs/architecture.md`.
