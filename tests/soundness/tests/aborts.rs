//! Attacks that would end the process. Each runs in a process of its own, which must end
//! well: the test starts itself again, with a variable set that tells it to attack.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::panic::catch_unwind;
use std::process::{Command, exit};

use holoflow::memory::Memory;
use holoflow::prelude::*;
use holoflow::storage::{RegionSlot, Sides, TaskBuffer};
use holoflow::testkit::FakeDevice;
use holoflow_soundness::fixture::stray;

const ATTACK: &str = "HOLOFLOW_SOUNDNESS_ATTACK";

/// Runs `attack` in a process of its own, in which only the test `name` runs.
fn survives(name: &str, attack: fn()) {
    if env::var_os(ATTACK).is_some() {
        attack();
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(ATTACK, "1")
        // Under the sanitizer, too, an absurd request fails instead of ending the process.
        .env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

#[test]
fn a_process_that_ends_badly_is_noticed() {
    let outcome = catch_unwind(|| {
        survives("a_process_that_ends_badly_is_noticed", || exit(3));
    });
    assert!(outcome.is_err());
}

#[test]
fn a_region_shared_a_hundred_thousand_times_over_is_dropped() {
    survives(
        "a_region_shared_a_hundred_thousand_times_over_is_dropped",
        || {
            let mut region = stray(4);
            for _ in 0..100_000 {
                region = region.into_shared().to_region();
            }
            assert_eq!(region.as_bytes().unwrap(), [0; 4]);
        },
    );
}

#[test]
fn a_ring_in_a_window_of_a_ring_a_hundred_thousand_deep_is_dropped() {
    survives(
        "a_ring_in_a_window_of_a_ring_a_hundred_thousand_deep_is_dropped",
        || {
            let mut sides = Sides::new();
            let mut region = stray(4);
            for _ in 0..100_000 {
                let Ok(slot) = RegionSlot::new(&sides, region) else {
                    return;
                };
                region = slot.acquire(sides.split().0).unwrap().unwrap();
            }
            assert_eq!(region.as_bytes().unwrap(), [0; 4]);
        },
    );
}

#[test]
fn a_region_split_a_hundred_thousand_times_is_dropped() {
    survives("a_region_split_a_hundred_thousand_times_is_dropped", || {
        let mut buffer = TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 100_000).unwrap();
        let mut parts = Vec::new();
        while let Some(part) = buffer.take(1) {
            parts.push(part);
        }
        assert_eq!(parts.len(), 100_000);
    });
}

#[test]
fn device_memory_that_nobody_has_is_an_error() {
    survives("device_memory_that_nobody_has_is_an_error", || {
        let provider = FakeDevice::new(0).provider();
        for bytes in [1 << 50, isize::MAX as usize, usize::MAX - 300, usize::MAX] {
            assert!(provider.allocate(bytes).is_err(), "{bytes} bytes");
        }
        assert!(provider.allocate(4).is_ok());
    });
}

#[test]
fn host_memory_that_nobody_has_is_an_error() {
    survives("host_memory_that_nobody_has_is_an_error", || {
        let memory = Memory::host();
        for bytes in [1 << 50, isize::MAX as usize - 256, usize::MAX] {
            assert!(
                memory.allocate(MemLoc::Host, bytes).is_err(),
                "{bytes} bytes"
            );
        }
        assert!(memory.allocate(MemLoc::Host, 4).is_ok());
    });
}
