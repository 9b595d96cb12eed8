//! Pass: memory, streams and tasks for a plan.
//!
//! All that can fail without touching a task of the previous graph comes first: streams,
//! memory, the binding of slots to cells, new tasks. Only then is the previous graph taken
//! apart and its tasks updated.
//!
//! What this pass does not decide: anything. The plan says where every byte lives.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::copy::InsertedCopy;
use super::ir::{Ir, Maker};
use super::plan::{Plan, PlanNode, Role};
use super::{CompileError, CompileErrors};
use crate::device::{DeviceBackend, Stream};
use crate::ids::{NodeId, SectionId, TensorId};
use crate::memory::Memory;
use crate::registry::TaskFactory;
use crate::storage::{
    Alias, CellBank, ConsumerSide, ProducerSide, Region, Sides, SlotSpec, Storage, TaskBuffer,
};
use crate::sync::Arc;
use crate::task::port::{AnyTask, LooseTask, OtherSide, Poison, Port};
use crate::task::{
    Aliasing, CreateCtx, Hook, HookError, IAsyncTask, ISyncTask, NodeCtx, TaskError, TaskKind,
    TaskRequest, TaskResult,
};
use crate::tensor::{MemLoc, TDesc};

/// A compiled graph: the plan, and the memory, streams and tasks that belong to it.
#[derive(Debug)]
pub struct CompiledGraph {
    plan: Arc<Plan>,
    sections: Vec<Section>,
    /// For each storage, the number of its cell within its section's bank.
    cells: Vec<usize>,
}

/// What runs a section: its cells and the ports of its nodes.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) bank: CellBank,
    /// In the order in which they run.
    pub(crate) sync: Vec<(NodeId, Port)>,
    pub(crate) pops: Vec<(NodeId, Port)>,
    pub(crate) pushes: Vec<(NodeId, Port)>,
    pub(crate) stream: Option<Arc<dyn Stream>>,
    /// Cell of each storage whose memory the compiler allocated, by what it was made for.
    memory: HashMap<MemoryKey, usize>,
}

/// By what a region of the previous graph is found again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MemoryKey {
    node: String,
    output: usize,
    location: MemLoc,
    bytes: usize,
}

/// Where a storage's memory comes from.
enum Source {
    New(Region),
    Previous(MemoryKey),
}

/// What graphs are built with.
#[derive(Debug, Clone)]
pub(super) struct Resources {
    pub(super) memory: Memory,
    pub(super) devices: Vec<Arc<dyn DeviceBackend>>,
}

impl CompiledGraph {
    /// Where every byte lives, and in which order the nodes run.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan, to be kept.
    pub(crate) fn shared_plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Takes the sections out, to be run, and leaves none.
    pub(crate) fn take_sections(&mut self) -> Vec<Section> {
        std::mem::take(&mut self.sections)
    }

    /// Puts the sections back that `take_sections` took.
    pub(crate) fn put_sections(&mut self, sections: Vec<Section>) {
        self.sections = sections;
    }

    /// The streams of the sections, by number; `None` for a section without device nodes.
    pub fn streams(&self) -> impl Iterator<Item = Option<&Arc<dyn Stream>>> {
        self.sections.iter().map(|section| section.stream.as_ref())
    }

    /// Address of a tensor's bytes now; `None` while its storage is not published.
    pub fn address(&mut self, tensor: TensorId) -> Option<crate::memory::Address> {
        let tensor = self.plan.tensors.get(tensor.index())?;
        let section = self.plan.storages.get(tensor.storage.index())?.section?;
        let cell = self.cells[tensor.storage.index()];
        let region = self.sections[section.index()]
            .bank
            .cell_mut(cell)?
            .region()?;
        Some(region.address().plus(tensor.desc.offset()))
    }
}

/// What there is to be taken over from the previous graph, without touching it.
#[derive(Default)]
struct Known<'a> {
    /// Kind of each node's task, by the node's name.
    kinds: HashMap<&'a str, &'a str>,
    memory: HashSet<&'a MemoryKey>,
    streams: Vec<Arc<dyn Stream>>,
}

impl<'a> Known<'a> {
    fn of(graph: &'a CompiledGraph) -> Self {
        let own = graph
            .plan
            .nodes
            .iter()
            .filter(|node| node.inserted.is_none());
        Self {
            kinds: own
                .map(|node| (node.name.as_str(), node.kind.as_str()))
                .collect(),
            memory: graph
                .sections
                .iter()
                .flat_map(|section| section.memory.keys())
                .collect(),
            streams: graph.streams().flatten().cloned().collect(),
        }
    }

    fn has_task(&self, node: &PlanNode) -> bool {
        node.inserted.is_none() && self.kinds.get(node.name.as_str()) == Some(&node.kind.as_str())
    }
}

/// Builds a graph. On failure the previous graph is returned, unless a task of it was already
/// taken out for an update.
#[allow(clippy::result_large_err, reason = "the error carries the graph back")]
pub(super) fn build(
    ir: &Ir,
    plan: Plan,
    resources: &Resources,
    mut previous: Option<CompiledGraph>,
) -> Result<CompiledGraph, (CompileErrors, Option<CompiledGraph>)> {
    if let Some(graph) = previous.take_if(|previous| *previous.plan == plan) {
        return graph.renew(ir, resources).map_err(|errors| (errors, None));
    }
    let known = previous.as_ref().map(Known::of).unwrap_or_default();
    let prepared = match prepare(ir, &plan, resources, known) {
        Ok(prepared) => prepared,
        Err(errors) => return Err((errors, previous)),
    };
    let Prepared {
        streams,
        memory,
        mut tasks,
        sides,
    } = prepared;
    let mut old = previous
        .take()
        .map(CompiledGraph::take_apart)
        .unwrap_or_default();
    let mut errors = Vec::new();
    for (index, node) in plan.nodes.iter().enumerate() {
        if tasks[index].is_none() {
            // None is left of a task that has panicked: it is made anew.
            let task = old.tasks.remove(&node.name);
            match make(ir, &plan, resources, index, &sides[index], &streams, task) {
                Ok(task) => tasks[index] = Some(task),
                Err(error) => errors.push(error),
            }
        }
    }
    CompileErrors::check(errors).map_err(|errors| (errors, None))?;
    assemble(
        plan,
        resources,
        Parts {
            streams,
            memory,
            tasks,
            sides,
            old,
        },
    )
    .map_err(|error| (error.into(), None))
}

struct Prepared {
    streams: Vec<Option<Arc<dyn Stream>>>,
    /// By storage.
    memory: Vec<Option<Source>>,
    /// By node; `None` for those that update a task of the previous graph.
    tasks: Vec<Option<AnyTask>>,
    /// By node.
    sides: Vec<Sides>,
}

/// What the previous graph leaves behind.
#[derive(Default)]
struct Old {
    tasks: HashMap<String, AnyTask>,
    memory: HashMap<MemoryKey, Region>,
}

/// All that does not touch the previous graph.
fn prepare(
    ir: &Ir,
    plan: &Plan,
    resources: &Resources,
    known: Known<'_>,
) -> Result<Prepared, CompileErrors> {
    let mut errors = Vec::new();
    let memory = memory(plan, resources, &known, &mut errors);
    let Known {
        kinds,
        streams: spare,
        ..
    } = known;
    let known = Known {
        kinds,
        ..Known::default()
    };
    let streams = streams(plan, resources, spare, &mut errors);
    CompileErrors::check(errors)?;
    check_binding(plan)?;
    let mut errors = Vec::new();
    let sides: Vec<Sides> = plan.nodes.iter().map(|_| Sides::new()).collect();
    let mut tasks = Vec::with_capacity(plan.nodes.len());
    for (index, node) in plan.nodes.iter().enumerate() {
        if known.has_task(node) {
            tasks.push(None);
            continue;
        }
        match make(ir, plan, resources, index, &sides[index], &streams, None) {
            Ok(task) => tasks.push(Some(task)),
            Err(error) => errors.push(error),
        }
    }
    CompileErrors::check(errors)?;
    Ok(Prepared {
        streams,
        memory,
        tasks,
        sides,
    })
}

/// A stream for each section with device nodes: the first left of the previous graph's that is
/// of the same device, or a new one.
fn streams(
    plan: &Plan,
    resources: &Resources,
    mut spare: Vec<Arc<dyn Stream>>,
    errors: &mut Vec<CompileError>,
) -> Vec<Option<Arc<dyn Stream>>> {
    let mut streams = Vec::with_capacity(plan.sections.len());
    for section in &plan.sections {
        let Some(device) = section.device else {
            streams.push(None);
            continue;
        };
        if let Some(found) = spare
            .iter()
            .position(|stream| stream.key().device() == device)
        {
            streams.push(Some(spare.remove(found)));
            continue;
        }
        let nodes = section
            .sync
            .iter()
            .chain(&section.pops)
            .chain(&section.pushes);
        let node = nodes
            .map(|node| plan.nodes[node.index()].name.clone())
            .next();
        let node = node.unwrap_or_default();
        match resources
            .devices
            .iter()
            .find(|backend| backend.device() == device)
        {
            None => errors.push(CompileError::NoBackend { node, device }),
            Some(backend) => match backend.create_stream() {
                Ok(stream) => streams.push(Some(stream)),
                Err(cause) => errors.push(CompileError::Stream { node, cause }),
            },
        }
    }
    streams
}

/// The memory of every storage that the compiler allocates.
fn memory(
    plan: &Plan,
    resources: &Resources,
    known: &Known<'_>,
    errors: &mut Vec<CompileError>,
) -> Vec<Option<Source>> {
    let mut memory = Vec::with_capacity(plan.storages.len());
    for index in 0..plan.storages.len() {
        let Some(key) = memory_key(plan, index) else {
            memory.push(None);
            continue;
        };
        if known.memory.contains(&key) {
            memory.push(Some(Source::Previous(key)));
            continue;
        }
        match TaskBuffer::allocate(&resources.memory, key.location, key.bytes) {
            Ok(buffer) => memory.push(Some(Source::New(buffer.into_region()))),
            Err(cause) => {
                let MemoryKey { node, output, .. } = key;
                errors.push(CompileError::Memory {
                    node,
                    output,
                    cause,
                });
            }
        }
    }
    memory
}

/// The key of a storage whose memory the compiler allocates.
fn memory_key(plan: &Plan, storage: usize) -> Option<MemoryKey> {
    let storage = &plan.storages[storage];
    if !matches!(storage.role, Role::Execution | Role::Io) {
        return None;
    }
    let root = storage.tensors.first()?;
    let (node, output) = plan.tensors[root.index()].producer?;
    let node = plan.nodes[node.index()].name.clone();
    Some(MemoryKey {
        node,
        output,
        location: storage.location,
        bytes: storage.bytes,
    })
}

/// Creates the task of a node, or updates `old`.
fn make(
    ir: &Ir,
    plan: &Plan,
    resources: &Resources,
    index: usize,
    sides: &Sides,
    streams: &[Option<Arc<dyn Stream>>],
    old: Option<AnyTask>,
) -> Result<AnyTask, CompileError> {
    let node = &plan.nodes[index];
    let stream = |section: Option<SectionId>| streams[section?.index()].as_ref();
    let producer = stream(node.producer);
    let consumer = if node.task == TaskKind::Sync {
        producer
    } else {
        stream(node.consumer)
    };
    let inputs: Vec<TDesc> = ir.nodes[index]
        .inputs
        .iter()
        .map(|source| ir.desc(*source).clone())
        .collect();
    let request = TaskRequest::new(&node.name, &node.settings, &inputs);
    let mut ctx = CreateCtx::new(&node.name, &resources.memory, sides, producer, consumer);
    let hook = if old.is_some() {
        Hook::Update
    } else {
        Hook::Create
    };
    let made = catch_unwind(AssertUnwindSafe(|| -> TaskResult<AnyTask> {
        let old = old.and_then(AnyTask::loose);
        let task = match &ir.nodes[index].maker {
            Some(Maker::Factory(TaskFactory::Sync(factory))) => LooseTask::Sync(match old {
                Some(LooseTask::Sync(old)) => factory.update(old, &request, &mut ctx)?,
                _ => factory.create(&request, &mut ctx)?,
            }),
            Some(Maker::Factory(TaskFactory::Async(factory))) => {
                LooseTask::Async(Arc::from(match old {
                    Some(LooseTask::Async(old)) => factory.update(old, &request, &mut ctx)?,
                    _ => factory.create(&request, &mut ctx)?,
                }))
            }
            Some(Maker::Copy) | None => LooseTask::Sync(Box::new(InsertedCopy)),
        };
        Ok(task.into())
    }));
    made.unwrap_or_else(|payload| Err(TaskError::panicked(payload)))
        .map_err(|error| CompileError::Create(HookError::new(&*node.name, hook, error)))
}

/// The banks of all sections: a cell for every storage, empty, in the plan's order.
fn banks(plan: &Plan) -> impl Iterator<Item = CellBank> {
    let mut cells: Vec<Vec<Storage>> = Vec::new();
    cells.resize_with(plan.sections.len(), Vec::new);
    for storage in &plan.storages {
        let root = storage
            .tensors
            .first()
            .and_then(|root| plan.tensors.get(root.index()));
        if let (Some(section), Some(root)) = (storage.section, root) {
            // In-place outputs may have another element type than the tensor they lie in.
            let tensors = storage
                .tensors
                .iter()
                .filter_map(|tensor| plan.tensors.get(tensor.index()));
            let align = tensors
                .map(|tensor| tensor.desc.dtype().align())
                .max()
                .unwrap_or(1);
            let cell = Storage::new(root.desc.clone(), storage.written).aligned(align);
            cells[section.index()].push(cell);
        }
    }
    cells.into_iter().map(CellBank::new)
}

/// Number of each storage's cell within its section's bank.
fn cell_numbers(plan: &Plan) -> Vec<usize> {
    let mut next = vec![0; plan.sections.len()];
    plan.storages
        .iter()
        .map(|storage| {
            let Some(section) = storage.section else {
                return usize::MAX;
            };
            let cell = next[section.index()];
            next[section.index()] += 1;
            cell
        })
        .collect()
}

/// The slots of a node as its ports want them: inputs and outputs.
fn slots(plan: &Plan, cells: &[usize], node: &PlanNode) -> (Vec<SlotSpec>, Vec<SlotSpec>) {
    let slot = |tensor: &TensorId, owned: bool, alias: Option<Alias>| {
        let tensor = &plan.tensors[tensor.index()];
        let (desc, cell) = (tensor.desc.clone(), cells[tensor.storage.index()]);
        SlotSpec {
            desc,
            cell,
            owned,
            alias,
        }
    };
    let inputs = node.inputs.iter().zip(&node.owned_inputs);
    let outputs = node.outputs.iter().zip(&node.owned_outputs).enumerate();
    (
        inputs
            .map(|(tensor, owned)| slot(tensor, *owned, None))
            .collect(),
        outputs
            .map(|(output, (tensor, owned))| {
                let pair = node.in_place.iter().find(|pair| pair.output == output);
                let alias = pair.map(|pair| match pair.aliasing {
                    Aliasing::View => Alias::View,
                    Aliasing::Overwrite => Alias::Overwrite,
                });
                slot(tensor, *owned, alias)
            })
            .collect(),
    )
}

/// Binds every node's slots once, so that a plan that does not hold together is found before
/// the previous graph is touched.
fn check_binding(plan: &Plan) -> Result<(), CompileErrors> {
    let numbers = cell_numbers(plan);
    let mut banks: Vec<CellBank> = banks(plan).collect();
    for node in &plan.nodes {
        let (inputs, outputs) = slots(plan, &numbers, node);
        let bound = match (node.task, node.producer, node.consumer) {
            (TaskKind::Sync, Some(section), _) => {
                banks[section.index()].bind(inputs, outputs).map(drop)
            }
            (TaskKind::Sync, None, _) => Ok(()),
            (TaskKind::Async, producer, consumer) => {
                let push = producer.map_or(Ok(()), |section| {
                    banks[section.index()].bind(inputs, vec![]).map(drop)
                });
                let pop = consumer.map_or(Ok(()), |section| {
                    banks[section.index()].bind(vec![], outputs).map(drop)
                });
                push.and(pop)
            }
        };
        bound.map_err(|cause| CompileError::Bug {
            node: node.name.clone(),
            cause,
        })?;
    }
    Ok(())
}

struct Parts {
    streams: Vec<Option<Arc<dyn Stream>>>,
    memory: Vec<Option<Source>>,
    tasks: Vec<Option<AnyTask>>,
    sides: Vec<Sides>,
    old: Old,
}

/// Puts the parts together. What can fail here has been tried before.
fn assemble(
    plan: Plan,
    resources: &Resources,
    parts: Parts,
) -> Result<CompiledGraph, CompileError> {
    let Parts {
        streams,
        memory,
        tasks,
        sides,
        mut old,
    } = parts;
    let numbers = cell_numbers(&plan);
    let mut sections: Vec<Section> = streams
        .into_iter()
        .zip(banks(&plan))
        .map(|(stream, bank)| Section {
            bank,
            sync: Vec::new(),
            pops: Vec::new(),
            pushes: Vec::new(),
            stream,
            memory: HashMap::new(),
        })
        .collect();
    for (index, source) in memory.into_iter().enumerate() {
        let (Some(source), Some(key), Some(section)) = (
            source,
            memory_key(&plan, index),
            plan.storages[index].section,
        ) else {
            continue;
        };
        let region = match source {
            Source::New(region) => Some(region),
            Source::Previous(key) => old.memory.remove(&key),
        };
        let section = &mut sections[section.index()];
        let cell = section.bank.cell_mut(numbers[index]);
        if let (Some(cell), Some(region)) = (cell, region) {
            let node = key.node.clone();
            cell.publish(region).map_err(|refused| CompileError::Bug {
                node,
                cause: crate::storage::ContractError::Publish {
                    slot: crate::storage::Slot::Output(key.output),
                    refusal: refused.refusal,
                },
            })?;
            section.memory.insert(key, numbers[index]);
        }
    }
    let mut ports: Vec<Option<NodePorts>> = Vec::with_capacity(plan.nodes.len());
    for ((node, task), sides) in plan.nodes.iter().zip(tasks).zip(sides) {
        let made = match task {
            None => NodePorts::default(),
            Some(task) => connect(&plan, resources, &numbers, &mut sections, node, task, sides)
                .map_err(|cause| CompileError::Bug {
                    node: node.name.clone(),
                    cause,
                })?,
        };
        ports.push(Some(made));
    }
    for (index, section) in plan.sections.iter().enumerate() {
        let built = &mut sections[index];
        let mut take = |nodes: &[NodeId], which: fn(&mut NodePorts) -> Option<Port>| {
            nodes
                .iter()
                .filter_map(|node| Some((*node, which(ports[node.index()].as_mut()?)?)))
                .collect::<Vec<_>>()
        };
        built.sync = take(&section.sync, |ports| ports.push.take());
        built.pops = take(&section.pops, |ports| ports.pop.take());
        built.pushes = take(&section.pushes, |ports| ports.push.take());
    }
    Ok(CompiledGraph {
        plan: Arc::new(plan),
        sections,
        cells: numbers,
    })
}

/// An updated task on its way into the ports of its predecessor.
enum Renewed {
    Sync(Option<(Box<dyn ISyncTask>, Sides)>),
    Async {
        task: Arc<dyn IAsyncTask>,
        poison: Poison,
        producer: Option<ProducerSide>,
        consumer: Option<ConsumerSide>,
    },
}

impl Renewed {
    fn new(task: LooseTask, sides: Sides) -> Self {
        match task {
            LooseTask::Sync(task) => Self::Sync(Some((task, sides))),
            LooseTask::Async(task) => {
                let (producer, consumer) = sides.into_parts();
                Self::Async {
                    task,
                    poison: Poison::default(),
                    producer: Some(producer),
                    consumer: Some(consumer),
                }
            }
        }
    }

    /// Puts the task, or the side of it that the port is for, into the port.
    fn put_into(&mut self, port: &mut Port) {
        match self {
            Self::Sync(task) => {
                if let Some((task, sides)) = task.take() {
                    port.renew_sync(task, sides.into_parts());
                }
            }
            Self::Async {
                task,
                poison,
                producer,
                consumer,
            } => {
                let (task, poison) = (Arc::clone(task), poison.clone());
                if port.is_consumer() {
                    if let Some(side) = consumer.take() {
                        port.renew_consumer(task, poison, side);
                        if port.has_other_side()
                            && let Some(side) = producer.take()
                        {
                            port.keep_other_side(OtherSide::Producer(side));
                        }
                    }
                } else if let Some(side) = producer.take() {
                    port.renew_producer(task, poison, side);
                    if port.has_other_side()
                        && let Some(side) = consumer.take()
                    {
                        port.keep_other_side(OtherSide::Consumer(side));
                    }
                }
            }
        }
    }
}

/// The ports of a node: a sync node has the first only.
#[derive(Default)]
struct NodePorts {
    push: Option<Port>,
    pop: Option<Port>,
}

fn connect(
    plan: &Plan,
    resources: &Resources,
    numbers: &[usize],
    sections: &mut [Section],
    node: &PlanNode,
    task: AnyTask,
    sides: Sides,
) -> Result<NodePorts, crate::storage::ContractError> {
    let (inputs, outputs) = slots(plan, numbers, node);
    let ctx = |section: &Section| {
        NodeCtx::new(
            node.name.as_str(),
            resources.memory.clone(),
            section.stream.clone(),
        )
    };
    let mut ports = NodePorts::default();
    match task.loose() {
        Some(LooseTask::Sync(task)) => {
            if let Some(section) = node.producer {
                let section = &mut sections[section.index()];
                let ctx = ctx(section);
                let sides = sides.into_parts();
                let mut port = Port::sync(task, sides, ctx, &mut section.bank, inputs, outputs)?;
                port.allow_skip(node.may_skip);
                ports.push = Some(port);
            }
        }
        Some(LooseTask::Async(task)) => {
            let (producer, consumer) = sides.into_parts();
            let poison = Poison::default();
            let mut other = None;
            if let Some(section) = node.producer {
                let section = &mut sections[section.index()];
                let ctx = ctx(section);
                let task = Arc::clone(&task);
                ports.push = Some(Port::producer(
                    task,
                    poison.clone(),
                    producer,
                    ctx,
                    &mut section.bank,
                    inputs,
                )?);
            } else {
                other = Some(OtherSide::Producer(producer));
            }
            if let Some(section) = node.consumer {
                let section = &mut sections[section.index()];
                let ctx = ctx(section);
                ports.pop = Some(Port::consumer(
                    task,
                    poison,
                    consumer,
                    ctx,
                    &mut section.bank,
                    outputs,
                )?);
            } else {
                other = Some(OtherSide::Consumer(consumer));
            }
            if let (Some(port), Some(other)) = (ports.push.as_mut().or(ports.pop.as_mut()), other) {
                port.keep_other_side(other);
            }
        }
        None => {}
    }
    Ok(ports)
}

impl CompiledGraph {
    /// The graph for an equal plan: memory, streams and ports stay as they are, and every task
    /// is updated.
    fn renew(mut self, ir: &Ir, resources: &Resources) -> Result<Self, CompileErrors> {
        let streams: Vec<_> = self.streams().map(Option::<&_>::cloned).collect();
        let mut old: Vec<Option<AnyTask>> = Vec::new();
        old.resize_with(self.plan.nodes.len(), || None);
        for section in &mut self.sections {
            let ports = section
                .sync
                .iter_mut()
                .chain(&mut section.pops)
                .chain(&mut section.pushes);
            for (node, port) in ports {
                if self.plan.nodes[node.index()].inserted.is_none() {
                    // Of an async task, which is in two ports, one handle is left.
                    old[node.index()] = None;
                    old[node.index()] = port.take_task(&mut section.bank);
                }
            }
        }
        let mut errors = Vec::new();
        let mut new: Vec<Option<Renewed>> = Vec::with_capacity(old.len());
        for (index, old) in old.into_iter().enumerate() {
            if self.plan.nodes[index].inserted.is_some() {
                new.push(None);
                continue;
            }
            let sides = Sides::new();
            match make(ir, &self.plan, resources, index, &sides, &streams, old) {
                Ok(task) => new.push(task.loose().map(|task| Renewed::new(task, sides))),
                Err(error) => {
                    new.push(None);
                    errors.push(error);
                }
            }
        }
        CompileErrors::check(errors)?;
        for section in &mut self.sections {
            let ports = section
                .sync
                .iter_mut()
                .chain(&mut section.pops)
                .chain(&mut section.pushes);
            for (node, port) in ports {
                if let Some(task) = &mut new[node.index()] {
                    task.put_into(port);
                }
            }
        }
        Ok(self)
    }

    /// Takes tasks and memory out.
    fn take_apart(self) -> Old {
        let mut old = Old::default();
        for mut section in self.sections {
            for (key, cell) in section.memory.drain() {
                if let Some(region) = section.bank.cell_mut(cell).and_then(Storage::retract) {
                    old.memory.insert(key, region);
                }
            }
            let ports = section
                .sync
                .into_iter()
                .chain(section.pops)
                .chain(section.pushes);
            for (node, mut port) in ports {
                let node = &self.plan.nodes[node.index()];
                if node.inserted.is_none() {
                    // An async task is in two ports: the second takes the place of the first,
                    // so that one handle is left.
                    old.tasks.remove(&node.name);
                    if let Some(task) = port.take_task(&mut section.bank) {
                        old.tasks.insert(node.name.clone(), task);
                    }
                }
            }
        }
        old
    }
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
