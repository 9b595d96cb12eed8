//! Slices of a tensor's bytes that would live beside a mutable one, or past their hook.
//!
//! Each attack stands below the same program without the attack, which compiles: so what
//! is refused is the attack and nothing else.
//!
//! # An input kept past `execute`
//!
//! The slice borrows from the context, and the context from the call.
//!
//! ```
//! # use holoflow::prelude::*;
//! struct Keeper {
//!     kept: Option<&'static [f32]>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let x = ctx.inputs.get::<f32>(0)?;
//!         self.kept = x.is_empty().then_some(&[]);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use holoflow::prelude::*;
//! struct Keeper {
//!     kept: Option<&'static [f32]>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let x = ctx.inputs.get::<f32>(0)?;
//!         self.kept.replace(x);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! # An input returned to whoever wants it for longer
//!
//! A function cannot give the slice a longer life than the context has.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn read<'c>(ctx: &'c mut SyncCtx<'_>) -> TaskResult<&'c [u8]> {
//!     Ok(ctx.inputs.get::<u8>(0)?)
//! }
//! ```
//!
//! ```compile_fail
//! # use holoflow::prelude::*;
//! fn read(ctx: &mut SyncCtx<'_>) -> TaskResult<&'static [u8]> {
//!     Ok(ctx.inputs.get::<u8>(0)?)
//! }
//! ```
//!
//! # An overwritten input read through the region of its view
//!
//! From the view to the cell, from the cell to the region, from there to the bytes: the last
//! steps are not open, since none of them knows that the node overwrites this input.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let view = ctx.inputs.view(0)?;
//!     let seen = view.storage().is_published();
//!     assert!(seen);
//!     ctx.outputs.get_mut::<u8>(0)?.fill(1);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0624
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let view = ctx.inputs.view(0)?;
//!     let seen = view.storage().region();
//!     let read = seen.map(|region| region.as_bytes());
//!     ctx.outputs.get_mut::<u8>(0)?.fill(1);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Two mutable slices of one output
//!
//! The second would write what the first is writing.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     ctx.outputs.get_mut::<u8>(0)?.fill(1);
//!     let second = ctx.outputs.get_mut::<u8>(0)?;
//!     second[0] = 2;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let first = ctx.outputs.get_mut::<u8>(0)?;
//!     let second = ctx.outputs.get_mut::<u8>(0)?;
//!     first[0] = 1;
//!     second[0] = 2;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Two outputs written through two borrows
//!
//! Two outputs at once come from one call, `get_pair_mut`, which sees that they differ.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let (a, b) = ctx.outputs.get_pair_mut::<u8, u8>(0, 1)?;
//!     a[0] = b[0];
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let a = ctx.outputs.get_mut::<u8>(0)?;
//!     let b = ctx.outputs.get_mut::<u8>(1)?;
//!     a[0] = b[0];
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A pair of outputs beside a third borrow
//!
//! The pair holds all outputs for as long as it lives.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let (a, b) = ctx.outputs.get_pair_mut::<u8, u8>(0, 1)?;
//!     a[0] = b[0];
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let (a, b) = ctx.outputs.get_pair_mut::<u8, u8>(0, 1)?;
//!     let c = ctx.outputs.bytes_mut(2)?;
//!     a[0] = b[0];
//!     c[0] = 1;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # The view of an output beside its mutable slice
//!
//! A view leads to the cell; it may not outlive the next write.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let view = ctx.outputs.view(0)?;
//!     let address = view.address();
//!     let y = ctx.outputs.get_mut::<u8>(0)?;
//!     y[0] = u8::from(address.is_some());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0502
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let view = ctx.outputs.view(0)?;
//!     let y = ctx.outputs.get_mut::<u8>(0)?;
//!     let address = view.address();
//!     y[0] = u8::from(address.is_some());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # An input slice alive while its cell is retracted
//!
//! To reach a cell takes the whole context, so no slice of any cell lives.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn try_push(ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     let first = x[0];
//!     let region = ctx.take_input(0)?;
//!     assert_eq!(region.as_bytes()?[0], first);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0502
//! # use holoflow::prelude::*;
//! fn try_push(ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     let region = ctx.take_input(0)?;
//!     let first = x[0];
//!     assert_eq!(region.as_bytes()?[0], first);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # An output slice alive while another output is published
//!
//! As above, on the other side.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, region: Region) -> TaskResult<OpResult> {
//!     let y = ctx.outputs.get_mut::<u8>(0)?;
//!     y[0] = 1;
//!     ctx.publish(1, region)?;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, region: Region) -> TaskResult<OpResult> {
//!     let y = ctx.outputs.get_mut::<u8>(0)?;
//!     ctx.publish(1, region)?;
//!     y[0] = 1;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # An input slice alive while a sync task publishes
//!
//! As above, where inputs and outputs are in one context.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     let first = x[0];
//!     let region = ctx.take_input(1)?;
//!     ctx.publish(0, region)?;
//!     assert_eq!(first, 0);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0502
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     let region = ctx.take_input(1)?;
//!     ctx.publish(0, region)?;
//!     let first = x[0];
//!     assert_eq!(first, 0);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Writing through an input
//!
//! Inputs are read.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     assert_eq!(x[0], 1);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0594
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     x[0] = 1;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Workspace taken twice
//!
//! The workspace is one region.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     ctx.node.temp::<u8>(4)?.fill(1);
//!     let second = ctx.node.temp::<u8>(4)?;
//!     second[0] = 2;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let first = ctx.node.temp::<u8>(4)?;
//!     let second = ctx.node.temp::<u8>(4)?;
//!     first[0] = 1;
//!     second[0] = 2;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Workspace kept past `execute`
//!
//! It belongs to the node, and may be made anew in the next call.
//!
//! ```
//! # use holoflow::prelude::*;
//! struct Keeper {
//!     kept: Option<&'static mut [u8]>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let temp = ctx.node.temp::<u8>(4)?;
//!         self.kept = temp.is_empty().then_some(&mut []);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use holoflow::prelude::*;
//! struct Keeper {
//!     kept: Option<&'static mut [u8]>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let temp = ctx.node.temp::<u8>(4)?;
//!         self.kept.replace(temp);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! # Elements of a type that not every byte is a value of
//!
//! `Element` is sealed, and `bool`, `char` and references are none.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     assert_eq!(x.len(), 4);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<bool>(0)?;
//!     assert_eq!(x.len(), 4);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # The slice of a test kept past the next hook
//!
//! The harness lends its sections' bytes like a pipeline does.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) -> Result<(), Box<dyn std::error::Error>> {
//!     let side = task.producer();
//!     let x = side.input_mut::<u8>(0)?;
//!     x[0] = 1;
//!     assert_eq!(side.try_push()?, OpResult::Ok);
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) -> Result<(), Box<dyn std::error::Error>> {
//!     let side = task.producer();
//!     let x = side.input_mut::<u8>(0)?;
//!     assert_eq!(side.try_push()?, OpResult::Ok);
//!     x[0] = 1;
//!     Ok(())
//! }
//! ```
//!
//! # An output of a test read after its release
//!
//! As above.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) -> Result<(), Box<dyn std::error::Error>> {
//!     let side = task.consumer();
//!     let y = side.output::<u8>(0)?;
//!     assert_eq!(y[0], 1);
//!     side.release(0)?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) -> Result<(), Box<dyn std::error::Error>> {
//!     let side = task.consumer();
//!     let y = side.output::<u8>(0)?;
//!     side.release(0)?;
//!     assert_eq!(y[0], 1);
//!     Ok(())
//! }
//! ```
