//! Every way in which an inference contradicts itself, with its message.

use super::*;
use crate::tensor::{DType, MemLoc};

fn desc(count: usize) -> TDesc {
    TDesc::host::<u8>([count]).unwrap()
}

fn part(count: usize, offset: usize) -> TDesc {
    TDesc::with_offset([count], DType::U8, MemLoc::Host, offset).unwrap()
}

fn sync(inputs: usize, outputs: usize) -> InferResult {
    InferResult::sync(vec![desc(4); inputs], vec![desc(4); outputs])
}

fn message(result: &InferResult, inputs: usize) -> String {
    result.check(inputs).unwrap_err().to_string()
}

#[test]
fn i_08_one_descriptor_for_each_input() {
    assert_eq!(
        message(&sync(1, 1), 2),
        "found 1 input descriptors, expected one for each of the 2 inputs"
    );
    assert!(sync(0, 0).check(0).is_ok());
}

#[test]
fn i_08_one_flag_for_each_descriptor() {
    for flags in [0, 1, 3] {
        let mut result = sync(2, 2);
        result.owned_inputs = vec![true; flags];
        assert_eq!(
            message(&result, 2),
            format!("`owned_inputs` has {flags} flags, expected 2: one for each descriptor")
        );
        let mut result = sync(2, 2);
        result.owned_outputs = vec![true; flags];
        assert_eq!(
            message(&result, 2),
            format!("`owned_outputs` has {flags} flags, expected 2: one for each descriptor")
        );
    }
}

#[test]
fn only_sync_tasks_are_in_place_or_skip_and_only_async_ones_have_a_flow() {
    let asynchronous = || InferResult::asynchronous([desc(4)], [desc(4)]);
    assert_eq!(
        message(&asynchronous().viewing(0, 0), 1),
        "output 0 is in place, but the task is async: its sides share no cell"
    );
    assert_eq!(
        message(&asynchronous().skipping(), 1),
        "`may_skip` is set, but the task is async: answer NotReady instead"
    );
    let flow = Flow::one_to_one(2);
    assert!(asynchronous().with_flow(flow).check(1).is_ok());
    assert_eq!(
        message(&sync(1, 1).with_flow(flow), 1),
        "`flow` is set, but the task is sync: one frame in, one out"
    );
    for empty in [
        Flow {
            frames_per_output: 0,
            ..flow
        },
        Flow {
            capacity: 0,
            ..flow
        },
    ] {
        assert_eq!(
            message(&asynchronous().with_flow(empty), 1),
            format!("{empty:?} has a zero where at least 1 is needed")
        );
    }
}

#[test]
fn in_place_pairs_name_slots_that_are_there() {
    assert_eq!(
        message(&sync(1, 1).viewing(1, 0), 1),
        "an in-place pair names input 1, but there are 1"
    );
    assert_eq!(
        message(&sync(1, 1).overwriting(0, 2), 1),
        "an in-place pair names output 2, but there are 1"
    );
}

#[test]
fn storage_is_shared_once_and_not_owned() {
    assert_eq!(
        message(&sync(2, 1).viewing(0, 0).viewing(1, 0), 2),
        "output 0 shares storage with more than one input"
    );
    assert_eq!(
        message(&sync(1, 1).viewing(0, 0).owning_outputs(), 1),
        "output 0 is owned and in place: an owned slot's storage is the task's own"
    );
    assert_eq!(
        message(&sync(1, 1).overwriting(0, 0).owning_inputs(), 1),
        "input 0 is owned and in place: an owned slot's storage is the task's own"
    );
    // Any number of views of one input, or one output that overwrites it.
    assert!(sync(1, 2).viewing(0, 0).viewing(0, 1).check(1).is_ok());
    for result in [
        sync(1, 2).overwriting(0, 0).overwriting(0, 1),
        sync(1, 2).viewing(0, 0).overwriting(0, 1),
        sync(1, 2).overwriting(0, 0).viewing(0, 1),
        InferResult::sync([desc(4)], vec![desc(4); 3])
            .viewing(0, 0)
            .viewing(0, 1)
            .overwriting(0, 2),
    ] {
        assert!(matches!(
            result.check(1),
            Err(InferError::OverwrittenAndShared { .. })
        ));
    }
    assert_eq!(
        message(&sync(1, 2).viewing(0, 0).overwriting(0, 1), 1),
        "input 0 is in place with output 0 and output 1, and one of them overwrites it"
    );
}

#[test]
fn only_an_owned_output_is_read_only() {
    let mut result = sync(1, 2).sharing_outputs([1]);
    assert_eq!(result.owned_outputs, [false, true]);
    assert_eq!(result.read_only_outputs, [false, true]);
    assert!(result.check(1).is_ok());
    result.owned_outputs[1] = false;
    assert_eq!(
        message(&result, 1),
        "output 1 is read-only and not owned: only what the task publishes can be shared"
    );
    result.read_only_outputs.clear();
    assert_eq!(
        message(&result, 1),
        "`read_only_outputs` has 0 flags, expected 2: one for each descriptor"
    );
}

#[test]
fn a_view_lies_within_the_input_and_an_overwrite_has_its_bytes() {
    let in_place = |output: TDesc| InferResult::sync([part(4, 2)], [output]);
    for (output, view, overwrite) in [
        (part(4, 2), true, true),
        (part(2, 3), true, false),
        (part(0, 2), true, false),
        (part(2, 1), false, false),
        (part(4, 3), false, false),
        (part(4, 2).at_location(MemLoc::Device(0)), false, false),
    ] {
        let viewing = in_place(output.clone()).viewing(0, 0);
        assert_eq!(viewing.check(1).is_ok(), view, "{output}");
        let overwriting = in_place(output.clone()).overwriting(0, 0);
        assert_eq!(overwriting.check(1).is_ok(), overwrite, "{output}");
    }
    assert_eq!(
        message(&in_place(desc(9)).viewing(0, 0), 1),
        "output 0 is in place with input 0: found U8[9]@Host, expected a view within \
         U8[4]@Host offset 2"
    );
    assert_eq!(
        message(&in_place(desc(9)).overwriting(0, 0), 1),
        "output 0 is in place with input 0: found U8[9]@Host, expected the bytes of \
         U8[4]@Host offset 2"
    );
}

#[test]
fn i_10_the_kind_must_be_that_of_the_registration() {
    let error = InferError::Kind {
        found: TaskKind::Async,
        expected: TaskKind::Sync,
    };
    assert_eq!(
        error.to_string(),
        "`kind` is Async, but the factory is registered as Sync"
    );
}
