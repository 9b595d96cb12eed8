//! Attacks on typed access: wrong types, layouts, offsets, empty cells and sizes that no
//! memory has.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use holoflow::memory::{Memory, MemoryError};
use holoflow::prelude::*;
use holoflow::storage::{ContractError, RegionError, Slot, TaskBuffer};
use holoflow::task::{Hook, TaskErrorKind};
use holoflow::testkit::{FakeDevice, TaskHarness};
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{Factory, SyncHooks, builder, frame, nothing_leaks, stray, sync};
use serde_json::json;

type Execute = fn(&mut SyncCtx<'_>) -> TaskResult<OpResult>;

fn reading(desc: &TDesc, execute: Execute) -> TaskHarness {
    let infer = InferResult::sync([desc.clone()], []);
    sync(infer, [desc.clone()], move |_| Ok(SyncHooks::new(execute))).unwrap()
}

#[test]
fn elements_asked_for_as_another_type_are_refused_even_of_the_same_size() {
    for execute in [
        (|ctx| {
            ctx.inputs
                .get::<i8>(0)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        }) as Execute,
        |ctx| {
            ctx.inputs
                .get::<u32>(0)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        },
        |ctx| {
            ctx.inputs
                .get::<f64>(0)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        },
    ] {
        let mut task = reading(&frame(), execute);
        let error = task.producer().execute().unwrap_err();
        broken!(
            error,
            Hook::Execute,
            Slot::Input(0),
            ContractError::WrongType {
                found: DType::U8,
                ..
            }
        );
    }
}

#[test]
fn truth_values_are_read_as_bytes_whatever_was_written() {
    let flags = TDesc::new([2], DType::Bool, MemLoc::Host).unwrap();
    let mut task = reading(&flags, |ctx| {
        assert_eq!(ctx.inputs.get::<u8>(0)?, [2, 0xFF]);
        Ok(OpResult::Ok)
    });
    task.producer().write(0, &[2_u8, 0xFF]).unwrap();
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
}

#[test]
fn memory_that_nobody_wrote_is_zero() {
    let mut task = reading(&TDesc::host::<u64>([64]).unwrap(), |ctx| {
        assert_eq!(ctx.inputs.get::<u64>(0)?, [0; 64]);
        assert_eq!(ctx.temp::<u64>(64)?, [0; 64]);
        ctx.temp::<u64>(64)?.fill(u64::MAX);
        assert_eq!(
            ctx.temp::<u64>(65)?,
            [0; 65],
            "grown workspace is zero again"
        );
        Ok(OpResult::Ok)
    });
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
    assert_eq!(stray(64).as_bytes().unwrap(), [0; 64]);
}

#[test]
fn a_layout_with_gaps_is_no_slice_of_elements_and_its_bytes_end_where_it_does() {
    let gaps = TDesc::with_layout([2, 2], DType::U8, MemLoc::Host, [5, 2], 3).unwrap();
    let mut task = reading(&gaps, |ctx| {
        assert_eq!(ctx.inputs.bytes(0)?.len(), 8);
        ctx.inputs.get::<u8>(0)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(0),
        ContractError::NotContiguous { .. }
    );
}

#[test]
fn an_offset_that_misaligns_the_elements_is_refused() {
    let odd = TDesc::with_offset([2], DType::F32, MemLoc::Host, 2).unwrap();
    let mut task = reading(&odd, |ctx| {
        assert_eq!(ctx.inputs.bytes(0)?.len(), 8);
        ctx.inputs.get::<f32>(0)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(0),
        ContractError::NotContiguous { .. }
    );
}

#[test]
fn an_offset_into_a_region_of_odd_address_is_refused_where_the_elements_would_be_misaligned() {
    // The cell wants a multiple of 1, the elements of the region a multiple of 4.
    let region = stray(16).split_at(2).unwrap().1;
    let error = region.as_slice::<f32>().unwrap_err();
    assert!(matches!(error, RegionError::Misaligned { align: 4, .. }));
    assert_eq!(region.as_slice::<u16>().unwrap().len(), 7);
}

#[test]
fn a_tensor_without_elements_gives_empty_slices_at_any_offset() {
    for desc in [
        TDesc::host::<f64>([0]).unwrap(),
        TDesc::host::<f64>([usize::MAX, 0]).unwrap(),
        TDesc::with_offset([0], DType::F64, MemLoc::Host, 4096).unwrap(),
    ] {
        let mut task = reading(&desc, |ctx| {
            assert!(ctx.inputs.get::<f64>(0)?.is_empty());
            assert!(ctx.inputs.bytes(0)?.is_empty());
            Ok(OpResult::Ok)
        });
        let ledger = task.ledger();
        assert!(task.producer().input_mut::<f64>(0).unwrap().is_empty());
        assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
        drop(task);
        nothing_leaks(&ledger);
    }
}

#[test]
fn one_byte_stretched_over_many_elements_is_one_byte() {
    let stretched = TDesc::with_layout([1 << 20], DType::U8, MemLoc::Host, [0], 0).unwrap();
    let mut task = reading(&stretched, |ctx| {
        assert_eq!(ctx.inputs.bytes(0)?.len(), 1);
        ctx.inputs.get::<u8>(0)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(0),
        ContractError::NotContiguous { .. }
    );
}

#[test]
fn descriptors_that_end_beyond_memory_cannot_be_made() {
    let host = MemLoc::Host;
    assert!(TDesc::new([usize::MAX], DType::U8, host).is_err());
    assert!(TDesc::new([1 << 40, 1 << 40], DType::U8, host).is_err());
    assert!(TDesc::with_offset([1], DType::U8, host, usize::MAX).is_err());
    assert!(TDesc::with_offset([0], DType::U8, host, usize::MAX).is_err());
    assert!(TDesc::with_offset([1], DType::F64, host, isize::MAX as usize).is_err());
    assert!(TDesc::with_layout([2], DType::U8, host, [usize::MAX], 0).is_err());
    assert!(TDesc::with_layout([3, 3], DType::U8, host, [1 << 62, 1 << 62], 0).is_err());
    assert!(TDesc::with_layout([2], DType::U8, host, [], 0).is_err());
    let wide = json!({ "shape": [4], "dtype": "U8", "mem_loc": "Host", "strides": [u64::MAX] });
    assert!(serde_json::from_value::<TDesc>(wide).is_err());
}

#[test]
fn slots_that_are_not_there_are_errors_in_every_getter() {
    for execute in [
        (|ctx| {
            ctx.inputs
                .get::<u8>(usize::MAX)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        }) as Execute,
        |ctx| {
            ctx.inputs
                .bytes(usize::MAX)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        },
        |ctx| {
            ctx.inputs
                .view(usize::MAX)
                .map(|_| OpResult::Ok)
                .map_err(Into::into)
        },
    ] {
        let mut task = reading(&frame(), execute);
        let error = task.producer().execute().unwrap_err();
        let slot = Slot::Input(usize::MAX);
        broken!(
            error,
            Hook::Execute,
            slot,
            ContractError::SlotOutOfRange { count: 1, .. }
        );
    }
    let mut task = reading(&frame(), |ctx| {
        ctx.outputs.get_pair_mut::<u8, u8>(0, 1)?;
        Ok(OpResult::Ok)
    });
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Output(0),
        ContractError::SlotOutOfRange { count: 0, .. }
    );
}

#[test]
fn device_memory_is_not_read_or_written_by_the_host() {
    let device = FakeDevice::new(0);
    let desc = TDesc::new([4], DType::U8, MemLoc::Device(0)).unwrap();
    for write in [false, true] {
        let infer = InferResult::sync([desc.clone()], [desc.clone()]);
        let factory = Factory::new(infer, move |_: &mut CreateCtx<'_>| {
            Ok(SyncHooks::new(move |ctx| {
                if write {
                    ctx.outputs.get_mut::<u8>(0)?;
                } else {
                    assert!(ctx.inputs.bytes(0).is_err());
                    ctx.inputs.get::<u8>(0)?;
                }
                Ok(OpResult::Ok)
            }))
        });
        let mut task = builder()
            .memory(device.provider())
            .sync(&factory, json!({}), [desc.clone()])
            .unwrap();
        let slot = if write {
            Slot::Output(0)
        } else {
            Slot::Input(0)
        };
        let error = task.producer().execute().unwrap_err();
        broken!(error, Hook::Execute, slot, ContractError::NotOnHost { .. });
        assert!(task.producer().input_mut::<u8>(0).is_err());
        assert!(task.producer().output::<u8>(0).is_err());
        assert!(task.producer().input_address(0).unwrap().is_some());
    }
}

#[test]
fn a_region_of_device_memory_gives_the_host_no_bytes() {
    let memory = Memory::host().with(FakeDevice::new(3).provider());
    let location = MemLoc::Device(3);
    let mut region = TaskBuffer::allocate(&memory, location, 4)
        .unwrap()
        .into_region();
    assert_eq!(
        region.as_bytes().unwrap_err(),
        RegionError::NotOnHost { location }
    );
    assert_eq!(
        region.as_mut_bytes().unwrap_err(),
        RegionError::NotOnHost { location }
    );
}

#[test]
fn workspace_larger_than_memory_is_an_error_and_the_next_request_is_served() {
    for count in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 4 + 1] {
        let infer = InferResult::sync([frame()], []);
        let mut task = sync(infer, [frame()], move |_| {
            Ok(SyncHooks::new(move |ctx| {
                assert_eq!(ctx.temp::<u32>(4)?.len(), 4);
                let error = ctx.temp::<u32>(count).unwrap_err();
                assert!(matches!(
                    error.kind(),
                    TaskErrorKind::Memory(MemoryError::TooLarge { .. })
                ));
                assert_eq!(ctx.temp::<u32>(3)?, [0; 3]);
                assert!(ctx.temp::<u32>(0)?.is_empty());
                Ok(OpResult::Ok)
            }))
        })
        .unwrap();
        let ledger = task.ledger();
        assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
        drop(task);
        nothing_leaks(&ledger);
    }
}

#[test]
fn workspace_asked_for_as_ever_wider_types_stays_aligned_and_in_bounds() {
    let mut task = reading(&frame(), |ctx| {
        ctx.temp::<u8>(7)?.fill(1);
        ctx.temp::<u16>(3)?.fill(2);
        ctx.temp::<f64>(5)?.fill(3.0);
        assert_eq!(ctx.temp::<u8>(40)?.len(), 40);
        Ok(OpResult::Ok)
    });
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
}

#[test]
fn buffers_larger_than_memory_are_errors() {
    let memory = Memory::host();
    for bytes in [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize] {
        let error = TaskBuffer::allocate(&memory, MemLoc::Host, bytes).unwrap_err();
        assert!(matches!(error, MemoryError::TooLarge { .. }), "{error}");
    }
    let huge = TDesc::host::<u8>([isize::MAX as usize]).unwrap();
    let infer = InferResult::sync([huge.clone()], []);
    let error = sync(infer, [huge], |_| Ok(SyncHooks::new(|_| Ok(OpResult::Ok)))).unwrap_err();
    assert!(matches!(
        error.error.kind(),
        TaskErrorKind::Memory(MemoryError::TooLarge { .. })
    ));
}

#[test]
fn splitting_a_region_past_its_end_gives_it_back() {
    let region = stray(4);
    for mid in [5, usize::MAX] {
        let region = stray(4).split_at(mid).unwrap_err();
        assert_eq!(region.len(), 4);
    }
    let (all, none) = region.split_at(4).unwrap();
    assert!(none.as_bytes().unwrap().is_empty());
    assert_eq!(all.len(), 4);
    let mut buffer = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).unwrap();
    assert!(buffer.take(5).is_none());
    assert!(buffer.take(usize::MAX).is_none());
    let (a, b) = (buffer.take(0).unwrap(), buffer.take(4).unwrap());
    assert_eq!((a.len(), b.len(), buffer.remaining()), (0, 4, 0));
}

#[test]
fn copying_between_slices_of_unequal_length_is_an_error_and_copies_nothing() {
    let infer = InferResult::sync([frame()], [TDesc::host::<u8>([3]).unwrap()]);
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            let to = ctx.outputs.get_mut::<u8>(0)?;
            ctx.node.copy(to, ctx.inputs.get::<u8>(0)?)?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    assert!(task.run::<u8, u8>(&[1; 4]).is_err());
    assert_eq!(task.report().copied_bytes, 0);
    assert_eq!(task.producer().output::<u8>(0).unwrap(), [0; 3]);
}

#[test]
fn a_borrowed_slot_shows_what_upstream_made_even_if_infer_says_otherwise() {
    let wanted = TDesc::host::<f32>([1000]).unwrap();
    let mut task = sync(InferResult::sync([wanted], []), [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            assert_eq!(ctx.inputs.get::<u8>(0)?.len(), 4);
            ctx.inputs.get::<f32>(0)?;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    let error = task.producer().execute().unwrap_err();
    broken!(
        error,
        Hook::Execute,
        Slot::Input(0),
        ContractError::WrongType { .. }
    );
}
