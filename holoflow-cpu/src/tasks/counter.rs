//! A source of numbers: the smallest there is, to try a pipeline with.

use half::{bf16, f16};
use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, RunCtx, SyncCtx, TaskError,
    TaskInfo, TaskRequest, TaskResult,
};
use holoflow_core::tensor::{DType, Element, MemLoc, TDesc};
use num_complex::Complex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of a counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CounterSettings {
    /// How many frames there are; endless if it is not given.
    pub count: Option<u64>,
    /// Shape of a frame.
    pub shape: Vec<usize>,
    /// Element type.
    pub dtype: DType,
    /// Value of the first frame.
    pub start: u64,
}

impl Default for CounterSettings {
    fn default() -> Self {
        Self {
            count: None,
            shape: vec![1],
            dtype: DType::U64,
            start: 0,
        }
    }
}

impl CounterSettings {
    /// `count` frames of one `U64` each.
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self {
            count: Some(count),
            ..Self::default()
        }
    }

    /// The same in another shape.
    #[must_use]
    pub fn with_shape(mut self, shape: impl Into<Vec<usize>>) -> Self {
        self.shape = shape.into();
        self
    }

    /// The same with another element type.
    #[must_use]
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// The same with another value of the first frame.
    #[must_use]
    pub fn with_start(mut self, start: u64) -> Self {
        self.start = start;
        self
    }

    fn frame(&self) -> TaskResult<TDesc> {
        TDesc::new(&self.shape, self.dtype, MemLoc::Host).map_err(|error| {
            let expected = format!("a shape that fits into memory: {error}");
            TaskError::settings("shape", format!("{:?}", self.shape), expected)
        })
    }
}

/// Makes counters, kind `Counter`.
///
/// No input, one output in host memory. In frame `n` of a run, from 0, every element is
/// `start + n`. Of a number that is too big an integer type has the low bits, `Bool` the lowest
/// one, so that it alternates; a floating-point type has the nearest number, and a complex one
/// that as its real part. Settings: [`CounterSettings`].
#[derive(Debug, Clone, Copy, Default)]
pub struct CounterFactory;

struct Counter {
    settings: CounterSettings,
    made: u64,
}

impl ISyncTask for Counter {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        if self.settings.count.is_some_and(|count| self.made >= count) {
            return Ok(OpResult::Eof);
        }
        write(
            ctx,
            self.settings.dtype,
            self.settings.start.wrapping_add(self.made),
        )?;
        self.made += 1;
        Ok(OpResult::Ok)
    }

    fn run_started(&mut self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        self.made = 0;
        Ok(())
    }
}

/// Writes `value`, as an element of type `dtype`, to all of output 0.
fn write(ctx: &mut SyncCtx<'_>, dtype: DType, value: u64) -> TaskResult<()> {
    match dtype {
        DType::Bool => fill(ctx, (value & 1) as u8),
        DType::U8 => fill(ctx, value as u8),
        DType::I8 => fill(ctx, value as i8),
        DType::U16 => fill(ctx, value as u16),
        DType::I16 => fill(ctx, value as i16),
        DType::U32 => fill(ctx, value as u32),
        DType::I32 => fill(ctx, value as i32),
        DType::U64 => fill(ctx, value),
        DType::I64 => fill(ctx, value as i64),
        DType::F16 => fill(ctx, f16::from_f64(value as f64)),
        DType::BF16 => fill(ctx, bf16::from_f64(value as f64)),
        DType::F32 => fill(ctx, value as f32),
        DType::F64 => fill(ctx, value as f64),
        DType::CF32 => fill(ctx, Complex::new(value as f32, 0.0)),
        DType::CF64 => fill(ctx, Complex::new(value as f64, 0.0)),
        _ => Err(TaskError::settings(
            "dtype",
            dtype,
            "a type it can count in",
        )),
    }
}

fn fill<T: Element>(ctx: &mut SyncCtx<'_>, value: T) -> TaskResult<()> {
    ctx.outputs.get_mut::<T>(0)?.fill(value);
    Ok(())
}

impl ISyncTaskFactory for CounterFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("A source of numbers: every element of a frame is the frame's number.")
            .with_settings::<CounterSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [] = request.exactly::<0>()?;
        let frame = request.settings::<CounterSettings>()?.frame()?;
        Ok(InferResult::sync([], [frame]))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        let settings = request.settings()?;
        Ok(Box::new(Counter { settings, made: 0 }))
    }
}
