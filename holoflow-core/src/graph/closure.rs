//! One-off sync tasks from closures.
//!
//! A closure becomes the one task that its factory makes. It cannot be copied, so it lives
//! in one place at a time: with the factory, or in the task, which gives it back when it is
//! dropped. So a graph can be compiled again after an attempt that failed, and the closure
//! keeps its state; two tasks of one closure there never are.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **CL1** A closure is in one task at most. A second `create` is an error.
//! - **CL2** A closure that panicked is not given back: what it left half done stays unseen.

use std::any::Any;
use std::marker::PhantomData;

use crate::sync::{Arc, Mutex};
use crate::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, SyncCtx, TaskError, TaskInfo,
    TaskRequest, TaskResult,
};
use crate::tensor::{Element, TDesc};

/// Kinds of tasks made of closures begin with this; the rest is the node's name.
pub const CLOSURE_PREFIX: &str = "closure:";

/// A second task was asked of a closure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the closure of node `{node}` is in another task, or has panicked: a closure makes one \
     task at a time"
)]
#[non_exhaustive]
pub struct ClosureInUse {
    /// The node that asked.
    pub node: String,
}

/// What a closure is given and what it answers.
pub(super) trait Execute: Send + 'static {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult>;
}

impl<F> Execute for F
where
    F: FnMut(&mut SyncCtx<'_>) -> TaskResult<OpResult> + Send + 'static,
{
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        self(ctx)
    }
}

/// A closure over the elements of one input and one output.
pub(super) struct Map<X, Y, F> {
    closure: F,
    elements: PhantomData<fn(X) -> Y>,
}

impl<X, Y, F> Map<X, Y, F> {
    pub(super) fn new(closure: F) -> Self {
        Self {
            closure,
            elements: PhantomData,
        }
    }
}

impl<X: Element, Y: Element, F: FnMut(&[X], &mut [Y]) + Send + 'static> Execute for Map<X, Y, F> {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        let x = ctx.inputs.get::<X>(0)?;
        let y = ctx.outputs.get_mut::<Y>(0)?;
        (self.closure)(x, y);
        Ok(OpResult::Ok)
    }
}

/// One input of `X` on the host in row-major order, one output of `Y` of the same shape.
pub(super) fn infer_map<X: Element, Y: Element>(
    request: &TaskRequest<'_>,
) -> TaskResult<InferResult> {
    let [input] = request.exactly::<1>()?;
    if input.dtype().viewed_as() != X::DTYPE {
        return Err(TaskError::input(0, input.dtype(), X::DTYPE));
    }
    if !input.location().is_host() {
        return Err(TaskError::input(0, input.location(), "host memory"));
    }
    let output = TDesc::new(input.shape(), Y::DTYPE, input.location())?;
    Ok(InferResult::sync([input.normalized()], [output]))
}

/// Makes the one task of a closure.
pub(super) struct ClosureFactory<I, E> {
    node: String,
    infer: I,
    home: Home<E>,
}

/// Where the closure is while it is in no task.
type Home<E> = Arc<Mutex<Option<E>>>;

impl<I, E> ClosureFactory<I, E> {
    pub(super) fn new(node: &str, infer: I, closure: E) -> Self {
        Self {
            node: node.to_owned(),
            infer,
            home: Arc::new(Mutex::new(Some(closure))),
        }
    }
}

impl<I, E> ISyncTaskFactory for ClosureFactory<I, E>
where
    I: Fn(&TaskRequest<'_>) -> TaskResult<InferResult> + Send + Sync + 'static,
    E: Execute,
{
    fn describe(&self) -> TaskInfo {
        TaskInfo::new(format!("The closure of node `{}`.", self.node))
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        (self.infer)(request)
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        let Some(closure) = self.home.lock().take() else {
            let node = request.node().to_owned();
            return Err(TaskError::other(ClosureInUse { node }));
        };
        Ok(Box::new(ClosureTask {
            closure: Some(closure),
            running: false,
            home: Arc::clone(&self.home),
        }))
    }

    /// Keeps the task if it is of this very closure. Another closure of the same node may
    /// have other values in it.
    fn update(
        &self,
        old: Box<dyn ISyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        let old: Box<dyn Any> = old;
        match old.downcast::<ClosureTask<E>>() {
            Ok(task) if Arc::ptr_eq(&task.home, &self.home) && !task.running => Ok(task),
            other => {
                drop(other);
                self.create(request, ctx)
            }
        }
    }
}

struct ClosureTask<E> {
    /// `None` only while it is dropped.
    closure: Option<E>,
    /// Set while the closure runs, and for good once it panicked.
    running: bool,
    home: Home<E>,
}

impl<E: Execute> ISyncTask for ClosureTask<E> {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        self.running = true;
        let closure = self.closure.as_mut().expect("only drop takes it");
        let result = closure.execute(ctx);
        self.running = false;
        result
    }
}

impl<E> Drop for ClosureTask<E> {
    fn drop(&mut self) {
        if !self.running {
            *self.home.lock() = self.closure.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use serde_json::{Value, json};

    use super::*;
    use crate::memory::Memory;
    use crate::storage::Sides;
    use crate::tensor::{DType, MemLoc};
    use crate::testkit::TaskHarness;

    fn double() -> impl ISyncTaskFactory {
        let map = Map::new(|x: &[f32], y: &mut [f32]| {
            assert!(x[0] >= 0.0, "negative");
            y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        });
        ClosureFactory::new("double", infer_map::<f32, f32>, map)
    }

    fn frame() -> TDesc {
        TDesc::host::<f32>([2]).unwrap()
    }

    #[test]
    fn a_map_closure_runs_as_a_task() {
        let mut task = TaskHarness::sync(&double(), Value::Null, [frame()]).unwrap();
        let result = task.run::<f32, f32>(&[1.0, 2.0]).unwrap();
        assert_eq!(result, Some(vec![2.0, 4.0]));
    }

    #[test]
    fn a_map_closure_takes_only_inputs_that_it_can_read() {
        let infer = |desc: TDesc| {
            let inputs = [desc];
            infer_map::<f32, u8>(&TaskRequest::new("x", &Value::Null, &inputs))
        };
        let strided =
            TDesc::with_layout([2, 2], DType::F32, MemLoc::HostPinned, [16, 8], 4).unwrap();
        let result = infer(strided.clone()).unwrap();
        assert_eq!(result.input_descs, [strided.normalized()]);
        assert_eq!(result.output_descs[0].to_string(), "U8[2,2]@HostPinned");
        let error = infer(TDesc::host::<u16>([2]).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "input 0: found U16, expected F32");
        let device = TDesc::new([2], DType::F32, MemLoc::Device(0)).unwrap();
        let error = infer(device).unwrap_err();
        assert_eq!(
            error.to_string(),
            "input 0: found Device, expected host memory"
        );
        let none = infer_map::<f32, u8>(&TaskRequest::new("x", &Value::Null, &[]));
        assert_eq!(none.unwrap_err().to_string(), "found 0 inputs, expected 1");
        let flags = [TDesc::new([2], DType::Bool, MemLoc::Host).unwrap()];
        assert!(infer_map::<u8, u8>(&TaskRequest::new("x", &Value::Null, &flags)).is_ok());
    }

    #[test]
    fn cl1_a_closure_makes_one_task_at_a_time() {
        let factory = double();
        let first = TaskHarness::sync(&factory, Value::Null, [frame()]).unwrap();
        let second = TaskHarness::sync(&factory, Value::Null, [frame()]).unwrap_err();
        let message = format!("{second:#}");
        assert!(
            message.ends_with(
                "the closure of node `task` is in another task, or has panicked: a closure \
                 makes one task at a time"
            ),
            "{message}"
        );
        drop(first);
        assert!(TaskHarness::sync(&factory, Value::Null, [frame()]).is_ok());
    }

    #[test]
    fn cl2_a_closure_that_panicked_is_not_given_back() {
        let factory = double();
        let mut task = TaskHarness::sync(&factory, Value::Null, [frame()]).unwrap();
        let failed = catch_unwind(AssertUnwindSafe(|| task.run::<f32, f32>(&[-1.0, 0.0])));
        assert!(!matches!(failed, Ok(Ok(_))));
        drop(task);
        assert!(TaskHarness::sync(&factory, Value::Null, [frame()]).is_err());
    }

    #[test]
    fn an_update_keeps_the_task_of_the_same_closure_only() {
        let counter = |mut count: u32| {
            let infer = |_: &TaskRequest<'_>| Ok(InferResult::sync([], []));
            let closure = move |ctx: &mut SyncCtx<'_>| {
                count += 1;
                ctx.node.meta_mut().sequence = count.into();
                Ok(OpResult::Ok)
            };
            ClosureFactory::new("count", infer, closure)
        };
        let (first, second) = (counter(0), counter(100));
        let (memory, sides) = (Memory::host(), Sides::new());
        let mut ctx = CreateCtx::new("count", &memory, &sides, None, None);
        let settings = json!({});
        let request = TaskRequest::new("count", &settings, &[]);
        let task = first.create(&request, &mut ctx).unwrap();
        let address = std::ptr::from_ref(&*task).addr();
        let task = first.update(task, &request, &mut ctx).unwrap();
        assert_eq!(std::ptr::from_ref(&*task).addr(), address);
        // The other closure is of the same type, and has another count.
        let task = second.update(task, &request, &mut ctx).unwrap();
        assert!(first.create(&request, &mut ctx).is_ok());
        assert!(second.create(&request, &mut ctx).is_err());
        drop(task);
        assert!(second.create(&request, &mut ctx).is_ok());
    }
}
