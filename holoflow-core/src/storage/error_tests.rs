//! Every message of the storage errors.

use super::*;
use crate::memory::{HostProvider, Memory};

fn address() -> Address {
    let memory = Memory::none().with(crate::sync::Arc::new(HostProvider));
    memory.allocate(MemLoc::Host, 1).unwrap().address()
}

#[test]
fn each_refusal_says_what_was_offered_and_what_fits() {
    let address = address();
    for (refusal, message) in [
        (
            Refusal::Full,
            "the cell already holds a region: retract it first".to_owned(),
        ),
        (
            Refusal::TooSmall {
                found: 3,
                expected: 4,
            },
            "the region has 3 bytes, the tensor needs 4".to_owned(),
        ),
        (
            Refusal::WrongLocation {
                found: MemLoc::Device(1),
                expected: MemLoc::Host,
            },
            "the region lies in Device:1, the tensor belongs in Host".to_owned(),
        ),
        (
            Refusal::Misaligned { address, align: 8 },
            format!("the region starts at {address:?}, which is no multiple of 8"),
        ),
        (
            Refusal::ReadOnly,
            "the region is shared and read-only, but a node writes this tensor".to_owned(),
        ),
        (
            Refusal::ForeignWindow,
            "the region is not the window that this ring has out on this side".to_owned(),
        ),
        (
            Refusal::StillShared,
            "others still hold parts of the region, which is shared: drop them first".to_owned(),
        ),
        (
            Refusal::InUse,
            "device work on the region is outstanding: complete the stream first".to_owned(),
        ),
        (
            Refusal::ForeignSide,
            "this ring belongs to another node: make it from this node's create context".to_owned(),
        ),
    ] {
        assert_eq!(refusal.to_string(), message);
    }
}

#[test]
fn each_broken_rule_names_the_slot_and_what_was_expected() {
    let (slot, output) = (Slot::Input(1), Slot::Output(0));
    let refusal = Refusal::TooSmall {
        found: 3,
        expected: 4,
    };
    for (error, message) in [
        (
            ContractError::SlotOutOfRange { slot, count: 1 },
            "input 1 is out of range: the node has 1",
        ),
        (
            ContractError::SlotNotOwned { slot },
            "input 1 is not owned: `infer` did not mark it so, so its storage is the compiler's",
        ),
        (
            ContractError::HookMissing { slot },
            "input 1 is owned, but the task does not implement its hook",
        ),
        (
            ContractError::OtherSlot { slot, asked: 0 },
            "the storage of input 1 is out of reach here: the hook was called for slot 0",
        ),
        (
            ContractError::WrongSide { slot: output },
            "the storage of output 0 is out of reach here: input cells belong to the producer \
             side, output cells to the consumer side",
        ),
        (
            ContractError::Empty { slot },
            "input 1 is empty: nothing is published in its cell",
        ),
        (
            ContractError::Publish {
                slot: output,
                refusal,
            },
            "cannot publish in output 0: the region has 3 bytes, the tensor needs 4",
        ),
        (
            ContractError::Refused { refusal },
            "a region was refused: the region has 3 bytes, the tensor needs 4",
        ),
        (
            ContractError::WrongType {
                slot,
                found: DType::U8,
                expected: DType::F32,
            },
            "input 1 holds U8, asked for as F32",
        ),
        (
            ContractError::NotOnHost {
                slot,
                location: MemLoc::Device(0),
            },
            "input 1 lies in Device, which the host cannot read",
        ),
        (
            ContractError::NotContiguous {
                slot,
                layout: "U8[2]@Host strides [2]".to_owned(),
            },
            "input 1 is no slice of elements (U8[2]@Host strides [2] has gaps or is \
             misaligned): use `bytes`",
        ),
        (
            ContractError::Overwritten {
                input: slot,
                output,
            },
            "input 1 shares its storage with output 0, which this node overwrites: reach it \
             through `outputs`",
        ),
        (
            ContractError::ViewOutput { output },
            "output 0 is a view of an input's storage, so it cannot be written",
        ),
        (
            ContractError::ReadOnly { slot: output },
            "output 0 is shared and read-only",
        ),
        (
            ContractError::Misfit { slot, refusal },
            "the region in input 1 does not fit the plan: the region has 3 bytes, the tensor \
             needs 4",
        ),
        (
            ContractError::InUse { slot },
            "input 1 is in use by device work: complete the stream first",
        ),
        (
            ContractError::SameSlotTwice { slot: output },
            "output 0 was asked for twice in one call",
        ),
        (
            ContractError::ForeignSide,
            "this side's state belongs to another node: make cells and rings from this node's \
             create context",
        ),
        (
            ContractError::WindowOut,
            "the ring's window is still out on this side: commit, release or drop it first",
        ),
        (
            ContractError::Unexpected {
                found: "the result is Skip",
                expected: "only sync tasks skip",
            },
            "the result is Skip, but only sync tasks skip",
        ),
        (
            ContractError::Order {
                slot,
                found: "it is not acquired",
                expected: "it must be",
            },
            "input 1: it is not acquired, but it must be",
        ),
    ] {
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_slot_prints_its_direction_and_number() {
    assert_eq!(Slot::Input(3).to_string(), "input 3");
    assert_eq!(Slot::Output(0).to_string(), "output 0");
    assert_eq!((Slot::Input(3).index(), Slot::Output(0).index()), (3, 0));
}

#[test]
fn an_error_about_a_tasks_input_is_told_of_the_input() {
    // The test kit writes a task's inputs as outputs of its upstream.
    let (found, named) = (Slot::Output(2), Slot::Input(2));
    let refusal = Refusal::Full;
    for error in [
        ContractError::SlotOutOfRange {
            slot: found,
            count: 1,
        },
        ContractError::Empty { slot: found },
        ContractError::ReadOnly { slot: found },
        ContractError::Misfit {
            slot: found,
            refusal,
        },
        ContractError::InUse { slot: found },
        ContractError::ViewOutput { output: found },
    ] {
        let text = error.clone().about(named).to_string();
        assert!(
            text.contains("input 2") && !text.contains("output"),
            "{text}"
        );
        assert!(error.to_string().contains("output 2"));
    }
    let other = ContractError::WindowOut;
    assert_eq!(other.clone().about(named), other);
}
