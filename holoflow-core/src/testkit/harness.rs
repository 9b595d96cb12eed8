//! Runs one task: no scheduler, no threads.
//!
//! The harness plays both sections around a task. It makes the cells, lends storage for
//! borrowed slots, calls hooks through the same [`Port`] that the scheduler uses, and
//! plays upstream (writing inputs) and downstream (reading outputs). So what passes here
//! met the contract, and what breaks it gets the same error as in a pipeline.
//!
//! What it does not do: decide when a hook is due. Hooks are called in the order the test
//! asks for, and a wrong order is an error value.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Wake, Waker};

use serde_json::Value;

use super::{Ledger, LedgerCounts};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::device::Stream;
use crate::memory::{Address, HostProvider, Memory, MemoryProvider};
use crate::storage::{
    Alias, CellBank, ContractError, Sides, Slot, SlotSpec, SlotTable, Storage, TaskBuffer,
};
use crate::sync::{Arc, Mutex};
use crate::task::port::{AnyTask, LooseTask, Poison, Port, drop_guarded};
use crate::task::{
    Aliasing, CreateCtx, Event, Flow, FrameMeta, Hook, HookError, IAsyncTask, IAsyncTaskFactory,
    ISyncTaskFactory, InferError, InferResult, Mailbox, NodeCtx, OpResult, StopFlags, TaskError,
    TaskKind, TaskRequest,
};
use crate::tensor::{Element, TDesc};

/// Runs one task under a test's control.
///
/// ```
/// use holoflow_core::task::{
///     CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, OpResult, SyncCtx, TaskInfo,
///     TaskRequest, TaskResult,
/// };
/// use holoflow_core::tensor::TDesc;
/// use holoflow_core::testkit::TaskHarness;
///
/// struct Double;
/// impl ISyncTask for Double {
///     fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
///         let x = ctx.inputs.get::<f32>(0)?;
///         let y = ctx.outputs.get_mut::<f32>(0)?;
///         y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
///         Ok(OpResult::Ok)
///     }
/// }
/// impl ISyncTaskFactory for Double {
///     fn describe(&self) -> TaskInfo {
///         TaskInfo::new("Doubles every element.")
///     }
///     fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
///         let [x] = request.exactly::<1>()?;
///         Ok(InferResult::sync([x.clone()], [x.clone()]))
///     }
///     fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
///         Ok(Box::new(Double))
///     }
/// }
///
/// let mut task = TaskHarness::sync(&Double, serde_json::json!({}), [TDesc::host::<f32>([3])?])?;
/// assert_eq!(task.run::<f32, f32>(&[1.0, 2.0, 3.0])?, Some(vec![2.0, 4.0, 6.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TaskHarness {
    faces: Faces,
    infer: InferResult,
    shared: Shared,
}

/// A sync task is in one section, an async task between two.
#[derive(Debug)]
enum Faces {
    Sync(Box<HarnessSide>),
    Async(Box<(HarnessSide, HarnessSide)>),
}

/// What both sides share.
#[derive(Debug, Clone)]
struct Shared {
    name: Arc<str>,
    clock: ManualClock,
    stop: Arc<StopFlags>,
    events_in: Mailbox,
    events_out: Mailbox,
    wakes: Arc<WakeCount>,
    ledger: Ledger,
    flow: Option<Flow>,
    /// Metadata of frames pushed and not popped.
    meta: Arc<Mutex<VecDeque<FrameMeta>>>,
}

#[derive(Debug, Default)]
struct WakeCount(Mutex<u64>);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        *self.0.lock() += 1;
    }
}

/// What happened so far in a [`TaskHarness`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HarnessReport {
    /// Owned inputs that the task lent to its upstream.
    pub lent: u64,
    /// Lent inputs that were taken back unused.
    pub cancelled: u64,
    /// Frames that `try_push` or `execute` took.
    pub pushed: u64,
    /// Frames that `try_pop` or `execute` gave.
    pub popped: u64,
    /// Owned outputs that the task published.
    pub published: u64,
    /// Owned outputs that were released.
    pub released: u64,
    /// Frames that the task said it dropped.
    pub dropped: u64,
    /// Bytes that the task copied with [`NodeCtx::copy`].
    pub copied_bytes: u64,
    /// Host memory that the task and its borrowed slots took.
    pub memory: LedgerCounts,
}

/// Settings of a [`TaskHarness`] beyond the usual.
#[derive(Debug)]
pub struct HarnessBuilder {
    name: String,
    memory: Memory,
    producer_stream: Option<Arc<dyn Stream>>,
    consumer_stream: Option<Arc<dyn Stream>>,
    mailbox: usize,
    ties: Vec<(usize, usize)>,
}

impl HarnessBuilder {
    /// Name of the node, as errors show it; `task` unless set.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds memory of another location than the host.
    #[must_use]
    pub fn memory(mut self, provider: Arc<dyn MemoryProvider>) -> Self {
        self.memory = self.memory.with(provider);
        self
    }

    /// The streams of the section before and the section after the task; a sync task has
    /// the first.
    #[must_use]
    pub fn streams(mut self, producer: Arc<dyn Stream>, consumer: Arc<dyn Stream>) -> Self {
        self.producer_stream = Some(producer);
        self.consumer_stream = Some(consumer);
        self
    }

    /// Capacity of the node's mailboxes, in events; 64 unless set.
    #[must_use]
    pub fn mailbox(mut self, capacity: usize) -> Self {
        self.mailbox = capacity;
        self
    }

    /// Connects one upstream tensor to two inputs: input `second` shows the bytes of input
    /// `first`.
    #[must_use]
    pub fn tie_inputs(mut self, first: usize, second: usize) -> Self {
        self.ties.push((first, second));
        self
    }

    /// Infers and creates a sync task, and starts a run.
    ///
    /// # Errors
    /// What the factory or the check of its inference says.
    pub fn sync(
        self,
        factory: &dyn ISyncTaskFactory,
        settings: Value,
        inputs: impl IntoIterator<Item = TDesc>,
    ) -> Result<TaskHarness, HookError> {
        let inputs: Vec<_> = inputs.into_iter().collect();
        let request = TaskRequest::new(&self.name, &settings, &inputs);
        let infer = self.infer(TaskKind::Sync, inputs.len(), || factory.infer(&request))?;
        let sides = Sides::new();
        let shared = self.shared(&infer);
        let memory = self.counted(&shared.ledger);
        let stream = self.producer_stream.as_ref();
        let mut ctx = CreateCtx::new(&self.name, &memory, &sides, stream, stream);
        let task = guarded(|| factory.create(&request, &mut ctx))
            .map_err(|error| self.error(Hook::Create, error))?;
        let node = shared.node(&memory, stream);
        let plan = Plan::new(&infer, &inputs, &self.ties, true, true);
        let side = HarnessSide::new(&shared, &memory, plan, |bank, inputs, outputs| {
            Port::sync(task, sides.into_parts(), node, bank, inputs, outputs)
        });
        let mut side = side.map_err(|error| self.error(Hook::Create, error))?;
        side.port.allow_skip(infer.may_skip);
        TaskHarness {
            faces: Faces::Sync(Box::new(side)),
            infer,
            shared,
        }
        .started()
    }

    /// Infers and creates an async task, and starts a run.
    ///
    /// # Errors
    /// What the factory or the check of its inference says.
    pub fn asynchronous(
        self,
        factory: &dyn IAsyncTaskFactory,
        settings: Value,
        inputs: impl IntoIterator<Item = TDesc>,
    ) -> Result<TaskHarness, HookError> {
        self.async_over(None, factory, settings, inputs.into_iter().collect())
    }

    /// Infers an async task, updates that of `old` to it, and starts a run, as a recompilation
    /// does: what is acquired or popped is gone. A task of `old` that panicked, or is not async,
    /// is not updated but made anew.
    ///
    /// # Errors
    /// What the factory or the check of its inference says.
    pub fn update(
        self,
        old: TaskHarness,
        factory: &dyn IAsyncTaskFactory,
        settings: Value,
        inputs: impl IntoIterator<Item = TDesc>,
    ) -> Result<TaskHarness, HookError> {
        self.async_over(Some(old), factory, settings, inputs.into_iter().collect())
    }

    fn async_over(
        self,
        old: Option<TaskHarness>,
        factory: &dyn IAsyncTaskFactory,
        settings: Value,
        inputs: Vec<TDesc>,
    ) -> Result<TaskHarness, HookError> {
        let request = TaskRequest::new(&self.name, &settings, &inputs);
        let infer = self.infer(TaskKind::Async, inputs.len(), || factory.infer(&request))?;
        let sides = Sides::new();
        let shared = self.shared(&infer);
        let memory = self.counted(&shared.ledger);
        let (before, after) = (self.producer_stream.as_ref(), self.consumer_stream.as_ref());
        let mut ctx = CreateCtx::new(&self.name, &memory, &sides, before, after);
        let task = match old.and_then(TaskHarness::into_async_task) {
            None => guarded(|| factory.create(&request, &mut ctx))
                .map_err(|error| self.error(Hook::Create, error))?,
            Some(old) => guarded(|| factory.update(old, &request, &mut ctx))
                .map_err(|error| self.error(Hook::Update, error))?,
        };
        let task: Arc<dyn IAsyncTask> = Arc::from(task);
        let (producer, consumer) = sides.into_parts();
        let poison = Poison::default();

        let plan = Plan::new(&infer, &inputs, &self.ties, true, false);
        let node = shared.node(&memory, before);
        let pushed = Arc::clone(&task);
        let push = HarnessSide::new(&shared, &memory, plan, |bank, inputs, _| {
            Port::producer(pushed, poison.clone(), producer, node, bank, inputs)
        });
        let plan = Plan::new(&infer, &inputs, &self.ties, false, true);
        let node = shared.node(&memory, after);
        let pop = HarnessSide::new(&shared, &memory, plan, |bank, _, outputs| {
            Port::consumer(task, poison.clone(), consumer, node, bank, outputs)
        });
        let faces = (
            push.map_err(|error| self.error(Hook::Create, error))?,
            pop.map_err(|error| self.error(Hook::Create, error))?,
        );
        TaskHarness {
            faces: Faces::Async(Box::new(faces)),
            infer,
            shared,
        }
        .started()
    }

    fn error(&self, hook: Hook, error: TaskError) -> HookError {
        HookError::new(&*self.name, hook, error)
    }

    fn infer(
        &self,
        expected: TaskKind,
        inputs: usize,
        infer: impl FnOnce() -> Result<InferResult, TaskError>,
    ) -> Result<InferResult, HookError> {
        let checked = guarded(infer).and_then(|result| {
            if result.kind != expected {
                return Err(InferError::Kind {
                    found: result.kind,
                    expected,
                }
                .into());
            }
            result.check(inputs)?;
            Ok(result)
        });
        checked.map_err(|error| self.error(Hook::Infer, error))
    }

    fn shared(&self, infer: &InferResult) -> Shared {
        Shared {
            name: Arc::from(&*self.name),
            clock: ManualClock::new(),
            stop: Arc::new(StopFlags::new()),
            events_in: Mailbox::new(self.mailbox),
            events_out: Mailbox::new(self.mailbox),
            wakes: Arc::new(WakeCount::default()),
            ledger: Ledger::new(Arc::new(HostProvider)),
            // A task that never makes its producer wait carries metadata itself.
            flow: infer.flow.filter(|flow| flow.capacity != usize::MAX),
            meta: Arc::new(Mutex::new(VecDeque::new())),
        }
    }

    /// The builder's memory, with host memory that `ledger` counts.
    fn counted(&self, ledger: &Ledger) -> Memory {
        self.memory.clone().with(ledger.provider())
    }
}

impl Shared {
    fn node(&self, memory: &Memory, stream: Option<&Arc<dyn Stream>>) -> NodeCtx {
        NodeCtx {
            clock: Arc::new(self.clock.clone()),
            stop: Arc::clone(&self.stop),
            waker: Waker::from(Arc::clone(&self.wakes)),
            events_in: self.events_in.clone(),
            events_out: self.events_out.clone(),
            ..NodeCtx::new(Arc::clone(&self.name), memory.clone(), stream.cloned())
        }
    }
}

/// Runs a function of a task or factory; a panic becomes an error.
fn guarded<R>(f: impl FnOnce() -> Result<R, TaskError>) -> Result<R, TaskError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(TaskError::panicked(payload)))
}

/// The cells around a task, and which slot is in which.
struct Plan {
    cells: Vec<Storage>,
    inputs: Vec<SlotSpec>,
    outputs: Vec<SlotSpec>,
    /// Cells that hold memory for the whole run, with its layout.
    borrowed: Vec<(usize, TDesc)>,
}

impl Plan {
    fn new(
        infer: &InferResult,
        given: &[TDesc],
        ties: &[(usize, usize)],
        with_inputs: bool,
        with_outputs: bool,
    ) -> Self {
        let mut plan = Self {
            cells: vec![],
            inputs: vec![],
            outputs: vec![],
            borrowed: vec![],
        };
        if with_inputs {
            for (index, wanted) in infer.input_descs.iter().enumerate() {
                let owned = infer.owned_inputs[index];
                // A borrowed input has the layout that upstream makes of it.
                let desc = if owned { wanted } else { &given[index] };
                let tied = ties.iter().find(|(first, second)| {
                    *second == index && first < second && infer.owned_inputs[*first] == owned
                });
                let cell = match tied {
                    Some((first, _)) => plan.inputs[*first].cell,
                    None => plan.cell(desc, owned, true),
                };
                let alias = tied.map(|_| Alias::View);
                plan.inputs.push(SlotSpec {
                    desc: desc.clone(),
                    cell,
                    owned,
                    alias,
                });
            }
        }
        if with_outputs {
            for (index, desc) in infer.output_descs.iter().enumerate() {
                let owned = infer.owned_outputs[index];
                let pair = infer.in_place.iter().find(|pair| pair.output == index);
                let (cell, alias) = match pair {
                    // An owned output is published by the task and written by nobody else.
                    None => (plan.cell(desc, owned, !owned), None),
                    Some(pair) => (
                        plan.inputs[pair.input].cell,
                        Some(match pair.aliasing {
                            Aliasing::View => Alias::View,
                            Aliasing::Overwrite => Alias::Overwrite,
                        }),
                    ),
                };
                plan.outputs.push(SlotSpec {
                    desc: desc.clone(),
                    cell,
                    owned,
                    alias,
                });
            }
        }
        plan
    }

    fn cell(&mut self, desc: &TDesc, owned: bool, written: bool) -> usize {
        let cell = self.cells.len();
        self.cells.push(Storage::new(desc.clone(), written));
        if !owned {
            self.borrowed.push((cell, desc.clone()));
        }
        cell
    }
}

/// Gives borrowed slots their memory.
fn lend_borrowed(
    bank: &mut CellBank,
    memory: &Memory,
    borrowed: Vec<(usize, TDesc)>,
) -> Result<(), TaskError> {
    for (cell, desc) in borrowed {
        let region = TaskBuffer::allocate(memory, desc.location(), desc.end())?.into_region();
        if let Some(storage) = bank.cell_mut(cell) {
            storage.publish(region)?;
        }
    }
    Ok(())
}

/// One section beside a task: before it, after it or, for a sync task, around it.
#[derive(Debug)]
pub struct HarnessSide {
    bank: CellBank,
    port: Port,
    /// The task's inputs as their producer sees them.
    upstream: SlotTable,
    /// The task's outputs as their consumer sees them.
    downstream: SlotTable,
    owned_inputs: Vec<usize>,
    owned_outputs: Vec<usize>,
    shared: Shared,
    report: HarnessReport,
}

impl HarnessSide {
    fn new(
        shared: &Shared,
        memory: &Memory,
        plan: Plan,
        port: impl FnOnce(&mut CellBank, Vec<SlotSpec>, Vec<SlotSpec>) -> Result<Port, ContractError>,
    ) -> Result<Self, TaskError> {
        let Plan {
            cells,
            inputs,
            outputs,
            borrowed,
        } = plan;
        let mut bank = CellBank::new(cells);
        if let Err(error) = lend_borrowed(&mut bank, memory, borrowed) {
            // The task is in there, and its drop may panic.
            drop_guarded(port);
            return Err(error);
        }
        let owned = |specs: &[SlotSpec]| {
            (0..specs.len())
                .filter(|index| specs[*index].owned)
                .collect::<Vec<_>>()
        };
        let (given, taken) = (inputs.clone(), outputs.clone());
        // The task's own slots first, so that what is wrong with them is said of them.
        let port = port(&mut bank, inputs, outputs)?;
        let upstream = given.iter().cloned().map(|spec| SlotSpec {
            owned: false,
            ..spec
        });
        let upstream = bank.bind(Vec::new(), upstream.collect())?;
        let downstream = taken.iter().cloned().map(|spec| SlotSpec {
            owned: false,
            alias: None,
            ..spec
        });
        let downstream = bank.bind(downstream.collect(), Vec::new())?;
        Ok(Self {
            owned_inputs: owned(&given),
            owned_outputs: owned(&taken),
            port,
            bank,
            upstream,
            downstream,
            shared: shared.clone(),
            report: HarnessReport::default(),
        })
    }

    fn error(&self, hook: Hook, error: impl Into<TaskError>) -> HookError {
        HookError::new(&*self.shared.name, hook, error)
    }

    /// Calls a hook; a panic poisons the port and becomes an error.
    fn call<R>(
        &mut self,
        hook: Hook,
        f: impl FnOnce(&mut Port, &mut CellBank) -> Result<R, HookError>,
    ) -> Result<R, HookError> {
        let result = catch_unwind(AssertUnwindSafe(|| f(&mut self.port, &mut self.bank)));
        result.unwrap_or_else(|payload| {
            self.port.poison(&mut self.bank);
            Err(self.error(hook, TaskError::panicked(payload)))
        })
    }

    /// Asks for owned input `index` with `acquire_input`; `false` means that the task has no
    /// storage for it now.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract.
    pub fn acquire(&mut self, index: usize) -> Result<bool, HookError> {
        let granted = self.call(Hook::AcquireInput, |port, bank| port.acquire(bank, index))?;
        self.report.lent += u64::from(granted);
        Ok(granted)
    }

    /// Asks for every owned input that is not acquired yet; `false` if one is missing.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_all(&mut self) -> Result<bool, HookError> {
        for index in self.owned_inputs.clone() {
            if !self.port.holds_input(index) && !self.acquire(index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes back every acquired input with `cancel_input`.
    ///
    /// # Errors
    /// If the task panics.
    pub fn cancel_inputs(&mut self) -> Result<(), HookError> {
        self.report.cancelled += self.port.acquired() as u64;
        self.call(Hook::CancelInput, |port, bank| {
            port.cancel(bank);
            Ok(())
        })
    }

    /// The elements of input `index`, to be written as upstream would.
    ///
    /// # Errors
    /// As [`Outputs::get_mut`](crate::storage::Outputs::get_mut); an owned input must be
    /// acquired.
    pub fn input_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T], ContractError> {
        // The task's input is its producer's output: say so in errors.
        let (_, outputs) = self.bank.lend(&self.upstream)?;
        outputs
            .into_mut::<T>(index)
            .map_err(|error| error.about(Slot::Input(index)))
    }

    /// Writes `data` to input `index`.
    ///
    /// # Errors
    /// As [`input_mut`](Self::input_mut), or if the lengths differ.
    pub fn write<T: Element>(&mut self, index: usize, data: &[T]) -> Result<(), TaskError> {
        let input = self.input_mut::<T>(index)?;
        if input.len() != data.len() {
            return Err(TaskError::input(
                index,
                format!("{} elements of data", data.len()),
                input.len(),
            ));
        }
        input.copy_from_slice(data);
        Ok(())
    }

    /// The elements of output `index`, as downstream reads them.
    ///
    /// # Errors
    /// As [`Inputs::get`](crate::storage::Inputs::get); an owned output must be popped.
    pub fn output<T: Element>(&mut self, index: usize) -> Result<&[T], ContractError> {
        let (inputs, _) = self.bank.lend(&self.downstream)?;
        inputs
            .into_ref::<T>(index)
            .map_err(|error| error.about(Slot::Output(index)))
    }

    /// Address of input `index`; `None` while it is not acquired.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn input_address(&mut self, index: usize) -> Result<Option<Address>, ContractError> {
        let (_, outputs) = self.bank.lend(&self.upstream)?;
        let view = outputs
            .view(index)
            .map_err(|error| error.about(Slot::Input(index)))?;
        Ok(view.address())
    }

    /// Address of output `index`; `None` while it is not popped.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn output_address(&mut self, index: usize) -> Result<Option<Address>, ContractError> {
        let (inputs, _) = self.bank.lend(&self.downstream)?;
        let view = inputs
            .view(index)
            .map_err(|error| error.about(Slot::Output(index)))?;
        Ok(view.address())
    }

    /// Sets the metadata of the next frame to be pushed or executed.
    pub fn set_meta(&mut self, meta: FrameMeta) {
        *self.port.node.meta = meta;
    }

    /// Metadata of the last frame.
    #[must_use]
    pub fn meta(&self) -> &FrameMeta {
        &self.port.node.meta
    }

    /// When the last hook that answered `NotReady` will be ready, if it said so.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.port.node.wake_at
    }

    /// Calls `try_push` of an async task.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract.
    pub fn try_push(&mut self) -> Result<OpResult, HookError> {
        let result = self.call(Hook::TryPush, Port::push)?;
        if result == OpResult::Ok {
            self.report.pushed += 1;
            if self.shared.flow.is_some() {
                self.shared
                    .meta
                    .lock()
                    .push_back((*self.port.node.meta).clone());
            }
        }
        Ok(result)
    }

    /// Calls `try_pop` of an async task.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract.
    pub fn try_pop(&mut self) -> Result<OpResult, HookError> {
        if let Some(meta) = self.shared.meta.lock().front() {
            *self.port.node.meta = meta.clone();
        }
        let result = self.call(Hook::TryPop, Port::pop)?;
        if result == OpResult::Ok {
            self.report.popped += 1;
            self.report.published += self.owned_outputs.len() as u64;
            if let Some(flow) = self.shared.flow {
                let mut meta = self.shared.meta.lock();
                let count = flow.frames_per_output.min(meta.len());
                drop(meta.drain(..count));
            }
        }
        Ok(result)
    }

    /// Calls `execute` of a sync task.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract.
    pub fn execute(&mut self) -> Result<OpResult, HookError> {
        let result = self.call(Hook::Execute, Port::execute)?;
        if result == OpResult::Ok {
            self.report.pushed += 1;
            self.report.popped += 1;
            self.report.published += self.owned_outputs.len() as u64;
        }
        Ok(result)
    }

    /// Releases owned output `index` with `release_output`.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract.
    pub fn release(&mut self, index: usize) -> Result<(), HookError> {
        self.call(Hook::ReleaseOutput, |port, bank| port.release(bank, index))?;
        self.report.released += 1;
        Ok(())
    }

    /// Releases every owned output, if they are popped.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_all(&mut self) -> Result<(), HookError> {
        if self.port.is_popped() {
            for index in self.owned_outputs.clone() {
                self.release(index)?;
            }
        }
        Ok(())
    }

    /// Tells an async task that nothing follows on this side.
    ///
    /// # Errors
    /// If the task panics.
    pub fn finish(&mut self) -> Result<(), HookError> {
        self.call(self.port.finish_hook(), |port, _| {
            port.finished();
            Ok(())
        })
    }

    /// Pushes one frame: acquires the inputs, writes `data` to input 0, and calls `try_push`.
    /// `NotReady` also if the task has no storage now. What is not pushed stays acquired.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract, or if `data` does not fit.
    pub fn push<T: Element>(&mut self, data: &[T]) -> Result<OpResult, HookError> {
        if !self.acquire_all()? {
            return Ok(OpResult::NotReady);
        }
        self.write(0, data)
            .map_err(|error| self.error(Hook::TryPush, error))?;
        self.try_push()
    }

    /// Pops one frame: calls `try_pop`, copies output 0, and releases all outputs. `None` if
    /// the result is not `Ok`.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract.
    pub fn pop<T: Element>(&mut self) -> Result<Option<Vec<T>>, HookError> {
        if self.try_pop()? != OpResult::Ok {
            return Ok(None);
        }
        let data = self.output::<T>(0).map(<[T]>::to_vec);
        let data = data.map_err(|error| self.error(Hook::TryPop, error))?;
        self.release_all()?;
        Ok(Some(data))
    }

    /// Executes one frame of a sync task: acquires the inputs, writes `data` to input 0, calls
    /// `execute`, copies output 0, and releases all outputs. `None` if the result is not `Ok`.
    ///
    /// # Errors
    /// What the task says, or how it broke the contract, or if `data` does not fit.
    pub fn run<I: Element, O: Element>(&mut self, data: &[I]) -> Result<Option<Vec<O>>, HookError> {
        if !self.acquire_all()? {
            return Ok(None);
        }
        self.write(0, data)
            .map_err(|error| self.error(Hook::Execute, error))?;
        if self.execute()? != OpResult::Ok {
            return Ok(None);
        }
        let data = self.output::<O>(0).map(<[O]>::to_vec);
        let data = data.map_err(|error| self.error(Hook::Execute, error))?;
        self.release_all()?;
        Ok(Some(data))
    }
}

impl TaskHarness {
    /// A harness with settings beyond the usual.
    #[must_use]
    pub fn builder() -> HarnessBuilder {
        HarnessBuilder {
            name: "task".to_owned(),
            memory: Memory::none(),
            producer_stream: None,
            consumer_stream: None,
            mailbox: Mailbox::DEFAULT_CAPACITY,
            ties: Vec::new(),
        }
    }

    /// Infers and creates a sync task, and starts a run.
    ///
    /// # Errors
    /// What the factory or the check of its inference says.
    pub fn sync(
        factory: &dyn ISyncTaskFactory,
        settings: Value,
        inputs: impl IntoIterator<Item = TDesc>,
    ) -> Result<Self, HookError> {
        Self::builder().sync(factory, settings, inputs)
    }

    /// Infers and creates an async task, and starts a run.
    ///
    /// # Errors
    /// What the factory or the check of its inference says.
    pub fn asynchronous(
        factory: &dyn IAsyncTaskFactory,
        settings: Value,
        inputs: impl IntoIterator<Item = TDesc>,
    ) -> Result<Self, HookError> {
        Self::builder().asynchronous(factory, settings, inputs)
    }

    fn started(mut self) -> Result<Self, HookError> {
        self.start_run()?;
        Ok(self)
    }

    /// The async task alone; `None` if it is not one or has panicked.
    fn into_async_task(self) -> Option<Arc<dyn IAsyncTask>> {
        let Faces::Async(mut sides) = self.faces else {
            return None;
        };
        let (push, pop) = &mut *sides;
        let task = push.port.take_task(&mut push.bank)?;
        drop(pop.port.take_task(&mut pop.bank));
        match task.loose() {
            Some(LooseTask::Async(task)) => Some(task),
            _ => None,
        }
    }

    /// Begins a run: calls `run_started`.
    ///
    /// # Errors
    /// What the task says.
    pub fn start_run(&mut self) -> Result<(), HookError> {
        match &mut self.faces {
            Faces::Sync(side) => side.call(Hook::RunStarted, |port, _| port.run_started()),
            Faces::Async(sides) => at_border(sides, Hook::RunStarted, Port::run_started_async),
        }
    }

    /// Ends a run: calls `run_ended`. What the task has to say of the run, as the node's part
    /// of the run's report has it.
    ///
    /// # Errors
    /// What the task says.
    pub fn end_run(&mut self) -> Result<BTreeMap<String, Value>, HookError> {
        let results = match &mut self.faces {
            Faces::Sync(side) => side.call(Hook::RunEnded, |port, _| port.run_ended()),
            Faces::Async(sides) => at_border(sides, Hook::RunEnded, Port::run_ended_async),
        }?;
        let owned = |(key, value): (&str, Value)| (key.to_owned(), value);
        Ok(results.into_iter().map(owned).collect())
    }

    /// Updates an async task as a recompilation does: `factory` gets the task, and new
    /// settings. The layouts of the slots must stay as they are.
    ///
    /// # Errors
    /// What the factory says; the task is gone then. Or if it is no async task, or the layouts
    /// change.
    pub fn update_async(
        &mut self,
        factory: &dyn IAsyncTaskFactory,
        settings: Value,
    ) -> Result<(), HookError> {
        let name = Arc::clone(&self.shared.name);
        let error = |error: TaskError| HookError::new(&*name, Hook::Update, error);
        let Faces::Async(faces) = &mut self.faces else {
            return Err(error(TaskError::other("it is no async task")));
        };
        let (push, pop) = &mut **faces;
        let inputs = self.infer.input_descs.clone();
        let request = TaskRequest::new(&name, &settings, &inputs);
        let infer = guarded(|| factory.infer(&request)).map_err(error)?;
        if infer.input_descs != inputs || infer.output_descs != self.infer.output_descs {
            let message = "the layouts of its slots would change: make a new harness";
            return Err(error(TaskError::other(message)));
        }
        drop(push.port.take_task(&mut push.bank));
        let old = pop.port.take_task(&mut pop.bank);
        let Some(LooseTask::Async(old)) = old.and_then(AnyTask::loose) else {
            return Err(error(TaskError::other("the task has panicked")));
        };
        let sides = Sides::new();
        let memory = push.port.node.memory.clone();
        let before = push.port.node.stream.clone();
        let after = pop.port.node.stream.clone();
        let mut ctx = CreateCtx::new(&name, &memory, &sides, before.as_ref(), after.as_ref());
        let task = guarded(|| factory.update(old, &request, &mut ctx)).map_err(error)?;
        let task: Arc<dyn IAsyncTask> = Arc::from(task);
        let (producer, consumer) = sides.into_parts();
        let poison = Poison::default();
        push.port
            .renew_producer(Arc::clone(&task), poison.clone(), producer);
        pop.port.renew_consumer(task, poison, consumer);
        self.infer = infer;
        Ok(())
    }

    /// What the factory inferred.
    #[must_use]
    pub fn infer(&self) -> &InferResult {
        &self.infer
    }

    /// The section that pushes; for a sync task the one it is in.
    pub fn producer(&mut self) -> &mut HarnessSide {
        match &mut self.faces {
            Faces::Sync(side) => side,
            Faces::Async(sides) => &mut sides.0,
        }
    }

    /// The section that pops; for a sync task the one it is in.
    pub fn consumer(&mut self) -> &mut HarnessSide {
        match &mut self.faces {
            Faces::Sync(side) => side,
            Faces::Async(sides) => &mut sides.1,
        }
    }

    /// Both sections of an async task, to be used from two threads; `None` for a sync task.
    pub fn split(&mut self) -> Option<(&mut HarnessSide, &mut HarnessSide)> {
        match &mut self.faces {
            Faces::Sync(_) => None,
            Faces::Async(sides) => Some((&mut sides.0, &mut sides.1)),
        }
    }

    /// See [`HarnessSide::push`].
    ///
    /// # Errors
    /// See there.
    pub fn push<T: Element>(&mut self, data: &[T]) -> Result<OpResult, HookError> {
        self.producer().push(data)
    }

    /// See [`HarnessSide::pop`].
    ///
    /// # Errors
    /// See there.
    pub fn pop<T: Element>(&mut self) -> Result<Option<Vec<T>>, HookError> {
        self.consumer().pop()
    }

    /// See [`HarnessSide::run`].
    ///
    /// # Errors
    /// See there.
    pub fn run<I: Element, O: Element>(&mut self, data: &[I]) -> Result<Option<Vec<O>>, HookError> {
        self.producer().run(data)
    }

    /// The clock that the task reads; it stands still until a test moves it.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.shared.clock
    }

    /// Cancels the run, as every hook then sees.
    pub fn cancel(&self) {
        self.shared.stop.cancel();
    }

    /// Asks sources to end, as every hook then sees.
    pub fn finish(&self) {
        self.shared.stop.finish();
    }

    /// Sends an event to the node; `false` if its mailbox is full.
    pub fn send_event(&self, data: Value) -> bool {
        let shared = &self.shared;
        shared.events_in.send(Event::new(
            Arc::clone(&shared.name),
            shared.clock.now(),
            data,
        ))
    }

    /// The next event from the node.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        self.shared.events_out.receive()
    }

    /// How often the task used its wakers.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        *self.shared.wakes.0.lock()
    }

    /// Counts of the host memory that the task and its borrowed slots take, also after the
    /// harness is gone.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.shared.ledger.clone()
    }

    /// What happened so far.
    #[must_use]
    pub fn report(&self) -> HarnessReport {
        let mut report = match &self.faces {
            Faces::Sync(side) => side.report(),
            Faces::Async(sides) => {
                let (push, pop) = (sides.0.report(), sides.1.report());
                HarnessReport {
                    lent: push.lent,
                    cancelled: push.cancelled,
                    pushed: push.pushed,
                    popped: pop.popped,
                    published: pop.published,
                    released: pop.released,
                    dropped: push.dropped.saturating_add(pop.dropped),
                    copied_bytes: push.copied_bytes.saturating_add(pop.copied_bytes),
                    memory: LedgerCounts::default(),
                }
            }
        };
        report.memory = self.shared.ledger.counts();
        report
    }
}

/// Calls a hook that is called while neither side runs; a panic poisons both ports and becomes
/// an error.
fn at_border<R>(
    (push, pop): &mut (HarnessSide, HarnessSide),
    hook: Hook,
    f: impl FnOnce(&mut Port, &mut Port) -> Result<R, HookError>,
) -> Result<R, HookError> {
    let result = catch_unwind(AssertUnwindSafe(|| f(&mut push.port, &mut pop.port)));
    result.unwrap_or_else(|payload| {
        push.port.poison(&mut push.bank);
        pop.port.poison(&mut pop.bank);
        Err(push.error(hook, TaskError::panicked(payload)))
    })
}

impl HarnessSide {
    fn report(&self) -> HarnessReport {
        let node = &self.port.node;
        HarnessReport {
            dropped: node.dropped,
            copied_bytes: node.copied_bytes,
            ..self.report
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "harness_tests.rs"]
mod tests;
