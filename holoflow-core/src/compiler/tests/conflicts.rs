//! Where nodes read, overwrite and own the same bytes: who runs first, and where a copy or an
//! error is needed.

use super::kit::{Look, device_sync, errors_without_copies, graph, plan, registry};
use crate::compiler::{Compiler, Conflicts, Role};
use crate::storage::Slot;

#[test]
fn an_overwriter_runs_after_all_other_readers() {
    let plan = plan(
        "a = S
         over = S[over=0:0] a
         v = S[view=0:0] a
         x = S v
         y = S x a",
    );
    assert!(plan.copied().is_empty());
    for reader in ["v", "x", "y"] {
        assert!(plan.runs_before(reader, "over"), "{reader}\n{plan}");
    }
}

#[test]
fn a_consuming_sync_node_runs_after_all_other_readers() {
    let plan = plan("a = S\n eat = S[own_in=0] a\n x = S a");
    assert!(plan.copied().is_empty());
    assert!(plan.runs_before("x", "eat"));
    assert!(matches!(
        plan.storage("a").1.role,
        Role::Task {
            slot: Slot::Input(0),
            ..
        }
    ));
}

#[test]
fn an_async_reader_is_too_late_for_a_consuming_sync_node() {
    let text = "a = S\n eat = S[own_in=0] a\n q = A a\n b = S q";
    assert_eq!(
        plan(text).copied(),
        ["copy for eat[0]: `eat` consumes it, and `q` still reads it"]
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.eat: it consumes input 0, which `q` still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn an_async_reader_is_too_late_for_an_overwriter() {
    let text = "a = S\n over = S[over=0:0] a\n q = A a\n b = S q";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for over[0]: `over` overwrites it, and `q` still reads it"]
    );
    assert_ne!(plan.storage("a").0, plan.storage("over").0);
    assert!(plan.runs_before("copy for over[0]", "over"));
    assert_eq!(
        errors_without_copies(text),
        "nodes.over: it overwrites input 0, which `q` still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn a_view_pushed_later_is_too_late_for_an_overwriter() {
    let plan = plan("a = S\n over = S[over=0:0] a\n v = S[view=0:0] a\n q = A v\n b = S q");
    assert_eq!(plan.copied().len(), 1, "{plan}");
    assert_eq!(plan.look("copy for over[0]").1.inputs, [plan.tensor("a")]);
}

#[test]
fn a_graph_output_is_not_overwritten() {
    let text = "a = S\n over = S[over=0:0] a\n > image a";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for over[0]: `over` overwrites it, and graph output `image` still reads it"]
    );
    assert_eq!(plan.storage("a").1.role, Role::Io);
    assert_eq!(
        errors_without_copies(text),
        "nodes.over: it overwrites input 0, which graph output `image` still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn a_graph_input_is_not_overwritten() {
    let text = "< x F32:4\n over = S[over=0:0] <x";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        [
            "copy for over[0]: `over` overwrites it, and the application, whose memory it \
          is, still reads it"
        ]
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.over: it overwrites input 0, which the application, whose memory it is, still reads: \
         allow a copy with `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn what_its_task_only_shares_is_not_overwritten() {
    let text = "a = A[shares=0 out=2]
         over = S[over=0:0] a
         other = S[over=0:0] a.1";
    assert_eq!(
        plan(text).copied(),
        ["copy for over[0]: `over` overwrites it, and `a` still reads it"],
        "output 1 is not shared"
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.over: it overwrites input 0, which `a` still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
    // Nor through a view of it, nor by one that comes before another.
    let text = "a = A[shares=0]
         v = S[view=0:0] a
         over = S[over=0:0] v
         again = S[over=0:0] a
         eat = S[own_in=0] a";
    assert_eq!(plan(text).copied().len(), 3);
    // After the copy it is anybody's.
    let text = "a = A[shares=0]\n over = S[over=0:0] a\n then = S[over=0:0] over";
    assert_eq!(plan(text).copied().len(), 1);
}

#[test]
fn of_two_overwriters_the_second_has_a_copy() {
    let text = "a = S\n x = S[over=0:0] a\n y = S[over=0:0] a\n z = S a";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for y[0]: `y` overwrites it, and `x` still reads it"]
    );
    assert!(plan.runs_before("copy for y[0]", "x"));
    assert!(plan.runs_before("z", "x"));
    assert_eq!(
        errors_without_copies(text),
        "nodes.y: it overwrites input 0, which `x` still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn a_reader_that_needs_the_overwriters_result_makes_a_copy() {
    let text = "a = S\n over = S[over=0:0] a\n sum = S a over";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for over[0]: `over` overwrites it, and `sum` still reads it"]
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.over: it overwrites input 0, which `sum` still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn two_overwriters_that_wait_for_each_others_readers_need_one_copy() {
    // `x` must wait for `s`, which needs `y`, which must wait for `r`, which needs `x`.
    let text = "a = S
         b = S
         x = S[over=0:0] a
         y = S[over=0:0] b
         r = S b x
         s = S a y";
    assert_eq!(plan(text).copied().len(), 1);
    assert_eq!(errors_without_copies(text).lines().count(), 1);
}

#[test]
fn one_tensor_in_two_inputs_of_a_node_that_overwrites_makes_a_copy() {
    let text = "a = S\n sum = S[over=0:0 ins=2] a a";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for sum[0]: `sum` overwrites it, and its input 1 still reads it"]
    );
    assert_ne!(plan.look("sum").1.inputs[0], plan.look("sum").1.inputs[1]);
    assert_eq!(
        errors_without_copies(text),
        "nodes.sum: it overwrites input 0, which its input 1 still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
    let both = super::kit::plan("a = S\n swap = S[over=0:0,1:1 out=2] a a");
    assert_eq!(both.copied().len(), 1);
    assert_ne!(both.storage("swap").0, both.storage("swap.1").0);
    // Also where one is a view of the other.
    let view = super::kit::plan("a = S\n v = S[view=0:0] a\n x = S[over=0:0 view=1:1 out=2] a v");
    assert_eq!(view.copied().len(), 1);
    assert_ne!(view.storage("x").0, view.storage("x.1").0);
}

#[test]
fn one_tensor_in_an_owned_and_a_borrowed_input_of_an_async_node_makes_a_copy() {
    let text = "a = S\n q = A[own_in=1] a a\n b = S q";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        ["copy for q[0]: `q` borrows it in one input and owns it in another"]
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.q: input 0 borrows storage that `q` owns, and no order of pushing serves both: allow a \
         copy with `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn an_owned_output_goes_out_as_a_copy() {
    let text = "cam = A[own_out=0]\n > image cam";
    let plan = plan(text);
    assert_eq!(
        plan.copied(),
        [
            "copy for outputs.image: graph output `image` is kept by the application, and `cam` owns it"
        ]
    );
    assert_eq!(plan.outputs["image"], plan.tensor("copy for outputs.image"));
    assert_eq!(plan.storage("copy for outputs.image").1.role, Role::Io);
    assert_eq!(
        errors_without_copies(text),
        "outputs.image: it is kept by the application, but `cam` owns its storage (output 0): allow a \
         copy with `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn an_owned_input_and_a_view_of_a_graph_input_go_out_as_copies() {
    let plan = plan("a = S\n q = Q a\n b = S q\n > image a");
    assert_eq!(
        plan.copied(),
        [
            "copy for outputs.image: graph output `image` is kept by the application, and `q` owns it"
        ]
    );
    let plan = super::kit::plan("< x F32:4\n v = S[view=0:0] <x\n > image v");
    assert_eq!(
        plan.copied(),
        [
            "copy for outputs.image: graph output `image` is kept by the application, and graph input \
          `x` owns it"
        ]
    );
}

#[test]
fn an_output_that_goes_out_as_a_copy_may_be_overwritten_afterwards() {
    let plan = plan("cam = A[own_out=0]\n over = S[over=0:0] cam\n > image cam");
    assert_eq!(plan.copied().len(), 1, "{plan}");
    assert!(plan.runs_before("copy for outputs.image", "over"));
}

#[test]
fn an_owner_of_what_another_publishes_is_copied_before_it_is_overwritten() {
    let plan = plan(
        "cam = A[own_out=0]
         over = S[over=0:0] cam
         record = Q cam
         file = S[out=0] record",
    );
    assert_eq!(
        plan.copied(),
        ["copy for record[0]: `record` owns its input 0, and `cam` owns it too"]
    );
    assert!(plan.runs_before("copy for record[0]", "over"));
}

#[test]
fn an_owned_part_of_a_storage_is_a_copy() {
    let text = "a = S[out=F32:8]\n v = S[view=0:0 out=F32:4+16] a\n q = Q v\n b = S q\n c = S a";
    assert_eq!(
        plan(text).copied(),
        ["copy for q[0]: `q` owns its input 0, and output 0 of `v` is a part of a larger storage"]
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.q: input 0 owns its storage, but output 0 of `v` is a part of a larger one: allow a \
         copy with `on_ownership_conflict`: `copy`, or put a copying node between"
    );
    // A view of all of it is no part.
    let text = "a = S[out=F32:8]\n v = S[view=0:0] a\n q = Q v\n b = S q\n c = S a";
    assert!(plan(text).copied().is_empty());
}

#[test]
fn an_owned_graph_input_is_a_copy() {
    let text = "< x F32:4\n q = Q <x\n b = S q";
    assert_eq!(
        plan(text).copied(),
        ["copy for q[0]: `q` owns its input 0, and graph input `x` owns it too"]
    );
    assert_eq!(
        errors_without_copies(text),
        "nodes.q: input 0 owns storage that graph input `x` owns too (given from outside): allow a copy \
         with `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn async_nodes_that_own_what_the_other_borrows_need_one_copy() {
    let text = "a = S
         b = S
         p = A[own_in=0] a b
         q = A[own_in=0] b a
         c = S p q";
    let plan = plan(text);
    assert_eq!(plan.copied().len(), 1, "{plan}");
    assert_eq!(
        plan.copied(),
        ["copy for p[1]: `p` borrows it and `q` owns it, and the other way round"]
    );
    assert_eq!(plan.cut()[0], "> a b copy for p[1] > q p");
    assert_eq!(
        errors_without_copies(text),
        "nodes.p: input 1 borrows storage that `q` owns, and no order of pushing serves both: allow a \
         copy with `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}

#[test]
fn many_conflicts_are_settled_together_and_reported_together() {
    let mut text = String::new();
    for n in 0..50 {
        text.push_str(&format!(
            "a{n} = S
             b{n} = S
             p{n} = A[own_in=0] a{n} b{n}
             q{n} = A[own_in=0] b{n} a{n}
             c{n} = S p{n} q{n}
             over{n} = S[over=0:0] c{n}
             sum{n} = S c{n} over{n}
             "
        ));
    }
    assert_eq!(plan(&text).copied().len(), 100);
    assert_eq!(errors_without_copies(&text).lines().count(), 100);
}

#[test]
fn a_copys_name_is_its_own() {
    let plan = plan("a = S[own_out=0]\n q = Q a\n b = S q\n copy for q[0] = S");
    assert_eq!(plan.copies().next().unwrap().0.name, "copy for q[0]'");
}

#[test]
fn a_copy_in_device_memory_is_a_registered_one() {
    let text = "a = DS[own_out=0]\n q = DQ a\n b = DS q\n > image q";
    let without = Compiler::new(&registry()).plan(&graph(text)).unwrap_err();
    assert_eq!(
        without.to_string(),
        "outputs.image needs a copy in Device: register a kind `Copy` for device memory that takes no \
         settings and keeps the layout\n\
         nodes.q: input 0 needs a copy in Device: register a kind `Copy` for device memory that takes \
         no settings and keeps the layout"
    );
    let mut registry = registry();
    registry.register_sync("Copy", device_sync()).unwrap();
    let plan = Compiler::new(&registry).plan(&graph(text)).unwrap();
    assert_eq!(plan.copied().len(), 2);
    assert_eq!(plan.look("copy for q[0]").1.kind, "Copy");
    // A layout that the registered kind does not keep: strides.
    let strided = "a = DS[own_out=0 out=F32:2,2@Device~16,4]\n q = DA[own_in=0] a\n b = DS q";
    let error = Compiler::new(&registry).plan(&graph(strided)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nodes.q: input 0 needs a copy in Device: register a kind `Copy` for device memory that takes \
         no settings and keeps the layout"
    );
}

#[test]
fn what_is_given_to_the_compiler_goes_before_the_option() {
    let mut graph = graph("a = S[own_out=0]\n q = Q a\n b = S q");
    let option = "on_ownership_conflict".to_owned();
    let registry = registry();
    graph.options.insert(option.clone(), "error".into());
    let copying = Compiler::new(&registry).on_conflict(Conflicts::Copy);
    assert_eq!(copying.plan(&graph).unwrap().copied().len(), 1);
    graph.options.insert(option, "copy".into());
    let refusing = Compiler::new(&registry).on_conflict(Conflicts::Error);
    assert!(refusing.plan(&graph).is_err());
}

#[test]
fn conflicts_of_all_sorts_are_reported_at_once() {
    let text = "a = S[own_out=0]
         q = Q a
         x = S
         over = S[over=0:0] x
         late = A x
         b = S q late
         > image a";
    assert_eq!(
        errors_without_copies(text),
        "outputs.image: it is kept by the application, but `a` owns its storage (output 0): allow a \
         copy with `on_ownership_conflict`: `copy`, or put a copying node between\n\
         nodes.q: input 0 owns storage that `a` owns too (output 0): allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between\n\
         nodes.over: it overwrites input 0, which `late` still reads: allow a copy with \
         `on_ownership_conflict`: `copy`, or put a copying node between"
    );
}
