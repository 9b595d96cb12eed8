//! What a task pays for its storage: publishing, typed access, and the slot ring.
//!
//! Cells and contexts are made by core only, so the loops run where a task's code runs:
//! inside one call of `execute` in a `TaskHarness`. They do what hooks do, with a real
//! context; the call itself is spread over a million iterations, so what a port or a
//! scheduler adds to each hook is not in these figures, and is the `dispatch` bench's.
//!
//! - `storage/publish_retract_ns`: `ctx.publish(0, region)`, then the region out of the
//!   cell again by `owned_output_storage(0)`, with all checks of slot and region.
//! - `storage/typed_get_ns`: `ctx.inputs.get::<f32>(0)`. Loops overlap iterations, as a
//!   processor does with the code around a call, so this is less than the latency.
//! - `storage/ring_ns_per_frame`: one frame's way through an owning task, all on one
//!   thread: acquire from the slot ring, publish in the input's cell (what `lend` does),
//!   take out of it, commit; pop, publish in the output's cell, take back, release.
//! - `storage/ring_bare_ns_per_frame`: of that the ring alone, without cells.
//! - `storage/swap_ring_bare_ns_per_frame`, `storage/delay_ring_bare_ns_per_row`: the same of
//!   the ring that drops what does not fit, and of the one that hands out each row twice.
//! - `storage/ring_harness_ns_per_frame`: the same frame by four hooks of an async task that
//!   the harness calls, with its panic guards, counters and contract checks. No target: it
//!   shows what the hooks themselves add, in the test kit's version.
//!
//! `black_box` stands where two hooks would be apart: the optimiser must assume that
//! context and ring changed there, and so can merge no two steps.
//!
//! Peers do what a user without holoflow would write in safe code: an `Option` for the
//! cell, a vector of vectors for the slots, and boxed buffers in two queues for the ring,
//! one for the free buffers, one for the filled ones. They check nothing, and the queues
//! have no cells beside them.

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use serde_json::json;

use holoflow_bench::{Bench, Unit};
use holoflow_core::memory::Memory;
use holoflow_core::storage::{
    DelayLayout, DelayReader, DelayRing, IOStorageAccess, Overflow, Region, RingLayout, Sides,
    SlotRing, SwapRing, TView, TaskBuffer,
};
use holoflow_core::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, CreateCtx, HookError, IAsyncTask, IAsyncTaskFactory,
    ISyncTask, ISyncTaskFactory, InferResult, OpResult, ReleaseCtx, SyncCtx, TaskError, TaskInfo,
    TaskRequest, TaskResult,
};
use holoflow_core::tensor::{MemLoc, TDesc};
use holoflow_core::testkit::TaskHarness;

/// Elements of a frame.
const FRAME: usize = 16;

/// Frames that ring and peers hold.
const ROWS: usize = 4;

fn main() {
    let mut bench = Bench::from_args();

    let mut task = InExecute::new::<PublishRetract>();
    bench
        .figure("storage/publish_retract_ns")
        .at_most(6.0)
        .peer("Option<Box>", peer_option)
        .time(Unit::Ns, |iterations| task.run(iterations));

    let mut task = InExecute::new::<TypedGet>();
    bench
        .figure("storage/typed_get_ns")
        .at_most(3.0)
        .peer("Vec<Vec>", peer_vectors)
        .time(Unit::Ns, |iterations| task.run(iterations));

    let mut task = InExecute::new::<RingThroughCells>();
    bench
        .figure("storage/ring_ns_per_frame")
        .at_most(40.0)
        .peer("rtrb, boxed", peer_rtrb())
        .peer("ArrayQueue, boxed", peer_array_queue())
        .time(Unit::Ns, |iterations| task.run(iterations));

    let mut sides = Sides::new();
    let ring = bare_ring(&sides);
    bench
        .figure("storage/ring_bare_ns_per_frame")
        .peer("rtrb, boxed", peer_rtrb())
        .peer("ArrayQueue, boxed", peer_array_queue())
        .time(Unit::Ns, |iterations| {
            pass_bare(&ring, &mut sides, iterations).expect("one frame at a time fits");
        });

    let mut sides = Sides::new();
    let ring = swap_ring(&sides);
    bench
        .figure("storage/swap_ring_bare_ns_per_frame")
        .time(Unit::Ns, |iterations| {
            pass_swap(&ring, &mut sides, iterations).expect("one frame at a time fits");
        });

    let mut sides = Sides::new();
    let ring = delay_ring(&sides);
    bench
        .figure("storage/delay_ring_bare_ns_per_row")
        .time(Unit::Ns, |iterations| {
            pass_delayed(&ring, &mut sides, iterations).expect("one row at a time fits");
        });

    let mut task = TaskHarness::asynchronous(&RingFactory, json!({}), [frame()])
        .expect("the ring's task takes any frame");
    bench
        .figure("storage/ring_harness_ns_per_frame")
        .time(Unit::Ns, |iterations| {
            for _ in 0..iterations {
                pass_one(&mut task).expect("one frame at a time fits");
            }
        });

    bench.finish();
}

fn frame() -> TDesc {
    TDesc::host::<f32>([FRAME]).expect("a small frame")
}

fn layout() -> RingLayout {
    let row_bytes = FRAME * size_of::<f32>();
    RingLayout {
        row_bytes,
        rows: ROWS,
        push_rows: 1,
        pop_rows: 1,
        pop_stride: 1,
    }
}

// ---------------------------------------------------------------------------------------
// Loops inside `execute`

/// A loop to run inside `execute`.
trait Body: Sized + Send + 'static {
    /// Whether the task owns its input and its output.
    const OWNING: bool;

    fn new(ctx: &mut CreateCtx<'_>) -> TaskResult<Self>;

    /// Runs the loop. If the task owns its slots, their cells are empty, and `spare` is the
    /// region that was lent as input and will be published as output.
    fn run(
        &mut self,
        ctx: &mut SyncCtx<'_>,
        spare: &mut Option<Region>,
        iterations: u64,
    ) -> TaskResult<()>;
}

/// A task that runs a loop of `iterations`, and its harness.
struct InExecute {
    harness: TaskHarness,
    iterations: Arc<AtomicU64>,
}

impl InExecute {
    fn new<B: Body>() -> Self {
        let iterations = Arc::new(AtomicU64::new(0));
        let factory = LoopFactory::<B> {
            iterations: Arc::clone(&iterations),
            body: PhantomData,
        };
        let harness = TaskHarness::sync(&factory, json!({}), [frame()])
            .expect("the loop's task takes any frame");
        Self {
            harness,
            iterations,
        }
    }

    fn run(&mut self, iterations: u64) {
        self.iterations.store(iterations, Ordering::Relaxed);
        let side = self.harness.producer();
        let ran = side
            .acquire_all()
            .and_then(|_| side.execute())
            .and_then(|_| side.release_all());
        ran.expect("the loop keeps the contract");
    }
}

struct LoopFactory<B> {
    iterations: Arc<AtomicU64>,
    body: PhantomData<fn() -> B>,
}

struct LoopTask<B> {
    iterations: Arc<AtomicU64>,
    spare: Option<Region>,
    body: B,
}

impl<B: Body> ISyncTaskFactory for LoopFactory<B> {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Runs a loop in every call.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [frame] = request.exactly::<1>()?;
        let result = InferResult::sync([frame.clone()], [frame.clone()]);
        Ok(if B::OWNING {
            result.owning_inputs().owning_outputs()
        } else {
            result
        })
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(LoopTask {
            iterations: Arc::clone(&self.iterations),
            spare: Some(ctx.region_for(request.input(0)?)?),
            body: B::new(ctx)?,
        }))
    }
}

impl<B: Body> ISyncTask for LoopTask<B> {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        let iterations = self.iterations.load(Ordering::Relaxed);
        if B::OWNING {
            self.spare = Some(ctx.take_input(0)?);
        }
        self.body.run(ctx, &mut self.spare, iterations)?;
        if B::OWNING {
            ctx.publish(0, present(self.spare.take())?)?;
        }
        Ok(OpResult::Ok)
    }

    fn acquire_input<'c>(
        &mut self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |_| Ok::<_, TaskError>(self.spare.take()))
    }

    fn release_output(&mut self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        self.spare = Some(ctx.take_back(index)?);
        Ok(())
    }
}

/// What the loop knows to be there.
#[inline]
fn present<T>(value: Option<T>) -> TaskResult<T> {
    value.ok_or_else(|| TaskError::other("a region is missing"))
}

struct PublishRetract;

impl Body for PublishRetract {
    const OWNING: bool = true;

    fn new(_: &mut CreateCtx<'_>) -> TaskResult<Self> {
        Ok(Self)
    }

    fn run(
        &mut self,
        ctx: &mut SyncCtx<'_>,
        spare: &mut Option<Region>,
        iterations: u64,
    ) -> TaskResult<()> {
        let mut region = present(spare.take())?;
        for _ in 0..iterations {
            ctx.publish(0, region)?;
            let ctx = black_box(&mut *ctx);
            region = present(ctx.owned_output_storage(0)?.retract())?;
        }
        *spare = Some(region);
        Ok(())
    }
}

fn peer_option(iterations: u64) {
    let mut cell;
    let mut region = boxed();
    for _ in 0..iterations {
        cell = Some(region);
        region = black_box(&mut cell).take().expect("just put there");
    }
}

struct TypedGet;

impl Body for TypedGet {
    const OWNING: bool = false;

    fn new(_: &mut CreateCtx<'_>) -> TaskResult<Self> {
        Ok(Self)
    }

    fn run(
        &mut self,
        ctx: &mut SyncCtx<'_>,
        _: &mut Option<Region>,
        iterations: u64,
    ) -> TaskResult<()> {
        for _ in 0..iterations {
            let ctx = black_box(&mut *ctx);
            black_box(ctx.inputs.get::<f32>(0)?);
        }
        Ok(())
    }
}

fn peer_vectors(iterations: u64) {
    let mut slots = vec![vec![0_f32; FRAME]];
    for _ in 0..iterations {
        let slots = black_box(&mut slots);
        black_box(slots.first().expect("there is one").as_slice());
    }
}

// ---------------------------------------------------------------------------------------
// The slot ring

/// The ring of an owning task, which has both sides since it is all on one thread.
struct RingThroughCells {
    sides: Sides,
    ring: SlotRing,
}

impl Body for RingThroughCells {
    const OWNING: bool = true;

    fn new(ctx: &mut CreateCtx<'_>) -> TaskResult<Self> {
        let sides = Sides::new();
        let ring = new_ring(&sides, ctx)?;
        Ok(Self { sides, ring })
    }

    fn run(
        &mut self,
        ctx: &mut SyncCtx<'_>,
        _: &mut Option<Region>,
        iterations: u64,
    ) -> TaskResult<()> {
        let (producer, consumer) = self.sides.split();
        for _ in 0..iterations {
            // `acquire_input`
            let (ctx, ring) = black_box((&mut *ctx, &self.ring));
            let region = present(ring.acquire(producer)?)?;
            ctx.owned_input_storage(0)?.publish(region)?;

            // `try_push`
            let (ctx, ring) = black_box((ctx, ring));
            let region = ctx.take_input(0)?;
            ring.commit(producer, region)?;

            // `try_pop`
            let (ctx, ring) = black_box((ctx, ring));
            let region = present(ring.pop(consumer)?)?;
            ctx.publish(0, region)?;

            // `release_output`
            let (ctx, ring) = black_box((ctx, ring));
            let region = present(ctx.owned_output_storage(0)?.retract())?;
            ring.release(consumer, region)?;
        }
        Ok(())
    }
}

fn new_ring(sides: &Sides, ctx: &mut CreateCtx<'_>) -> TaskResult<SlotRing> {
    let layout = layout();
    let region = ctx
        .buffer(MemLoc::Host, present(layout.bytes())?)?
        .into_region();
    Ok(SlotRing::new(sides, layout, region)?)
}

fn bare_ring(sides: &Sides) -> SlotRing {
    let layout = layout();
    let bytes = layout.bytes().expect("a small ring");
    let buffer = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes);
    SlotRing::new(sides, layout, buffer.expect("a small buffer").into_region())
        .expect("the layout is a ring's")
}

fn pass_bare(ring: &SlotRing, sides: &mut Sides, iterations: u64) -> TaskResult<()> {
    let (producer, consumer) = sides.split();
    for _ in 0..iterations {
        let ring = black_box(ring);
        let region = present(ring.acquire(producer)?)?;
        let ring = black_box(ring);
        ring.commit(producer, region)?;
        let ring = black_box(ring);
        let region = present(ring.pop(consumer)?)?;
        let ring = black_box(ring);
        ring.release(consumer, region)?;
    }
    Ok(())
}

fn swap_ring(sides: &Sides) -> SwapRing<u64> {
    let bytes = frame().num_bytes();
    let regions = (0..ROWS + SwapRing::<u64>::SPARES).map(|_| {
        let buffer = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes);
        buffer.expect("a small buffer can be had").into_region()
    });
    SwapRing::new(sides, Overflow::DropOldest, regions).expect("they are regions of its own")
}

fn pass_swap(ring: &SwapRing<u64>, sides: &mut Sides, iterations: u64) -> TaskResult<()> {
    let (producer, consumer) = sides.split();
    for number in 0..iterations {
        let region = present(black_box(ring).acquire(producer)?)?;
        black_box(ring).commit(producer, region, number)?;
        let (region, _) = present(black_box(ring).pop(consumer)?)?;
        black_box(ring).release(consumer, region)?;
    }
    Ok(())
}

/// A delay of two rows.
fn delay_ring(sides: &Sides) -> DelayRing {
    let layout = DelayLayout::holding(ROWS, frame().num_bytes(), 1, 2).expect("it is small");
    let bytes = layout.bytes().expect("it is small");
    let buffer = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes);
    let region = buffer.expect("a small buffer can be had").into_region();
    DelayRing::new(sides, layout, region).expect("the region has the bytes of the layout")
}

fn pass_delayed(ring: &DelayRing, sides: &mut Sides, iterations: u64) -> TaskResult<()> {
    let (producer, consumer) = sides.split();
    for _ in 0..iterations {
        let region = present(black_box(ring).acquire(producer)?)?;
        black_box(ring).commit(producer, region)?;
        let pair = present(black_box(ring).pop(consumer)?)?;
        black_box(ring).release(consumer, DelayReader::Current, pair.current)?;
        black_box(ring).release(consumer, DelayReader::Delayed, pair.delayed)?;
    }
    Ok(())
}

fn boxed() -> Box<[f32]> {
    vec![0.0; FRAME].into()
}

/// Two queues of boxed buffers, free and filled ones.
fn peer_rtrb() -> impl FnMut(u64) {
    let (mut free, mut acquire) = rtrb::RingBuffer::new(ROWS);
    let (mut push, mut pop) = rtrb::RingBuffer::new(ROWS);
    for _ in 0..ROWS {
        free.push(boxed()).expect("room for all");
    }
    move |iterations| {
        for _ in 0..iterations {
            let buffer = black_box(&mut acquire).pop().expect("one is free");
            black_box(&mut push).push(buffer).expect("room for all");
            let buffer = black_box(&mut pop).pop().expect("one is filled");
            black_box(&mut free).push(buffer).expect("room for all");
        }
    }
}

/// As [`peer_rtrb`], with queues for several producers and consumers.
fn peer_array_queue() -> impl FnMut(u64) {
    let (free, filled) = (ArrayQueue::new(ROWS), ArrayQueue::new(ROWS));
    for _ in 0..ROWS {
        free.push(boxed()).expect("room for all");
    }
    move |iterations| {
        for _ in 0..iterations {
            let buffer = black_box(&free).pop().expect("one is free");
            black_box(&filled).push(buffer).expect("room for all");
            let buffer = black_box(&filled).pop().expect("one is filled");
            black_box(&free).push(buffer).expect("room for all");
        }
    }
}

/// An async task that passes frames on through a slot ring.
struct RingTask {
    ring: SlotRing,
}

struct RingFactory;

impl IAsyncTaskFactory for RingFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Passes frames on through a slot ring.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [frame] = request.exactly::<1>()?;
        Ok(InferResult::asynchronous([frame.clone()], [frame.clone()])
            .owning_inputs()
            .owning_outputs())
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(RingTask {
            ring: new_ring(ctx.sides(), ctx)?,
        }))
    }
}

impl IAsyncTask for RingTask {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| self.ring.acquire(side))
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let region = ctx.take_input(0)?;
        self.ring.commit(ctx.side, region)?;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let Some(region) = self.ring.pop(ctx.side)? else {
            return Ok(OpResult::NotReady);
        };
        ctx.publish(0, region)?;
        Ok(OpResult::Ok)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let region = ctx.take_back(index)?;
        self.ring.release(ctx.side, region)?;
        Ok(())
    }
}

fn pass_one(task: &mut TaskHarness) -> Result<(), HookError> {
    let push = task.producer();
    push.acquire(0)?;
    let _ = black_box(push.try_push()?);
    let pop = task.consumer();
    let _ = black_box(pop.try_pop()?);
    pop.release(0)
}
