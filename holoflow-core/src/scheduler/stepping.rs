//! The driver of a test that steps: sections stop after every hook, and somebody else says
//! which goes on.
//!
//! Announcing, looking again and committing are steps of their own, so that other sections
//! may come in between.

use std::time::Duration;

use super::failure::{FailureCause, RunError, StartError};
use super::options::RunOptions;
use super::report::{NodeReport, Report, node_reports};
use super::section::{SectionRun, Turn};
use super::shared::{Run, Runner};
use super::start::{Finished, Kept, Prepared, finish, prepare, watch_token};
use crate::clock::Timestamp;
use crate::compiler::{CompiledGraph, Plan};
use crate::sync::Arc;

#[derive(Debug)]
pub(crate) struct Stepping {
    options: RunOptions,
    kept: Kept,
    pub(crate) fallback: Option<(Duration, Duration)>,
    run: Option<Started>,
}

#[derive(Debug)]
struct Started {
    run: Arc<Run>,
    finished: Finished,
    sections: Vec<Option<(SectionRun, State)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// About to wait: it looks once more.
    Announced,
    Waiting(Option<Timestamp>),
}

/// Until when all sections wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waits {
    Until(Timestamp),
    ForEver,
}

impl Stepping {
    pub(crate) fn new(plan: &Plan, options: RunOptions) -> Self {
        Self {
            kept: Kept::new(plan, &options),
            options,
            fallback: None,
            run: None,
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.run.is_some()
    }

    pub(crate) fn start(&mut self, graph: &mut CompiledGraph) -> Result<(), StartError> {
        if self.is_started() {
            return Err(StartError::AlreadyRunning);
        }
        let Prepared {
            run,
            sections,
            finished,
        } = prepare(
            graph,
            &self.kept,
            &self.options,
            self.fallback,
            |plan, _| plan.sections.iter().map(|_| Runner::Step).collect(),
        )?;
        watch_token(&run);
        let sections = sections.into_iter();
        let sections = sections.map(|section| Some((section, State::Running)));
        self.run = Some(Started {
            run,
            finished,
            sections: sections.collect(),
        });
        Ok(())
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.run
            .as_ref()
            .is_none_or(|started| started.run.is_ended())
    }

    /// The sections that can go on.
    pub(crate) fn ready(&self, now: Timestamp) -> Vec<usize> {
        let Some(started) = &self.run else {
            return Vec::new();
        };
        let sections = started.sections.iter().enumerate();
        let ready = sections.filter(|(index, section)| match section {
            None => false,
            Some((_, State::Running | State::Announced)) => true,
            Some((_, State::Waiting(until))) => {
                started.run.sections[*index].signal.is_notified()
                    || until.is_some_and(|until| until <= now)
            }
        });
        ready.map(|(index, _)| index).collect()
    }

    pub(crate) fn next_deadline(&self) -> Waits {
        let sections = self.run.iter().flat_map(|started| &started.sections);
        let deadlines = sections.flatten().filter_map(|(_, state)| match state {
            State::Waiting(until) => *until,
            _ => None,
        });
        deadlines.min().map_or(Waits::ForEver, Waits::Until)
    }

    /// Lets a section go on by one hook.
    pub(crate) fn advance(&mut self, index: usize) {
        let Some(started) = &mut self.run else {
            return;
        };
        let run = &started.run;
        let Some((mut section, state)) = started.sections[index].take() else {
            return;
        };
        let signal = &run.sections[index].signal;
        if let State::Waiting(_) = state {
            signal.resume();
            section.sleeps(false);
        }
        let next = match (section.turn::<true>(1), state) {
            (Turn::Ended, _) => {
                started.finished.put(section, run);
                return;
            }
            (Turn::Again, State::Announced) => {
                signal.resume();
                State::Running
            }
            (Turn::Again, _) => State::Running,
            (Turn::Idle(idle), State::Announced) => {
                let soft = section.deadline(&idle);
                let until = match (idle.hint, soft) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                section.sleeps(true);
                if signal.commit() {
                    State::Waiting(until)
                } else {
                    signal.resume();
                    section.sleeps(false);
                    State::Running
                }
            }
            (Turn::Idle(_), _) => {
                if signal.announce() {
                    State::Announced
                } else {
                    signal.resume();
                    State::Running
                }
            }
        };
        started.sections[index] = Some((section, next));
    }

    /// Everything waits for nothing: the run fails with where each section is.
    pub(crate) fn fail_stuck(&self) {
        let Some(started) = &self.run else {
            return;
        };
        let run = &started.run;
        let now = run.now();
        let report = run.stall_report(now, Duration::ZERO);
        let section = run.stuck_sections().first().copied().unwrap_or(0);
        let place = run.sections[section].place();
        run.fail(run.failure(section, place, FailureCause::Stalled(report)));
    }

    /// After the end: puts the graph together again, and reports.
    pub(crate) fn finish(&mut self, graph: &mut CompiledGraph) -> Result<Report, RunError> {
        let started = self.run.take().ok_or(RunError::NotStarted)?;
        finish(&started.run, &started.finished, graph, &self.kept)
    }

    pub(crate) fn cancel(&self) {
        if let Some(started) = &self.run {
            started.run.cancel();
        }
    }

    pub(crate) fn request_finish(&self) {
        if let Some(started) = &self.run {
            started.run.finish();
        }
    }

    pub(crate) fn nodes(&self) -> Vec<NodeReport> {
        let Some(started) = &self.run else {
            return Vec::new();
        };
        let run = &started.run;
        let elapsed = run.now().saturating_since(run.started);
        node_reports(run, &self.kept.links, elapsed)
    }

    pub(crate) fn in_flight(&self) -> Option<u64> {
        let credit = self.run.as_ref()?.run.credit.as_ref()?;
        Some(credit.in_flight())
    }
}
