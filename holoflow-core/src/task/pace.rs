//! When the next frame is due at a given highest rate.
//!
//! The one piece of timing that every rate limiter shares, whatever memory its frames
//! lie in. It reads no clock: the caller says what time it is.
//!
//! The period is a whole number of nanoseconds, the nearest to `1e9 / max_fps`. Deadlines
//! are multiples of it, so none is lost or doubled by rounding.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TaskError, TaskResult};
use crate::clock::Timestamp;

/// Lowest and highest rate accepted, in frames a second.
const RATES: std::ops::RangeInclusive<f64> = 1e-6..=1e9;

/// How a rate limiter places its deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pacing {
    /// At whole periods from the start; missed ones are skipped. Keeps the long-term rate.
    #[default]
    Schedule,
    /// One period after the last frame. Keeps the distance.
    Spacing,
}

/// Says when the next frame is due.
///
/// ```
/// use std::time::Duration;
/// use holoflow_core::clock::Timestamp;
/// use holoflow_core::task::{Pacer, Pacing};
///
/// let at = Timestamp::from_nanos;
/// let mut pacer = Pacer::new("max_fps", 1e9 / 100.0, Pacing::Schedule)?;
/// pacer.start(at(0));
/// assert!(pacer.is_due(at(0)));
/// pacer.emitted(at(0));
/// assert_eq!(pacer.due(), at(100));
/// pacer.emitted(at(250)); // late: the ticks at 100 and 200 are gone
/// assert_eq!(pacer.due(), at(300));
/// # Ok::<(), holoflow_core::task::TaskError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pacer {
    period: u64,
    pacing: Pacing,
    start: Timestamp,
    due: Timestamp,
    skipped: u64,
}

impl Pacer {
    /// A pacer for at most `max_fps` frames a second, started at time zero.
    ///
    /// # Errors
    /// A settings error of `field` if the rate is not a number from 1e-6 to 1e9.
    pub fn new(field: &str, max_fps: f64, pacing: Pacing) -> TaskResult<Self> {
        if !RATES.contains(&max_fps) {
            let expected = format!(
                "a rate from {:e} to {:e} frames a second",
                RATES.start(),
                RATES.end()
            );
            return Err(TaskError::settings(field, max_fps, expected));
        }
        // At least 1 and at most 1e15, by the range of rates.
        let period = (1e9 / max_fps).round() as u64;
        Ok(Self {
            period,
            pacing,
            start: Timestamp::ZERO,
            due: Timestamp::ZERO,
            skipped: 0,
        })
    }

    /// Time between two frames at the highest rate.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// Begins anew at `now`; a frame is due at once.
    pub fn start(&mut self, now: Timestamp) {
        self.start = now;
        self.due = now;
        self.skipped = 0;
    }

    /// When the next frame is due.
    #[must_use]
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Whether a frame is due.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// Deadlines that passed without a frame since the start, under `Schedule`.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Notes that a frame went out at `now` and places the next deadline.
    pub fn emitted(&mut self, now: Timestamp) {
        match self.pacing {
            Pacing::Schedule => {
                let late = now.as_nanos().saturating_sub(self.due.as_nanos()) / self.period;
                self.skipped = self.skipped.saturating_add(late);
                let periods = late.saturating_add(1).saturating_mul(self.period);
                self.due = Timestamp::from_nanos(self.due.as_nanos().saturating_add(periods));
            }
            Pacing::Spacing => self.due = now.saturating_add(self.period()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn rates_that_are_no_rates_are_refused_by_field_name() {
        for rate in [
            0.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e300,
            1e-300,
        ] {
            let error = Pacer::new("max_fps", rate, Pacing::Schedule).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "setting `max_fps`: found {rate}, expected a rate from 1e-6 to 1e9 frames a second"
                )
            );
        }
    }

    #[test]
    fn the_bounds_themselves_are_rates() {
        for (rate, period) in [(1e9, 1), (1e-6, 1_000_000_000_000_000)] {
            let pacer = Pacer::new("max_fps", rate, Pacing::Schedule).unwrap();
            assert_eq!(pacer.period, period);
        }
    }

    #[test]
    fn no_tick_is_lost_or_doubled_over_ten_seconds() {
        for (rate, ticks) in [(3_000.0, 30_000), (25_000.0, 250_000)] {
            let mut pacer = Pacer::new("max_fps", rate, Pacing::Schedule).unwrap();
            pacer.start(at(7));
            let end = at(7 + 10_000_000_000);
            let mut count = 0;
            while pacer.due() < end {
                let due = pacer.due();
                pacer.emitted(due);
                assert_eq!(pacer.due().as_nanos() - due.as_nanos(), pacer.period);
                count += 1;
            }
            // 3 000 Hz has a period of 333 333 ns, a third of a nanosecond short: after 10 s
            // that is 10 µs, less than a period, so one deadline more has begun.
            assert!(
                count == ticks || count == ticks + 1,
                "{count} ticks at {rate} Hz"
            );
            assert_eq!(pacer.skipped(), 0);
        }
    }

    #[test]
    fn spacing_counts_from_the_frame_and_schedule_from_the_start() {
        let mut schedule = Pacer::new("f", 1e7, Pacing::Schedule).unwrap();
        let mut spacing = Pacer::new("f", 1e7, Pacing::Spacing).unwrap();
        for pacer in [&mut schedule, &mut spacing] {
            pacer.start(at(1_000));
            pacer.emitted(at(1_030));
        }
        assert_eq!(schedule.due(), at(1_100));
        assert_eq!(spacing.due(), at(1_130));
    }

    #[test]
    fn the_end_of_time_is_not_an_overflow() {
        let mut pacer = Pacer::new("f", 1.0, Pacing::Schedule).unwrap();
        pacer.start(at(u64::MAX - 1));
        pacer.emitted(at(u64::MAX));
        assert_eq!(pacer.due(), at(u64::MAX));
    }
}
