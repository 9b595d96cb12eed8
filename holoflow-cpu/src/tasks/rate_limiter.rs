//! Rate limiter that copies frames in and out of a private buffer, and what both rate
//! limiters share.
//!
//! For neighbours whose storage is the compiler's. Where they need not be, the owning one
//! moves no bytes.

use holoflow_core::storage::{ConsumerCell, Region, RegionSlot};
use holoflow_core::task::{
    AsyncPopCtx, AsyncPushCtx, CreateCtx, Flow, IAsyncTask, IAsyncTaskFactory, InferResult,
    OpResult, Pacer, Pacing, RunCtx, TaskError, TaskInfo, TaskRequest, TaskResult,
};
use holoflow_core::tensor::TDesc;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of both rate limiters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RateLimiterSettings {
    /// Highest rate, in frames a second, from 1e-6 to 1e9.
    #[schemars(range(min = 1e-6, max = 1e9))]
    pub max_fps: f64,
    /// `schedule`: at whole periods from the start, missed ones are skipped. `spacing`: one
    /// period after the last frame.
    #[serde(default)]
    pub pacing: Pacing,
}

impl RateLimiterSettings {
    /// At most `max_fps` frames a second, by `schedule`.
    #[must_use]
    pub fn new(max_fps: f64) -> Self {
        Self {
            max_fps,
            pacing: Pacing::Schedule,
        }
    }

    /// The same with another pacing.
    #[must_use]
    pub fn with_pacing(mut self, pacing: Pacing) -> Self {
        self.pacing = pacing;
        self
    }

    pub(super) fn pacer(&self) -> TaskResult<Pacer> {
        Pacer::new("max_fps", self.max_fps, self.pacing)
    }
}

/// Checks settings and input of a rate limiter; the layout of its frames.
pub(super) fn infer_frame(request: &TaskRequest<'_>) -> TaskResult<TDesc> {
    request.settings::<RateLimiterSettings>()?.pacer()?;
    let [input] = request.exactly::<1>()?;
    if !input.location().is_host() {
        return Err(TaskError::input(0, input, "a tensor in host memory"));
    }
    Ok(input.normalized())
}

/// Makes copying rate limiters, kind `RateLimiter`.
///
/// One input, contiguous and in host memory, one output of the same shape and element
/// type, both borrowed. Settings: [`RateLimiterSettings`].
#[derive(Debug, Clone, Copy, Default)]
pub struct RateLimiterFactory;

/// One frame, and when it may go on: what a rate limiter is made of.
pub(super) struct PacedSlot {
    pub(super) slot: RegionSlot,
    pacer: ConsumerCell<Pacer>,
}

impl PacedSlot {
    pub(super) fn new(request: &TaskRequest<'_>, ctx: &mut CreateCtx<'_>) -> TaskResult<Self> {
        let slot = ctx.region_slot(&infer_frame(request)?)?;
        let pacer = request.settings::<RateLimiterSettings>()?.pacer()?;
        Ok(Self {
            slot,
            pacer: ctx.consumer_cell(pacer),
        })
    }

    /// Begins the schedule of a run.
    pub(super) fn start(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        let now = ctx.now();
        self.pacer.open(ctx.consumer)?.start(now);
        Ok(())
    }

    /// The frame, if there is one and it is due; otherwise what `try_pop` is to answer.
    pub(super) fn pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<Result<Region, OpResult>> {
        if ctx.is_cancelled() {
            return Ok(Err(OpResult::Cancelled));
        }
        if !self.slot.is_filled() {
            return Ok(Err(OpResult::NotReady));
        }
        let now = ctx.now();
        let pacer = self.pacer.open(ctx.side)?;
        if !pacer.is_due(now) {
            let due = pacer.due();
            ctx.wake_at(due);
            return Ok(Err(OpResult::NotReady));
        }
        pacer.emitted(now);
        Ok(self.slot.pop(ctx.side)?.ok_or(OpResult::NotReady))
    }
}

struct RateLimiter {
    buffer: PacedSlot,
}

impl IAsyncTask for RateLimiter {
    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        if ctx.is_cancelled() {
            return Ok(OpResult::Cancelled);
        }
        let Some(mut buffer) = self.buffer.slot.acquire(ctx.side)? else {
            return Ok(OpResult::NotReady);
        };
        let frame = ctx.inputs.bytes(0)?;
        ctx.node
            .copy(&mut buffer.as_mut_bytes()?[..frame.len()], frame)?;
        self.buffer.slot.commit(ctx.side, buffer)?;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let buffer = match self.buffer.pop(ctx)? {
            Ok(buffer) => buffer,
            Err(answer) => return Ok(answer),
        };
        let frame = ctx.outputs.bytes_mut(0)?;
        let len = frame.len();
        ctx.node.copy(frame, &buffer.as_bytes()?[..len])?;
        self.buffer.slot.release(ctx.side, buffer)?;
        Ok(OpResult::Ok)
    }

    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.buffer.start(ctx)
    }
}

impl IAsyncTaskFactory for RateLimiterFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Passes on at most `max_fps` frames a second, copying each in and out.")
            .with_settings::<RateLimiterSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let frame = infer_frame(request)?;
        let input = request.input(0)?;
        if !input.is_contiguous() {
            return Err(TaskError::input(0, input, "a contiguous tensor"));
        }
        Ok(InferResult::asynchronous([input.clone()], [frame]).with_flow(Flow::one_to_one(1)))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(RateLimiter {
            buffer: PacedSlot::new(request, ctx)?,
        }))
    }
}
