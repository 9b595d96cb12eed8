//! What makes tasks, and what it says of itself.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{IAsyncTask, ISyncTask, InferResult, TaskError, TaskErrorKind, TaskResult};
use crate::device::Stream;
use crate::memory::Memory;
use crate::storage::{
    ConsumerCell, ProducerCell, Region, RegionSlot, RingLayout, Sides, SlotRing, TaskBuffer,
};
use crate::sync::Arc;
use crate::tensor::{MemLoc, TDesc};

/// Which memory the tensors of a factory's tasks lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a node is a host node or a device node"
)]
pub enum Placement {
    /// Host memory.
    Host,
    /// Device memory.
    Device,
}

/// What a factory says of its kind of task.
///
/// ```
/// use holoflow_core::task::TaskInfo;
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Settings {
///     /// Factor that every element is multiplied by.
///     #[serde(default = "one")]
///     factor: f32,
/// }
/// fn one() -> f32 { 1.0 }
///
/// let info = TaskInfo::new("Multiplies every element by a factor.").with_settings::<Settings>();
/// let factor = &info.settings["properties"]["factor"];
/// assert_eq!(factor["default"], 1.0);
/// assert_eq!(factor["description"], "Factor that every element is multiplied by.");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// One line of help.
    pub help: String,
    /// The settings, with types and defaults, as JSON Schema.
    pub settings: Value,
    /// Which memory the tensors lie in.
    pub placement: Placement,
}

impl TaskInfo {
    /// A task on the host without settings.
    #[must_use]
    pub fn new(help: impl Into<String>) -> Self {
        Self {
            help: help.into(),
            settings: serde_json::json!({ "type": "object", "properties": {} }),
            placement: Placement::Host,
        }
    }

    /// Takes the settings' schema from the type they are read into.
    #[must_use]
    pub fn with_settings<S: JsonSchema>(mut self) -> Self {
        self.settings = schemars::schema_for!(S).to_value();
        self
    }

    /// For tensors in device memory.
    #[must_use]
    pub fn on_device(mut self) -> Self {
        self.placement = Placement::Device;
        self
    }
}

/// What a node asks of its factory: settings and input layouts.
#[derive(Debug, Clone, Copy)]
pub struct TaskRequest<'a> {
    node: &'a str,
    settings: &'a Value,
    inputs: &'a [TDesc],
}

impl<'a> TaskRequest<'a> {
    /// A request for the node named `node`.
    #[must_use]
    pub fn new(node: &'a str, settings: &'a Value, inputs: &'a [TDesc]) -> Self {
        Self {
            node,
            settings,
            inputs,
        }
    }

    /// Name of the node.
    #[must_use]
    pub fn node(&self) -> &'a str {
        self.node
    }

    /// The settings as given.
    #[must_use]
    pub fn raw_settings(&self) -> &'a Value {
        self.settings
    }

    /// The settings read into `S`. Absent settings count as an empty object.
    ///
    /// # Errors
    /// A settings error that names the field, what was found and what was expected.
    pub fn settings<S: DeserializeOwned>(&self) -> TaskResult<S> {
        let empty = Value::Object(serde_json::Map::new());
        let value = if self.settings.is_null() {
            &empty
        } else {
            self.settings
        };
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            unreadable(
                value,
                if path == "." { "" } else { &path },
                &error.inner().to_string(),
            )
        })
    }

    /// Layouts of the inputs.
    #[must_use]
    pub fn inputs(&self) -> &'a [TDesc] {
        self.inputs
    }

    /// Layout of input `index`.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn input(&self, index: usize) -> TaskResult<&'a TDesc> {
        self.inputs.get(index).ok_or_else(|| {
            let expected = format!("at least {}", index.saturating_add(1));
            TaskErrorKind::InputCount {
                found: self.inputs.len(),
                expected,
            }
            .into()
        })
    }

    /// Layouts of the inputs, of which there must be exactly `N`.
    ///
    /// # Errors
    /// If there are more or fewer.
    pub fn exactly<const N: usize>(&self) -> TaskResult<&'a [TDesc; N]> {
        self.inputs.try_into().map_err(|_| {
            let expected = N.to_string();
            TaskErrorKind::InputCount {
                found: self.inputs.len(),
                expected,
            }
            .into()
        })
    }
}

/// The settings error for what the deserializer says of `path`, in the words of the other
/// settings errors. A message of a form not known here is passed on as it is.
fn unreadable(settings: &Value, path: &str, message: &str) -> TaskError {
    let quoted = message.split('`').nth(1);
    if let Some(name) = message.strip_prefix("missing field ").and(quoted) {
        return TaskError::settings(child(path, name), "nothing", "a value: it has no default");
    }
    let (problem, expected) = match message.split_once(", expected ") {
        Some((problem, expected)) => (problem, expected.to_owned()),
        None => (message, message.to_owned()),
    };
    if let Some(name) = problem.strip_prefix("unknown field ").and(quoted) {
        let near = crate::text::nearest(name, expected.split('`').skip(1).step_by(2));
        let near = near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
        // Some formats put the field in the path as well.
        let field = if path.rsplit('.').next() == Some(name) {
            path.to_owned()
        } else {
            child(path, name)
        };
        let known = expected
            .strip_prefix("one of ")
            .unwrap_or(&expected)
            .to_owned();
        let expected = format!("a setting of this task, which has {known}{near}");
        return TaskError::settings(&field, found_at(settings, &field), expected);
    }
    let field = if path.is_empty() { "settings" } else { path };
    TaskError::settings(field, found_at(settings, path), in_words(expected))
}

/// What a deserializer calls by the name of a Rust type, in the words of a settings file.
fn in_words(expected: String) -> String {
    let (above_zero, ty) = match expected.strip_prefix("a nonzero ") {
        Some(ty) => (true, ty),
        None => (false, expected.as_str()),
    };
    let whole = |from: &str, to: String| format!("a whole number from {from} to {to}");
    match ty {
        "f32" | "f64" => "a number".to_owned(),
        "u8" => whole("0", u8::MAX.to_string()),
        "u16" => whole("0", u16::MAX.to_string()),
        "u32" if !above_zero => whole("0", u32::MAX.to_string()),
        "i8" => whole("-128", i8::MAX.to_string()),
        "i16" => whole("-32768", i16::MAX.to_string()),
        "i32" => whole("-2147483648", i32::MAX.to_string()),
        "u32" | "u64" | "usize" if above_zero => "a whole number above 0".to_owned(),
        "u64" | "usize" => "a whole number, 0 or above".to_owned(),
        "i64" | "isize" => "a whole number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        _ if ty.starts_with("struct ") => "an object".to_owned(),
        _ => expected,
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// What stands at `path` in `value`, shortened for a message.
fn found_at(value: &Value, path: &str) -> String {
    let found = path
        .split('.')
        .filter(|key| !key.is_empty())
        .try_fold(value, |value, key| {
            let (name, index) = key.split_once('[').unwrap_or((key, ""));
            let value = if name.is_empty() {
                value
            } else {
                value.get(name)?
            };
            match index.trim_end_matches(']') {
                "" => Some(value),
                index => value.get(index.parse::<usize>().ok()?),
            }
        });
    match found {
        Some(found) => {
            let text = found.to_string();
            match text.char_indices().nth(60) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
        None => "nothing".to_owned(),
    }
}

/// What a factory has at hand to create or update a task.
#[derive(Debug)]
pub struct CreateCtx<'a> {
    node: &'a str,
    memory: &'a Memory,
    sides: &'a Sides,
    producer_stream: Option<&'a Arc<dyn Stream>>,
    consumer_stream: Option<&'a Arc<dyn Stream>>,
}

impl<'a> CreateCtx<'a> {
    pub(crate) fn new(
        node: &'a str,
        memory: &'a Memory,
        sides: &'a Sides,
        producer_stream: Option<&'a Arc<dyn Stream>>,
        consumer_stream: Option<&'a Arc<dyn Stream>>,
    ) -> Self {
        Self {
            node,
            memory,
            sides,
            producer_stream,
            consumer_stream,
        }
    }

    /// Name of the node.
    #[must_use]
    pub fn node(&self) -> &'a str {
        self.node
    }

    /// Stream of the section that a sync task is in; for an async task as
    /// [`producer_stream`](Self::producer_stream). `None` in a section without device nodes.
    #[must_use]
    pub fn stream(&self) -> Option<&'a Arc<dyn Stream>> {
        self.producer_stream
    }

    /// Stream of the section that pushes into an async task.
    #[must_use]
    pub fn producer_stream(&self) -> Option<&'a Arc<dyn Stream>> {
        self.producer_stream
    }

    /// Stream of the section that pops from an async task.
    #[must_use]
    pub fn consumer_stream(&self) -> Option<&'a Arc<dyn Stream>> {
        self.consumer_stream
    }

    /// A zeroed buffer of the task's own.
    ///
    /// # Errors
    /// If the memory cannot be had.
    pub fn buffer(&mut self, location: MemLoc, bytes: usize) -> TaskResult<TaskBuffer> {
        Ok(TaskBuffer::allocate(self.memory, location, bytes)?)
    }

    /// A zeroed region of the task's own for one tensor of layout `desc`.
    ///
    /// # Errors
    /// If the memory cannot be had.
    pub fn region_for(&mut self, desc: &TDesc) -> TaskResult<Region> {
        Ok(self.buffer(desc.location(), desc.end())?.into_region())
    }

    /// One region of the task's own for a tensor of layout `desc`, to be passed from the push
    /// side to the pop side.
    ///
    /// # Errors
    /// If the memory cannot be had.
    pub fn region_slot(&mut self, desc: &TDesc) -> TaskResult<RegionSlot> {
        let region = self.region_for(desc)?;
        Ok(RegionSlot::new(self.sides, region)?)
    }

    /// A ring of the task's own in the memory at `location`.
    ///
    /// # Errors
    /// If the layout is not a ring, or the memory cannot be had.
    pub fn slot_ring(&mut self, location: MemLoc, layout: RingLayout) -> TaskResult<SlotRing> {
        let bytes = layout.bytes().unwrap_or(usize::MAX);
        let region = self.buffer(location, bytes)?.into_region();
        Ok(SlotRing::new(self.sides, layout, region)?)
    }

    /// The node's sides, to make rings and slots for.
    #[must_use]
    pub fn sides(&self) -> &'a Sides {
        self.sides
    }

    /// A value that only the push side reaches.
    #[must_use]
    pub fn producer_cell<T>(&self, value: T) -> ProducerCell<T> {
        ProducerCell::new(self.sides, value)
    }

    /// A value that only the pop side reaches.
    #[must_use]
    pub fn consumer_cell<T>(&self, value: T) -> ConsumerCell<T> {
        ConsumerCell::new(self.sides, value)
    }
}

/// Makes sync tasks of one kind.
pub trait ISyncTaskFactory: Send + Sync {
    /// What the task is and which settings it takes.
    fn describe(&self) -> TaskInfo;

    /// Checks settings and inputs, and says what the task makes of them.
    ///
    /// # Errors
    /// If the settings or inputs are not ones the task can work with.
    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult>;

    /// Makes a task; `infer` accepted the same request.
    ///
    /// # Errors
    /// If the task's resources cannot be had.
    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>>;

    /// Makes a task that takes over what it can of `old`, the task of the node with the same
    /// name and kind before a recompilation; `old.take::<MyTask>()` gives it as what it is. The
    /// default makes a new one.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn update(
        &self,
        old: Box<dyn ISyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        drop(old);
        self.create(request, ctx)
    }
}

/// Makes async tasks of one kind.
pub trait IAsyncTaskFactory: Send + Sync {
    /// What the task is and which settings it takes.
    fn describe(&self) -> TaskInfo;

    /// Checks settings and inputs, and says what the task makes of them.
    ///
    /// # Errors
    /// If the settings or inputs are not ones the task can work with.
    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult>;

    /// Makes a task; `infer` accepted the same request.
    ///
    /// # Errors
    /// If the task's resources cannot be had.
    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>>;

    /// Makes a task that takes over what it can of `old`, the task of the node with the same
    /// name and kind before a recompilation; `old.take::<MyTask>()` gives it as what it is.
    /// Rings and cells taken over must be rebound to [`CreateCtx::sides`]. The default makes a
    /// new task.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn update(
        &self,
        old: Arc<dyn IAsyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        drop(old);
        self.create(request, ctx)
    }
}

impl fmt::Debug for dyn ISyncTaskFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ISyncTaskFactory({:?})", self.describe().help)
    }
}

impl fmt::Debug for dyn IAsyncTaskFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IAsyncTaskFactory({:?})", self.describe().help)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "read by the deserializer only")]
    struct Settings {
        rate: f64,
        #[serde(default)]
        rois: Vec<Roi>,
        #[serde(default)]
        mode: Mode,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "read by the deserializer only")]
    struct Roi {
        width: u32,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        #[default]
        Fast,
        Exact,
    }

    fn message(settings: Value) -> String {
        let error = TaskRequest::new("node", &settings, &[])
            .settings::<Settings>()
            .unwrap_err();
        error.to_string()
    }

    #[test]
    fn settings_errors_name_path_found_and_expected() {
        for (settings, expected) in [
            (
                json!({}),
                "setting `rate`: found nothing, expected a value: it has no default",
            ),
            (
                Value::Null,
                "setting `rate`: found nothing, expected a value: it has no default",
            ),
            (
                json!({ "rate": "x" }),
                "setting `rate`: found \"x\", expected a number",
            ),
            (
                json!({ "rate": null }),
                "setting `rate`: found null, expected a number",
            ),
            (
                json!({ "rate": 1, "rois": [{ "width": 1 }, { "width": -3 }] }),
                "setting `rois[1].width`: found -3, expected a whole number from 0 to 4294967295",
            ),
            (
                json!({ "rate": 1, "rois": [{}] }),
                "setting `rois[0].width`: found nothing, expected a value: it has no default",
            ),
            (
                json!({ "rate": 1, "mode": "exat" }),
                "setting `mode`: found \"exat\", expected `fast` or `exact`",
            ),
            (
                json!({ "rate": 1, "mod": "exact" }),
                "setting `mod`: found \"exact\", expected a setting of this \
                 task, which has `rate`, `rois`, `mode`, did you mean `mode`?",
            ),
            (
                json!(42),
                "setting `settings`: found 42, expected an object",
            ),
        ] {
            assert_eq!(message(settings), expected);
        }
    }

    #[test]
    fn what_was_found_is_cut_when_it_is_long() {
        let text = message(json!({ "rate": "x".repeat(500) }));
        assert!(text.len() < 120, "{text}");
        assert!(text.contains('…'), "{text}");
    }

    #[test]
    fn inputs_are_counted() {
        let none = TaskRequest::new("node", &Value::Null, &[]);
        assert_eq!(
            none.input(0).unwrap_err().to_string(),
            "found 0 inputs, expected at least 1"
        );
        assert_eq!(
            none.exactly::<2>().unwrap_err().to_string(),
            "found 0 inputs, expected 2"
        );
    }
}
