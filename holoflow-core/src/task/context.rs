//! What a hook gets to work with.
//!
//! A context lives for one call. Its parts are public fields, so that inputs and outputs
//! borrow apart; what all hooks have in common is in [`NodeCtx`], which the contexts also
//! dereference to, so that `ctx.now()` works as well as `ctx.node.now()`.
//!
//! Contexts are built by core only, are neither `Clone` nor `Default`, and are a few
//! words: what costs to make, [`NodeCtx`], is made once a run.
//!
//! Reaching a cell takes the whole context mutably. So no slice of a cell's bytes lives
//! while the cell changes.

use std::ops::{Deref, DerefMut};
use std::task::Waker;

use serde_json::Value;

use super::{Event, FrameMeta, Mailbox, TaskError, TaskResult};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::device::Stream;
use crate::memory::Memory;
use crate::storage::{
    ConsumerSide, ContractError, IOStorageAccess, Inputs, Outputs, ProducerSide, Refused, Region,
    Slot, Storage, TView, TaskBuffer, owned_storage, slot_view,
};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tensor::{Element, MemLoc};

/// What a run is told from outside: to cancel, or to finish.
#[derive(Debug, Default)]
pub struct StopFlags {
    cancelled: AtomicBool,
    finishing: AtomicBool,
}

impl StopFlags {
    /// No stop asked for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            cancelled: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
        }
    }

    /// Asks every hook to stop now.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Asks sources to end, so that everything drains.
    pub fn finish(&self) {
        self.finishing.store(true, Ordering::Release);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Whether [`finish`](Self::finish) was called.
    #[must_use]
    pub fn is_finishing(&self) -> bool {
        self.finishing.load(Ordering::Acquire)
    }
}

/// What one node has in every hook of a run.
#[derive(Debug)]
pub struct NodeCtx {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop: Arc<StopFlags>,
    pub(crate) waker: Waker,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) events_in: Mailbox,
    pub(crate) events_out: Mailbox,
    pub(crate) stream: Option<Arc<dyn Stream>>,
    pub(crate) memory: Memory,
    pub(crate) workspace: Option<Region>,
    /// That of the frame being worked on: its section moves it in and out.
    pub(crate) meta: Box<FrameMeta>,
    pub(crate) dropped: u64,
    pub(crate) copied_bytes: u64,
}

impl NodeCtx {
    /// What a node has before a run gives it clock, waker and mailboxes of its own.
    pub(crate) fn new(
        name: impl Into<Arc<str>>,
        memory: Memory,
        stream: Option<Arc<dyn Stream>>,
    ) -> Self {
        Self {
            name: name.into(),
            clock: Arc::new(SystemClock::new()),
            stop: Arc::new(StopFlags::new()),
            waker: Waker::noop().clone(),
            wake_at: None,
            events_in: Mailbox::new(Mailbox::DEFAULT_CAPACITY),
            events_out: Mailbox::new(Mailbox::DEFAULT_CAPACITY),
            stream,
            memory,
            workspace: None,
            meta: Box::default(),
            dropped: 0,
            copied_bytes: 0,
        }
    }

    /// Name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time by the run's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The run's clock, to be kept.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Whether the run is being cancelled. A hook that sees it may answer
    /// [`OpResult::Cancelled`](super::OpResult::Cancelled).
    #[must_use]
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Whether the run is to drain and end. A source that sees it answers
    /// [`OpResult::Eof`](super::OpResult::Eof).
    #[must_use]
    #[inline]
    pub fn is_finishing(&self) -> bool {
        self.stop.is_finishing()
    }

    /// With `NotReady`: says that the hook will be ready at `at`. The earliest of several
    /// counts.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// A handle that wakes this node's section from any thread, to be kept and used when
    /// the hook that answered `NotReady` has become ready.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The next event sent to this node.
    #[must_use]
    pub fn next_event(&mut self) -> Option<Event> {
        self.events_in.receive()
    }

    /// Sends an event to the application; `false` if its mailbox is full and the event was
    /// dropped and counted.
    pub fn emit(&mut self, data: Value) -> bool {
        let event = Event::new(Arc::clone(&self.name), self.now(), data);
        self.events_out.send(event)
    }

    /// The stream of this hook's section; `None` in a section without device nodes.
    #[must_use]
    pub fn stream(&self) -> Option<&Arc<dyn Stream>> {
        self.stream.as_ref()
    }

    /// Metadata of the frame that comes in, or goes out.
    #[must_use]
    pub fn meta(&self) -> &FrameMeta {
        &self.meta
    }

    /// Metadata of the frame that goes out, to be changed.
    pub fn meta_mut(&mut self) -> &mut FrameMeta {
        &mut self.meta
    }

    /// Reports that the task dropped `count` frames that it had accepted.
    pub fn dropped(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// Copies `from` to `to` and counts the bytes, so that reports show the copy.
    ///
    /// # Errors
    /// If the lengths differ.
    pub fn copy<T: Element>(&mut self, to: &mut [T], from: &[T]) -> TaskResult<()> {
        if to.len() != from.len() {
            let message = format!("cannot copy {} elements to {}", from.len(), to.len());
            return Err(TaskError::other(message));
        }
        to.copy_from_slice(from);
        self.copied_bytes = self.copied_bytes.saturating_add(size_of_val(from) as u64);
        Ok(())
    }

    /// Workspace of `count` elements in host memory, kept from call to call.
    ///
    /// It holds what was left in it; zeros at first. It grows when more is asked for than
    /// before, and then is zero again.
    ///
    /// # Errors
    /// If the memory cannot be had.
    pub fn temp<T: Element>(&mut self, count: usize) -> TaskResult<&mut [T]> {
        let bytes = count.saturating_mul(size_of::<T>());
        if self
            .workspace
            .as_ref()
            .is_none_or(|held| held.len() < bytes)
        {
            self.workspace = None;
            let buffer = TaskBuffer::allocate(&self.memory, MemLoc::Host, bytes)?;
            self.workspace = Some(buffer.into_region());
        }
        let held = self
            .workspace
            .as_mut()
            .expect("just made if it was missing");
        Ok(&mut held.as_mut_slice::<T>()?[..count])
    }
}

/// Context of [`ISyncTask::execute`](super::ISyncTask::execute).
///
/// ```
/// use holoflow_core::task::{OpResult, SyncCtx, TaskResult};
///
/// fn double(ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
///     let x = ctx.inputs.get::<f32>(0)?;
///     let y = ctx.outputs.get_mut::<f32>(0)?;
///     for (y, x) in y.iter_mut().zip(x) {
///         *y = 2.0 * x;
///     }
///     Ok(OpResult::Ok)
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct SyncCtx<'a> {
    /// The node's inputs.
    pub inputs: Inputs<'a>,
    /// The node's outputs.
    pub outputs: Outputs<'a>,
    /// What all hooks have.
    pub node: &'a mut NodeCtx,
}

/// Context of `acquire_input` and `cancel_input`.
#[derive(Debug)]
#[non_exhaustive]
pub struct AcquireCtx<'a> {
    /// Opens what belongs to the producer side.
    pub side: &'a mut ProducerSide,
    /// What all hooks have.
    pub node: &'a mut NodeCtx,
    /// The input that the hook was called for, and the only one within its reach.
    asked: usize,
    inputs: Inputs<'a>,
    outputs: Outputs<'a>,
}

/// Context of [`IAsyncTask::try_push`](super::IAsyncTask::try_push).
#[derive(Debug)]
#[non_exhaustive]
pub struct AsyncPushCtx<'a> {
    /// The node's inputs.
    pub inputs: Inputs<'a>,
    /// Opens what belongs to the producer side.
    pub side: &'a mut ProducerSide,
    /// What all hooks have.
    pub node: &'a mut NodeCtx,
    outputs: Outputs<'a>,
}

/// Context of [`IAsyncTask::try_pop`](super::IAsyncTask::try_pop).
#[derive(Debug)]
#[non_exhaustive]
pub struct AsyncPopCtx<'a> {
    /// The node's outputs.
    pub outputs: Outputs<'a>,
    /// Opens what belongs to the consumer side.
    pub side: &'a mut ConsumerSide,
    /// What all hooks have.
    pub node: &'a mut NodeCtx,
    inputs: Inputs<'a>,
}

/// Context of `release_output`.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReleaseCtx<'a> {
    /// Opens what belongs to the consumer side.
    pub side: &'a mut ConsumerSide,
    /// What all hooks have.
    pub node: &'a mut NodeCtx,
    /// The output that the hook was called for, and the only one within its reach.
    asked: usize,
    inputs: Inputs<'a>,
    outputs: Outputs<'a>,
}

/// Context of `run_started` and `run_ended`: neither side runs, so both can be opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunCtx<'a> {
    /// Opens what belongs to the producer side.
    pub producer: &'a mut ProducerSide,
    /// Opens what belongs to the consumer side.
    pub consumer: &'a mut ConsumerSide,
    clock: &'a dyn Clock,
    stop: &'a StopFlags,
    results: &'a mut Vec<(&'static str, Value)>,
}

impl<'a> RunCtx<'a> {
    pub(crate) fn new(
        producer: &'a mut ProducerSide,
        consumer: &'a mut ConsumerSide,
        (clock, stop): (&'a dyn Clock, &'a StopFlags),
        results: &'a mut Vec<(&'static str, Value)>,
    ) -> Self {
        Self {
            producer,
            consumer,
            clock,
            stop,
            results,
        }
    }

    /// The time by the run's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether the run was cancelled, or failed, so that it ended before all frames came.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Puts a result of this node in the report of the run. At the start of a run it is
    /// ignored.
    pub fn report(&mut self, key: &'static str, value: impl Into<Value>) {
        self.results.push((key, value.into()));
    }
}

impl<'a> SyncCtx<'a> {
    #[inline]
    pub(crate) fn new((inputs, outputs): (Inputs<'a>, Outputs<'a>), node: &'a mut NodeCtx) -> Self {
        Self {
            inputs,
            outputs,
            node,
        }
    }

    /// Takes the region of owned input `index` out of its cell: the input is consumed.
    ///
    /// # Errors
    /// If there is no such input, it is not owned, or its cell is empty.
    #[inline]
    pub fn take_input(&mut self, index: usize) -> TaskResult<Region> {
        retract(&mut self.inputs, &mut self.outputs, Slot::Input(index))
    }

    /// Publishes `region` as owned output `index`.
    ///
    /// # Errors
    /// If there is no such output, it is not owned, or its cell does not take the region,
    /// which is dropped.
    #[inline]
    pub fn publish(&mut self, index: usize, region: Region) -> TaskResult<()> {
        publish(
            &mut self.inputs,
            &mut self.outputs,
            Slot::Output(index),
            region,
        )
    }
}

impl<'a> AcquireCtx<'a> {
    #[inline]
    pub(crate) fn new(
        (inputs, outputs): (Inputs<'a>, Outputs<'a>),
        side: &'a mut ProducerSide,
        node: &'a mut NodeCtx,
        asked: usize,
    ) -> Self {
        Self {
            asked,
            inputs,
            outputs,
            side,
            node,
        }
    }

    /// Lends the region that `find` has to the node's upstream: publishes it as owned input
    /// `index` and returns the view of it. `None` from `find` means that there is none now.
    ///
    /// # Errors
    /// If there is no such input, it is not owned or not the one the hook was called for, `find` fails, or the cell does not take
    /// the region, which is dropped.
    #[inline]
    pub fn lend<E: Into<TaskError>>(
        &mut self,
        index: usize,
        find: impl FnOnce(&mut ProducerSide) -> Result<Option<Region>, E>,
    ) -> TaskResult<Option<TView<'_>>> {
        let slot = Slot::Input(index);
        self.owned_input_storage(index)?;
        let Some(region) = find(self.side).map_err(Into::into)? else {
            return Ok(None);
        };
        publish(&mut self.inputs, &mut self.outputs, slot, region)?;
        Ok(Some(slot_view(&self.inputs, &self.outputs, slot)?))
    }

    /// The view of input `index`, to be returned from `acquire_input`.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn view(&self, index: usize) -> TaskResult<TView<'_>> {
        Ok(slot_view(&self.inputs, &self.outputs, Slot::Input(index))?)
    }

    /// Takes the region of owned input `index` back from its cell; `None` if it is empty.
    ///
    /// # Errors
    /// If there is no such input, it is not owned or not the one the hook was called for.
    #[inline]
    pub fn take_back(&mut self, index: usize) -> TaskResult<Option<Region>> {
        Ok(self.owned_input_storage(index)?.retract())
    }

    /// The error of a hook that the task does not implement for input `index`.
    pub(super) fn unowned(&mut self, index: usize) -> TaskError {
        unowned(&mut self.inputs, &mut self.outputs, Slot::Input(index))
    }
}

impl<'a> AsyncPushCtx<'a> {
    #[inline]
    pub(crate) fn new(
        (inputs, outputs): (Inputs<'a>, Outputs<'a>),
        side: &'a mut ProducerSide,
        node: &'a mut NodeCtx,
    ) -> Self {
        Self {
            inputs,
            outputs,
            side,
            node,
        }
    }

    /// Takes the filled region of owned input `index` out of its cell.
    ///
    /// # Errors
    /// If there is no such input, it is not owned, or its cell is empty.
    #[inline]
    pub fn take_input(&mut self, index: usize) -> TaskResult<Region> {
        retract(&mut self.inputs, &mut self.outputs, Slot::Input(index))
    }
}

impl<'a> AsyncPopCtx<'a> {
    #[inline]
    pub(crate) fn new(
        (inputs, outputs): (Inputs<'a>, Outputs<'a>),
        side: &'a mut ConsumerSide,
        node: &'a mut NodeCtx,
    ) -> Self {
        Self {
            inputs,
            outputs,
            side,
            node,
        }
    }

    /// Publishes `region` as owned output `index`.
    ///
    /// # Errors
    /// If there is no such output, it is not owned, or its cell does not take the region,
    /// which is dropped.
    #[inline]
    pub fn publish(&mut self, index: usize, region: Region) -> TaskResult<()> {
        publish(
            &mut self.inputs,
            &mut self.outputs,
            Slot::Output(index),
            region,
        )
    }
}

impl<'a> ReleaseCtx<'a> {
    #[inline]
    pub(crate) fn new(
        (inputs, outputs): (Inputs<'a>, Outputs<'a>),
        side: &'a mut ConsumerSide,
        node: &'a mut NodeCtx,
        asked: usize,
    ) -> Self {
        Self {
            asked,
            inputs,
            outputs,
            side,
            node,
        }
    }

    /// Takes the region of owned output `index` back from its cell.
    ///
    /// # Errors
    /// If there is no such output, it is not owned or not the one the hook was called for, or its cell is empty.
    #[inline]
    pub fn take_back(&mut self, index: usize) -> TaskResult<Region> {
        match self.owned_output_storage(index)?.retract() {
            Some(region) => Ok(region),
            None => Err(ContractError::Empty {
                slot: Slot::Output(index),
            }
            .into()),
        }
    }

    /// The error of a hook that the task does not implement for output `index`.
    pub(super) fn unowned(&mut self, index: usize) -> TaskError {
        unowned(&mut self.inputs, &mut self.outputs, Slot::Output(index))
    }
}

#[inline]
fn retract(inputs: &mut Inputs<'_>, outputs: &mut Outputs<'_>, slot: Slot) -> TaskResult<Region> {
    match owned_storage(inputs, outputs, slot)?.retract() {
        Some(region) => Ok(region),
        None => Err(empty(slot)),
    }
}

#[cold]
#[inline(never)]
fn empty(slot: Slot) -> TaskError {
    ContractError::Empty { slot }.into()
}

// Always: left to itself the compiler makes a call of it, which costs a quarter more.
#[inline(always)]
fn publish(
    inputs: &mut Inputs<'_>,
    outputs: &mut Outputs<'_>,
    slot: Slot,
    region: Region,
) -> TaskResult<()> {
    owned_storage(inputs, outputs, slot)?
        .publish(region)
        .map_err(|refused| unpublished(slot, refused))
}

#[cold]
#[inline(never)]
fn unpublished(slot: Slot, refused: Refused) -> TaskError {
    let refusal = refused.refusal;
    ContractError::Publish { slot, refusal }.into()
}

fn unowned(inputs: &mut Inputs<'_>, outputs: &mut Outputs<'_>, slot: Slot) -> TaskError {
    match owned_storage(inputs, outputs, slot) {
        Err(error) => error.into(),
        Ok(_) => ContractError::HookMissing { slot }.into(),
    }
}

macro_rules! node_context {
    ($($context:ident),*) => {$(
        impl Deref for $context<'_> {
            type Target = NodeCtx;

            #[inline]
            fn deref(&self) -> &NodeCtx {
                self.node
            }
        }

        impl DerefMut for $context<'_> {
            #[inline]
            fn deref_mut(&mut self) -> &mut NodeCtx {
                self.node
            }
        }
    )*};
}

node_context!(SyncCtx, AcquireCtx, AsyncPushCtx, AsyncPopCtx, ReleaseCtx);

/// Cells that a context gives access to, for inputs and outputs: all of them (`reach`), that
/// of the slot the hook was called for (`asked`), or none (`deny`).
macro_rules! storage_access {
    (@reach $context:ident, $slot:expr) => {
        owned_storage(&mut $context.inputs, &mut $context.outputs, $slot)
    };
    (@asked $context:ident, $slot:expr) => {{
        let (slot, asked) = ($slot, $context.asked);
        let found = owned_storage(&mut $context.inputs, &mut $context.outputs, slot);
        if slot.index() == asked { found } else { found.and(Err(ContractError::OtherSlot { slot, asked })) }
    }};
    (@deny $context:ident, $slot:expr) => {
        Err(ContractError::WrongSide { slot: $slot })
    };
    ($($context:ident: inputs $inputs:ident, outputs $outputs:ident;)*) => {$(
        impl IOStorageAccess for $context<'_> {
            #[inline]
            fn owned_input_storage(&mut self, index: usize) -> Result<&mut Storage, ContractError> {
                storage_access!(@$inputs self, Slot::Input(index))
            }

            #[inline]
            fn owned_output_storage(&mut self, index: usize) -> Result<&mut Storage, ContractError> {
                storage_access!(@$outputs self, Slot::Output(index))
            }
        }
    )*};
}

storage_access! {
    SyncCtx: inputs reach, outputs reach;
    AcquireCtx: inputs asked, outputs deny;
    AsyncPushCtx: inputs reach, outputs deny;
    AsyncPopCtx: inputs deny, outputs reach;
    ReleaseCtx: inputs deny, outputs asked;
}
