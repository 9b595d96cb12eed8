//! The command `holoflow`, for the tasks of a registry (feature `cli`).
//!
//! The binary of the package `holoflow-cli` is [`run`] with the tasks that come with Holoflow.
//! A program that registers tasks of its own gets the same command for them:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use holoflow::registry::{Registry, RegistryError};
//!
//! fn main() -> Result<ExitCode, RegistryError> {
//!     let mut registry = Registry::new();
//!     holoflow::cpu::register_all(&mut registry)?;
//!     // and `registry.register_sync("MyTask", MyTaskFactory)?`
//!     Ok(holoflow::cli::run(registry))
//! }
//! ```
//!
//! Each subcommand is a file. What they share is here: arguments, streams, exit statuses. A
//! subcommand writes to the [`Streams`] that it is given and to nothing else, so that all it
//! says can be tested.
//!
//! Invariants, each with a test whose name begins with its number:
//!
//! - **CM1** What was asked for goes to the output, everything else to the errors.
//! - **CM2** A message is one line, whatever the names and values in it.
//! - **CM3** The exit status is 0, 1 if the answer is "no", 2 if the arguments make no sense. That
//!   of `run` also says how a run ended: 2 failed, 3 with frames lost, 130 cancelled.

mod assign;
mod check;
mod dot;
mod file;
mod live;
mod plan;
mod run;
#[cfg(test)]
mod run_tests;
mod schema;
mod settings;
mod tasks;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use holoflow_core::registry::Registry;

/// All went well.
const SUCCESS: u8 = 0;
/// What was asked about is wrong, or cannot be read.
const FAILURE: u8 = 1;
/// The arguments make no sense.
const USAGE: u8 = 2;

/// Checks, plans, draws and runs graph files, and lists the tasks they can be made of.
#[derive(Debug, Parser)]
#[command(name = "holoflow", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    subcommand: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Check(check::Check),
    Plan(plan::Plan),
    Dot(dot::Dot),
    Run(run::Run),
    Tasks(tasks::Tasks),
    Schema(schema::Schema),
}

/// Where a command reads and writes.
#[allow(missing_debug_implementations, reason = "holds streams of any type")]
#[allow(clippy::exhaustive_structs, reason = "a process has three streams")]
pub struct Streams<'a> {
    /// Read for the file `-`.
    pub input: &'a mut dyn Read,
    /// Gets what was asked for.
    pub output: &'a mut dyn Write,
    /// Gets errors and warnings.
    pub errors: &'a mut dyn Write,
}

/// What a command has of its process beside the streams.
struct Process<'a> {
    /// Whether the errors go to a terminal, where a line can be written again.
    is_terminal: bool,
    /// Has something done at each Ctrl-C, instead of an end of the process. Why not, if it
    /// cannot be done.
    on_interrupt: &'a dyn Fn(OnInterrupt) -> Result<(), String>,
}

type OnInterrupt = Box<dyn FnMut() + Send>;

/// Runs the command with the arguments and streams of this process.
///
/// The exit status is 0 if all went well, 1 if a file or name is wrong, 2 if the arguments make
/// no sense. Of `run` it is also 2 if the run failed, 3 if frames were lost in it, and 130 if it
/// was cancelled. Without arguments the help is printed.
///
/// While `run` runs, Ctrl-C is taken over: it lets the graph drain, and a second one cancels.
#[must_use]
pub fn run(registry: Registry) -> ExitCode {
    // Not locked: tasks may write too.
    let mut output = BufWriter::new(io::stdout());
    let mut streams = Streams {
        input: &mut io::stdin(),
        output: &mut output,
        errors: &mut io::stderr(),
    };
    let process = Process {
        is_terminal: io::stderr().is_terminal(),
        on_interrupt: &|on_interrupt| {
            ctrlc::set_handler(on_interrupt).map_err(|error| error.to_string())
        },
    };
    let arguments = std::env::args_os().collect();
    ExitCode::from(execute_in(&registry, arguments, &mut streams, &process))
}

/// Runs the command with these arguments, the first of which is the command's name, and these
/// streams. The exit status, as of [`run`]; but Ctrl-C is left alone, and nothing is taken for a
/// terminal.
///
/// ```
/// use holoflow::cli::{Streams, execute};
/// use holoflow::registry::Registry;
///
/// let (mut output, mut errors) = (Vec::new(), Vec::new());
/// let mut streams = Streams {
///     input: &mut r#"{ "nodes": { "a": { "type": "Blur" } } }"#.as_bytes(),
///     output: &mut output,
///     errors: &mut errors,
/// };
/// let status = execute(&Registry::new(), ["holoflow", "check", "-"], &mut streams);
/// assert_eq!(status, 1);
/// assert_eq!(
///     String::from_utf8(errors)?,
///     "<stdin>: error: nodes.a.type: no task of kind `Blur` is registered\n"
/// );
/// # Ok::<(), std::string::FromUtf8Error>(())
/// ```
pub fn execute(
    registry: &Registry,
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
    streams: &mut Streams<'_>,
) -> u8 {
    let process = Process {
        is_terminal: false,
        on_interrupt: &|_| Ok(()),
    };
    let arguments = arguments.into_iter().map(Into::into).collect();
    execute_in(registry, arguments, streams, &process)
}

fn execute_in(
    registry: &Registry,
    arguments: Vec<OsString>,
    streams: &mut Streams<'_>,
    process: &Process<'_>,
) -> u8 {
    let answered = answer(registry, &arguments, streams, process);
    let status = answered.and_then(|status| match streams.output.flush() {
        // Whoever reads has seen enough: `holoflow plan x.json | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(status),
        flushed => flushed.map(|()| status),
    });
    match status {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => SUCCESS,
        Err(error) => {
            let line = format!("error: the output cannot be written: {error}");
            // Where that cannot be written either, the status has to say it.
            let _ = writeln!(streams.errors, "{}", one_line(&line));
            FAILURE
        }
    }
}

fn answer(
    registry: &Registry,
    arguments: &[OsString],
    streams: &mut Streams<'_>,
    process: &Process<'_>,
) -> io::Result<u8> {
    if arguments.len() < 2 {
        let mut command = Arguments::command();
        if let Some(name) = arguments.first() {
            command = command.bin_name(file::base_name(name));
        }
        write!(streams.output, "{}", command.render_help())?;
        return Ok(SUCCESS);
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            write!(streams.errors, "{error}")?;
            return Ok(USAGE);
        }
        // Help and version, which were asked for.
        Err(help) => {
            write!(streams.output, "{help}")?;
            return Ok(SUCCESS);
        }
    };
    match arguments.subcommand {
        Sub::Check(check) => check.run(registry, streams),
        Sub::Plan(plan) => plan.run(registry, streams),
        Sub::Dot(dot) => dot.run(registry, streams),
        Sub::Run(run) => run.run(registry, streams, process),
        Sub::Tasks(tasks) => tasks.run(registry, streams),
        Sub::Schema(schema) => schema.run(registry, streams),
    }
}

/// Writes a message about something: `graph.json: error: …`.
fn say(
    errors: &mut dyn Write,
    about: &str,
    severity: &str,
    message: &dyn fmt::Display,
) -> io::Result<()> {
    let line = format!("{about}: {severity}: {message}");
    writeln!(errors, "{}", one_line(&line))
}

/// `text` without line breaks and without what a terminal would take for a command: names in a
/// file may hold both.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}
