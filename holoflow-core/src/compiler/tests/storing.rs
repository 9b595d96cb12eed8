//! Cases of tensor ids, storage ids, owners and copies: C-15 to C-29.

use super::kit::{Look, errors_without_copies, graph, layout, plan, registry};
use crate::compiler::{Compiler, Role};
use crate::ids::{NodeId, TensorId};
use crate::storage::Slot;

#[test]
fn c_15_outputs_get_consecutive_tensor_ids_in_topological_order() {
    let plan = plan(
        "b = S[out=2] a
         a = S[out=3]
         c = S b",
    );
    let ids = |name: &str| -> Vec<usize> {
        let node = plan.look(name).1;
        node.outputs.iter().map(|tensor| tensor.index()).collect()
    };
    assert_eq!(ids("a"), [0, 1, 2], "also those that no edge reads");
    assert_eq!(ids("b"), [3, 4]);
    assert_eq!(ids("c"), [5]);
    assert_eq!(plan.tensors.len(), 6);
}

#[test]
fn c_16_fan_out_shares_the_tensor_id() {
    let plan = plan("a = S\n b = S a\n c = S b a a\n q = A a\n d = S q");
    let a = plan.tensor("a");
    assert_eq!(plan.look("b").1.inputs, [a]);
    assert_eq!(plan.look("c").1.inputs[1..], [a, a]);
    assert_eq!(plan.look("q").1.inputs, [a]);
    let readers: Vec<_> = plan.tensors[a.index()].readers.clone();
    let node = |name: &str| NodeId::new(u32::try_from(plan.look(name).0).unwrap());
    assert_eq!(
        readers,
        [
            (node("b"), 0),
            (node("c"), 1),
            (node("c"), 2),
            (node("q"), 0)
        ]
    );
}

#[test]
fn c_17_inputs_follow_slot_order() {
    use crate::graph::EdgeSpec;
    let mut graph = graph("a = S\n b = S\n c = S");
    let [a, b, c] = [0, 1, 2].map(NodeId::new);
    graph.edges.push(EdgeSpec::new((b, 0), (c, 1)));
    graph.edges.push(EdgeSpec::new((a, 0), (c, 0)));
    let registry = registry();
    let plan = Compiler::new(&registry).plan(&graph).unwrap();
    assert_eq!(
        plan.look("c").1.inputs,
        [plan.tensor("a"), plan.tensor("b")]
    );
}

#[test]
fn c_18_without_in_place_every_output_has_a_storage_of_its_own() {
    let plan = plan("a = S[out=2]\n b = S a a.1\n q = Q b\n c = S q");
    let storages: Vec<usize> = plan
        .tensors
        .iter()
        .map(|tensor| tensor.storage.index())
        .collect();
    assert_eq!(storages, [0, 1, 2, 3, 4]);
}

#[test]
fn c_19_in_place_outputs_take_the_inputs_storage() {
    let plan = plan(
        "a = S[out=F32:8]
         b = S[over=0:0] a
         c = S[view=0:0 out=F32:4+16] b
         d = S[view=0:1 out=U8:1|F32:2+24] c
         e = S[over=0:0] d.1",
    );
    let (storage, found) = plan.storage("a");
    for output in ["b", "c", "d.1", "e"] {
        assert_eq!(plan.storage(output).0, storage, "{output}");
    }
    assert_ne!(plan.storage("d.0").0, storage);
    assert_eq!(found.tensors.first(), Some(&plan.tensor("a")));
    assert_eq!(found.tensors.len(), 5);
    assert_eq!(found.bytes, 32);
    assert!(plan.copied().is_empty());
}

#[test]
fn c_24_an_owned_output_into_an_owned_input_is_one_copy() {
    let text = "a = S[own_out=0]\n q = Q a\n b = S q";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for q[0]: `q` owns its input 0, and `a` owns it too"]
    );
    assert_eq!(plan.cut(), ["> a copy for q[0] > q", "q > b >"]);
    let (_, owned) = plan.storage("a");
    assert!(matches!(
        owned.role,
        Role::Task {
            slot: Slot::Output(0),
            ..
        }
    ));
    let (_, copied) = plan.storage("copy for q[0]");
    assert!(matches!(
        copied.role,
        Role::Task {
            slot: Slot::Input(0),
            ..
        }
    ));
}

#[test]
fn c_24_two_queues_in_a_row_have_a_copy_in_their_relay() {
    let plan = plan("a = S\n q = Q a\n r = Q q\n b = S r");
    assert_eq!(plan.cut(), ["> a > q", "q > copy for r[0] > r", "r > b >"]);
}

#[test]
fn c_24_without_copies_it_is_an_error_that_names_both() {
    assert_eq!(
        errors_without_copies("a = S[own_out=0]\n q = Q a\n b = S q"),
        "nodes.q: input 0 owns storage that `a` owns too (output 0): allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn c_25_ownership_is_counted_per_storage() {
    let text = "a = S[own_out=0]\n v = S[view=0:0] a\n q = Q v\n b = S q";
    assert_eq!(
        plan(text).copied(),
        ["copy for q[0]: `q` owns its input 0, and `a` owns it too"]
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.q: input 0 owns storage that `a` owns too (output 0): allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
    let text = "a = S[own_out=0]\n v = S[over=0:0] a\n q = Q v\n b = S q";
    assert_eq!(plan(text).copied().len(), 1);
}

#[test]
fn c_26_of_two_owning_consumers_the_first_edge_has_the_original() {
    let text = "a = S\n q = Q a\n r = Q a\n b = S q\n c = S r";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for r[0]: `r` owns its input 0, and `q` owns it too"]
    );
    let q = NodeId::new(1);
    assert_eq!(
        plan.storage("a").1.role,
        Role::Task {
            node: q,
            slot: Slot::Input(0)
        }
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.r: input 0 owns storage that `q` owns too (input 0): allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn c_26_the_first_edge_counts_not_the_first_node() {
    use crate::graph::EdgeSpec;
    let mut graph = graph("a = S\n q = Q\n r = Q\n b = S q\n c = S r");
    let [a, q, r] = [0, 1, 2].map(NodeId::new);
    graph.edges.push(EdgeSpec::new((a, 0), (r, 0)));
    graph.edges.push(EdgeSpec::new((a, 0), (q, 0)));
    let registry = registry();
    let plan = Compiler::new(&registry).plan(&graph).unwrap();
    assert_eq!(
        plan.copied(),
        ["copy for q[0]: `q` owns its input 0, and `r` owns it too"]
    );
}

#[test]
fn c_26_one_owner_and_many_borrowers_need_no_copy() {
    let plan = plan(
        "a = S
         x = S a
         p = A a
         q = Q a
         r = A a
         y = S a
         b = S p q r",
    );
    assert!(plan.copied().is_empty());
    // Borrowers are pushed before the owner.
    assert_eq!(plan.cut(), ["> a x y > p r q", "p q r > b >"]);
}

#[test]
fn c_28_nothing_is_allocated_for_an_owned_storage() {
    let plan = plan("a = S[out=F32:100]\n q = Q a\n b = S[out=F32:2] q");
    let (_, into) = plan.storage("a");
    let (_, out) = plan.storage("q");
    assert!(matches!(into.role, Role::Task { .. }));
    assert!(matches!(out.role, Role::Task { .. }));
    assert_eq!((into.bytes, out.bytes), (400, 400));
    assert_eq!(plan.bytes().values().copied().collect::<Vec<_>>(), [8]);
}

#[test]
fn c_29_every_storage_without_an_owner_has_bytes_in_its_location() {
    let plan = plan(
        "< x F32:3
         a = S[out=F32:5+12|U8:7] <x
         up = Up a
         d = DS[over=0:0] up
         > image d",
    );
    let found = |output: &str| {
        let storage = plan.storage(output).1;
        (storage.bytes, storage.location.to_string(), storage.role)
    };
    assert_eq!(found("a"), (32, "Host".to_owned(), Role::Execution));
    assert_eq!(found("a.1"), (7, "Host".to_owned(), Role::Execution));
    assert_eq!(found("up"), (20, "Device".to_owned(), Role::Io));
    let input = plan.tensors[plan.inputs["x"].index()].storage;
    assert_eq!(plan.storages[input.index()].role, Role::Borrowed);
}

#[test]
fn roles_are_decided_by_slot() {
    // One node with a declared output and an intermediate: no copy.
    let plan = plan("a = S[out=2]\n b = S a\n > image a.1");
    assert_eq!(plan.storage("a").1.role, Role::Execution);
    assert_eq!(plan.storage("a.1").1.role, Role::Io);
    assert!(plan.copied().is_empty());
}

#[test]
fn an_overwritten_view_lies_where_the_view_does() {
    // `over` infers as if its input began at 0; it is 16 bytes into the storage.
    let plan = plan(
        "a = S[out=F32:8]
         v = S[view=0:0 out=F32:4+16] a
         over = S[in=F32:4 over=0:0 out=F32:4] v
         part = S[in=F32:4 view=0:0 out=F32:2+4] over",
    );
    let desc = |output: &str| plan.tensors[plan.tensor(output).index()].desc.clone();
    assert!(plan.copied().is_empty());
    assert_eq!(desc("over"), layout("F32:4+16"));
    assert_eq!(desc("part"), layout("F32:2+20"));
}

#[test]
fn behind_a_copy_in_place_outputs_lie_at_the_copys_start() {
    let plan = plan(
        "a = S[out=F32:8]
         v = S[view=0:0 out=F32:4+16] a
         over = S[over=0:0] v
         part = S[view=0:0 out=F32:2+20] over
         > image v",
    );
    let desc = |output: &str| plan.tensors[plan.tensor(output).index()].desc.clone();
    assert_eq!(plan.copied().len(), 1);
    assert_eq!(desc("copy for over[0]"), layout("F32:4"));
    assert_eq!(desc("over"), layout("F32:4"));
    assert_eq!(desc("part"), layout("F32:2+4"));
    assert_eq!(plan.storage("over").1.bytes, 16);
}

#[test]
fn an_owned_input_lies_where_its_owner_wants_it() {
    for (made, wanted, bytes) in [("+12", "", 16), ("", "+12", 28), ("+4", "+12", 28)] {
        let plan = plan(&format!(
            "a = S[out=F32:4{made}]
             v = S[view=0:0 out=F32:4{made}] a
             q = A[own_in=0 in=F32:4{wanted}] a
             b = S q"
        ));
        assert!(plan.copied().is_empty());
        let (storage, found) = plan.storage("a");
        assert_eq!(found.bytes, bytes);
        for output in ["a", "v"] {
            let tensor = &plan.tensors[plan.tensor(output).index()];
            assert_eq!(tensor.storage.index(), storage);
            assert_eq!(tensor.desc, layout(&format!("F32:4{wanted}")));
        }
    }
}

#[test]
fn copies_do_not_renumber_the_tensors_of_the_description() {
    let plan = plan("a = S[own_out=0]\n q = Q a\n b = S q");
    assert_eq!(plan.tensor("b"), TensorId::new(2));
    assert_eq!(plan.tensor("copy for q[0]"), TensorId::new(3));
}

#[test]
fn a_storage_is_written_if_some_node_writes_it() {
    let plan = plan(
        "cam = A[own_out=0]
         pop = A[out=F32:4]
         over = S[over=0:0] cam
         seen = S[view=0:0] pop
         cam2 = A[own_out=0]
         only = S[view=0:0] cam2
         src = S
         q = Q src
         end = S q",
    );
    for (output, written) in [("cam", true), ("pop", true), ("cam2", false), ("src", true)] {
        assert_eq!(plan.storage(output).1.written, written, "{output}");
    }
    assert!(!plan.storage("q").1.written);
}
