//! The smallest sync tasks, alone in a harness.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use half::{bf16, f16};
use holoflow_core::task::{HookError, ISyncTaskFactory, OpResult};
use holoflow_core::tensor::{DType, Element, MemLoc, TDesc};
use holoflow_core::testkit::TaskHarness;
use holoflow_cpu::{
    ChecksumFactory, ChecksumSettings, CopyFactory, CounterFactory, CounterSettings,
    NullSinkFactory,
};
use num_complex::Complex;
use serde_json::{Value, json};

fn counter(settings: impl Into<Value>) -> TaskHarness {
    TaskHarness::sync(&CounterFactory, settings.into(), []).unwrap()
}

fn sink(factory: &dyn ISyncTaskFactory, settings: Value) -> TaskHarness {
    TaskHarness::sync(factory, settings, [TDesc::host::<u8>([9]).unwrap()]).unwrap()
}

fn frame() -> TDesc {
    TDesc::host::<u16>([3]).unwrap()
}

/// What a task says of settings that it does not take.
fn refused(
    factory: &dyn ISyncTaskFactory,
    settings: Value,
    inputs: impl IntoIterator<Item = TDesc>,
) -> String {
    let error: HookError = TaskHarness::sync(factory, settings, inputs).unwrap_err();
    format!("{error:#}")
}

/// The next frame of a source; `None` at its end.
fn next<T: Element>(task: &mut TaskHarness) -> Option<Vec<T>> {
    match task.consumer().execute().unwrap() {
        OpResult::Ok => Some(task.consumer().output::<T>(0).unwrap().to_vec()),
        OpResult::Eof => None,
        other => panic!("a source that answers {other}"),
    }
}

#[test]
fn a_counter_counts_to_its_end_and_stays_there() {
    let mut task = counter(json!({ "count": 3, "start": 7, "shape": [2] }));
    for n in 7..10_u64 {
        assert_eq!(next(&mut task), Some(vec![n; 2]));
    }
    assert_eq!(next::<u64>(&mut task), None);
    assert_eq!(next::<u64>(&mut task), None);
}

#[test]
fn a_counter_begins_again_with_each_run() {
    let mut task = counter(json!({ "count": 2 }));
    for _ in 0..2 {
        assert_eq!(next(&mut task), Some(vec![0_u64]));
        task.start_run().unwrap();
    }
}

#[test]
fn a_counter_without_a_count_has_no_end() {
    let mut task = counter(Value::Null);
    for n in 0..1000_u64 {
        assert_eq!(next(&mut task), Some(vec![n]));
    }
    assert_eq!(next::<u64>(&mut counter(json!({ "count": 0 }))), None);
}

#[test]
fn a_number_that_is_too_big_has_its_low_bits_or_the_nearest_value() {
    fn counted<T: Element>(dtype: DType, start: u64) -> T {
        let settings = CounterSettings::default()
            .with_dtype(dtype)
            .with_start(start);
        next::<T>(&mut counter(serde_json::to_value(settings).unwrap())).unwrap()[0]
    }
    assert_eq!(counted::<u8>(DType::Bool, 2), 0);
    assert_eq!(counted::<u8>(DType::Bool, 3), 1);
    assert_eq!(counted::<u8>(DType::U8, 0x1ff), 0xff);
    assert_eq!(counted::<i8>(DType::I8, 0x80), -0x80);
    assert_eq!(counted::<u16>(DType::U16, 0x1_0002), 2);
    assert_eq!(counted::<i16>(DType::I16, 0xffff), -1);
    assert_eq!(counted::<u32>(DType::U32, 0x1_0000_0002), 2);
    assert_eq!(counted::<i32>(DType::I32, 0xffff_ffff), -1);
    assert_eq!(counted::<u64>(DType::U64, u64::MAX), u64::MAX);
    assert_eq!(counted::<i64>(DType::I64, u64::MAX), -1);
    assert_eq!(counted::<f16>(DType::F16, 2049), f16::from_f64(2048.0));
    assert_eq!(counted::<bf16>(DType::BF16, 257), bf16::from_f64(256.0));
    assert_eq!(counted::<f32>(DType::F32, 16_777_217), 16_777_216.0);
    assert_eq!(counted::<f64>(DType::F64, 1 << 60), (1_u64 << 60) as f64);
    let three = Complex::new(3.0, 0.0);
    assert_eq!(counted::<Complex<f32>>(DType::CF32, 3), three);
    let three = Complex::new(3.0, 0.0);
    assert_eq!(counted::<Complex<f64>>(DType::CF64, 3), three);
}

#[test]
fn a_counter_wraps_around_after_the_last_number() {
    let mut task = counter(json!({ "start": u64::MAX }));
    assert_eq!(next(&mut task), Some(vec![u64::MAX]));
    assert_eq!(next(&mut task), Some(vec![0_u64]));
}

#[test]
fn a_counter_counts_in_every_element_type() {
    for dtype in DType::ALL {
        let mut task = counter(json!({ "dtype": dtype, "shape": [2, 3] }));
        assert_eq!(task.consumer().execute().unwrap(), OpResult::Ok, "{dtype}");
    }
}

#[test]
fn a_counter_names_the_setting_that_it_does_not_take() {
    for (settings, expected) in [
        (
            json!({ "count": -1 }),
            "setting `count`: found -1, expected a whole number, 0 or above",
        ),
        (
            json!({ "dtype": "U65" }),
            "setting `dtype`: found \"U65\", expected",
        ),
        (
            json!({ "shape": [1_u64 << 40, 1_u64 << 40] }),
            "setting `shape`: found [1099511627776, 1099511627776], expected a shape that fits \
             into memory: ",
        ),
        (
            json!({ "shape": [2, -3] }),
            "setting `shape[1]`: found -3, expected a whole number, 0 or above",
        ),
        (
            json!({ "cout": 3 }),
            "setting `cout`: found 3, expected a setting of this task, which has `count`, \
             `shape`, `dtype`, `start`, did you mean `count`?",
        ),
    ] {
        let found = refused(&CounterFactory, settings, []);
        let expected = format!("node `task`, infer: {expected}");
        assert!(found.starts_with(&expected), "{found}\n{expected}");
    }
    let found = refused(&CounterFactory, json!({}), [frame()]);
    assert_eq!(found, "node `task`, infer: found 1 inputs, expected 0");
}

#[test]
fn a_checksum_is_the_crc_32_of_all_bytes_in_order_and_counts_the_frames() {
    // The check value of that CRC, for these digits.
    let mut task = sink(&ChecksumFactory, json!({}));
    task.run_of(b"123456789");
    let results = task.end_run().unwrap();
    assert_eq!(
        json!(results),
        json!({ "checksum": "cbf43926", "frames": 1 })
    );
    // Each run begins with nothing.
    task.start_run().unwrap();
    assert_eq!(
        json!(task.end_run().unwrap()),
        json!({ "checksum": "00000000", "frames": 0 })
    );
    let checksum = |frames: [&[u8; 9]; 2]| {
        let mut task = sink(&ChecksumFactory, json!({}));
        frames.iter().for_each(|frame| task.run_of(*frame));
        task.end_run().unwrap()["checksum"].clone()
    };
    let (one, other) = (b"123456789", b"abcdefghi");
    assert_eq!(checksum([one, other]), "0ddecb6d");
    assert_ne!(checksum([one, other]), checksum([other, one]));
}

trait RunOf {
    fn run_of(&mut self, frame: &[u8]);
}

impl RunOf for TaskHarness {
    /// Executes a sink.
    fn run_of(&mut self, frame: &[u8]) {
        self.producer().write(0, frame).unwrap();
        assert_eq!(self.producer().execute().unwrap(), OpResult::Ok);
    }
}

#[test]
fn a_checksum_other_than_the_expected_one_fails_the_run() {
    let settings = ChecksumSettings::expecting(0xcbf4_3926);
    let mut task = sink(&ChecksumFactory, serde_json::to_value(settings).unwrap());
    task.run_of(b"123456789");
    assert_eq!(task.end_run().unwrap()["frames"], 1);
    task.start_run().unwrap();
    let error = task.end_run().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `task`, run_ended: the task failed: the checksum of 0 frames: found 00000000, \
         expected cbf43926"
    );
    task.cancel();
    assert_eq!(task.end_run().unwrap()["checksum"], "00000000");
}

#[test]
fn a_checksum_names_the_setting_that_it_does_not_take() {
    for (expect, found) in [
        (json!("cbf4392"), "\"cbf4392\", expected eight"),
        (json!("+bf43926"), "\"+bf43926\", expected eight"),
        (json!("0xcbf439"), "\"0xcbf439\", expected eight"),
        (json!(3), "3, expected a string"),
    ] {
        let refusal = refused(&ChecksumFactory, json!({ "expect": expect }), [frame()]);
        let expected = format!("node `task`, infer: setting `expect`: found {found}");
        assert!(refusal.starts_with(&expected), "{refusal}");
    }
    // In capitals it is the same.
    sink(&ChecksumFactory, json!({ "expect": "CBF43926" }));
}

#[test]
fn a_null_sink_takes_any_number_of_inputs_and_reads_none() {
    let columns = TDesc::with_layout([2, 2], DType::U8, MemLoc::Host, [1, 2], 4).unwrap();
    let inputs = [frame(), columns, TDesc::host::<f64>([0]).unwrap()];
    let mut task = TaskHarness::sync(&NullSinkFactory, Value::Null, inputs).unwrap();
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
    let found = refused(&NullSinkFactory, json!({}), []);
    assert_eq!(
        found,
        "node `task`, infer: found 0 inputs, expected at least 1"
    );
}

#[test]
fn a_copy_has_the_bytes_of_its_input_elsewhere() {
    // The input begins 4 bytes into its storage.
    let input = TDesc::with_offset([3], DType::U16, MemLoc::Host, 4).unwrap();
    let mut task = TaskHarness::sync(&CopyFactory, json!({}), [input]).unwrap();
    assert_eq!(
        task.run::<u16, u16>(&[1, 2, 3]).unwrap(),
        Some(vec![1, 2, 3])
    );
    let from = task.producer().input_address(0).unwrap();
    assert_ne!(task.producer().output_address(0).unwrap(), from);
    assert_eq!(task.infer().output_descs, [frame()]);
    assert_eq!(task.report().copied_bytes, 6);
}

#[test]
fn what_reads_its_input_takes_it_contiguous_and_in_host_memory_only() {
    let columns = TDesc::with_layout([2, 2], DType::U8, MemLoc::Host, [1, 2], 0).unwrap();
    let device = frame().at_location(MemLoc::Device(0));
    for factory in [&ChecksumFactory as &dyn ISyncTaskFactory, &CopyFactory] {
        for input in [&columns, &device] {
            let found = refused(factory, json!({}), [input.clone()]);
            let expected = format!(
                "node `task`, infer: input 0: found {input}, expected a contiguous tensor in host \
                 memory"
            );
            assert_eq!(found, expected);
        }
        let found = refused(factory, json!({}), []);
        assert_eq!(found, "node `task`, infer: found 0 inputs, expected 1");
    }
}

#[test]
fn a_setting_of_a_task_without_settings_is_refused() {
    for factory in [&NullSinkFactory as &dyn ISyncTaskFactory, &CopyFactory] {
        let found = refused(factory, json!({ "x": 1 }), [frame()]);
        assert!(found.contains("setting `x`: found 1, expected"), "{found}");
    }
}
