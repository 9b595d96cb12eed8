//! The command `holoflow` for tasks of one's own.
//!
//! `main` registers the tasks that come with Holoflow and two of this file, a source and a
//! sink, and leaves the rest to `holoflow::cli::run`. So all of this works, without arguments
//! too:
//!
//! ```text
//! cargo run --example own_command
//! cargo run --example own_command -- tasks
//! cargo run --example own_command -- tasks Ramp
//! cargo run --example own_command -- check my_graph.json
//! ```

#![forbid(unsafe_code)]

use std::process::ExitCode;

use holoflow::prelude::*;
use holoflow::registry::{Registry, RegistryError};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RampSettings {
    /// Elements of a frame.
    #[schemars(range(min = 1))]
    length: usize,
    /// Frames before the end; without end unless given.
    #[serde(default)]
    frames: Option<u64>,
}

struct Ramp {
    next: u64,
    frames: Option<u64>,
}

impl ISyncTask for Ramp {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        if self.frames.is_some_and(|frames| self.next >= frames) {
            return Ok(OpResult::Eof);
        }
        ctx.outputs.get_mut::<f32>(0)?.fill(self.next as f32);
        self.next += 1;
        Ok(OpResult::Ok)
    }
}

struct RampFactory;

impl ISyncTaskFactory for RampFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Makes frames of rising numbers.").with_settings::<RampSettings>()
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [] = request.exactly::<0>()?;
        let length = request.settings::<RampSettings>()?.length;
        if length == 0 {
            return Err(TaskError::settings("length", length, "at least 1"));
        }
        let frame = TDesc::host::<f32>([length]).map_err(|error| {
            TaskError::settings(
                "length",
                length,
                format!("a length that is possible: {error}"),
            )
        })?;
        Ok(InferResult::sync([], [frame]))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        let frames = request.settings::<RampSettings>()?.frames;
        Ok(Box::new(Ramp { next: 0, frames }))
    }
}

struct Print;

impl ISyncTask for Print {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        println!("{:?}", ctx.inputs.get::<f32>(0)?);
        Ok(OpResult::Ok)
    }
}

struct PrintFactory;

impl ISyncTaskFactory for PrintFactory {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Prints each frame.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [frame] = request.exactly::<1>()?;
        if *frame != TDesc::host::<f32>(frame.shape())? {
            let expected = "a contiguous F32 tensor in host memory";
            return Err(TaskError::input(0, frame, expected));
        }
        Ok(InferResult::sync([frame.clone()], []))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new(Print))
    }
}

fn registry() -> Result<Registry, RegistryError> {
    let mut registry = Registry::new();
    holoflow::cpu::register_all(&mut registry)?;
    registry.register_sync("Ramp", RampFactory)?;
    registry.register_sync("Print", PrintFactory)?;
    Ok(registry)
}

fn main() -> Result<ExitCode, RegistryError> {
    Ok(holoflow::cli::run(registry()?))
}

#[cfg(test)]
mod tests {
    use holoflow::cli::{Streams, execute};
    use holoflow::testkit::TaskHarness;
    use serde_json::json;

    use super::*;

    const GRAPH: &str = r#"{
        "nodes": {
            "ramp":  { "type": "Ramp", "params": { "length": 4 } },
            "limit": { "type": "OwnedRateLimiter", "params": { "max_fps": 10 } },
            "print": { "type": "Print" }
        },
        "edges": [
            { "from": "ramp", "to": "limit", "out": 0, "in": 0 },
            { "from": "limit", "to": "print", "out": 0, "in": 0 }
        ]
    }"#;

    /// Exit status, output and errors of the command.
    fn command(arguments: &[&str], input: &str) -> (u8, String, String) {
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut streams = Streams {
            input: &mut input.as_bytes(),
            output: &mut output,
            errors: &mut errors,
        };
        let arguments = ["own_command"].iter().chain(arguments);
        let status = execute(&registry().unwrap(), arguments, &mut streams);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status, text(output), text(errors))
    }

    #[test]
    fn the_command_knows_both_tasks() {
        let (status, output, _) = command(&["tasks"], "");
        assert_eq!(status, 0);
        let mut lines = output.lines();
        assert!(lines.any(|line| line.starts_with("Print ") && line.contains(" sync ")));
        assert!(lines.any(|line| line.starts_with("Ramp ") && line.contains(" sync ")));
        let (status, output, _) = command(&["tasks", "Ramp"], "");
        assert_eq!(status, 0);
        assert_eq!(
            output,
            "Ramp: sync task in host memory\n\
             Makes frames of rising numbers.\n\
             \n\
             SETTING  TYPE                   DEFAULT   DESCRIPTION\n\
             frames   integer from 0 | null  null      Frames before the end; without end unless \
             given.\n\
             length   integer from 1         required  Elements of a frame.\n"
        );
        let (status, output, errors) = command(&["check", "-"], GRAPH);
        assert_eq!((status, &*errors), (0, ""));
        assert_eq!(output, "<stdin>: ok, 3 nodes in 2 sections\n");
    }

    #[test]
    fn what_is_wrong_is_said_by_the_factories() {
        let wrong = GRAPH.replace("\"length\": 4", "\"length\": 0");
        let (status, _, errors) = command(&["check", "-"], &wrong);
        assert_eq!(status, 1);
        assert_eq!(
            errors,
            "<stdin>: error: nodes.ramp: setting `length`: found 0, expected at least 1\n"
        );
    }

    #[test]
    fn a_ramp_rises_and_ends() {
        let settings = json!({ "length": 2, "frames": 2 });
        let mut ramp = TaskHarness::sync(&RampFactory, settings, []).unwrap();
        let section = ramp.producer();
        for expected in [[0.0_f32; 2], [1.0; 2]] {
            assert_eq!(section.execute().unwrap(), OpResult::Ok);
            assert_eq!(section.output::<f32>(0).unwrap(), expected);
        }
        assert_eq!(section.execute().unwrap(), OpResult::Eof);
    }

    #[test]
    fn only_numbers_are_printed() {
        let frame = TDesc::host::<u8>([2]).unwrap();
        let error = TaskHarness::sync(&PrintFactory, json!({}), [frame]).unwrap_err();
        assert!(format!("{error:#}").contains("expected a contiguous F32 tensor"));
    }
}
