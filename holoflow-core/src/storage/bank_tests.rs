//! Tests of banks: what is bound, what is lent, and every way to be refused bytes. ST3 and
//! ST4 of the storage invariants.

use super::*;
use crate::device::Stream;
use crate::memory::{Memory, MemoryProvider};
use crate::storage::TaskBuffer;
use crate::sync::Arc;
use crate::tensor::MemLoc;
use crate::testkit::{FakeDevice, FakeStream};

fn region(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .unwrap()
        .into_region()
}

fn on_device(bytes: usize) -> Region {
    let device: Arc<dyn MemoryProvider> = FakeDevice::new(0).provider();
    TaskBuffer::allocate(&Memory::none().with(device), MemLoc::Device(0), bytes)
        .unwrap()
        .into_region()
}

fn u8s(count: usize) -> TDesc {
    TDesc::host::<u8>([count]).unwrap()
}

fn slot(desc: &TDesc, cell: usize) -> SlotSpec {
    SlotSpec {
        desc: desc.clone(),
        cell,
        owned: false,
        alias: None,
    }
}

fn owned(desc: &TDesc, cell: usize) -> SlotSpec {
    SlotSpec {
        owned: true,
        ..slot(desc, cell)
    }
}

fn aliased(desc: &TDesc, cell: usize, alias: Alias) -> SlotSpec {
    SlotSpec {
        alias: Some(alias),
        ..slot(desc, cell)
    }
}

/// A bank with a full cell for each descriptor, its bytes counting up from 10 x its number.
fn bank(descs: &[&TDesc]) -> CellBank {
    let cells = descs.iter().enumerate().map(|(number, desc)| {
        let mut cell = Storage::new((*desc).clone(), true);
        if desc.location().is_host() {
            let mut region = region(desc.end());
            for (at, byte) in region.as_mut_bytes().unwrap().iter_mut().enumerate() {
                *byte = u8::try_from(10 * number + at).unwrap();
            }
            cell.publish(region).unwrap();
        } else {
            cell.publish(on_device(desc.end())).unwrap();
        }
        cell
    });
    CellBank::new(cells.collect())
}

/// Makes the bytes in a cell be in use by device work; stepping the stream ends that.
fn use_cell(bank: &mut CellBank, cell: usize) -> Arc<FakeStream> {
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| {});
    let cell = bank.cell_mut(cell).unwrap();
    let mut region = cell.retract().unwrap();
    region.not_before(stream.record().unwrap());
    cell.publish(region).unwrap();
    stream
}

fn input_error<T: Element>(bank: &mut CellBank, table: &SlotTable) -> ContractError {
    bank.lend(table).unwrap().0.get::<T>(0).unwrap_err()
}

fn output_error<T: Element>(bank: &mut CellBank, table: &SlotTable) -> ContractError {
    bank.lend(table).unwrap().1.get_mut::<T>(0).unwrap_err()
}

// ---------------------------------------------------------------------------------------
// What is bound

#[test]
fn a_slot_without_a_cell_is_not_bound() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc]);
    let error = bank.bind(vec![slot(&desc, 1)], vec![]).unwrap_err();
    let slot = Slot::Input(0);
    assert_eq!(error, ContractError::SlotOutOfRange { slot, count: 1 });
}

#[test]
fn a_slot_that_its_cell_cannot_hold_is_not_bound() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc]);
    for (wanted, refusal) in [
        (
            desc.at_location(MemLoc::Device(0)),
            Refusal::WrongLocation {
                found: MemLoc::Host,
                expected: MemLoc::Device(0),
            },
        ),
        (
            u8s(5),
            Refusal::TooSmall {
                found: 4,
                expected: 5,
            },
        ),
        (
            TDesc::with_offset([4], DType::U8, MemLoc::Host, 1).unwrap(),
            Refusal::TooSmall {
                found: 4,
                expected: 5,
            },
        ),
    ] {
        let error = bank
            .bind(vec![slot(&desc, 0), slot(&wanted, 0)], vec![])
            .unwrap_err();
        let slot = Slot::Input(1);
        assert_eq!(error, ContractError::Misfit { slot, refusal });
    }
}

#[test]
fn st3_two_outputs_that_write_one_cell_are_not_bound() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc, &desc]);
    for second in [
        slot(&desc, 1),
        owned(&desc, 1),
        aliased(&desc, 1, Alias::Overwrite),
    ] {
        let error = bank
            .bind(vec![], vec![slot(&desc, 0), slot(&desc, 1), second])
            .unwrap_err();
        let slot = Slot::Output(2);
        assert_eq!(error, ContractError::SameSlotTwice { slot });
    }
    // A view beside an output that is written has no bytes of its own.
    for views_first in [true, false] {
        let mut outputs = vec![slot(&desc, 0), aliased(&desc, 0, Alias::View)];
        if views_first {
            outputs.reverse();
        }
        assert!(bank.bind(vec![], outputs).is_ok());
    }
}

#[test]
fn st3_an_input_in_a_cell_that_an_output_writes_undeclared_is_not_bound() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc, &desc]);
    let inputs = vec![slot(&desc, 1), slot(&desc, 0)];
    for output in [slot(&desc, 0), owned(&desc, 0)] {
        let error = bank
            .bind(inputs.clone(), vec![slot(&desc, 1), output.clone()])
            .unwrap_err();
        assert_eq!(
            error,
            ContractError::Overwritten {
                input: Slot::Input(0),
                output: Slot::Output(0)
            }
        );
        let error = bank.bind(inputs.clone(), vec![output]).unwrap_err();
        assert_eq!(
            error,
            ContractError::Overwritten {
                input: Slot::Input(1),
                output: Slot::Output(0)
            }
        );
    }
}

#[test]
fn st3_every_input_in_an_overwritten_cell_is_refused() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc, &desc]);
    let half = TDesc::with_offset([2], DType::U8, MemLoc::Host, 2).unwrap();
    let inputs = vec![slot(&desc, 0), slot(&half, 0), slot(&desc, 1)];
    let table = bank
        .bind(inputs, vec![aliased(&desc, 0, Alias::Overwrite)])
        .unwrap();
    let (inputs, mut outputs) = bank.lend(&table).unwrap();
    for index in 0..2 {
        let expected = ContractError::Overwritten {
            input: Slot::Input(index),
            output: Slot::Output(0),
        };
        assert_eq!(inputs.get::<u8>(index).unwrap_err(), expected);
        assert_eq!(inputs.bytes(index).unwrap_err(), expected);
        // Whatever else is wrong with the call.
        assert_eq!(inputs.get::<f64>(index).unwrap_err(), expected);
    }
    let written = outputs.get_mut::<u8>(0).unwrap();
    let read = inputs.get::<u8>(2).unwrap();
    written.copy_from_slice(read);
    assert_eq!(outputs.get_mut::<u8>(0).unwrap(), [10, 11, 12, 13]);
}

#[test]
fn st3_a_view_output_gives_no_bytes_and_leaves_the_input_readable() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc]);
    let half = TDesc::with_offset([2], DType::U8, MemLoc::Host, 2).unwrap();
    let table = bank
        .bind(
            vec![slot(&desc, 0)],
            vec![
                aliased(&half, 0, Alias::View),
                aliased(&desc, 0, Alias::View),
            ],
        )
        .unwrap();
    let (inputs, mut outputs) = bank.lend(&table).unwrap();
    let expected = ContractError::ViewOutput {
        output: Slot::Output(0),
    };
    assert_eq!(outputs.get_mut::<u8>(0).unwrap_err(), expected);
    assert_eq!(outputs.bytes_mut(0).unwrap_err(), expected);
    assert_eq!(
        outputs
            .get_pair_mut::<u8, u8>(1, 0)
            .unwrap_err()
            .to_string(),
        "output 1 is a view of an input's storage, so it cannot be written"
    );
    assert_eq!(inputs.get::<u8>(0).unwrap(), [0, 1, 2, 3]);
    let (view, whole) = (outputs.view(0).unwrap(), inputs.view(0).unwrap());
    assert_eq!(view.address(), Some(whole.address().unwrap().plus(2)));
}

#[test]
fn inputs_that_show_one_cell_are_all_readable() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc, &desc]);
    let inputs = vec![slot(&desc, 0), aliased(&desc, 0, Alias::View)];
    let table = bank.bind(inputs, vec![slot(&desc, 1)]).unwrap();
    let (inputs, _) = bank.lend(&table).unwrap();
    assert_eq!(inputs.get::<u8>(0), inputs.get::<u8>(1));
    assert_eq!(inputs.bytes(0), inputs.bytes(1));
    assert_eq!(inputs.get::<u8>(1).unwrap(), [0, 1, 2, 3]);
}

// ---------------------------------------------------------------------------------------
// What is lent

#[test]
fn a_table_of_another_bank_is_refused() {
    let desc = u8s(4);
    let (mut own, mut other) = (bank(&[&desc]), bank(&[&desc]));
    let table = other.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    assert_eq!(own.lend(&table).unwrap_err(), ContractError::ForeignSide);
    assert!(other.lend(&table).is_ok());
}

#[test]
fn slots_are_counted_by_direction() {
    let desc = u8s(1);
    let mut bank = bank(&[&desc, &desc, &desc]);
    let table = bank
        .bind(vec![slot(&desc, 0), slot(&desc, 1)], vec![slot(&desc, 2)])
        .unwrap();
    let (inputs, outputs) = bank.lend(&table).unwrap();
    assert_eq!((inputs.len(), outputs.len()), (2, 1));
    assert!(!inputs.is_empty() && !outputs.is_empty());
    let table = bank.bind(vec![], vec![]).unwrap();
    let (inputs, outputs) = bank.lend(&table).unwrap();
    assert!(inputs.is_empty() && outputs.is_empty());
}

#[test]
fn bytes_are_those_of_the_span_gaps_included() {
    // Two rows of two elements, four bytes apart, behind an offset of two.
    let desc = TDesc::with_layout([2, 2], DType::U8, MemLoc::Host, [4, 1], 2).unwrap();
    assert_eq!((desc.num_bytes(), desc.end()), (6, 8));
    let mut bank = bank(&[&desc, &desc]);
    let table = bank
        .bind(vec![slot(&desc, 0)], vec![slot(&desc, 1)])
        .unwrap();
    let (inputs, mut outputs) = bank.lend(&table).unwrap();
    assert_eq!(inputs.bytes(0).unwrap(), [2, 3, 4, 5, 6, 7]);
    assert_eq!(outputs.bytes_mut(0).unwrap(), [12, 13, 14, 15, 16, 17]);
    for error in [
        inputs.get::<u8>(0).unwrap_err(),
        outputs.get_mut::<u8>(0).unwrap_err(),
    ] {
        assert!(matches!(error, ContractError::NotContiguous { .. }));
    }
}

#[test]
fn a_bool_is_viewed_as_a_byte() {
    let desc = TDesc::new([2], DType::Bool, MemLoc::Host).unwrap();
    let mut bank = bank(&[&desc]);
    let table = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let (inputs, _) = bank.lend(&table).unwrap();
    assert_eq!(inputs.get::<u8>(0).unwrap(), [0, 1]);
    assert_eq!(
        inputs.get::<i8>(0).unwrap_err().to_string(),
        "input 0 holds Bool, asked for as I8"
    );
}

#[test]
fn two_outputs_are_written_at_once() {
    let (bytes, words) = (u8s(2), TDesc::host::<u16>([1]).unwrap());
    let mut bank = bank(&[&bytes, &words]);
    let table = bank
        .bind(vec![], vec![slot(&bytes, 0), slot(&words, 1)])
        .unwrap();
    let (_, mut outputs) = bank.lend(&table).unwrap();
    let (a, b) = outputs.get_pair_mut::<u8, u16>(0, 1).unwrap();
    a[1] = 7;
    b[0] = 300;
    a[0] = 6;
    assert_eq!(outputs.get_mut::<u8>(0).unwrap(), [6, 7]);
    let (b, a) = outputs.get_pair_mut::<u16, u8>(1, 0).unwrap();
    assert_eq!((&*a, &*b), (&[6, 7][..], &[300][..]));

    let slot = Slot::Output(1);
    assert_eq!(
        outputs.get_pair_mut::<u16, u16>(1, 1).unwrap_err(),
        ContractError::SameSlotTwice { slot }
    );
    assert!(matches!(
        outputs.get_pair_mut::<u8, u8>(0, 1),
        Err(ContractError::WrongType {
            slot: Slot::Output(1),
            ..
        })
    ));
    assert!(matches!(
        outputs.get_pair_mut::<u16, u16>(0, 1),
        Err(ContractError::WrongType {
            slot: Slot::Output(0),
            ..
        })
    ));
    assert!(matches!(
        outputs.get_pair_mut::<u8, u16>(0, 2),
        Err(ContractError::SlotOutOfRange {
            slot: Slot::Output(2),
            count: 2
        })
    ));
}

#[test]
fn v_01_elements_begin_at_the_offset() {
    let whole = u8s(16);
    let desc = TDesc::with_offset([4], DType::U8, MemLoc::Host, 3).unwrap();
    let mut bank = bank(&[&whole, &whole]);
    let table = bank
        .bind(vec![slot(&desc, 0)], vec![slot(&desc, 1)])
        .unwrap();
    let (inputs, mut outputs) = bank.lend(&table).unwrap();
    assert_eq!(inputs.get::<u8>(0).unwrap(), [3, 4, 5, 6]);
    assert_eq!(outputs.get_mut::<u8>(0).unwrap(), [13, 14, 15, 16]);
    let view = inputs.view(0).unwrap();
    let start = view.storage().region().unwrap().address();
    assert_eq!(view.address(), Some(start.plus(3)));
}

#[test]
fn v_02_bytes_of_an_empty_cell_are_an_error_value() {
    let desc = u8s(4);
    let mut bank = CellBank::new(vec![Storage::new(desc.clone(), true)]);
    let table = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let (inputs, _) = bank.lend(&table).unwrap();
    let slot_0 = Slot::Input(0);
    assert_eq!(
        inputs.get::<u8>(0).unwrap_err(),
        ContractError::Empty { slot: slot_0 }
    );
    assert!(inputs.view(0).unwrap().address().is_none());
    let table = bank.bind(vec![], vec![slot(&desc, 0)]).unwrap();
    let error = output_error::<u8>(&mut bank, &table);
    let slot = Slot::Output(0);
    assert_eq!(error, ContractError::Empty { slot });
}

#[test]
fn v_05_every_reader_sees_what_the_owner_published_without_being_bound_again() {
    let desc = u8s(4);
    let mut bank = CellBank::new(vec![Storage::new(desc.clone(), false)]);
    // The owner, a reader of the whole, and a reader of a part.
    let part = TDesc::with_offset([2], DType::U8, MemLoc::Host, 1).unwrap();
    let owner = bank.bind(vec![], vec![owned(&desc, 0)]).unwrap();
    let reader = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let parts = bank.bind(vec![slot(&part, 0)], vec![]).unwrap();
    for turn in [0, 100] {
        let mut region = region(4);
        region
            .as_mut_bytes()
            .unwrap()
            .copy_from_slice(&[turn, turn + 1, turn + 2, turn + 3]);
        let address = region.address();
        let (mut inputs, mut outputs) = bank.lend(&owner).unwrap();
        let cell = owned_storage(&mut inputs, &mut outputs, Slot::Output(0)).unwrap();
        drop(cell.retract());
        cell.publish(region).unwrap();

        let (inputs, _) = bank.lend(&reader).unwrap();
        assert_eq!(inputs.view(0).unwrap().address(), Some(address));
        assert_eq!(
            inputs.get::<u8>(0).unwrap(),
            [turn, turn + 1, turn + 2, turn + 3]
        );
        let (inputs, _) = bank.lend(&parts).unwrap();
        assert_eq!(inputs.view(0).unwrap().address(), Some(address.plus(1)));
        assert_eq!(inputs.get::<u8>(0).unwrap(), [turn + 1, turn + 2]);
    }
}

// ---------------------------------------------------------------------------------------
// Access to cells

#[test]
fn st4_a_cell_is_changed_through_both_halves_and_slices_show_what_is_in_it_then() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc]);
    let table = bank.bind(vec![owned(&desc, 0)], vec![]).unwrap();
    let (mut inputs, mut outputs) = bank.lend(&table).unwrap();
    // A slice borrows one half, reaching a cell takes both: they cannot live together.
    assert_eq!(inputs.get::<u8>(0).unwrap(), [0, 1, 2, 3]);
    let cell = owned_storage(&mut inputs, &mut outputs, Slot::Input(0)).unwrap();
    drop(cell.retract());
    cell.publish(region(4)).unwrap();
    assert_eq!(inputs.get::<u8>(0).unwrap(), [0; 4]);
}

#[test]
fn st4_halves_that_were_not_lent_together_reach_no_cell() {
    let desc = u8s(4);
    let (mut one, mut two) = (bank(&[&desc]), bank(&[&desc]));
    let table_one = one.bind(vec![owned(&desc, 0)], vec![]).unwrap();
    let table_two = two.bind(vec![owned(&desc, 0)], vec![]).unwrap();
    let (mut inputs, _) = one.lend(&table_one).unwrap();
    let (_, mut outputs) = two.lend(&table_two).unwrap();
    for slot in [Slot::Input(0), Slot::Output(0)] {
        assert_eq!(
            owned_storage(&mut inputs, &mut outputs, slot).unwrap_err(),
            ContractError::ForeignSide
        );
        assert_eq!(
            slot_view(&inputs, &outputs, slot).unwrap_err(),
            ContractError::ForeignSide
        );
    }
}

#[test]
fn the_cell_of_a_slot_that_is_not_owned_or_not_there_is_out_of_reach() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc, &desc]);
    let table = bank
        .bind(vec![slot(&desc, 0)], vec![owned(&desc, 1)])
        .unwrap();
    let (mut inputs, mut outputs) = bank.lend(&table).unwrap();
    let mut reach = |slot| owned_storage(&mut inputs, &mut outputs, slot).map(|_| ());
    let borrowed = Slot::Input(0);
    assert_eq!(
        reach(borrowed),
        Err(ContractError::SlotNotOwned { slot: borrowed })
    );
    for slot in [Slot::Input(1), Slot::Output(1)] {
        assert_eq!(
            reach(slot),
            Err(ContractError::SlotOutOfRange { slot, count: 1 })
        );
    }
    assert_eq!(reach(Slot::Output(0)), Ok(()));
}

#[test]
fn the_view_of_a_slot_is_there_whether_it_is_owned_or_not() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc, &desc]);
    let table = bank
        .bind(vec![slot(&desc, 0)], vec![owned(&desc, 1)])
        .unwrap();
    let (inputs, outputs) = bank.lend(&table).unwrap();
    for slot in [Slot::Input(0), Slot::Output(0)] {
        let view = slot_view(&inputs, &outputs, slot).unwrap();
        assert_eq!(view.desc(), &desc);
    }
    let slot = Slot::Output(1);
    let expected = ContractError::SlotOutOfRange { slot, count: 1 };
    assert_eq!(slot_view(&inputs, &outputs, slot).unwrap_err(), expected);
    assert_eq!(outputs.view(1).unwrap_err(), expected);
    assert!(inputs.view(1).is_err());
}

// ---------------------------------------------------------------------------------------
// Every way to be refused bytes

#[test]
fn a_slot_that_is_not_there() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc]);
    let table = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let (inputs, mut outputs) = bank.lend(&table).unwrap();
    let slot = Slot::Input(1);
    let expected = ContractError::SlotOutOfRange { slot, count: 1 };
    assert_eq!(inputs.get::<u8>(1).unwrap_err(), expected);
    assert_eq!(inputs.bytes(1).unwrap_err(), expected);
    let slot = Slot::Output(0);
    let expected = ContractError::SlotOutOfRange { slot, count: 0 };
    assert_eq!(outputs.get_mut::<u8>(0).unwrap_err(), expected);
    assert_eq!(outputs.bytes_mut(0).unwrap_err(), expected);
}

#[test]
fn elements_of_another_type() {
    let desc = TDesc::host::<f32>([1]).unwrap();
    let mut bank = bank(&[&desc]);
    let expected = |slot| ContractError::WrongType {
        slot,
        found: DType::F32,
        expected: DType::I32,
    };
    let table = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let error = input_error::<i32>(&mut bank, &table);
    assert_eq!(error, expected(Slot::Input(0)));
    assert!(bank.lend(&table).unwrap().0.bytes(0).is_ok());
    let table = bank.bind(vec![], vec![slot(&desc, 0)]).unwrap();
    let error = output_error::<i32>(&mut bank, &table);
    assert_eq!(error, expected(Slot::Output(0)));
    assert!(bank.lend(&table).unwrap().1.bytes_mut(0).is_ok());
}

#[test]
fn bytes_on_a_device() {
    let desc = u8s(4).at_location(MemLoc::Device(0));
    let mut bank = bank(&[&desc, &desc]);
    let table = bank
        .bind(vec![slot(&desc, 0)], vec![slot(&desc, 1)])
        .unwrap();
    let (inputs, mut outputs) = bank.lend(&table).unwrap();
    let location = MemLoc::Device(0);
    let slot = Slot::Input(0);
    let expected = ContractError::NotOnHost { slot, location };
    assert_eq!(inputs.get::<u8>(0).unwrap_err(), expected);
    assert_eq!(inputs.bytes(0).unwrap_err(), expected);
    let slot = Slot::Output(0);
    let expected = ContractError::NotOnHost { slot, location };
    assert_eq!(outputs.get_mut::<u8>(0).unwrap_err(), expected);
    assert_eq!(outputs.bytes_mut(0).unwrap_err(), expected);
}

#[test]
fn layouts_that_are_no_slice_of_elements() {
    let gaps = TDesc::with_layout([2], DType::F32, MemLoc::Host, [8], 0).unwrap();
    let odd = TDesc::with_offset([2], DType::F32, MemLoc::Host, 2).unwrap();
    for desc in [gaps, odd] {
        let mut bank = bank(&[&desc]);
        let table = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
        let expected = |slot| ContractError::NotContiguous {
            slot,
            layout: desc.to_string(),
        };
        let error = input_error::<f32>(&mut bank, &table);
        assert_eq!(error, expected(Slot::Input(0)));
        assert!(bank.lend(&table).unwrap().0.bytes(0).is_ok());
        let table = bank.bind(vec![], vec![slot(&desc, 0)]).unwrap();
        let error = output_error::<f32>(&mut bank, &table);
        assert_eq!(error, expected(Slot::Output(0)));
        assert!(bank.lend(&table).unwrap().1.bytes_mut(0).is_ok());
    }
}

#[test]
fn st5_bytes_in_use_by_device_work() {
    let desc = u8s(4);
    let mut bank = bank(&[&desc]);
    let stream = use_cell(&mut bank, 0);
    let readers = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let writers = bank.bind(vec![], vec![slot(&desc, 0)]).unwrap();
    let slot = Slot::Input(0);
    assert_eq!(
        input_error::<u8>(&mut bank, &readers),
        ContractError::InUse { slot }
    );
    assert!(bank.lend(&readers).unwrap().0.bytes(0).is_err());
    let slot = Slot::Output(0);
    assert_eq!(
        output_error::<u8>(&mut bank, &writers),
        ContractError::InUse { slot }
    );
    assert!(bank.lend(&writers).unwrap().1.bytes_mut(0).is_err());
    stream.synchronize().unwrap();
    assert!(bank.lend(&readers).unwrap().0.get::<u8>(0).is_ok());
    assert!(bank.lend(&writers).unwrap().1.get_mut::<u8>(0).is_ok());
}

#[test]
fn st1_shared_bytes_are_read_and_not_written() {
    let desc = u8s(4);
    // `written` is what the compiler says; the bank does not take its word.
    let mut bank = CellBank::new(vec![Storage::new(desc.clone(), false)]);
    let shared = region(4).into_shared();
    let cell = bank.cell_mut(0).unwrap();
    cell.publish(shared.to_region()).unwrap();
    let readers = bank.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let writers = bank.bind(vec![], vec![slot(&desc, 0)]).unwrap();
    assert!(bank.lend(&readers).unwrap().0.get::<u8>(0).is_ok());
    let slot = Slot::Output(0);
    assert_eq!(
        output_error::<u8>(&mut bank, &writers),
        ContractError::ReadOnly { slot }
    );
    assert!(bank.lend(&writers).unwrap().1.bytes_mut(0).is_err());
}

// A cell is reached as `&mut Storage`, so safe code with two of them can exchange what is in
// them, with all that was checked when it was published.

#[test]
fn st1_an_exchanged_cell_that_is_too_small_gives_no_bytes() {
    let desc = u8s(4);
    let mut own = bank(&[&desc]);
    let table = own.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let mut small = Storage::new(u8s(3), true);
    small.publish(region(3)).unwrap();
    std::mem::swap(own.cell_mut(0).unwrap(), &mut small);
    let refusal = Refusal::TooSmall {
        found: 3,
        expected: 4,
    };
    let slot = Slot::Input(0);
    assert_eq!(
        input_error::<u8>(&mut own, &table),
        ContractError::Misfit { slot, refusal }
    );
    assert!(own.lend(&table).unwrap().0.bytes(0).is_err());
    // Nor is a table bound to it now.
    let again = own.bind(
        vec![SlotSpec {
            desc,
            cell: 0,
            owned: false,
            alias: None,
        }],
        vec![],
    );
    assert_eq!(again.unwrap_err(), ContractError::Misfit { slot, refusal });
}

#[test]
fn st1_an_exchanged_cell_in_other_memory_gives_no_bytes() {
    let desc = u8s(4);
    let mut own = bank(&[&desc]);
    let table = own.bind(vec![], vec![slot(&desc, 0)]).unwrap();
    let mut far = bank(&[&desc.at_location(MemLoc::Device(0))]);
    std::mem::swap(own.cell_mut(0).unwrap(), far.cell_mut(0).unwrap());
    let refusal = Refusal::WrongLocation {
        found: MemLoc::Device(0),
        expected: MemLoc::Host,
    };
    let slot = Slot::Output(0);
    assert_eq!(
        output_error::<u8>(&mut own, &table),
        ContractError::Misfit { slot, refusal }
    );
    assert!(own.lend(&table).unwrap().1.bytes_mut(0).is_err());
}

#[test]
fn st1_an_exchanged_cell_that_is_misaligned_gives_no_elements() {
    let desc = TDesc::host::<f32>([1]).unwrap();
    let mut own = bank(&[&desc]);
    let table = own.bind(vec![slot(&desc, 0)], vec![]).unwrap();
    let (_, odd) = region(8).split_at(1).unwrap();
    let address = odd.address();
    let mut bytes = Storage::new(u8s(4), true);
    bytes.publish(odd).unwrap();
    std::mem::swap(own.cell_mut(0).unwrap(), &mut bytes);
    let refusal = Refusal::Misaligned { address, align: 4 };
    let slot = Slot::Input(0);
    assert_eq!(
        input_error::<f32>(&mut own, &table),
        ContractError::Misfit { slot, refusal }
    );
    assert!(own.lend(&table).unwrap().0.bytes(0).is_ok());
}

#[test]
fn st1_an_exchanged_cell_with_shared_bytes_is_not_written() {
    let desc = u8s(4);
    let mut own = bank(&[&desc]);
    let table = own.bind(vec![], vec![slot(&desc, 0)]).unwrap();
    let shared = region(4).into_shared();
    let mut read = Storage::new(desc.clone(), false);
    read.publish(shared.to_region()).unwrap();
    std::mem::swap(own.cell_mut(0).unwrap(), &mut read);
    let slot = Slot::Output(0);
    assert_eq!(
        output_error::<u8>(&mut own, &table),
        ContractError::ReadOnly { slot }
    );
    assert!(own.lend(&table).unwrap().1.bytes_mut(0).is_err());
}

#[test]
fn a_tensor_of_no_elements_gives_an_empty_slice() {
    let desc = TDesc::host::<f32>([0, 3]).unwrap();
    let mut bank = bank(&[&desc, &desc]);
    let table = bank
        .bind(vec![slot(&desc, 0)], vec![slot(&desc, 1)])
        .unwrap();
    let (inputs, mut outputs) = bank.lend(&table).unwrap();
    assert!(inputs.get::<f32>(0).unwrap().is_empty());
    assert!(inputs.bytes(0).unwrap().is_empty());
    assert!(outputs.get_mut::<f32>(0).unwrap().is_empty());
}
