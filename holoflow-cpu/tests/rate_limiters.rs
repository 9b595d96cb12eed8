//! The rate limiters, alone in a harness.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use holoflow_core::clock::Timestamp;
use holoflow_core::storage::{ContractError, Slot};
use holoflow_core::task::{HookError, IAsyncTaskFactory, OpResult, TaskErrorKind};
use holoflow_core::tensor::{DType, MemLoc, TDesc};
use holoflow_core::testkit::TaskHarness;
use holoflow_cpu::{OwnedRateLimiterFactory, RateLimiterFactory, RateLimiterSettings};
use serde_json::{Value, json};

/// Ten frames a second.
const SETTINGS: &str = r#"{ "max_fps": 10.0 }"#;
const PERIOD: Duration = Duration::from_millis(100);

fn frame() -> TDesc {
    TDesc::host::<f32>([4]).unwrap()
}

fn harness(factory: &dyn IAsyncTaskFactory, settings: Value) -> TaskHarness {
    TaskHarness::asynchronous(factory, settings, [frame()]).unwrap()
}

fn owned() -> TaskHarness {
    harness(
        &OwnedRateLimiterFactory,
        serde_json::from_str(SETTINGS).unwrap(),
    )
}

fn copying() -> TaskHarness {
    harness(&RateLimiterFactory, serde_json::from_str(SETTINGS).unwrap())
}

/// Pops a frame of a harness that has one, and says when it came.
fn pop_when_due(task: &mut TaskHarness) -> (Vec<f32>, Timestamp) {
    loop {
        if let Some(data) = task.pop::<f32>().unwrap() {
            let clock = task.clock().clone();
            return (data, holoflow_core::clock::Clock::now(&clock));
        }
        let due = task.consumer().wake_at().unwrap();
        task.clock().set(due);
    }
}

#[test]
fn i_12_acquire_gives_none_while_the_slot_is_pending() {
    let mut task = owned();
    assert_eq!(task.push(&[1.0_f32; 4]).unwrap(), OpResult::Ok);
    assert!(!task.producer().acquire(0).unwrap());
    // Popped is still pending: only the release frees the slot.
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    assert!(!task.producer().acquire(0).unwrap());
    task.consumer().release(0).unwrap();
    assert!(task.producer().acquire(0).unwrap());
}

#[test]
fn i_12_push_retracts_the_input_cell_and_copies_nothing() {
    let mut task = owned();
    assert_eq!(task.push(&[1.0_f32; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.producer().input_address(0).unwrap(), None);
    assert_eq!(task.report().copied_bytes, 0);
}

#[test]
fn i_12_the_consumers_address_is_the_one_the_producer_wrote_to() {
    let mut task = owned();
    let allocations = task.report().memory.allocations;
    for n in 0..3 {
        assert!(task.producer().acquire(0).unwrap());
        let written = task.producer().input_address(0).unwrap().unwrap();
        task.producer()
            .write(0, &[n as f32, 1.0, 2.0, 3.0])
            .unwrap();
        assert_eq!(task.producer().try_push().unwrap(), OpResult::Ok);
        task.clock().advance(PERIOD);
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
        assert_eq!(task.consumer().output_address(0).unwrap(), Some(written));
        assert_eq!(
            task.consumer().output::<f32>(0).unwrap(),
            [n as f32, 1.0, 2.0, 3.0]
        );
        task.consumer().release(0).unwrap();
        assert_eq!(task.consumer().output_address(0).unwrap(), None);
    }
    assert_eq!(task.report().copied_bytes, 0);
    assert_eq!(task.report().memory.allocations, allocations);
}

#[test]
fn i_12_pop_is_not_ready_before_the_deadline_and_says_when_it_is() {
    for mut task in [owned(), copying()] {
        task.push(&[1.0_f32; 4]).unwrap().expect_ok();
        assert_eq!(
            task.pop().unwrap(),
            Some(vec![1.0_f32; 4]),
            "the first is due at once"
        );
        task.push(&[2.0_f32; 4]).unwrap().expect_ok();
        task.clock().advance(PERIOD - Duration::from_nanos(1));
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
        let due = Timestamp::ZERO.saturating_add(PERIOD);
        assert_eq!(task.consumer().wake_at(), Some(due));
        task.clock().set(due);
        assert_eq!(task.pop().unwrap(), Some(vec![2.0_f32; 4]));
    }
}

#[test]
fn i_12_without_a_frame_pop_is_not_ready_and_gives_no_hint() {
    for mut task in [owned(), copying()] {
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::NotReady);
        assert_eq!(task.consumer().wake_at(), None);
    }
}

#[test]
fn i_12_an_index_other_than_zero_is_an_error() {
    let mut task = owned();
    let error = task.producer().acquire(1).unwrap_err();
    let slot = Slot::Input(1);
    assert_eq!(
        error.contract(),
        Some(&ContractError::SlotOutOfRange { slot, count: 1 })
    );
    assert_eq!(
        format!("{error:#}"),
        "node `task`, acquire_input: the storage contract was broken: input 1 is out of range: \
         the node has 1"
    );
    task.push(&[1.0_f32; 4]).unwrap().expect_ok();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let error = task.consumer().release(1).unwrap_err();
    let slot = Slot::Output(1);
    assert_eq!(
        error.contract(),
        Some(&ContractError::SlotOutOfRange { slot, count: 1 })
    );
    // The frame is still there.
    assert_eq!(task.consumer().output::<f32>(0).unwrap(), [1.0; 4]);
}

#[test]
fn i_12_push_and_pop_return_cancelled_when_cancelled() {
    for mut task in [owned(), copying()] {
        task.push(&[1.0_f32; 4]).unwrap().expect_ok();
        task.cancel();
        assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Cancelled);
    }
    let mut task = owned();
    assert!(task.producer().acquire_all().unwrap());
    task.cancel();
    assert_eq!(task.producer().try_push().unwrap(), OpResult::Cancelled);
    task.producer().cancel_inputs().unwrap();
    assert_eq!(task.report().cancelled, 1);
    assert!(
        task.producer().acquire(0).unwrap(),
        "the slot is free again"
    );

    let mut task = copying();
    task.cancel();
    assert_eq!(task.push(&[1.0_f32; 4]).unwrap(), OpResult::Cancelled);
}

#[test]
fn i_12_the_descriptor_is_normalised_to_offset_zero_and_default_strides() {
    let odd = TDesc::with_layout([2, 3], DType::U16, MemLoc::Host, [16, 4], 8).unwrap();
    let task = TaskHarness::asynchronous(&OwnedRateLimiterFactory, json!({ "max_fps": 10 }), [odd])
        .unwrap();
    let plain = TDesc::host::<u16>([2, 3]).unwrap();
    assert_eq!(task.infer().input_descs, std::slice::from_ref(&plain));
    assert_eq!(task.infer().output_descs, [plain]);
    assert_eq!(task.infer().owned_inputs, [true]);
    assert_eq!(task.infer().owned_outputs, [true]);
    assert!(!task.infer().synchronizes_producer_stream);
}

#[test]
fn i_12_schedule_keeps_to_whole_periods_and_skips_missed_ones() {
    for factory in factories() {
        let mut task = harness(factory, json!({ "max_fps": 10 }));
        let mut times = Vec::new();
        for delay in [0, 30, 250, 0, 0] {
            task.clock().advance(Duration::from_millis(delay));
            task.push(&[0.0_f32; 4]).unwrap().expect_ok();
            times.push(pop_when_due(&mut task).1.as_nanos() / 1_000_000);
        }
        // Late at 350 instead of 200: the ticks at 200 and 300 are one frame.
        assert_eq!(times, [0, 100, 350, 400, 500]);
    }
}

#[test]
fn i_12_spacing_keeps_the_distance_from_the_last_frame() {
    for factory in factories() {
        let mut task = harness(factory, json!({ "max_fps": 10, "pacing": "spacing" }));
        let mut times = Vec::new();
        for delay in [0, 30, 250, 0, 0] {
            task.clock().advance(Duration::from_millis(delay));
            task.push(&[0.0_f32; 4]).unwrap().expect_ok();
            times.push(pop_when_due(&mut task).1.as_nanos() / 1_000_000);
        }
        assert_eq!(times, [0, 100, 350, 450, 550]);
    }
}

#[test]
fn the_schedule_begins_with_each_run() {
    let mut task = owned();
    task.push(&[1.0_f32; 4]).unwrap().expect_ok();
    assert!(task.pop::<f32>().unwrap().is_some());
    task.clock().advance(Duration::from_millis(20));
    task.start_run().unwrap();
    task.push(&[2.0_f32; 4]).unwrap().expect_ok();
    assert!(
        task.pop::<f32>().unwrap().is_some(),
        "due at once in a new run"
    );
}

#[test]
fn the_copying_limiter_copies_each_frame_in_and_out() {
    let mut task = copying();
    assert_eq!(task.infer().owned_inputs, [false]);
    let allocations = task.report().memory.allocations;
    for n in 0..3 {
        task.push(&[n as f32; 4]).unwrap().expect_ok();
        assert_eq!(
            task.push(&[9.0_f32; 4]).unwrap(),
            OpResult::NotReady,
            "the buffer is full"
        );
        assert_eq!(pop_when_due(&mut task).0, [n as f32; 4]);
    }
    assert_eq!(task.report().copied_bytes, 3 * 2 * 16);
    assert_eq!(task.report().memory.allocations, allocations);
}

#[test]
fn the_copying_limiter_keeps_an_offset_of_its_input() {
    let input = TDesc::with_offset([3], DType::U16, MemLoc::Host, 6).unwrap();
    let mut task =
        TaskHarness::asynchronous(&RateLimiterFactory, json!({ "max_fps": 1e9 }), [input]).unwrap();
    task.push(&[1_u16, 2, 3]).unwrap().expect_ok();
    assert_eq!(task.pop().unwrap(), Some(vec![1_u16, 2, 3]));
}

#[test]
fn rates_that_are_no_rates_are_refused_by_field_name() {
    for factory in factories() {
        for rate in [
            json!(0),
            json!(-0.0),
            json!(-5),
            json!(1e300),
            json!(1e-300),
            json!(f64::NAN),
        ] {
            let error = refused(factory, json!({ "max_fps": rate.clone() }), [frame()]);
            assert!(
                matches!(error.error.kind(), TaskErrorKind::Settings { field, .. } if field == "max_fps"),
                "{rate}: {error:#}"
            );
        }
    }
    let error = refused(
        &OwnedRateLimiterFactory,
        json!({ "max_fps": -5 }),
        [frame()],
    );
    assert_eq!(
        format!("{error:#}"),
        "node `task`, infer: setting `max_fps`: found -5, expected a rate from 1e-6 to 1e9 frames a \
         second"
    );
}

#[test]
fn settings_errors_name_the_field_and_what_was_found() {
    let error = |settings| {
        format!(
            "{:#}",
            refused(&OwnedRateLimiterFactory, settings, [frame()]).error
        )
    };
    assert_eq!(
        error(json!({ "max_fps": "fast" })),
        "setting `max_fps`: found \"fast\", expected a number"
    );
    assert_eq!(
        error(json!({ "max_fps": 5, "pacing": "sometimes" })),
        "setting `pacing`: found \"sometimes\", expected `schedule` or `spacing`"
    );
}

#[test]
fn inputs_that_are_no_frames_on_the_host_are_refused() {
    for factory in factories() {
        let settings = json!({ "max_fps": 10 });
        let none: [TDesc; 0] = [];
        let error = refused(factory, settings.clone(), none);
        assert!(
            matches!(
                error.error.kind(),
                TaskErrorKind::InputCount { found: 0, .. }
            ),
            "{error:#}"
        );
        let device = frame().at_location(MemLoc::Device(0));
        let error = refused(factory, settings.clone(), [device]);
        assert_eq!(
            format!("{error:#}"),
            "node `task`, infer: input 0: found F32[4]@Device, expected a tensor in host memory"
        );
    }
    let strided = TDesc::with_layout([2], DType::U8, MemLoc::Host, [2], 0).unwrap();
    let error = refused(&RateLimiterFactory, json!({ "max_fps": 10 }), [strided]);
    assert_eq!(
        format!("{:#}", error.error),
        "input 0: found U8[2]@Host strides [2], expected a contiguous tensor"
    );
}

#[test]
fn both_sides_run_at_the_same_time_and_lose_nothing() {
    const FRAMES: u32 = 2_000;
    for factory in factories() {
        let mut task = harness(factory, json!({ "max_fps": 1e9 }));
        let clock = task.clock().clone();
        let (push, pop) = task.split().unwrap();
        let received = std::thread::scope(|threads| {
            threads.spawn(move || {
                for n in 0..FRAMES {
                    while push.push(&[n as f32; 4]).unwrap() != OpResult::Ok {
                        std::thread::yield_now();
                    }
                }
            });
            let mut received = Vec::new();
            while received.len() < FRAMES as usize {
                clock.advance(Duration::from_nanos(1));
                match pop.pop::<f32>().unwrap() {
                    Some(frame) => received.push(frame),
                    None => std::thread::yield_now(),
                }
            }
            received
        });
        for (n, frame) in received.iter().enumerate() {
            assert_eq!(*frame, [n as f32; 4]);
        }
        let counts = task.ledger().counts();
        drop(task);
        assert_eq!(counts.faults, 0);
    }
}

#[test]
fn all_memory_goes_back_with_the_task_even_while_a_frame_is_out() {
    let mut task = owned();
    task.push(&[1.0_f32; 4]).unwrap().expect_ok();
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let ledger = task.ledger();
    assert!(ledger.counts().live_bytes > 0);
    drop(task);
    assert_eq!(
        (ledger.counts().live_blocks, ledger.counts().faults),
        (0, 0)
    );
}

#[test]
fn settings_are_described_as_json_schema() {
    for factory in factories() {
        let info = factory.describe();
        assert!(info.help.contains("max_fps"));
        assert_eq!(info.settings["required"], json!(["max_fps"]));
        assert_eq!(
            info.settings["properties"]["max_fps"]["type"],
            json!("number")
        );
        assert_eq!(
            info.settings["properties"]["pacing"]["default"],
            json!("schedule")
        );
    }
    let written = serde_json::to_value(RateLimiterSettings::new(25_000.0)).unwrap();
    assert_eq!(
        written,
        json!({ "max_fps": 25_000.0, "pacing": "schedule" })
    );
}

fn factories() -> [&'static dyn IAsyncTaskFactory; 2] {
    [&OwnedRateLimiterFactory, &RateLimiterFactory]
}

fn refused(
    factory: &dyn IAsyncTaskFactory,
    settings: Value,
    inputs: impl IntoIterator<Item = TDesc>,
) -> HookError {
    TaskHarness::asynchronous(factory, settings, inputs).unwrap_err()
}

trait ExpectOk {
    fn expect_ok(self);
}

impl ExpectOk for OpResult {
    fn expect_ok(self) {
        assert_eq!(self, OpResult::Ok);
    }
}
