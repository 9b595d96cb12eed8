//! What is wrong with a graph.
//!
//! Every error names its place as the description has it (`nodes.fft`, `edges[3]`), what
//! was found and what was expected. A pass reports all it finds.

use std::fmt;

use crate::device::DeviceError;
use crate::graph::{GraphError, GraphErrors};
use crate::memory::MemoryError;
use crate::storage::{ContractError, Slot};
use crate::task::{HookError, TaskKind};
use crate::tensor::MemLoc;

/// One thing that is wrong with a graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A node has no name.
    #[error("nodes[{index}]: the node has no name")]
    UnnamedNode {
        /// Index of the node.
        index: usize,
    },
    /// Two nodes have one name.
    #[error("nodes.{name}: {count} nodes have this name, every node needs one of its own")]
    DuplicateName {
        /// The name.
        name: String,
        /// Nodes that have it.
        count: usize,
    },
    /// Subgraphs cannot be put in place.
    #[error("{0}")]
    Graph(GraphError),
    /// No factory for the node's kind.
    #[error("nodes.{node}.type: {cause}")]
    UnknownKind {
        /// The node.
        node: String,
        /// What the registry says.
        cause: crate::registry::RegistryError,
    },
    /// An edge, input or output refers to a node that is not there.
    #[error("{place}: there is no node number {index}, the graph has {count}")]
    NoSuchNode {
        /// The edge, input or output.
        place: String,
        /// Index referred to.
        index: usize,
        /// Nodes there are.
        count: usize,
    },
    /// An edge, or a graph output, refers to an output that the node does not have.
    #[error("{place}: found output {output} of `{node}`, which has {count}")]
    NoSuchOutput {
        /// The edge or graph output.
        place: String,
        /// The node.
        node: String,
        /// Number of the output.
        output: usize,
        /// Outputs of the node.
        count: usize,
    },
    /// Two tensors are connected to one input.
    #[error("{place}: input {input} of `{node}` is connected already, by {first}")]
    ConnectedTwice {
        /// The edge or graph input.
        place: String,
        /// The node.
        node: String,
        /// Number of the input.
        input: usize,
        /// What connected it first.
        first: String,
    },
    /// The inputs connected are not numbered without gaps.
    #[error(
        "{place}: input {input} of `{node}` is out of bounds: {}, and input {missing} is \
         unconnected",
        numbering(*.count)
    )]
    InputGap {
        /// The edge or graph input with the largest number.
        place: String,
        /// The node.
        node: String,
        /// That number.
        input: usize,
        /// Connections to the node.
        count: usize,
        /// The first number without a connection.
        missing: usize,
    },
    /// The nodes depend on each other in a circle.
    #[error("nodes.{}: the graph has a cycle: {}", .nodes[0], circle(.nodes))]
    Cycle {
        /// The nodes, each before the one that needs it.
        nodes: Vec<String>,
    },
    /// The layout of a graph input is not known.
    #[error(
        "inputs.{input}: the layout is not known: write it as `desc`, or give it when compiling"
    )]
    NoInputLayout {
        /// The graph input.
        input: String,
    },
    /// A layout was given for a graph input that is not there.
    #[error("inputs: a layout was given for `{input}`, which the graph does not have{}", hint(.nearest))]
    UnknownInput {
        /// The name given.
        input: String,
        /// The nearest name there is.
        nearest: Option<String>,
    },
    /// The factory refused the node.
    #[error("nodes.{}: {:#}", .0.node, .0.error)]
    Infer(HookError),
    /// The factory wants another tensor than it gets.
    #[error("nodes.{node}: input {input}: found {found}, expected {expected}")]
    InputMismatch {
        /// The node.
        node: String,
        /// Number of the input.
        input: usize,
        /// What is connected.
        found: String,
        /// What the factory wants.
        expected: String,
    },
    /// Two slots own one storage, and no copy may be made.
    #[error(
        "nodes.{second}: {second_slot} owns storage that {first} owns too ({first_slot}): allow a copy \
         with `on_ownership_conflict`: `copy`, or put a copying node between"
    )]
    OwnershipConflict {
        /// The owner that keeps the storage.
        first: String,
        /// Its slot.
        first_slot: String,
        /// The other owner.
        second: String,
        /// Its slot.
        second_slot: Slot,
    },
    /// A slot owns a part of what another slot was made for, and no copy may be made.
    #[error(
        "nodes.{node}: {input} owns its storage, but {part} is a part of a larger one: allow a copy \
         with `on_ownership_conflict`: `copy`, or put a copying node between"
    )]
    OwnedPart {
        /// The owner.
        node: String,
        /// Its slot.
        input: Slot,
        /// What is connected to it.
        part: String,
    },
    /// A graph output is of a storage that somebody owns, and no copy may be made.
    #[error(
        "outputs.{output}: it is kept by the application, but {owner} owns its storage ({slot}): allow \
         a copy with `on_ownership_conflict`: `copy`, or put a copying node between"
    )]
    OutputOwned {
        /// The graph output.
        output: String,
        /// Who owns it.
        owner: String,
        /// The owner's slot.
        slot: String,
    },
    /// An async node borrows what another one owns, which must be pushed after it, but also
    /// before it. No copy may be made.
    #[error(
        "nodes.{node}: {input} borrows storage that `{owner}` owns, and no order of pushing serves both: \
         allow a copy with `on_ownership_conflict`: `copy`, or put a copying node between"
    )]
    BorrowConflict {
        /// The node that borrows.
        node: String,
        /// Its input.
        input: Slot,
        /// The node that owns the storage; it may be the same.
        owner: String,
    },
    /// A copy is needed in memory that no registered factory can copy in.
    #[error(
        "{place} needs a copy in {location}: register a kind `Copy` for device memory that takes no \
         settings and keeps the layout"
    )]
    NoDeviceCopy {
        /// The input or graph output that needs it.
        place: String,
        /// The memory.
        location: MemLoc,
    },
    /// A node would overwrite or consume what others still read, and no copy may be made.
    #[error(
        "nodes.{node}: it {ends} {input}, which {reader} still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    )]
    OverwriteConflict {
        /// The node.
        node: String,
        /// `overwrites` or `consumes`.
        ends: &'static str,
        /// Its input.
        input: Slot,
        /// Who still reads.
        reader: String,
    },
    /// Nobody pops from an async node that has outputs.
    #[error("nodes.{node}: no output is connected, so nobody pops from the async node")]
    NeverPopped {
        /// The node.
        node: String,
    },
    /// A section would have to wait for itself.
    #[error("{}", section_circle(.nodes))]
    SectionCycle {
        /// The async nodes on the way round, each before the one that it leads to.
        nodes: Vec<String>,
    },
    /// A section would need streams of two devices.
    #[error(
        "nodes.{node}: found {found}, but the section's device is {expected} (`{other}`): put an async node between"
    )]
    MixedDevices {
        /// A node on the second device.
        node: String,
        /// That device.
        found: MemLoc,
        /// The first device.
        expected: MemLoc,
        /// A node on it.
        other: String,
    },
    /// An async node cannot hold what it needs before its first output.
    #[error(
        "nodes.{node}: input {input}: {needed} frames are needed for the first output, and it holds {available}"
    )]
    WindowTooLarge {
        /// The node.
        node: String,
        /// Number of the input.
        input: usize,
        /// Frames needed.
        needed: usize,
        /// Frames it can hold.
        available: usize,
    },
    /// Branches that meet again do not hold enough frames for each other.
    #[error(
        "nodes.{join}: the branches from `{split}` that meet here are uneven: `{slow}` needs {needed} \
         frames before its first output, and `{queue}` on another branch holds {available}"
    )]
    UnevenBranches {
        /// Where the branches part.
        split: String,
        /// Where they meet.
        join: String,
        /// The async node that needs most.
        slow: String,
        /// Frames needed.
        needed: usize,
        /// The async node that holds least.
        queue: String,
        /// Frames that its branch holds.
        available: usize,
    },
    /// Branches that meet again deliver frames at different rates.
    #[error(
        "nodes.{join}: the branches that meet here deliver at different rates: `{slow}` one frame for \
         {slow_frames} of the source, `{fast}` one for {fast_frames}: no queue is deep enough"
    )]
    UnevenRates {
        /// Where the branches meet.
        join: String,
        /// The async node at the end of the slower branch.
        slow: String,
        /// Source frames for each of its frames.
        slow_frames: String,
        /// The async node at the end of the faster branch.
        fast: String,
        /// Source frames for each of its frames.
        fast_frames: String,
    },
    /// A branch that may skip meets one that does not.
    #[error(
        "nodes.{join}: a frame that `{skipping}` skips never arrives here, while {other} does: let both \
         inputs depend on it, or join elsewhere"
    )]
    SkipMeetsNoSkip {
        /// Where the branches meet.
        join: String,
        /// The node that may skip.
        skipping: String,
        /// The input that does not depend on it.
        other: Slot,
    },
    /// An option has a value that is none.
    #[error("options.{option}: found {found}, expected {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// No backend for the device of a section.
    #[error("nodes.{node}: there is no backend for {device}: add one with `Compiler::device`")]
    NoBackend {
        /// A node on the device.
        node: String,
        /// The device.
        device: MemLoc,
    },
    /// The backend has no stream.
    #[error("nodes.{node}: no stream could be made: {cause}")]
    Stream {
        /// A node of the section.
        node: String,
        /// What the backend says.
        cause: DeviceError,
    },
    /// Memory could not be had.
    #[error("nodes.{node}: output {output}: {cause}")]
    Memory {
        /// The node whose output it is.
        node: String,
        /// Number of the output.
        output: usize,
        /// What the provider says.
        cause: MemoryError,
    },
    /// The factory could not create or update the task.
    #[error("nodes.{}: {}: {:#}", .0.node, .0.hook, .0.error)]
    Create(HookError),
    /// The compiler's own work does not hold together.
    #[error("nodes.{node}: the compiled plan is wrong, which is a bug: {cause}")]
    Bug {
        /// The node.
        node: String,
        /// What does not hold.
        cause: ContractError,
    },
    /// The kind inferred differs from the one the factory is registered with.
    #[error(
        "nodes.{node}: kind `{kind}` is registered as {registered:?}, but its factory inferred {inferred:?}"
    )]
    KindMismatch {
        /// The node.
        node: String,
        /// Its kind.
        kind: String,
        /// As registered.
        registered: TaskKind,
        /// As inferred.
        inferred: TaskKind,
    },
}

/// How so many connections must be numbered.
fn numbering(count: usize) -> String {
    match count {
        0 | 1 => "the only connection must be number 0".to_owned(),
        _ => format!("{count} connections must be numbered 0 to {}", count - 1),
    }
}

fn circle(nodes: &[String]) -> String {
    let mut text = String::new();
    for node in nodes.iter().chain(nodes.first()) {
        if !text.is_empty() {
            text.push_str(" -> ");
        }
        text.push_str(&format!("`{node}`"));
    }
    text
}

fn section_circle(nodes: &[String]) -> String {
    match nodes {
        [node] => format!(
            "nodes.{node}: the section that pushes into `{node}` also pops from it: a path around it \
             joins both sides; put an async node on that path"
        ),
        nodes => format!(
            "nodes.{}: sections wait for each other in a circle: {}; each async node must lead on to a \
             section that none of them comes from",
            nodes[0],
            circle(nodes)
        ),
    }
}

fn hint(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

/// All that a pass of the compiler found wrong. Never empty.
pub struct CompileErrors(Vec<CompileError>);

impl CompileErrors {
    /// The errors, if there are any.
    pub(crate) fn check(errors: Vec<CompileError>) -> Result<(), Self> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Self(errors))
        }
    }

    /// The errors, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &CompileError> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<GraphErrors> for CompileErrors {
    fn from(errors: GraphErrors) -> Self {
        Self(errors.into_iter().map(CompileError::Graph).collect())
    }
}

impl From<CompileError> for CompileErrors {
    fn from(error: CompileError) -> Self {
        Self(vec![error])
    }
}

/// One error a line.
impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let newline = if index > 0 { "\n" } else { "" };
            write!(f, "{newline}{error}")?;
        }
        Ok(())
    }
}

/// As it is displayed, so that an `unwrap` can be read.
impl fmt::Debug for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CompileErrors {}
