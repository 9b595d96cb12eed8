//! Attacks by a section that calls hooks out of order, on the wrong side, or for slots
//! that are not there.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use holoflow::prelude::*;
use holoflow::storage::{ContractError, Slot};
use holoflow::task::Hook;
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{
    AsyncHooks, SyncHooks, asynchronous, builder, frame, limiter, named, nothing_leaks, stray, sync,
};
use serde_json::json;

#[test]
fn acquiring_an_input_twice_is_an_error_and_the_first_acquisition_stands() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    assert!(task.producer().acquire(0).unwrap());
    task.producer().write(0, &[1_u8, 2, 3, 4]).unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
    assert_eq!(task.pop::<u8>().unwrap(), Some(vec![1, 2, 3, 4]));
}

#[test]
fn pushing_without_acquiring_is_an_error() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    let error = task.producer().try_push().unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Input(0),
        ContractError::Order { .. }
    );
}

#[test]
fn pushing_with_one_of_two_inputs_acquired_is_an_error_that_names_the_other() {
    let infer = InferResult::asynchronous([frame(), frame()], []).owning_inputs();
    let mut task = asynchronous(infer, [frame(), frame()], |_| {
        Ok(AsyncHooks::idle().acquire(|index, ctx| {
            Ok(ctx
                .lend(index, |_| TaskResult::Ok(Some(stray(4))))?
                .map(|_| index))
        }))
    })
    .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    let error = task.producer().try_push().unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Input(1),
        ContractError::Order { .. }
    );
}

#[test]
fn pushing_twice_after_one_acquisition_is_an_error() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    let error = task.producer().try_push().unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Input(0),
        ContractError::Order { .. }
    );
}

#[test]
fn writing_an_input_that_is_pushed_cancelled_or_not_acquired_is_an_error() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    let empty = ContractError::Empty {
        slot: Slot::Input(0),
    };
    assert_eq!(task.producer().input_mut::<u8>(0).unwrap_err(), empty);
    assert!(task.producer().acquire(0).unwrap());
    task.producer().cancel_inputs().unwrap();
    assert_eq!(task.producer().input_mut::<u8>(0).unwrap_err(), empty);
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.producer().input_mut::<u8>(0).unwrap_err(), empty);
}

#[test]
fn popping_twice_without_release_is_an_error_and_the_first_frame_stands() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Order { .. }
    );
    assert_eq!(task.consumer().output::<u8>(0).unwrap(), [1; 4]);
}

#[test]
fn releasing_without_pop_and_releasing_twice_are_errors() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::Order { .. }
    );
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    task.consumer().release(0).unwrap();
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::Order { .. }
    );
}

#[test]
fn popping_with_one_of_two_outputs_released_is_an_error_that_names_the_other() {
    let infer = InferResult::asynchronous([], [frame(), frame()]).owning_outputs();
    let mut task = asynchronous(infer, [], |_| {
        Ok(AsyncHooks::idle().pop(|ctx| {
            ctx.publish(0, stray(4))?;
            ctx.publish(1, stray(4))?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    task.consumer().release(0).unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(1),
        ContractError::Order { .. }
    );
}

#[test]
fn reading_an_output_that_is_released_or_not_popped_is_an_error() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    let empty = ContractError::Empty {
        slot: Slot::Output(0),
    };
    assert_eq!(task.consumer().output::<u8>(0).unwrap_err(), empty);
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert!(task.pop::<u8>().unwrap().is_some());
    assert_eq!(task.consumer().output::<u8>(0).unwrap_err(), empty);
}

#[test]
fn executing_with_an_input_not_acquired_or_an_output_not_released_is_an_error() {
    let infer = InferResult::sync([frame()], [frame()])
        .owning_inputs()
        .owning_outputs();
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            let region = ctx.take_input(0)?;
            ctx.publish(0, region)?;
            Ok(OpResult::Ok)
        })
        .acquire(|index, ctx| {
            Ok(ctx
                .lend(index, |_| TaskResult::Ok(Some(stray(4))))?
                .map(|_| index))
        }))
    })
    .unwrap();
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    assert!(task.producer().acquire(0).unwrap());
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
    assert!(task.producer().acquire(0).unwrap());
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Output(0),
        ContractError::Order { .. }
    );
    assert!(
        task.producer().input_mut::<u8>(0).is_ok(),
        "nothing was consumed"
    );
}

#[test]
fn hooks_of_slots_that_are_not_owned_or_not_there_are_errors() {
    let infer = InferResult::asynchronous([frame()], [frame()]);
    let mut task = asynchronous(infer, [frame()], |_| {
        Ok(AsyncHooks::idle().acquire(|index, ctx| {
            Ok(ctx
                .lend(index, |_| TaskResult::Ok(Some(stray(4))))?
                .map(|_| index))
        }))
    })
    .unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(0),
        ContractError::SlotNotOwned { .. }
    );
    let error = task.producer().acquire(7).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(7),
        ContractError::SlotOutOfRange { count: 1, .. }
    );
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::SlotNotOwned { .. }
    );
    let error = task.consumer().release(usize::MAX).unwrap_err();
    let last = Slot::Output(usize::MAX);
    broken!(
        error,
        Hook::ReleaseOutput,
        last,
        ContractError::SlotOutOfRange { count: 1, .. }
    );
}

#[test]
fn a_hook_asked_for_a_slot_that_is_not_there_cannot_serve_another() {
    // It publishes in slot 0 and returns its view, whatever it is asked for.
    let mut task = limiter(|hooks, _| {
        hooks.acquire(|_, ctx| Ok(ctx.lend(0, |_| TaskResult::Ok(Some(stray(4))))?.map(|_| 0)))
    })
    .unwrap();
    let error = task.producer().acquire(7).unwrap_err();
    let slot = Slot::Input(0);
    broken!(error, Hook::AcquireInput, slot, ContractError::OtherSlot { slot: s, asked: 7 }
        if *s == slot);
    assert!(task.producer().input_address(0).unwrap().is_none());
    // The hook of that slot serves it.
    assert!(task.producer().acquire(0).unwrap());
}

#[test]
fn a_hook_asked_for_a_slot_that_is_not_there_cannot_show_another() {
    // It lends what it is asked for, and shows slot 0, which may be acquired by then.
    let mut task = limiter(|hooks, slot| {
        let slot = Arc::clone(slot);
        hooks.acquire(move |index, ctx| {
            if index == 0 {
                ctx.lend(index, |side| slot.acquire(side))?;
            }
            Ok(Some(0))
        })
    })
    .unwrap();
    let ledger = task.ledger();
    for acquired in [false, true] {
        if acquired {
            assert!(task.producer().acquire(0).unwrap());
            task.producer().write(0, &[1_u8, 2, 3, 4]).unwrap();
        }
        let error = task.producer().acquire(7).unwrap_err();
        broken!(
            error,
            Hook::AcquireInput,
            Slot::Input(7),
            ContractError::SlotNotOwned { .. }
        );
    }
    assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
    assert_eq!(task.pop::<u8>().unwrap(), Some(vec![1, 2, 3, 4]));
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn a_release_hook_asked_for_a_slot_that_is_not_there_cannot_take_another() {
    let mut task = limiter(|hooks, _| hooks.release(|_, ctx| ctx.take_back(0).map(drop))).unwrap();
    assert_eq!(task.push(&[1_u8, 2, 3, 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let error = task.consumer().release(7).unwrap_err();
    let slot = Slot::Output(0);
    broken!(error, Hook::ReleaseOutput, slot, ContractError::OtherSlot { slot: s, asked: 7 }
        if *s == slot);
    assert_eq!(task.consumer().output::<u8>(0).unwrap(), [1, 2, 3, 4]);
    task.consumer().release(0).unwrap();
}

#[test]
fn a_hook_asked_for_a_slot_that_is_not_there_leaves_no_region_behind() {
    let mut task = limiter(|hooks, _| {
        hooks.acquire(|_, ctx| Ok(ctx.lend(0, |_| TaskResult::Ok(Some(stray(4))))?.map(|_| 0)))
    })
    .unwrap();
    assert!(task.producer().acquire(7).is_err());
    assert!(
        task.producer().input_mut::<u8>(0).is_err(),
        "input 0 is not acquired"
    );
}

#[test]
fn hooks_of_one_side_called_on_the_other_are_errors() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    let error = task.consumer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(0),
        ContractError::WrongSide { .. }
    );
    let error = task.producer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::WrongSide { .. }
    );
    named(
        &task.consumer().try_push().unwrap_err(),
        Hook::TryPush,
        None,
    );
    named(&task.producer().try_pop().unwrap_err(), Hook::TryPop, None);
    named(&task.producer().execute().unwrap_err(), Hook::Execute, None);
    // None of it did anything.
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.pop::<u8>().unwrap(), Some(vec![1; 4]));
}

#[test]
fn hooks_of_an_async_task_called_on_a_sync_one_are_errors() {
    let infer = InferResult::sync([frame()], []);
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)))
    })
    .unwrap();
    named(
        &task.producer().try_push().unwrap_err(),
        Hook::TryPush,
        None,
    );
    named(&task.consumer().try_pop().unwrap_err(), Hook::TryPop, None);
    assert!(task.split().is_none());
}

#[test]
fn sides_of_two_harnesses_exchanged_keep_their_own_tasks_and_cells() {
    let mut a = limiter(|hooks, _| hooks).unwrap();
    let mut b = limiter(|hooks, _| hooks).unwrap();
    let ledgers = [a.ledger(), b.ledger()];
    std::mem::swap(a.producer(), b.producer());
    // What is pushed through `a` is popped through `b`, and nothing else.
    assert_eq!(a.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(a.pop::<u8>().unwrap(), None);
    assert_eq!(b.pop::<u8>().unwrap(), Some(vec![1; 4]));
    a.start_run().unwrap();
    let (push, pop) = b.split().unwrap();
    std::mem::swap(push, pop);
    assert!(b.push(&[1_u8; 4]).is_err());
    drop((a, b));
    ledgers.iter().for_each(nothing_leaks);
}

/// Owns what it has no hooks for.
struct Hookless;

impl IAsyncTask for Hookless {
    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        ctx.take_input(0)?;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        ctx.publish(0, stray(4))?;
        Ok(OpResult::Ok)
    }
}

impl IAsyncTaskFactory for Hookless {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Has no hooks.")
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let infer = InferResult::asynchronous([frame()], [frame()]);
        Ok(infer.owning_inputs().owning_outputs())
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new(Self))
    }
}

#[test]
fn owning_slots_without_implementing_their_hooks_is_an_error() {
    let mut task = builder()
        .asynchronous(&Hookless, json!({}), [frame()])
        .unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(0),
        ContractError::HookMissing { .. }
    );
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::HookMissing { .. }
    );
    assert!(
        task.consumer().output::<u8>(0).is_err(),
        "the cell was emptied all the same"
    );
}
