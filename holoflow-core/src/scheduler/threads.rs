//! A thread of its own for a section.
//!
//! What it does not know: what a section does in its turn. It calls turns, and waits in
//! between as the options say: a short while by looking again and again, then asleep.
//!
//! Deadlines that a hook asked for are met by sleeping until a little before and spinning the
//! rest. How much before is learned from how late the machine wakes.

use std::time::Duration;

use super::options::WaitStrategy;
use super::section::{Idle, SectionRun, Turn};
use super::shared::Run;
use crate::clock::Timestamp;
use crate::sync::{Arc, Parker};

/// Looks before a section sleeps, with pauses that double: a few microseconds in all. The core
/// is not given to other threads in between: on a busy machine it would not come back before
/// a sleeping thread would have been woken.
const LOOKS: u32 = 7;
/// Pauses of the shortest look, as a power of two: long enough for a few frames to gather,
/// since each look takes the counters from the cache of who writes them.
const FIRST_LOOK: u32 = 2;
/// Looks of a section that always spins before it looks at what concerns the whole run.
const LOOK_AT_ALL: u32 = 1 << 12;

/// How late this machine wakes a sleeping thread.
#[derive(Debug)]
struct Lateness(Duration);

impl Lateness {
    const LEAST: Duration = Duration::from_micros(5);
    const MOST: Duration = Duration::from_micros(150);

    fn new() -> Self {
        Self(Duration::from_micros(60))
    }

    /// One wake in twenty may come later than this.
    const SHRINK: Duration = Duration::from_nanos(250);
    const GROW: Duration = Duration::from_nanos(19 * 250);

    fn learn(&mut self, late: Duration) {
        if late > self.0 {
            self.0 += Self::GROW;
        } else {
            self.0 = self.0.saturating_sub(Self::SHRINK);
        }
        self.0 = self.0.clamp(Self::LEAST, Self::MOST);
    }
}

/// Runs a section to its end.
pub(super) fn drive(mut section: SectionRun, parker: &Parker, wait: WaitStrategy) -> SectionRun {
    let mut waiter = Waiter {
        parker,
        wait,
        lateness: Lateness::new(),
        looks: 0,
        worth: LOOKS,
        advances: 0,
    };
    loop {
        match section.turn::<false>(u32::MAX) {
            Turn::Again => {}
            Turn::Ended => return section,
            Turn::Idle(idle) => {
                if waiter.wait(&mut section, idle) {
                    return section;
                }
            }
        }
    }
}

struct Waiter<'a> {
    parker: &'a Parker,
    wait: WaitStrategy,
    lateness: Lateness,
    /// Looks since the section last got on.
    looks: u32,
    /// Looks that are made before the section sleeps: halved by those in vain, doubled by those
    /// that were not.
    worth: u32,
    advances: u64,
}

impl Waiter<'_> {
    /// Waits until the section is to be called again; whether it has ended meanwhile.
    fn wait(&mut self, section: &mut SectionRun, idle: Idle) -> bool {
        if section.advances() != self.advances {
            self.advances = section.advances();
            if self.looks > 0 {
                self.worth = (2 * self.worth).min(LOOKS);
            }
            self.looks = 0;
        }
        if let Some(at) = idle.hint
            && self.wait != WaitStrategy::Park
            && self.spin_until(section.run(), at)
        {
            return false;
        }
        match self.wait {
            WaitStrategy::Spin => {
                self.looks = self.looks.wrapping_add(1);
                if self.looks.is_multiple_of(LOOK_AT_ALL) {
                    section.deadline(&idle);
                }
                std::hint::spin_loop();
                return false;
            }
            WaitStrategy::SpinThenPark if idle.hint.is_none() && self.looks < self.worth => {
                for _ in 0..1 << (self.looks + FIRST_LOOK) {
                    std::hint::spin_loop();
                }
                self.looks += 1;
                return false;
            }
            WaitStrategy::SpinThenPark | WaitStrategy::Park => {}
        }
        if self.looks > 0 {
            self.worth = (self.worth / 2).max(1);
            self.looks = 0;
        }
        self.sleep(section)
    }

    /// Spins until `at` if that is close; `false` if it is not.
    fn spin_until(&self, run: &Run, at: Timestamp) -> bool {
        let mut now = run.clock.now();
        let spins = self.wait == WaitStrategy::Spin;
        if !spins && at.saturating_since(now) > self.lateness.0 {
            return false;
        }
        let mut left = 0_u32;
        while now < at && !run.stop.is_cancelled() {
            std::hint::spin_loop();
            now = run.clock.now();
            left += 1;
            // A clock that stands still is not to be waited for like this.
            if spins || left > 1 << 16 {
                break;
            }
        }
        true
    }

    fn sleep(&mut self, section: &mut SectionRun) -> bool {
        let run = Arc::clone(section.run());
        let signal = &run.sections[section.index()].signal;
        if !signal.announce() {
            signal.resume();
            return false;
        }
        // The look after the announcement: what came before it is seen now, what comes after
        // it wakes.
        let idle = match section.turn::<false>(u32::MAX) {
            Turn::Idle(idle) if section.advances() == self.advances => idle,
            Turn::Ended => return true,
            Turn::Idle(_) | Turn::Again => {
                signal.resume();
                return false;
            }
        };
        let soft = section.deadline(&idle);
        let hint = idle.hint.map(|at| {
            let early = match self.wait {
                WaitStrategy::Park => Duration::ZERO,
                _ => self.lateness.0,
            };
            Timestamp::from_nanos(at.as_nanos().saturating_sub(early.as_nanos() as u64))
        });
        let until = match (hint, soft) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        section.sleeps(true);
        if signal.commit() {
            match until {
                None => self.parker.park(),
                Some(until) => {
                    let now = run.clock.now();
                    self.parker.park_timeout(until.saturating_since(now));
                    if hint == Some(until) && !signal.is_notified() {
                        let late = run.clock.now().saturating_since(until);
                        self.lateness.learn(late);
                    }
                }
            }
        }
        signal.resume();
        section.sleeps(false);
        false
    }
}

/// Prepares the thread of a section, or of a pool: its core, and that it is woken on time.
///
/// What the system does not allow is left as it is: a run is no worse for it.
pub(super) fn prepare_thread(core: Option<usize>) {
    #[cfg(target_os = "linux")]
    {
        // The default allows wake-ups to come 50 µs late, to save power.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        if let Some(core) = core.filter(|core| *core < rustix::thread::CpuSet::MAX_CPU) {
            let mut cores = rustix::thread::CpuSet::new();
            cores.set(core);
            if let Err(error) = rustix::thread::sched_setaffinity(None, &cores) {
                tracing::warn!(target: "holoflow", "the thread cannot be pinned to core {core}: {error}");
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn lateness_settles_where_one_wake_in_twenty_is_later() {
        let mut lateness = Lateness::new();
        for wake in 0..100_000_u64 {
            // All that can be between 0 and 40 µs, each as often as another.
            lateness.learn(Duration::from_micros(wake * 7 % 40));
        }
        let micros = lateness.0.as_micros();
        assert!((35..=42).contains(&micros), "{micros}");
        lateness.learn(Duration::from_secs(1));
        assert!(lateness.0 < Duration::from_micros(50), "once is no rule");
        for _ in 0..1_000 {
            lateness.learn(Duration::from_secs(1));
        }
        assert_eq!(lateness.0, Lateness::MOST);
        for _ in 0..10_000 {
            lateness.learn(Duration::ZERO);
        }
        assert_eq!(lateness.0, Lateness::LEAST);
    }
}
