//! The two traits that tasks implement.

use std::any::Any;
use std::fmt;

use super::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, OpResult, ReleaseCtx, RunCtx, SyncCtx, TaskResult,
};
use crate::storage::{ContractError, TView};
use crate::sync::Arc;

/// A task that is one blocking call in its section.
///
/// Tasks without inputs are sources, tasks without outputs are sinks.
///
/// ```
/// use holoflow_core::task::{ISyncTask, OpResult, SyncCtx, TaskResult};
///
/// struct Scale(f32);
///
/// impl ISyncTask for Scale {
///     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
///         let x = ctx.inputs.get::<f32>(0)?;
///         let y = ctx.outputs.get_mut::<f32>(0)?;
///         for (y, x) in y.iter_mut().zip(x) {
///             *y = self.0 * x;
///         }
///         Ok(OpResult::Ok)
///     }
/// }
/// ```
pub trait ISyncTask: Any + Send {
    /// Does the work of one frame.
    ///
    /// # Errors
    /// Ends the run; [`TaskError::frame`](super::TaskError::frame) fails this frame only.
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult>;

    /// Publishes storage for owned input `index`; `None` if there is none now. Called before
    /// the section fills it. Use [`AcquireCtx::lend`].
    ///
    /// # Errors
    /// Ends the run. The default: the slot is not owned.
    fn acquire_input<'c>(
        &mut self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        Err(ctx.unowned(index))
    }

    /// Retracts owned output `index`, which the section is done with.
    ///
    /// # Errors
    /// Ends the run. The default: the slot is not owned.
    fn release_output(&mut self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        Err(ctx.unowned(index))
    }

    /// Takes back owned input `index`, acquired and not consumed. The default retracts the
    /// region and drops it, which puts it back if it came from a
    /// [`SlotRing`](crate::storage::SlotRing) or [`RegionSlot`](crate::storage::RegionSlot).
    fn cancel_input(&mut self, index: usize, ctx: &mut AcquireCtx<'_>) {
        drop(ctx.take_back(index));
    }

    /// Called before the first hook of each run.
    ///
    /// # Errors
    /// Ends the run before it began.
    fn run_started(&mut self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        let _ = ctx;
        Ok(())
    }

    /// Called once after the last hook of each run, also of one that failed: the place to
    /// close a file, and to [`report`](RunCtx::report) what came of the run.
    ///
    /// # Errors
    /// Makes the run a failed one.
    fn run_ended(&mut self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        let _ = ctx;
        Ok(())
    }
}

/// A task between two sections: one pushes into it, the other pops from it, at the same
/// time, so every hook takes `&self`.
///
/// State that belongs to one side goes in a
/// [`ProducerCell`](crate::storage::ProducerCell) or
/// [`ConsumerCell`](crate::storage::ConsumerCell), opened with `ctx.side` and without a
/// lock; regions cross in a [`RegionSlot`](crate::storage::RegionSlot) or
/// [`SlotRing`](crate::storage::SlotRing).
///
/// Hooks of a side are called one at a time, in this order. Producer side: for each owned
/// input `acquire_input` until it succeeds; the section fills the inputs; `try_push` until
/// it is not `NotReady`. An acquired input that will not be pushed gets `cancel_input`.
/// Consumer side: `try_pop` until it is not `NotReady`; the section reads the outputs; for
/// each owned output `release_output`.
///
/// Tasks without inputs are sources (only a consumer side), tasks without outputs are sinks
/// (only a producer side).
pub trait IAsyncTask: Any + Send + Sync {
    /// Publishes storage for owned input `index`; `None` if there is none now. Use
    /// [`AcquireCtx::lend`].
    ///
    /// # Errors
    /// Ends the run. The default: the slot is not owned.
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        Err(ctx.unowned(index))
    }

    /// Takes the inputs: owned ones by retracting their regions, borrowed ones by reading
    /// them. After `Ok` the cells of owned inputs must be empty, after `NotReady` unchanged.
    ///
    /// A source, which has no inputs, leaves it to the default.
    ///
    /// # Errors
    /// Ends the run; owned inputs still in place are then cancelled. The default: the task has
    /// no push side.
    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let _ = ctx;
        let (found, expected) = ("try_push was called", "the task does not implement it");
        Err(ContractError::Unexpected { found, expected }.into())
    }

    /// Gives the outputs: owned ones by publishing regions, borrowed ones by writing them.
    /// After `Ok` the cells of owned outputs must be full, otherwise empty.
    ///
    /// A sink, which has no outputs, leaves it to the default.
    ///
    /// # Errors
    /// Ends the run. The default: the task has no pop side.
    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let _ = ctx;
        let (found, expected) = ("try_pop was called", "the task does not implement it");
        Err(ContractError::Unexpected { found, expected }.into())
    }

    /// Retracts owned output `index`, which the section is done with.
    ///
    /// # Errors
    /// Ends the run. The default: the slot is not owned.
    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        Err(ctx.unowned(index))
    }

    /// Takes back owned input `index`, acquired and not pushed. The default retracts the
    /// region and drops it, which puts it back if it came from a
    /// [`SlotRing`](crate::storage::SlotRing) or [`RegionSlot`](crate::storage::RegionSlot).
    fn cancel_input(&self, index: usize, ctx: &mut AcquireCtx<'_>) {
        drop(ctx.take_back(index));
    }

    /// Called before the first hook of each run.
    ///
    /// # Errors
    /// Ends the run before it began.
    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        let _ = ctx;
        Ok(())
    }

    /// Called once after the last hook of each run, also of one that failed: the place to
    /// close a file, and to [`report`](RunCtx::report) what came of the run.
    ///
    /// # Errors
    /// Makes the run a failed one.
    fn run_ended(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        let _ = ctx;
        Ok(())
    }

    /// No push will follow in this run.
    fn producer_finished(&self) {}

    /// No pop will follow in this run.
    fn consumer_finished(&self) {}
}

impl dyn ISyncTask {
    /// The task as what it is, if it is a `T`; otherwise it is dropped.
    ///
    /// ```
    /// use holoflow_core::task::{ISyncTask, OpResult, SyncCtx, TaskResult};
    ///
    /// struct Count(u64);
    /// impl ISyncTask for Count {
    ///     fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
    ///         self.0 += 1;
    ///         Ok(OpResult::Ok)
    ///     }
    /// }
    ///
    /// let task: Box<dyn ISyncTask> = Box::new(Count(7));
    /// assert_eq!(task.take::<Count>().map(|count| count.0), Some(7));
    /// ```
    #[must_use]
    pub fn take<T: ISyncTask>(self: Box<Self>) -> Option<T> {
        let task: Box<dyn Any> = self;
        task.downcast().ok().map(|task| *task)
    }
}

impl dyn IAsyncTask {
    /// The task as what it is, if it is a `T` and nobody else holds it; otherwise this handle
    /// is dropped.
    #[must_use]
    pub fn take<T: IAsyncTask>(self: Arc<Self>) -> Option<T> {
        let task: Arc<dyn Any + Send + Sync> = self;
        Arc::into_inner(task.downcast().ok()?)
    }
}

impl fmt::Debug for dyn ISyncTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ISyncTask")
    }
}

impl fmt::Debug for dyn IAsyncTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IAsyncTask")
    }
}
