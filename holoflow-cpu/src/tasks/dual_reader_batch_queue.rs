//! Queue that gives each row twice: at once, and some rows later, without copies.
//!
//! Frames of N rows go in. Each pop gives the next row as output 0, the row `delay` rows before
//! it as output 1, and as output 2 whether a window of `window_size` rows has gone by. `delay` is
//! half a window: `(window_size - 1) / 2`. So what looks at a row can be told by what looked at
//! the whole window around it. Both outputs lie where upstream wrote the frame, in a `DelayRing`,
//! and are only to be read.
//!
//! What it does not know: what rows mean. What is queued, and the rows that the delay holds back,
//! stay from run to run: the stream goes on where it was.
//!
//! At the end of a stream: `producer_finished` sets the flag, with release; `try_pop` reads it
//! with acquire before it looks for a row, and answers `Eof` if there is none. Every row has been
//! current by then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holoflow_core::storage::{DelayLayout, DelayReader, DelayRing, TView};
use holoflow_core::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, Flow, IAsyncTask, IAsyncTaskFactory,
    InferResult, OpResult, ReleaseCtx, RunCtx, TaskError, TaskInfo, TaskRequest, TaskResult,
};
use holoflow_core::tensor::TDesc;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch_queue::{above_zero, rows_of};

/// Settings of the dual reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DualReaderBatchQueueSettings {
    /// Rows that it is to hold at least before upstream waits, beside those that the delay holds
    /// back. A row is one index of axis 0.
    #[serde(deserialize_with = "above_zero")]
    #[schemars(range(min = 1))]
    pub target_capacity: usize,
    /// Rows of the window: the delay is `(window_size - 1) / 2` rows, and rows are valid from the
    /// last of the first window on.
    #[serde(deserialize_with = "above_zero")]
    #[schemars(range(min = 1))]
    pub window_size: usize,
}

impl DualReaderBatchQueueSettings {
    /// Room for `target_capacity` rows, and a window of `window_size` rows.
    #[must_use]
    pub fn new(target_capacity: usize, window_size: usize) -> Self {
        Self {
            target_capacity,
            window_size,
        }
    }
}

/// Makes dual readers, kind `DualReaderBatchQueue`.
///
/// One input of N rows, contiguous and in host memory, owned. Three outputs: the current row and
/// the delayed row, owned and only to be read, and whether the window is full, one `U8`, borrowed.
/// Settings: [`DualReaderBatchQueueSettings`].
#[derive(Debug, Clone, Copy, Default)]
pub struct DualReaderBatchQueueFactory;

/// What a request comes to.
#[derive(Debug, Clone)]
struct Plan {
    settings: DualReaderBatchQueueSettings,
    /// Layout of what is pushed.
    frame: TDesc,
    /// Layout of a row.
    row: TDesc,
    layout: DelayLayout,
}

impl Plan {
    fn new(request: &TaskRequest<'_>) -> TaskResult<Self> {
        let settings: DualReaderBatchQueueSettings = request.settings()?;
        let [input] = request.exactly::<1>()?;
        let (frame, push_rows, row_bytes) = rows_of(input)?;
        let DualReaderBatchQueueSettings {
            target_capacity,
            window_size,
        } = settings;
        let delay = (window_size - 1) / 2;
        let layout = DelayLayout::holding(target_capacity, row_bytes, push_rows.get(), delay)
            .filter(|layout| layout.bytes().is_some());
        let Some(layout) = layout else {
            let expected = "a queue whose bytes can be counted: less of it, or of `window_size`";
            return Err(TaskError::settings(
                "target_capacity",
                target_capacity,
                expected,
            ));
        };
        let mut shape = frame.shape().to_vec();
        shape[0] = 1;
        Ok(Self {
            settings,
            row: TDesc::new(shape, frame.dtype(), frame.location())?,
            frame,
            layout,
        })
    }

    /// How frames in and out relate, if a frame is a row.
    fn flow(&self) -> Option<Flow> {
        let DelayLayout {
            rows,
            push_rows,
            delay,
            ..
        } = self.layout;
        // One row always stays free, and those that the delay holds back make no room.
        (push_rows == 1).then(|| Flow::one_to_one(rows - 1 - delay))
    }

    /// Whether it is `other`, but for how much it holds.
    fn holds_rows_of(&self, other: &Self) -> bool {
        self.settings.window_size == other.settings.window_size && self.frame == other.frame
    }
}

struct DualReaderBatchQueue {
    plan: Plan,
    ring: DelayRing,
    /// No push follows in this run.
    finished: AtomicBool,
    /// Frames that an update has dropped, until they are reported.
    lost: AtomicU64,
}

impl DualReaderBatchQueue {
    fn new(plan: Plan, ctx: &mut CreateCtx<'_>) -> TaskResult<Self> {
        let bytes = plan.layout.bytes().unwrap_or(usize::MAX);
        let region = ctx.buffer(plan.frame.location(), bytes)?.into_region();
        Ok(Self {
            ring: DelayRing::new(ctx.sides(), plan.layout, region)?,
            plan,
            finished: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        })
    }

    /// Takes over what `old` holds, if it differs in its capacity only and what it holds fits.
    fn take_over(&mut self, old: &mut Self) -> TaskResult<()> {
        let kept = self.plan.holds_rows_of(&old.plan)
            && self.ring.refill(&mut old.ring, |from, to| {
                to.as_mut_bytes()?.copy_from_slice(from.as_bytes()?);
                Ok::<_, TaskError>(())
            })?;
        let mut lost = old.lost.load(Ordering::Relaxed);
        if !kept {
            // A frame of which a row has come out counts as delivered.
            lost += (old.ring.left() / old.plan.layout.push_rows) as u64;
        }
        *self.lost.get_mut() += lost;
        Ok(())
    }
}

impl IAsyncTask for DualReaderBatchQueue {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| self.ring.acquire(side))
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        if ctx.is_cancelled() {
            return Ok(OpResult::Cancelled);
        }
        let frame = ctx.take_input(0)?;
        self.ring.commit(ctx.side, frame)?;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let finished = self.finished.load(Ordering::Acquire);
        if ctx.is_cancelled() {
            return Ok(OpResult::Cancelled);
        }
        if self.lost.load(Ordering::Relaxed) != 0 {
            ctx.dropped(self.lost.swap(0, Ordering::Relaxed));
        }
        let Some(pair) = self.ring.pop(ctx.side)? else {
            let end = if finished {
                OpResult::Eof
            } else {
                OpResult::NotReady
            };
            return Ok(end);
        };
        let is_full = pair.number >= (self.plan.settings.window_size - 1) as u64;
        ctx.outputs.get_mut::<u8>(2)?[0] = u8::from(is_full);
        ctx.publish(0, pair.current)?;
        ctx.publish(1, pair.delayed)?;
        if self.plan.layout.push_rows != 1 {
            // A row is valid whatever its frame says, of which nothing is known here.
            ctx.meta_mut().valid = None;
        }
        Ok(OpResult::Ok)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        // The outputs that it owns are 0 and 1; the others are refused here.
        let row = ctx.take_back(index)?;
        let reader = if index == 0 {
            DelayReader::Current
        } else {
            DelayReader::Delayed
        };
        Ok(self.ring.release(ctx.side, reader, row)?)
    }

    fn run_started(&self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        self.finished.store(false, Ordering::Release);
        Ok(())
    }

    fn producer_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }
}

impl IAsyncTaskFactory for DualReaderBatchQueueFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Gives each row twice, now and half a window later, without copying.")
            .with_settings::<DualReaderBatchQueueSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let plan = Plan::new(request)?;
        let flow = plan.flow();
        let outputs = [plan.row.clone(), plan.row, TDesc::host::<u8>([1])?];
        let mut result = InferResult::asynchronous([plan.frame], outputs)
            .owning_inputs()
            .sharing_outputs([0, 1]);
        result.flow = flow;
        Ok(result)
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let plan = Plan::new(request)?;
        Ok(Box::new(DualReaderBatchQueue::new(plan, ctx)?))
    }

    /// A queue with equal settings and input is kept, with its rows. If only the capacity has
    /// changed, the rows are kept if they fit. Otherwise the queue is a new one, and what the old
    /// one held is reported as dropped by the next `try_pop`.
    fn update(
        &self,
        old: Arc<dyn IAsyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let plan = Plan::new(request)?;
        let Some(mut old) = old.take::<DualReaderBatchQueue>() else {
            return Ok(Box::new(DualReaderBatchQueue::new(plan, ctx)?));
        };
        if plan.holds_rows_of(&old.plan) && plan.layout == old.plan.layout {
            old.ring.rebind(ctx.sides());
            old.plan = plan;
            return Ok(Box::new(old));
        }
        let mut queue = DualReaderBatchQueue::new(plan, ctx)?;
        queue.take_over(&mut old)?;
        Ok(Box::new(queue))
    }
}
