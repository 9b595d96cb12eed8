//! `holoflow tasks`: the kinds of task that graphs can be made of, and their settings.

use std::io::{self, Write};

use holoflow_core::registry::{Registry, TaskFactory};
use holoflow_core::task::{Placement, TaskKind};
use serde_json::{Value, json};

use super::settings::{rows, type_of};
use super::{FAILURE, SUCCESS, Streams, one_line};

/// Lists the kinds of task, or prints the settings of one.
#[derive(Debug, clap::Args)]
pub(super) struct Tasks {
    /// The kind of task; all of them if there is none.
    kind: Option<String>,
    /// Print JSON, with the settings of each kind as JSON Schema.
    #[arg(long)]
    json: bool,
}

type Listed<'r> = (&'r str, Placement, &'r TaskFactory);

impl Tasks {
    pub(super) fn run(&self, registry: &Registry, streams: &mut Streams<'_>) -> io::Result<u8> {
        if let Some(kind) = &self.kind
            && let Err(error) = registry.get(kind, None)
        {
            let line = format!("error: {error}");
            writeln!(streams.errors, "{}", one_line(&line))?;
            return Ok(FAILURE);
        }
        let asked = |kind: &str| self.kind.as_deref().is_none_or(|asked| asked == kind);
        let found: Vec<_> = registry
            .factories()
            .filter(|found| asked(found.0))
            .collect();
        if self.json {
            let found: Value = found.into_iter().map(as_json).collect();
            writeln!(streams.output, "{found:#}")?;
        } else if self.kind.is_some() {
            for (number, found) in found.into_iter().enumerate() {
                if number > 0 {
                    writeln!(streams.output)?;
                }
                describe(found, streams.output)?;
            }
        } else {
            let lines = found.into_iter().map(|(kind, placement, factory)| {
                let help = one_line(&factory.describe().help);
                [
                    one_line(kind),
                    sort(factory).to_owned(),
                    memory(placement).to_owned(),
                    help,
                ]
            });
            table(["KIND", "TASK", "MEMORY", "HELP"], lines, streams.output)?;
        }
        Ok(SUCCESS)
    }
}

fn as_json((kind, placement, factory): Listed<'_>) -> Value {
    let info = factory.describe();
    json!({
        "kind": kind,
        "task": sort(factory),
        "memory": memory(placement),
        "help": info.help,
        "settings": info.settings,
    })
}

fn describe((kind, placement, factory): Listed<'_>, output: &mut dyn Write) -> io::Result<()> {
    let info = factory.describe();
    let (kind, sort, memory) = (one_line(kind), sort(factory), memory(placement));
    writeln!(output, "{kind}: {sort} task in {memory} memory")?;
    writeln!(output, "{}\n", one_line(&info.help))?;
    let rows = rows(&info.settings);
    if rows.is_empty() {
        return match type_of(&info.settings).as_str() {
            "object" => writeln!(output, "It takes no settings."),
            ty => writeln!(output, "Settings: {}", one_line(ty)),
        };
    }
    let lines = rows
        .iter()
        .map(|row| [&row.name, &row.ty, &row.default, &row.description].map(|text| one_line(text)));
    table(["SETTING", "TYPE", "DEFAULT", "DESCRIPTION"], lines, output)
}

fn sort(factory: &TaskFactory) -> &'static str {
    match factory.kind() {
        TaskKind::Sync => "sync",
        TaskKind::Async => "async",
    }
}

fn memory(placement: Placement) -> &'static str {
    match placement {
        Placement::Host => "host",
        Placement::Device => "device",
    }
}

/// Writes columns side by side.
fn table(
    head: [&str; 4],
    lines: impl Iterator<Item = [String; 4]>,
    output: &mut dyn Write,
) -> io::Result<()> {
    let mut lines: Vec<_> = lines.collect();
    lines.insert(0, head.map(str::to_owned));
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let [first, second, third] = [0, 1, 2].map(width);
    for [a, b, c, last] in &lines {
        let line = format!("{a:first$}  {b:second$}  {c:third$}  {last}");
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}
