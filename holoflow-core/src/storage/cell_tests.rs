//! Tests of cells: what they take, what they refuse, and what their views show.

use super::*;
use crate::device::Stream;
use crate::memory::{Memory, MemoryProvider};
use crate::storage::TaskBuffer;
use crate::sync::Arc;
use crate::tensor::DType;
use crate::testkit::FakeDevice;

fn region(bytes: usize) -> Region {
    TaskBuffer::allocate(&Memory::host(), MemLoc::Host, bytes)
        .unwrap()
        .into_region()
}

fn f32s(count: usize) -> TDesc {
    TDesc::host::<f32>([count]).unwrap()
}

fn refusal(result: Result<(), Refused>) -> (Region, Refusal) {
    let Refused { region, refusal } = result.unwrap_err();
    (region, refusal)
}

#[test]
fn a_cell_refuses_what_does_not_fit_and_gives_it_back() {
    let device: Arc<dyn MemoryProvider> = FakeDevice::new(0).provider();
    let on_device = TaskBuffer::allocate(&Memory::none().with(device), MemLoc::Device(0), 16)
        .unwrap()
        .into_region();
    let (_, odd) = region(32).split_at(2).unwrap();
    let shared = region(16).into_shared().to_region();
    let misaligned = Refusal::Misaligned {
        address: odd.address(),
        align: 4,
    };
    for (offered, expected) in [
        (
            region(15),
            Refusal::TooSmall {
                found: 15,
                expected: 16,
            },
        ),
        (
            on_device,
            Refusal::WrongLocation {
                found: MemLoc::Device(0),
                expected: MemLoc::Host,
            },
        ),
        (odd, misaligned),
        (shared, Refusal::ReadOnly),
    ] {
        let mut cell = Storage::new(f32s(4), true);
        let before = (offered.address(), offered.len(), offered.is_shared());
        let (back, found) = refusal(cell.publish(offered));
        assert_eq!(found, expected);
        assert_eq!((back.address(), back.len(), back.is_shared()), before);
        assert!(!cell.is_published());
    }
}

#[test]
fn a_full_cell_keeps_what_it_has() {
    let mut cell = Storage::new(f32s(4), true);
    let first = region(16);
    let address = first.address();
    cell.publish(first).unwrap();
    // Even if what is offered would not fit an empty one.
    for offered in [region(16), region(1)] {
        let (_, found) = refusal(cell.publish(offered));
        assert_eq!(found, Refusal::Full);
    }
    assert_eq!(cell.retract().unwrap().address(), address);
    assert!(cell.retract().is_none());
}

#[test]
fn a_cell_that_nobody_writes_takes_a_shared_region() {
    let shared = region(16).into_shared();
    let mut cell = Storage::new(f32s(4), false);
    cell.publish(shared.to_region()).unwrap();
    let shared = shared.try_into_unique().unwrap_err();
    drop(cell);
    assert!(shared.try_into_unique().is_ok());
}

#[test]
fn a_cell_takes_more_bytes_than_it_needs_and_those_that_device_work_uses() {
    let desc = TDesc::with_offset([2], DType::F32, MemLoc::Host, 4).unwrap();
    let mut cell = Storage::new(desc, true);
    assert_eq!(cell.bytes(), 12);
    let mut long = region(100);
    let stream = FakeDevice::new(0).stream();
    stream.submit(|| {});
    long.not_before(stream.record().unwrap());
    cell.publish(long).unwrap();
    assert!(cell.is_published());
}

#[test]
fn a_cell_of_no_elements_takes_a_region_of_no_bytes() {
    let mut cell = Storage::new(f32s(0), true);
    cell.publish(region(0)).unwrap();
    assert!(cell.view().address().is_some());
}

#[test]
fn a_cell_prints_its_tensor_and_where_it_is() {
    let mut cell = Storage::new(f32s(4), true);
    assert_eq!(cell.to_string(), "F32[4]@Host, empty");
    let region = region(16);
    let address = region.address();
    cell.publish(region).unwrap();
    assert_eq!(cell.to_string(), format!("F32[4]@Host at {address:?}"));
}

#[test]
fn a_refused_region_says_why() {
    let refused = Storage::new(f32s(4), true).publish(region(3)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the region has 3 bytes, the tensor needs 16"
    );
}

#[test]
fn v_01_a_views_address_is_that_of_the_storage_and_the_offset() {
    let desc = TDesc::with_offset([4], DType::U8, MemLoc::Host, 3).unwrap();
    let mut cell = Storage::new(desc, true);
    let region = region(16);
    let address = region.address();
    cell.publish(region).unwrap();
    assert_eq!(cell.view().address(), Some(address.plus(3)));
    assert_eq!(cell.view().desc().offset(), 3);
}

#[test]
fn v_02_the_view_of_an_empty_cell_has_no_address() {
    let mut cell = Storage::new(f32s(4), true);
    assert!(!cell.view().storage().is_published());
    assert_eq!(cell.view().address(), None);
    cell.publish(region(16)).unwrap();
    assert!(cell.view().address().is_some());
    drop(cell.retract());
    assert_eq!(cell.view().address(), None);
}

#[test]
fn v_03_an_owning_host_tensor_is_seen_at_its_own_address() {
    let desc = f32s(4);
    let buffer = TaskBuffer::allocate(&Memory::host(), desc.location(), desc.end()).unwrap();
    let region = buffer.into_region();
    assert_eq!(region.len(), 16);
    let address = region.address();
    assert_ne!(address.as_u64(), 0);
    let mut cell = Storage::new(desc, true);
    cell.publish(region).unwrap();
    assert_eq!(cell.view().address(), Some(address));
}
