//! `holoflow check FILE`: whether a graph file is right, and all that is wrong or odd.

use std::io;

use holoflow_core::registry::Registry;

use super::file::File;
use super::{FAILURE, SUCCESS, Streams};

/// Says what is wrong with a graph file; exit status 1 if anything is.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    #[command(flatten)]
    file: File,
}

impl Check {
    pub(super) fn run(&self, registry: &Registry, streams: &mut Streams<'_>) -> io::Result<u8> {
        let Some(plan) = self.file.plan(registry, streams)? else {
            return Ok(FAILURE);
        };
        let name = super::one_line(&self.file.name());
        let written = plan.nodes.iter().filter(|node| node.inserted.is_none());
        let nodes = counted(written.count(), "node");
        let sections = counted(plan.sections.len(), "section");
        writeln!(streams.output, "{name}: ok, {nodes} in {sections}")?;
        Ok(SUCCESS)
    }
}

fn counted(count: usize, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}
