//! Attacks by hooks whose result does not say what they did to their cells.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use holoflow::prelude::*;
use holoflow::storage::{ContractError, Region, Slot};
use holoflow::task::{Hook, TaskErrorKind};
use holoflow::testkit::TaskHarness;
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{
    AsyncHooks, Stash, SyncHooks, asynchronous, frame, limiter, named, nothing_leaks, owner, stray,
    sync,
};

fn lending(index: usize, ctx: &mut AcquireCtx<'_>) -> TaskResult<Option<usize>> {
    Ok(ctx
        .lend(index, |_| TaskResult::Ok(Some(stray(4))))?
        .map(|_| index))
}

// ---------------------------------------------------------------------------------------
// acquire_input

#[test]
fn acquire_that_returns_the_view_of_another_slot_is_an_error() {
    let infer = InferResult::asynchronous([frame(), frame()], []).owning_inputs();
    let mut task = asynchronous(infer, [frame(), frame()], |_| {
        Ok(AsyncHooks::idle().acquire(|index, ctx| {
            lending(index, ctx)?;
            Ok(Some(1 - index))
        }))
    })
    .unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    assert!(task.producer().input_address(0).unwrap().is_none());
    assert!(task.producer().input_mut::<u8>(0).is_err());
}

#[test]
fn acquire_that_returns_a_view_without_publishing_is_an_error() {
    let mut task = owner(|_| Ok(AsyncHooks::idle().acquire(|index, _| Ok(Some(index))))).unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    let error = task.producer().input_mut::<u8>(0).unwrap_err();
    assert_eq!(
        error,
        ContractError::Empty {
            slot: Slot::Input(0)
        }
    );
}

#[test]
fn acquire_that_publishes_and_returns_none_is_an_error() {
    let mut task = owner(|_| {
        Ok(AsyncHooks::idle().acquire(|index, ctx| {
            lending(index, ctx)?;
            Ok(None)
        }))
    })
    .unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    assert!(task.producer().input_mut::<u8>(0).is_err());
}

#[test]
fn acquire_that_publishes_and_fails_leaves_an_empty_cell() {
    let mut task = owner(|_| {
        Ok(AsyncHooks::idle().acquire(|index, ctx| {
            lending(index, ctx)?;
            Err(TaskError::other("no"))
        }))
    })
    .unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    named(&error, Hook::AcquireInput, None);
    assert!(task.producer().input_address(0).unwrap().is_none());
}

/// Two owned inputs; `mischief` is done before input `index` is lent.
fn two_inputs(
    mischief: impl Fn(usize, &mut AcquireCtx<'_>) -> TaskResult<()> + Clone + Send + Sync + 'static,
) -> TaskHarness {
    let infer = InferResult::asynchronous([frame(), frame()], []).owning_inputs();
    asynchronous(infer, [frame(), frame()], move |_| {
        let mischief = mischief.clone();
        let hooks = AsyncHooks::idle().acquire(move |index, ctx| {
            mischief(index, ctx)?;
            lending(index, ctx)
        });
        Ok(hooks.push(|ctx| {
            let inputs = [ctx.take_input(0)?, ctx.take_input(1)?];
            for (input, mark) in inputs.iter().zip([1, 2]) {
                assert_eq!(input.as_bytes()?, [mark; 4]);
            }
            Ok(OpResult::Ok)
        }))
    })
    .unwrap()
}

#[test]
fn acquire_that_also_fills_the_cell_of_another_input_is_an_error() {
    let mut task = two_inputs(|index, ctx| {
        ctx.owned_input_storage(1 - index)?.publish(stray(4))?;
        Ok(())
    });
    for (asked, other) in [(0, 1), (1, 0)] {
        let error = task.producer().acquire(asked).unwrap_err();
        let slot = Slot::Input(other);
        broken!(error, Hook::AcquireInput, slot, ContractError::OtherSlot { slot: s, asked: a }
            if *s == slot && *a == asked);
        assert!(
            task.producer().input_mut::<u8>(other).is_err(),
            "input {other} is not acquired"
        );
    }
}

#[test]
fn acquire_that_lends_in_the_cell_of_another_input_is_an_error_and_finds_no_region_for_it() {
    let sought = Stash::new();
    let seen = sought.clone();
    let mut task = two_inputs(move |index, ctx| {
        let seen = seen.clone();
        ctx.lend(1 - index, move |_| {
            seen.hide(());
            TaskResult::Ok(Some(stray(4)))
        })
        .map(drop)
    });
    let error = task.producer().acquire(0).unwrap_err();
    let slot = Slot::Input(1);
    broken!(error, Hook::AcquireInput, slot, ContractError::OtherSlot { slot: s, asked: 0 }
        if *s == slot);
    assert!(sought.find().is_none(), "nothing was taken from the task");
    assert!(task.producer().input_address(1).unwrap().is_none());
}

#[test]
fn acquire_that_steals_the_region_of_another_acquired_input_is_an_error() {
    let loot: Stash<Option<Region>> = Stash::new();
    let hidden = loot.clone();
    let mut task = two_inputs(move |index, ctx| {
        if index == 1 {
            hidden.hide(ctx.owned_input_storage(0)?.retract());
        }
        Ok(())
    });
    assert!(task.producer().acquire(0).unwrap());
    task.producer().write(0, &[1_u8; 4]).unwrap();
    let error = task.producer().acquire(1).unwrap_err();
    let slot = Slot::Input(0);
    broken!(error, Hook::AcquireInput, slot, ContractError::OtherSlot { slot: s, asked: 1 }
        if *s == slot);
    assert!(loot.find().is_none());
    assert_eq!(task.producer().input_mut::<u8>(0).unwrap(), [1; 4]);
    assert!(task.producer().input_mut::<u8>(1).is_err());
}

#[test]
fn a_region_of_another_acquired_input_is_not_stolen_taken_back_or_exchanged_by_any_way() {
    // The refusals are passed over in silence; nothing came of what was refused.
    let refusals: Stash<ContractError> = Stash::new();
    let seen = refusals.clone();
    let mut task = two_inputs(move |index, ctx| {
        if index == 1 {
            let taken = ctx.take_back(0).map(drop).unwrap_err();
            seen.hide(taken.contract().unwrap().clone());
            let access: &mut dyn IOStorageAccess = ctx;
            for asked in [0, 2, usize::MAX] {
                seen.hide(access.owned_input_storage(asked).map(drop).unwrap_err());
            }
            seen.hide(access.owned_output_storage(1).map(drop).unwrap_err());
        }
        Ok(())
    });
    let ledger = task.ledger();
    let side = task.producer();
    assert!(side.acquire(0).unwrap());
    let before = side.input_address(0).unwrap();
    side.write(0, &[1_u8; 4]).unwrap();
    assert!(side.acquire(1).unwrap());
    side.write(1, &[2_u8; 4]).unwrap();
    assert_eq!(side.input_address(0).unwrap(), before);
    let (slot, count) = (Slot::Input, 2);
    for expected in [
        ContractError::WrongSide {
            slot: Slot::Output(1),
        },
        ContractError::SlotOutOfRange {
            slot: slot(usize::MAX),
            count,
        },
        ContractError::SlotOutOfRange {
            slot: slot(2),
            count,
        },
        ContractError::OtherSlot {
            slot: slot(0),
            asked: 1,
        },
        ContractError::OtherSlot {
            slot: slot(0),
            asked: 1,
        },
    ] {
        assert_eq!(refusals.seek(), expected);
    }
    assert_eq!(side.try_push().unwrap(), OpResult::Ok);
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn cancel_reaches_only_the_input_it_was_called_for() {
    let refusals: Stash<TaskError> = Stash::new();
    let seen = refusals.clone();
    let infer = InferResult::asynchronous([frame(), frame()], []).owning_inputs();
    let mut task = asynchronous(infer, [frame(), frame()], move |_| {
        let seen = seen.clone();
        let hooks = AsyncHooks::idle().acquire(lending);
        Ok(hooks.cancel(move |index, ctx| {
            let other = 1 - index;
            seen.hide(ctx.take_back(other).map(drop).unwrap_err());
            let storage = ctx.owned_input_storage(other);
            seen.hide(storage.map(drop).unwrap_err().into());
            drop(ctx.take_back(index));
        }))
    })
    .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    assert!(task.producer().acquire(1).unwrap());
    task.producer().cancel_inputs().unwrap();
    // In reverse order of acquisition: input 1 first, found last.
    for asked in [0, 0, 1, 1] {
        let slot = Slot::Input(1 - asked);
        assert_eq!(
            refusals.seek().contract(),
            Some(&ContractError::OtherSlot { slot, asked })
        );
    }
    assert!(refusals.find().is_none());
}

#[test]
fn a_region_of_one_of_two_inputs_that_push_took_is_found_missing_when_it_is_written_and_pushed() {
    let infer = InferResult::asynchronous([frame(), frame()], []).owning_inputs();
    let mut task = asynchronous(infer, [frame(), frame()], |_| {
        Ok(AsyncHooks::idle().acquire(lending).push(|ctx| {
            drop(ctx.take_input(0)?);
            Ok(OpResult::NotReady)
        }))
    })
    .unwrap();
    let side = task.producer();
    assert!(side.acquire(0).unwrap() && side.acquire(1).unwrap());
    let error = side.try_push().unwrap_err();
    let slot = Slot::Input(0);
    broken!(error, Hook::TryPush, slot, ContractError::Order { slot: s, .. } if *s == slot);
    // What was broken is cancelled as a whole, the input left in its cell too.
    for index in [0, 1] {
        let slot = Slot::Input(index);
        assert_eq!(
            side.input_mut::<u8>(index).unwrap_err(),
            ContractError::Empty { slot }
        );
    }
    let error = side.try_push().unwrap_err();
    broken!(error, Hook::TryPush, slot, ContractError::Order { slot: s, .. } if *s == slot);
}

// ---------------------------------------------------------------------------------------
// try_push

#[test]
fn push_that_says_ok_and_leaves_the_region_in_place_is_an_error() {
    let mut task = limiter(|hooks, _| hooks.push(|_| Ok(OpResult::Ok))).unwrap();
    let ledger = task.ledger();
    let error = task.push(&[1_u8; 4]).unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    assert!(task.producer().input_mut::<u8>(0).is_err());
    assert!(
        task.producer().acquire(0).unwrap(),
        "the window was dropped, so it is lent again"
    );
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn push_that_takes_the_region_and_says_it_did_not_is_an_error() {
    for result in [OpResult::NotReady, OpResult::Cancelled, OpResult::Eof] {
        let loot = Stash::new();
        let hidden = loot.clone();
        let mut task = limiter(move |hooks, _| {
            let hidden = hidden.clone();
            hooks.push(move |ctx| {
                hidden.hide(ctx.take_input(0)?);
                Ok(result)
            })
        })
        .unwrap();
        let ledger = task.ledger();
        let error = task.push(&[1_u8, 2, 3, 4]).unwrap_err();
        broken!(
            error,
            Hook::TryPush,
            Slot::Input(0),
            ContractError::Order { .. }
        );
        assert!(
            task.producer().input_mut::<u8>(0).is_err(),
            "upstream lost its bytes"
        );
        let error = task.producer().acquire(0).unwrap_err();
        broken!(error, Hook::AcquireInput, None, ContractError::WindowOut);
        let mut region: Region = loot.seek();
        region.as_mut_bytes().unwrap()[0] = 9;
        assert_eq!(region.as_bytes().unwrap(), [9, 2, 3, 4]);
        drop(region);
        assert!(task.producer().acquire(0).unwrap());
        drop(task);
        nothing_leaks(&ledger);
    }
}

#[test]
fn push_that_exchanges_the_region_for_another_is_an_error() {
    let mut task = limiter(|hooks, _| {
        hooks.push(|ctx| {
            drop(ctx.take_input(0)?);
            ctx.owned_input_storage(0)?.publish(stray(4))?;
            Ok(OpResult::NotReady)
        })
    })
    .unwrap();
    let error = task.push(&[1_u8; 4]).unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    assert!(task.producer().input_mut::<u8>(0).is_err());
}

#[test]
fn push_that_takes_the_region_and_puts_it_back_changes_nothing() {
    let mut task = limiter(|hooks, _| {
        hooks.push(|ctx| {
            let mut region = ctx.take_input(0)?;
            region.as_mut_bytes()?[3] = 9;
            ctx.owned_input_storage(0)?.publish(region)?;
            Ok(OpResult::NotReady)
        })
    })
    .unwrap();
    assert_eq!(task.push(&[1_u8, 2, 3, 4]).unwrap(), OpResult::NotReady);
    assert_eq!(task.producer().input_mut::<u8>(0).unwrap(), [1, 2, 3, 9]);
}

#[test]
fn push_that_keeps_the_tail_of_the_region_and_puts_the_head_back_lends_two_disjoint_parts() {
    let loot = Stash::new();
    let hidden = loot.clone();
    let mut task = owner(move |_| {
        let hidden = hidden.clone();
        let hooks = AsyncHooks::idle().acquire(|index, ctx| {
            Ok(ctx
                .lend(index, |_| TaskResult::Ok(Some(stray(8))))?
                .map(|_| index))
        });
        Ok(hooks.push(move |ctx| {
            let (head, tail) = ctx.take_input(0)?.split_at(4).unwrap();
            ctx.owned_input_storage(0)?.publish(head)?;
            hidden.hide(tail);
            Ok(OpResult::NotReady)
        }))
    })
    .unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::NotReady);
    let mut tail = loot.seek();
    let upstream = task.producer().input_mut::<u8>(0).unwrap();
    upstream.fill(5);
    tail.as_mut_bytes().unwrap().fill(6);
    assert_eq!(upstream, [5; 4]);
    assert_eq!(tail.as_bytes().unwrap(), [6; 4]);
}

#[test]
fn push_that_takes_the_region_and_fails_reports_its_own_error_and_the_window_comes_back() {
    let mut task = limiter(|hooks, _| {
        hooks.push(|ctx| {
            drop(ctx.take_input(0)?);
            Err(TaskError::other("disk full"))
        })
    })
    .unwrap();
    let ledger = task.ledger();
    let error = task.push(&[1_u8; 4]).unwrap_err();
    named(&error, Hook::TryPush, None);
    assert!(format!("{error:#}").ends_with("disk full"));
    assert!(task.producer().acquire(0).unwrap());
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn push_that_fails_and_leaves_the_region_has_it_cancelled_once() {
    let cancelled = Stash::new();
    let seen = cancelled.clone();
    let mut task = limiter(move |hooks, _| {
        let seen = seen.clone();
        hooks
            .push(|_| Err(TaskError::other("disk full")))
            .cancel(move |index, ctx| {
                seen.hide(index);
                drop(ctx.take_back(index));
            })
    })
    .unwrap();
    assert!(task.push(&[1_u8; 4]).is_err());
    assert!(
        task.producer().input_mut::<u8>(0).is_ok(),
        "it is acquired until it is cancelled"
    );
    task.producer().cancel_inputs().unwrap();
    task.producer().cancel_inputs().unwrap();
    assert_eq!((cancelled.seek(), cancelled.find()), (0, None));
    assert!(task.producer().input_mut::<u8>(0).is_err());
}

#[test]
fn skip_from_push_and_pop_is_an_error_and_empties_the_cells() {
    let mut task = limiter(|hooks, _| {
        hooks.push(|_| Ok(OpResult::Skip)).pop(|ctx| {
            ctx.publish(0, stray(4))?;
            Ok(OpResult::Skip)
        })
    })
    .unwrap();
    let error = task.push(&[1_u8; 4]).unwrap_err();
    named(&error, Hook::TryPush, None);
    assert!(task.producer().input_mut::<u8>(0).is_err());
    let error = task.consumer().try_pop().unwrap_err();
    named(&error, Hook::TryPop, None);
    assert!(task.consumer().output::<u8>(0).is_err());
}

// ---------------------------------------------------------------------------------------
// try_pop and release_output

#[test]
fn pop_that_says_ok_and_publishes_nothing_is_an_error() {
    let mut task = limiter(|hooks, _| hooks.pop(|_| Ok(OpResult::Ok))).unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Order { .. }
    );
    let error = task.consumer().output::<u8>(0).unwrap_err();
    assert_eq!(
        error,
        ContractError::Empty {
            slot: Slot::Output(0)
        }
    );
}

#[test]
fn pop_that_publishes_only_one_of_two_outputs_is_an_error_and_both_are_empty() {
    let infer = InferResult::asynchronous([], [frame(), frame()]).owning_outputs();
    let mut task = asynchronous(infer, [], |_| {
        Ok(AsyncHooks::idle().pop(|ctx| {
            ctx.publish(0, stray(4))?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(1),
        ContractError::Order { .. }
    );
    assert!(task.consumer().output::<u8>(0).is_err());
}

#[test]
fn pop_that_publishes_and_says_it_did_not_is_an_error() {
    for result in [OpResult::NotReady, OpResult::Cancelled, OpResult::Eof] {
        let mut task = limiter(move |hooks, _| {
            hooks.pop(move |ctx| {
                ctx.publish(0, stray(4))?;
                Ok(result)
            })
        })
        .unwrap();
        let error = task.consumer().try_pop().unwrap_err();
        broken!(
            error,
            Hook::TryPop,
            Slot::Output(0),
            ContractError::Order { .. }
        );
        assert!(task.consumer().output::<u8>(0).is_err());
    }
}

#[test]
fn pop_that_publishes_and_fails_reports_its_own_error_and_the_cell_is_empty() {
    let mut task = limiter(|hooks, _| {
        hooks.pop(|ctx| {
            ctx.publish(0, stray(4))?;
            Err(TaskError::frame("bad checksum"))
        })
    })
    .unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    named(&error, Hook::TryPop, None);
    assert!(matches!(error.error.kind(), TaskErrorKind::Frame(_)));
    assert!(task.consumer().output::<u8>(0).is_err());
}

#[test]
fn release_that_leaves_the_region_in_place_is_an_error_and_the_cell_is_emptied() {
    let mut task = limiter(|hooks, _| hooks.release(|_, _| Ok(()))).unwrap();
    let ledger = task.ledger();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::Order { .. }
    );
    assert!(task.consumer().output::<u8>(0).is_err());
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn release_that_puts_another_region_in_the_cell_is_an_error() {
    let mut task = limiter(|hooks, _| {
        hooks.release(|index, ctx| {
            drop(ctx.take_back(index)?);
            ctx.owned_output_storage(index)?.publish(stray(4))?;
            Ok(())
        })
    })
    .unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::Order { .. }
    );
}

#[test]
fn release_that_fails_leaves_an_empty_cell_and_is_not_asked_again() {
    let mut task = limiter(|hooks, _| hooks.release(|_, _| Err(TaskError::other("no")))).unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    named(
        &task.consumer().release(0).unwrap_err(),
        Hook::ReleaseOutput,
        None,
    );
    assert!(task.consumer().output::<u8>(0).is_err());
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Output(0),
        ContractError::Order { .. }
    );
}

/// Two outputs, marked 1 and 2; releasing output 0 does `mischief`.
fn two_outputs(
    mischief: impl Fn(&mut ReleaseCtx<'_>) -> TaskResult<()> + Clone + Send + Sync + 'static,
) -> TaskHarness {
    let infer = InferResult::asynchronous([], [frame(), frame()]).owning_outputs();
    asynchronous(infer, [], move |_| {
        let mischief = mischief.clone();
        let hooks = AsyncHooks::idle().pop(|ctx| {
            for index in [0, 1] {
                let mut region = stray(4);
                region.as_mut_bytes()?.fill(index as u8 + 1);
                ctx.publish(index, region)?;
            }
            Ok(OpResult::Ok)
        });
        Ok(hooks.release(move |index, ctx| {
            if index == 0 {
                mischief(ctx)?;
            }
            ctx.take_back(index).map(drop)
        }))
    })
    .unwrap()
}

#[test]
fn release_that_takes_another_output_too_gets_nothing_and_leaves_it_published() {
    let loot: Stash<Region> = Stash::new();
    let hidden = loot.clone();
    let mut task = two_outputs(move |ctx| {
        hidden.hide(ctx.take_back(1)?);
        Ok(())
    });
    let side = task.consumer();
    assert_eq!(side.try_pop().unwrap(), OpResult::Ok);
    let error = side.release(0).unwrap_err();
    let slot = Slot::Output(1);
    broken!(error, Hook::ReleaseOutput, slot, ContractError::OtherSlot { slot: s, asked: 0 }
        if *s == slot);
    assert!(loot.find().is_none());
    assert_eq!(
        side.output::<u8>(0).unwrap_err(),
        ContractError::Empty {
            slot: Slot::Output(0)
        }
    );
    assert_eq!(side.output::<u8>(1).unwrap(), [2; 4]);
    side.release(1).unwrap();
}

#[test]
fn release_that_exchanges_the_region_of_another_output_is_an_error() {
    let mut task = two_outputs(|ctx| {
        let storage = ctx.owned_output_storage(1)?;
        drop(storage.retract());
        storage.publish(stray(4))?;
        Ok(())
    });
    let side = task.consumer();
    assert_eq!(side.try_pop().unwrap(), OpResult::Ok);
    let before = side.output_address(1).unwrap();
    let error = side.release(0).unwrap_err();
    let slot = Slot::Output(1);
    broken!(error, Hook::ReleaseOutput, slot, ContractError::OtherSlot { slot: s, asked: 0 }
        if *s == slot);
    assert_eq!(side.output_address(1).unwrap(), before);
    assert_eq!(side.output::<u8>(1).unwrap(), [2; 4]);
}

#[test]
fn release_that_passes_over_its_refusals_releases_its_own_output_and_no_other() {
    let mut task = two_outputs(|ctx| {
        let access: &mut dyn IOStorageAccess = ctx;
        for (asked, count) in [(2, 2), (usize::MAX, 2)] {
            let slot = Slot::Output(asked);
            assert_eq!(
                access.owned_output_storage(asked).map(drop),
                Err(ContractError::SlotOutOfRange { slot, count })
            );
        }
        let slot = Slot::Input(0);
        assert_eq!(
            access.owned_input_storage(0).map(drop),
            Err(ContractError::WrongSide { slot })
        );
        assert!(ctx.take_back(1).is_err());
        Ok(())
    });
    let side = task.consumer();
    assert_eq!(side.try_pop().unwrap(), OpResult::Ok);
    side.release(0).unwrap();
    assert_eq!(side.output::<u8>(1).unwrap(), [2; 4]);
    side.release(1).unwrap();
}

// ---------------------------------------------------------------------------------------
// cancel_input

#[test]
fn cancel_that_keeps_the_region_or_leaves_it_ends_in_an_empty_cell() {
    let kept = Stash::new();
    let hidden = kept.clone();
    let mut task = limiter(move |hooks, _| {
        let hidden = hidden.clone();
        hooks.cancel(move |index, ctx| {
            if hidden.find().is_none() {
                hidden.hide(ctx.take_back(index).unwrap());
            }
        })
    })
    .unwrap();
    let ledger = task.ledger();
    // It keeps the region: the window stays out until it is dropped.
    assert!(task.producer().acquire(0).unwrap());
    task.producer().cancel_inputs().unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(error, Hook::AcquireInput, None, ContractError::WindowOut);
    drop(kept.seek());
    kept.hide(None);
    // It leaves the region: the section drops it.
    assert!(task.producer().acquire(0).unwrap());
    task.producer().cancel_inputs().unwrap();
    assert!(task.producer().input_mut::<u8>(0).is_err());
    assert!(task.producer().acquire(0).unwrap());
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn cancel_that_publishes_another_region_ends_in_an_empty_cell() {
    let mut task = limiter(|hooks, _| {
        hooks.cancel(|index, ctx| {
            drop(ctx.take_back(index));
            ctx.owned_input_storage(index)
                .unwrap()
                .publish(stray(4))
                .unwrap();
        })
    })
    .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    task.producer().cancel_inputs().unwrap();
    assert!(task.producer().input_mut::<u8>(0).is_err());
}

// ---------------------------------------------------------------------------------------
// execute

#[test]
fn execute_that_leaves_its_owned_input_or_publishes_no_output_is_an_error() {
    for (take, publish, slot) in [
        (false, true, Slot::Input(0)),
        (true, false, Slot::Output(0)),
    ] {
        let infer = InferResult::sync([frame()], [frame()])
            .owning_inputs()
            .owning_outputs();
        let mut task = sync(infer, [frame()], move |_| {
            Ok(SyncHooks::new(move |ctx| {
                if take {
                    ctx.take_input(0)?;
                }
                if publish {
                    ctx.publish(0, stray(4))?;
                }
                Ok(OpResult::Ok)
            })
            .acquire(lending))
        })
        .unwrap();
        let ledger = task.ledger();
        assert!(task.producer().acquire(0).unwrap());
        let error = task.producer().execute().unwrap_err();
        broken!(error, Hook::Execute, slot, ContractError::Order { .. });
        assert!(task.producer().input_mut::<u8>(0).is_err());
        drop(task);
        nothing_leaks(&ledger);
    }
}

#[test]
fn execute_that_leaves_its_owned_input_has_its_output_taken_back() {
    let infer = InferResult::sync([frame()], [frame()])
        .owning_inputs()
        .owning_outputs();
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            ctx.publish(0, stray(4))?;
            Ok(OpResult::Ok)
        })
        .acquire(lending))
    })
    .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    assert!(
        task.producer().output::<u8>(0).is_err(),
        "a failed frame is not read"
    );
}

#[test]
fn execute_that_skips_without_saying_so_in_infer_is_an_error() {
    let infer = InferResult::sync([frame()], [frame()]).owning_outputs();
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            ctx.publish(0, stray(4))?;
            Ok(OpResult::Skip)
        }))
    })
    .unwrap();
    let error = task.producer().execute().unwrap_err();
    named(&error, Hook::Execute, None);
    assert!(task.producer().output::<u8>(0).is_err());
}

#[test]
fn execute_that_passes_its_input_on_as_its_output_moves_the_region() {
    let infer = InferResult::sync([frame()], [frame()])
        .owning_inputs()
        .owning_outputs();
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            let region = ctx.take_input(0)?;
            assert!(matches!(
                ctx.inputs.get::<u8>(0),
                Err(ContractError::Empty {
                    slot: Slot::Input(0)
                })
            ));
            ctx.publish(0, region)?;
            ctx.outputs.get_mut::<u8>(0)?[0] = 9;
            Ok(OpResult::Ok)
        })
        .acquire(lending))
    })
    .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    task.producer().write(0, &[1_u8, 2, 3, 4]).unwrap();
    let before = task.producer().input_address(0).unwrap();
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
    assert_eq!(task.producer().output_address(0).unwrap(), before);
    assert_eq!(task.producer().output::<u8>(0).unwrap(), [9, 2, 3, 4]);
    assert!(task.producer().input_mut::<u8>(0).is_err());
}
