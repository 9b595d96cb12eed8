//! Building and rebuilding: memory, streams, and who is created or updated.

use serde_json::json;

use super::*;
use crate::compiler::{CompileErrors, Compiler};
use crate::graph::{EdgeSpec, GraphSpec, InputSpec, NodeSpec, OutputSpec};
use crate::registry::Registry;
use crate::storage::{RegionSlot, TView};
use crate::sync::Mutex;
use crate::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, IAsyncTask, IAsyncTaskFactory, ISyncTask,
    ISyncTaskFactory, InferResult, OpResult, ReleaseCtx, SyncCtx, TaskInfo,
};
use crate::tensor::DType;
use crate::testkit::{FakeDevice, Ledger};

/// What factories were asked to do, as `create name` and `update name`.
type Log = Arc<Mutex<Vec<String>>>;

/// A sync task: as many outputs of F32[4] as it has inputs, or one for a source. The setting
/// `fail` makes `create` and `update` fail, `device` puts its tensors on a device.
struct Pass {
    log: Log,
    location: MemLoc,
}

struct PassTask {
    updates: u32,
}

impl ISyncTask for PassTask {
    fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::Ok)
    }
}

impl Pass {
    fn note(&self, what: &str, request: &TaskRequest<'_>, ctx: &CreateCtx<'_>) -> TaskResult<()> {
        let stream = ctx
            .stream()
            .map_or(String::new(), |stream| format!(" on {:?}", stream.key()));
        self.log
            .lock()
            .push(format!("{what} {}{stream}", request.node()));
        match request.raw_settings().get("fail") {
            Some(_) => Err(TaskError::other("no such luck")),
            None => Ok(()),
        }
    }
}

impl ISyncTaskFactory for Pass {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Passes on.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let extent = request
            .raw_settings()
            .get("extent")
            .and_then(|n| n.as_u64())
            .unwrap_or(4);
        let desc = TDesc::new([extent as usize], DType::F32, self.location)?;
        let outputs = request.inputs().len().max(1);
        Ok(InferResult::sync(
            request.inputs().to_vec(),
            vec![desc; outputs],
        ))
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        self.note("create", request, ctx)?;
        Ok(Box::new(PassTask { updates: 0 }))
    }

    fn update(
        &self,
        old: Box<dyn ISyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        self.note("update", request, ctx)?;
        let updates = old.take::<PassTask>().map_or(0, |old| old.updates);
        Ok(Box::new(PassTask {
            updates: updates + 1,
        }))
    }
}

/// An owning queue of one frame.
struct Queue {
    log: Log,
}

struct QueueTask {
    slot: RegionSlot,
}

impl IAsyncTask for QueueTask {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| self.slot.acquire(side))
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let frame = ctx.take_input(0)?;
        self.slot.commit(ctx.side, frame)?;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        match self.slot.pop(ctx.side)? {
            Some(frame) => ctx.publish(0, frame).map(|()| OpResult::Ok),
            None => Ok(OpResult::NotReady),
        }
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let frame = ctx.take_back(index)?;
        Ok(self.slot.release(ctx.side, frame)?)
    }
}

impl IAsyncTaskFactory for Queue {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Holds one frame.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        let [input] = request.exactly::<1>()?;
        let frame = input.normalized();
        Ok(InferResult::asynchronous([frame.clone()], [frame])
            .owning_inputs()
            .owning_outputs())
    }

    fn create(
        &self,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let streams = (ctx.producer_stream(), ctx.consumer_stream());
        let text = match streams {
            (Some(before), Some(after)) => format!(" {:?} {:?}", before.key(), after.key()),
            _ => String::new(),
        };
        self.log
            .lock()
            .push(format!("create {}{text}", request.node()));
        let region = ctx.region_for(request.input(0)?)?;
        Ok(Box::new(QueueTask {
            slot: RegionSlot::new(ctx.sides(), region)?,
        }))
    }

    fn update(
        &self,
        old: Arc<dyn IAsyncTask>,
        request: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        self.log.lock().push(format!("update {}", request.node()));
        let mut old = old
            .take::<QueueTask>()
            .ok_or_else(|| TaskError::other("no queue"))?;
        old.slot.rebind(ctx.sides());
        Ok(Box::new(old))
    }
}

struct World {
    registry: Registry,
    log: Log,
    device: FakeDevice,
    ledger: Ledger,
}

impl World {
    fn new() -> Self {
        let (log, device) = (Log::default(), FakeDevice::new(0));
        let mut registry = Registry::new();
        let pass = |location| Pass {
            log: Arc::clone(&log),
            location,
        };
        registry.register_sync("Pass", pass(MemLoc::Host)).unwrap();
        registry.register_sync("Other", pass(MemLoc::Host)).unwrap();
        registry
            .register_sync("Upload", pass(device.location()))
            .unwrap();
        registry
            .register_async(
                "Queue",
                Queue {
                    log: Arc::clone(&log),
                },
            )
            .unwrap();
        let ledger = Ledger::new(Arc::new(crate::memory::HostProvider));
        Self {
            registry,
            log,
            device,
            ledger,
        }
    }

    fn compiler(&self) -> Compiler<'_> {
        let memory = Memory::none()
            .with(self.ledger.provider())
            .with(self.device.provider());
        Compiler::new(&self.registry)
            .memory(memory)
            .device(Arc::new(self.device.clone()))
    }

    fn took(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock())
    }
}

/// A chain of nodes, each with its kind.
fn chain(nodes: &[(&str, &str)]) -> GraphSpec {
    let mut graph = GraphSpec::default();
    for (name, kind) in nodes {
        let node = graph.add(NodeSpec::new(*name, *kind));
        if node.index() > 0 {
            let before = NodeId::new(u32::try_from(node.index() - 1).unwrap());
            graph.edges.push(EdgeSpec::new((before, 0), (node, 0)));
        }
    }
    graph
}

fn addresses(graph: &mut CompiledGraph) -> Vec<Option<crate::memory::Address>> {
    (0..graph.plan().tensors.len())
        .map(|tensor| graph.address(TensorId::new(u32::try_from(tensor).unwrap())))
        .collect()
}

#[test]
fn c_01_an_empty_graph_compiles() {
    let world = World::new();
    let graph = world.compiler().compile(&GraphSpec::default()).unwrap();
    assert!(graph.plan().nodes.is_empty());
    assert!(graph.plan().sections.is_empty());
    assert!(world.took().is_empty());
}

#[test]
fn c_02_a_linear_graph_has_three_tasks_and_one_section() {
    let world = World::new();
    let spec = chain(&[("a", "Pass"), ("b", "Pass"), ("c", "Pass")]);
    let graph = world.compiler().compile(&spec).unwrap();
    assert_eq!(world.took(), ["create a", "create b", "create c"]);
    assert_eq!(graph.sections.len(), 1);
    assert_eq!(graph.sections[0].sync.len(), 3);
}

#[test]
fn c_28_a_storage_with_an_owner_gets_a_cell_and_no_memory() {
    let world = World::new();
    let spec = chain(&[("source", "Pass"), ("queue", "Queue"), ("sink", "Pass")]);
    let mut graph = world.compiler().compile(&spec).unwrap();
    // Of the tensors only the sink's output is the compiler's; the queue has one region.
    assert_eq!(world.ledger.counts().allocations, 2);
    let addresses = addresses(&mut graph);
    assert_eq!(
        addresses.iter().filter(|address| address.is_some()).count(),
        1
    );
}

#[test]
fn c_29_each_unowned_storage_has_a_region_of_its_own() {
    let world = World::new();
    let spec = chain(&[("a", "Pass"), ("b", "Pass"), ("c", "Pass")]);
    let mut graph = world.compiler().compile(&spec).unwrap();
    let mut addresses: Vec<_> = addresses(&mut graph).into_iter().flatten().collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 3);
}

#[test]
fn c_30_recompiling_gives_an_equal_plan_the_same_memory() {
    let world = World::new();
    let spec = chain(&[("a", "Pass"), ("b", "Pass"), ("c", "Pass")]);
    let mut first = world.compiler().compile(&spec).unwrap();
    let before = addresses(&mut first);
    let plan = first.plan().clone();
    let allocations = world.ledger.counts().allocations;
    let mut second = world.compiler().recompile(&spec, first).unwrap();
    assert_eq!(*second.plan(), plan);
    assert_eq!(addresses(&mut second), before);
    assert_eq!(world.ledger.counts().allocations, allocations);
}

#[test]
fn memory_that_no_longer_fits_is_given_back() {
    let world = World::new();
    let mut spec = chain(&[("a", "Pass"), ("b", "Pass")]);
    let first = world.compiler().compile(&spec).unwrap();
    spec.nodes[1].settings = json!({ "extent": 400 });
    let second = world.compiler().recompile(&spec, first).unwrap();
    assert_eq!(world.ledger.counts().live_blocks, 2);
    drop(second);
    assert_eq!(
        (
            world.ledger.counts().live_blocks,
            world.ledger.counts().faults
        ),
        (0, 0)
    );
}

#[test]
fn c_33_streams_are_reused_and_the_rest_made_or_dropped() {
    let world = World::new();
    let two = chain(&[("a", "Upload"), ("q", "Queue"), ("b", "Upload")]);
    let first = world.compiler().compile(&two).unwrap();
    let keys = |graph: &CompiledGraph| -> Vec<_> {
        graph
            .streams()
            .map(|stream| stream.map(|stream| stream.key()))
            .collect()
    };
    let before = keys(&first);
    // c_52: one stream a section with device nodes, all different.
    assert_eq!(before.len(), 2);
    assert!(before[0].is_some() && before[0] != before[1]);
    let second = world.compiler().recompile(&two, first).unwrap();
    assert_eq!(keys(&second), before);
    let one = world
        .compiler()
        .recompile(&chain(&[("a", "Upload")]), second)
        .unwrap();
    assert_eq!(keys(&one), before[..1]);
    let host = world
        .compiler()
        .recompile(&chain(&[("a", "Pass")]), one)
        .unwrap();
    assert_eq!(keys(&host), [None]);
}

#[test]
fn c_53_a_task_is_created_with_the_streams_of_its_sections() {
    let world = World::new();
    let spec = chain(&[("a", "Upload"), ("q", "Queue"), ("z", "Upload")]);
    let graph = world.compiler().compile(&spec).unwrap();
    let keys: Vec<_> = graph
        .streams()
        .flatten()
        .map(|stream| stream.key())
        .collect();
    assert_eq!(
        world.took(),
        [
            format!("create a on {:?}", keys[0]),
            format!("create q {:?} {:?}", keys[0], keys[1]),
            format!("create z on {:?}", keys[1]),
        ]
    );
}

#[test]
fn c_34_the_same_name_and_kind_is_updated_and_not_created() {
    let world = World::new();
    let spec = chain(&[("a", "Pass"), ("q", "Queue"), ("b", "Pass")]);
    let mut graph = world.compiler().compile(&spec).unwrap();
    world.took();
    for updates in 1..3 {
        graph = world.compiler().recompile(&spec, graph).unwrap();
        assert_eq!(world.took(), ["update a", "update q", "update b"]);
        assert_eq!(
            world.ledger.counts().live_blocks,
            2,
            "after {updates} updates"
        );
    }
}

#[test]
fn c_35_a_new_name_or_kind_is_created() {
    let world = World::new();
    let graph = world
        .compiler()
        .compile(&chain(&[("a", "Pass"), ("b", "Pass")]))
        .unwrap();
    world.took();
    let spec = chain(&[("a", "Other"), ("c", "Pass")]);
    let _graph = world.compiler().recompile(&spec, graph).unwrap();
    assert_eq!(world.took(), ["create a", "create c"]);
}

fn only(errors: &CompileErrors) -> String {
    assert_eq!(errors.len(), 1, "{errors}");
    errors.to_string()
}

#[test]
fn cp4_a_failure_before_the_first_update_gives_the_previous_graph_back() {
    let world = World::new();
    let spec = chain(&[("a", "Pass"), ("q", "Queue"), ("b", "Pass")]);
    let mut graph = world.compiler().compile(&spec).unwrap();
    let before = addresses(&mut graph);
    world.took();

    let unknown = chain(&[("a", "Pass"), ("b", "Pas")]);
    let error = world.compiler().recompile(&unknown, graph).unwrap_err();
    assert_eq!(
        only(&error.errors),
        "nodes.b.type: no task of kind `Pas` is registered: did you mean `Pass`?"
    );

    // A node that cannot be created: `a` is not updated first.
    let mut failing = chain(&[("a", "Pass"), ("new", "Pass")]);
    failing.nodes[1].settings = json!({ "fail": true });
    let error = world
        .compiler()
        .recompile(&failing, error.previous.unwrap())
        .unwrap_err();
    assert_eq!(
        only(&error.errors),
        "nodes.new: create: the task failed: no such luck"
    );
    assert_eq!(world.took(), ["create new"]);

    // Memory that cannot be had.
    let mut large = spec.clone();
    large.nodes[2].settings = json!({ "extent": 1_u64 << 50 });
    let error = world
        .compiler()
        .recompile(&large, error.previous.unwrap())
        .unwrap_err();
    assert!(only(&error.errors).starts_with("nodes.b: output 0: out of Host memory"));

    let mut graph = error.previous.unwrap();
    assert_eq!(addresses(&mut graph), before);
    world.compiler().recompile(&spec, graph).unwrap();
    assert_eq!(world.took(), ["update a", "update q", "update b"]);
}

#[test]
fn a_failed_update_takes_the_previous_graph_with_it_and_leaks_nothing() {
    let world = World::new();
    let mut spec = chain(&[("a", "Pass"), ("q", "Queue"), ("b", "Pass")]);
    let graph = world.compiler().compile(&spec).unwrap();
    spec.nodes[0].settings = json!({ "fail": true });
    let error = world.compiler().recompile(&spec, graph).unwrap_err();
    assert_eq!(
        only(&error.errors),
        "nodes.a: update: the task failed: no such luck"
    );
    assert!(error.previous.is_none());
    assert_eq!(
        (
            world.ledger.counts().live_blocks,
            world.ledger.counts().faults
        ),
        (0, 0)
    );
}

#[test]
fn a_device_without_a_backend_is_an_error_only_when_it_is_built() {
    let world = World::new();
    let compiler = Compiler::new(&world.registry);
    let spec = chain(&[("a", "Upload")]);
    assert_eq!(
        compiler.plan(&spec).unwrap().sections[0].device,
        Some(MemLoc::Device(0))
    );
    let errors = compiler.compile(&spec).unwrap_err().to_string();
    assert_eq!(
        errors,
        "nodes.a: output 0: no memory provider for Device: this pipeline has Host; add one with \
         Memory::with\n\
         nodes.a: there is no backend for Device: add one with `Compiler::device`"
    );
}

#[test]
fn a_panic_in_create_is_an_error_of_that_node() {
    struct Panics;
    impl ISyncTaskFactory for Panics {
        fn describe(&self) -> TaskInfo {
            TaskInfo::new("Panics.")
        }
        fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
            Ok(InferResult::sync([], []))
        }
        fn create(
            &self,
            _: &TaskRequest<'_>,
            _: &mut CreateCtx<'_>,
        ) -> TaskResult<Box<dyn ISyncTask>> {
            panic!("out of ideas")
        }
    }
    let mut registry = Registry::new();
    registry.register_sync("Panics", Panics).unwrap();
    let errors = Compiler::new(&registry)
        .compile(&chain(&[("p", "Panics")]))
        .unwrap_err();
    assert_eq!(
        errors.to_string(),
        "nodes.p: create: the task panicked: out of ideas"
    );
}

#[test]
fn nodes_of_subgraphs_are_planned_under_their_full_names() {
    let world = World::new();
    let (spec, _) = GraphSpec::from_json_str(
        r#"{ "nodes": { "src": { "type": "Pass" }, "left": { "type": "graph:twice" } },
             "edges": [ { "from": "src", "to": "left", "out": 0, "in": 0 } ],
             "outputs": { "y": { "from": "left", "out": 0 } },
             "graphs": { "twice": {
                 "nodes": { "a": { "type": "Pass" }, "b": { "type": "Pass" } },
                 "edges": [ { "from": "a", "to": "b", "out": 0, "in": 0 } ],
                 "inputs": { "x": { "to": "a", "in": 0 } },
                 "outputs": { "y": { "from": "b", "out": 0 } } } } }"#,
    )
    .unwrap();
    let graph = world.compiler().compile(&spec).unwrap();
    let names: Vec<_> = graph
        .plan()
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .collect();
    assert_eq!(names, ["left/a", "left/b", "src"]);
    // No bytes are moved at the border, and the roles are those of the flat graph.
    assert_eq!(graph.plan().copies().count(), 0);
    assert_eq!(
        graph
            .plan()
            .storages
            .iter()
            .filter(|s| s.role == Role::Io)
            .count(),
        1
    );

    let mut wrong = spec.clone();
    if let Some(inner) = wrong.graphs.get_mut("twice") {
        inner.edges[0].output = 3;
    }
    assert_eq!(
        only(&world.compiler().plan(&wrong).unwrap_err()),
        "graphs.twice.edges[0]: found output 3 of `left/a`, which has 1"
    );
    wrong.nodes[0].kind = "graph:thrice".to_owned();
    assert_eq!(
        only(&world.compiler().plan(&wrong).unwrap_err()),
        "nodes.left.type: found `graph:thrice`, expected the name of a subgraph there is: did you \
         mean `twice`?"
    );
}

#[test]
fn cp3_every_cell_but_those_of_owners_and_graph_inputs_has_a_region() {
    let world = World::new();
    let mut spec = chain(&[("a", "Pass"), ("q", "Queue"), ("b", "Pass")]);
    let input = InputSpec::new(NodeId::new(0), 0).with_desc(TDesc::host::<f32>([4]).unwrap());
    spec.inputs.insert("frames".to_owned(), input);
    spec.outputs
        .insert("out".to_owned(), OutputSpec::new(NodeId::new(2), 0));
    let mut graph = world.compiler().compile(&spec).unwrap();
    let plan = graph.plan().clone();
    let mut seen = [0, 0];
    for storage in &plan.storages {
        let allocated = matches!(storage.role, Role::Execution | Role::Io);
        for tensor in &storage.tensors {
            assert_eq!(graph.address(*tensor).is_some(), allocated, "{plan}");
        }
        seen[usize::from(allocated)] += 1;
    }
    // The graph input and the queue's two slots; the output.
    assert_eq!(seen, [3, 1]);
}
