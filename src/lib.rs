//! Holoflow: a GPU-aware streaming dataflow scheduler.
//!
//! This crate is the facade: it re-exports the parts and holds no logic. Most programs
//! start with the [`prelude`].

#![forbid(unsafe_code)]

pub use holoflow_core::{clock, device, ids, memory, registry, storage, task, tensor};
pub use holoflow_cpu as cpu;
#[cfg(feature = "cuda")]
pub use holoflow_cuda as cuda;

#[cfg(feature = "testkit")]
pub use holoflow_core::testkit;

/// What almost every program that writes a task needs.
pub mod prelude {
    pub use holoflow_core::storage::{IOStorageAccess, TView};
    pub use holoflow_core::task::{
        AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, IAsyncTask, IAsyncTaskFactory, ISyncTask,
        ISyncTaskFactory, InferResult, OpResult, ReleaseCtx, SyncCtx, TaskError, TaskInfo,
        TaskRequest, TaskResult,
    };
    pub use holoflow_core::tensor::{DType, MemLoc, TDesc};
}
