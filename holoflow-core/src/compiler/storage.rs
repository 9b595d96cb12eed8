//! Pass: which tensors share a storage, who owns it, and where a copy is needed.
//!
//! In-place outputs take the storage of their input. A tensor and its read-only views are
//! one *version* of their storage's bytes; a node that overwrites begins the next. What ends
//! a version (a node that overwrites it, or a sync node that consumes it as an owned input)
//! must come after everything else that reads it.
//!
//! Three things may stand in the way, and each is resolved by a copy, or is an error if
//! copies are not allowed:
//!
//! 1. A version is read by something that cannot come before its end: an async node or a
//!    graph output (both read when the section's nodes are done), another node that ends it,
//!    or a node that needs the result of the one that ends it. The end gets a copy.
//! 2. A storage has two owners: a slot whose task publishes it, or the application for a
//!    graph input. The first owner keeps it, by order of the edges; others get a copy.
//! 3. Two async nodes each own what the other borrows, so that neither can be pushed first.
//!    The borrower gets a copy.
//!
//! Inserting a copy changes the graph, so the pass starts over, until nothing is in the way.
//! Each copy settles an edge for good.
//!
//! What this pass does not know: sections and memory.

use super::ir::{Ir, IrNode, Maker, Reader, Source};
use super::{CompileError, CompileErrors, Conflicts};
use crate::registry::Registry;
use crate::storage::Slot;
use crate::task::{Aliasing, InPlace, InferResult, Placement};
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
    /// Bytes by which every tensor's offset is less in the owner's region than inferred.
    pub(super) shift: usize,
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
    /// For each tensor, who reads it, by the order of the edges.
    pub(super) readers: Vec<Vec<Reader>>,
    pub(super) storages: Vec<IrStorage>,
    versions: Vec<Version>,
    /// For each tensor, its version.
    version: Vec<usize>,
}

#[derive(Debug, Default)]
struct Version {
    tensors: Vec<usize>,
    /// What overwrites or consumes it.
    ends: Vec<Reader>,
}

impl Storages {
    pub(super) fn tensor(&self, source: Source) -> usize {
        match source {
            Source::Input(input) => input,
            Source::Node { node, output } => self.first[node] + output,
        }
    }

    /// Collects tensors, storages and versions of the graph as it is now.
    fn collect(ir: &Ir) -> Self {
        let mut this = Self {
            tensors: (0..ir.inputs.len()).map(Source::Input).collect(),
            first: vec![0; ir.nodes.len()],
            of: Vec::new(),
            readers: Vec::new(),
            storages: Vec::new(),
            versions: Vec::new(),
            version: Vec::new(),
        };
        for tensor in 0..ir.inputs.len() {
            this.begin_storage(ir, tensor, Owner::Input(tensor));
        }
        // Nodes of the description first, so that copies do not renumber their tensors.
        let (inserted, own): (Vec<usize>, Vec<usize>) = ir
            .order
            .iter()
            .partition(|node| ir.nodes[**node].inserted.is_some());
        for node in own.into_iter().chain(inserted) {
            this.first[node] = this.tensors.len();
            for output in 0..ir.inferred(node).output_descs.len() {
                this.tensors.push(Source::Node { node, output });
            }
        }
        this.of.resize(this.tensors.len(), usize::MAX);
        this.version.resize(this.tensors.len(), usize::MAX);
        // In dependency order: an in-place output needs its input's storage.
        for node in &ir.order {
            this.collect_outputs(ir, *node);
        }
        this.readers = vec![Vec::new(); this.tensors.len()];
        for (source, reader) in &ir.edges {
            let tensor = this.tensor(*source);
            this.readers[tensor].push(*reader);
        }
        for node in &ir.order {
            this.collect_ends(ir, *node);
        }
        this
    }

    fn begin_storage(&mut self, ir: &Ir, tensor: usize, owner: Owner) {
        let root = self.tensors[tensor];
        let bytes = ir.desc(root).end();
        if self.of.len() <= tensor {
            self.of.resize(tensor + 1, usize::MAX);
            self.version.resize(tensor + 1, usize::MAX);
        }
        self.of[tensor] = self.storages.len();
        self.storages.push(IrStorage {
            root,
            owner,
            shift: 0,
            bytes,
        });
        self.begin_version(tensor);
    }

    fn begin_version(&mut self, tensor: usize) {
        self.version[tensor] = self.versions.len();
        self.versions.push(Version {
            tensors: vec![tensor],
            ends: Vec::new(),
        });
    }

    fn collect_outputs(&mut self, ir: &Ir, node: usize) {
        let result = ir.inferred(node);
        for output in 0..result.output_descs.len() {
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
            self.of[tensor] = self.of[parent];
            let storage = &mut self.storages[self.of[parent]];
            storage.bytes = storage.bytes.max(result.output_descs[output].end());
            match pair.aliasing {
                Aliasing::View => {
                    self.version[tensor] = self.version[parent];
                    self.versions[self.version[parent]].tensors.push(tensor);
                }
                Aliasing::Overwrite => self.begin_version(tensor),
            }
        }
    }

    /// Notes which versions the node ends.
    fn collect_ends(&mut self, ir: &Ir, node: usize) {
        let result = ir.inferred(node);
        for (input, source) in ir.nodes[node].inputs.iter().enumerate() {
            let overwrites = result.in_place.contains(&overwrite(result, input));
            let consumes = result.owned_inputs[input] && !ir.is_async(node);
            if overwrites || consumes {
                let version = self.version[self.tensor(*source)];
                self.versions[version].ends.push(Reader { node, input });
            }
        }
    }
}

/// The pair by which the node would overwrite `input`, if it does.
fn overwrite(result: &InferResult, input: usize) -> InPlace {
    let output = result
        .in_place
        .iter()
        .find(|pair| pair.input == input && pair.aliasing == Aliasing::Overwrite)
        .map_or(usize::MAX, |pair| pair.output);
    InPlace {
        input,
        output,
        aliasing: Aliasing::Overwrite,
    }
}

/// A copy to be inserted before an input, or before a graph output.
struct Need {
    before: Before,
    why: String,
    error: CompileError,
}

enum Before {
    Input(Reader),
    Output(usize),
}

/// Assigns storages, inserting the copies that are needed.
pub(super) fn assign(
    ir: &mut Ir,
    registry: &Registry,
    conflicts: Conflicts,
) -> Result<Storages, CompileErrors> {
    loop {
        ir.before.clear();
        let mut found = Storages::collect(ir);
        let mut needs = order_ends(ir, &found);
        if needs.is_empty() {
            needs = settle_owners(ir, &mut found);
        }
        if needs.is_empty() {
            needs = order_pushes(ir, &found).err().unwrap_or_default();
        }
        if needs.is_empty() {
            return Ok(found);
        }
        if conflicts == Conflicts::Error {
            let errors = needs.into_iter().map(|need| need.error).collect();
            CompileErrors::check(errors)?;
        } else {
            for need in needs {
                insert_copy(ir, registry, need)?;
            }
        }
        ir.before.clear();
        ir.sort()?;
    }
}

/// Orders the readers of every version before its end. What cannot be ordered needs a copy.
fn order_ends(ir: &mut Ir, found: &Storages) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut pairs = Vec::new();
    for version in &found.versions {
        // The first end keeps the version; others read it like anyone, from a copy.
        for (rank, end) in version.ends.iter().enumerate() {
            let input = ir.nodes[end.node].inputs[end.input];
            let of_application = matches!(
                found.storages[found.of[found.tensor(input)]].owner,
                Owner::Input(_)
            );
            let reader = if of_application {
                Some("the application, whose memory it is,".to_owned())
            } else if rank > 0 && version.ends[0].node != end.node {
                Some(format!("`{}`", ir.nodes[version.ends[0].node].name))
            } else {
                late_reader(ir, found, version, end.node)
            };
            match reader {
                Some(reader) => needs.push(overwrite_need(ir, *end, &reader)),
                None => {
                    let readers = version
                        .tensors
                        .iter()
                        .flat_map(|tensor| &found.readers[*tensor]);
                    for reader in readers.filter(|reader| reader.node != end.node) {
                        pairs.push((reader.node, *end));
                    }
                }
            }
        }
    }
    if !needs.is_empty() {
        return needs;
    }
    ir.before = pairs
        .iter()
        .map(|(reader, end)| (*reader, end.node))
        .collect();
    if pairs.is_empty() || ir.sort().is_ok() {
        return needs;
    }
    // Some reader needs what comes after the end. Add the pairs one by one; one that closes a
    // circle shows an end that needs a copy.
    ir.before.clear();
    for (reader, end) in pairs {
        if needs
            .iter()
            .any(|need| matches!(&need.before, Before::Input(other) if *other == end))
        {
            continue;
        }
        ir.before.push((reader, end.node));
        if ir.sort().is_err() {
            ir.before.pop();
            let name = format!("`{}`", ir.nodes[reader].name);
            needs.push(overwrite_need(ir, end, &name));
        }
    }
    needs
}

/// A reader of the version that reads only when the section's nodes are done.
fn late_reader(ir: &Ir, found: &Storages, version: &Version, end: usize) -> Option<String> {
    for tensor in &version.tensors {
        let late = found.readers[*tensor]
            .iter()
            .find(|reader| reader.node != end && ir.is_async(reader.node));
        if let Some(reader) = late {
            return Some(format!("`{}`", ir.nodes[reader.node].name));
        }
        let source = found.tensors[*tensor];
        if let Some(output) = ir.outputs.iter().find(|output| output.source == source) {
            return Some(format!("graph output `{}`", output.name));
        }
    }
    None
}

fn overwrite_need(ir: &Ir, end: Reader, reader: &str) -> Need {
    let node = &ir.nodes[end.node].name;
    Need {
        before: Before::Input(end),
        why: format!("`{node}` overwrites or consumes it, and {reader} still reads it"),
        error: CompileError::OverwriteConflict {
            node: node.clone(),
            input: Slot::Input(end.input),
            reader: reader.to_owned(),
        },
    }
}

/// Gives every storage its owner. A second owner needs a copy, and so does a graph output of a
/// storage that somebody owns.
fn settle_owners(ir: &Ir, found: &mut Storages) -> Vec<Need> {
    let mut needs = Vec::new();
    for (source, reader) in &ir.edges {
        let result = ir.inferred(reader.node);
        if !result.owned_inputs[reader.input] {
            continue;
        }
        let storage = found.of[found.tensor(*source)];
        let (tensor, wanted) = (ir.desc(*source), &result.input_descs[reader.input]);
        let whole = found.storages[storage].root;
        let whole = ir.desc(whole);
        let storage = &mut found.storages[storage];
        let fits = tensor.offset() == whole.offset()
            && tensor.num_bytes() == whole.num_bytes()
            && tensor.end() == storage.bytes
            && wanted.offset() <= tensor.offset();
        let owner = match storage.owner {
            Owner::Compiler if fits => {
                storage.owner = Owner::NodeInput(*reader);
                storage.shift = tensor.offset() - wanted.offset();
                storage.bytes = wanted.end();
                continue;
            }
            Owner::Compiler => None,
            owner => Some(owner),
        };
        needs.push(owner_need(ir, *source, *reader, owner));
    }
    for (index, output) in ir.outputs.iter().enumerate() {
        let owner = found.storages[found.of[found.tensor(output.source)]].owner;
        if owner != Owner::Compiler {
            let (first, first_slot) = owner_name(ir, owner);
            let name = &output.name;
            needs.push(Need {
                before: Before::Output(index),
                why: format!(
                    "graph output `{name}` is kept by the application, and {first} owns it"
                ),
                error: CompileError::OwnershipConflict {
                    first,
                    first_slot,
                    second: format!("outputs.{name}"),
                    second_slot: Slot::Output(0),
                },
            });
        }
    }
    needs
}

fn owner_name(ir: &Ir, owner: Owner) -> (String, String) {
    match owner {
        Owner::Compiler => ("the compiler".to_owned(), "allocated".to_owned()),
        Owner::Input(input) => (
            format!("graph input `{}`", ir.inputs[input].name),
            "given from outside".to_owned(),
        ),
        Owner::NodeInput(reader) => (
            format!("`{}`", ir.nodes[reader.node].name),
            Slot::Input(reader.input).to_string(),
        ),
        Owner::NodeOutput { node, output } => (
            format!("`{}`", ir.nodes[node].name),
            Slot::Output(output).to_string(),
        ),
    }
}

fn owner_need(ir: &Ir, source: Source, reader: Reader, owner: Option<Owner>) -> Need {
    let second = ir.nodes[reader.node].name.clone();
    let (first, first_slot) = match owner {
        Some(owner) => owner_name(ir, owner),
        // Only the owner of all of a storage can publish it.
        None => (
            ir.source_name(source),
            "a view of more than this input wants".to_owned(),
        ),
    };
    Need {
        before: Before::Input(reader),
        why: format!(
            "`{second}` owns its input {}, and {first} owns it too",
            reader.input
        ),
        error: CompileError::OwnershipConflict {
            first,
            first_slot,
            second,
            second_slot: Slot::Input(reader.input),
        },
    }
}

/// The async nodes, so that each that borrows a tensor comes before the one that owns it.
pub(super) fn push_order(ir: &Ir, found: &Storages) -> Vec<usize> {
    order_pushes(ir, found).unwrap_or_default()
}

fn order_pushes(ir: &Ir, found: &Storages) -> Result<Vec<usize>, Vec<Need>> {
    let asyncs: Vec<usize> = ir
        .order
        .iter()
        .copied()
        .filter(|node| ir.is_async(*node))
        .collect();
    let mut waits = vec![0_usize; ir.nodes.len()];
    let mut then: Vec<Vec<Reader>> = vec![Vec::new(); ir.nodes.len()];
    for (tensor, readers) in found.readers.iter().enumerate() {
        let Owner::NodeInput(owner) = found.storages[found.of[tensor]].owner else {
            continue;
        };
        for reader in readers.iter().filter(|reader| ir.is_async(reader.node)) {
            if reader.node != owner.node && ir.is_async(owner.node) {
                waits[owner.node] += 1;
                then[reader.node].push(Reader {
                    node: owner.node,
                    input: reader.input,
                });
            }
        }
    }
    let mut order = Vec::with_capacity(asyncs.len());
    let mut ready: std::collections::VecDeque<usize> = asyncs
        .iter()
        .copied()
        .filter(|node| waits[*node] == 0)
        .collect();
    while let Some(node) = ready.pop_front() {
        order.push(node);
        for next in &then[node] {
            waits[next.node] -= 1;
            if waits[next.node] == 0 {
                ready.push_back(next.node);
            }
        }
    }
    let stuck = asyncs
        .iter()
        .copied()
        .find(|node| waits[*node] > 0 && then[*node].iter().any(|next| waits[next.node] > 0));
    match stuck {
        None => Ok(order),
        Some(node) => {
            let next = then[node].iter().find(|next| waits[next.node] > 0);
            let input = next.map_or(0, |next| next.input);
            let owner = next.map_or(node, |next| next.node);
            let (name, other) = (&ir.nodes[node].name, &ir.nodes[owner].name);
            Err(vec![Need {
                before: Before::Input(Reader { node, input }),
                why: format!("`{name}` borrows it and `{other}` owns it, and the other way round"),
                error: CompileError::OwnershipConflict {
                    first: format!("`{other}`"),
                    first_slot: "an input".to_owned(),
                    second: name.clone(),
                    second_slot: Slot::Input(input),
                },
            }])
        }
    }
}

/// Inserts a copy between a tensor and what reads it.
fn insert_copy(ir: &mut Ir, registry: &Registry, need: Need) -> Result<(), CompileError> {
    let (source, name) = match need.before {
        Before::Input(reader) => {
            let node = &ir.nodes[reader.node];
            (
                node.inputs[reader.input],
                format!("copy for {}[{}]", node.name, reader.input),
            )
        }
        Before::Output(output) => {
            let output = &ir.outputs[output];
            (output.source, format!("copy for outputs.{}", output.name))
        }
    };
    let desc = ir.desc(source).clone();
    let packed = at_zero(&desc);
    let (maker, placement) = if desc.location().is_device() {
        let factory = registry.get("Copy", Some(Placement::Device)).map_err(|_| {
            let (node, input) = match need.before {
                Before::Input(reader) => (ir.nodes[reader.node].name.clone(), reader.input),
                Before::Output(output) => (format!("outputs.{}", ir.outputs[output].name), 0),
            };
            CompileError::NoDeviceCopy {
                node,
                input: Slot::Input(input),
                location: desc.location(),
            }
        })?;
        (Maker::Factory(factory.clone()), Placement::Device)
    } else {
        (Maker::Copy, Placement::Host)
    };
    let copy = ir.nodes.len();
    ir.nodes.push(IrNode {
        name,
        kind: "Copy".to_owned(),
        settings: serde_json::Value::Object(serde_json::Map::new()),
        debug: true,
        inserted: Some(need.why),
        inputs: vec![source],
        maker: Some(maker),
        placement,
        infer: Some(InferResult::sync([desc], [packed])),
    });
    let output = Source::Node {
        node: copy,
        output: 0,
    };
    match need.before {
        Before::Input(reader) => {
            ir.nodes[reader.node].inputs[reader.input] = output;
            for edge in &mut ir.edges {
                if edge.1 == reader {
                    edge.0 = output;
                }
            }
        }
        Before::Output(index) => ir.outputs[index].source = output,
    }
    ir.edges.push((
        source,
        Reader {
            node: copy,
            input: 0,
        },
    ));
    Ok(())
}

/// The same tensor at the start of a storage of its own.
fn at_zero(desc: &TDesc) -> TDesc {
    TDesc::with_layout(
        desc.shape(),
        desc.dtype(),
        desc.location(),
        desc.strides(),
        0,
    )
    .unwrap_or_else(|_| desc.clone())
}
