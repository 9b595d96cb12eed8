//! Queue between two sections that joins frames to batches, or parts them, without copies.
//!
//! A frame of N rows goes in, a batch of `output_size` rows comes out, and `output_stride` rows
//! are done with then. Both sides work in the bytes of one `SlotRing`: upstream fills a window
//! of it, downstream reads another. If nothing is free, upstream waits.
//!
//! A queue that drops frames instead is a `SwapRing`: a frame is a region of its own, with its
//! metadata beside it, since the scheduler cannot tell which frames still come out. It passes
//! frames on as they are.
//!
//! What it does not know: what rows mean, and when upstream or downstream come.
//!
//! How frames are counted: in frames that were pushed, never in rows or batches. A frame is
//! *dropped* if no row of it came out; one of which a part came out counts as delivered.
//!
//! At the end of a stream:
//!
//! 1. `producer_finished` sets the flag. It is stored with release, after the last push.
//! 2. `try_pop` reads the flag with acquire, before it looks at the ring: what it finds then is
//!    all there will be.
//! 3. Of a stride that is not whole, a batch that is comes out as always. Fewer rows than a batch
//!    are copied to a batch of their own, which stands beside the ring, and followed by zeros
//!    (`pad`), or they are dropped (`discard`).
//! 4. The next `try_pop` finds nothing and answers `Eof`.
//! 5. `run_started` clears the flag and lets batches begin at whole strides again. What was
//!    queued, because the run was cancelled, stays queued.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holoflow_core::storage::{
    ConsumerCell, LentRegion, Overflow, Refusal, RingLayout, SlotRing, SwapRing, TView, rows_for,
};
use holoflow_core::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, Flow, FrameMeta, IAsyncTask,
    IAsyncTaskFactory, InferResult, OpResult, ReleaseCtx, RunCtx, TaskError, TaskInfo, TaskRequest,
    TaskResult,
};
use holoflow_core::tensor::TDesc;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Settings of the batch queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BatchQueueSettings {
    /// Rows that it is to hold at least before it is full. A row is one index of axis 0.
    #[serde(deserialize_with = "above_zero")]
    #[schemars(range(min = 1))]
    pub target_capacity: usize,
    /// Rows of a batch.
    #[serde(deserialize_with = "above_zero")]
    #[schemars(range(min = 1))]
    pub output_size: usize,
    /// Rows from the beginning of a batch to that of the next, a multiple of `output_size`. Rows
    /// in between are skipped.
    #[serde(deserialize_with = "above_zero")]
    #[schemars(range(min = 1))]
    pub output_stride: usize,
    /// What it does when it is full. `block`: it makes upstream wait. `drop_newest`: it drops the
    /// frame that comes. `drop_oldest`: it drops the frame that has waited longest. `latest`: it
    /// holds one frame, the newest. All but `block` pass frames on as they are: `output_size` and
    /// `output_stride` are the rows of a frame.
    #[serde(default)]
    pub overflow: QueueOverflow,
    /// What becomes of the last rows, if they are fewer than a batch. `pad`: they come out with
    /// zeros after them and their number in the metadata. `discard`: they are dropped and
    /// counted.
    #[serde(default)]
    pub at_end: AtEnd,
}

/// What a full [batch queue](BatchQueueFactory) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueueOverflow {
    /// It makes upstream wait.
    #[default]
    Block,
    /// It drops the frame that comes.
    DropNewest,
    /// It drops the frame that has waited longest.
    DropOldest,
    /// It holds one frame, the newest.
    Latest,
}

impl QueueOverflow {
    /// What the ring does that holds the frames; `None` if it makes upstream wait.
    fn dropping(self) -> Option<Overflow> {
        match self {
            Self::Block => None,
            Self::DropNewest => Some(Overflow::DropNewest),
            Self::DropOldest | Self::Latest => Some(Overflow::DropOldest),
        }
    }
}

/// What a [batch queue](BatchQueueFactory) does with the last rows, if they are fewer than a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AtEnd {
    /// They come out as a batch that zeros fill up; `valid` in its metadata is their number.
    #[default]
    Pad,
    /// They are dropped and counted.
    Discard,
}

impl BatchQueueSettings {
    /// Room for `target_capacity` rows; batches of `output_size` rows, end to end.
    #[must_use]
    pub fn new(target_capacity: usize, output_size: usize) -> Self {
        Self {
            target_capacity,
            output_size,
            output_stride: output_size,
            overflow: QueueOverflow::default(),
            at_end: AtEnd::default(),
        }
    }

    /// The same with a batch every `output_stride` rows.
    #[must_use]
    pub fn with_stride(mut self, output_stride: usize) -> Self {
        self.output_stride = output_stride;
        self
    }

    /// The same with another policy for a full queue.
    #[must_use]
    pub fn with_overflow(mut self, overflow: QueueOverflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// The same with another policy for the end.
    #[must_use]
    pub fn with_at_end(mut self, at_end: AtEnd) -> Self {
        self.at_end = at_end;
        self
    }
}

/// Reads a number above 0, so that errors say what is expected.
pub(super) fn above_zero<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    NonZeroUsize::deserialize(from).map(NonZeroUsize::get)
}

/// Makes batch queues, kind `BatchQueue`.
///
/// One input of N rows, contiguous and in host memory, one output of `output_size` rows, both
/// owned. Settings: [`BatchQueueSettings`].
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchQueueFactory;

/// What a request comes to.
#[derive(Debug, Clone)]
struct Plan {
    settings: BatchQueueSettings,
    /// Layout of what is pushed.
    frame: TDesc,
    /// Layout of what is popped.
    batch: TDesc,
    /// That of the ring if it waits; if it drops, only the windows are meant.
    layout: RingLayout,
}

impl Plan {
    fn new(request: &TaskRequest<'_>) -> TaskResult<Self> {
        let settings: BatchQueueSettings = request.settings()?;
        let (size, stride) = (settings.output_size, settings.output_stride);
        if !stride.is_multiple_of(size) {
            let expected = format!("a multiple of `output_size`, {size}");
            return Err(TaskError::settings("output_stride", stride, expected));
        }
        let [input] = request.exactly::<1>()?;
        let (frame, push_rows, row_bytes) = rows_of(input)?;
        if settings.overflow != QueueOverflow::Block {
            for (field, found) in [("output_size", size), ("output_stride", stride)] {
                if found != push_rows.get() {
                    let expected =
                        format!("{push_rows}, the rows of a frame, to drop whole frames");
                    return Err(TaskError::settings(field, found, expected));
                }
            }
        }
        let layout = NonZeroUsize::new(stride)
            .and_then(|stride| rows_for(settings.target_capacity, push_rows, stride))
            .map(|rows| RingLayout {
                row_bytes,
                rows,
                push_rows: push_rows.get(),
                pop_rows: size,
                pop_stride: stride,
            })
            .filter(|layout| layout.bytes().is_some());
        let Some(layout) = layout else {
            let expected = "a queue whose bytes can be counted: less of it, or of `output_stride`";
            let found = settings.target_capacity;
            return Err(TaskError::settings("target_capacity", found, expected));
        };
        let mut shape = frame.shape().to_vec();
        shape[0] = size;
        Ok(Self {
            settings,
            batch: TDesc::new(shape, frame.dtype(), frame.location())?,
            frame,
            layout,
        })
    }

    /// How frames and batches relate, if whole frames make a batch.
    fn flow(&self) -> Option<Flow> {
        if self.settings.overflow != QueueOverflow::Block {
            // It never makes upstream wait.
            return Some(Flow::one_to_one(usize::MAX));
        }
        let RingLayout {
            rows,
            push_rows,
            pop_stride,
            ..
        } = self.layout;
        pop_stride.is_multiple_of(push_rows).then_some(Flow {
            frames_per_output: pop_stride / push_rows,
            held_back: 0,
            capacity: rows / push_rows,
        })
    }

    /// Frames that a queue which drops holds.
    fn frames(&self) -> usize {
        match self.settings.overflow {
            QueueOverflow::Latest => 1,
            _ => self
                .settings
                .target_capacity
                .div_ceil(self.layout.push_rows),
        }
    }

    /// Whether frames may end in the middle of a stride.
    fn may_end_short(&self) -> bool {
        !self.layout.push_rows.is_multiple_of(self.layout.pop_stride)
    }

    /// Whether it is `other`, but for how much it holds.
    fn holds_frames_of(&self, other: &Self) -> bool {
        let settings = BatchQueueSettings {
            target_capacity: other.settings.target_capacity,
            ..self.settings
        };
        settings == other.settings && self.frame == other.frame
    }
}

/// Layout, rows and bytes of a row of what is pushed into a queue.
pub(super) fn rows_of(input: &TDesc) -> TaskResult<(TDesc, NonZeroUsize, usize)> {
    if !input.location().is_host() {
        return Err(TaskError::input(0, input, "a tensor in host memory"));
    }
    if !input.is_contiguous() {
        return Err(TaskError::input(0, input, "a contiguous tensor"));
    }
    let Some(rows) = input.shape().first() else {
        return Err(TaskError::input(0, input, "a tensor of rank 1 or more"));
    };
    let (Some(rows), Some(row_bytes)) = (NonZeroUsize::new(*rows), input.row_bytes()) else {
        let expected = "a tensor with at least one index of axis 0";
        return Err(TaskError::input(0, input, expected));
    };
    Ok((input.normalized(), rows, row_bytes))
}

/// Where the frames are.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one a queue, in a box, and none is ever moved"
)]
enum Frames {
    Waiting(WaitingFrames),
    Dropping(SwapRing<FrameMeta>),
}

struct WaitingFrames {
    ring: SlotRing,
    /// Place for the last batch of a stream, if it may be a short one.
    last: Option<ConsumerCell<LentRegion>>,
}

struct BatchQueue {
    plan: Plan,
    frames: Frames,
    /// No push follows in this run.
    finished: AtomicBool,
    /// Frames that were dropped where there is no context to say so to.
    lost: AtomicU64,
}

impl BatchQueue {
    fn new(plan: Plan, ctx: &mut CreateCtx<'_>) -> TaskResult<Self> {
        let frames = match plan.settings.overflow.dropping() {
            Some(overflow) => {
                let count = plan.frames().saturating_add(SwapRing::<FrameMeta>::SPARES);
                let regions: TaskResult<Vec<_>> =
                    (0..count).map(|_| ctx.region_for(&plan.frame)).collect();
                Frames::Dropping(SwapRing::new(ctx.sides(), overflow, regions?)?)
            }
            None => {
                let last = if plan.may_end_short() {
                    let region = ctx.region_for(&plan.batch)?;
                    Some(ctx.consumer_cell(LentRegion::new(region)?))
                } else {
                    None
                };
                let ring = ctx.slot_ring(plan.frame.location(), plan.layout)?;
                Frames::Waiting(WaitingFrames { ring, last })
            }
        };
        Ok(Self {
            plan,
            frames,
            finished: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        })
    }

    /// Frames of which no row came out, if `rows` rows are left.
    fn whole_frames(&self, rows: usize) -> u64 {
        (rows / self.plan.layout.push_rows) as u64
    }

    /// Frames that would be lost with the queue.
    fn held(&self) -> u64 {
        match &self.frames {
            Frames::Waiting(frames) => self.whole_frames(frames.ring.filled()),
            Frames::Dropping(ring) => ring.filled() as u64,
        }
    }

    /// Gives what is left of a stream, of which no row follows.
    #[cold]
    fn pop_last(&self, frames: &WaitingFrames, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let WaitingFrames { ring, last } = frames;
        let Some((window, rows)) = ring.pop_short(ctx.side)? else {
            return Ok(OpResult::Eof);
        };
        if rows >= self.plan.layout.pop_rows {
            // A whole batch; only rows that would be skipped after it are missing.
            ctx.publish(0, window)?;
            self.describe_batch(ctx);
            return Ok(OpResult::Ok);
        }
        match (self.plan.settings.at_end, last) {
            (AtEnd::Pad, Some(last)) => {
                let mut last = last.open(ctx.side)?.lend()?;
                let bytes = window.as_bytes()?;
                let (head, tail) = last.as_mut_bytes()?.split_at_mut(bytes.len());
                ctx.node.copy(head, bytes)?;
                tail.fill(0);
                ctx.publish(0, last)?;
                ring.release(ctx.side, window)?;
                ctx.meta_mut().valid = Some(rows as u64);
                Ok(OpResult::Ok)
            }
            (AtEnd::Pad | AtEnd::Discard, _) => {
                ring.release(ctx.side, window)?;
                ctx.dropped(self.whole_frames(rows));
                Ok(OpResult::Eof)
            }
        }
    }

    /// Of a batch that is not a frame, all rows are valid, whatever its first frame says.
    fn describe_batch(&self, ctx: &mut AsyncPopCtx<'_>) {
        if self.plan.layout.pop_rows != self.plan.layout.push_rows {
            ctx.meta_mut().valid = None;
        }
    }

    /// Takes over what `old` holds, as far as the plans allow.
    fn take_over(&mut self, old: &mut Self) -> TaskResult<()> {
        let mut kept = false;
        if let (Frames::Waiting(new), Frames::Waiting(frames)) = (&mut self.frames, &mut old.frames)
            && self.plan.holds_frames_of(&old.plan)
        {
            kept = new.ring.refill(&mut frames.ring, |from, to| {
                to.as_mut_bytes()?.copy_from_slice(from.as_bytes()?);
                Ok::<_, TaskError>(())
            })?;
        }
        let mut lost = old.lost.load(Ordering::Relaxed);
        if !kept {
            lost += old.held();
        }
        *self.lost.get_mut() += lost;
        Ok(())
    }

    /// Becomes a queue by another plan, with the frames it holds; `false` if it cannot, and then
    /// it has not changed.
    fn becomes(&mut self, plan: &Plan, ctx: &mut CreateCtx<'_>) -> TaskResult<bool> {
        if !plan.holds_frames_of(&self.plan) {
            return Ok(false);
        }
        match &mut self.frames {
            Frames::Waiting(frames) => {
                if plan.layout != self.plan.layout {
                    return Ok(false);
                }
                frames.ring.rebind(ctx.sides());
                if let Some(last) = &mut frames.last {
                    last.rebind(ctx.sides());
                }
            }
            Frames::Dropping(ring) => {
                if !ring.resize(plan.frames(), || ctx.region_for(&plan.frame))? {
                    return Ok(false);
                }
                ring.rebind(ctx.sides());
            }
        }
        self.plan = plan.clone();
        Ok(true)
    }
}

impl IAsyncTask for BatchQueue {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| match &self.frames {
            Frames::Waiting(frames) => frames.ring.acquire(side),
            Frames::Dropping(ring) => ring.acquire(side),
        })
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        if ctx.is_cancelled() {
            return Ok(OpResult::Cancelled);
        }
        let frame = ctx.take_input(0)?;
        match &self.frames {
            Frames::Waiting(frames) => frames.ring.commit(ctx.side, frame)?,
            Frames::Dropping(ring) => {
                let meta = ctx.meta().clone();
                if ring.commit(ctx.side, frame, meta)?.is_some() {
                    ctx.dropped(1);
                }
            }
        }
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
        match &self.frames {
            Frames::Waiting(frames) => match frames.ring.pop(ctx.side)? {
                Some(batch) => {
                    ctx.publish(0, batch)?;
                    self.describe_batch(ctx);
                    Ok(OpResult::Ok)
                }
                None if finished => self.pop_last(frames, ctx),
                None => Ok(OpResult::NotReady),
            },
            Frames::Dropping(ring) => match ring.pop(ctx.side)? {
                Some((frame, meta)) => {
                    ctx.publish(0, frame)?;
                    *ctx.meta_mut() = meta;
                    Ok(OpResult::Ok)
                }
                None if finished => Ok(OpResult::Eof),
                None => Ok(OpResult::NotReady),
            },
        }
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let batch = ctx.take_back(index)?;
        let WaitingFrames { ring, last } = match &self.frames {
            Frames::Waiting(frames) => frames,
            Frames::Dropping(ring) => return Ok(ring.release(ctx.side, batch)?),
        };
        let Err(refused) = ring.release(ctx.side, batch) else {
            return Ok(());
        };
        match last {
            // The last batch is not of the ring.
            Some(last) if refused.refusal == Refusal::ForeignWindow => {
                Ok(last.open(ctx.side)?.take_back(refused.region)?)
            }
            _ => Err(refused.into()),
        }
    }

    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.finished.store(false, Ordering::Release);
        if let Frames::Waiting(frames) = &self.frames {
            let dropped = frames.ring.realign(ctx.producer, ctx.consumer)?;
            let dropped = self.whole_frames(dropped);
            self.lost.fetch_add(dropped, Ordering::Relaxed);
        }
        Ok(())
    }

    fn producer_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }
}

impl IAsyncTaskFactory for BatchQueueFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Queues frames, and makes batches of another size of them, without copying.")
            .with_settings::<BatchQueueSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let plan = Plan::new(request)?;
        let flow = plan.flow();
        let mut result = InferResult::asynchronous([plan.frame], [plan.batch])
            .owning_inputs()
            .owning_outputs();
        result.flow = flow;
        Ok(result)
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(BatchQueue::new(Plan::new(request)?, ctx)?))
    }

    /// A queue with equal settings and input is kept, with its frames. If only the capacity has
    /// changed, the frames are kept if they fit. Otherwise the queue is a new one, and what the old
    /// one held is reported as dropped by the next `try_pop`.
    fn update(
        &self,
        old: Arc<dyn IAsyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let plan = Plan::new(request)?;
        let Some(mut old) = old.take::<BatchQueue>() else {
            return Ok(Box::new(BatchQueue::new(plan, ctx)?));
        };
        if old.becomes(&plan, ctx)? {
            return Ok(Box::new(old));
        }
        let mut queue = BatchQueue::new(plan, ctx)?;
        queue.take_over(&mut old)?;
        Ok(Box::new(queue))
    }
}
