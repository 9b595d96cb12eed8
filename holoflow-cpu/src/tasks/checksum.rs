//! A sink that folds all that it gets into one number: the smallest proof that every byte came
//! through, once and in order.

use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, RunCtx, SyncCtx, TaskError,
    TaskInfo, TaskRequest, TaskResult,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of a checksum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ChecksumSettings {
    /// The checksum that there should be at the end of a run, as eight hexadecimal digits. A
    /// run that ends with another one fails, unless it was cancelled.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{8}$"))]
    pub expect: Option<String>,
}

impl ChecksumSettings {
    /// A run fails if the checksum is not this one.
    #[must_use]
    pub fn expecting(checksum: u32) -> Self {
        Self {
            expect: Some(format!("{checksum:08x}")),
        }
    }

    fn expected(&self) -> TaskResult<Option<u32>> {
        let Some(text) = &self.expect else {
            return Ok(None);
        };
        // What the standard library reads may have a sign.
        let is_hex = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u32::from_str_radix(text, 16) {
            Ok(checksum) if is_hex => Ok(Some(checksum)),
            _ => {
                let expected = "eight hexadecimal digits";
                Err(TaskError::settings("expect", format!("{text:?}"), expected))
            }
        }
    }
}

/// Makes checksums, kind `Checksum`.
///
/// One input, contiguous and in host memory, of any element type. The CRC-32 of all bytes of a
/// run in order (that of IEEE 802.3, as in zlib and PNG) and the number of frames are results
/// in the run's report: `checksum`, as eight hexadecimal digits, and `frames`. Settings:
/// [`ChecksumSettings`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ChecksumFactory;

struct Checksum {
    expected: Option<u32>,
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
        self.crc.reset();
        self.frames = 0;
        Ok(())
    }

    fn run_ended(&mut self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        let (found, frames) = (self.crc.clone().finalize(), self.frames);
        ctx.report("checksum", format!("{found:08x}"));
        ctx.report("frames", frames);
        match self.expected {
            // Who cancels does not expect all frames.
            Some(expected) if expected != found && !ctx.is_cancelled() => {
                Err(TaskError::other(format!(
                    "the checksum of {frames} frames: found {found:08x}, expected {expected:08x}"
                )))
            }
            _ => Ok(()),
        }
    }
}

impl ISyncTaskFactory for ChecksumFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Reports the CRC-32 of all that it gets, and the number of frames.")
            .with_settings::<ChecksumSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        request.settings::<ChecksumSettings>()?.expected()?;
        let [input] = request.exactly::<1>()?;
        if !input.location().is_host() || !input.is_contiguous() {
            let expected = "a contiguous tensor in host memory";
            return Err(TaskError::input(0, input, expected));
        }
        Ok(InferResult::sync([input.clone()], []))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(Checksum {
            expected: request.settings::<ChecksumSettings>()?.expected()?,
            crc: crc32fast::Hasher::new(),
            frames: 0,
        }))
    }
}
