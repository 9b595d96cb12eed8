//! What a pipeline costs that has next to nothing to do, and how soon it is there again.
//!
//! A camera in a thread of its own wakes the first of 4 sections, which pass its frames on
//! through queues.
//!
//! - `idle/cpu_ms`: processor time in 5 s with 10 frames a second, with the camera's.
//! - `idle/pickup_us`: from the camera's frame to the last section, the median.
//! - `idle/empty_percent`: processor time, of one core, in 2 s without a frame.
//! - `idle/blocked_percent`: the same with a source that is always ready, a full queue, and a
//!   sink that sleeps.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use holoflow_bench::stages::{Stage, chain, queue, registry, run, word};
use holoflow_bench::usage::cpu_ms;
use holoflow_bench::{Bench, median};
use holoflow_core::pipeline::Pipeline;
use holoflow_core::registry::Registry;
use holoflow_core::task::{
    AsyncPopCtx, CreateCtx, IAsyncTask, IAsyncTaskFactory, InferResult, OpResult, TaskInfo,
    TaskRequest, TaskResult,
};
use serde_json::Value;

const SECTIONS: usize = 4;
const PERIOD: Duration = Duration::from_millis(100);
const FRAMES: u32 = 50;
const PAUSE: Duration = Duration::from_secs(2);

fn main() {
    let mut bench = Bench::from_args();
    let camera = Camera::default();
    let pickups = Arc::new(Mutex::new(Vec::with_capacity(FRAMES as usize)));
    let mut registry = registry();
    let origin = Instant::now();
    let picked_up = Arc::clone(&pickups);
    let pick_up = Stage::sink(move |ctx| {
        let taken = Duration::from_nanos(ctx.inputs.get::<u64>(0)?[0]);
        let since = origin.elapsed().saturating_sub(taken);
        let mut pickups = picked_up.lock().expect("nobody panics with it");
        pickups.push(since.as_secs_f64() * 1e6);
        Ok(OpResult::Ok)
    });
    let doze = Stage::sink(|ctx| {
        if ctx.node.meta().sequence == 0 {
            thread::sleep(PAUSE);
        }
        Ok(OpResult::Ok)
    });
    registry
        .register_async("Camera", camera.clone())
        .expect("a new kind");
    registry
        .register_sync("PickUp", pick_up)
        .expect("a new kind");
    registry.register_sync("Doze", doze).expect("a new kind");

    if bench.selects("idle/cpu_ms") || bench.selects("idle/pickup_us") {
        let used = cpu_ms(|| {
            camera.watch(&registry, || {
                let start = Instant::now();
                for n in 1..=FRAMES {
                    let due = start + PERIOD * n;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    camera.take(origin.elapsed());
                }
            });
        });
        let pickups = pickups.lock().expect("nobody panics with it");
        assert_eq!(pickups.len(), FRAMES as usize);
        let figure = bench.figure("idle/cpu_ms").at_most(10.0);
        figure.measured("ms", used);
        let figure = bench.figure("idle/pickup_us").at_most(1000.0);
        figure.measured("us", median(&pickups));
    }
    let percent = |used: f64| 100.0 * used / (PAUSE.as_secs_f64() * 1e3);
    if bench.selects("idle/empty_percent") {
        let used = cpu_ms(|| camera.watch(&registry, || thread::sleep(PAUSE)));
        let figure = bench.figure("idle/empty_percent").at_most(5.0);
        figure.measured("%", percent(used));
    }
    if bench.selects("idle/blocked_percent") {
        let nodes = [("Words", Value::Null), queue(8), ("Doze", Value::Null)];
        let mut pipeline = chain(&registry, nodes);
        let used = cpu_ms(|| drop(run(&mut pipeline, 100)));
        let figure = bench.figure("idle/blocked_percent").at_most(5.0);
        figure.measured("%", percent(used));
    }
    bench.finish();
}

/// A camera, and the task that has its frames.
#[derive(Clone, Default)]
struct Camera(Arc<Mutex<Frames>>);

#[derive(Default)]
struct Frames {
    /// When the frame that waits was taken.
    waiting: Option<Duration>,
    off: bool,
    waker: Option<Waker>,
}

impl Camera {
    /// Runs a pipeline of this camera until `work` is done and all its frames have come.
    fn watch(&self, registry: &Registry, work: impl FnOnce()) {
        self.change(|frames| frames.off = false);
        let mut pipeline = self.pipeline(registry);
        pipeline.start().expect("it starts");
        work();
        self.change(|frames| frames.off = true);
        let report = pipeline.wait().unwrap_or_else(|error| panic!("{error}"));
        assert!(!report.has_losses(), "{report}");
    }

    fn pipeline(&self, registry: &Registry) -> Pipeline {
        let mut nodes = vec![("Camera", Value::Null), ("Pass", Value::Null)];
        for section in 2..=SECTIONS {
            let kind = if section == SECTIONS {
                "PickUp"
            } else {
                "Pass"
            };
            nodes.extend([queue(8), (kind, Value::Null)]);
        }
        let pipeline = chain(registry, nodes);
        assert_eq!(pipeline.plan().sections.len(), SECTIONS);
        pipeline
    }

    fn take(&self, now: Duration) {
        self.change(|frames| frames.waiting = Some(now));
    }

    fn change(&self, change: impl FnOnce(&mut Frames)) {
        let waker = {
            let mut frames = self.0.lock().expect("nobody panics with it");
            change(&mut frames);
            frames.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl IAsyncTask for Camera {
    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let mut frames = self.0.lock().expect("nobody panics with it");
        match frames.waiting.take() {
            Some(taken) => {
                ctx.outputs.get_mut::<u64>(0)?[0] = taken.as_nanos() as u64;
                Ok(OpResult::Ok)
            }
            None if frames.off => Ok(OpResult::Eof),
            None => {
                frames.waker = Some(ctx.waker());
                Ok(OpResult::NotReady)
            }
        }
    }
}

impl IAsyncTaskFactory for Camera {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Frames of a camera.")
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(InferResult::asynchronous([], [word()]))
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(self.clone()))
    }
}
