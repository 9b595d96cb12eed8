//! Sides, cells of one side and rings opened by more than one holder at a time.
//!
//! Each attack stands below the same program without the attack, which compiles.
//!
//! # A cell opened twice with one token
//!
//! The token is borrowed for as long as the value is.
//!
//! ```
//! # use holoflow::storage::{ProducerCell, Sides};
//! let mut sides = Sides::new();
//! let cell = ProducerCell::new(&sides, 1);
//! let producer = sides.split().0;
//! let first = cell.open(producer)?;
//! *first += 1;
//! let second = cell.open(producer)?;
//! *second += 1;
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::storage::{ProducerCell, Sides};
//! let mut sides = Sides::new();
//! let cell = ProducerCell::new(&sides, 1);
//! let producer = sides.split().0;
//! let first = cell.open(producer)?;
//! let second = cell.open(producer)?;
//! *second += 1;
//! *first += 1;
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! # A cell opened with a shared token
//!
//! Two threads could share it.
//!
//! ```
//! # use holoflow::storage::{ContractError, ProducerCell, ProducerSide};
//! fn open(cell: &ProducerCell<u8>, side: &mut ProducerSide) -> Result<u8, ContractError> {
//!     Ok(*cell.open(side)?)
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use holoflow::storage::{ContractError, ProducerCell, ProducerSide};
//! fn open(cell: &ProducerCell<u8>, side: &ProducerSide) -> Result<u8, ContractError> {
//!     Ok(*cell.open(side)?)
//! }
//! ```
//!
//! # A cell opened with the other side's token
//!
//! Each side has cells of its own type.
//!
//! ```
//! # use holoflow::storage::{ProducerCell, Sides};
//! let mut sides = Sides::new();
//! let cell = ProducerCell::new(&sides, 1);
//! let side = sides.split().0;
//! assert_eq!(*cell.open(side)?, 1);
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! ```compile_fail,E0308
//! # use holoflow::storage::{ProducerCell, Sides};
//! let mut sides = Sides::new();
//! let cell = ProducerCell::new(&sides, 1);
//! let side = sides.split().1;
//! assert_eq!(*cell.open(side)?, 1);
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! # A value of a cell kept while its token is given away
//!
//! As long as the value is in use, so is the token.
//!
//! ```
//! # use holoflow::storage::{ProducerCell, Sides};
//! let sides = Sides::new();
//! let cell = ProducerCell::new(&sides, 1);
//! let (mut producer, _) = sides.into_parts();
//! let value = cell.open(&mut producer)?;
//! *value += 1;
//! std::thread::spawn(move || drop(producer));
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! ```compile_fail,E0505
//! # use holoflow::storage::{ProducerCell, Sides};
//! let sides = Sides::new();
//! let cell = ProducerCell::new(&sides, 1);
//! let (mut producer, _) = sides.into_parts();
//! let value = cell.open(&mut producer)?;
//! std::thread::spawn(move || drop(producer));
//! *value += 1;
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! # A cell rebound while it is open
//!
//! Rebinding needs the cell alone.
//!
//! ```
//! # use holoflow::storage::{ProducerCell, Sides};
//! let (mut old, new) = (Sides::new(), Sides::new());
//! let mut cell = ProducerCell::new(&old, 1);
//! let value = cell.open(old.split().0)?;
//! *value += 1;
//! cell.rebind(&new);
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! ```compile_fail,E0502
//! # use holoflow::storage::{ProducerCell, Sides};
//! let (mut old, new) = (Sides::new(), Sides::new());
//! let mut cell = ProducerCell::new(&old, 1);
//! let value = cell.open(old.split().0)?;
//! cell.rebind(&new);
//! *value += 1;
//! # Ok::<(), holoflow::storage::ContractError>(())
//! ```
//!
//! # A value that is bound to its thread, shared through a cell
//!
//! A side moves between threads, and its state with it.
//!
//! ```
//! # use std::rc::Rc;
//! # use std::sync::Arc;
//! # use holoflow::storage::{ProducerCell, Sides};
//! let sides = Sides::new();
//! let cell = Arc::new(ProducerCell::new(&sides, Arc::new(1)));
//! std::thread::spawn(move || drop(cell)).join().expect("no panic");
//! ```
//!
//! ```compile_fail,E0277
//! # use std::rc::Rc;
//! # use std::sync::Arc;
//! # use holoflow::storage::{ProducerCell, Sides};
//! let sides = Sides::new();
//! let cell = Arc::new(ProducerCell::new(&sides, Rc::new(1)));
//! std::thread::spawn(move || drop(cell)).join().expect("no panic");
//! ```
//!
//! # A token copied
//!
//! One holder at a time is what cells and rings believe.
//!
//! ```
//! # use holoflow::storage::ProducerSide;
//! fn two(side: ProducerSide) -> [ProducerSide; 1] {
//!     [side]
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::storage::ProducerSide;
//! fn two(side: ProducerSide) -> [ProducerSide; 1] {
//!     [ProducerSide::clone(&side)]
//! }
//! ```
//!
//! # A token copied out of a context
//!
//! As above.
//!
//! ```
//! # use holoflow::prelude::*;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!     let side = &mut *ctx.side;
//!     assert!(!format!("{side:?}").is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0507
//! # use holoflow::prelude::*;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!     let side = *ctx.side;
//!     assert!(!format!("{side:?}").is_empty());
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # Both sides copied
//!
//! As above.
//!
//! ```
//! # use holoflow::storage::Sides;
//! let sides = Sides::new();
//! let (producer, consumer) = sides.into_parts();
//! # drop((producer, consumer));
//! ```
//!
//! ```compile_fail,E0599
//! # use holoflow::storage::Sides;
//! let sides = Sides::new();
//! let (producer, consumer) = sides.clone().into_parts();
//! # drop((producer, consumer));
//! ```
//!
//! # The sides of a node taken from its create context
//!
//! A factory makes rings and cells for the sides, and never holds them.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Sides;
//! fn create(ctx: &mut CreateCtx<'_>) {
//!     let (producer, consumer) = Sides::new().into_parts();
//!     assert!(!format!("{producer:?} {consumer:?}").is_empty());
//! }
//! ```
//!
//! ```compile_fail,E0596
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Sides;
//! fn create(ctx: &mut CreateCtx<'_>) {
//!     let (producer, consumer) = ctx.sides().split();
//!     assert!(!format!("{producer:?} {consumer:?}").is_empty());
//! }
//! ```
//!
//! # A token made up
//!
//! Its id is private.
//!
//! ```
//! # use holoflow::storage::{ProducerSide, Sides};
//! let side: ProducerSide = Sides::new().into_parts().0;
//! # drop(side);
//! ```
//!
//! ```compile_fail,E0451
//! # use holoflow::storage::{ProducerSide, Sides};
//! let side = ProducerSide { id: 1 };
//! # drop(side);
//! ```
//!
//! # A token kept past its hook
//!
//! It is borrowed from the section.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::ConsumerSide;
//! # use std::sync::Mutex;
//! struct Keeper {
//!     kept: Mutex<Option<&'static mut ConsumerSide>>,
//! }
//!
//! impl IAsyncTask for Keeper {
//!     fn try_push(&self, _: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!         Ok(OpResult::NotReady)
//!     }
//!
//!     fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!         let side = &mut *ctx.side;
//!         assert!(!format!("{side:?}").is_empty());
//!         Ok(OpResult::NotReady)
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use holoflow::prelude::*;
//! # use holoflow::storage::ConsumerSide;
//! # use std::sync::Mutex;
//! struct Keeper {
//!     kept: Mutex<Option<&'static mut ConsumerSide>>,
//! }
//!
//! impl IAsyncTask for Keeper {
//!     fn try_push(&self, _: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
//!         Ok(OpResult::NotReady)
//!     }
//!
//!     fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
//!         let side = &mut *ctx.side;
//!         self.kept.lock().expect("alone").replace(side);
//!         Ok(OpResult::NotReady)
//!     }
//! }
//! ```
//!
//! # A ring driven through a shared token
//!
//! As with cells.
//!
//! ```
//! # use holoflow::storage::{ContractError, ProducerSide, Region, SlotRing};
//! fn next(ring: &SlotRing, side: &mut ProducerSide) -> Result<Option<Region>, ContractError> {
//!     ring.acquire(side)
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use holoflow::storage::{ContractError, ProducerSide, Region, SlotRing};
//! fn next(ring: &SlotRing, side: &ProducerSide) -> Result<Option<Region>, ContractError> {
//!     ring.acquire(side)
//! }
//! ```
//!
//! # One side of a test driven from two threads
//!
//! A side is a mutable borrow.
//!
//! ```
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) {
//!     let (push, pop) = task.split().expect("async");
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| push.acquire(0).is_ok());
//!         scope.spawn(|| pop.try_pop().is_ok());
//!     });
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) {
//!     let (push, pop) = task.split().expect("async");
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| push.acquire(0).is_ok());
//!         scope.spawn(|| push.acquire(0).is_ok());
//!     });
//! }
//! ```
//!
//! # A test shared by threads
//!
//! Its cells are one section's.
//!
//! ```
//! # use std::sync::{Arc, Mutex};
//! # use holoflow::testkit::TaskHarness;
//! fn share(task: TaskHarness) {
//!     let task = Arc::new(Mutex::new(task));
//!     std::thread::spawn(move || drop(task));
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use std::sync::{Arc, Mutex};
//! # use holoflow::testkit::TaskHarness;
//! fn share(task: TaskHarness) {
//!     let task = Arc::new(task);
//!     std::thread::spawn(move || drop(task));
//! }
//! ```
//!
//! # Both sides of a test borrowed one by one
//!
//! As above.
//!
//! ```
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) {
//!     let (push, pop) = task.split().expect("async");
//!     assert_eq!(push.acquire(0).is_ok(), pop.try_pop().is_ok());
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::testkit::TaskHarness;
//! fn drive(task: &mut TaskHarness) {
//!     let push = task.producer();
//!     let pop = task.consumer();
//!     assert_eq!(push.acquire(0).is_ok(), pop.try_pop().is_ok());
//! }
//! ```
