//! What holds of all graphs: valid ones compile to plans that the checker accepts, and the
//! order of the nodes decides nothing but numbers and who runs first.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};

use super::checker;
use super::kit::registry;
use super::random::{Draft, draft, shuffle};
use crate::compiler::{CompileError, Compiler, Conflicts, Plan};
use crate::graph::GraphSpec;
use crate::ids::NodeId;

fn config() -> Config {
    Config {
        failure_persistence: None,
        cases: 400,
        ..Config::default()
    }
}

fn compiles_or_is_refused(draft: &Draft) -> Result<(), TestCaseError> {
    let (graph, registry) = (draft.graph(), registry());
    let circle = checker::has_section_circle(&graph, &registry);
    let text = &draft.text;
    match Compiler::new(&registry).plan(&graph) {
        Err(errors) => {
            let only = errors
                .iter()
                .all(|error| matches!(error, CompileError::SectionCycle { .. }));
            prop_assert!(circle && only, "{errors}\nof\n{text}");
        }
        Ok(plan) => {
            prop_assert!(!circle, "sections in a circle:\n{plan}\nof\n{text}");
            let checked = checker::check(&graph, &registry, &plan);
            prop_assert_eq!(checked, Ok(()), "{}\nof\n{}", &plan, text);
            // Without copies it is refused if, and only if, there are any.
            let without = Compiler::new(&registry)
                .on_conflict(Conflicts::Error)
                .plan(&graph);
            match without {
                Ok(without) => prop_assert_eq!(without, plan),
                Err(errors) => {
                    prop_assert!(plan.copies().count() > 0, "{errors}\nof\n{text}");
                }
            }
        }
    }
    Ok(())
}

/// A plan without numbers: one line a node, in the order of the names.
fn unnumbered(plan: &Plan) -> BTreeSet<String> {
    let tensor = |index: usize| match plan.tensors[index].producer {
        Some((node, output)) => format!("{}.{output}", plan.nodes[node.index()].name),
        None => "input".to_owned(),
    };
    let section = |section: Option<crate::ids::SectionId>| -> BTreeSet<String> {
        let Some(section) = section else {
            return BTreeSet::new();
        };
        let section = &plan.sections[section.index()];
        let nodes = section
            .sync
            .iter()
            .chain(&section.pops)
            .chain(&section.pushes);
        nodes
            .map(|node| plan.nodes[node.index()].name.clone())
            .collect()
    };
    let nodes = plan.nodes.iter().map(|node| {
        let inputs: Vec<String> = node.inputs.iter().map(|t| tensor(t.index())).collect();
        let outputs: Vec<String> = node
            .outputs
            .iter()
            .map(|output| {
                let output = &plan.tensors[output.index()];
                let storage = &plan.storages[output.storage.index()];
                let with: BTreeSet<String> =
                    storage.tensors.iter().map(|t| tensor(t.index())).collect();
                let io = storage.role == crate::compiler::Role::Io;
                format!("{} in {with:?} {} io={io}", output.desc, storage.bytes)
            })
            .collect();
        format!(
            "{} {:?} {inputs:?} {outputs:?} {:?} {:?}",
            node.name,
            node.inserted,
            section(node.producer),
            section(node.consumer)
        )
    });
    nodes.collect()
}

/// The same graph with its nodes in another order.
fn permuted(graph: &GraphSpec, mut seed: u64) -> GraphSpec {
    let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
    shuffle(&mut order, &mut seed);
    let mut place = vec![NodeId::new(0); order.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = NodeId::new(u32::try_from(new).unwrap());
    }
    let mut other = graph.clone();
    other.nodes = order.iter().map(|old| graph.nodes[*old].clone()).collect();
    for edge in &mut other.edges {
        edge.from = place[edge.from.index()];
        edge.to = place[edge.to.index()];
    }
    for input in other.inputs.values_mut() {
        for to in &mut input.to {
            to.node = place[to.node.index()];
        }
    }
    for output in other.outputs.values_mut() {
        output.node = place[output.node.index()];
    }
    other
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_random_graph_compiles_to_a_plan_that_holds(draft in draft(24)) {
        compiles_or_is_refused(&draft)?;
    }

    #[test]
    fn cp2_the_order_of_the_nodes_decides_only_numbers(draft in draft(24), seed in any::<u64>()) {
        let (graph, registry) = (draft.graph(), registry());
        let compiler = Compiler::new(&registry);
        if let Ok(plan) = compiler.plan(&graph) {
            prop_assert_eq!(&compiler.plan(&graph).unwrap(), &plan, "the same again");
            let other = compiler.plan(&permuted(&graph, seed)).unwrap();
            prop_assert_eq!(unnumbered(&other), unnumbered(&plan), "{}", &draft.text);
        }
    }
}

#[test]
fn cp2_in_a_graph_file_the_order_of_the_nodes_decides_nothing() {
    let text = |nodes: &str| {
        format!(
            r#"{{ "nodes": {{ {nodes} }}, "edges": [
                {{ "from": "b", "to": "a", "out": 0, "in": 0 }},
                {{ "from": "b", "to": "c", "out": 0, "in": 0 }} ] }}"#
        )
    };
    let node = |name: &str| format!(r#""{name}": {{ "type": "S" }}"#);
    let [a, b, c] = ["a", "b", "c"].map(node);
    let registry = registry();
    let plan = |text: String| {
        let (graph, _) = GraphSpec::from_json_str(&text).unwrap();
        Compiler::new(&registry).plan(&graph).unwrap()
    };
    let first = plan(text(&format!("{a}, {b}, {c}")));
    assert_eq!(plan(text(&format!("{c}, {a}, {b}"))), first);
}
