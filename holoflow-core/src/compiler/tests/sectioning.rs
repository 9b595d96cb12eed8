//! Cases of sections and streams: C-39 to C-46, C-52.

use super::kit::{Look, errors, plan, registry};
use crate::compiler::Compiler;
use crate::graph::{EdgeSpec, GraphSpec, NodeSpec, OutputSpec};
use crate::ids::{NodeId, SectionId};
use crate::tensor::MemLoc;

#[test]
fn c_39_an_edge_between_sync_nodes_joins_them() {
    assert_eq!(plan("a = S\n b = S a\n c = S").cut(), ["> a b >", "> c >"]);
}

#[test]
fn c_40_all_that_push_into_one_async_node_are_joined() {
    let plan = plan("a = S\n b = S\n q = A[ins=2] a b\n c = S q");
    assert_eq!(plan.cut(), ["> a b > q", "q > c >"]);
}

#[test]
fn c_41_all_that_pop_from_one_async_node_are_joined() {
    let plan = plan("a = S\n q = A[out=2] a\n b = S q\n c = S q.1\n d = S q");
    assert_eq!(plan.cut(), ["> a > q", "q > b c d >"]);
}

#[test]
fn c_42_joins_are_transitive() {
    let plan = plan(
        "source = S
         bridge_a = Q source
         bridge_b = A source
         x = S bridge_a
         y = S bridge_b
         add = S x y",
    );
    assert_eq!(
        plan.cut(),
        [
            "> source > bridge_b bridge_a",
            "bridge_a bridge_b > x y add >"
        ],
        "the borrower is pushed first"
    );
    let (producer, consumer) = (&plan.sections[0], &plan.sections[1]);
    assert_eq!((producer.pushes.len(), consumer.pops.len()), (2, 2));
}

#[test]
fn c_43_async_nodes_join_nothing_by_themselves() {
    assert_eq!(
        plan("source = S\n bridge = Q source\n sink = S[out=0] bridge").cut(),
        ["> source > bridge", "bridge > sink >"]
    );
    assert_eq!(
        plan(
            "source = S
             bridge = Q source
             scale = S bridge
             bridge2 = Q scale
             scale2 = S bridge2
             sink = S[out=0] scale2"
        )
        .cut(),
        [
            "> source > bridge",
            "bridge > scale > bridge2",
            "bridge2 > scale2 sink >"
        ]
    );
}

#[test]
fn c_43_two_async_nodes_in_a_row_have_a_relay_section_between() {
    let plan = plan("a = S\n p = A a\n q = A p\n r = A q\n b = S r");
    assert_eq!(plan.cut(), ["> a > p", "r > b >", "p >  > q", "q >  > r"]);
    let names: Vec<String> = (0..4)
        .map(|section| plan.section_name(SectionId::new(section)))
        .collect();
    assert_eq!(names, ["section 0", "section 1", "relay 2", "relay 3"]);
}

#[test]
fn c_44_an_async_node_is_on_the_border_of_two_sections() {
    let plan = plan("a = S[out=2]\n q = A a a.1 a\n b = S q q\n c = S q");
    assert_eq!(plan.cut(), ["> a > q", "q > b c >"], "each once");
    let q = plan.look("q").1;
    assert_eq!(
        (q.producer, q.consumer),
        (Some(SectionId::new(0)), Some(SectionId::new(1)))
    );
    let a = plan.look("a").1;
    assert_eq!((a.producer, a.consumer), (Some(SectionId::new(0)), None));
}

#[test]
fn c_44_sources_and_sinks_have_one_side() {
    let plan = plan("cam = A\n show = A[out=0] cam");
    assert_eq!(plan.cut(), ["cam >  > show"]);
    let (cam, show) = (plan.look("cam").1, plan.look("show").1);
    let relay = Some(SectionId::new(0));
    assert_eq!((cam.producer, cam.consumer), (None, relay));
    assert_eq!((show.producer, show.consumer), (relay, None));
}

#[test]
fn c_45_parallel_producers_stay_apart() {
    let plan = plan(
        "left = S
         right = S
         l = Q left
         r = Q right
         join = S l r",
    );
    assert_eq!(plan.cut(), ["> left > l", "> right > r", "l r > join >"]);
}

#[test]
fn c_46_sections_are_numbered_as_the_order_first_meets_them() {
    // `z` is the first node that can run, though the last that is named.
    let plan = plan(
        "b = S q
         q = A z
         c = S
         z = S",
    );
    assert_eq!(plan.cut(), ["> c >", "> z > q", "q > b >"]);
    assert_eq!(plan.section_name(SectionId::new(1)), "section 1");
}

#[test]
fn c_52_sections_with_device_nodes_have_a_stream() {
    let plan = plan(
        "a = S
         up = Up a
         q = DQ up
         b = DS q
         other = S
         r = Q other
         s = S r",
    );
    let devices: Vec<_> = plan.sections.iter().map(|section| section.device).collect();
    assert_eq!(
        devices,
        [Some(MemLoc::Device(0)), Some(MemLoc::Device(0)), None, None],
        "{plan}"
    );
}

#[test]
fn c_52_an_async_node_may_lead_from_device_to_host() {
    let plan = plan("a = DS\n down = DA[out=F32:4] a\n b = S down");
    let devices: Vec<_> = plan.sections.iter().map(|section| section.device).collect();
    assert_eq!(devices, [Some(MemLoc::Device(0)), None]);
}

#[test]
fn two_devices_in_one_section_are_rejected() {
    assert_eq!(
        errors(
            "a = DS
             b = DS[out=F32:4@Device:1|F32:4@Device:1] a
             c = DS b b.1"
        ),
        "nodes.b: found Device:1, but the section's device is Device (`a`): put an async node between\n\
         nodes.c: found Device:1, but the section's device is Device (`a`): put an async node between"
    );
    let plan = plan("a = DS\n q = DA[out=F32:4@Device:1] a\n b = DS q");
    let devices: Vec<_> = plan.sections.iter().map(|section| section.device).collect();
    assert_eq!(devices, [Some(MemLoc::Device(0)), Some(MemLoc::Device(1))]);
}

#[test]
fn an_edge_around_a_queue_is_rejected() {
    assert_eq!(
        errors("a = S\n q = Q a\n join = S a q"),
        "nodes.q: the section that pushes into `q` also pops from it: a path around it joins both \
         sides; put an async node on that path"
    );
    plan("a = S\n q = Q a\n r = A a\n join = S r q");
}

#[test]
fn sections_that_wait_for_each_other_are_rejected() {
    // `left` and `right` are two sections, and each gets frames of the other.
    assert_eq!(
        errors(
            "a = S
             b = S
             p = Q a
             q = Q b
             c = S b p
             d = S a q"
        ),
        "nodes.p: sections wait for each other in a circle: `p` -> `q` -> `p`; each async node must \
         lead on to a section that none of them comes from"
    );
}

#[test]
fn every_circle_of_sections_is_reported() {
    let found = errors(
        "a = S
         q = Q a
         join = S a q
         b = S
         r = Q b
         join2 = S b r",
    );
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(
        found.contains("nodes.q:") && found.contains("nodes.r:"),
        "{found}"
    );
}

#[test]
fn a_graph_inputs_readers_are_in_one_section() {
    let plan = plan("< x F32:4\n a = S <x\n b = S <x\n q = A <x\n c = S q");
    assert_eq!(plan.cut(), ["> a b > q", "q > c >"]);
    let storage = &plan.storages[plan.tensors[plan.inputs["x"].index()].storage.index()];
    assert_eq!(storage.section, Some(SectionId::new(0)));
}

#[test]
fn a_cell_is_in_the_section_that_gives_the_tensor() {
    let plan = plan("a = S\n q = Q a\n b = S q\n > image q");
    assert_eq!(plan.storage("a").1.section, Some(SectionId::new(0)));
    assert_eq!(plan.storage("q").1.section, Some(SectionId::new(1)));
}

#[test]
fn a_pipeline_may_have_more_sections_than_a_stack_is_deep() {
    // Enough for a recursive search to overflow the stack of a test's thread.
    let count = 30_000;
    let mut graph = GraphSpec::default();
    let mut last = graph.add(NodeSpec::new("source", "S"));
    for number in 0..count {
        let queue = graph.add(NodeSpec::new(format!("q{number}"), "A"));
        graph.edges.push(EdgeSpec::new((last, 0), (queue, 0)));
        last = queue;
    }
    graph
        .outputs
        .insert("out".to_owned(), OutputSpec::new(last, 0));
    let registry = registry();
    let plan = Compiler::new(&registry).plan(&graph).unwrap();
    assert_eq!(plan.sections.len(), count + 1);
    // And round in a circle.
    graph
        .edges
        .push(EdgeSpec::new((last, 0), (NodeId::new(0), 0)));
    assert!(Compiler::new(&registry).plan(&graph).is_err());
}
