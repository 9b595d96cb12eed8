//! The smallest sinks: one that folds all it gets into a number, and one that drops it.

use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, RunCtx, SyncCtx, TaskError,
    TaskInfo, TaskRequest, TaskResult,
};

/// Makes checksums, kind `Checksum`.
///
/// One input, contiguous and in host memory, of any element type. The CRC-32 (IEEE 802.3, as
/// in zlib) of all bytes of a run in order, and the number of frames, are in the report of the
/// run as `checksum` (eight hexadecimal digits) and `frames`. No settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChecksumFactory;

/// Makes sinks that drop what they get, kind `NullSink`.
///
/// Any number of inputs above 0, in any memory. No settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSinkFactory;

#[derive(Default)]
struct Checksum {
    crc: crc32fast::Hasher,
    frames: u64,
}

impl ISyncTask for Checksum {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        self.crc.update(ctx.inputs.bytes(0)?);
        self.frames += 1;
        Ok(OpResult::Ok)
    }

    fn run_started(&mut self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        *self = Self::default();
        Ok(())
    }

    fn run_ended(&mut self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        let checksum = self.crc.clone().finalize();
        ctx.report("checksum", format!("{checksum:08x}"));
        ctx.report("frames", self.frames);
        Ok(())
    }
}

struct NullSink;

impl ISyncTask for NullSink {
    fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::Ok)
    }
}

impl ISyncTaskFactory for ChecksumFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new(
            "Puts the CRC-32 of all that it gets, and how many frames it was, in the report.",
        )
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [input] = request.exactly::<1>()?;
        if !input.location().is_host() || !input.is_contiguous() {
            return Err(TaskError::input(
                0,
                input,
                "a contiguous tensor in host memory",
            ));
        }
        Ok(InferResult::sync([input.clone()], []))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::<Checksum>::default())
    }
}

impl ISyncTaskFactory for NullSinkFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Drops all that it gets.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        request.input(0)?;
        Ok(InferResult::sync(request.inputs().to_vec(), []))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(NullSink))
    }
}
