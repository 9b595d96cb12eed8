//! How a pipeline is run: settings in Rust, and as `options` of a graph file.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SystemClock};
use crate::compiler::{CompileError, CompileErrors};
use crate::graph::RUN_OPTIONS;
use crate::sync::Arc;

/// Which threads run the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Threads {
    /// One thread for each section.
    #[default]
    PerSection,
    /// So many threads for all sections; those with a node marked as blocking keep a thread
    /// of their own beside them.
    Pool(NonZeroUsize),
}

/// What a section does while it has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Sleeps at once.
    Park,
    /// Looks again for a few microseconds, then sleeps. Where there are more sections than
    /// cores it sleeps at once.
    #[default]
    SpinThenPark,
    /// Looks again and again: the lowest latency, for a core each.
    Spin,
}

/// What happens when no section has advanced for [`RunOptions::watchdog_period`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Watchdog {
    /// Nothing.
    #[default]
    Off,
    /// A report is logged and kept for [`Control::stall`](crate::pipeline::Control::stall).
    Warn,
    /// The run fails with the report.
    Stop,
}

/// How a pipeline is run.
///
/// ```
/// use std::time::Duration;
/// use holoflow_core::scheduler::{RunOptions, Watchdog};
///
/// let mut options = RunOptions::default();
/// options.watchdog = Watchdog::Stop;
/// options.watchdog_period = Duration::from_millis(500);
/// ```
///
/// In a graph file they are keys of `options`; times are in seconds:
///
/// ```
/// use holoflow_core::scheduler::{RunOptions, Threads};
/// use serde_json::json;
///
/// let written = json!({ "threads": 2, "watchdog": "warn", "drain_timeout": 2.5 });
/// let options = RunOptions::from_json(written.as_object().expect("an object"))?;
/// assert!(matches!(options.threads, Threads::Pool(n) if n.get() == 2));
/// # Ok::<(), holoflow_core::compiler::CompileErrors>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunOptions {
    /// Which threads run the sections. File: `threads`, `"per_section"` or a number.
    pub threads: Threads,
    /// What a section does while it has nothing to do. File: `wait`, `"park"`,
    /// `"spin_then_park"` or `"spin"`.
    pub wait: WaitStrategy,
    /// What happens in a stall. File: `watchdog`, `"off"`, `"warn"` or `"stop"`.
    pub watchdog: Watchdog,
    /// How long nothing advances in a stall; 1 s unless set. File: `watchdog_period`.
    pub watchdog_period: Duration,
    /// Most frames that may be between sources and sinks; unlimited unless set. A frame counts
    /// once in each section that works on it and once in each async node that holds it.
    /// File: `in_flight`.
    pub in_flight: Option<NonZeroUsize>,
    /// How long draining may take, after which it becomes a cancellation; 5 s unless set. Also
    /// how long an async node may answer `NotReady` after the last push without saying when it
    /// will be ready. File: `drain_timeout`.
    pub drain_timeout: Duration,
    /// How long [`wait`](crate::pipeline::Pipeline::wait) waits for a task that does not return
    /// after a stop; 5 s unless set. File: `stop_timeout`.
    pub stop_timeout: Duration,
    /// Sources end after so many frames each; never unless set. File: `frames`.
    pub frames: Option<u64>,
    /// Cores that the sections' threads are pinned to, in the order of the sections and again
    /// from the first; none unless set. Heeded on Linux. File: `cores`.
    pub cores: Vec<usize>,
    /// Events that the mailbox to the application holds; 1024 unless set. File: `mailbox`.
    pub mailbox: usize,
    /// The clock that the run goes by.
    pub clock: Arc<dyn Clock>,
    /// A token from outside: when it is cancelled, so is the run.
    pub cancellation: Option<CancellationToken>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            threads: Threads::default(),
            wait: WaitStrategy::default(),
            watchdog: Watchdog::default(),
            watchdog_period: Duration::from_secs(1),
            in_flight: None,
            drain_timeout: Duration::from_secs(5),
            stop_timeout: Duration::from_secs(5),
            frames: None,
            cores: Vec::new(),
            mailbox: 1024,
            clock: Arc::new(SystemClock::new()),
            cancellation: None,
        }
    }
}

impl RunOptions {
    /// What the `options` of a graph file say; keys that are not there keep their defaults, and
    /// keys that are not of a run are left alone.
    ///
    /// # Errors
    /// Each option with a value that it cannot have.
    pub fn from_json(written: &Map<String, Value>) -> Result<Self, CompileErrors> {
        let mut options = Self::default();
        let mut errors = Vec::new();
        for option in RUN_OPTIONS {
            let Some(value) = written.get(option) else {
                continue;
            };
            if let Err(expected) = options.set(option, value) {
                errors.push(CompileError::Option {
                    option,
                    found: value.to_string(),
                    expected,
                });
            }
        }
        CompileErrors::check(errors)?;
        Ok(options)
    }

    /// Sets one option of a file; what was expected, if the value is not one of it.
    fn set(&mut self, option: &str, value: &Value) -> Result<(), &'static str> {
        let text = value.as_str();
        match option {
            "threads" => {
                self.threads = match (text, above_zero(value)) {
                    (Some("per_section"), _) => Threads::PerSection,
                    (_, Some(count)) => Threads::Pool(count),
                    _ => return Err("\"per_section\" or a whole number above 0"),
                }
            }
            "wait" => {
                self.wait = match text {
                    Some("park") => WaitStrategy::Park,
                    Some("spin_then_park") => WaitStrategy::SpinThenPark,
                    Some("spin") => WaitStrategy::Spin,
                    _ => return Err("\"park\", \"spin_then_park\" or \"spin\""),
                }
            }
            "watchdog" => {
                self.watchdog = match text {
                    Some("off") => Watchdog::Off,
                    Some("warn") => Watchdog::Warn,
                    Some("stop") => Watchdog::Stop,
                    _ => return Err("\"off\", \"warn\" or \"stop\""),
                }
            }
            "watchdog_period" => {
                let period = seconds(value)?;
                if period.is_zero() {
                    return Err("a number of seconds above 0");
                }
                self.watchdog_period = period;
            }
            "drain_timeout" => self.drain_timeout = seconds(value)?,
            "stop_timeout" => self.stop_timeout = seconds(value)?,
            "in_flight" => {
                self.in_flight = Some(above_zero(value).ok_or("a whole number above 0")?);
            }
            "frames" => {
                self.frames = Some(value.as_u64().ok_or("a whole number, 0 or above")?);
            }
            "mailbox" => {
                let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
                self.mailbox = count.ok_or("a whole number, 0 or above")?;
            }
            _ => {
                let core = |value: &Value| usize::try_from(value.as_u64()?).ok();
                let cores = value.as_array();
                let cores = cores.and_then(|cores| cores.iter().map(core).collect());
                self.cores = cores.ok_or("a list of numbers of cores")?;
            }
        }
        Ok(())
    }
}

fn above_zero(value: &Value) -> Option<NonZeroUsize> {
    NonZeroUsize::new(usize::try_from(value.as_u64()?).ok()?)
}

fn seconds(value: &Value) -> Result<Duration, &'static str> {
    let found = value
        .as_f64()
        .and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    found.ok_or("a number of seconds, 0 or above")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(written: Value) -> Result<RunOptions, String> {
        RunOptions::from_json(written.as_object().unwrap()).map_err(|errors| errors.to_string())
    }

    #[test]
    fn every_option_is_read() {
        let options = read(json!({
            "threads": 3, "wait": "spin", "watchdog": "stop", "watchdog_period": 0.25,
            "in_flight": 2, "drain_timeout": 1, "stop_timeout": 0.5, "frames": 10,
            "cores": [1, 0], "mailbox": 7, "on_ownership_conflict": "copy",
        }))
        .unwrap();
        assert_eq!(
            options.threads,
            Threads::Pool(NonZeroUsize::new(3).unwrap())
        );
        assert_eq!(options.wait, WaitStrategy::Spin);
        assert_eq!(options.watchdog, Watchdog::Stop);
        assert_eq!(options.watchdog_period, Duration::from_millis(250));
        assert_eq!(options.in_flight, NonZeroUsize::new(2));
        assert_eq!(options.drain_timeout, Duration::from_secs(1));
        assert_eq!(options.stop_timeout, Duration::from_millis(500));
        assert_eq!(options.frames, Some(10));
        assert_eq!(options.cores, [1, 0]);
        assert_eq!(options.mailbox, 7);
    }

    #[test]
    fn an_option_that_makes_no_sense_says_what_would() {
        for (option, value, expected) in [
            (
                "threads",
                json!(0),
                "\"per_section\" or a whole number above 0",
            ),
            (
                "wait",
                json!("sleep"),
                "\"park\", \"spin_then_park\" or \"spin\"",
            ),
            ("watchdog", json!(true), "\"off\", \"warn\" or \"stop\""),
            ("watchdog_period", json!(0), "a number of seconds above 0"),
            (
                "drain_timeout",
                json!(-1),
                "a number of seconds, 0 or above",
            ),
            (
                "stop_timeout",
                json!("1s"),
                "a number of seconds, 0 or above",
            ),
            ("in_flight", json!(0), "a whole number above 0"),
            ("frames", json!(-1), "a whole number, 0 or above"),
            ("cores", json!([0, "x"]), "a list of numbers of cores"),
            ("mailbox", json!(1.5), "a whole number, 0 or above"),
        ] {
            let error = read(json!({ option: value })).unwrap_err();
            assert!(error.contains(option), "{error}");
            assert!(error.contains(&value.to_string()), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_said() {
        let error = read(json!({ "frames": "x", "in_flight": "y" })).unwrap_err();
        assert!(
            error.contains("frames") && error.contains("in_flight"),
            "{error}"
        );
    }
}
