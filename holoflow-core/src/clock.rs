//! Time: the clock that tasks read, and the two there are.
//!
//! All time in a run comes from one [`Clock`], so that tests can replace it. A clock says
//! what time it is; it does not wait.

use std::fmt;
use std::time::{Duration, Instant};

use crate::sync::{Arc, Mutex};

/// A point in time: nanoseconds since the origin of its clock.
///
/// Enough for 584 years. Arithmetic saturates.
///
/// ```
/// use std::time::Duration;
/// use holoflow_core::clock::Timestamp;
///
/// let start = Timestamp::from_nanos(500);
/// let later = start.saturating_add(Duration::from_nanos(20));
/// assert_eq!(later.saturating_since(start), Duration::from_nanos(20));
/// assert_eq!(start.saturating_since(later), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `duration` later, or the last there is.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The point `duration` later; `None` if it is past the last there is.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0
            .checked_add(u64::try_from(duration.as_nanos()).ok()?)
            .map(Self)
    }

    /// Time since `earlier`; zero if that is not earlier.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from_nanos(self.0), f)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Says what time it is.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now; never earlier than an answer given before.
    fn now(&self) -> Timestamp;
}

/// The machine's monotonic clock; its origin is when it was made.
///
/// ```
/// use holoflow_core::clock::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let first = clock.now();
/// assert!(clock.now() >= first);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(nanos(self.origin.elapsed()))
    }
}

/// A clock that stands still until it is moved. Handles share one time.
///
/// ```
/// use std::time::Duration;
/// use holoflow_core::clock::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_nanos(5));
/// assert_eq!(clock.now(), Timestamp::from_nanos(5));
/// assert_eq!(clock.set(Timestamp::from_nanos(3)), Timestamp::from_nanos(5));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now: Arc<Mutex<Timestamp>>,
}

impl ManualClock {
    /// A clock at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on by `duration`.
    pub fn advance(&self, duration: Duration) {
        let mut now = self.now.lock();
        *now = now.saturating_add(duration);
    }

    /// Moves the clock on to `at`, never backwards. Returns the time it then shows.
    pub fn set(&self, at: Timestamp) -> Timestamp {
        let mut now = self.now.lock();
        *now = (*now).max(at);
        *now
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_a_manual_clock_show_one_time() {
        let clock = ManualClock::new();
        let other = clock.clone();
        clock.advance(Duration::from_millis(2));
        assert_eq!(other.now(), Timestamp::from_nanos(2_000_000));
        assert_eq!(other.now().to_string(), "2ms");
    }

    #[test]
    fn time_saturates() {
        let last = Timestamp::from_nanos(u64::MAX);
        assert_eq!(last.saturating_add(Duration::MAX), last);
        assert_eq!(last.checked_add(Duration::from_nanos(1)), None);
        assert_eq!(Timestamp::ZERO.checked_add(Duration::MAX), None);
        let clock = ManualClock::new();
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), last);
    }
}
