//! A rate limiter of one's own: an async task that owns its input and its output, so that
//! a frame passes from the section before it to the section after it without a copy.
//!
//! Run it with `cargo run --example custom_async_task`.

#![forbid(unsafe_code)]

use std::time::Duration;

use holoflow::clock::{Clock, Timestamp};
use holoflow::prelude::*;
use holoflow::storage::{ConsumerCell, RegionSlot};
use holoflow::task::Flow;
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
        let (now, next) = (ctx.now(), *self.next.open(ctx.side)?);
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
        Ok(self.slot.release(ctx.side, frame)?)
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
            .owning_outputs()
            .with_flow(Flow::one_to_one(1)))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(Limiter {
            slot: ctx.region_slot(&request.input(0)?.normalized())?,
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

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    fn limiter() -> Result<TaskHarness, Box<dyn std::error::Error>> {
        let frame = TDesc::host::<f32>([2])?;
        Ok(TaskHarness::asynchronous(
            &Factory,
            json!({ "period_ms": 10 }),
            [frame],
        )?)
    }

    #[test]
    fn frames_are_kept_apart_by_the_period() -> AnyResult {
        let mut task = limiter()?;
        assert_eq!(task.push(&[1.0_f32, 2.0])?, OpResult::Ok);
        assert_eq!(task.pop()?, Some(vec![1.0_f32, 2.0]), "the first at once");
        assert_eq!(task.push(&[3.0_f32, 4.0])?, OpResult::Ok);

        task.clock().advance(PERIOD - Duration::from_nanos(1));
        assert_eq!(task.pop::<f32>()?, None);
        let due = Timestamp::ZERO.saturating_add(PERIOD);
        assert_eq!(task.consumer().wake_at(), Some(due));
        task.clock().set(due);
        assert_eq!(task.pop()?, Some(vec![3.0_f32, 4.0]));
        Ok(())
    }

    #[test]
    fn the_consumer_reads_the_very_bytes_that_the_producer_wrote() -> AnyResult {
        let mut task = limiter()?;
        assert!(task.producer().acquire(0)?);
        let written = task.producer().input_address(0)?;
        assert!(written.is_some());
        task.producer().write(0, &[1.0_f32, 2.0])?;
        assert_eq!(task.producer().try_push()?, OpResult::Ok);
        assert_eq!(task.producer().input_address(0)?, None, "retracted");

        assert_eq!(task.consumer().try_pop()?, OpResult::Ok);
        assert_eq!(task.consumer().output_address(0)?, written);
        assert_eq!(task.consumer().output::<f32>(0)?, [1.0, 2.0]);
        assert_eq!(task.report().copied_bytes, 0);
        Ok(())
    }

    #[test]
    fn nothing_is_lent_while_a_frame_is_pending() -> AnyResult {
        let mut task = limiter()?;
        assert_eq!(task.push(&[1.0_f32, 2.0])?, OpResult::Ok);
        assert_eq!(task.push(&[3.0_f32, 4.0])?, OpResult::NotReady);
        assert_eq!(task.consumer().try_pop()?, OpResult::Ok);
        // Popped is still pending: downstream reads it until it is released.
        assert!(!task.producer().acquire(0)?);
        task.consumer().release(0)?;
        assert!(task.producer().acquire(0)?);
        Ok(())
    }

    #[test]
    fn settings_are_refused_by_field_name() -> AnyResult {
        for (settings, expected) in [
            (
                json!({ "period_ms": 0 }),
                "node `task`, infer: setting `period_ms`: found 0, expected at least 1",
            ),
            (
                json!({ "period_ms": -5 }),
                "node `task`, infer: setting `period_ms`: found -5, expected a whole number, 0 or above",
            ),
            (
                json!({}),
                "node `task`, infer: setting `period_ms`: found nothing, expected a value: it \
                 has no default",
            ),
        ] {
            let frame = TDesc::host::<f32>([2])?;
            let error = TaskHarness::asynchronous(&Factory, settings, [frame]).unwrap_err();
            assert_eq!(format!("{error:#}"), expected);
        }
        Ok(())
    }

    #[test]
    fn a_cancelled_frame_leaves_the_slot_free() -> AnyResult {
        let mut task = limiter()?;
        assert!(task.producer().acquire(0)?);
        let address = task.producer().input_address(0)?;
        task.producer().write(0, &[1.0_f32, 2.0])?;
        task.producer().cancel_inputs()?;
        assert_eq!(task.producer().input_address(0)?, None);
        assert_eq!(task.pop::<f32>()?, None, "it was never pushed");

        assert!(task.producer().acquire(0)?);
        assert_eq!(task.producer().input_address(0)?, address);
        assert_eq!((task.report().lent, task.report().cancelled), (2, 1));
        Ok(())
    }
}
