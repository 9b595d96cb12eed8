//! `holoflow run FILE`: runs a graph file, shows how it goes, and reports what happened.
//!
//! The run is on threads of its own. This one waits for it, and looks up a few times a second
//! to show how it goes and to see whether its time is over.
//!
//! Shutdown: the first Ctrl-C, and the end of `--duration`, let the graph drain; the second
//! Ctrl-C cancels it. Ctrl-C is taken over once the run has begun, and acts at once, from a
//! thread of its own; what is said of it is said here. In all cases the run is waited for and
//! its report is printed.
//!
//! Invariants, each with a test whose name begins with its number:
//!
//! - **RN1** The report is output, and nothing else is; it is printed for every run that began.
//! - **RN2** The exit status is 0 if no frame was lost; 1 if nothing was run; 2 if the run
//!   failed; 3 if frames were dropped or failed; 130 if it was cancelled.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holoflow_core::compiler::Plan;
use holoflow_core::pipeline::{Control, Pipeline};
use holoflow_core::registry::Registry;
use holoflow_core::scheduler::{Outcome, Report, RunError, RunOptions, StartError, Watchdog};

use super::assign::{AssignError, RootOption, Setting, assign, option, setting};
use super::file::File;
use super::live::{Live, PERIOD};
use super::{FAILURE, Process, SUCCESS, Streams, say};

/// The run failed.
const FAILED: u8 = 2;
/// The run has ended as it should, but frames were lost.
const LOSSES: u8 = 3;
/// The run was cancelled: what shells call a command that Ctrl-C has ended.
const CANCELLED: u8 = 130;

/// Runs a graph file until it ends, and reports what happened.
///
/// Ctrl-C stops the sources and lets the rest drain; a second Ctrl-C cancels.
///
/// The exit status is 0 if no frame was lost, 1 if the graph is wrong or does not start, 2 if it
/// failed, 3 if frames were dropped or failed, 130 if it was cancelled.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Run {
    #[command(flatten)]
    file: File,
    /// Change a setting of a node; the value is JSON, or else a string.
    #[arg(long = "set", value_name = "NODE.SETTING=VALUE", value_parser = setting)]
    settings: Vec<Setting>,
    /// Change one of the graph's `options`; the value is JSON, or else a string.
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = option)]
    options: Vec<RootOption>,
    /// End each source after so many frames.
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
    /// Stop the sources after so long, and let the rest drain.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// The form of the report.
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    report: Form,
    /// Say what is run, and how each node does.
    #[arg(short, long)]
    verbose: bool,
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Form {
    /// A table.
    #[default]
    Text,
    /// For programs.
    Json,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let found = text.parse().ok();
    let found = found.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    found.ok_or_else(|| "expected a number of seconds, 0 or above".to_owned())
}

impl Run {
    pub(super) fn run(
        &self,
        registry: &Registry,
        streams: &mut Streams<'_>,
        process: &Process<'_>,
    ) -> io::Result<u8> {
        let Some(mut pipeline) = self.pipeline(registry, streams)? else {
            return Ok(FAILURE);
        };
        if self.verbose {
            self.say_plan(pipeline.plan(), pipeline.options(), streams.errors)?;
        }
        if let Err(error) = pipeline.start() {
            self.error(streams, &not_started(error))?;
            return Ok(FAILURE);
        }
        let interrupts = Interrupts::default();
        if let Err(error) = (process.on_interrupt)(interrupts.handler(pipeline.control())) {
            let message = format!("Ctrl-C will not let it drain: {error}");
            say(streams.errors, &self.file.name(), "warning", &message)?;
        }
        let live = Live::new(process.is_terminal, self.verbose);
        match self.watch(&mut pipeline, &interrupts, live, streams)? {
            Ok(report) => {
                self.print(&report, streams.output)?;
                self.conclude(&report, &interrupts, pipeline.options(), streams)
            }
            Err(RunError::Failed(failure)) => {
                self.print(&failure.report, streams.output)?;
                self.error(streams, &failure.first)?;
                for consequence in &failure.consequences {
                    let message = format!("in consequence: {consequence}");
                    self.error(streams, &message)?;
                }
                Ok(FAILED)
            }
            Err(error) => {
                self.error(streams, &error)?;
                Ok(FAILURE)
            }
        }
    }

    /// What is to be run. `None` if it cannot be, which has been said then.
    fn pipeline(
        &self,
        registry: &Registry,
        streams: &mut Streams<'_>,
    ) -> io::Result<Option<Pipeline>> {
        let Some(graph) = self.file.read(streams)? else {
            return Ok(None);
        };
        let graph = match assign(graph, &self.settings, &self.options) {
            Ok(graph) => graph,
            Err(errors) => {
                for error in &errors {
                    match error {
                        AssignError::Graph(errors) => {
                            for error in errors {
                                self.error(streams, error)?;
                            }
                        }
                        _ => self.error(streams, error)?,
                    }
                }
                return Ok(None);
            }
        };
        match Pipeline::compile(&graph, registry) {
            Ok(mut pipeline) => {
                let options = pipeline.options_mut();
                options.frames = self.frames.or(options.frames);
                Ok(Some(pipeline))
            }
            Err(errors) => {
                for error in errors.iter() {
                    self.error(streams, error)?;
                }
                Ok(None)
            }
        }
    }

    /// Waits for the end, and shows how it goes until then.
    fn watch(
        &self,
        pipeline: &mut Pipeline,
        interrupts: &Interrupts,
        mut live: Live,
        streams: &mut Streams<'_>,
    ) -> io::Result<Result<Report, RunError>> {
        let control = pipeline.control();
        // A time that is too far off to be told never comes.
        let mut end = self
            .duration
            .and_then(|duration| Instant::now().checked_add(duration));
        let warns = pipeline.options().watchdog == Watchdog::Warn;
        let mut heard = 0;
        let mut stall = None;
        let ended = loop {
            if end.is_some_and(|end| Instant::now() >= end) {
                end = None;
                control.finish();
            }
            live.show(streams.errors, || control.metrics());
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let ended = pipeline.wait_for(left.map_or(PERIOD, |left| left.min(PERIOD)));

            let mut said: Vec<(&str, String)> = Vec::new();
            while let Some(event) = pipeline.receive() {
                if self.verbose {
                    let text = format!("event from `{}`: {}", event.node, event.data);
                    said.push(("info", text));
                }
            }
            // Where the watchdog stops the run, the run's error says it.
            let found = control.stall().filter(|_| warns);
            if found != stall {
                said.extend(found.iter().map(|found| ("warning", found.to_string())));
                stall = found;
            }
            let count = interrupts.count();
            if count > heard && ended.is_none() {
                let text = match count {
                    1 => "stopping its sources, and letting the rest drain; Ctrl-C cancels it",
                    _ => "cancelling it",
                };
                said.push(("info", text.to_owned()));
            }
            heard = count;
            if !said.is_empty() || ended.is_some() {
                live.clear(streams.errors);
            }
            for (severity, text) in said {
                say(streams.errors, &self.file.name(), severity, &text)?;
            }
            if let Some(ended) = ended {
                break ended;
            }
        };
        Ok(ended)
    }

    fn print(&self, report: &Report, output: &mut dyn Write) -> io::Result<()> {
        let printed = match self.report {
            Form::Text => write!(output, "{report}"),
            Form::Json => serde_json::to_string_pretty(report)
                .map_err(io::Error::from)
                .and_then(|text| writeln!(output, "{text}")),
        };
        match printed.and_then(|()| output.flush()) {
            // Whoever reads has seen enough; how the run ended is still of interest.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed,
        }
    }

    /// The exit status of a run that did not fail, and why it is not 0.
    fn conclude(
        &self,
        report: &Report,
        interrupts: &Interrupts,
        options: &RunOptions,
        streams: &mut Streams<'_>,
    ) -> io::Result<u8> {
        let name = self.file.name();
        if report.outcome == Outcome::Cancelled {
            if interrupts.count() < 2 {
                let after = options.drain_timeout;
                let message = format!(
                    "cancelled: it had not drained {after:?} after its sources were stopped; \
                     the option `drain_timeout` gives it longer"
                );
                say(streams.errors, &name, "error", &message)?;
            }
            return Ok(CANCELLED);
        }
        if !report.has_losses() {
            return Ok(SUCCESS);
        }
        for node in report.nodes.iter().filter(|node| node.has_losses()) {
            let (dropped, failed) = (node.dropped, node.failed);
            let message = format!("node `{}`: {dropped} dropped, {failed} failed", node.name);
            say(streams.errors, &name, "warning", &message)?;
        }
        Ok(LOSSES)
    }

    /// Says what is about to be run.
    fn say_plan(
        &self,
        plan: &Plan,
        options: &RunOptions,
        errors: &mut dyn Write,
    ) -> io::Result<()> {
        let name = self.file.name();
        for (section, planned) in plan.sections.iter().enumerate() {
            let number = u32::try_from(section).unwrap_or(u32::MAX);
            let number = holoflow_core::ids::SectionId::new(number);
            let mut message = plan.section_name(number);
            for (what, nodes) in [
                ("pops", &planned.pops),
                ("runs", &planned.sync),
                ("pushes", &planned.pushes),
            ] {
                let names = nodes.iter().map(|node| &*plan.nodes[node.index()].name);
                let names: Vec<_> = names.collect();
                if !names.is_empty() {
                    message += &format!(", {what} {}", names.join(" "));
                }
            }
            say(errors, &name, "info", &message)?;
        }
        let RunOptions {
            threads,
            wait,
            watchdog,
            ..
        } = options;
        let message = format!("threads {threads:?}, wait {wait:?}, watchdog {watchdog:?}");
        say(errors, &name, "info", &message)
    }

    fn error(&self, streams: &mut Streams<'_>, message: &dyn std::fmt::Display) -> io::Result<()> {
        say(streams.errors, &self.file.name(), "error", message)
    }
}

fn not_started(error: StartError) -> String {
    match error {
        StartError::Thread(cause) => {
            format!("the pipeline did not start: a thread cannot be started: {cause}")
        }
        error => RunError::from(error).to_string(),
    }
}

/// How often Ctrl-C was pressed.
#[derive(Debug, Default)]
struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    /// What is to be done each time.
    fn handler(&self, control: Control) -> Box<dyn FnMut() + Send> {
        let count = Arc::clone(&self.0);
        Box::new(move || match count.fetch_add(1, Ordering::Relaxed) {
            0 => control.finish(),
            _ => control.cancel(),
        })
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
