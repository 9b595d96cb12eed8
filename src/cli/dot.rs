//! `holoflow dot FILE`: a graph as a drawing.

use std::io;

use holoflow_core::registry::Registry;

use super::file::File;
use super::{FAILURE, SUCCESS, Streams};

/// Draws a graph file, for Graphviz: `holoflow dot x.json | dot -Tsvg > x.svg`.
#[derive(Debug, clap::Args)]
pub(super) struct Dot {
    #[command(flatten)]
    file: File,
    /// Draw what the compiler makes of it instead: sections, storages, copies.
    #[arg(long)]
    compiled: bool,
}

impl Dot {
    pub(super) fn run(&self, registry: &Registry, streams: &mut Streams<'_>) -> io::Result<u8> {
        // The graph as written can be drawn whether or not it is right.
        let drawing = if self.compiled {
            let plan = self.file.plan(registry, streams)?;
            plan.map(|plan| plan.to_dot())
        } else {
            let graph = self.file.read(streams)?;
            graph.map(|graph| graph.to_dot())
        };
        let Some(drawing) = drawing else {
            return Ok(FAILURE);
        };
        streams.output.write_all(drawing.as_bytes())?;
        Ok(SUCCESS)
    }
}
