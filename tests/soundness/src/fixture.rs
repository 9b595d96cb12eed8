//! Tasks made of closures, so that an attack is the one hook it is about; and what every
//! attack asserts of the error it ends in.
//!
//! [`AsyncHooks::limiter`] and [`SyncHooks::new`] give honest tasks; a test replaces the
//! hook that it makes dishonest. Nothing here is unsafe, and nothing is trusted: a task
//! of closures is a task like any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holoflow::memory::Memory;
use holoflow::prelude::*;
use holoflow::storage::{Region, RegionSlot, Slot, TaskBuffer};
use holoflow::task::{Hook, HookError, RunCtx};
use holoflow::testkit::{HarnessBuilder, Ledger, TaskHarness};
use serde_json::json;

/// Name of the node under attack, as it stands in every error.
pub const NODE: &str = "victim";

type Acquire = dyn Fn(usize, &mut AcquireCtx<'_>) -> TaskResult<Option<usize>> + Send + Sync;
type Push = dyn Fn(&mut AsyncPushCtx<'_>) -> TaskResult<OpResult> + Send + Sync;
type Pop = dyn Fn(&mut AsyncPopCtx<'_>) -> TaskResult<OpResult> + Send + Sync;
type Release = dyn Fn(usize, &mut ReleaseCtx<'_>) -> TaskResult<()> + Send + Sync;
type Cancel = dyn Fn(usize, &mut AcquireCtx<'_>) + Send + Sync;
type Started = dyn Fn(&mut RunCtx<'_>) -> TaskResult<()> + Send + Sync;
type Finished = dyn Fn() + Send + Sync;

/// An async task of closures.
#[allow(
    missing_debug_implementations,
    reason = "closures have nothing to show"
)]
pub struct AsyncHooks {
    acquire: Box<Acquire>,
    push: Box<Push>,
    pop: Box<Pop>,
    release: Box<Release>,
    cancel: Box<Cancel>,
    started: Box<Started>,
    producer_finished: Box<Finished>,
    consumer_finished: Box<Finished>,
}

impl AsyncHooks {
    /// A task that is never ready and owns nothing.
    #[must_use]
    pub fn idle() -> Self {
        Self {
            acquire: Box::new(|_, _| Ok(None)),
            push: Box::new(|_| Ok(OpResult::NotReady)),
            pop: Box::new(|_| Ok(OpResult::NotReady)),
            release: Box::new(|index, ctx| ctx.take_back(index).map(drop)),
            cancel: Box::new(|index, ctx| drop(ctx.take_back(index))),
            started: Box::new(|_| Ok(())),
            producer_finished: Box::new(|| {}),
            consumer_finished: Box::new(|| {}),
        }
    }

    /// An honest task that lends the region of `slot` to either side in turn.
    #[must_use]
    pub fn limiter(slot: &Arc<RegionSlot>) -> Self {
        let [lend, fill, give, back] = [(); 4].map(|()| Arc::clone(slot));
        Self::idle()
            .acquire(move |index, ctx| {
                Ok(ctx.lend(index, |side| lend.acquire(side))?.map(|_| index))
            })
            .push(move |ctx| {
                let frame = ctx.take_input(0)?;
                fill.commit(ctx.side, frame)?;
                Ok(OpResult::Ok)
            })
            .pop(move |ctx| {
                let Some(frame) = give.pop(ctx.side)? else {
                    return Ok(OpResult::NotReady);
                };
                ctx.publish(0, frame)?;
                Ok(OpResult::Ok)
            })
            .release(move |index, ctx| {
                let frame = ctx.take_back(index)?;
                back.release(ctx.side, frame)?;
                Ok(())
            })
    }

    /// Replaces `acquire_input`: `Some(slot)` returns the view of input `slot`.
    #[must_use]
    pub fn acquire(
        mut self,
        hook: impl Fn(usize, &mut AcquireCtx<'_>) -> TaskResult<Option<usize>> + Send + Sync + 'static,
    ) -> Self {
        self.acquire = Box::new(hook);
        self
    }

    /// Replaces `try_push`.
    #[must_use]
    pub fn push(
        mut self,
        hook: impl Fn(&mut AsyncPushCtx<'_>) -> TaskResult<OpResult> + Send + Sync + 'static,
    ) -> Self {
        self.push = Box::new(hook);
        self
    }

    /// Replaces `try_pop`.
    #[must_use]
    pub fn pop(
        mut self,
        hook: impl Fn(&mut AsyncPopCtx<'_>) -> TaskResult<OpResult> + Send + Sync + 'static,
    ) -> Self {
        self.pop = Box::new(hook);
        self
    }

    /// Replaces `release_output`.
    #[must_use]
    pub fn release(
        mut self,
        hook: impl Fn(usize, &mut ReleaseCtx<'_>) -> TaskResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.release = Box::new(hook);
        self
    }

    /// Replaces `cancel_input`.
    #[must_use]
    pub fn cancel(
        mut self,
        hook: impl Fn(usize, &mut AcquireCtx<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.cancel = Box::new(hook);
        self
    }

    /// Replaces `run_started`.
    #[must_use]
    pub fn started(
        mut self,
        hook: impl Fn(&mut RunCtx<'_>) -> TaskResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.started = Box::new(hook);
        self
    }

    /// Replaces `producer_finished` and `consumer_finished`.
    #[must_use]
    pub fn finished(
        mut self,
        producer: impl Fn() + Send + Sync + 'static,
        consumer: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        self.producer_finished = Box::new(producer);
        self.consumer_finished = Box::new(consumer);
        self
    }
}

impl IAsyncTask for AsyncHooks {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        match (self.acquire)(index, ctx)? {
            Some(shown) => Ok(Some(ctx.view(shown)?)),
            None => Ok(None),
        }
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        (self.push)(ctx)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        (self.pop)(ctx)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        (self.release)(index, ctx)
    }

    fn cancel_input(&self, index: usize, ctx: &mut AcquireCtx<'_>) {
        (self.cancel)(index, ctx);
    }

    fn run_started(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        (self.started)(ctx)
    }

    fn producer_finished(&self) {
        (self.producer_finished)();
    }

    fn consumer_finished(&self) {
        (self.consumer_finished)();
    }
}

type Execute = dyn FnMut(&mut SyncCtx<'_>) -> TaskResult<OpResult> + Send;

/// A sync task of closures; it owns what `acquire` lends.
#[allow(
    missing_debug_implementations,
    reason = "closures have nothing to show"
)]
pub struct SyncHooks {
    execute: Box<Execute>,
    acquire: Box<Acquire>,
    release: Box<Release>,
    cancel: Box<Cancel>,
    started: Box<Started>,
}

impl SyncHooks {
    /// A task whose `execute` is this.
    #[must_use]
    pub fn new(
        execute: impl FnMut(&mut SyncCtx<'_>) -> TaskResult<OpResult> + Send + 'static,
    ) -> Self {
        Self {
            execute: Box::new(execute),
            acquire: Box::new(|_, _| Ok(None)),
            release: Box::new(|index, ctx| ctx.take_back(index).map(drop)),
            cancel: Box::new(|index, ctx| drop(ctx.take_back(index))),
            started: Box::new(|_| Ok(())),
        }
    }

    /// Replaces `acquire_input`: `Some(slot)` returns the view of input `slot`.
    #[must_use]
    pub fn acquire(
        mut self,
        hook: impl Fn(usize, &mut AcquireCtx<'_>) -> TaskResult<Option<usize>> + Send + Sync + 'static,
    ) -> Self {
        self.acquire = Box::new(hook);
        self
    }

    /// Replaces `release_output`.
    #[must_use]
    pub fn release(
        mut self,
        hook: impl Fn(usize, &mut ReleaseCtx<'_>) -> TaskResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.release = Box::new(hook);
        self
    }

    /// Replaces `cancel_input`.
    #[must_use]
    pub fn cancel(
        mut self,
        hook: impl Fn(usize, &mut AcquireCtx<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.cancel = Box::new(hook);
        self
    }

    /// Replaces `run_started`.
    #[must_use]
    pub fn started(
        mut self,
        hook: impl Fn(&mut RunCtx<'_>) -> TaskResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.started = Box::new(hook);
        self
    }
}

impl ISyncTask for SyncHooks {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        (self.execute)(ctx)
    }

    fn acquire_input<'c>(
        &mut self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        match (self.acquire)(index, ctx)? {
            Some(shown) => Ok(Some(ctx.view(shown)?)),
            None => Ok(None),
        }
    }

    fn release_output(&mut self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        (self.release)(index, ctx)
    }

    fn cancel_input(&mut self, index: usize, ctx: &mut AcquireCtx<'_>) {
        (self.cancel)(index, ctx);
    }

    fn run_started(&mut self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        (self.started)(ctx)
    }
}

/// A factory that infers what it is told, true or not, and creates with a closure.
#[derive(Debug)]
pub struct Factory<F> {
    infer: InferResult,
    create: F,
}

impl<F> Factory<F> {
    /// The factory.
    #[must_use]
    pub fn new(infer: InferResult, create: F) -> Self {
        Self { infer, create }
    }
}

impl<F> IAsyncTaskFactory for Factory<F>
where
    F: Fn(&mut CreateCtx<'_>) -> TaskResult<AsyncHooks> + Send + Sync,
{
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Attacks.")
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(self.infer.clone())
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new((self.create)(ctx)?))
    }
}

impl<F> ISyncTaskFactory for Factory<F>
where
    F: Fn(&mut CreateCtx<'_>) -> TaskResult<SyncHooks> + Send + Sync,
{
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Attacks.")
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(self.infer.clone())
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new((self.create)(ctx)?))
    }
}

/// Four bytes on the host: the frame of most attacks.
#[must_use]
pub fn frame() -> TDesc {
    TDesc::host::<u8>([4]).expect("four bytes are no overflow")
}

/// A harness builder for the node under attack.
#[must_use]
pub fn builder() -> HarnessBuilder {
    TaskHarness::builder().name(NODE)
}

/// Builds an async task whose one input and one output are owned, both a [`frame`].
///
/// # Errors
/// What the harness says.
pub fn owner(
    create: impl Fn(&mut CreateCtx<'_>) -> TaskResult<AsyncHooks> + Send + Sync,
) -> Result<TaskHarness, HookError> {
    let infer = InferResult::asynchronous([frame()], [frame()])
        .owning_inputs()
        .owning_outputs();
    asynchronous(infer, [frame()], create)
}

/// Builds an honest [`AsyncHooks::limiter`], dishonest where `change` makes it so.
///
/// # Errors
/// What the harness says.
pub fn limiter(
    change: impl Fn(AsyncHooks, &Arc<RegionSlot>) -> AsyncHooks + Send + Sync,
) -> Result<TaskHarness, HookError> {
    owner(move |ctx| {
        let region = ctx.region_for(&frame())?;
        let slot = Arc::new(RegionSlot::new(ctx.sides(), region)?);
        Ok(change(AsyncHooks::limiter(&slot), &slot))
    })
}

/// Builds an async task that infers `infer` for `inputs`.
///
/// # Errors
/// What the harness says.
pub fn asynchronous(
    infer: InferResult,
    inputs: impl IntoIterator<Item = TDesc>,
    create: impl Fn(&mut CreateCtx<'_>) -> TaskResult<AsyncHooks> + Send + Sync,
) -> Result<TaskHarness, HookError> {
    builder().asynchronous(&Factory::new(infer, create), json!({}), inputs)
}

/// Builds a sync task that infers `infer` for `inputs`.
///
/// # Errors
/// What the harness says.
pub fn sync(
    infer: InferResult,
    inputs: impl IntoIterator<Item = TDesc>,
    create: impl Fn(&mut CreateCtx<'_>) -> TaskResult<SyncHooks> + Send + Sync,
) -> Result<TaskHarness, HookError> {
    builder().sync(&Factory::new(infer, create), json!({}), inputs)
}

/// A region of plain host memory that belongs to nobody's task.
///
/// # Panics
/// If there is no memory.
#[must_use]
pub fn stray(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .expect("a few bytes can be had")
        .into_region()
}

/// A place that outlives the harness, in which a task hides what it should not keep.
#[derive(Debug)]
pub struct Stash<T>(Arc<Mutex<Vec<T>>>);

impl<T> Stash<T> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Hides `value`.
    pub fn hide(&self, value: T) {
        self.lock().push(value);
    }

    /// Takes out what was hidden last, if anything is.
    #[must_use]
    pub fn find(&self) -> Option<T> {
        self.lock().pop()
    }

    /// Takes out what was hidden last.
    ///
    /// # Panics
    /// If nothing is hidden.
    #[must_use]
    pub fn seek(&self) -> T {
        self.find().expect("the task hid something")
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Stash<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Stash<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Asserts that `error` names node, hook and slot, each in its message too.
///
/// # Panics
/// If it does not.
pub fn named(error: &HookError, hook: Hook, slot: impl Into<Option<Slot>>) {
    let text = format!("{error:#}");
    assert_eq!(error.node, NODE, "{text}");
    assert_eq!(error.hook, hook, "{text}");
    assert!(text.contains(&format!("node `{NODE}`")), "{text}");
    assert!(text.contains(&format!(", {hook}: ")), "{text}");
    if let Some(slot) = slot.into() {
        assert!(text.contains(&slot.to_string()), "no {slot} in: {text}");
    }
}

/// Asserts that all memory counted by `ledger` came back, and rightly.
///
/// # Panics
/// If it did not.
pub fn nothing_leaks(ledger: &Ledger) {
    let counts = ledger.counts();
    assert_eq!(counts.live_blocks, 0, "memory leaked: {counts:?}");
    assert_eq!(counts.faults, 0, "memory came back wrongly: {counts:?}");
}

/// Asserts that a hook failed with a broken rule of this shape, and that the message
/// names node, hook and slot.
///
/// ```
/// use holoflow::storage::{ContractError, Slot};
/// use holoflow::task::Hook;
/// use holoflow_soundness::{broken, fixture};
///
/// let mut task = fixture::limiter(|hooks, _| hooks)?;
/// let error = task.producer().try_push().unwrap_err();
/// broken!(error, Hook::TryPush, Slot::Input(0), ContractError::Order { .. });
/// # Ok::<(), holoflow::task::HookError>(())
/// ```
#[macro_export]
macro_rules! broken {
    ($error:expr, $hook:expr, $slot:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error = &$error;
        $crate::fixture::named(error, $hook, $slot);
        assert!(
            matches!(error.contract(), Some($pattern) $(if $guard)?),
            "another rule: {error:#}"
        );
    }};
}
