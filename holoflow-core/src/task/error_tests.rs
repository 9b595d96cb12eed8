//! Every message of the task errors, and how a place is added to them.

use super::*;
use crate::storage::Slot;
use crate::tensor::MemLoc;

fn printed(error: impl Into<TaskError>) -> String {
    format!("{:#}", error.into())
}

#[test]
fn each_task_error_prints_what_was_found_and_expected() {
    for (error, plain, whole) in [
        (
            TaskError::settings("max_fps", -3, "a number above 0"),
            "setting `max_fps`: found -3, expected a number above 0",
            "",
        ),
        (
            TaskError::input(1, "U8[2]@Host", "F32"),
            "input 1: found U8[2]@Host, expected F32",
            "",
        ),
        (
            TaskErrorKind::InputCount {
                found: 3,
                expected: "1".to_owned(),
            }
            .into(),
            "found 3 inputs, expected 1",
            "",
        ),
        (
            InferError::AsyncSkip.into(),
            "the factory's inference contradicts itself",
            ": `may_skip` is set, but the task is async: answer NotReady instead",
        ),
        (
            ContractError::Empty {
                slot: Slot::Input(0),
            }
            .into(),
            "the storage contract was broken",
            ": input 0 is empty: nothing is published in its cell",
        ),
        (
            RegionError::ReadOnly.into(),
            "a region's bytes cannot be reached",
            ": the region is shared and read-only",
        ),
        (
            RingError::Shared.into(),
            "the ring cannot be made",
            ": the region is shared and read-only, a ring must own it alone",
        ),
        (
            TensorError::StrideRank {
                found: 1,
                expected: 2,
            }
            .into(),
            "the tensor cannot be described",
            ": found 1 strides for a shape of rank 2, expected one for each axis",
        ),
        (
            MemoryError::TooLarge {
                location: MemLoc::Host,
                bytes: 7,
            }
            .into(),
            "memory could not be had",
            ": 7 bytes of Host memory are more than one allocation can hold",
        ),
        (
            DeviceError::new("cuda", "cuInit", "no device").into(),
            "the device reported a fault",
            ": cuda: cuInit failed: no device",
        ),
        (
            TaskError::frame("a bit is wrong"),
            "this frame failed",
            ": a bit is wrong",
        ),
        (
            TaskError::other("the disk is full"),
            "the task failed",
            ": the disk is full",
        ),
    ] {
        assert_eq!(error.to_string(), plain);
        assert_eq!(format!("{error:#}"), format!("{plain}{whole}"));
        // The cause is in `source` and not printed twice.
        assert_eq!(error.source().is_some(), !whole.is_empty());
    }
}

#[test]
fn a_panic_is_told_in_its_own_words() {
    for (payload, message) in [
        (Box::new("text") as Box<dyn std::any::Any + Send>, "text"),
        (Box::new("owned".to_owned()), "owned"),
        (Box::new(7), "with a value that is no text"),
    ] {
        let error = TaskError::panicked(payload);
        assert_eq!(error.to_string(), format!("the task panicked: {message}"));
        assert!(matches!(error.kind(), TaskErrorKind::Panicked { .. }));
    }
}

#[test]
fn a_refused_region_is_a_broken_contract() {
    use crate::storage::{Refusal, Refused, TaskBuffer};

    let memory = crate::memory::Memory::host();
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 1)
        .unwrap()
        .into_region();
    let refusal = Refusal::ForeignWindow;
    let text = printed(Refused { region, refusal });
    assert_eq!(
        text,
        "the storage contract was broken: a region was refused: the region is not the window \
         that this ring has out on this side"
    );
}

#[test]
fn a_hook_error_names_the_place_and_with_the_alternate_form_all_causes() {
    let slot = Slot::Output(2);
    let error = HookError::new(
        "limiter",
        Hook::TryPop,
        ContractError::SlotOutOfRange { slot, count: 1 },
    );
    assert_eq!(error.to_string(), "node `limiter`, try_pop");
    assert_eq!(
        format!("{error:#}"),
        "node `limiter`, try_pop: the storage contract was broken: output 2 is out of range: \
         the node has 1"
    );
    assert!(matches!(
        error.contract(),
        Some(ContractError::SlotOutOfRange { count: 1, .. })
    ));
    let chain = std::iter::successors(error.source(), |cause| (*cause).source());
    assert_eq!(chain.count(), 2);
    let other = HookError::new("limiter", Hook::Create, TaskError::other("x"));
    assert!(other.contract().is_none());
    assert_eq!(
        format!("{other:#}"),
        "node `limiter`, create: the task failed: x"
    );
}

#[test]
fn hooks_print_as_the_functions_are_named() {
    let hooks = [
        (Hook::Infer, "infer"),
        (Hook::Create, "create"),
        (Hook::Update, "update"),
        (Hook::RunStarted, "run_started"),
        (Hook::RunEnded, "run_ended"),
        (Hook::AcquireInput, "acquire_input"),
        (Hook::CancelInput, "cancel_input"),
        (Hook::Execute, "execute"),
        (Hook::TryPush, "try_push"),
        (Hook::TryPop, "try_pop"),
        (Hook::ReleaseOutput, "release_output"),
        (Hook::ProducerFinished, "producer_finished"),
        (Hook::ConsumerFinished, "consumer_finished"),
    ];
    for (hook, name) in hooks {
        assert_eq!(hook.to_string(), name);
    }
}

#[test]
fn what_panics_as_it_is_dropped_is_contained() {
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 {
                std::panic::panic_any(Bomb(true));
            }
        }
    }
    drop_guarded(Bomb(true));
    drop_guarded(Bomb(false));
}
