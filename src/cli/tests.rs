//! What the subcommands share: arguments, streams, statuses; and kinds that those of a real
//! registry do not show.

use std::io::{self, Write};

use holoflow_core::task::{
    CreateCtx, ISyncTask, ISyncTaskFactory, InferResult, TaskInfo, TaskRequest, TaskResult,
};
use serde_json::{Value, json};

use super::*;

/// A kind that says of itself what it is told to.
struct Described(TaskInfo);

impl ISyncTaskFactory for Described {
    fn describe(&self) -> TaskInfo {
        self.0.clone()
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(InferResult::sync([], []))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        unreachable!("nothing is run")
    }
}

/// The settings of a kind, as JSON Schema.
fn described(settings: Value) -> Described {
    let mut info = TaskInfo::new("Does\nnothing.");
    info.settings = settings;
    Described(info)
}

fn command(registry: &Registry, arguments: &[&str], input: &str) -> (u8, String, String) {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut streams = Streams {
        input: &mut input.as_bytes(),
        output: &mut output,
        errors: &mut errors,
    };
    let status = execute(registry, arguments, &mut streams);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status, text(output), text(errors))
}

/// Fails in one way.
struct Broken(io::ErrorKind);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn cm1_help_that_was_asked_for_is_output_and_other_help_is_an_error() {
    let registry = Registry::new();
    for arguments in [&["x/tool"][..], &["x/tool", "-h"], &["x/tool", "--help"]] {
        let (status, output, errors) = command(&registry, arguments, "");
        assert_eq!((status, &*errors), (0, ""));
        assert!(output.contains("Usage: tool <COMMAND>"), "{output}");
        assert!(output.contains("check"), "{output}");
    }
    let (status, output, _) = command(&registry, &["tool", "--version"], "");
    assert_eq!(status, 0);
    assert_eq!(
        output,
        concat!("holoflow ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let (status, output, errors) = command(&registry, &["tool", "check"], "");
    assert_eq!((status, &*output), (2, ""));
    assert!(errors.contains("<FILE>"), "{errors}");
    // Not even a name.
    assert_eq!(command(&registry, &[], "").0, 0);
}

#[test]
fn cm2_a_message_is_one_line_whatever_is_in_the_file() {
    let graph = r#"{ "nodes": { "a\nb": { "type": "\u001b[31mred\nX" } } }"#;
    let (status, _, errors) = command(&Registry::new(), &["x", "check", "-"], graph);
    assert_eq!(status, 1);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(!errors.contains('\u{1b}'), "{errors}");
    assert!(errors.contains("\\u{1b}[31mred\\nX"), "{errors}");
    let (_, _, errors) = command(&Registry::new(), &["x", "check", "no\nfile"], "");
    assert!(
        errors.starts_with("no\\nfile: error: the file cannot be read: "),
        "{errors}"
    );
    let (status, _, errors) = command(&Registry::new(), &["x", "tasks", "a\nb"], "");
    assert_eq!(status, 1);
    assert_eq!(errors, "error: no task of kind `a\\nb` is registered\n");
}

#[test]
fn cm3_output_that_nobody_takes_is_a_failure_unless_the_reader_has_gone() {
    for (kind, expected) in [
        (io::ErrorKind::BrokenPipe, 0),
        (io::ErrorKind::StorageFull, 1),
    ] {
        let mut errors = Vec::new();
        let mut streams = Streams {
            input: &mut io::empty(),
            output: &mut Broken(kind),
            errors: &mut errors,
        };
        let status = execute(&Registry::new(), ["x", "schema"], &mut streams);
        assert_eq!(status, expected);
        let errors = String::from_utf8(errors).unwrap();
        match expected {
            0 => assert_eq!(errors, ""),
            _ => assert_eq!(
                errors,
                format!(
                    "error: the output cannot be written: {}\n",
                    io::Error::from(kind)
                )
            ),
        }
    }
}

#[test]
fn input_that_is_no_text_is_said_to_be_none() {
    let mut errors = Vec::new();
    let mut streams = Streams {
        input: &mut &b"\xff"[..],
        output: &mut io::sink(),
        errors: &mut errors,
    };
    assert_eq!(
        execute(&Registry::new(), ["x", "plan", "-"], &mut streams),
        1
    );
    assert_eq!(
        String::from_utf8(errors).unwrap(),
        "<stdin>: error: the file cannot be read: stream did not contain valid UTF-8\n"
    );
}

#[test]
fn a_kind_for_two_memories_is_listed_twice() {
    let mut registry = Registry::new();
    let mut device = described(json!({ "properties": { "lane": { "type": "integer" } } }));
    device.0 = device.0.on_device();
    registry.register_sync("Copy", device).unwrap();
    let host = described(json!({ "type": "object" }));
    registry.register_sync("Copy", host).unwrap();
    let text = described(json!({ "type": "string" }));
    registry.register_sync("Text", text).unwrap();

    let (_, output, _) = command(&registry, &["x", "tasks"], "");
    assert_eq!(
        output,
        "KIND  TASK  MEMORY  HELP\n\
         Copy  sync  host    Does\\nnothing.\n\
         Copy  sync  device  Does\\nnothing.\n\
         Text  sync  host    Does\\nnothing.\n"
    );
    let (_, output, _) = command(&registry, &["x", "tasks", "Copy"], "");
    assert_eq!(
        output,
        "Copy: sync task in host memory\n\
         Does\\nnothing.\n\
         \n\
         It takes no settings.\n\
         \n\
         Copy: sync task in device memory\n\
         Does\\nnothing.\n\
         \n\
         SETTING  TYPE     DEFAULT  DESCRIPTION\n\
         lane     integer  -\n"
    );
    let (_, output, _) = command(&registry, &["x", "tasks", "Text"], "");
    assert!(output.ends_with("\n\nSettings: string\n"), "{output}");
    let (_, output, _) = command(&registry, &["x", "tasks", "Copy", "--json"], "");
    let found: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(found[0]["memory"], "host");
    assert_eq!(found[1]["memory"], "device");
    assert_eq!(
        found[1]["settings"]["properties"]["lane"]["type"],
        "integer"
    );

    // The settings may be those of either.
    let (_, output, _) = command(&registry, &["x", "schema"], "");
    let schema: Value = serde_json::from_str(&output).unwrap();
    let settings = &schema["$defs"]["settings of Copy"]["anyOf"];
    assert_eq!(settings.as_array().map(Vec::len), Some(2));
}
