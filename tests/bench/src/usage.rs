//! What the process has used so far: processor time and page faults.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// What the process has used since it began, all threads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Processor time, of the program and of the system for it.
    pub cpu: Duration,
    /// Page faults that were served without a disk.
    pub faults: u64,
}

impl Usage {
    /// What it is now.
    ///
    /// # Panics
    /// If the system does not say.
    #[must_use]
    pub fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage");
        Self {
            cpu: duration(usage.user_time()) + duration(usage.system_time()),
            faults: usage.minor_page_faults().unsigned_abs(),
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            faults: self.faults.saturating_sub(earlier.faults),
        }
    }
}

fn duration(time: TimeVal) -> Duration {
    Duration::from_secs(time.tv_sec().unsigned_abs())
        + Duration::from_micros(time.tv_usec().unsigned_abs())
}

/// Processor time in milliseconds while `work` runs.
pub fn cpu_ms(work: impl FnOnce()) -> f64 {
    let before = Usage::now();
    work();
    Usage::now().since(before).cpu.as_secs_f64() * 1e3
}
