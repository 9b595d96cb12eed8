//! `holoflow plan FILE`: where every byte of a graph lives.

use std::io;

use holoflow_core::registry::Registry;

use super::file::File;
use super::{FAILURE, SUCCESS, Streams};

/// Prints what the compiler makes of a graph file: tensors, storages, sections, copies.
#[derive(Debug, clap::Args)]
pub(super) struct Plan {
    #[command(flatten)]
    file: File,
}

impl Plan {
    pub(super) fn run(&self, registry: &Registry, streams: &mut Streams<'_>) -> io::Result<u8> {
        let Some(plan) = self.file.plan(registry, streams)? else {
            return Ok(FAILURE);
        };
        write!(streams.output, "{plan}")?;
        Ok(SUCCESS)
    }
}
