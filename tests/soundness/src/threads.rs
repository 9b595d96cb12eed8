//! Parts of a hook sent to other threads, and tasks that could not go there.
//!
//! Each attack stands below the same program without the attack, which compiles.
//!
//! # Inputs sent to another thread
//!
//! A slice may go to a scoped thread; what it came from may not, since cells hold no locks.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let x = ctx.inputs.get::<u8>(0)?;
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| assert_eq!(x[0], 0));
//!     });
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let inputs = &ctx.inputs;
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| assert!(inputs.get::<u8>(0).is_ok()));
//!     });
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Outputs sent to another thread
//!
//! As above.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let y = ctx.outputs.get_mut::<u8>(0)?;
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| y[0] = 1);
//!     });
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     let outputs = &mut ctx.outputs;
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| assert!(outputs.get_mut::<u8>(0).is_ok()));
//!     });
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A context sent to another thread
//!
//! As above.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| 1);
//!     });
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::prelude::*;
//! fn execute(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| ctx.take_input(0).is_ok());
//!     });
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A sync task that is bound to its thread
//!
//! Sections run where the scheduler likes.
//!
//! ```
//! # use std::rc::Rc;
//! # use std::sync::Arc;
//! # use holoflow::prelude::*;
//! struct Task(Arc<u8>);
//!
//! impl ISyncTask for Task {
//!     fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         assert_eq!(*self.0, 1);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use std::rc::Rc;
//! # use std::sync::Arc;
//! # use holoflow::prelude::*;
//! struct Task(Rc<u8>);
//!
//! impl ISyncTask for Task {
//!     fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         assert_eq!(*self.0, 1);
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! # An async task that two threads cannot share
//!
//! Both sides run at the same time, on one `&self`.
//!
//! ```
//! # use std::cell::Cell;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::ProducerCell;
//! struct Task(ProducerCell<Cell<u8>>);
//!
//! impl IAsyncTask for Task {
//!     fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!         self.0.open(ctx.side)?.set(1);
//!         Ok(OpResult::NotReady)
//!     }
//!
//!     fn try_pop(&self, _: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!         Ok(OpResult::NotReady)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use std::cell::Cell;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::ProducerCell;
//! struct Task(Cell<u8>);
//!
//! impl IAsyncTask for Task {
//!     fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!         self.0.set(1);
//!         Ok(OpResult::NotReady)
//!     }
//!
//!     fn try_pop(&self, _: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!         Ok(OpResult::NotReady)
//!     }
//! }
//! ```
//!
//! # An async task that writes its state without its token
//!
//! `&self` gives no way to a side's state but the token.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::ProducerCell;
//! struct Task(ProducerCell<u8>);
//!
//! impl IAsyncTask for Task {
//!     fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!         *self.0.open(ctx.side)? = 1;
//!         Ok(OpResult::NotReady)
//!     }
//!
//!     fn try_pop(&self, _: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!         Ok(OpResult::NotReady)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0596
//! # use holoflow::prelude::*;
//! # use holoflow::storage::ProducerCell;
//! struct Task(ProducerCell<u8>);
//!
//! impl IAsyncTask for Task {
//!     fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!         *self.0.get_mut() = 1;
//!         Ok(OpResult::NotReady)
//!     }
//!
//!     fn try_pop(&self, _: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!         Ok(OpResult::NotReady)
//!     }
//! }
//! ```
//!
//! # A task that borrows
//!
//! A task outlives whoever made it.
//!
//! ```
//! # use holoflow::prelude::*;
//! struct Task(Vec<u8>);
//!
//! impl ISyncTask for Task {
//!     fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         self.0[0] = 1;
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0478
//! # use holoflow::prelude::*;
//! struct Task<'a>(&'a mut [u8]);
//!
//! impl<'a> ISyncTask for Task<'a> {
//!     fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
//!         self.0[0] = 1;
//!         Ok(OpResult::Ok)
//!     }
//! }
//! ```
//!
//! # A factory that two threads cannot share
//!
//! A registry is used from any thread.
//!
//! ```
//! # use std::cell::Cell;
//! # use std::sync::Mutex;
//! # use holoflow::prelude::*;
//! struct Factory(Mutex<u8>);
//!
//! impl ISyncTaskFactory for Factory {
//!     fn describe(&self) -> TaskInfo {
//!         TaskInfo::new("")
//!     }
//!
//!     fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
//!         Ok(InferResult::sync([], []))
//!     }
//!
//!     fn create(
//!         &self,
//!         _: &TaskRequest<'_>,
//!         _: &mut CreateCtx<'_>,
//!     ) -> TaskResult<Box<dyn ISyncTask>> {
//!         Err(TaskError::other("none"))
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use std::cell::Cell;
//! # use std::sync::Mutex;
//! # use holoflow::prelude::*;
//! struct Factory(Cell<u8>);
//!
//! impl ISyncTaskFactory for Factory {
//!     fn describe(&self) -> TaskInfo {
//!         TaskInfo::new("")
//!     }
//!
//!     fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
//!         Ok(InferResult::sync([], []))
//!     }
//!
//!     fn create(
//!         &self,
//!         _: &TaskRequest<'_>,
//!         _: &mut CreateCtx<'_>,
//!     ) -> TaskResult<Box<dyn ISyncTask>> {
//!         Err(TaskError::other("none"))
//!     }
//! }
//! ```
