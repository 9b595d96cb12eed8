//! A source that is driven from outside: a camera whose thread takes a picture when it likes,
//! and does not wait for anybody.
//!
//! Its pictures go through a few buffers of the task's own. The thread writes into a free one;
//! where there is none, into the oldest that nobody has fetched, which is so dropped and counted.
//! Then it wakes the section that fetches. The buffer itself goes downstream: nothing is copied.
//!
//! ```text
//! cargo run --example camera_callback
//! ```

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};

use holoflow::graph::GraphBuilder;
use holoflow::prelude::*;
use holoflow::registry::Registry;
use holoflow::scheduler::Outcome;
use holoflow::storage::{ConsumerCell, Region};
use holoflow::task::RunCtx;
use serde_json::json;

const PIXELS: usize = 640 * 480;
/// One with the camera, one downstream, and two between.
const BUFFERS: usize = 4;

/// What the camera's thread and the task share.
#[derive(Default)]
struct Buffers {
    free: Vec<Region>,
    filled: VecDeque<Region>,
    taken: u64,
    dropped: u64,
    is_off: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Buffers>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The camera's thread. A real camera would call back at its own rate.
    fn take_pictures(&self) {
        for number in 0_u64.. {
            let buffer = {
                let mut buffers = self.lock();
                if buffers.is_off {
                    return;
                }
                buffers.free.pop().or_else(|| {
                    let oldest = buffers.filled.pop_front();
                    buffers.dropped += u64::from(oldest.is_some());
                    oldest
                })
            };
            let Some(mut buffer) = buffer else { continue };
            // The buffers are as large as a picture, and nobody else has this one.
            if let Ok(pixels) = buffer.as_mut_bytes() {
                pixels.fill(number as u8);
            }
            let waker = {
                let mut buffers = self.lock();
                buffers.taken += 1;
                buffers.filled.push_back(buffer);
                buffers.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

struct Camera {
    shared: Shared,
    thread: ConsumerCell<Option<JoinHandle<()>>>,
}

impl IAsyncTask for Camera {
    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.shared.lock().is_off = false;
        let shared = self.shared.clone();
        *self.thread.open(ctx.consumer)? = Some(thread::spawn(move || shared.take_pictures()));
        Ok(())
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let mut buffers = self.shared.lock();
        ctx.node.dropped(std::mem::take(&mut buffers.dropped));
        let Some(picture) = buffers.filled.pop_front() else {
            buffers.waker = Some(ctx.waker());
            return Ok(OpResult::NotReady);
        };
        ctx.publish(0, picture)?;
        Ok(OpResult::Ok)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let picture = ctx.take_back(index)?;
        self.shared.lock().free.push(picture);
        Ok(())
    }

    fn run_ended(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.shared.lock().is_off = true;
        if let Some(thread) = self.thread.open(ctx.consumer)?.take() {
            thread
                .join()
                .map_err(|_| TaskError::other("the camera's thread panicked"))?;
        }
        let mut buffers = self.shared.lock();
        ctx.report("taken", std::mem::take(&mut buffers.taken));
        // Those that were dropped since the last look, and those that nobody fetched.
        ctx.report("dropped_at_end", std::mem::take(&mut buffers.dropped));
        ctx.report("not_fetched", buffers.filled.len());
        while let Some(picture) = buffers.filled.pop_front() {
            buffers.free.push(picture);
        }
        Ok(())
    }
}

struct CameraFactory;

impl IAsyncTaskFactory for CameraFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Pictures of a camera, the newest where it is faster than the pipeline.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [] = request.exactly::<0>()?;
        let picture = TDesc::host::<u8>([480, 640])?;
        Ok(InferResult::asynchronous([], [picture]).owning_outputs())
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let shared = Shared::default();
        for _ in 0..BUFFERS {
            let buffer = ctx.buffer(MemLoc::Host, PIXELS)?.into_region();
            shared.lock().free.push(buffer);
        }
        let thread = ctx.consumer_cell(None);
        Ok(Box::new(Camera { shared, thread }))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = GraphBuilder::new();
    let camera = graph.node("camera", "Camera", ());
    let mut seen = 0_u64;
    let display = graph.sync_fn(
        "display",
        |request| Ok(InferResult::sync([request.input(0)?.clone()], [])),
        move |ctx| {
            let picture = ctx.inputs.get::<u8>(0)?;
            // Each picture is whole: the camera does not write into one that is shown.
            if picture.iter().any(|pixel| *pixel != picture[0]) {
                return Err(TaskError::other("half of one picture, half of another"));
            }
            seen += 1;
            if seen == 100 {
                ctx.emit(json!("seen enough"));
            }
            Ok(OpResult::Ok)
        },
    );
    graph.connect(camera, display);
    let mut registry = Registry::new();
    registry.register_async("Camera", CameraFactory)?;
    let mut pipeline = Pipeline::build(&graph.finish()?, &registry)?;

    pipeline.start()?;
    while pipeline.receive().is_none() {
        thread::yield_now(); // a program would do something else meanwhile
    }
    pipeline.finish();
    let report = pipeline.wait()?;
    println!("{report}");

    assert_eq!(report.outcome, Outcome::Finished);
    let camera = report.node("camera").ok_or("it is in the report")?;
    let result = |key: &str| camera.results[key].as_u64().unwrap_or_default();
    let (late, left) = (result("dropped_at_end"), result("not_fetched"));
    assert!(camera.delivered >= 100);
    assert_eq!(camera.copied_bytes, 0);
    // Every picture was delivered, dropped, or is said to be left.
    assert_eq!(
        result("taken"),
        camera.delivered + camera.dropped + late + left
    );
    Ok(())
}
