//! A rate limiter of one's own: an async task that owns its input and its output, so that
//! a frame passes from the section before it to the section after it without a copy.
//!
//! Run it with `cargo run --example custom_async_task`.

#![forbid(unsafe_code)]

use std::time::Duration;

use holoflow::clock::{Clock, Timestamp};
use holoflow::prelude::*;
use holoflow::storage::{ConsumerCell, RegionSlot};
use holoflow::testkit::TaskHarness;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Least time between two frames, in milliseconds.
    period_ms: u64,
}

struct Limiter {
    slot: RegionSlot,              // one frame, lent to either side in turn
    next: ConsumerCell<Timestamp>, // belongs to the pop side: no lock, no atomic
    period: Duration,
}

impl IAsyncTask for Limiter {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| self.slot.acquire(side))
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let frame = ctx.take_input(0)?;
        self.slot.commit(ctx.side, frame)?;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let now = ctx.now();
        let next = *self.next.open(ctx.side)?;
        if now < next {
            ctx.wake_at(next);
            return Ok(OpResult::NotReady);
        }
        let Some(frame) = self.slot.pop(ctx.side)? else {
            return Ok(OpResult::NotReady);
        };
        ctx.publish(0, frame)?;
        *self.next.open(ctx.side)? = now.saturating_add(self.period);
        Ok(OpResult::Ok)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let frame = ctx.take_back(index)?;
        self.slot.release(ctx.side, frame)?;
        Ok(())
    }
}

struct Factory;

impl IAsyncTaskFactory for Factory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Keeps frames apart in time.").with_settings::<Settings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        if request.settings::<Settings>()?.period_ms == 0 {
            return Err(TaskError::settings("period_ms", 0, "at least 1"));
        }
        let [input] = request.exactly::<1>()?;
        let frame = input.normalized();
        Ok(InferResult::asynchronous([frame.clone()], [frame])
            .owning_inputs()
            .owning_outputs())
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let region = ctx.region_for(&request.input(0)?.normalized())?;
        Ok(Box::new(Limiter {
            slot: RegionSlot::new(ctx.sides(), region)?,
            next: ctx.consumer_cell(Timestamp::ZERO),
            period: Duration::from_millis(request.settings::<Settings>()?.period_ms),
        }))
    }
}

type AnyResult = Result<(), Box<dyn std::error::Error>>;

fn main() -> AnyResult {
    let frame = TDesc::host::<f32>([2])?;
    let mut task = TaskHarness::asynchronous(&Factory, json!({ "period_ms": 10 }), [frame])?;
    for n in 0..3 {
        assert_eq!(task.push(&[n as f32, 0.5])?, OpResult::Ok);
        while task.pop::<f32>()?.is_none() {
            let due = task.consumer().wake_at().ok_or("nothing to wait for")?;
            task.clock().set(due);
        }
        println!("frame {n} passed at {}", task.clock().now());
    }
    println!("bytes copied: {}", task.report().copied_bytes);
    Ok(())
}
