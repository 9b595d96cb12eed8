//! A sink that drops what it gets: it ends a branch, and leaves the rest to be measured.

use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, SyncCtx, TaskInfo, TaskRequest,
    TaskResult,
};

use super::no_settings::NoSettings;

/// Makes sinks that drop what they get, kind `NullSink`.
///
/// One input or more, of any layout and in any memory: no byte is read. No settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSinkFactory;

struct NullSink;

impl ISyncTask for NullSink {
    fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::Ok)
    }
}

impl ISyncTaskFactory for NullSinkFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Drops what it gets from any number of inputs.").with_settings::<NoSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let NoSettings {} = request.settings()?;
        request.input(0)?;
        Ok(InferResult::sync(request.inputs().iter().cloned(), []))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(NullSink))
    }
}
