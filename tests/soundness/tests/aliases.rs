//! Attacks through outputs that share an input's storage: overwritten inputs that are
//! read, views that are written, and one tensor in two inputs.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use holoflow::prelude::*;
use holoflow::storage::{ContractError, Slot};
use holoflow::task::{Hook, HookError, InferError, TaskErrorKind};
use holoflow::testkit::TaskHarness;
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{
    Factory, SyncHooks, builder, frame, named, nothing_leaks, stray, sync,
};
use serde_json::json;

type Execute = fn(&mut SyncCtx<'_>) -> TaskResult<OpResult>;

fn executing(infer: InferResult, inputs: &[TDesc], execute: Execute) -> TaskHarness {
    sync(infer, inputs.to_vec(), move |_| Ok(SyncHooks::new(execute))).unwrap()
}

/// Two inputs, one tensor; output 0 as `infer` says.
fn tied(infer: InferResult, execute: Execute) -> TaskHarness {
    let factory = Factory::new(infer, move |_: &mut CreateCtx<'_>| {
        Ok(SyncHooks::new(execute))
    });
    builder()
        .tie_inputs(0, 1)
        .sync(&factory, json!({}), [frame(), frame()])
        .unwrap()
}

/// What `infer` is refused for, before any task is made.
fn refused(infer: InferResult, execute: Execute) -> InferError {
    let inputs = infer.input_descs.clone();
    let error: HookError = sync(infer, inputs, move |_| Ok(SyncHooks::new(execute))).unwrap_err();
    named(&error, Hook::Infer, None);
    match error.error.kind() {
        TaskErrorKind::Infer(error) => error.clone(),
        _ => panic!("another error: {error:#}"),
    }
}

fn overwriting() -> InferResult {
    InferResult::sync([frame()], [frame()]).overwriting(0, 0)
}

#[test]
fn an_overwritten_input_cannot_be_read_through_inputs() {
    for execute in [
        (|ctx| {
            ctx.inputs
                .get::<u8>(0)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        }) as Execute,
        |ctx| {
            ctx.inputs
                .bytes(0)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        },
    ] {
        let mut task = executing(overwriting(), &[frame()], execute);
        let error = task.producer().execute().unwrap_err();
        broken!(
            error,
            Hook::Execute,
            Slot::Input(0),
            ContractError::Overwritten {
                output: Slot::Output(0),
                ..
            }
        );
    }
}

#[test]
fn an_overwritten_input_is_read_and_written_through_outputs() {
    let mut task = executing(overwriting(), &[frame()], |ctx| {
        ctx.outputs
            .get_mut::<u8>(0)?
            .iter_mut()
            .for_each(|x| *x *= 2);
        Ok(OpResult::Ok)
    });
    assert_eq!(
        task.run::<u8, u8>(&[1, 2, 3, 4]).unwrap(),
        Some(vec![2, 4, 6, 8])
    );
    let ledger = task.ledger();
    assert_eq!(ledger.counts().allocations, 1);
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn the_view_of_an_overwritten_input_says_where_it_is_and_gives_no_bytes() {
    // That no way leads from a view to a region is a doctest of `slices`.
    let mut task = executing(overwriting(), &[frame()], |ctx| {
        let view = ctx.inputs.view(0)?;
        let first = ctx.outputs.get_mut::<u8>(0)?;
        let written = std::ptr::from_mut(first).cast::<u8>().addr() as u64;
        assert_eq!(view.address().map(|seen| seen.as_u64()), Some(written));
        first.fill(1);
        assert!(view.storage().is_published());
        Ok(OpResult::Ok)
    });
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
}

#[test]
fn an_input_tied_to_an_overwritten_one_cannot_be_read_either() {
    let infer = InferResult::sync([frame(), frame()], [frame()]).overwriting(0, 0);
    let mut task = tied(infer, |ctx| {
        ctx.inputs.get::<u8>(1)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(1),
        ContractError::Overwritten {
            output: Slot::Output(0),
            ..
        }
    );

    let infer = InferResult::sync([frame(), frame()], [frame()]).overwriting(1, 0);
    let mut task = tied(infer, |ctx| {
        ctx.inputs.bytes(0)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(0),
        ContractError::Overwritten {
            output: Slot::Output(0),
            ..
        }
    );
}

#[test]
fn two_outputs_that_overwrite_one_tensor_through_two_inputs_are_refused() {
    let infer = InferResult::sync([frame(), frame()], [frame(), frame()])
        .overwriting(0, 0)
        .overwriting(1, 1);
    let factory = Factory::new(infer, |_: &mut CreateCtx<'_>| {
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)))
    });
    let error = builder()
        .tie_inputs(0, 1)
        .sync(&factory, json!({}), [frame(), frame()])
        .unwrap_err();
    broken!(
        error,
        Hook::Create,
        Slot::Output(1),
        ContractError::SameSlotTwice { .. }
    );
}

#[test]
fn two_outputs_that_overwrite_one_input_are_refused() {
    // Through two inputs of one tensor, which `infer` cannot see, the bank refuses it.
    let infer = InferResult::sync([frame()], [frame(), frame()])
        .overwriting(0, 0)
        .overwriting(0, 1);
    let error = refused(infer, |ctx| {
        ctx.outputs.get_pair_mut::<u8, u8>(0, 1)?;
        Ok(OpResult::Ok)
    });
    assert_eq!(
        error,
        InferError::OverwrittenAndShared {
            input: Slot::Input(0),
            first: Slot::Output(0),
            second: Slot::Output(1),
        }
    );
}

#[test]
fn one_tensor_in_two_inputs_is_read_through_both() {
    let infer = InferResult::sync([frame(), frame()], [frame()]);
    let mut task = tied(infer, |ctx| {
        let (a, b) = (ctx.inputs.get::<u8>(0)?, ctx.inputs.get::<u8>(1)?);
        assert!(std::ptr::eq(a, b), "one tensor");
        ctx.outputs.get_mut::<u8>(0)?.copy_from_slice(b);
        Ok(OpResult::Ok)
    });
    assert_eq!(
        task.run::<u8, u8>(&[1, 2, 3, 4]).unwrap(),
        Some(vec![1, 2, 3, 4])
    );
}

#[test]
fn one_tensor_in_two_inputs_is_written_by_its_producer_through_one_only() {
    let infer = InferResult::sync([frame(), frame()], [frame()]);
    let mut task = tied(infer, |_| Ok(OpResult::Ok));
    assert!(task.producer().input_mut::<u8>(0).is_ok());
    assert!(task.producer().input_mut::<u8>(1).is_err());
}

#[test]
fn two_owned_inputs_in_one_cell_lend_one_region_and_no_more() {
    let infer = InferResult::sync([frame(), frame()], []).owning_inputs();
    let factory = Factory::new(infer, |_: &mut CreateCtx<'_>| {
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)).acquire(|index, ctx| {
            Ok(ctx
                .lend(index, |_| TaskResult::Ok(Some(stray(4))))?
                .map(|_| index))
        }))
    });
    let mut task = builder()
        .tie_inputs(0, 1)
        .sync(&factory, json!({}), [frame(), frame()])
        .unwrap();
    assert!(task.producer().acquire(0).unwrap());
    let error = task.producer().acquire(1).unwrap_err();
    broken!(
        error,
        Hook::AcquireInput,
        Slot::Input(1),
        ContractError::Publish { .. }
    );
    assert!(task.producer().execute().is_err());
}

#[test]
fn a_view_output_cannot_be_written() {
    for execute in [
        (|ctx| {
            ctx.outputs
                .get_mut::<u8>(0)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        }) as Execute,
        |ctx| {
            ctx.outputs
                .bytes_mut(0)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        },
        |ctx| {
            ctx.outputs.get_pair_mut::<u8, u8>(1, 0)?;
            Ok(OpResult::Ok)
        },
    ] {
        let infer = InferResult::sync([frame()], [frame(), frame()]).viewing(0, 0);
        let mut task = executing(infer, &[frame()], execute);
        let error = task.producer().execute().unwrap_err();
        broken!(
            error,
            Hook::Execute,
            Slot::Output(0),
            ContractError::ViewOutput { .. }
        );
    }
}

#[test]
fn a_view_output_shows_its_range_of_the_input_and_no_more() {
    let middle = TDesc::with_offset([2], DType::U8, MemLoc::Host, 1).unwrap();
    let infer = InferResult::sync([frame()], [middle]).viewing(0, 0);
    let mut task = executing(infer, &[frame()], |ctx| {
        assert_eq!(ctx.inputs.get::<u8>(0)?, [1, 2, 3, 4]);
        Ok(OpResult::Ok)
    });
    assert_eq!(task.run::<u8, u8>(&[1, 2, 3, 4]).unwrap(), Some(vec![2, 3]));
}

#[test]
fn a_view_and_an_overwrite_of_one_input_never_give_a_shared_slice_beside_a_mutable_one() {
    let views = |ctx: &mut SyncCtx<'_>| -> TaskResult<OpResult> {
        let (input, output) = (Slot::Input(0), Slot::Output(1));
        assert_eq!(
            ctx.inputs.get::<u8>(0).unwrap_err(),
            ContractError::Overwritten { input, output }
        );
        let output = Slot::Output(0);
        assert_eq!(
            ctx.outputs.get_pair_mut::<u8, u8>(1, 0).unwrap_err(),
            ContractError::ViewOutput { output }
        );
        ctx.outputs.get_mut::<u8>(1)?.fill(7);
        Ok(OpResult::Ok)
    };
    let base = InferResult::sync([frame()], [frame(), frame()]);
    for (infer, first, second) in [
        (base.clone().viewing(0, 0).overwriting(0, 1), 0, 1),
        (base.overwriting(0, 1).viewing(0, 0), 1, 0),
    ] {
        assert_eq!(
            refused(infer, views),
            InferError::OverwrittenAndShared {
                input: Slot::Input(0),
                first: Slot::Output(first),
                second: Slot::Output(second),
            }
        );
    }

    // Through two inputs of one tensor `infer` cannot see it, and the slices are refused.
    let base = InferResult::sync([frame(), frame()], [frame(), frame()]);
    for infer in [
        base.clone().viewing(0, 0).overwriting(1, 1),
        base.clone().viewing(1, 0).overwriting(0, 1),
        base.overwriting(0, 1).viewing(1, 0),
    ] {
        let mut task = tied(infer, views);
        let ledger = task.ledger();
        assert_eq!(task.run::<u8, u8>(&[1, 2, 3, 4]).unwrap(), Some(vec![7; 4]));
        assert_eq!(task.producer().output::<u8>(1).unwrap(), [7; 4]);
        drop(task);
        nothing_leaks(&ledger);
    }
}

#[test]
fn an_output_asked_for_twice_as_a_pair_is_an_error() {
    let infer = InferResult::sync([frame()], [frame()]);
    let mut task = executing(infer, &[frame()], |ctx| {
        ctx.outputs.get_pair_mut::<u8, u8>(0, 0)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Output(0),
        ContractError::SameSlotTwice { .. }
    );
}

#[test]
fn a_pair_of_outputs_lies_in_disjoint_bytes() {
    let infer = InferResult::sync([frame()], [frame(), frame()]).overwriting(0, 1);
    let mut task = executing(infer, &[frame()], |ctx| {
        let (a, b) = ctx.outputs.get_pair_mut::<u8, u8>(0, 1)?;
        a.fill(5);
        assert_eq!(b, [1, 2, 3, 4]);
        b.fill(6);
        assert_eq!(a, [5; 4]);
        Ok(OpResult::Ok)
    });
    assert_eq!(task.run::<u8, u8>(&[1, 2, 3, 4]).unwrap(), Some(vec![5; 4]));
}

#[test]
fn an_output_of_another_type_over_an_input_is_checked_for_alignment_again() {
    // Eight bytes at an odd offset, overwritten as one F64.
    let odd = TDesc::with_offset([8], DType::U8, MemLoc::Host, 1).unwrap();
    let double = TDesc::with_offset([1], DType::F64, MemLoc::Host, 1).unwrap();
    let infer = InferResult::sync([odd.clone()], [double]).overwriting(0, 0);
    let mut task = executing(infer, &[odd], |ctx| {
        assert_eq!(ctx.outputs.bytes_mut(0)?.len(), 8);
        ctx.outputs.get_mut::<f64>(0)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Output(0),
        ContractError::NotContiguous { .. }
    );
}

#[test]
fn an_owned_input_that_is_overwritten_and_taken_leaves_no_output_to_write() {
    let infer = InferResult::sync([frame()], [frame()])
        .overwriting(0, 0)
        .owning_inputs();
    let error = refused(infer, |ctx| {
        let mut region = ctx.take_input(0)?;
        region.as_mut_bytes()?.fill(1);
        ctx.outputs.get_mut::<u8>(0)?;
        Ok(OpResult::Ok)
    });
    let slot = Slot::Input(0);
    assert_eq!(error, InferError::OwnedInPlace { slot });
    let infer = InferResult::sync([frame()], [frame()])
        .viewing(0, 0)
        .owning_inputs();
    let error = refused(infer, |_| Ok(OpResult::Ok));
    assert_eq!(error, InferError::OwnedInPlace { slot });
}

#[test]
fn an_owned_output_taken_out_again_leaves_no_output_to_write() {
    let infer = InferResult::sync([], [frame()]).owning_outputs();
    let mut task = executing(infer, &[], |ctx| {
        ctx.publish(0, stray(4))?;
        ctx.outputs.get_mut::<u8>(0)?.fill(1);
        let mut region = ctx.owned_output_storage(0)?.retract();
        if let Some(region) = &mut region {
            region.as_mut_bytes()?.fill(2);
        }
        ctx.outputs.get_mut::<u8>(0)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Output(0),
        ContractError::Empty { .. }
    );
    assert!(task.producer().output_address(0).unwrap().is_none());
}
