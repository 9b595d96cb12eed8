//! Cells, views and contexts that would be kept, copied, made up or held twice.
//!
//! Each attack stands below the same program without the attack, which compiles.
//!
//! # A view kept past its hook
//!
//! A view reads the cell, and the cell changes in the next hook.
//!
//! ```
//! # use holoflow::prelude::*;
//! struct Keeper {
//!     kept: Option<TView<'static>>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let view = ctx.inputs.view(0)?;
//!         self.kept = view.address().and(None);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use holoflow::prelude::*;
//! struct Keeper {
//!     kept: Option<TView<'static>>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let view = ctx.inputs.view(0)?;
//!         self.kept.replace(view);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! # A cell kept past its hook
//!
//! The cell belongs to the section.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! struct Keeper {
//!     kept: Option<&'static mut Storage>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let cell = ctx.owned_output_storage(0)?;
//!         self.kept = cell.view().address().and(None);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! struct Keeper {
//!     kept: Option<&'static mut Storage>,
//! }
//!
//! impl ISyncTask for Keeper {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         let cell = ctx.owned_output_storage(0)?;
//!         self.kept.replace(cell);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! # A context kept past its hook
//!
//! A context lives for one call.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn keep(_: &'static mut SyncCtx<'static>) {}
//!
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     assert!(ctx.inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use holoflow::prelude::*;
//! fn keep(_: &'static mut SyncCtx<'static>) {}
//!
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     keep(ctx);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A view returned after its region was taken back
//!
//! The view that `acquire_input` returns holds the context, so nothing follows it.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn acquire<'c>(index: usize, ctx: &'c mut AcquireCtx<'_>) -> TaskResult<Option<TView<'c>>> {
//!     drop(ctx.take_back(index)?);
//!     let view = ctx.view(index)?;
//!     Ok(Some(view))
//! }
//! ```
//!
//! ```compile_fail,E0502
//! # use holoflow::prelude::*;
//! fn acquire<'c>(index: usize, ctx: &'c mut AcquireCtx<'_>) -> TaskResult<Option<TView<'c>>> {
//!     let view = ctx.view(index)?;
//!     drop(ctx.take_back(index)?);
//!     Ok(Some(view))
//! }
//! ```
//!
//! # Two cells of one context exchanged
//!
//! One context lends one cell at a time, so their contents cannot be swapped.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let a = ctx.owned_output_storage(0)?;
//!     a.retract();
//!     let b = ctx.owned_output_storage(1)?;
//!     b.retract();
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let a = ctx.owned_output_storage(0)?;
//!     let b = ctx.owned_output_storage(1)?;
//!     std::mem::swap(a, b);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A cell moved out of its place
//!
//! A cell is stable; what moves is the region in it.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let cell = ctx.owned_output_storage(0)?;
//!     let taken = cell.retract();
//!     drop(taken);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0507
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let cell = ctx.owned_output_storage(0)?;
//!     let taken = *cell;
//!     drop(taken);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A region looked at while it is retracted
//!
//! The region in the cell is borrowed from it.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let cell = ctx.owned_output_storage(0)?;
//!     let seen = cell.view();
//!     let address = seen.address();
//!     let region = cell.retract();
//!     assert_eq!(region.map(|region| region.address()), address);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0502
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let cell = ctx.owned_output_storage(0)?;
//!     let seen = cell.view();
//!     let region = cell.retract();
//!     let address = seen.address();
//!     assert_eq!(region.map(|region| region.address()), address);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A cell made up
//!
//! Cells are the compiler's.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! fn cell(desc: TDesc) {
//! }
//! ```
//!
//! ```compile_fail,E0624
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! fn cell(desc: TDesc) {
//!     let cell = Storage::new(desc, false);
//! }
//! ```
//!
//! # A view made up
//!
//! A view of a cell comes from the cell.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! fn view(desc: &TDesc, cell: &Storage) {
//!     let view = cell.view();
//!     assert!(view.address().is_none());
//! }
//! ```
//!
//! ```compile_fail,E0624
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! fn view(desc: &TDesc, cell: &Storage) {
//!     let view = TView::new(desc, cell);
//!     assert!(view.address().is_none());
//! }
//! ```
//!
//! # A refusal made up of nothing
//!
//! A refusal carries the region that was refused.
//!
//! ```
//! # use holoflow::storage::{Region, Refusal, Refused};
//! fn refuse(region: Region) -> Refused {
//!     Refused { region, refusal: Refusal::Full }
//! }
//! ```
//!
//! ```compile_fail,E0063
//! # use holoflow::storage::{Region, Refusal, Refused};
//! fn refuse(region: Region) -> Refused {
//!     Refused { refusal: Refusal::Full }
//! }
//! ```
//!
//! # Inputs copied
//!
//! A second `Inputs` would read while the first half of the pair is borrowed for a cell.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let inputs = &ctx.inputs;
//!     assert!(inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let inputs = ctx.inputs.clone();
//!     assert!(inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Outputs copied
//!
//! As above, and it would write.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let outputs = &ctx.outputs;
//!     assert!(outputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let outputs = ctx.outputs.clone();
//!     assert!(outputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Inputs moved out of a context
//!
//! The half that is left could be paired with another.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let inputs = &ctx.inputs;
//!     assert!(inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0507
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let inputs = ctx.inputs;
//!     assert!(inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Inputs of a context replaced by none
//!
//! There is no empty one to put in their place.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let inputs = &ctx.inputs;
//!     assert!(inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let inputs = std::mem::take(&mut ctx.inputs);
//!     assert!(inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Outputs made up
//!
//! Their fields are private.
//!
//! ```
//! # use holoflow::storage::{Inputs, Outputs};
//! fn pair<'a>(inputs: Inputs<'a>) {
//!     let Inputs { .. } = inputs;
//! }
//! ```
//!
//! ```compile_fail,E0451
//! # use holoflow::storage::{Inputs, Outputs};
//! fn pair<'a>(inputs: Inputs<'a>) {
//!     let Inputs { .. } = inputs;
//!     let outputs = Outputs { bank: todo!(), table: todo!() };
//! }
//! ```
//!
//! # A context made up
//!
//! Contexts are core's to build.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Inputs, Outputs};
//! # use holoflow::task::NodeCtx;
//! fn context<'a>(inputs: Inputs<'a>, outputs: Outputs<'a>, node: &'a mut NodeCtx) {
//!     assert!(inputs.is_empty() && outputs.is_empty() && node.name().is_empty());
//! }
//! ```
//!
//! ```compile_fail,E0639
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Inputs, Outputs};
//! # use holoflow::task::NodeCtx;
//! fn context<'a>(inputs: Inputs<'a>, outputs: Outputs<'a>, node: &'a mut NodeCtx) {
//!     let ctx = SyncCtx { inputs, outputs, node };
//! }
//! ```
//!
//! # What all hooks have, taken out of a context
//!
//! `NodeCtx` has no default to leave behind.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let node = &mut *ctx.node;
//!     assert!(node.name().is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let node = std::mem::take(ctx.node);
//!     assert!(node.name().is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # What all hooks have, copied
//!
//! It holds the workspace, which is one.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let node = &*ctx.node;
//!     assert!(node.name().is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let node = (*ctx.node).clone();
//!     assert!(node.name().is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Contexts of nested hooks exchanged
//!
//! An inner hook has a context of its own life; neither fits in the other's place. Only where
//! both had one lifetime could this compile, and no code is ever given two such.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn swap<'a>(outer: &mut SyncCtx<'a>, inner: &mut SyncCtx<'a>) {
//!     std::mem::swap(&mut outer.inputs, &mut inner.inputs);
//! }
//! ```
//!
//! ```compile_fail
//! # use holoflow::prelude::*;
//! fn swap(outer: &mut SyncCtx<'_>, inner: &mut SyncCtx<'_>) {
//!     std::mem::swap(&mut outer.inputs, &mut inner.inputs);
//! }
//! ```
//!
//! # What all hooks have, exchanged between nested contexts
//!
//! As above, for the reference; its target cannot be reached twice either, since an inner
//! hook sees nothing of the outer one's.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn swap<'a>(outer: &mut SyncCtx<'a>, inner: &mut SyncCtx<'a>) {
//!     std::mem::swap(&mut outer.node, &mut inner.node);
//! }
//! ```
//!
//! ```compile_fail
//! # use holoflow::prelude::*;
//! fn swap(outer: &mut SyncCtx<'_>, inner: &mut SyncCtx<'_>) {
//!     std::mem::swap(&mut outer.node, &mut inner.node);
//! }
//! ```
//!
//! # An inner task that carries the outer hook's cell
//!
//! Tasks live as long as they like, so they hold nothing that is borrowed.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! struct Inner<'a>(&'a mut Storage);
//!
//! impl ISyncTask for Inner<'static> {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         std::mem::swap(self.0, ctx.owned_output_storage(0)?);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0478
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Storage;
//! struct Inner<'a>(&'a mut Storage);
//!
//! impl<'a> ISyncTask for Inner<'a> {
//!     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         std::mem::swap(self.0, ctx.owned_output_storage(0)?);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! # The hidden half of a push context reached
//!
//! The push side has no outputs to write.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn try_push(ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!     assert!(ctx.inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0616
//! # use holoflow::prelude::*;
//! fn try_push(ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!     assert!(ctx.outputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # The hidden half of a pop context reached
//!
//! The pop side has no inputs to read.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!     assert!(ctx.outputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0616
//! # use holoflow::prelude::*;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!     assert!(ctx.inputs.is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Another slot asked for than the hook was called for
//!
//! `acquire_input` reaches the cell of one slot, and the context knows of which.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn acquire_input(ctx: &mut AcquireCtx<'_>) -> TaskResult<()> {
//!     ctx.take_back(1).map(drop)
//! }
//! ```
//!
//! ```compile_fail,E0616
//! # use holoflow::prelude::*;
//! fn acquire_input(ctx: &mut AcquireCtx<'_>) -> TaskResult<()> {
//!     ctx.asked = 1;
//!     ctx.take_back(1).map(drop)
//! }
//! ```
//!
//! # The bank of cells reached
//!
//! What lends the pairs is core's own.
//!
//! ```
//! use holoflow::storage::Inputs;
//! ```
//!
//! ```compile_fail,E0603
//! use holoflow::storage::CellBank;
//! ```
