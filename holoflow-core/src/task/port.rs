//! One node's face to its section: what a scheduler or the test kit calls hooks through.
//!
//! A port holds a task (or one side of an async task), its slots, its side's token and
//! its [`NodeCtx`]. It builds the context of each call and holds the task to the
//! contract: after every hook it compares the cells of owned slots with what the result
//! promises. A broken promise is a [`ContractError`] with node, hook and slot.
//!
//! What it does not know: when a hook is due, and what other nodes do. It does not catch
//! panics: the caller does, once around a whole turn, and then calls [`Port::poison`].
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **PT1** An acquired input is pushed (or executed), or cancelled, exactly once.
//! - **PT2** A popped output group is released before the next pop.
//! - **PT3** After a hook, the cells of owned slots are as its result says, or the port
//!   has emptied them and returned an error.
//! - **PT4** A task that panicked gets no further hook, and its cells are empty.
//!
//! A port is used by its section's thread only.

use serde_json::Value;

pub(crate) use super::error::drop_guarded;
use super::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, Hook, HookError, IAsyncTask, ISyncTask, NodeCtx,
    OpResult, ReleaseCtx, RunCtx, SyncCtx, TaskError, TaskErrorKind, TaskResult,
};
use crate::memory::Address;
use crate::storage::{
    CellBank, ConsumerSide, ContractError, ProducerSide, Slot, SlotSpec, SlotTable, Storage,
    TaskBuffer,
};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

/// One node in one section.
#[derive(Debug)]
pub(crate) struct Port {
    task: PortTask,
    pub(crate) node: NodeCtx,
    table: SlotTable,
    inputs: Box<[OwnedSlot]>,
    outputs: Box<[OwnedSlot]>,
    /// Numbers in `inputs` of what is acquired, in order of acquisition.
    acquired: Vec<usize>,
    may_skip: bool,
    /// A sync task that owns no slot: its cells are not the port's concern.
    plain: bool,
    /// The task has panicked in a hook of this port.
    dead: bool,
    /// Whether it is the port of an async task's pop side.
    consumer: bool,
    /// Of an async task that has one side only: the token of the other.
    other: Option<OtherSide>,
    poison: Poison,
}

/// One side's token, borrowed.
enum SideRef<'a> {
    Producer(&'a mut ProducerSide),
    Consumer(&'a mut ConsumerSide),
}

/// The token of a side that an async task does not have.
#[derive(Debug)]
pub(crate) enum OtherSide {
    Producer(ProducerSide),
    Consumer(ConsumerSide),
}

/// Whether a task has panicked; the two ports of an async task share one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Poison(Arc<AtomicBool>);

/// A task outside its ports. Its drop may panic; that must not unwind out of a compilation.
#[derive(Debug)]
pub(crate) struct AnyTask(Option<LooseTask>);

/// A task that nothing guards.
#[derive(Debug)]
pub(crate) enum LooseTask {
    Sync(Box<dyn ISyncTask>),
    Async(Arc<dyn IAsyncTask>),
}

impl AnyTask {
    /// The task itself. There always is one: only `loose` takes it out.
    pub(crate) fn loose(mut self) -> Option<LooseTask> {
        self.0.take()
    }
}

impl From<LooseTask> for AnyTask {
    fn from(task: LooseTask) -> Self {
        Self(Some(task))
    }
}

impl Drop for AnyTask {
    fn drop(&mut self) {
        drop_guarded(self.0.take());
    }
}

/// The task, or the side of it, that a port calls.
#[derive(Debug)]
enum PortTask {
    Sync {
        task: Box<dyn ISyncTask>,
        producer: ProducerSide,
        consumer: ConsumerSide,
    },
    /// Taken out: for an update, or while the port is being dropped.
    Gone,
    Producer {
        task: Arc<dyn IAsyncTask>,
        side: ProducerSide,
    },
    Consumer {
        task: Arc<dyn IAsyncTask>,
        side: ConsumerSide,
    },
}

/// An owned slot and what the section has of it.
#[derive(Debug)]
struct OwnedSlot {
    slot: usize,
    cell: usize,
    /// Address of the region that is acquired, or popped and not released.
    held: Option<Address>,
}

fn owned(specs: &[SlotSpec]) -> Box<[OwnedSlot]> {
    specs
        .iter()
        .enumerate()
        .filter(|(_, spec)| spec.owned)
        .map(|(slot, spec)| OwnedSlot {
            slot,
            cell: spec.cell,
            held: None,
        })
        .collect()
}

impl Port {
    /// The port of a sync task.
    pub(crate) fn sync(
        task: Box<dyn ISyncTask>,
        sides: (ProducerSide, ConsumerSide),
        node: NodeCtx,
        bank: &mut CellBank,
        inputs: Vec<SlotSpec>,
        outputs: Vec<SlotSpec>,
    ) -> Result<Self, ContractError> {
        let (producer, consumer) = sides;
        let task = PortTask::Sync {
            task,
            producer,
            consumer,
        };
        Self::new(task, Poison::default(), node, bank, inputs, outputs)
    }

    /// The port of an async task's push side.
    pub(crate) fn producer(
        task: Arc<dyn IAsyncTask>,
        poison: Poison,
        side: ProducerSide,
        node: NodeCtx,
        bank: &mut CellBank,
        inputs: Vec<SlotSpec>,
    ) -> Result<Self, ContractError> {
        Self::new(
            PortTask::Producer { task, side },
            poison,
            node,
            bank,
            inputs,
            Vec::new(),
        )
    }

    /// The port of an async task's pop side.
    pub(crate) fn consumer(
        task: Arc<dyn IAsyncTask>,
        poison: Poison,
        side: ConsumerSide,
        node: NodeCtx,
        bank: &mut CellBank,
        outputs: Vec<SlotSpec>,
    ) -> Result<Self, ContractError> {
        Self::new(
            PortTask::Consumer { task, side },
            poison,
            node,
            bank,
            Vec::new(),
            outputs,
        )
    }

    fn new(
        task: PortTask,
        poison: Poison,
        node: NodeCtx,
        bank: &mut CellBank,
        inputs: Vec<SlotSpec>,
        outputs: Vec<SlotSpec>,
    ) -> Result<Self, ContractError> {
        let (owned_inputs, owned_outputs) = (owned(&inputs), owned(&outputs));
        let consumer = matches!(task, PortTask::Consumer { .. });
        let plain = matches!(task, PortTask::Sync { .. })
            && owned_inputs.is_empty()
            && owned_outputs.is_empty();
        let table = match bank.bind(inputs, outputs) {
            Ok(table) => table,
            Err(error) => {
                drop_guarded(task);
                return Err(error);
            }
        };
        Ok(Self {
            task,
            node,
            table,
            acquired: Vec::with_capacity(owned_inputs.len()),
            inputs: owned_inputs,
            outputs: owned_outputs,
            may_skip: false,
            plain,
            dead: false,
            consumer,
            other: None,
            poison,
        })
    }

    /// Whether it is the port of an async task's pop side, also while the task is taken out.
    pub(crate) fn is_consumer(&self) -> bool {
        self.consumer
    }

    /// Whether `execute` may answer `Skip`.
    pub(crate) fn allow_skip(&mut self, may_skip: bool) {
        self.may_skip = may_skip;
    }

    /// Whether it keeps the token of a side that its task does not have.
    pub(crate) fn has_other_side(&self) -> bool {
        self.other.is_some()
    }

    /// Keeps the token of the side that the async task of this port does not have.
    pub(crate) fn keep_other_side(&mut self, other: OtherSide) {
        self.other = Some(other);
    }

    /// Numbers of the owned inputs, ascending.
    pub(crate) fn owned_inputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.inputs.iter().map(|input| input.slot)
    }

    /// Numbers of the owned outputs, ascending.
    pub(crate) fn owned_outputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.outputs.iter().map(|output| output.slot)
    }

    /// Whether owned output `index` is published and not released.
    pub(crate) fn holds_output(&self, index: usize) -> bool {
        self.outputs
            .iter()
            .any(|output| output.slot == index && output.held.is_some())
    }

    /// Fills the cells of owned inputs with memory that is nobody's, so that the section can
    /// go on without the task.
    pub(crate) fn lend_spare(&mut self, bank: &mut CellBank) -> TaskResult<()> {
        for input in &self.inputs {
            let Some(cell) = bank.cell_mut(input.cell) else {
                continue;
            };
            if !cell.is_published() {
                let location = cell.view().desc().location();
                let buffer = TaskBuffer::allocate(&self.node.memory, location, cell.bytes())?;
                cell.publish(buffer.into_region())?;
            }
        }
        Ok(())
    }

    /// Takes back what `lend_spare` has lent.
    pub(crate) fn take_spare(&mut self, bank: &mut CellBank) {
        for input in &self.inputs {
            if input.held.is_none() {
                empty(bank, input);
            }
        }
    }

    /// Takes the task out, for an update; `None` if it has panicked, so that nobody gets it
    /// again. What was acquired or popped is gone: the cells of owned slots are empty. An async
    /// task is in two ports, and alone once it has left both.
    pub(crate) fn take_task(&mut self, bank: &mut CellBank) -> Option<AnyTask> {
        self.acquired.clear();
        for slot in self.inputs.iter_mut().chain(&mut self.outputs) {
            slot.held = None;
            empty(bank, slot);
        }
        let task = match std::mem::replace(&mut self.task, PortTask::Gone) {
            PortTask::Sync { task, .. } => Some(LooseTask::Sync(task).into()),
            PortTask::Producer { task, .. } | PortTask::Consumer { task, .. } => {
                Some(LooseTask::Async(task).into())
            }
            PortTask::Gone => None,
        };
        task.filter(|_| !self.is_poisoned())
    }

    /// Puts another sync task in the place of one that was taken out.
    pub(crate) fn renew_sync(
        &mut self,
        task: Box<dyn ISyncTask>,
        sides: (ProducerSide, ConsumerSide),
    ) {
        self.dead = false;
        let (producer, consumer) = sides;
        self.poison = Poison::default();
        self.task = PortTask::Sync {
            task,
            producer,
            consumer,
        };
    }

    /// Puts another async task's push side in the place of one that was taken out.
    pub(crate) fn renew_producer(
        &mut self,
        task: Arc<dyn IAsyncTask>,
        poison: Poison,
        side: ProducerSide,
    ) {
        self.dead = false;
        self.poison = poison;
        self.task = PortTask::Producer { task, side };
    }

    /// Puts another async task's pop side in the place of one that was taken out.
    pub(crate) fn renew_consumer(
        &mut self,
        task: Arc<dyn IAsyncTask>,
        poison: Poison,
        side: ConsumerSide,
    ) {
        self.dead = false;
        self.poison = poison;
        self.task = PortTask::Consumer { task, side };
    }

    /// Whether owned input `index` is acquired.
    pub(crate) fn holds_input(&self, index: usize) -> bool {
        self.inputs
            .iter()
            .any(|input| input.slot == index && input.held.is_some())
    }

    /// How many inputs are acquired.
    #[cfg(feature = "testkit")]
    pub(crate) fn acquired(&self) -> usize {
        self.acquired.len()
    }

    /// Whether owned outputs are popped and not all released.
    #[cfg(feature = "testkit")]
    pub(crate) fn is_popped(&self) -> bool {
        self.outputs.iter().any(|output| output.held.is_some())
    }

    /// Whether the task has panicked, on either side.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.0.load(Ordering::Acquire)
    }

    #[cold]
    #[inline(never)]
    fn error(&self, hook: Hook, error: impl Into<TaskError>) -> HookError {
        HookError::new(&*self.node.name, hook, error)
    }

    fn order(
        &self,
        hook: Hook,
        slot: Slot,
        found: &'static str,
        expected: &'static str,
    ) -> HookError {
        self.error(
            hook,
            ContractError::Order {
                slot,
                found,
                expected,
            },
        )
    }

    #[inline]
    fn check_alive(&self, hook: Hook) -> Result<(), HookError> {
        if self.is_poisoned() {
            return Err(self.poisoned(hook));
        }
        Ok(())
    }

    #[cold]
    fn poisoned(&self, hook: Hook) -> HookError {
        let message = "it gets no further hook".to_owned();
        self.error(hook, TaskErrorKind::Panicked { message })
    }

    /// Tells a sync task, or an async task with this one port, that a run begins.
    pub(crate) fn run_started(&mut self) -> Result<(), HookError> {
        self.at_border(None, Hook::RunStarted).map(drop)
    }

    /// Tells an async task, whose two ports these are, that a run begins.
    pub(crate) fn run_started_async(
        producer: &mut Self,
        consumer: &mut Self,
    ) -> Result<(), HookError> {
        producer
            .at_border(Some(consumer), Hook::RunStarted)
            .map(drop)
    }

    /// Tells a sync task, or an async task with this one port, that a run has ended; what it
    /// has to say of it. A task that has panicked is not told.
    pub(crate) fn run_ended(&mut self) -> Result<Vec<(&'static str, Value)>, HookError> {
        if self.is_poisoned() {
            return Ok(Vec::new());
        }
        self.at_border(None, Hook::RunEnded)
    }

    /// Tells an async task, whose two ports these are, that a run has ended.
    pub(crate) fn run_ended_async(
        producer: &mut Self,
        consumer: &mut Self,
    ) -> Result<Vec<(&'static str, Value)>, HookError> {
        if producer.is_poisoned() {
            return Ok(Vec::new());
        }
        producer.at_border(Some(consumer), Hook::RunEnded)
    }

    /// Calls a hook that is called while neither side runs.
    fn at_border(
        &mut self,
        consumer: Option<&mut Self>,
        hook: Hook,
    ) -> Result<Vec<(&'static str, Value)>, HookError> {
        self.check_alive(hook)?;
        let mut results = Vec::new();
        let run = (&*self.node.clock, &*self.node.stop);
        let other = match consumer {
            Some(consumer) => match &mut consumer.task {
                PortTask::Consumer { side, .. } => Some(SideRef::Consumer(side)),
                _ => None,
            },
            None => self.other.as_mut().map(|other| match other {
                OtherSide::Producer(side) => SideRef::Producer(side),
                OtherSide::Consumer(side) => SideRef::Consumer(side),
            }),
        };
        let result = match (&mut self.task, other) {
            (
                PortTask::Sync {
                    task,
                    producer,
                    consumer,
                },
                _,
            ) => {
                let mut ctx = RunCtx::new(producer, consumer, run, &mut results);
                match hook {
                    Hook::RunStarted => task.run_started(&mut ctx),
                    _ => task.run_ended(&mut ctx),
                }
            }
            (PortTask::Producer { task, side }, Some(SideRef::Consumer(other))) => {
                let mut ctx = RunCtx::new(side, other, run, &mut results);
                match hook {
                    Hook::RunStarted => task.run_started(&mut ctx),
                    _ => task.run_ended(&mut ctx),
                }
            }
            (PortTask::Consumer { task, side }, Some(SideRef::Producer(other))) => {
                let mut ctx = RunCtx::new(other, side, run, &mut results);
                match hook {
                    Hook::RunStarted => task.run_started(&mut ctx),
                    _ => task.run_ended(&mut ctx),
                }
            }
            _ => Ok(()),
        };
        match result {
            Ok(()) => Ok(results),
            Err(error) => Err(self.error(hook, error)),
        }
    }

    /// Asks for owned input `index`. `false`: there is no storage now.
    pub(crate) fn acquire(&mut self, bank: &mut CellBank, index: usize) -> Result<bool, HookError> {
        const HOOK: Hook = Hook::AcquireInput;
        let slot = Slot::Input(index);
        self.check_alive(HOOK)?;
        let position = self.inputs.iter().position(|input| input.slot == index);
        if let Some(position) = position
            && self.inputs[position].held.is_some()
        {
            return Err(self.order(
                HOOK,
                slot,
                "it is acquired already",
                "it must be pushed or cancelled before it is acquired again",
            ));
        }
        self.node.wake_at = None;
        let granted = {
            let node = &mut self.node;
            let lent = match bank.lend(&self.table) {
                Ok(lent) => lent,
                Err(error) => return Err(self.error(HOOK, error)),
            };
            let view = match &mut self.task {
                PortTask::Sync { task, producer, .. } => task
                    .acquire_input(index, &mut AcquireCtx::new(lent, producer, node, index))
                    .map(|view| view.map(|view| std::ptr::from_ref(view.storage()))),
                PortTask::Producer { task, side } => task
                    .acquire_input(index, &mut AcquireCtx::new(lent, side, node, index))
                    .map(|view| view.map(|view| std::ptr::from_ref(view.storage()))),
                PortTask::Consumer { .. } | PortTask::Gone => {
                    Err(ContractError::WrongSide { slot }.into())
                }
            };
            view.map(|view| view.map(<*const Storage>::addr))
        };
        let Some(position) = position else {
            // The hook of an unowned slot was called, which only the test kit does.
            let error = match granted {
                Err(error) => error,
                Ok(_) => ContractError::SlotNotOwned { slot }.into(),
            };
            return Err(self.error(HOOK, error));
        };
        let cell = self.inputs[position].cell;
        let (address, cell) = match bank.cell_mut(cell) {
            Some(storage) => {
                let address = storage.region().map(crate::storage::Region::address);
                (address, std::ptr::from_ref(storage).addr())
            }
            None => (None, 0),
        };
        let broken = match (granted, address) {
            (Ok(Some(view)), Some(address)) if view == cell => {
                self.inputs[position].held = Some(address);
                self.acquired.push(position);
                return Ok(true);
            }
            (Ok(None), None) => return Ok(false),
            (Ok(Some(_)), Some(_)) => self.order(
                HOOK,
                slot,
                "the view returned is of another slot",
                "it must be of the slot asked for",
            ),
            (Ok(Some(_)), None) => self.order(
                HOOK,
                slot,
                "a view was returned and nothing is published",
                "the region must be published first",
            ),
            (Ok(None), Some(_)) => self.order(
                HOOK,
                slot,
                "nothing was granted and a region is published",
                "the cell must be empty",
            ),
            (Err(error), _) => self.error(HOOK, error),
        };
        empty(bank, &self.inputs[position]);
        Err(broken)
    }

    /// Takes back every acquired input, in reverse order of acquisition.
    pub(crate) fn cancel(&mut self, bank: &mut CellBank) {
        while let Some(position) = self.acquired.pop() {
            let slot = self.inputs[position].slot;
            self.inputs[position].held = None;
            if !self.is_poisoned()
                && let Ok(lent) = bank.lend(&self.table)
            {
                let node = &mut self.node;
                match &mut self.task {
                    PortTask::Sync { task, producer, .. } => {
                        task.cancel_input(slot, &mut AcquireCtx::new(lent, producer, node, slot));
                    }
                    PortTask::Producer { task, side } => {
                        task.cancel_input(slot, &mut AcquireCtx::new(lent, side, node, slot));
                    }
                    PortTask::Consumer { .. } | PortTask::Gone => {}
                }
            }
            empty(bank, &self.inputs[position]);
        }
    }

    /// Pushes the acquired and filled inputs.
    pub(crate) fn push(&mut self, bank: &mut CellBank) -> Result<OpResult, HookError> {
        const HOOK: Hook = Hook::TryPush;
        self.check_alive(HOOK)?;
        self.check_acquired(HOOK)?;
        self.node.wake_at = None;
        let result = match (&mut self.task, bank.lend(&self.table)) {
            (PortTask::Producer { task, side }, Ok(lent)) => {
                task.try_push(&mut AsyncPushCtx::new(lent, side, &mut self.node))
            }
            (_, Err(error)) => Err(error.into()),
            (_, Ok(_)) => Err(wrong_port("try_push", "the push side of an async task")),
        };
        if let Ok(OpResult::Skip) = result {
            self.cancel(bank);
            return Err(self.error(HOOK, STRAY_SKIP));
        }
        self.settle_inputs(HOOK, bank, &result)?;
        result.map_err(|error| self.error(HOOK, error))
    }

    /// Pops the outputs.
    pub(crate) fn pop(&mut self, bank: &mut CellBank) -> Result<OpResult, HookError> {
        const HOOK: Hook = Hook::TryPop;
        self.check_alive(HOOK)?;
        self.check_released(HOOK)?;
        self.node.wake_at = None;
        let result = match (&mut self.task, bank.lend(&self.table)) {
            (PortTask::Consumer { task, side }, Ok(lent)) => {
                task.try_pop(&mut AsyncPopCtx::new(lent, side, &mut self.node))
            }
            (_, Err(error)) => Err(error.into()),
            (_, Ok(_)) => Err(wrong_port("try_pop", "the pop side of an async task")),
        };
        if let Ok(OpResult::Skip) = result {
            self.drop_outputs(bank);
            return Err(self.error(HOOK, STRAY_SKIP));
        }
        self.settle_outputs(HOOK, bank, &result)?;
        result.map_err(|error| self.error(HOOK, error))
    }

    /// Executes a sync task that owns no slot; `None` if it is not one. What is not `Ok` goes
    /// through [`judge_plain`](Self::judge_plain).
    ///
    /// Apart from `execute` because its answer fits two registers.
    #[inline]
    pub(crate) fn execute_plain(&mut self, bank: &mut CellBank) -> Option<TaskResult<OpResult>> {
        if !self.plain || self.dead {
            return None;
        }
        self.node.wake_at = None;
        match (&mut self.task, bank.lend(&self.table)) {
            (PortTask::Sync { task, .. }, Ok(lent)) => {
                Some(task.execute(&mut SyncCtx::new(lent, &mut self.node)))
            }
            _ => None,
        }
    }

    /// Holds an answer of `execute_plain` to the contract.
    #[cold]
    pub(crate) fn judge_plain(
        &mut self,
        answer: TaskResult<OpResult>,
    ) -> Result<OpResult, HookError> {
        match answer {
            Ok(OpResult::Skip) if !self.may_skip => Err(self.error(Hook::Execute, STRAY_SKIP)),
            Ok(OpResult::NotReady) if self.table.has_inputs() => {
                Err(self.error(Hook::Execute, STRAY_WAIT))
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.error(Hook::Execute, error)),
        }
    }

    /// Executes a sync task.
    pub(crate) fn execute(&mut self, bank: &mut CellBank) -> Result<OpResult, HookError> {
        const HOOK: Hook = Hook::Execute;
        self.check_alive(HOOK)?;
        self.check_acquired(HOOK)?;
        self.check_released(HOOK)?;
        self.node.wake_at = None;
        let result = match (&mut self.task, bank.lend(&self.table)) {
            (PortTask::Sync { task, .. }, Ok(lent)) => {
                task.execute(&mut SyncCtx::new(lent, &mut self.node))
            }
            (_, Err(error)) => Err(error.into()),
            (_, Ok(_)) => Err(wrong_port("execute", "a sync task")),
        };
        if let Ok(OpResult::Skip) = result
            && !self.may_skip
        {
            self.cancel(bank);
            self.drop_outputs(bank);
            return Err(self.error(HOOK, STRAY_SKIP));
        }
        let inputs = self.settle_inputs(HOOK, bank, &result);
        if inputs.is_err() {
            self.drop_outputs(bank);
        }
        inputs.and_then(|()| self.settle_outputs(HOOK, bank, &result))?;
        if let Ok(OpResult::NotReady) = result
            && self.table.has_inputs()
        {
            self.cancel(bank);
            return Err(self.error(HOOK, STRAY_WAIT));
        }
        result.map_err(|error| self.error(HOOK, error))
    }

    /// Releases owned output `index`.
    pub(crate) fn release(&mut self, bank: &mut CellBank, index: usize) -> Result<(), HookError> {
        const HOOK: Hook = Hook::ReleaseOutput;
        let slot = Slot::Output(index);
        let position = self.outputs.iter().position(|output| output.slot == index);
        if let Some(position) = position
            && self.is_poisoned()
        {
            // The section is done with it, and the task gets no hook to take it back.
            self.outputs[position].held = None;
            empty(bank, &self.outputs[position]);
        }
        self.check_alive(HOOK)?;
        if let Some(position) = position
            && self.outputs[position].held.is_none()
        {
            return Err(self.order(
                HOOK,
                slot,
                "it is not popped",
                "only a popped output is released, and once",
            ));
        }
        let result: TaskResult<()> = match (&mut self.task, bank.lend(&self.table)) {
            (PortTask::Sync { task, consumer, .. }, Ok(lent)) => task.release_output(
                index,
                &mut ReleaseCtx::new(lent, consumer, &mut self.node, index),
            ),
            (PortTask::Consumer { task, side }, Ok(lent)) => task.release_output(
                index,
                &mut ReleaseCtx::new(lent, side, &mut self.node, index),
            ),
            (PortTask::Producer { .. } | PortTask::Gone, Ok(_)) => {
                Err(ContractError::WrongSide { slot }.into())
            }
            (_, Err(error)) => Err(error.into()),
        };
        let Some(position) = position else {
            let error = match result {
                Err(error) => error,
                Ok(()) => ContractError::SlotNotOwned { slot }.into(),
            };
            return Err(self.error(HOOK, error));
        };
        self.outputs[position].held = None;
        let was_full = empty(bank, &self.outputs[position]);
        match result {
            Err(error) => Err(self.error(HOOK, error)),
            Ok(()) if was_full => Err(self.order(
                HOOK,
                slot,
                "its region is still published after release_output",
                "the cell must be empty",
            )),
            Ok(()) => Ok(()),
        }
    }

    /// The hook by which the task is told that nothing follows on this port's side.
    pub(crate) fn finish_hook(&self) -> Hook {
        match self.task {
            PortTask::Consumer { .. } => Hook::ConsumerFinished,
            _ => Hook::ProducerFinished,
        }
    }

    /// Tells the task that nothing follows on this port's side.
    pub(crate) fn finished(&mut self) {
        if self.is_poisoned() {
            return;
        }
        match &self.task {
            PortTask::Producer { task, .. } => task.producer_finished(),
            PortTask::Consumer { task, .. } => task.consumer_finished(),
            PortTask::Sync { .. } | PortTask::Gone => {}
        }
    }

    /// After a panic in a hook: no further hook is called, and the cells are emptied.
    pub(crate) fn poison(&mut self, bank: &mut CellBank) {
        self.poison.0.store(true, Ordering::Release);
        self.dead = true;
        self.acquired.clear();
        for slot in self.inputs.iter_mut().chain(&mut self.outputs) {
            slot.held = None;
            empty(bank, slot);
        }
    }

    fn check_acquired(&self, hook: Hook) -> Result<(), HookError> {
        match self.inputs.iter().find(|input| input.held.is_none()) {
            Some(input) => Err(self.order(
                hook,
                Slot::Input(input.slot),
                "it is not acquired",
                "every owned input is acquired before the task consumes it",
            )),
            None => Ok(()),
        }
    }

    fn check_released(&self, hook: Hook) -> Result<(), HookError> {
        match self.outputs.iter().find(|output| output.held.is_some()) {
            Some(output) => Err(self.order(
                hook,
                Slot::Output(output.slot),
                "it is not released",
                "every output is released before the next is produced",
            )),
            None => Ok(()),
        }
    }

    /// Compares the cells of owned inputs with what the hook said it did.
    fn settle_inputs(
        &mut self,
        hook: Hook,
        bank: &mut CellBank,
        result: &TaskResult<OpResult>,
    ) -> Result<(), HookError> {
        if let Ok(OpResult::Ok) = result
            && self.inputs.iter().all(|input| !is_full(bank, input))
        {
            for input in &mut self.inputs {
                input.held = None;
            }
            self.acquired.clear();
            return Ok(());
        }
        let mut broken = None;
        for position in 0..self.inputs.len() {
            let input = &self.inputs[position];
            let slot = Slot::Input(input.slot);
            let now = address_in(bank, input.cell);
            let in_place = now.is_some() && now == input.held;
            match result {
                Ok(OpResult::Ok) => {
                    if now.is_some() {
                        broken = Some((
                            slot,
                            "its region is still published after Ok",
                            "a consumed input must be taken out of its cell",
                        ));
                    }
                }
                // What is still in place stays acquired: to be tried again, or cancelled.
                _ if in_place => continue,
                Ok(_) => {
                    broken = Some((
                        slot,
                        "its cell was changed, and the result was not Ok",
                        "an input that is not consumed must stay in its cell",
                    ));
                }
                // A task that failed may have taken the region; it is gone with the failure.
                Err(_) => {}
            }
            empty(bank, input);
            self.inputs[position].held = None;
            self.acquired.retain(|acquired| *acquired != position);
        }
        match broken {
            // A failure of the task's own comes first.
            Some((slot, found, expected)) if result.is_ok() => {
                self.cancel(bank);
                Err(self.order(hook, slot, found, expected))
            }
            _ => Ok(()),
        }
    }

    /// Compares the cells of owned outputs with what the hook said it did.
    fn settle_outputs(
        &mut self,
        hook: Hook,
        bank: &mut CellBank,
        result: &TaskResult<OpResult>,
    ) -> Result<(), HookError> {
        let produced = matches!(result, Ok(OpResult::Ok));
        let mut broken = None;
        for output in &mut self.outputs {
            output.held = address_in(bank, output.cell);
            match (produced, output.held) {
                (true, None) => {
                    broken = Some((
                        Slot::Output(output.slot),
                        "its cell is empty after Ok",
                        "every owned output must be published",
                    ));
                }
                (false, Some(_)) => {
                    broken = Some((
                        Slot::Output(output.slot),
                        "a region is published, and the result was not Ok",
                        "its cell must be empty",
                    ));
                }
                _ => {}
            }
        }
        if let Some((slot, found, expected)) = broken {
            self.drop_outputs(bank);
            if result.is_ok() {
                return Err(self.order(hook, slot, found, expected));
            }
        }
        Ok(())
    }

    /// Empties the cells of owned outputs.
    fn drop_outputs(&mut self, bank: &mut CellBank) {
        for output in &mut self.outputs {
            output.held = None;
            empty(bank, output);
        }
    }
}

/// A task's drop may panic; that must not unwind out of the graph's.
impl Drop for Port {
    fn drop(&mut self) {
        drop_guarded(std::mem::replace(&mut self.task, PortTask::Gone));
    }
}

fn address_in(bank: &mut CellBank, cell: usize) -> Option<Address> {
    bank.cell_mut(cell)?
        .region()
        .map(crate::storage::Region::address)
}

#[inline]
fn is_full(bank: &mut CellBank, slot: &OwnedSlot) -> bool {
    bank.cell_mut(slot.cell)
        .is_some_and(|cell| cell.is_published())
}

/// Empties the cell of a slot; `true` if it was full.
fn empty(bank: &mut CellBank, slot: &OwnedSlot) -> bool {
    bank.cell_mut(slot.cell)
        .and_then(Storage::retract)
        .is_some()
}

fn wrong_port(called: &str, expected: &str) -> TaskError {
    TaskError::other(format!(
        "{called} was called on a port that is not {expected}"
    ))
}

/// `Skip` from a hook that may not answer it.
const STRAY_SKIP: ContractError = ContractError::Unexpected {
    found: "the result is Skip",
    expected: "only `execute` of a task that declares `may_skip` may skip",
};

/// `NotReady` from a sync task that has what it needs: its section could not go on, and nothing
/// that comes in would wake it.
const STRAY_WAIT: ContractError = ContractError::Unexpected {
    found: "the result of `execute` is NotReady",
    expected: "a sync task with inputs has them all when it is executed: only a source may wait",
};

#[cfg(test)]
#[cfg(not(loom))]
#[path = "port_tests.rs"]
mod tests;
