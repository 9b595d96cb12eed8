//! Holoflow: a GPU-aware streaming dataflow scheduler.
//!
//! This crate is the facade: it re-exports the parts, and adds the command `holoflow` as a
//! module (feature `cli`). Most programs start with the [`prelude`]. The guide is in the folder
//! `docs/`.
//!
//! One task, tested without a scheduler (feature `testkit`):
//!
//! ```
//! use holoflow::cpu::OwnedRateLimiterFactory;
//! use holoflow::prelude::*;
//! use holoflow::testkit::TaskHarness;
//!
//! let settings = serde_json::json!({ "max_fps": 100 });
//! let frame = TDesc::host::<u16>([4])?;
//! let mut task = TaskHarness::asynchronous(&OwnedRateLimiterFactory, settings, [frame])?;
//! assert_eq!(task.push(&[1_u16, 2, 3, 4])?, OpResult::Ok);
//! assert_eq!(task.pop()?, Some(vec![1_u16, 2, 3, 4]));
//! assert_eq!(task.push(&[5_u16, 6, 7, 8])?, OpResult::Ok);
//! assert_eq!(task.pop::<u16>()?, None); // the next is due 10 ms after the first
//! task.clock().advance(std::time::Duration::from_millis(10));
//! assert_eq!(task.pop()?, Some(vec![5_u16, 6, 7, 8]));
//! assert_eq!(task.report().copied_bytes, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub use holoflow_core::{
    clock, compiler, device, graph, ids, memory, pipeline, registry, scheduler, storage, task,
    tensor,
};
pub use holoflow_cpu as cpu;
#[cfg(feature = "cuda")]
pub use holoflow_cuda as cuda;

#[cfg(feature = "testkit")]
pub use holoflow_core::testkit;

#[cfg(feature = "cli")]
pub mod cli;

#[cfg(doctest)]
mod doctests;

/// What almost every program that writes a task, or runs a graph, needs.
pub mod prelude {
    pub use holoflow_core::pipeline::Pipeline;
    pub use holoflow_core::scheduler::{Report, RunOptions};
    pub use holoflow_core::storage::{IOStorageAccess, TView};
    pub use holoflow_core::task::{
        AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, IAsyncTask, IAsyncTaskFactory, ISyncTask,
        ISyncTaskFactory, InferResult, OpResult, ReleaseCtx, SyncCtx, TaskError, TaskInfo,
        TaskRequest, TaskResult,
    };
    pub use holoflow_core::tensor::{DType, MemLoc, TDesc};
}
