//! The task of the copies that the compiler inserts in host memory.
//!
//! The output has the layout of the input, so the copy is one of its byte span.

use crate::task::{ISyncTask, OpResult, SyncCtx, TaskResult};

/// Copies input 0 to output 0.
pub(super) struct InsertedCopy;

impl ISyncTask for InsertedCopy {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        let from = ctx.inputs.bytes(0)?;
        let to = ctx.outputs.bytes_mut(0)?;
        ctx.node.copy(to, from)?;
        Ok(OpResult::Ok)
    }
}
