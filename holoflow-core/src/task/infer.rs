//! What a factory says of a node before the task exists.

use crate::storage::Slot;
use crate::tensor::TDesc;

/// Whether a task is one call or has two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a task is sync or async")]
pub enum TaskKind {
    /// One blocking call; see [`ISyncTask`](super::ISyncTask).
    Sync,
    /// A push side and a pop side; see [`IAsyncTask`](super::IAsyncTask).
    Async,
}

/// How an output shares the storage of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(
    clippy::exhaustive_enums,
    reason = "storage is shared for reading or for writing"
)]
pub enum Aliasing {
    /// The output is a read-only view of any range within the input's bytes.
    View,
    /// The task writes the output where the input was.
    Overwrite,
}

/// An output that shares the storage of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "plain data, built by factories")]
pub struct InPlace {
    /// Number of the input.
    pub input: usize,
    /// Number of the output.
    pub output: usize,
    /// How they share.
    pub aliasing: Aliasing,
}

/// How frames in and out of an async task relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "plain data, built by factories")]
pub struct Flow {
    /// Frames that go in for each frame that comes out.
    pub frames_per_output: usize,
    /// Frames held back for good, such as the delay of a window.
    pub held_back: usize,
    /// Frames it can hold before it takes no more.
    pub capacity: usize,
}

impl Flow {
    /// One frame out for each frame in, with room for `capacity` frames.
    #[must_use]
    pub fn one_to_one(capacity: usize) -> Self {
        Self {
            frames_per_output: 1,
            held_back: 0,
            capacity,
        }
    }
}

/// What a factory infers from settings and inputs.
///
/// ```
/// use holoflow_core::task::InferResult;
/// use holoflow_core::tensor::{TDesc, DType, MemLoc};
///
/// let frame = TDesc::new([480, 640], DType::U8, MemLoc::Host)?;
/// let queue = InferResult::asynchronous([frame.clone()], [frame])
///     .owning_inputs()
///     .owning_outputs();
/// assert_eq!(queue.owned_inputs, [true]);
/// assert!(queue.check(1).is_ok());
/// # Ok::<(), holoflow_core::tensor::TensorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InferResult {
    /// Layout that the task wants of each input. Only the offset, and for borrowed inputs
    /// the strides, may differ from what the producer makes.
    pub input_descs: Vec<TDesc>,
    /// Layout of each output.
    pub output_descs: Vec<TDesc>,
    /// Outputs that share the storage of an input.
    pub in_place: Vec<InPlace>,
    /// For each input, whether the task publishes its storage.
    pub owned_inputs: Vec<bool>,
    /// For each output, whether the task publishes its storage.
    pub owned_outputs: Vec<bool>,
    /// For each output, whether the regions that the task publishes are shared, so that nobody may
    /// write them: who wants to gets a copy. Only an owned output can be read-only.
    pub read_only_outputs: Vec<bool>,
    /// Whether the task is sync or async.
    pub kind: TaskKind,
    /// Whether the task itself orders its reads behind the producer's stream. If not, the
    /// scheduler completes that stream before `try_push`.
    pub synchronizes_producer_stream: bool,
    /// For async tasks: how frames in and out relate; `None` if the task cannot say.
    pub flow: Option<Flow>,
    /// Whether a hook may block in foreign code, so that its section keeps a thread.
    pub blocking: bool,
    /// Whether `execute` may answer `Skip`.
    pub may_skip: bool,
}

impl InferResult {
    /// A sync task whose slots are all borrowed.
    #[must_use]
    pub fn sync(
        inputs: impl IntoIterator<Item = TDesc>,
        outputs: impl IntoIterator<Item = TDesc>,
    ) -> Self {
        Self::new(TaskKind::Sync, inputs, outputs)
    }

    /// An async task whose slots are all borrowed.
    #[must_use]
    pub fn asynchronous(
        inputs: impl IntoIterator<Item = TDesc>,
        outputs: impl IntoIterator<Item = TDesc>,
    ) -> Self {
        Self::new(TaskKind::Async, inputs, outputs)
    }

    fn new(
        kind: TaskKind,
        inputs: impl IntoIterator<Item = TDesc>,
        outputs: impl IntoIterator<Item = TDesc>,
    ) -> Self {
        let input_descs: Vec<_> = inputs.into_iter().collect();
        let output_descs: Vec<_> = outputs.into_iter().collect();
        Self {
            owned_inputs: vec![false; input_descs.len()],
            owned_outputs: vec![false; output_descs.len()],
            read_only_outputs: vec![false; output_descs.len()],
            input_descs,
            output_descs,
            in_place: Vec::new(),
            kind,
            synchronizes_producer_stream: false,
            flow: None,
            blocking: false,
            may_skip: false,
        }
    }

    /// Marks every input as owned.
    #[must_use]
    pub fn owning_inputs(mut self) -> Self {
        self.owned_inputs.fill(true);
        self
    }

    /// Marks every output as owned.
    #[must_use]
    pub fn owning_outputs(mut self) -> Self {
        self.owned_outputs.fill(true);
        self
    }

    /// Marks these outputs as owned and read-only.
    #[must_use]
    pub fn sharing_outputs(mut self, outputs: impl IntoIterator<Item = usize>) -> Self {
        for output in outputs {
            for flags in [&mut self.owned_outputs, &mut self.read_only_outputs] {
                if let Some(flag) = flags.get_mut(output) {
                    *flag = true;
                }
            }
        }
        self
    }

    /// Declares that `output` is a read-only view of `input`.
    #[must_use]
    pub fn viewing(mut self, input: usize, output: usize) -> Self {
        self.in_place.push(InPlace {
            input,
            output,
            aliasing: Aliasing::View,
        });
        self
    }

    /// Declares that the task writes `output` where `input` was.
    #[must_use]
    pub fn overwriting(mut self, input: usize, output: usize) -> Self {
        self.in_place.push(InPlace {
            input,
            output,
            aliasing: Aliasing::Overwrite,
        });
        self
    }

    /// Declares how frames in and out relate.
    #[must_use]
    pub fn with_flow(mut self, flow: Flow) -> Self {
        self.flow = Some(flow);
        self
    }

    /// Declares that `execute` may answer `Skip`.
    #[must_use]
    pub fn skipping(mut self) -> Self {
        self.may_skip = true;
        self
    }

    /// Declares that a hook may block in foreign code.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// Checks that the result does not contradict itself, for a node with `inputs` inputs.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self, inputs: usize) -> Result<(), InferError> {
        if self.input_descs.len() != inputs {
            return Err(InferError::InputDescs {
                found: self.input_descs.len(),
                expected: inputs,
            });
        }
        for (flags, found, expected) in [
            (
                "owned_inputs",
                self.owned_inputs.len(),
                self.input_descs.len(),
            ),
            (
                "owned_outputs",
                self.owned_outputs.len(),
                self.output_descs.len(),
            ),
            (
                "read_only_outputs",
                self.read_only_outputs.len(),
                self.output_descs.len(),
            ),
        ] {
            if found != expected {
                return Err(InferError::FlagCount {
                    flags,
                    found,
                    expected,
                });
            }
        }
        let mut outputs = self.read_only_outputs.iter().zip(&self.owned_outputs);
        if let Some(output) = outputs.position(|(read_only, owned)| *read_only && !*owned) {
            return Err(InferError::ReadOnlyNotOwned {
                output: Slot::Output(output),
            });
        }
        if self.kind == TaskKind::Async {
            if let Some(pair) = self.in_place.first() {
                return Err(InferError::AsyncInPlace {
                    output: Slot::Output(pair.output),
                });
            }
            if self.may_skip {
                return Err(InferError::AsyncSkip);
            }
        } else if self.flow.is_some() {
            return Err(InferError::SyncFlow);
        }
        if let Some(flow) = self.flow
            && (flow.frames_per_output == 0 || flow.capacity == 0)
        {
            return Err(InferError::EmptyFlow { flow });
        }
        let mut shared = vec![false; self.output_descs.len()];
        // By input: the first output that shares it, and whether one overwrites it.
        let mut sharing: Vec<Option<(usize, bool)>> = vec![None; self.input_descs.len()];
        for pair in &self.in_place {
            self.check_pair(*pair)?;
            if std::mem::replace(&mut shared[pair.output], true) {
                return Err(InferError::SharedTwice {
                    output: Slot::Output(pair.output),
                });
            }
            let overwrites = pair.aliasing == Aliasing::Overwrite;
            if let Some((other, overwritten)) = sharing[pair.input]
                && (overwrites || overwritten)
            {
                return Err(InferError::OverwrittenAndShared {
                    input: Slot::Input(pair.input),
                    first: Slot::Output(other),
                    second: Slot::Output(pair.output),
                });
            }
            sharing[pair.input].get_or_insert((pair.output, overwrites));
        }
        Ok(())
    }

    fn check_pair(&self, pair: InPlace) -> Result<(), InferError> {
        let (input, output) = (Slot::Input(pair.input), Slot::Output(pair.output));
        let Some(parent) = self.input_descs.get(pair.input) else {
            return Err(InferError::NoSuchSlot {
                slot: input,
                count: self.input_descs.len(),
            });
        };
        let Some(desc) = self.output_descs.get(pair.output) else {
            return Err(InferError::NoSuchSlot {
                slot: output,
                count: self.output_descs.len(),
            });
        };
        if self.owned_outputs[pair.output] {
            return Err(InferError::OwnedInPlace { slot: output });
        }
        // Its cell must be empty when the task is done, and so could hold no output.
        if self.owned_inputs[pair.input] {
            return Err(InferError::OwnedInPlace { slot: input });
        }
        let fits = parent.location() == desc.location()
            && match pair.aliasing {
                Aliasing::View => desc.offset() >= parent.offset() && desc.end() <= parent.end(),
                Aliasing::Overwrite => {
                    desc.offset() == parent.offset() && desc.num_bytes() == parent.num_bytes()
                }
            };
        if !fits {
            return Err(InferError::Misfit {
                input,
                output,
                found: desc.to_string(),
                expected: match pair.aliasing {
                    Aliasing::View => format!("a view within {parent}"),
                    Aliasing::Overwrite => format!("the bytes of {parent}"),
                },
            });
        }
        Ok(())
    }
}

/// How an [`InferResult`] contradicts itself or its node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InferError {
    /// Not one input descriptor for each input.
    #[error("found {found} input descriptors, expected one for each of the {expected} inputs")]
    InputDescs {
        /// Descriptors there are.
        found: usize,
        /// Inputs of the node.
        expected: usize,
    },
    /// Not one flag for each slot.
    #[error("`{flags}` has {found} flags, expected {expected}: one for each descriptor")]
    FlagCount {
        /// The field.
        flags: &'static str,
        /// Flags there are.
        found: usize,
        /// Descriptors there are.
        expected: usize,
    },
    /// The kind differs from the trait that the factory was registered with.
    #[error("`kind` is {found:?}, but the factory is registered as {expected:?}")]
    Kind {
        /// The kind inferred.
        found: TaskKind,
        /// The kind registered.
        expected: TaskKind,
    },
    /// An async task's two sides are in two sections and cannot share storage in place.
    #[error("{output} is in place, but the task is async: its sides share no cell")]
    AsyncInPlace {
        /// The output.
        output: Slot,
    },
    /// Only sync tasks skip.
    #[error("`may_skip` is set, but the task is async: answer NotReady instead")]
    AsyncSkip,
    /// Only async tasks have a flow.
    #[error("`flow` is set, but the task is sync: one frame in, one out")]
    SyncFlow,
    /// A flow with which nothing can come out or go in.
    #[error("{flow:?} has a zero where at least 1 is needed")]
    EmptyFlow {
        /// The flow.
        flow: Flow,
    },
    /// An in-place pair names a slot that is not there.
    #[error("an in-place pair names {slot}, but there are {count}")]
    NoSuchSlot {
        /// The slot.
        slot: Slot,
        /// Slots of that direction.
        count: usize,
    },
    /// An output is read-only, but its storage is the compiler's.
    #[error("{output} is read-only and not owned: only what the task publishes can be shared")]
    ReadOnlyNotOwned {
        /// The output.
        output: Slot,
    },
    /// An output is in place with two inputs.
    #[error("{output} shares storage with more than one input")]
    SharedTwice {
        /// The output.
        output: Slot,
    },
    /// A slot is owned and in place.
    #[error("{slot} is owned and in place: an owned slot's storage is the task's own")]
    OwnedInPlace {
        /// The owned slot.
        slot: Slot,
    },
    /// Two outputs are in place with one input, and not both only to be read.
    #[error("{input} is in place with {first} and {second}, and one of them overwrites it")]
    OverwrittenAndShared {
        /// The input.
        input: Slot,
        /// An output.
        first: Slot,
        /// The other output.
        second: Slot,
    },
    /// The two layouts do not fit each other.
    #[error("{output} is in place with {input}: found {found}, expected {expected}")]
    Misfit {
        /// The input.
        input: Slot,
        /// The output.
        output: Slot,
        /// Layout of the output.
        found: String,
        /// What it should lie in.
        expected: String,
    },
}

#[cfg(test)]
#[path = "infer_tests.rs"]
mod tests;
