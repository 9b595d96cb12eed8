//! When nothing advances: noticing it, and saying who waits for what.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Phase;
use crate::clock::Timestamp;
use crate::ids::SectionId;

/// What every section was doing when nothing had advanced for a while.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StallReport {
    /// How long nothing had advanced.
    pub stalled_for: Duration,
    /// The sections that have not ended.
    pub sections: Vec<StalledSection>,
}

/// What one section was doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StalledSection {
    /// The section.
    pub section: SectionId,
    /// Its name.
    pub name: String,
    /// What it was doing.
    pub phase: Phase,
    /// For which node.
    pub node: Option<String>,
    /// For which of its slots: the input being acquired.
    pub slot: Option<usize>,
    /// Frames that the node held, if it is async.
    pub queued: Option<u64>,
    /// Frames that it can hold, if it says so.
    pub capacity: Option<usize>,
    /// How long the section had waited; `None` if it was in a hook.
    pub waiting: Option<Duration>,
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing has advanced for {:?}", self.stalled_for)?;
        for (index, section) in self.sections.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            write!(f, "{section}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StalledSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, phase) = (&self.name, self.phase);
        match self.waiting {
            Some(waiting) => write!(f, "{name} has waited {waiting:?} in {phase}")?,
            None => write!(f, "{name} is in {phase}")?,
        }
        if let Some(node) = &self.node {
            write!(f, " of `{node}`")?;
        }
        if let Some(slot) = self.slot {
            write!(f, ", input {slot}")?;
        }
        match (self.queued, self.capacity) {
            (Some(queued), Some(capacity)) => write!(f, ", which holds {queued} of {capacity}"),
            (Some(queued), None) => write!(f, ", which holds {queued}"),
            _ => Ok(()),
        }
    }
}

/// What the watchdog remembers.
#[derive(Debug)]
pub(super) struct Watch {
    advances: u64,
    since: Timestamp,
    reported: bool,
    pub(super) report: Option<StallReport>,
}

impl Watch {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            advances: 0,
            since: now,
            reported: false,
            report: None,
        }
    }

    /// Compares the sum of all advances with what it was; how long nothing has advanced, if
    /// that is a period and was not said yet.
    pub(super) fn look(
        &mut self,
        advances: u64,
        now: Timestamp,
        period: Duration,
    ) -> Option<Duration> {
        if advances != self.advances {
            self.advances = advances;
            self.since = now;
            self.reported = false;
            return None;
        }
        let stalled = now.saturating_since(self.since);
        if stalled < period || self.reported {
            return None;
        }
        self.reported = true;
        Some(stalled)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_said_once_and_again_after_an_advance() {
        let at = Timestamp::from_nanos;
        let period = Duration::from_nanos(10);
        let mut watch = Watch::new(at(0));
        assert_eq!(watch.look(5, at(3), period), None);
        assert_eq!(watch.look(5, at(12), period), None);
        assert_eq!(watch.look(5, at(13), period), Some(period));
        assert_eq!(watch.look(5, at(99), period), None);
        assert_eq!(watch.look(6, at(100), period), None);
        assert_eq!(watch.look(6, at(110), period), Some(period));
    }

    #[test]
    fn a_report_names_who_waits_for_what() {
        let report = StallReport {
            stalled_for: Duration::from_secs(1),
            sections: vec![
                StalledSection {
                    section: SectionId::new(0),
                    name: "section 0".to_owned(),
                    phase: Phase::AcquireOwnedInputs,
                    node: Some("queue".to_owned()),
                    slot: Some(0),
                    queued: Some(8),
                    capacity: Some(8),
                    waiting: Some(Duration::from_secs(2)),
                },
                StalledSection {
                    section: SectionId::new(1),
                    name: "section 1".to_owned(),
                    phase: Phase::ExecuteSync,
                    node: Some("blur".to_owned()),
                    slot: None,
                    queued: None,
                    capacity: None,
                    waiting: None,
                },
            ],
        };
        assert_eq!(
            report.to_string(),
            "nothing has advanced for 1s: section 0 has waited 2s in acquire_owned_inputs of \
             `queue`, input 0, which holds 8 of 8; section 1 is in execute_sync of `blur`"
        );
    }
}
