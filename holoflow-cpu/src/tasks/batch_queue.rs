//! A queue that also regroups: frames of N rows go in, batches of `output_size` rows come out.
//!
//! The rows lie in one `SlotRing`: upstream writes into it, downstream reads from it, and no
//! bytes move. At the end of a stream the rows that do not make a batch are copied to a block
//! of their own, padded with zeros, since behind them in the ring others may be written.
//!
//! A queue that drops frames is a `SwapRing` instead: its frames are regions of their own, each
//! with its metadata. It never makes upstream wait.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holoflow_core::storage::{
    ConsumerCell, Overflow, Region, RingLayout, Sides, SlotRing, SwapRing, TView, rows_for,
};
use holoflow_core::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, Flow, FrameMeta, IAsyncTask,
    IAsyncTaskFactory, InferResult, OpResult, ReleaseCtx, RunCtx, TaskError, TaskInfo, TaskRequest,
    TaskResult,
};
use holoflow_core::tensor::TDesc;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a full queue does.
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

impl fmt::Display for QueueOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::DropNewest => "drop_newest",
            Self::DropOldest => "drop_oldest",
            Self::Latest => "latest",
        })
    }
}

/// What becomes of rows at the end of a stream that are fewer than a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AtEnd {
    /// They come as a batch filled up with zeros; its metadata says how many rows are valid.
    #[default]
    Pad,
    /// They are dropped and counted.
    Discard,
}

/// Settings of a batch queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BatchQueueSettings {
    /// Rows that it is to hold at least before upstream waits; above 0.
    pub target_capacity: i64,
    /// Rows of a batch; above 0.
    pub output_size: i64,
    /// Rows from the beginning of a batch to that of the next, a multiple of `output_size`.
    pub output_stride: i64,
    /// What it does when it is full. All but `block` need frames, batches and strides of equal
    /// size.
    #[serde(default)]
    pub overflow: QueueOverflow,
    /// What becomes of rows at the end that are fewer than a batch.
    #[serde(default)]
    pub at_end: AtEnd,
}

impl BatchQueueSettings {
    /// A queue for `target_capacity` rows that makes batches of `output_size`.
    #[must_use]
    pub fn new(target_capacity: i64, output_size: i64) -> Self {
        Self {
            target_capacity,
            output_size,
            output_stride: output_size,
            overflow: QueueOverflow::Block,
            at_end: AtEnd::Pad,
        }
    }

    /// The same with batches that begin `stride` rows apart.
    #[must_use]
    pub fn with_stride(mut self, stride: i64) -> Self {
        self.output_stride = stride;
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

/// Makes batch queues, kind `BatchQueue`.
///
/// One input of shape `(N, rest…)` in host memory, one output of shape `(output_size, rest…)`;
/// both owned. Settings: [`BatchQueueSettings`].
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchQueueFactory;

/// Settings and input, checked, in numbers that can be worked with.
#[derive(Debug, Clone, PartialEq)]
struct Shape {
    input: TDesc,
    output: TDesc,
    layout: RingLayout,
    overflow: QueueOverflow,
    at_end: AtEnd,
    /// Rows that were asked for.
    target: usize,
}

impl Shape {
    fn of(request: &TaskRequest<'_>) -> TaskResult<Self> {
        let settings = request.settings::<BatchQueueSettings>()?;
        let [input] = request.exactly::<1>()?;
        let above_zero = |field: &str, value: i64| {
            let found = usize::try_from(value).ok().and_then(NonZeroUsize::new);
            found.ok_or_else(|| TaskError::settings(field, value, "a whole number above 0"))
        };
        let target = above_zero("target_capacity", settings.target_capacity)?;
        let size = above_zero("output_size", settings.output_size)?;
        let stride = above_zero("output_stride", settings.output_stride)?;
        if !stride.get().is_multiple_of(size.get()) {
            let expected = format!("a multiple of `output_size`, {size}");
            return Err(TaskError::settings("output_stride", stride, expected));
        }
        if !input.location().is_host() {
            return Err(TaskError::input(0, input, "a tensor in host memory"));
        }
        if !input.is_contiguous() {
            return Err(TaskError::input(0, input, "a contiguous tensor"));
        }
        let Some(rows) = input.shape().first() else {
            return Err(TaskError::input(0, input, "a tensor of at least one axis"));
        };
        let Some(push_rows) = NonZeroUsize::new(*rows) else {
            return Err(TaskError::input(0, input, "at least one row, along axis 0"));
        };
        let input = input.normalized();
        let too_many = || {
            let expected = "a capacity whose bytes can be counted";
            TaskError::settings("target_capacity", target, expected)
        };
        let rows = rows_for(target.get(), push_rows, stride).ok_or_else(too_many)?;
        let layout = RingLayout {
            row_bytes: input.num_bytes() / push_rows,
            rows,
            push_rows: push_rows.get(),
            pop_rows: size.get(),
            pop_stride: stride.get(),
        };
        layout.bytes().ok_or_else(too_many)?;
        let mut shape = input.shape().to_vec();
        shape[0] = size.get();
        let output = TDesc::new(&shape[..], input.dtype(), input.location())?;
        if settings.overflow != QueueOverflow::Block && (size != push_rows || stride != push_rows) {
            let expected = format!(
                "`block`, or frames, `output_size` and `output_stride` of one size: a frame has \
                 {push_rows} rows, and they are {size} and {stride}"
            );
            return Err(TaskError::settings("overflow", settings.overflow, expected));
        }
        Ok(Self {
            input,
            output,
            layout,
            overflow: settings.overflow,
            at_end: settings.at_end,
            target: target.get(),
        })
    }

    fn flow(&self) -> Option<Flow> {
        let RingLayout {
            rows,
            push_rows,
            pop_stride,
            ..
        } = self.layout;
        if self.overflow != QueueOverflow::Block {
            return Some(Flow::one_to_one(usize::MAX));
        }
        pop_stride.is_multiple_of(push_rows).then(|| Flow {
            frames_per_output: pop_stride / push_rows,
            held_back: 0,
            capacity: rows / push_rows,
        })
    }

    /// Frames that a queue which drops holds.
    fn frames(&self) -> usize {
        match self.overflow {
            QueueOverflow::Latest => 1,
            _ => self.target.div_ceil(self.layout.push_rows),
        }
    }
}

/// Where the frames are.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each queue, behind a box"
)]
enum Frames {
    Ring(SlotRing),
    Swap(SwapRing<FrameMeta>),
}

struct BatchQueue {
    shape: Shape,
    frames: Frames,
    /// A padded last batch: the block, while it is not out.
    tail: ConsumerCell<Tail>,
    finished: AtomicBool,
    /// Frames that an update has dropped, until they are reported.
    dropped: AtomicU64,
}

struct Tail {
    block: Option<Region>,
    /// Whether the block is what was popped last.
    out: bool,
}

impl BatchQueue {
    /// What is left of a stream that has ended: a last batch, or the end.
    fn pop_rest(&self, ring: &SlotRing, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let RingLayout {
            row_bytes,
            push_rows,
            ..
        } = self.shape.layout;
        let Some(rest) = ring.pop_rest(ctx.side)? else {
            return Ok(OpResult::Eof);
        };
        let rows = rest.len().checked_div(row_bytes).unwrap_or(0);
        if self.shape.at_end == AtEnd::Discard {
            ctx.node.dropped(ring.filled().div_ceil(push_rows) as u64);
            ring.release(ctx.side, rest)?;
            return Ok(OpResult::Eof);
        }
        let tail = self.tail.open(ctx.side)?;
        let Some(mut block) = tail.block.take() else {
            return Err(TaskError::other(
                "the block of the last batch is not released",
            ));
        };
        let (valid, padding) = block.as_mut_bytes()?.split_at_mut(rest.len());
        valid.copy_from_slice(rest.as_bytes()?);
        padding.fill(0);
        tail.out = true;
        ring.release(ctx.side, rest)?;
        ctx.publish(0, block)?;
        ctx.meta_mut().valid = Some(rows as u64);
        Ok(OpResult::Ok)
    }
}

impl IAsyncTask for BatchQueue {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| match &self.frames {
            Frames::Ring(ring) => ring.acquire(side),
            Frames::Swap(ring) => Ok(ring.acquire()),
        })
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let region = ctx.take_input(0)?;
        let mut dropped = self.dropped.swap(0, Ordering::Relaxed);
        match &self.frames {
            Frames::Ring(ring) => ring.commit(ctx.side, region)?,
            Frames::Swap(ring) => dropped += ring.commit(region, ctx.meta().clone())?,
        }
        if dropped > 0 {
            ctx.node.dropped(dropped);
        }
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        // Before the look at the rows: what was pushed before the end is seen after it.
        let finished = self.finished.load(Ordering::Acquire);
        match &self.frames {
            Frames::Ring(ring) => {
                if let Some(region) = ring.pop(ctx.side)? {
                    ctx.publish(0, region)?;
                    return Ok(OpResult::Ok);
                }
                if finished {
                    return self.pop_rest(ring, ctx);
                }
            }
            Frames::Swap(ring) => {
                if let Some((region, meta)) = ring.pop() {
                    ctx.publish(0, region)?;
                    *ctx.meta_mut() = meta;
                    return Ok(OpResult::Ok);
                }
                if finished {
                    return Ok(OpResult::Eof);
                }
            }
        }
        Ok(OpResult::NotReady)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let region = ctx.take_back(index)?;
        match &self.frames {
            Frames::Ring(ring) => {
                let tail = self.tail.open(ctx.side)?;
                if std::mem::take(&mut tail.out) {
                    tail.block = Some(region);
                } else {
                    ring.release(ctx.side, region)?;
                }
            }
            Frames::Swap(ring) => ring.release(region)?,
        }
        Ok(())
    }

    fn cancel_input(&self, index: usize, ctx: &mut AcquireCtx<'_>) {
        let region = ctx.take_back(index);
        if let (Frames::Swap(ring), Ok(Some(region))) = (&self.frames, region) {
            // Of another ring it cannot be: it was lent by this one.
            drop(ring.release(region));
        }
    }

    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.finished.store(false, Ordering::Release);
        if let Frames::Ring(ring) = &self.frames {
            ring.realign(ctx.producer, ctx.consumer)?;
        }
        Ok(())
    }

    fn producer_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }
}

impl BatchQueue {
    fn new(shape: Shape, ctx: &mut CreateCtx<'_>, dropped: u64) -> TaskResult<Self> {
        let location = shape.input.location();
        let block = |ctx: &mut CreateCtx<'_>, bytes: usize| -> TaskResult<Region> {
            Ok(ctx.buffer(location, bytes)?.into_region())
        };
        let (frames, tail) = if shape.overflow == QueueOverflow::Block {
            let ring = ctx.slot_ring(location, shape.layout)?;
            // Rows that do not make a batch, and only they, need a block of their own.
            let RingLayout {
                push_rows,
                pop_stride,
                ..
            } = shape.layout;
            let can_be_short = !push_rows.is_multiple_of(pop_stride);
            let tail = if can_be_short && shape.at_end == AtEnd::Pad {
                Some(block(ctx, shape.output.num_bytes())?)
            } else {
                None
            };
            (Frames::Ring(ring), tail)
        } else {
            let overflow = match shape.overflow {
                QueueOverflow::DropNewest => Overflow::DropNewest,
                _ => Overflow::DropOldest,
            };
            let count = shape.frames() + SwapRing::<FrameMeta>::SPARES;
            let mut regions = Vec::with_capacity(count);
            for _ in 0..count {
                regions.push(block(ctx, shape.input.num_bytes())?);
            }
            let ring = SwapRing::new(shape.frames(), overflow, regions);
            (Frames::Swap(ring), None)
        };
        Ok(Self {
            shape,
            frames,
            tail: ctx.consumer_cell(Tail {
                block: tail,
                out: false,
            }),
            finished: AtomicBool::new(false),
            dropped: AtomicU64::new(dropped),
        })
    }

    /// Moves the frames of a queue of another capacity into this one; whether it could.
    fn take_over(&mut self, old: &mut Self, sides: &Sides) -> TaskResult<bool> {
        let same = Shape {
            layout: RingLayout {
                rows: old.shape.layout.rows,
                ..self.shape.layout
            },
            target: old.shape.target,
            ..self.shape.clone()
        };
        if same != old.shape {
            return Ok(false);
        }
        match (&mut old.frames, &mut self.frames) {
            (Frames::Swap(old), Frames::Swap(new)) => {
                if old.filled() > new.capacity() {
                    return Ok(false);
                }
                while let Some((region, meta)) = old.pop() {
                    // The regions are alike: one comes, one goes.
                    drop(new.acquire());
                    new.commit(region, meta)?;
                }
                Ok(true)
            }
            (Frames::Ring(old), Frames::Ring(new)) => {
                let RingLayout {
                    rows,
                    push_rows,
                    pop_rows,
                    pop_stride,
                    ..
                } = self.shape.layout;
                let filled = old.filled();
                let whole = filled.is_multiple_of(push_rows) && pop_rows == pop_stride;
                if filled > rows || !whole {
                    return Ok(false);
                }
                let mut between = Sides::new();
                old.rebind(&between);
                new.rebind(&between);
                let (producer, consumer) = between.split();
                let mut bytes = Vec::new();
                while let Some(window) = old.pop_rest(consumer)? {
                    bytes.extend_from_slice(window.as_bytes()?);
                    old.release(consumer, window)?;
                }
                let mut bytes = bytes.as_slice();
                while !bytes.is_empty() {
                    let Some(mut window) = new.acquire(producer)? else {
                        break;
                    };
                    let (frame, rest) = bytes.split_at(window.len().min(bytes.len()));
                    window.as_mut_bytes()?[..frame.len()].copy_from_slice(frame);
                    new.commit(producer, window)?;
                    bytes = rest;
                }
                new.rebind(sides);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Frames inside.
    fn held(&self) -> u64 {
        let held = match &self.frames {
            Frames::Ring(ring) => ring.filled().div_ceil(self.shape.layout.push_rows),
            Frames::Swap(ring) => ring.filled(),
        };
        held as u64
    }
}

impl IAsyncTaskFactory for BatchQueueFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Holds frames, and makes batches of another size of them, without copying.")
            .with_settings::<BatchQueueSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let shape = Shape::of(request)?;
        let flow = shape.flow();
        let result = InferResult::asynchronous([shape.input], [shape.output])
            .owning_inputs()
            .owning_outputs();
        Ok(match flow {
            Some(flow) => result.with_flow(flow),
            None => result,
        })
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let shape = Shape::of(request)?;
        Ok(Box::new(BatchQueue::new(shape, ctx, 0)?))
    }

    /// With the same settings and input the queue is kept as it is. With another capacity only,
    /// the frames in it are kept if they fit. Otherwise they are dropped and counted.
    fn update(
        &self,
        old: Arc<dyn IAsyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let shape = Shape::of(request)?;
        let Some(mut old) = old.take::<BatchQueue>() else {
            return Ok(Box::new(BatchQueue::new(shape, ctx, 0)?));
        };
        if old.shape != shape {
            let mut new = BatchQueue::new(shape, ctx, old.dropped.load(Ordering::Relaxed))?;
            if !new.take_over(&mut old, ctx.sides())? {
                *new.dropped.get_mut() += old.held();
            }
            return Ok(Box::new(new));
        }
        if let Frames::Ring(ring) = &mut old.frames {
            ring.rebind(ctx.sides());
        }
        old.tail.rebind(ctx.sides());
        Ok(Box::new(old))
    }
}
