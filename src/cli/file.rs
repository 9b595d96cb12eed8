//! Reading a graph file, and compiling it, with everything that is wrong told to the user.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use holoflow_core::compiler::{Compiler, Plan};
use holoflow_core::graph::{GraphSpec, GraphWarning};
use holoflow_core::registry::Registry;

use super::{Streams, say};

/// The argument that names a graph file.
#[derive(Debug, clap::Args)]
pub(super) struct File {
    /// A graph file; `-` is the standard input.
    #[arg(value_name = "FILE")]
    path: PathBuf,
}

impl File {
    /// What messages call it.
    pub(super) fn name(&self) -> String {
        match self.path.to_str() {
            Some("-") => "<stdin>".to_owned(),
            _ => self.path.display().to_string(),
        }
    }

    fn text(&self, input: &mut dyn Read) -> io::Result<String> {
        if self.path == Path::new("-") {
            let mut text = String::new();
            input.read_to_string(&mut text)?;
            Ok(text)
        } else {
            std::fs::read_to_string(&self.path)
        }
    }

    /// The description in it. `None` if there is none, which has been said then.
    pub(super) fn read(&self, streams: &mut Streams<'_>) -> io::Result<Option<GraphSpec>> {
        let text = match self.text(streams.input) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("the file cannot be read: {error}");
                self.error(streams.errors, &message)?;
                return Ok(None);
            }
        };
        match GraphSpec::from_json_str(&text) {
            Ok((graph, warnings)) => {
                self.warn(streams.errors, &warnings)?;
                Ok(Some(graph))
            }
            Err(errors) => {
                self.warn(streams.errors, errors.warnings())?;
                for error in &errors {
                    self.error(streams.errors, error)?;
                }
                Ok(None)
            }
        }
    }

    /// Its plan. `None` if there is none, which has been said then.
    pub(super) fn plan(
        &self,
        registry: &Registry,
        streams: &mut Streams<'_>,
    ) -> io::Result<Option<Plan>> {
        let Some(graph) = self.read(streams)? else {
            return Ok(None);
        };
        match Compiler::new(registry).plan(&graph) {
            Ok(plan) => Ok(Some(plan)),
            Err(errors) => {
                for error in errors.iter() {
                    self.error(streams.errors, error)?;
                }
                Ok(None)
            }
        }
    }

    fn warn(&self, errors: &mut dyn Write, warnings: &[GraphWarning]) -> io::Result<()> {
        for warning in warnings {
            say(errors, &self.name(), "warning", warning)?;
        }
        Ok(())
    }

    fn error(&self, errors: &mut dyn Write, error: &dyn std::fmt::Display) -> io::Result<()> {
        say(errors, &self.name(), "error", error)
    }
}

/// The last part of a path, for a command's name.
pub(super) fn base_name(path: &OsStr) -> String {
    let name = Path::new(path).file_stem().unwrap_or(path);
    name.to_string_lossy().into_owned()
}
