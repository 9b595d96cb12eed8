//! Which tensors share a storage, and who publishes it.
//!
//! In-place outputs take the storage of their input. A tensor and its read-only views are
//! one *version* of their storage's bytes; a node that overwrites begins the next. What ends
//! a version (a node that overwrites it, or a sync node that consumes it as an owned input)
//! must come after everything else that reads it; the pass [`owners`](super::owners) sees to
//! that.
//!
//! A tensor's offset in its storage is not always the one that its factory inferred: a
//! borrowed input may lie elsewhere than its task wants it, an owner may want another offset
//! than the producer makes, and a copy begins at 0. So offsets are kept here, and in-place
//! outputs lie where the factory put them *relative to the input that it inferred*.
//!
//! What this module does not know: sections and memory, and what to do about conflicts.

use smallvec::{SmallVec, smallvec};

use super::ir::{Ir, Reader, Source};
use crate::task::Aliasing;
use crate::tensor::TDesc;

/// Who decides where a storage's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The compiler: it allocates them.
    Compiler,
    /// The application, through a graph input.
    Input(usize),
    /// The task of a node, through an owned input.
    NodeInput(Reader),
    /// The task of a node, through an owned output.
    NodeOutput { node: usize, output: usize },
}

#[derive(Debug)]
pub(super) struct IrStorage {
    /// The tensor that it was made for.
    pub(super) root: Source,
    pub(super) owner: Owner,
    /// Bytes by which every tensor lies further on in the owner's region.
    pub(super) shift: isize,
    /// Bytes that a region must have.
    pub(super) bytes: usize,
}

/// Tensors and storages of a graph.
#[derive(Debug)]
pub(super) struct Storages {
    /// Every tensor: graph inputs, then outputs by the order of the nodes, copies last.
    pub(super) tensors: Vec<Source>,
    /// For each node, the number of its first output's tensor.
    first: Vec<usize>,
    /// For each tensor, its storage.
    pub(super) of: Vec<usize>,
    /// For each tensor, where it begins in its storage, without the storage's shift.
    pub(super) offset: Vec<usize>,
    /// Who reads each tensor, by the order of the edges: where its readers begin, and one more.
    begin: Vec<usize>,
    readers: Vec<Reader>,
    pub(super) storages: Vec<IrStorage>,
    pub(super) versions: Vec<Version>,
    /// For each tensor, its version.
    version: Vec<usize>,
}

/// Tensors that show the same bytes at the same time.
#[derive(Debug, Default)]
pub(super) struct Version {
    pub(super) tensors: SmallVec<[usize; 2]>,
    /// What overwrites or consumes it, by order of the edges.
    pub(super) ends: SmallVec<[Reader; 1]>,
}

impl Storages {
    pub(super) fn tensor(&self, source: Source) -> usize {
        match source {
            Source::Input(input) => input,
            Source::Node { node, output } => self.first[node] + output,
        }
    }

    /// A tensor's layout where it lies in its storage.
    pub(super) fn layout(&self, ir: &Ir, tensor: usize) -> TDesc {
        let shift = self.storages[self.of[tensor]].shift;
        let offset = self.offset[tensor].saturating_add_signed(shift);
        moved_to(ir.desc(self.tensors[tensor]), offset)
    }

    /// Collects tensors, storages and versions of the graph as it is now.
    pub(super) fn collect(ir: &Ir) -> Self {
        let mut tensors: Vec<Source> = (0..ir.inputs.len()).map(Source::Input).collect();
        let mut first = vec![0; ir.nodes.len()];
        // Nodes of the description first, so that copies do not renumber their tensors.
        let (inserted, own): (Vec<usize>, Vec<usize>) = ir
            .order
            .iter()
            .partition(|node| ir.nodes[**node].inserted.is_some());
        for node in own.into_iter().chain(inserted) {
            first[node] = tensors.len();
            let outputs = 0..ir.inferred(node).output_descs.len();
            tensors.extend(outputs.map(|output| Source::Node { node, output }));
        }
        let count = tensors.len();
        let mut this = Self {
            tensors,
            first,
            of: vec![usize::MAX; count],
            offset: vec![0; count],
            begin: vec![0; count + 1],
            readers: Vec::new(),
            storages: Vec::new(),
            versions: Vec::new(),
            version: vec![usize::MAX; count],
        };
        for input in 0..ir.inputs.len() {
            this.begin_storage(ir, input, Owner::Input(input));
        }
        // In dependency order: an in-place output needs its input's storage.
        for node in &ir.order {
            this.collect_outputs(ir, *node);
        }
        this.collect_readers(ir);
        this
    }

    fn collect_readers(&mut self, ir: &Ir) {
        for (source, reader) in &ir.edges {
            let tensor = self.tensor(*source);
            self.begin[tensor + 1] += 1;
            if ends_version(ir, *reader) {
                let version = self.version[tensor];
                self.versions[version].ends.push(*reader);
            }
        }
        for tensor in 0..self.tensors.len() {
            self.begin[tensor + 1] += self.begin[tensor];
        }
        let mut next = self.begin.clone();
        self.readers = vec![Reader { node: 0, input: 0 }; ir.edges.len()];
        for (source, reader) in &ir.edges {
            let next = &mut next[self.tensor(*source)];
            self.readers[*next] = *reader;
            *next += 1;
        }
    }

    /// Who reads a tensor, by the order of the edges.
    pub(super) fn readers(&self, tensor: usize) -> &[Reader] {
        &self.readers[self.begin[tensor]..self.begin[tensor + 1]]
    }

    fn begin_storage(&mut self, ir: &Ir, tensor: usize, owner: Owner) {
        let root = self.tensors[tensor];
        let desc = ir.desc(root);
        self.of[tensor] = self.storages.len();
        self.offset[tensor] = desc.offset();
        self.storages.push(IrStorage {
            root,
            owner,
            shift: 0,
            bytes: desc.end(),
        });
        self.begin_version(tensor);
    }

    fn begin_version(&mut self, tensor: usize) {
        self.version[tensor] = self.versions.len();
        self.versions.push(Version {
            tensors: smallvec![tensor],
            ends: SmallVec::new(),
        });
    }

    fn collect_outputs(&mut self, ir: &Ir, node: usize) {
        let result = ir.inferred(node);
        for (output, desc) in result.output_descs.iter().enumerate() {
            let tensor = self.first[node] + output;
            let Some(pair) = result.in_place.iter().find(|pair| pair.output == output) else {
                let owner = if result.owned_outputs[output] {
                    Owner::NodeOutput { node, output }
                } else {
                    Owner::Compiler
                };
                self.begin_storage(ir, tensor, owner);
                continue;
            };
            let parent = self.tensor(ir.nodes[node].inputs[pair.input]);
            let within = desc
                .offset()
                .saturating_sub(result.input_descs[pair.input].offset());
            self.of[tensor] = self.of[parent];
            self.offset[tensor] = self.offset[parent].saturating_add(within);
            let end = self.offset[tensor].saturating_add(desc.num_bytes());
            let storage = &mut self.storages[self.of[parent]];
            storage.bytes = storage.bytes.max(end);
            match pair.aliasing {
                Aliasing::View => {
                    self.version[tensor] = self.version[parent];
                    self.versions[self.version[parent]].tensors.push(tensor);
                }
                Aliasing::Overwrite => self.begin_version(tensor),
            }
        }
    }

    pub(super) fn owner(&self, source: Source) -> Owner {
        self.storages[self.of[self.tensor(source)]].owner
    }

    /// Whether `source` is what its storage's owner publishes, or a view of it. Whatever else
    /// is decided, it stays so.
    pub(super) fn is_published(&self, source: Source) -> bool {
        let tensor = self.tensor(source);
        let storage = &self.storages[self.of[tensor]];
        matches!(storage.owner, Owner::Input(_) | Owner::NodeOutput { .. })
            && self.version[tensor] == self.version[self.tensor(storage.root)]
    }
}

/// Whether what `reader` reads is gone, or has other bytes, when its node has run.
fn ends_version(ir: &Ir, reader: Reader) -> bool {
    let result = ir.inferred(reader.node);
    let consumes = result.owned_inputs[reader.input] && !ir.is_async(reader.node);
    consumes
        || result
            .in_place
            .iter()
            .any(|pair| pair.input == reader.input && pair.aliasing == Aliasing::Overwrite)
}

/// The same tensor elsewhere in its storage.
pub(super) fn moved_to(desc: &TDesc, offset: usize) -> TDesc {
    if desc.offset() == offset {
        return desc.clone();
    }
    let (shape, strides) = (desc.shape(), desc.strides());
    TDesc::with_layout(shape, desc.dtype(), desc.location(), strides, offset)
        .unwrap_or_else(|_| desc.clone())
}
