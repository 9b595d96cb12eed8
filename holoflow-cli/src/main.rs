//! The command `holoflow`, with the tasks that come with Holoflow.
//!
//! A package of its own, so that a program that uses the library `holoflow` does not build a
//! parser of command lines. The command for tasks of one's own is three such lines: see
//! `examples/own_command.rs`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use holoflow::registry::{Registry, RegistryError};

fn main() -> Result<ExitCode, RegistryError> {
    let mut registry = Registry::new();
    holoflow::cpu::register_all(&mut registry)?;
    Ok(holoflow::cli::run(registry))
}
