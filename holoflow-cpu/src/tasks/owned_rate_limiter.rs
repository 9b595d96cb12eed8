//! Rate limiter without copies: the producer writes into the very bytes that the consumer
//! reads.
//!
//! Its one region goes to and fro in a `RegionSlot`: lent to upstream as the owned
//! input, and once the deadline is reached to downstream as the owned output. While it is
//! filled there is nothing to lend, so upstream waits.

use holoflow_core::storage::TView;
use holoflow_core::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, Flow, IAsyncTask, IAsyncTaskFactory,
    InferResult, OpResult, ReleaseCtx, RunCtx, TaskInfo, TaskRequest, TaskResult,
};

use super::RateLimiterSettings;
use super::rate_limiter::{PacedSlot, infer_frame};

/// Makes owning rate limiters, kind `OwnedRateLimiter`.
///
/// One input, one output, of the same shape and element type, both owned and normalised
/// to offset 0 and default strides. Settings: [`RateLimiterSettings`].
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnedRateLimiterFactory;

struct OwnedRateLimiter {
    frame: PacedSlot,
}

impl IAsyncTask for OwnedRateLimiter {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| self.frame.slot.acquire(side))
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        if ctx.is_cancelled() {
            return Ok(OpResult::Cancelled);
        }
        let frame = ctx.take_input(0)?;
        self.frame.slot.commit(ctx.side, frame)?;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        match self.frame.pop(ctx)? {
            Ok(frame) => ctx.publish(0, frame).map(|()| OpResult::Ok),
            Err(answer) => Ok(answer),
        }
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let frame = ctx.take_back(index)?;
        self.frame.slot.release(ctx.side, frame)?;
        Ok(())
    }

    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.frame.start(ctx)
    }
}

impl IAsyncTaskFactory for OwnedRateLimiterFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Passes on at most `max_fps` frames a second, without copying.")
            .with_settings::<RateLimiterSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let frame = infer_frame(request)?;
        Ok(InferResult::asynchronous([frame.clone()], [frame])
            .owning_inputs()
            .owning_outputs()
            .with_flow(Flow::one_to_one(1)))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(OwnedRateLimiter {
            frame: PacedSlot::new(request, ctx)?,
        }))
    }
}
