//! Cases of validation and inference: C-01 to C-14, I-08, I-10.

use serde_json::json;

use super::kit::{self, Look, errors, graph, layout, plan, refused, registry};
use crate::compiler::{CompileError, Compiler};
use crate::graph::{EdgeSpec, GraphSpec, InputSpec, NodeSpec, OutputSpec};
use crate::ids::NodeId;
use crate::task::{Placement, TaskKind};

#[test]
fn c_01_an_empty_graph_compiles() {
    let plan = plan("");
    assert!(plan.nodes.is_empty() && plan.sections.is_empty() && plan.tensors.is_empty());
}

#[test]
fn c_02_a_linear_graph_of_three_nodes() {
    let plan = plan(
        "a = S
         b = S a
         c = S[out=0] b",
    );
    assert_eq!(plan.nodes.len(), 3);
    assert_eq!(plan.tensors.len(), 2);
    assert_eq!(plan.cut(), ["> a b c >"]);
    let readers: Vec<usize> = plan
        .tensors
        .iter()
        .map(|tensor| tensor.readers.len())
        .collect();
    assert_eq!(readers, [1, 1], "two edges");
}

#[test]
fn c_03_a_duplicate_name_is_rejected() {
    assert_eq!(
        errors("a = S\n b = S a\n a = S\n a = S"),
        "nodes.a: 3 nodes have this name, every node needs one of its own"
    );
}

#[test]
fn c_04_an_unknown_kind_is_rejected() {
    assert_eq!(
        errors("a = Zzzzzz"),
        "nodes.a.type: no task of kind `Zzzzzz` is registered"
    );
    assert_eq!(
        errors("a = ds"),
        "nodes.a.type: no task of kind `ds` is registered: did you mean `DS`?"
    );
}

#[test]
fn c_05_two_edges_into_one_input_are_rejected() {
    let mut graph = graph("a = S\n b = S\n sum = S a");
    let slot = (NodeId::new(2), 0);
    graph.edges.push(EdgeSpec::new((NodeId::new(1), 0), slot));
    assert_eq!(
        refused(&graph).to_string(),
        "edges[1]: input 0 of `sum` is connected already, by edges[0]"
    );
}

#[test]
fn c_05_an_edge_and_a_graph_input_into_one_input_are_rejected() {
    let mut graph = graph("a = S\n sum = S a");
    let input = InputSpec::new(NodeId::new(1), 0).with_desc(layout("F32:4"));
    graph.inputs.insert("x".to_owned(), input);
    assert_eq!(
        refused(&graph).to_string(),
        "inputs.x: input 0 of `sum` is connected already, by edges[0]"
    );
}

#[test]
fn c_06_names_with_a_colon_do_not_clash() {
    let plan = plan(
        "a = S
         a:1 = S
         b = S[ins=2] a a:1
         b:0 = S[ins=2] a:1 a",
    );
    assert_eq!(
        plan.look("b:0").1.inputs,
        [plan.tensor("a:1"), plan.tensor("a")]
    );
    assert_eq!(
        plan.look("b").1.inputs,
        [plan.tensor("a"), plan.tensor("a:1")]
    );
}

#[test]
fn c_07_a_cycle_is_rejected() {
    assert_eq!(
        errors("src = S\n a = S src c\n b = S a\n c = S b\n d = S c"),
        "nodes.a: the graph has a cycle: `a` -> `b` -> `c` -> `a`"
    );
}

#[test]
fn c_07_a_self_edge_is_rejected() {
    assert_eq!(
        errors("a = S a"),
        "nodes.a: the graph has a cycle: `a` -> `a`"
    );
}

#[test]
fn c_07_a_queue_does_not_break_a_cycle() {
    assert_eq!(
        errors("a = S q\n q = Q a"),
        "nodes.a: the graph has a cycle: `a` -> `q` -> `a`"
    );
}

#[test]
fn c_07_every_cycle_is_reported() {
    assert_eq!(
        errors("a = S b\n b = S a\n c = S b\n d = S d c\n e = S f\n f = S e"),
        "nodes.a: the graph has a cycle: `a` -> `b` -> `a`\n\
         nodes.d: the graph has a cycle: `d` -> `d`\n\
         nodes.e: the graph has a cycle: `e` -> `f` -> `e`"
    );
}

#[test]
fn c_08_an_output_beyond_the_factorys_is_rejected() {
    assert_eq!(
        errors("a = S\n b = S[out=0] a\n c = S a.1 b"),
        "edges[1]: found output 1 of `a`, which has 1\n\
         edges[2]: found output 0 of `b`, which has 0"
    );
    assert_eq!(
        errors("a = S[out=2]\n > image a.2"),
        "outputs.image: found output 2 of `a`, which has 2"
    );
}

#[test]
fn c_09_inputs_must_be_numbered_without_gaps() {
    let mut graph = graph("a = S\n b = S");
    let (a, b) = (NodeId::new(0), NodeId::new(1));
    graph.edges.push(EdgeSpec::new((a, 0), (b, 1)));
    assert_eq!(
        refused(&graph).to_string(),
        "edges[0]: input 1 of `b` is out of bounds: the only connection must be number 0, and \
         input 0 is unconnected"
    );
    graph.edges.push(EdgeSpec::new((a, 0), (b, 0)));
    let last = InputSpec::new(b, usize::MAX).with_desc(layout("F32:4"));
    graph.inputs.insert("x".to_owned(), last);
    assert_eq!(
        refused(&graph).to_string(),
        format!(
            "inputs.x: input {} of `b` is out of bounds: 3 connections must be numbered 0 to 2, \
             and input 2 is unconnected",
            usize::MAX
        )
    );
}

#[test]
fn c_10_inference_sees_the_producers_layouts_in_slot_order() {
    let mut graph = graph(
        "late = S[out=U8:3]
         early = S[out=F32:2|U16:5]
         join = S[in=U16:5|U8:3|F32:2 out=0]",
    );
    let [late, early, join] = [0, 1, 2].map(NodeId::new);
    // Not in the order of the slots.
    graph.edges.push(EdgeSpec::new((early, 0), (join, 2)));
    graph.edges.push(EdgeSpec::new((early, 1), (join, 0)));
    graph.edges.push(EdgeSpec::new((late, 0), (join, 1)));
    let registry = registry();
    let plan = Compiler::new(&registry).plan(&graph).unwrap();
    let join = plan.look("join").1;
    assert_eq!(
        join.inputs,
        [
            plan.tensor("early.1"),
            plan.tensor("late"),
            plan.tensor("early")
        ]
    );
}

#[test]
fn c_10_nodes_are_visited_in_dependency_order() {
    // `c` is named first and needs `b`, whose layout comes from `a`.
    let plan = plan(
        "c = S[in=U8:7] b
         b = S a
         a = S[out=U8:7]",
    );
    assert_eq!(plan.cut(), ["> a b c >"]);
    assert_eq!(plan.tensors[plan.tensor("c").index()].desc, layout("U8:7"));
}

#[test]
fn c_12_a_factorys_inference_error_is_the_compilations() {
    assert_eq!(
        errors("a = S[fail=no-such-mode]\n b = S a\n c = S[ins=1]"),
        "nodes.a: the task failed: no-such-mode\n\
         nodes.c: found 0 inputs, expected 1",
        "and what depends on it is not reported as well"
    );
}

#[test]
fn c_12_a_panic_in_inference_is_an_error() {
    assert_eq!(
        errors("a = S[panic=oh-no]"),
        "nodes.a: the task panicked: oh-no"
    );
}

#[test]
fn c_14_a_duplicate_name_is_reported_before_a_cycle() {
    assert_eq!(
        errors("a = S b\n b = S a\n b = S"),
        "nodes.b: 2 nodes have this name, every node needs one of its own"
    );
}

#[test]
fn i_08_flags_must_match_the_slots() {
    assert_eq!(
        errors("a = S\n b = S[flags] a"),
        "nodes.b: the factory's inference contradicts itself: `owned_inputs` has 0 flags, expected \
         1: one for each descriptor"
    );
    assert_eq!(
        errors("a = S\n b = S[in=F32:4|F32:4] a"),
        "nodes.b: the factory's inference contradicts itself: found 2 input descriptors, expected \
         one for each of the 1 inputs"
    );
}

#[test]
fn i_10_the_kind_inferred_must_be_the_one_registered() {
    assert_eq!(
        errors("a = SA"),
        "nodes.a: kind `SA` is registered as Sync, but its factory inferred Async"
    );
}

#[test]
fn in_place_pairs_must_hold_together() {
    for (settings, problem) in [
        (
            "over=0:0 view=0:1 out=2",
            "input 0 is in place with output 1 and output 0, and one of them overwrites it",
        ),
        (
            "over=0:0,0:1 out=2",
            "input 0 is in place with output 0 and output 1, and one of them overwrites it",
        ),
        (
            "over=0:0 own_in=0",
            "input 0 is owned and in place: an owned slot's storage is the task's own",
        ),
        (
            "view=0:0 own_in=0",
            "input 0 is owned and in place: an owned slot's storage is the task's own",
        ),
        (
            "over=0:0 own_out=0",
            "output 0 is owned and in place: an owned slot's storage is the task's own",
        ),
        (
            "over=0:0 out=F32:3",
            "output 0 is in place with input 0: found F32[3]@Host, expected the bytes of F32[4]@Host",
        ),
        (
            "view=0:0 out=F32:2+12",
            "output 0 is in place with input 0: found F32[2]@Host offset 12, expected a view within \
             F32[4]@Host",
        ),
        (
            "view=0:0 out=F32:0+20",
            "output 0 is in place with input 0: found F32[0]@Host offset 20, expected a view within \
             F32[4]@Host",
        ),
    ] {
        assert_eq!(
            errors(&format!("a = S\n b = S[{settings}] a")),
            format!("nodes.b: the factory's inference contradicts itself: {problem}"),
            "{settings}"
        );
    }
}

#[test]
fn a_factory_gets_the_tensor_that_it_wants() {
    // Borrowed: offset and strides may differ, all else may not.
    let strided = "a = S[out=F32:2,2+64~32,4]\n";
    plan(&format!("{strided} b = S[in=F32:2,2] a"));
    for (settings, found) in [
        ("in=F32:4", "F32[2,2]@Host"),
        ("in=U32:2,2", "F32[2,2]@Host"),
        ("in=F32:2,2@HostPinned", "F32[2,2]@Host"),
    ] {
        let expected = layout(settings.strip_prefix("in=").unwrap());
        assert_eq!(
            errors(&format!("a = S[out=F32:2,2]\n b = S[{settings}] a")),
            format!("nodes.b: input 0: found {found}, expected {expected}")
        );
    }
    // Owned, or shared by an output: only the offset may differ.
    for settings in ["own_in=0", "view=0:0", "over=0:0"] {
        plan(&format!(
            "a = S[out=F32:2,2+64]\n b = S[{settings} in=F32:2,2 out=1] a"
        ));
        assert_eq!(
            errors(&format!("{strided} b = S[{settings} in=F32:2,2] a")),
            "nodes.b: input 0: found F32[2,2]@Host strides [32,4] offset 64, expected F32[2,2]@Host"
        );
    }
}

#[test]
fn cp1_a_pass_reports_all_that_it_finds_and_the_next_does_not_run() {
    let mut graph = graph(
        "a = S
         a = Nope
         b = S a
         < x
         > y b.7",
    );
    graph.add(NodeSpec::new("", "S"));
    let far = NodeId::new(9);
    graph
        .edges
        .push(EdgeSpec::new((far, 0), (NodeId::new(2), 2)));
    graph
        .edges
        .push(EdgeSpec::new((NodeId::new(0), 0), (far, 0)));
    graph
        .outputs
        .insert("z".to_owned(), OutputSpec::new(far, 0));
    let registry = registry();
    let compiler = Compiler::new(&registry).input("xx", layout("F32:4"));
    let errors = compiler.plan(&graph).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "nodes[3]: the node has no name\n\
         nodes.a: 2 nodes have this name, every node needs one of its own\n\
         nodes.a.type: no task of kind `Nope` is registered\n\
         edges[1]: there is no node number 9, the graph has 4\n\
         edges[2]: there is no node number 9, the graph has 4\n\
         edges[1]: input 2 of `b` is out of bounds: 2 connections must be numbered 0 to 1, and \
         input 1 is unconnected\n\
         outputs.z: there is no node number 9, the graph has 4\n\
         inputs.x: the layout is not known: write it as `desc`, or give it when compiling\n\
         inputs: a layout was given for `xx`, which the graph does not have: did you mean `x`?"
    );
    assert_eq!(errors.len(), 9);
}

#[test]
fn a_graph_inputs_layout_comes_from_the_description_or_the_compiler() {
    let text = "< x F32:4\n a = S <x";
    let registry = registry();
    let given = Compiler::new(&registry).input("x", layout("U8:9"));
    let layout_of = |compiler: &Compiler<'_>, text| {
        let plan = compiler.plan(&graph(text)).unwrap();
        plan.tensors[plan.inputs["x"].index()].desc.clone()
    };
    assert_eq!(layout_of(&Compiler::new(&registry), text), layout("F32:4"));
    assert_eq!(
        layout_of(&given, text),
        layout("U8:9"),
        "what is given goes first"
    );
    assert_eq!(layout_of(&given, "< x\n a = S <x"), layout("U8:9"));
}

#[test]
fn a_graph_input_that_nobody_reads_is_allowed() {
    let plan = plan("< x F32:4\n a = S");
    let tensor = &plan.tensors[plan.inputs["x"].index()];
    assert!(tensor.readers.is_empty());
    assert_eq!(plan.storages[tensor.storage.index()].section, None);
}

#[test]
fn the_memory_of_the_inputs_chooses_the_factory() {
    let mut registry = kit::registry();
    let told = |text: &str| graph(&format!("a = {text}\n b = Two a"));
    registry.register_sync("Two", kit::host_sync()).unwrap();
    registry.register_sync("Two", kit::device_sync()).unwrap();
    let compiler = Compiler::new(&registry);
    let placement = |text| compiler.plan(&told(text)).unwrap().look("b").1.placement;
    assert_eq!(placement("S"), Placement::Host);
    assert_eq!(placement("Up"), Placement::Device);
    // The only factory takes what there is.
    let plan = plan("a = Up\n b = S a");
    assert_eq!(plan.look("b").1.placement, Placement::Host);
    let plan = kit::plan("a = DS\n b = DS a");
    assert_eq!(plan.look("a").1.placement, Placement::Device);
    assert_eq!(plan.look("b").1.task, TaskKind::Sync);
}

#[test]
fn an_option_must_be_one() {
    let mut graph = GraphSpec::default();
    let option = "on_ownership_conflict".to_owned();
    graph.options.insert(option.clone(), json!("kopy"));
    let errors = refused(&graph);
    assert_eq!(
        errors.to_string(),
        "options.on_ownership_conflict: found \"kopy\", expected \"copy\" or \"error\""
    );
    assert!(matches!(
        errors.iter().next(),
        Some(CompileError::Option { .. })
    ));
    for value in ["copy", "error"] {
        graph.options.insert(option.clone(), json!(value));
        let registry = registry();
        assert!(Compiler::new(&registry).plan(&graph).is_ok());
    }
}

#[test]
fn an_async_node_that_nobody_pops_from_is_rejected() {
    assert_eq!(
        errors("a = S\n q = Q a\n cam = A"),
        "nodes.q: no output is connected, so nobody pops from the async node\n\
         nodes.cam: no output is connected, so nobody pops from the async node"
    );
    plan("a = S\n sink = A[out=0] a");
    plan("cam = A\n > image cam");
}
