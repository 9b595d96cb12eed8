//! Tests of ports, by the numbers of their invariants: a task that does as it is told, right
//! or wrong, and what its port makes of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::*;
use crate::memory::Memory;
use crate::storage::{IOStorageAccess, Region, Sides, TView, TaskBuffer};
use crate::sync::Mutex;
use crate::tensor::{MemLoc, TDesc};

/// What the next hook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// As the contract asks: lends, takes, publishes, takes back; the result is `Ok`.
    Right,
    /// Nothing: no storage, or `NotReady`.
    Wait,
    /// Nothing, and the result is `Ok`, or the view of an empty cell.
    Claim,
    /// What `Right` does, and the result is none, or `NotReady`.
    Deny,
    /// Another region in place of that of the first input, and the result is `NotReady`.
    Replace,
    /// Lends, and returns the view of another input.
    OtherView,
    /// Answers `Skip`.
    Skip,
    /// Fails, and leaves all as it is.
    Fail,
    /// What `Right` does with the first slot, and fails.
    HalfFail,
    /// Panics.
    Panic,
}

fn region() -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4)
        .unwrap()
        .into_region()
}

/// A task that is told what to do, and writes down what it was asked.
#[derive(Clone)]
struct Puppet {
    act: Arc<Mutex<Act>>,
    log: Arc<Mutex<Vec<String>>>,
    slots: usize,
}

impl Puppet {
    fn new(slots: usize) -> Self {
        Self {
            act: Arc::new(Mutex::new(Act::Right)),
            log: Arc::default(),
            slots,
        }
    }

    fn told(&self, hook: impl Into<String>) -> TaskResult<Act> {
        self.log.lock().push(hook.into());
        match *self.act.lock() {
            Act::Panic => panic!("as told"),
            Act::Fail => Err(TaskError::other("as told")),
            act => Ok(act),
        }
    }

    /// What was asked since the last look.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock())
    }

    fn lend<'c>(&self, index: usize, ctx: &'c mut AcquireCtx<'_>) -> TaskResult<Option<TView<'c>>> {
        let act = self.told(format!("acquire {index}"))?;
        if !matches!(act, Act::Wait | Act::Claim) {
            ctx.lend(index, |_| TaskResult::Ok(Some(region())))?;
        }
        match act {
            Act::Wait | Act::Deny => Ok(None),
            Act::HalfFail => Err(TaskError::other("as told")),
            Act::OtherView => ctx.view(1 - index).map(Some),
            _ => ctx.view(index).map(Some),
        }
    }

    fn take(&self, act: Act, ctx: &mut impl IOStorageAccess) -> TaskResult<OpResult> {
        match act {
            Act::Wait => return Ok(OpResult::NotReady),
            Act::Claim => return Ok(OpResult::Ok),
            Act::Skip => return Ok(OpResult::Skip),
            _ => {}
        }
        for index in 0..self.slots {
            drop(ctx.owned_input_storage(index)?.retract());
            match act {
                Act::HalfFail => return Err(TaskError::other("as told")),
                Act::Replace => {
                    ctx.owned_input_storage(index)?.publish(region())?;
                    return Ok(OpResult::NotReady);
                }
                Act::Deny => return Ok(OpResult::NotReady),
                _ => {}
            }
        }
        Ok(OpResult::Ok)
    }

    fn give(&self, act: Act, ctx: &mut impl IOStorageAccess) -> TaskResult<OpResult> {
        match act {
            Act::Wait => return Ok(OpResult::NotReady),
            Act::Claim => return Ok(OpResult::Ok),
            _ => {}
        }
        for index in 0..self.slots {
            ctx.owned_output_storage(index)?.publish(region())?;
            if act == Act::HalfFail {
                return Err(TaskError::other("as told"));
            }
        }
        Ok(match act {
            Act::Skip => OpResult::Skip,
            Act::Deny => OpResult::NotReady,
            _ => OpResult::Ok,
        })
    }

    fn take_back(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        if self.told(format!("release {index}"))? != Act::Claim {
            drop(ctx.take_back(index)?);
        }
        Ok(())
    }

    fn cancel(&self, index: usize) {
        self.log.lock().push(format!("cancel {index}"));
        assert_ne!(*self.act.lock(), Act::Panic, "as told");
    }
}

impl ISyncTask for Puppet {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        let act = self.told("execute")?;
        let taken = self.take(act, ctx)?;
        if taken == OpResult::Ok && act != Act::Claim {
            return self.give(act, ctx);
        }
        Ok(taken)
    }

    fn acquire_input<'c>(
        &mut self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        self.lend(index, ctx)
    }

    fn release_output(&mut self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        self.take_back(index, ctx)
    }

    fn cancel_input(&mut self, index: usize, _: &mut AcquireCtx<'_>) {
        self.cancel(index);
    }

    fn run_started(&mut self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        self.told("run").map(drop)
    }

    fn run_ended(&mut self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        ctx.report("cancelled", ctx.is_cancelled());
        self.told("end").map(drop)
    }
}

impl IAsyncTask for Puppet {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        self.lend(index, ctx)
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let act = self.told("push")?;
        self.take(act, ctx)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let act = self.told("pop")?;
        self.give(act, ctx)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        self.take_back(index, ctx)
    }

    fn cancel_input(&self, index: usize, _: &mut AcquireCtx<'_>) {
        self.cancel(index);
    }

    fn run_started(&self, _: &mut RunCtx<'_>) -> TaskResult<()> {
        self.told("run").map(drop)
    }

    fn run_ended(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        ctx.report("cancelled", ctx.is_cancelled());
        self.told("end").map(drop)
    }

    fn producer_finished(&self) {
        self.log.lock().push("producer_finished".to_owned());
    }

    fn consumer_finished(&self) {
        self.log.lock().push("consumer_finished".to_owned());
    }
}

/// A puppet in a port, the cells around it, and the port of its other side.
struct Stage {
    puppet: Puppet,
    port: Port,
    other: Option<Port>,
    bank: CellBank,
    cells: usize,
}

fn cells_and_specs(slots: usize) -> (Vec<Storage>, Vec<SlotSpec>) {
    let desc = TDesc::host::<u8>([4]).unwrap();
    let cells = (0..slots).map(|_| Storage::new(desc.clone(), true));
    let specs = (0..slots).map(|cell| SlotSpec {
        desc: desc.clone(),
        cell,
        owned: true,
        alias: None,
    });
    (cells.collect(), specs.collect())
}

fn node() -> NodeCtx {
    NodeCtx::new("puppet", Memory::host(), None)
}

impl Stage {
    /// The push side of an async task with `slots` owned inputs, or its pop side with as many
    /// owned outputs.
    fn of_side(slots: usize, push: bool) -> Self {
        let puppet = Puppet::new(slots);
        let task: Arc<dyn IAsyncTask> = Arc::new(puppet.clone());
        let (producer, consumer) = Sides::new().into_parts();
        let (cells, specs) = cells_and_specs(slots);
        let mut bank = CellBank::new(cells);
        let mut none = CellBank::new(vec![]);
        let (inputs, outputs) = if push {
            (specs, vec![])
        } else {
            (vec![], specs)
        };
        let (here, there) = if push {
            (&mut bank, &mut none)
        } else {
            (&mut none, &mut bank)
        };
        let poison = Poison::default();
        let pushed = Arc::clone(&task);
        let push_port =
            Port::producer(pushed, poison.clone(), producer, node(), here, inputs).unwrap();
        let pop_port = Port::consumer(task, poison, consumer, node(), there, outputs).unwrap();
        let (port, other) = if push {
            (push_port, pop_port)
        } else {
            (pop_port, push_port)
        };
        Self {
            puppet,
            port,
            other: Some(other),
            bank,
            cells: slots,
        }
    }

    /// A sync task with `slots` owned inputs and as many owned outputs, whose cells follow
    /// those of the inputs.
    fn sync(slots: usize) -> Self {
        let puppet = Puppet::new(slots);
        let (cells, mut specs) = cells_and_specs(2 * slots);
        let mut bank = CellBank::new(cells);
        let outputs = specs.split_off(slots);
        let sides = Sides::new().into_parts();
        let task = Box::new(puppet.clone());
        let port = Port::sync(task, sides, node(), &mut bank, specs, outputs).unwrap();
        Self {
            puppet,
            port,
            other: None,
            bank,
            cells: 2 * slots,
        }
    }

    fn tell(&mut self, act: Act) -> &mut Self {
        *self.puppet.act.lock() = act;
        self
    }

    fn acquire(&mut self, index: usize) -> Result<bool, HookError> {
        self.port.acquire(&mut self.bank, index)
    }

    fn acquire_all(&mut self) {
        self.tell(Act::Right);
        for index in 0..self.puppet.slots {
            assert!(self.acquire(index).unwrap());
        }
    }

    fn push(&mut self) -> Result<OpResult, HookError> {
        self.port.push(&mut self.bank)
    }

    fn pop(&mut self) -> Result<OpResult, HookError> {
        self.port.pop(&mut self.bank)
    }

    fn execute(&mut self) -> Result<OpResult, HookError> {
        self.port.execute(&mut self.bank)
    }

    fn release(&mut self, index: usize) -> Result<(), HookError> {
        self.port.release(&mut self.bank, index)
    }

    fn cancel(&mut self) {
        self.port.cancel(&mut self.bank);
    }

    /// Numbers of the cells that hold a region.
    fn full(&mut self) -> Vec<usize> {
        (0..self.cells)
            .filter(|cell| self.bank.cell_mut(*cell).unwrap().is_published())
            .collect()
    }

    /// Calls a hook that panics, and does what a section does then.
    fn panics<R>(&mut self, call: impl FnOnce(&mut Self) -> R) {
        self.tell(Act::Panic);
        assert!(catch_unwind(AssertUnwindSafe(|| call(self))).is_err());
        self.port.poison(&mut self.bank);
    }
}

/// What an order error says was found.
fn found(error: &HookError) -> (Hook, &'static str) {
    match error.contract() {
        Some(ContractError::Order { found, .. } | ContractError::Unexpected { found, .. }) => {
            (error.hook, found)
        }
        other => panic!("{error:#}: {other:?}"),
    }
}

// ---------------------------------------------------------------------------------------
// PT1

#[derive(Debug, Clone, Copy)]
enum Call {
    Acquire(usize, Act),
    Push(Act),
    Cancel,
}

fn call() -> impl Strategy<Value = Call> {
    let acquired = prop_oneof![
        6 => Just(Act::Right),
        1 => Just(Act::Wait),
        1 => Just(Act::Claim),
        1 => Just(Act::Deny),
        1 => Just(Act::OtherView),
        1 => Just(Act::Fail),
        1 => Just(Act::HalfFail),
    ];
    let pushed = prop_oneof![
        3 => Just(Act::Right),
        2 => Just(Act::Wait),
        1 => Just(Act::Claim),
        1 => Just(Act::Deny),
        1 => Just(Act::Replace),
        1 => Just(Act::Skip),
        1 => Just(Act::Fail),
        1 => Just(Act::HalfFail),
    ];
    prop_oneof![
        5 => (0_usize..2, acquired).prop_map(|(index, act)| Call::Acquire(index, act)),
        3 => pushed.prop_map(Call::Push),
        1 => Just(Call::Cancel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn pt1_an_acquired_input_is_pushed_or_cancelled_exactly_once(
        calls in prop::collection::vec(call(), 0..60),
    ) {
        let mut stage = Stage::of_side(2, true);
        // Acquired, in order of acquisition.
        let mut held: Vec<usize> = vec![];
        for call in calls {
            let mut expected = vec![];
            match call {
                Call::Acquire(index, act) => {
                    let result = stage.tell(act).acquire(index);
                    if held.contains(&index) {
                        prop_assert_eq!(found(&result.unwrap_err()).1, "it is acquired already");
                    } else {
                        expected.push(format!("acquire {index}"));
                        match act {
                            Act::Right => {
                                prop_assert!(result.unwrap());
                                held.push(index);
                            }
                            Act::Wait => prop_assert!(!result.unwrap()),
                            _ => prop_assert!(result.is_err()),
                        }
                    }
                }
                Call::Push(act) => {
                    let result = stage.tell(act).push();
                    if held.len() < 2 {
                        prop_assert_eq!(found(&result.unwrap_err()).1, "it is not acquired");
                    } else {
                        expected.push("push".to_owned());
                        match act {
                            Act::Right => {
                                prop_assert_eq!(result.unwrap(), OpResult::Ok);
                                held.clear();
                            }
                            Act::Wait => prop_assert_eq!(result.unwrap(), OpResult::NotReady),
                            Act::Fail => prop_assert!(result.is_err()),
                            // Said to be taken and still there: emptied.
                            Act::Claim => {
                                prop_assert!(result.is_err());
                                held.clear();
                            }
                            // The first is gone, and with the failure nothing more happens.
                            Act::HalfFail => {
                                prop_assert!(result.is_err());
                                held.retain(|index| *index != 0);
                            }
                            // The first was tampered with: the second is cancelled.
                            Act::Deny | Act::Replace => {
                                prop_assert!(result.is_err());
                                held.clear();
                                expected.push("cancel 1".to_owned());
                            }
                            _ => {
                                prop_assert!(result.is_err());
                                expected.extend(
                                    held.drain(..).rev().map(|index| format!("cancel {index}")),
                                );
                            }
                        }
                    }
                }
                Call::Cancel => {
                    stage.tell(Act::Right).cancel();
                    let cancelled = held.drain(..).rev();
                    expected.extend(cancelled.map(|index| format!("cancel {index}")));
                }
            }
            prop_assert_eq!(stage.puppet.asked(), expected);
            prop_assert_eq!(stage.port.acquired(), held.len());
            for index in 0..2 {
                prop_assert_eq!(stage.port.holds_input(index), held.contains(&index));
            }
            held.sort_by_key(|index| {
                stage.port.acquired.iter().position(|held| held == index)
            });
            let mut full = held.clone();
            full.sort_unstable();
            prop_assert_eq!(stage.full(), full);
        }
    }
}

#[test]
fn pt1_inputs_are_cancelled_in_reverse_order_of_acquisition() {
    let mut stage = Stage::of_side(2, true);
    assert!(stage.acquire(1).unwrap());
    assert!(stage.acquire(0).unwrap());
    stage.puppet.asked();
    stage.cancel();
    assert_eq!(stage.puppet.asked(), ["cancel 0", "cancel 1"]);
    stage.cancel();
    assert!(stage.puppet.asked().is_empty());
    assert!(stage.full().is_empty(), "though the hook left them there");
}

#[test]
fn pt1_a_sync_task_that_fails_keeps_the_inputs_still_in_place() {
    let mut stage = Stage::sync(2);
    stage.acquire_all();
    assert!(stage.tell(Act::HalfFail).execute().is_err());
    assert!(!stage.port.holds_input(0) && stage.port.holds_input(1));
    assert_eq!(stage.full(), [1]);
    stage.puppet.asked();
    stage.cancel();
    assert_eq!(stage.puppet.asked(), ["cancel 1"]);
    assert!(stage.full().is_empty());
}

// ---------------------------------------------------------------------------------------
// PT2

#[test]
fn pt2_outputs_are_released_once_and_before_the_next_pop() {
    let mut stage = Stage::of_side(2, false);
    assert_eq!(stage.pop().unwrap(), OpResult::Ok);
    assert!(stage.port.is_popped());
    stage.puppet.asked();
    let not_released = (Hook::TryPop, "it is not released");
    assert_eq!(found(&stage.pop().unwrap_err()), not_released);
    stage.release(1).unwrap();
    assert_eq!(found(&stage.pop().unwrap_err()), not_released);
    let not_popped = (Hook::ReleaseOutput, "it is not popped");
    assert_eq!(found(&stage.release(1).unwrap_err()), not_popped);
    stage.release(0).unwrap();
    assert!(!stage.port.is_popped());
    // The task heard of none of the wrong calls.
    assert_eq!(stage.puppet.asked(), ["release 1", "release 0"]);
    assert_eq!(stage.pop().unwrap(), OpResult::Ok);
}

#[test]
fn pt2_a_sync_task_is_not_executed_while_an_output_is_held() {
    let mut stage = Stage::sync(1);
    stage.acquire_all();
    assert_eq!(stage.execute().unwrap(), OpResult::Ok);
    stage.acquire_all();
    let error = stage.execute().unwrap_err();
    assert_eq!(found(&error), (Hook::Execute, "it is not released"));
    assert_eq!(stage.full(), [0, 1]);
    stage.release(0).unwrap();
    assert_eq!(stage.execute().unwrap(), OpResult::Ok);
}

#[test]
fn pt2_nothing_is_released_before_it_is_popped() {
    let mut stage = Stage::of_side(1, false);
    assert!(stage.release(0).is_err());
    assert_eq!(stage.tell(Act::Wait).pop().unwrap(), OpResult::NotReady);
    assert!(stage.release(0).is_err());
    assert_eq!(stage.puppet.asked(), ["pop"]);
}

// ---------------------------------------------------------------------------------------
// PT3

#[test]
fn pt3_acquire_must_leave_the_cell_as_its_result_says() {
    for (act, expected) in [
        (Act::Claim, "a view was returned and nothing is published"),
        (Act::Deny, "nothing was granted and a region is published"),
        (Act::OtherView, "the view returned is of another slot"),
    ] {
        let mut stage = Stage::of_side(2, true);
        // Cells of other inputs are left alone.
        assert!(stage.tell(Act::Right).acquire(1).unwrap());
        let error = stage.tell(act).acquire(0).unwrap_err();
        assert_eq!(found(&error), (Hook::AcquireInput, expected));
        assert_eq!(error.node, "puppet");
        assert_eq!(stage.full(), [1]);
        assert_eq!(stage.port.acquired(), 1);
    }
    let mut stage = Stage::of_side(1, true);
    assert!(stage.tell(Act::HalfFail).acquire(0).is_err());
    assert!(stage.full().is_empty(), "what was published is gone");
    assert!(stage.tell(Act::Right).acquire(0).unwrap());
}

#[test]
fn pt3_push_must_leave_the_cells_as_its_result_says() {
    for (act, expected, cancelled) in [
        (
            Act::Claim,
            "its region is still published after Ok",
            &[][..],
        ),
        (
            Act::Deny,
            "its cell was changed, and the result was not Ok",
            &["cancel 1"],
        ),
        (
            Act::Replace,
            "its cell was changed, and the result was not Ok",
            &["cancel 1"],
        ),
        (Act::Skip, "the result is Skip", &["cancel 1", "cancel 0"]),
    ] {
        let mut stage = Stage::of_side(2, true);
        stage.acquire_all();
        let error = stage.tell(act).push().unwrap_err();
        assert_eq!(found(&error), (Hook::TryPush, expected), "{act:?}");
        assert!(stage.full().is_empty());
        assert_eq!(stage.port.acquired(), 0);
        assert_eq!(stage.puppet.asked()[3..], *cancelled, "{act:?}");
        // The port is as new.
        stage.acquire_all();
        assert_eq!(stage.push().unwrap(), OpResult::Ok);
    }
}

#[test]
fn pt3_pop_must_leave_the_cells_as_its_result_says() {
    for (act, expected) in [
        (Act::Claim, Some("its cell is empty after Ok")),
        (
            Act::Deny,
            Some("a region is published, and the result was not Ok"),
        ),
        (Act::Skip, Some("the result is Skip")),
        // The failure of the task's own comes first.
        (Act::HalfFail, None),
    ] {
        let mut stage = Stage::of_side(2, false);
        let error = stage.tell(act).pop().unwrap_err();
        match expected {
            Some(expected) => assert_eq!(found(&error), (Hook::TryPop, expected)),
            None => assert!(error.contract().is_none()),
        }
        assert!(stage.full().is_empty());
        assert!(!stage.port.is_popped());
        assert_eq!(stage.tell(Act::Right).pop().unwrap(), OpResult::Ok);
    }
}

#[test]
fn pt3_execute_must_leave_all_cells_as_its_result_says() {
    for (act, expected) in [
        (Act::Claim, "its region is still published after Ok"),
        (
            Act::Replace,
            "its cell was changed, and the result was not Ok",
        ),
        (Act::Wait, "the result of `execute` is NotReady"),
        (Act::Skip, "the result is Skip"),
    ] {
        let mut stage = Stage::sync(2);
        stage.acquire_all();
        let error = stage.tell(act).execute().unwrap_err();
        assert_eq!(found(&error), (Hook::Execute, expected), "{act:?}");
        assert!(stage.full().is_empty());
        assert_eq!(stage.port.acquired(), 0);
        stage.acquire_all();
        assert_eq!(stage.execute().unwrap(), OpResult::Ok);
        assert_eq!(stage.full(), [2, 3]);
    }
}

#[test]
fn pt3_a_skip_that_was_declared_leaves_the_inputs_acquired() {
    let mut stage = Stage::sync(2);
    stage.port.allow_skip(true);
    stage.acquire_all();
    assert_eq!(stage.tell(Act::Skip).execute().unwrap(), OpResult::Skip);
    assert_eq!(stage.port.acquired(), 2);
    assert_eq!(stage.full(), [0, 1]);
    assert_eq!(stage.tell(Act::Right).execute().unwrap(), OpResult::Ok);
}

#[test]
fn pt3_release_must_empty_the_cell() {
    let mut stage = Stage::of_side(1, false);
    assert_eq!(stage.pop().unwrap(), OpResult::Ok);
    let error = stage.tell(Act::Claim).release(0).unwrap_err();
    assert_eq!(
        found(&error),
        (
            Hook::ReleaseOutput,
            "its region is still published after release_output"
        )
    );
    assert!(stage.full().is_empty());
    // A release that failed is not asked for again.
    assert_eq!(stage.tell(Act::Right).pop().unwrap(), OpResult::Ok);
    assert!(stage.tell(Act::Fail).release(0).is_err());
    assert!(stage.full().is_empty());
    assert_eq!(stage.tell(Act::Right).pop().unwrap(), OpResult::Ok);
}

#[test]
fn pt3_a_broken_promise_is_told_with_node_hook_and_slot() {
    let mut stage = Stage::of_side(2, true);
    stage.acquire_all();
    let error = stage.tell(Act::Deny).push().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `puppet`, try_push: the storage contract was broken: input 0: its cell was \
         changed, and the result was not Ok, but an input that is not consumed must stay in \
         its cell"
    );
}

#[test]
fn a_port_calls_only_the_hooks_of_its_side() {
    let mut push = Stage::of_side(1, true);
    let mut pop = Stage::of_side(1, false);
    let mut sync = Stage::sync(0);
    assert!(push.pop().is_err() && push.execute().is_err());
    assert!(pop.push().is_err() && pop.execute().is_err());
    assert!(sync.push().is_err() && sync.pop().is_err());
    for (stage, slot) in [(&mut push, Slot::Output(0)), (&mut pop, Slot::Input(0))] {
        let error = match slot {
            Slot::Input(index) => stage.acquire(index).unwrap_err(),
            Slot::Output(index) => stage.release(index).unwrap_err(),
        };
        assert_eq!(error.contract(), Some(&ContractError::WrongSide { slot }));
        assert!(stage.puppet.asked().is_empty());
    }
}

#[test]
fn a_side_that_ends_is_told_to_the_task_on_that_side() {
    for (push, told) in [(true, "producer_finished"), (false, "consumer_finished")] {
        let mut stage = Stage::of_side(1, push);
        stage.port.finished();
        assert_eq!(stage.puppet.asked(), [told]);
        assert_eq!(stage.port.finish_hook().to_string(), told);
    }
    let mut stage = Stage::sync(1);
    stage.port.finished();
    assert!(stage.puppet.asked().is_empty());
}

#[test]
fn a_run_is_started_once_for_both_sides() {
    let mut stage = Stage::of_side(1, true);
    let mut consumer = stage.other.take().unwrap();
    Port::run_started_async(&mut stage.port, &mut consumer).unwrap();
    assert_eq!(stage.puppet.asked(), ["run"]);
    stage.tell(Act::Fail);
    let error = Port::run_started_async(&mut stage.port, &mut consumer).unwrap_err();
    assert_eq!(error.hook, Hook::RunStarted);
    let mut stage = Stage::sync(1);
    stage.port.run_started().unwrap();
    assert_eq!(stage.puppet.asked(), ["run"]);
}

#[test]
fn a_run_is_ended_once_for_both_sides_and_has_what_the_task_reports() {
    let reported = |cancelled: bool| vec![("cancelled", serde_json::Value::from(cancelled))];
    let mut stage = Stage::of_side(1, true);
    let mut consumer = stage.other.take().unwrap();
    let ended = Port::run_ended_async(&mut stage.port, &mut consumer).unwrap();
    assert_eq!(ended, reported(false));
    assert_eq!(stage.puppet.asked(), ["end"]);
    stage.tell(Act::Fail);
    let error = Port::run_ended_async(&mut stage.port, &mut consumer).unwrap_err();
    assert_eq!(error.hook, Hook::RunEnded);
    let mut stage = Stage::sync(1);
    stage.port.node.stop.cancel();
    assert_eq!(stage.port.run_ended().unwrap(), reported(true));
    assert_eq!(stage.puppet.asked(), ["end"]);
}

// ---------------------------------------------------------------------------------------
// PT4

/// Calls every hook; each must say that the task panicked, and none may reach it.
fn is_dead(stage: &mut Stage) {
    assert!(stage.full().is_empty());
    assert_eq!(stage.port.acquired(), 0);
    assert!(!stage.port.is_popped());
    stage.tell(Act::Right);
    stage.puppet.asked();
    for error in [
        stage.acquire(0).map(drop).unwrap_err(),
        stage.push().map(drop).unwrap_err(),
        stage.pop().map(drop).unwrap_err(),
        stage.execute().map(drop).unwrap_err(),
        stage.release(0).unwrap_err(),
        stage.port.run_started().unwrap_err(),
    ] {
        assert_eq!(
            error.error.to_string(),
            "the task panicked: it gets no further hook"
        );
    }
    stage.cancel();
    stage.port.finished();
    // A run that ends because of the panic is not failed once more.
    assert_eq!(stage.port.run_ended().unwrap(), []);
    assert!(stage.puppet.asked().is_empty());
}

#[test]
fn pt4_a_task_that_panicked_as_it_was_pushed_gets_no_further_hook() {
    let mut stage = Stage::of_side(2, true);
    assert!(stage.acquire(1).unwrap());
    stage.panics(|stage| drop(stage.acquire(0)));
    is_dead(&mut stage);
    let mut stage = Stage::of_side(2, true);
    stage.acquire_all();
    stage.panics(|stage| drop(stage.push()));
    is_dead(&mut stage);
    let mut stage = Stage::of_side(2, true);
    stage.acquire_all();
    stage.panics(Stage::cancel);
    is_dead(&mut stage);
}

#[test]
fn pt4_a_task_that_panicked_as_it_was_popped_gets_no_further_hook() {
    let mut stage = Stage::of_side(2, false);
    stage.panics(|stage| drop(stage.pop()));
    is_dead(&mut stage);
    let mut stage = Stage::of_side(2, false);
    assert_eq!(stage.pop().unwrap(), OpResult::Ok);
    stage.panics(|stage| drop(stage.release(1)));
    is_dead(&mut stage);
}

#[test]
fn pt4_a_sync_task_that_panicked_gets_no_further_hook() {
    let mut stage = Stage::sync(1);
    stage.acquire_all();
    stage.panics(|stage| drop(stage.execute()));
    is_dead(&mut stage);
    let mut stage = Stage::sync(1);
    stage.panics(|stage| drop(stage.port.run_started()));
    is_dead(&mut stage);
}

#[test]
fn pt4_a_panic_on_one_side_ends_the_hooks_of_the_other() {
    let mut stage = Stage::of_side(1, false);
    assert_eq!(stage.pop().unwrap(), OpResult::Ok);
    let mut producer = stage.other.take().unwrap();
    producer.poison(&mut CellBank::new(vec![]));
    stage.puppet.asked();
    assert!(stage.release(0).is_err());
    assert!(stage.puppet.asked().is_empty());
    // Its cells are emptied when its own section hears of it.
    stage.port.poison(&mut stage.bank);
    is_dead(&mut stage);
}

#[test]
fn pt4_a_task_that_panics_as_it_is_dropped_does_no_harm() {
    struct Bomb;
    impl ISyncTask for Bomb {
        fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
            Ok(OpResult::Ok)
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as told");
        }
    }
    let mut bank = CellBank::new(vec![]);
    let sides = Sides::new().into_parts();
    let port = Port::sync(Box::new(Bomb), sides, node(), &mut bank, vec![], vec![]).unwrap();
    drop(port);
}

#[test]
fn the_task_comes_out_of_its_port() {
    let mut stage = Stage::of_side(1, true);
    let task = stage.port.take_task(&mut stage.bank);
    let Some(LooseTask::Async(task)) = task.and_then(AnyTask::loose) else {
        panic!("an async task");
    };
    drop(stage.other);
    assert!(task.take::<Puppet>().is_some(), "the other port is gone");
    let mut stage = Stage::sync(1);
    let task = stage.port.take_task(&mut stage.bank);
    let Some(LooseTask::Sync(task)) = task.and_then(AnyTask::loose) else {
        panic!("a sync task");
    };
    assert!(task.take::<Puppet>().is_some());
}

#[test]
fn pt4_a_task_that_panicked_is_not_handed_to_an_update() {
    let mut stage = Stage::sync(1);
    stage.port.poison(&mut stage.bank);
    assert!(stage.port.take_task(&mut stage.bank).is_none());
}
