//! All that a task author sees: traits, contexts, results, factories.
//!
//! A *sync* task ([`ISyncTask`]) is one blocking call in its section. An *async* task
//! ([`IAsyncTask`]) stands between two sections: one pushes into it, the other pops from
//! it, at the same time. A factory says what a task needs and makes ([`InferResult`]),
//! then creates it.
//!
//! What this layer does not know: graphs, sections and threads. A port (`port.rs`) is what a
//! scheduler (or the test kit) calls hooks through; it holds tasks to the contract.

mod context;
mod error;
mod event;
mod factory;
mod infer;
mod meta;
mod pace;
pub(crate) mod port;
mod result;
mod traits;

pub use context::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, NodeCtx, ReleaseCtx, RunCtx, StopFlags, SyncCtx,
};
pub use error::{Hook, HookError, HookFailure, TaskError, TaskErrorKind, TaskResult};
pub use event::{Event, Mailbox, MailboxCounts};
pub use factory::{
    CreateCtx, IAsyncTaskFactory, ISyncTaskFactory, Placement, TaskInfo, TaskRequest,
};
pub use infer::{Aliasing, Flow, InPlace, InferError, InferResult, TaskKind};
pub(crate) use meta::{Entered, MetaFields};
pub use meta::{FrameMeta, MetaValue};
pub use pace::{Pacer, Pacing};
pub use result::OpResult;
pub use traits::{IAsyncTask, ISyncTask};
