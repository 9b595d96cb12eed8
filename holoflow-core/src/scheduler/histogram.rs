//! Durations, counted by size: what percentiles are made of.
//!
//! Each octave is cut into eight, so a percentile is at most an eighth too large. Adding is
//! one count, so that a section can do it while others read.

use std::time::Duration;

use serde::Serialize;

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Parts of an octave, as a power of two.
const PARTS_LOG2: u32 = 3;
const PARTS: u64 = 1 << PARTS_LOG2;
/// Enough for 2^40 ns, 18 minutes; what is longer counts as that.
const BUCKETS: usize = ((40 - PARTS_LOG2 as usize) + 1) << PARTS_LOG2;

/// Counts by duration. Its memory is taken when the first is added.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: OnceLock<Box<[AtomicU64]>>,
    count: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
}

/// What has been measured of some duration, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Durations {
    /// How many were measured. Not every one is: reading the clock costs more than a small
    /// task.
    pub samples: u64,
    /// Their mean, in milliseconds.
    pub mean_ms: f64,
    /// Half of them were no longer, in milliseconds; at most an eighth above the truth, as the
    /// other percentiles.
    pub p50_ms: f64,
    /// 90 of 100 were no longer, in milliseconds.
    pub p90_ms: f64,
    /// 99 of 100 were no longer, in milliseconds.
    pub p99_ms: f64,
    /// The longest, in milliseconds.
    pub max_ms: f64,
}

/// The bucket of a duration.
fn bucket(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    let octave = nanos.ilog2() - PARTS_LOG2;
    let part = (nanos >> octave) - PARTS;
    let index = (u64::from(octave + 1) << PARTS_LOG2) + part;
    (index as usize).min(BUCKETS - 1)
}

/// The largest duration of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let octave = (bucket >> PARTS_LOG2) - 1;
    let part = bucket & (PARTS - 1);
    ((PARTS + part + 1) << octave) - 1
}

pub(super) fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

impl Histogram {
    pub(super) fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let buckets = self.buckets.get_or_init(|| {
            let zeros = (0..BUCKETS).map(|_| AtomicU64::new(0));
            zeros.collect()
        });
        buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
        self.max.fetch_max(nanos, Ordering::Relaxed);
    }

    /// How many were added, and the sum of their nanoseconds.
    pub(super) fn totals(&self) -> (u64, u64) {
        (
            self.count.load(Ordering::Relaxed),
            self.sum.load(Ordering::Relaxed),
        )
    }

    pub(super) fn durations(&self) -> Durations {
        let (samples, sum) = self.totals();
        let Some(buckets) = self.buckets.get().filter(|_| samples > 0) else {
            return Durations::default();
        };
        let max = self.max.load(Ordering::Relaxed);
        let percentile = |percent: u64| {
            let rank = (samples * percent).div_ceil(100);
            let mut seen = 0;
            for (index, count) in buckets.iter().enumerate() {
                seen += count.load(Ordering::Relaxed);
                if seen >= rank {
                    return milliseconds(upper(index).min(max));
                }
            }
            milliseconds(max)
        };
        Durations {
            samples,
            mean_ms: milliseconds(sum) / samples as f64,
            p50_ms: percentile(50),
            p90_ms: percentile(90),
            p99_ms: percentile(99),
            max_ms: milliseconds(max),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_that_ends_next_above_it() {
        for nanos in (0..5_000).chain((12..40).map(|bit| (1 << bit) + 12_345)) {
            let index = bucket(nanos);
            assert!(upper(index) >= nanos, "{nanos}");
            assert!(index == 0 || upper(index - 1) < nanos, "{nanos}");
            assert!(upper(index) <= nanos + nanos / PARTS, "{nanos}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_added() {
        let histogram = Histogram::default();
        assert_eq!(histogram.durations(), Durations::default());
        for micros in 1..=100 {
            histogram.add(Duration::from_micros(micros));
        }
        let found = histogram.durations();
        assert_eq!(found.samples, 100);
        assert!((found.mean_ms - 0.0505).abs() < 1e-9);
        assert!((0.050..0.057).contains(&found.p50_ms), "{found:?}");
        assert!((0.099..=0.1).contains(&found.p99_ms), "{found:?}");
        assert!((found.max_ms - 0.1).abs() < 1e-9);
    }
}
