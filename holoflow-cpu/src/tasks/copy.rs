//! Copies frames, from storage that one node wants to storage that another wants.

use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, SyncCtx, TaskError, TaskInfo,
    TaskRequest, TaskResult,
};

use super::no_settings::NoSettings;

/// Makes copies, kind `Copy`.
///
/// One input, contiguous and in host memory; one output of the same shape and element type,
/// normalised to offset 0. Its bytes count as copied in the run's report. No settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyFactory;

struct CopyFrame;

impl ISyncTask for CopyFrame {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        let (from, to) = (ctx.inputs.bytes(0)?, ctx.outputs.bytes_mut(0)?);
        ctx.node.copy(to, from)?;
        Ok(OpResult::Ok)
    }
}

impl ISyncTaskFactory for CopyFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Copies each frame.").with_settings::<NoSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let NoSettings {} = request.settings()?;
        let [input] = request.exactly::<1>()?;
        if !input.location().is_host() || !input.is_contiguous() {
            let expected = "a contiguous tensor in host memory";
            return Err(TaskError::input(0, input, expected));
        }
        Ok(InferResult::sync([input.clone()], [input.normalized()]))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(CopyFrame))
    }
}
