//! Attacks with regions that a cell must not take: shared, too small, in another memory,
//! misaligned, one too many, or in a cell that is not the task's.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use holoflow::prelude::*;
use holoflow::storage::{ContractError, Refusal, Region, RegionError, SharedRegion, Slot};
use holoflow::task::{Hook, HookError};
use holoflow::testkit::{FakeDevice, TaskHarness};
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{
    AsyncHooks, Factory, Stash, SyncHooks, asynchronous, builder, frame, nothing_leaks, owner,
    stray, sync,
};
use serde_json::json;

/// A task whose `try_pop` publishes what `make` makes as output 0, of layout `desc`.
fn publishing(
    desc: &TDesc,
    make: impl Fn() -> Region + Clone + Send + Sync + 'static,
) -> Result<TaskHarness, HookError> {
    let infer = InferResult::asynchronous([], [desc.clone()]).owning_outputs();
    asynchronous(infer, [], move |_| {
        let make = make.clone();
        Ok(AsyncHooks::idle().pop(move |ctx| {
            ctx.publish(0, make())?;
            Ok(OpResult::Ok)
        }))
    })
}

fn floats() -> TDesc {
    TDesc::host::<f32>([2]).unwrap()
}

/// A shared region of four bytes marked 1, and one who reads it.
fn shared_with_reader() -> (SharedRegion, Region) {
    let mut region = stray(4);
    region.as_mut_bytes().unwrap().fill(1);
    let shared = region.into_shared();
    let reader = shared.to_region();
    (shared, reader)
}

#[test]
fn a_shared_region_in_a_written_cell_is_refused() {
    // The cell of an owned input is written, by the node's upstream.
    let (shared, reader) = shared_with_reader();
    let infer = InferResult::asynchronous([frame()], []).owning_inputs();
    let mut task = asynchronous(infer, [frame()], move |_| {
        let shared = shared.clone();
        Ok(AsyncHooks::idle().acquire(move |index, ctx| {
            let lent = ctx.lend(index, |_| TaskResult::Ok(Some(shared.to_region())))?;
            Ok(lent.map(|_| index))
        }))
    })
    .unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    let (slot, refusal) = (Slot::Input(0), Refusal::ReadOnly);
    broken!(error, Hook::AcquireInput, slot, ContractError::Publish { slot: s, refusal: r }
        if *s == slot && *r == refusal);
    assert!(task.producer().input_address(0).unwrap().is_none());
    assert_eq!(reader.as_bytes().unwrap(), [1; 4]);
}

#[test]
fn a_shared_region_put_back_for_the_input_it_was_made_of_is_refused() {
    // At the same address: an exchange that comparing addresses would not notice.
    let loot: Stash<SharedRegion> = Stash::new();
    let hidden = loot.clone();
    let mut task = owner(move |_| {
        let hidden = hidden.clone();
        let hooks = AsyncHooks::idle().acquire(|index, ctx| {
            let lent = ctx.lend(index, |_| TaskResult::Ok(Some(stray(4))))?;
            Ok(lent.map(|_| index))
        });
        Ok(hooks.push(move |ctx| {
            let shared = ctx.take_input(0)?.into_shared();
            hidden.hide(shared.clone());
            ctx.owned_input_storage(0)?.publish(shared.to_region())?;
            Ok(OpResult::NotReady)
        }))
    })
    .unwrap();
    let error = task.push(&[1_u8; 4]).unwrap_err();
    let refusal = Refusal::ReadOnly;
    assert_eq!(error.contract(), Some(&ContractError::Refused { refusal }));
    assert!(task.producer().input_mut::<u8>(0).is_err());
    let mut region = loot.seek().try_into_unique().unwrap();
    region.as_mut_bytes().unwrap()[0] = 9;
    assert_eq!(region.as_bytes().unwrap(), [9, 1, 1, 1]);
}

#[test]
fn a_shared_region_as_output_is_read_downstream_and_written_by_nobody() {
    let (shared, reader) = shared_with_reader();
    let (published, lease) = (shared.clone(), shared);
    let infer = InferResult::asynchronous([], [frame()]).owning_outputs();
    let mut task = asynchronous(infer, [], move |_| {
        let published = published.clone();
        Ok(AsyncHooks::idle().pop(move |ctx| {
            ctx.publish(0, published.to_region())?;
            let output = Slot::Output(0);
            for refused in [
                ctx.outputs.get_mut::<u8>(0).map(drop),
                ctx.outputs.bytes_mut(0).map(drop),
            ] {
                assert_eq!(refused, Err(ContractError::ReadOnly { slot: output }));
            }
            let mut held = ctx.owned_output_storage(0)?.retract().unwrap();
            assert_eq!(held.as_mut_bytes(), Err(RegionError::ReadOnly));
            ctx.publish(0, held)?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    for _ in 0..3 {
        assert_eq!(task.pop::<u8>().unwrap(), Some(vec![1; 4]));
    }
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let shown = task.consumer().output_address(0).unwrap();
    assert_eq!(shown, Some(reader.address()), "nothing was copied");
    let lease = lease.try_into_unique().unwrap_err();
    drop((task, reader));
    assert!(lease.try_into_unique().is_ok());
}

#[test]
fn one_shared_region_in_two_outputs_is_read_through_both() {
    let (shared, reader) = shared_with_reader();
    let infer = InferResult::asynchronous([], [frame(), frame()]).owning_outputs();
    let mut task = asynchronous(infer, [], move |_| {
        let shared = shared.clone();
        Ok(AsyncHooks::idle().pop(move |ctx| {
            ctx.publish(0, shared.to_region())?;
            ctx.publish(1, shared.to_region())?;
            assert!(ctx.outputs.get_pair_mut::<u8, u8>(0, 1).is_err());
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    let side = task.consumer();
    assert_eq!(side.try_pop().unwrap(), OpResult::Ok);
    for output in [0, 1] {
        let shown = side.output_address(output).unwrap();
        assert_eq!(shown, Some(reader.address()));
        assert_eq!(side.output::<u8>(output).unwrap(), [1; 4]);
    }
}

#[test]
fn a_region_one_byte_too_small_is_refused() {
    let mut task = publishing(&frame(), || stray(3)).unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Publish {
            refusal: Refusal::TooSmall {
                found: 3,
                expected: 4
            },
            ..
        }
    );
}

#[test]
fn a_region_that_ends_before_the_offset_does_is_refused() {
    let desc = TDesc::with_offset([2], DType::U8, MemLoc::Host, 1000).unwrap();
    let mut task = publishing(&desc, || stray(1001)).unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Publish {
            refusal: Refusal::TooSmall {
                found: 1001,
                expected: 1002
            },
            ..
        }
    );
}

#[test]
fn an_empty_region_for_a_tensor_without_elements_is_taken_and_reads_as_nothing() {
    let desc = TDesc::host::<f32>([3, 0]).unwrap();
    let mut task = publishing(&desc, || stray(0)).unwrap();
    assert_eq!(task.pop::<f32>().unwrap(), Some(vec![]));
}

#[test]
fn a_misaligned_region_is_refused() {
    let make = || stray(16).split_at(1).unwrap().1;
    let mut task = publishing(&floats(), make).unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Publish {
            refusal: Refusal::Misaligned { align: 4, .. },
            ..
        }
    );
}

#[test]
fn a_device_region_in_a_host_cell_is_refused() {
    let device = FakeDevice::new(0);
    let infer = InferResult::asynchronous([], [frame()]).owning_outputs();
    let factory = Factory::new(infer, |ctx: &mut CreateCtx<'_>| {
        let held = Stash::new();
        held.hide(ctx.buffer(MemLoc::Device(0), 4)?.into_region());
        Ok(AsyncHooks::idle().pop(move |ctx| {
            ctx.publish(0, held.seek())?;
            Ok(OpResult::Ok)
        }))
    });
    let mut task = builder()
        .memory(device.provider())
        .asynchronous(&factory, json!({}), [])
        .unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Publish {
            refusal: Refusal::WrongLocation {
                found: MemLoc::Device(0),
                expected: MemLoc::Host
            },
            ..
        }
    );
}

#[test]
fn a_host_region_in_a_device_cell_is_refused_and_so_is_one_of_another_device() {
    for found in [MemLoc::Host, MemLoc::Device(1)] {
        let desc = TDesc::new([4], DType::U8, MemLoc::Device(0)).unwrap();
        let infer = InferResult::asynchronous([], [desc]).owning_outputs();
        let factory = Factory::new(infer, move |ctx: &mut CreateCtx<'_>| {
            let held = Stash::new();
            held.hide(ctx.buffer(found, 4)?.into_region());
            Ok(AsyncHooks::idle().pop(move |ctx| {
                ctx.publish(0, held.seek())?;
                Ok(OpResult::Ok)
            }))
        });
        let mut task = builder()
            .memory(FakeDevice::new(0).provider())
            .memory(FakeDevice::new(1).provider())
            .asynchronous(&factory, json!({}), [])
            .unwrap();
        let error = task.consumer().try_pop().unwrap_err();
        broken!(error, Hook::TryPop, Slot::Output(0), ContractError::Publish {
            refusal: Refusal::WrongLocation { found: f, .. }, ..
        } if *f == found);
    }
}

#[test]
fn a_second_region_in_a_full_cell_is_refused_and_comes_back_unchanged() {
    let back = Stash::new();
    let hidden = back.clone();
    let infer = InferResult::asynchronous([], [frame()]).owning_outputs();
    let mut task = asynchronous(infer, [], move |_| {
        let hidden = hidden.clone();
        Ok(AsyncHooks::idle().pop(move |ctx| {
            let mut first = stray(4);
            first.as_mut_bytes()?.fill(1);
            let mut second = stray(4);
            second.as_mut_bytes()?.fill(2);
            ctx.publish(0, first)?;
            let refused = ctx.owned_output_storage(0)?.publish(second).unwrap_err();
            hidden.hide(refused);
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    assert_eq!(task.pop::<u8>().unwrap(), Some(vec![1; 4]));
    let refused = back.seek();
    assert_eq!(refused.refusal, Refusal::Full);
    assert_eq!(refused.region.as_bytes().unwrap(), [2; 4]);
}

#[test]
fn publishing_twice_through_the_context_is_an_error_of_the_hook() {
    let infer = InferResult::asynchronous([], [frame()]).owning_outputs();
    let mut task = asynchronous(infer, [], |_| {
        Ok(AsyncHooks::idle().pop(|ctx| {
            ctx.publish(0, stray(4))?;
            ctx.publish(0, stray(4))?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Publish {
            refusal: Refusal::Full,
            ..
        }
    );
    assert!(
        task.consumer().output_address(0).unwrap().is_none(),
        "the cell was emptied"
    );
}

#[test]
fn publishing_in_a_slot_that_is_not_owned_or_not_there_is_an_error() {
    let infer = InferResult::asynchronous([], [frame()]);
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
        Slot::Output(0),
        ContractError::SlotNotOwned { .. }
    );

    for index in [1, usize::MAX] {
        let infer = InferResult::asynchronous([], [frame()]).owning_outputs();
        let mut task = asynchronous(infer, [], move |_| {
            Ok(AsyncHooks::idle().pop(move |ctx| {
                ctx.publish(index, stray(4))?;
                Ok(OpResult::Ok)
            }))
        })
        .unwrap();
        let error = task.consumer().try_pop().unwrap_err();
        broken!(
            error,
            Hook::TryPop,
            Slot::Output(index),
            ContractError::SlotOutOfRange { count: 1, .. }
        );
    }
}

#[test]
fn the_cells_of_the_other_side_are_out_of_reach() {
    let from_push = |ctx: &mut AsyncPushCtx<'_>| -> TaskResult<OpResult> {
        ctx.owned_output_storage(0)?.publish(stray(4))?;
        Ok(OpResult::Ok)
    };
    let mut task = owner(move |_| {
        let hooks = AsyncHooks::idle().acquire(|index, ctx| {
            Ok(ctx
                .lend(index, |_| TaskResult::Ok(Some(stray(4))))?
                .map(|_| index))
        });
        Ok(hooks.push(from_push).pop(|ctx| {
            ctx.owned_input_storage(0)?.publish(stray(4))?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    let error = task.producer().try_push().unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Output(0),
        ContractError::WrongSide { .. }
    );
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Input(0),
        ContractError::WrongSide { .. }
    );
}

#[test]
fn acquire_and_release_cannot_reach_the_other_side_either() {
    let mut task = owner(|_| {
        let hooks = AsyncHooks::idle().acquire(|_, ctx| {
            ctx.owned_output_storage(0)?.publish(stray(4))?;
            Ok(None)
        });
        let hooks = hooks.pop(|ctx| {
            ctx.publish(0, stray(4))?;
            Ok(OpResult::Ok)
        });
        Ok(hooks.release(|_, ctx| {
            ctx.owned_input_storage(0)?.publish(stray(4))?;
            Ok(())
        }))
    })
    .unwrap();
    let error = task.producer().acquire(0).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Output(0),
        ContractError::WrongSide { .. }
    );
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let error = task.consumer().release(0).unwrap_err();
    broken!(
        error,
        Hook::ReleaseOutput,
        Slot::Input(0),
        ContractError::WrongSide { .. }
    );
}

#[test]
fn regions_in_each_others_cells_show_their_own_bytes_and_no_others() {
    let wide = TDesc::host::<u8>([8]).unwrap();
    let infer = InferResult::asynchronous([], [frame(), wide]).owning_outputs();
    let mut task = asynchronous(infer, [], |ctx| {
        let mut buffer = ctx.buffer(MemLoc::Host, 16)?;
        let held = Stash::new();
        for mark in [1, 2] {
            let mut region = buffer.take(8).unwrap();
            region.as_mut_bytes()?.fill(mark);
            held.hide(region);
        }
        Ok(AsyncHooks::idle().pop(move |ctx| {
            // Region 2 was meant for output 1, region 1 is larger than output 0.
            ctx.publish(0, held.seek())?;
            ctx.publish(1, held.seek())?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    let ledger = task.ledger();
    let side = task.consumer();
    assert_eq!(side.try_pop().unwrap(), OpResult::Ok);
    assert_eq!(side.output::<u8>(0).unwrap(), [2; 4]);
    assert_eq!(side.output::<u8>(1).unwrap(), [1; 8]);
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn the_rest_of_a_split_region_is_written_beside_its_published_head() {
    let rest = Stash::new();
    let hidden = rest.clone();
    let infer = InferResult::asynchronous([], [frame()]).owning_outputs();
    let mut task = asynchronous(infer, [], move |ctx| {
        let region = ctx.buffer(MemLoc::Host, 8)?.into_region();
        let hidden = hidden.clone();
        let held = Stash::new();
        held.hide(region);
        Ok(AsyncHooks::idle().pop(move |ctx| {
            let (head, tail) = held.seek().split_at(4).unwrap();
            ctx.publish(0, head)?;
            hidden.hide(tail);
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let mut tail = rest.seek();
    let shown = task.consumer().output::<u8>(0).unwrap();
    tail.as_mut_bytes().unwrap().fill(7);
    assert_eq!(shown, [0; 4]);
}

#[test]
fn a_sync_task_cannot_publish_an_input_or_take_an_output() {
    let infer = InferResult::sync([frame()], [frame()]);
    let mut task = sync(infer, [frame()], |_| {
        let mut turn = 0;
        Ok(SyncHooks::new(move |ctx| {
            turn += 1;
            match turn {
                1 => drop(ctx.owned_input_storage(0)?.publish(stray(4))),
                2 => drop(ctx.owned_output_storage(0)?.retract()),
                _ => drop(ctx.take_input(0)?),
            }
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    for slot in [Slot::Input(0), Slot::Output(0), Slot::Input(0)] {
        let error = task.producer().execute().unwrap_err();
        broken!(
            error,
            Hook::Execute,
            slot,
            ContractError::SlotNotOwned { .. }
        );
    }
    task.producer().write(0, &[1_u8; 4]).unwrap();
}
