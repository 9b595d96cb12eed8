//! What is said of a run while it goes on: lines that are written again and again on a
//! terminal, or one after the other where they cannot be.
//!
//! All of it goes to the errors. That it cannot be written is no reason to stop a run, so
//! nothing here fails.
//!
//! Invariants, each with a test whose name begins with its number:
//!
//! - **LV1** On a terminal no line is broken and none is left behind; elsewhere there is no
//!   command to a terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use holoflow_core::scheduler::{Metrics, NodeMetrics};

use super::one_line;

/// How often a terminal is written to.
pub(super) const PERIOD: Duration = Duration::from_millis(200);
/// How often lines are added where they cannot be rewritten.
const SLOW: Duration = Duration::from_secs(1);
/// Nodes that have a line each on a terminal: lines that have scrolled out of it cannot be
/// rewritten.
const MOST: usize = 20;

/// Clears from the cursor to the end of the screen.
const CLEAR: &str = "\r\x1b[J";
/// Lines are cut off at the edge.
const CUT: &str = "\x1b[?7l";
/// Lines are broken at the edge again.
const BREAK: &str = "\x1b[?7h";

/// Progress, as far as it is wanted.
#[derive(Debug)]
pub(super) struct Live {
    on_terminal: bool,
    each_node: bool,
    /// Lines below which the cursor is.
    drawn: usize,
    last: Option<Instant>,
}

impl Live {
    /// On a terminal there is a line that is rewritten; with `each_node` there is one for each
    /// node, wherever it goes.
    pub(super) fn new(on_terminal: bool, each_node: bool) -> Self {
        Self {
            on_terminal,
            each_node,
            drawn: 0,
            last: None,
        }
    }

    /// Says how it goes, if it is time to.
    pub(super) fn show(&mut self, errors: &mut dyn Write, metrics: impl FnOnce() -> Metrics) {
        let period = if self.on_terminal { PERIOD } else { SLOW };
        if !self.on_terminal && !self.each_node {
            return;
        }
        let is_early = |last: Instant| last.elapsed() < period;
        match self.last {
            Some(last) if is_early(last) => return,
            // Nothing has happened yet, and it could not be rewritten.
            None if !self.on_terminal => {
                self.last = Some(Instant::now());
                return;
            }
            _ => self.last = Some(Instant::now()),
        }
        let lines = lines(&metrics(), self.each_node);
        if self.on_terminal {
            self.clear(errors);
            let left_out = lines.len().saturating_sub(MOST + 1);
            let mut shown: Vec<_> = lines.into_iter().take(MOST + 1).collect();
            if left_out > 0 {
                shown.push(format!("and {left_out} more"));
            }
            let text = shown.join("\n");
            let _ = write!(errors, "{CUT}{text}{BREAK}");
            self.drawn = shown.len();
        } else {
            for line in lines {
                let _ = writeln!(errors, "{line}");
            }
        }
        let _ = errors.flush();
    }

    /// Takes back what is on the terminal: something else is to be written.
    pub(super) fn clear(&mut self, errors: &mut dyn Write) {
        if self.drawn > 1 {
            let _ = write!(errors, "\x1b[{}A", self.drawn - 1);
        }
        if self.drawn > 0 {
            let _ = write!(errors, "{CLEAR}");
            let _ = errors.flush();
        }
        self.drawn = 0;
    }
}

/// One line of the whole, then one of each node if they are wanted.
fn lines(metrics: &Metrics, each_node: bool) -> Vec<String> {
    let sum = |of: fn(&NodeMetrics) -> u64| metrics.nodes.values().map(of).sum::<u64>();
    let mut whole = format!("{:.1} s", metrics.elapsed.as_secs_f64());
    if let Some(in_flight) = metrics.in_flight {
        whole += &format!(", {in_flight} in flight");
    }
    for (count, what) in [
        (sum(|node| node.total.dropped), "dropped"),
        (sum(|node| node.total.failed), "failed"),
    ] {
        if count > 0 {
            whole += &format!(", {count} {what}");
        }
    }
    if !each_node {
        for (number, (name, node)) in metrics.nodes.iter().enumerate() {
            whole += if number == 0 { "; frames/s: " } else { ", " };
            whole += &format!("{} {:.1}", one_line(name), node.rate);
        }
        return vec![whole];
    }
    let names = metrics.nodes.keys().map(|name| one_line(name));
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let mut lines = vec![whole];
    lines.extend(metrics.nodes.iter().map(|(name, node)| {
        let total = &node.total;
        let mut line = format!(
            "{:width$}  {:>10} frames  {:>10.1}/s  {:>8.3} ms",
            one_line(name),
            total.delivered,
            node.rate,
            node.mean_ms
        );
        if let Some(capacity) = node.capacity {
            line += &format!("  holds {} of {capacity}", total.held);
        }
        for (count, what) in [(total.dropped, "dropped"), (total.failed, "failed")] {
            if count > 0 {
                line += &format!("  {count} {what}");
            }
        }
        line
    }));
    lines
}
