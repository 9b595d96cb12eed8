//! Attacks by factories whose inference is not true.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use holoflow::prelude::*;
use holoflow::storage::{ContractError, Refusal, Slot};
use holoflow::task::{
    Aliasing, Flow, Hook, HookError, InPlace, InferError, TaskErrorKind, TaskKind,
};
use holoflow::testkit::TaskHarness;
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{
    AsyncHooks, Factory, SyncHooks, asynchronous, builder, frame, named, stray, sync,
};
use serde_json::json;

fn as_sync(infer: InferResult, inputs: &[TDesc]) -> Result<TaskHarness, HookError> {
    sync(infer, inputs.to_vec(), |_| {
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)))
    })
}

fn as_async(infer: InferResult, inputs: &[TDesc]) -> Result<TaskHarness, HookError> {
    asynchronous(infer, inputs.to_vec(), |_| Ok(AsyncHooks::idle()))
}

/// The contradiction that `infer` was refused for.
fn contradiction(outcome: Result<TaskHarness, HookError>) -> InferError {
    let error = outcome.unwrap_err();
    named(&error, Hook::Infer, None);
    match error.error.kind() {
        TaskErrorKind::Infer(error) => error.clone(),
        _ => panic!("another error: {error:#}"),
    }
}

fn one_to_one() -> InferResult {
    InferResult::sync([frame()], [frame()])
}

#[test]
fn too_few_or_too_many_flags_and_descriptors_are_refused() {
    for count in [0, 2, 1000] {
        let mut infer = one_to_one();
        infer.owned_inputs = vec![true; count];
        let error = contradiction(as_sync(infer, &[frame()]));
        let flags = "owned_inputs";
        assert_eq!(
            error,
            InferError::FlagCount {
                flags,
                found: count,
                expected: 1
            }
        );

        let mut infer = one_to_one();
        infer.owned_outputs = vec![true; count];
        let error = contradiction(as_sync(infer, &[frame()]));
        let flags = "owned_outputs";
        assert_eq!(
            error,
            InferError::FlagCount {
                flags,
                found: count,
                expected: 1
            }
        );
    }
    let error = contradiction(as_sync(one_to_one(), &[]));
    assert_eq!(
        error,
        InferError::InputDescs {
            found: 1,
            expected: 0
        }
    );
    let error = contradiction(as_sync(one_to_one(), &[frame(), frame()]));
    assert_eq!(
        error,
        InferError::InputDescs {
            found: 1,
            expected: 2
        }
    );
}

#[test]
fn the_wrong_kind_is_refused_both_ways() {
    let infer = InferResult::asynchronous([frame()], [frame()]);
    let error = contradiction(as_sync(infer, &[frame()]));
    assert_eq!(
        error,
        InferError::Kind {
            found: TaskKind::Async,
            expected: TaskKind::Sync
        }
    );
    let error = contradiction(as_async(one_to_one(), &[frame()]));
    assert_eq!(
        error,
        InferError::Kind {
            found: TaskKind::Sync,
            expected: TaskKind::Async
        }
    );
}

#[test]
fn in_place_pairs_that_name_no_slot_are_refused() {
    let error = contradiction(as_sync(one_to_one().overwriting(1, 0), &[frame()]));
    assert_eq!(
        error,
        InferError::NoSuchSlot {
            slot: Slot::Input(1),
            count: 1
        }
    );
    let error = contradiction(as_sync(one_to_one().viewing(0, usize::MAX), &[frame()]));
    assert_eq!(
        error,
        InferError::NoSuchSlot {
            slot: Slot::Output(usize::MAX),
            count: 1
        }
    );
}

#[test]
fn an_output_in_place_twice_owned_or_async_is_refused() {
    let infer = one_to_one().overwriting(0, 0).viewing(0, 0);
    let error = contradiction(as_sync(infer, &[frame()]));
    assert_eq!(
        error,
        InferError::SharedTwice {
            output: Slot::Output(0)
        }
    );

    let infer = one_to_one().overwriting(0, 0).owning_outputs();
    let error = contradiction(as_sync(infer, &[frame()]));
    assert_eq!(
        error,
        InferError::OwnedInPlace {
            slot: Slot::Output(0)
        }
    );

    let infer = InferResult::asynchronous([frame()], [frame()]).overwriting(0, 0);
    let error = contradiction(as_async(infer, &[frame()]));
    assert_eq!(
        error,
        InferError::AsyncInPlace {
            output: Slot::Output(0)
        }
    );
}

#[test]
fn an_output_larger_smaller_or_elsewhere_than_the_input_it_overwrites_is_refused() {
    let outputs = [
        TDesc::host::<u8>([5]).unwrap(),
        TDesc::host::<u8>([3]).unwrap(),
        TDesc::host::<f64>([4]).unwrap(),
        TDesc::with_offset([4], DType::U8, MemLoc::Host, 1).unwrap(),
        TDesc::new([4], DType::U8, MemLoc::HostPinned).unwrap(),
        TDesc::new([4], DType::U8, MemLoc::Device(0)).unwrap(),
    ];
    for output in outputs {
        let infer = InferResult::sync([frame()], [output]).overwriting(0, 0);
        let error = contradiction(as_sync(infer, &[frame()]));
        assert!(matches!(error, InferError::Misfit { .. }), "{error}");
    }
}

#[test]
fn a_view_outside_its_parent_is_refused() {
    let parent = TDesc::with_offset([4], DType::U8, MemLoc::Host, 4).unwrap();
    let outside = [
        TDesc::with_offset([4], DType::U8, MemLoc::Host, 5).unwrap(),
        TDesc::with_offset([2], DType::U8, MemLoc::Host, 3).unwrap(),
        TDesc::with_layout([2], DType::U8, MemLoc::Host, [4], 4).unwrap(),
        TDesc::with_offset([1], DType::U8, MemLoc::Host, isize::MAX as usize - 1).unwrap(),
        TDesc::new([1], DType::U8, MemLoc::Device(0)).unwrap(),
    ];
    for view in outside {
        let infer = InferResult::sync([parent.clone()], [view]).viewing(0, 0);
        let error = contradiction(as_sync(infer, std::slice::from_ref(&parent)));
        assert!(matches!(error, InferError::Misfit { .. }), "{error}");
    }
}

#[test]
fn an_empty_view_far_outside_its_parent_is_refused() {
    let far = TDesc::with_offset([0], DType::F64, MemLoc::Host, 1 << 40).unwrap();
    let infer = InferResult::sync([frame()], [far.clone()]).viewing(0, 0);
    let error = contradiction(as_sync(infer, &[frame()]));
    assert!(
        matches!(
            error,
            InferError::Misfit {
                input: Slot::Input(0),
                output: Slot::Output(0),
                ..
            }
        ),
        "{error}"
    );

    // Within the input wanted, which is far outside the input given: the bank refuses it.
    let infer = InferResult::sync([far.clone()], [far]).viewing(0, 0);
    let error = as_sync(infer, &[frame()]).unwrap_err();
    let refusal = Refusal::TooSmall {
        found: 4,
        expected: 1 << 40,
    };
    broken!(error, Hook::Create, Slot::Output(0), ContractError::Misfit { refusal: r, .. }
        if *r == refusal);
}

#[test]
fn an_empty_view_at_the_end_of_its_parent_reaches_no_bytes() {
    for offset in [0, 4] {
        let none = TDesc::with_offset([0], DType::U8, MemLoc::Host, offset).unwrap();
        let infer = InferResult::sync([frame()], [none]).viewing(0, 0);
        let mut task = as_sync(infer, &[frame()]).unwrap();
        assert_eq!(task.run::<u8, u8>(&[1; 4]).unwrap(), Some(vec![]));
        assert!(task.producer().output::<u8>(0).unwrap().is_empty());
    }
}

#[test]
fn a_view_within_the_input_wanted_but_not_within_the_input_given_is_refused() {
    let wanted = TDesc::host::<u8>([64]).unwrap();
    for aliasing in [Aliasing::View, Aliasing::Overwrite] {
        let mut infer = InferResult::sync([wanted.clone()], [wanted.clone()]);
        infer.in_place = vec![InPlace {
            input: 0,
            output: 0,
            aliasing,
        }];
        let error = as_sync(infer, &[frame()]).unwrap_err();
        broken!(
            error,
            Hook::Create,
            None,
            ContractError::Misfit {
                refusal: Refusal::TooSmall {
                    found: 4,
                    expected: 64
                },
                ..
            }
        );
    }
}

#[test]
fn the_error_of_a_view_that_does_not_fit_names_the_output() {
    let wanted = TDesc::host::<u8>([64]).unwrap();
    let infer = InferResult::sync([wanted.clone()], [wanted]).viewing(0, 0);
    let error = as_sync(infer, &[frame()]).unwrap_err();
    named(&error, Hook::Create, Slot::Output(0));
}

#[test]
fn inputs_tied_although_they_do_not_fit_each_other_are_refused() {
    let wide = TDesc::host::<u8>([64]).unwrap();
    let infer = InferResult::sync([frame(), wide.clone()], []);
    let factory = Factory::new(infer, |_: &mut CreateCtx<'_>| {
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)))
    });
    let error = builder()
        .tie_inputs(0, 1)
        .sync(&factory, json!({}), [frame(), wide])
        .unwrap_err();
    named(&error, Hook::Create, None);
    assert!(
        matches!(error.contract(), Some(ContractError::Misfit { .. })),
        "{error:#}"
    );
}

#[test]
fn inputs_tied_to_themselves_backwards_or_to_nothing_change_nothing() {
    let infer = InferResult::sync([frame(), frame()], []);
    let factory = Factory::new(infer, |_: &mut CreateCtx<'_>| {
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)))
    });
    let mut task = builder()
        .tie_inputs(0, 0)
        .tie_inputs(1, 0)
        .tie_inputs(5, 6)
        .tie_inputs(usize::MAX, 1)
        .sync(&factory, json!({}), [frame(), frame()])
        .unwrap();
    task.producer().write(0, &[1_u8; 4]).unwrap();
    task.producer().write(1, &[2_u8; 4]).unwrap();
    assert_eq!(task.producer().input_mut::<u8>(0).unwrap(), [1; 4]);
}

#[test]
fn flows_that_go_nowhere_and_flags_of_the_other_kind_are_refused() {
    let flow = Flow {
        frames_per_output: 0,
        held_back: 0,
        capacity: 1,
    };
    let infer = InferResult::asynchronous([frame()], [frame()]).with_flow(flow);
    let error = contradiction(as_async(infer, &[frame()]));
    assert_eq!(error, InferError::EmptyFlow { flow });
    let error = contradiction(as_sync(
        one_to_one().with_flow(Flow::one_to_one(1)),
        &[frame()],
    ));
    assert_eq!(error, InferError::SyncFlow);
    let infer = InferResult::asynchronous([], []).skipping();
    assert_eq!(contradiction(as_async(infer, &[])), InferError::AsyncSkip);
}

#[test]
fn a_flow_of_more_frames_than_there_are_takes_what_there_is() {
    let flow = Flow {
        frames_per_output: usize::MAX,
        held_back: usize::MAX,
        capacity: usize::MAX,
    };
    let infer = InferResult::asynchronous([frame()], [frame()]).with_flow(flow);
    let mut task = asynchronous(infer, [frame()], |_| {
        Ok(AsyncHooks::idle()
            .push(|_| Ok(OpResult::Ok))
            .pop(|_| Ok(OpResult::Ok)))
    })
    .unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert!(task.pop::<u8>().unwrap().is_some());
    assert!(task.pop::<u8>().unwrap().is_some());
}

#[test]
fn memory_that_the_pipeline_does_not_have_is_an_error_that_says_so() {
    let device = TDesc::new([4], DType::U8, MemLoc::Device(7)).unwrap();
    let error = as_sync(InferResult::sync([], [device]), &[]).unwrap_err();
    named(&error, Hook::Create, None);
    assert!(
        format!("{error:#}").contains("no memory provider for Device:7"),
        "{error:#}"
    );
}

#[test]
fn a_slot_owned_by_lie_is_never_lent_without_its_hook() {
    // `infer` says owned, the task behaves as if borrowed.
    let infer = InferResult::asynchronous([frame()], [frame()])
        .owning_inputs()
        .owning_outputs();
    let mut task = asynchronous(infer, [frame()], |_| {
        Ok(AsyncHooks::idle()
            .push(|ctx| {
                ctx.inputs
                    .get::<u8>(0)
                    .map(|_| OpResult::Ok)
                    .map_err(Into::into)
            })
            .pop(|ctx| {
                ctx.outputs.get_mut::<u8>(0)?.fill(1);
                Ok(OpResult::Ok)
            }))
    })
    .unwrap();
    assert!(!task.producer().acquire(0).unwrap());
    let error = task.producer().try_push().unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Input(0),
        ContractError::Order { .. }
    );
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::Empty { .. }
    );
}

#[test]
fn a_slot_borrowed_by_lie_is_never_published_by_the_task() {
    // `infer` says borrowed, the task behaves as if owned.
    let infer = InferResult::asynchronous([frame()], [frame()]);
    let mut task = asynchronous(infer, [frame()], |_| {
        Ok(AsyncHooks::idle()
            .push(|ctx| ctx.take_input(0).map(|_| OpResult::Ok))
            .pop(|ctx| ctx.publish(0, stray(4)).map(|()| OpResult::Ok)))
    })
    .unwrap();
    let error = task.push(&[1_u8; 4]).unwrap_err();
    broken!(
        error,
        Hook::TryPush,
        Slot::Input(0),
        ContractError::SlotNotOwned { .. }
    );
    let error = task.consumer().try_pop().unwrap_err();
    broken!(
        error,
        Hook::TryPop,
        Slot::Output(0),
        ContractError::SlotNotOwned { .. }
    );
    assert_eq!(task.consumer().output::<u8>(0).unwrap(), [0; 4]);
}
