//! Valid graphs, damaged in one place: refused, and an error names the place.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use serde_json::json;

use super::kit::registry;
use super::random::{Draft, draft};
use crate::compiler::Compiler;
use crate::graph::{EdgeSpec, GraphSpec, OutputSpec};
use crate::ids::NodeId;

/// Damages `graph`, and says what the error must contain; nothing if it has no such place.
fn damage(graph: &mut GraphSpec, kind: u8, number: u16) -> Option<Vec<String>> {
    let number = usize::from(number);
    let pick = |count: usize| (count > 0).then(|| number % count);
    let node_count = u32::try_from(graph.nodes.len()).unwrap();
    let far = NodeId::new(node_count + 3);
    let name = |graph: &GraphSpec, node: NodeId| graph.nodes[node.index()].name.clone();
    let inputs = |graph: &GraphSpec, node: NodeId| {
        let edges = graph.edges.iter().filter(|edge| edge.to == node).count();
        let borders = graph.inputs.values().flat_map(|input| &input.to);
        edges + borders.filter(|to| to.node == node).count()
    };
    let expected = match kind % 14 {
        0 => {
            let edge = pick(graph.edges.len())?;
            graph.edges[edge].from = far;
            vec![format!("edges[{edge}]: there is no node number {far}")]
        }
        1 => {
            let edge = pick(graph.edges.len())?;
            graph.edges[edge].to = far;
            vec![format!("edges[{edge}]: there is no node number {far}")]
        }
        2 => {
            let node = pick(graph.nodes.len())?;
            let other = (node + 1) % graph.nodes.len();
            graph.nodes[other].name = graph.nodes[node].name.clone();
            if other == node {
                return None;
            }
            vec![format!("nodes.{}: 2 nodes", graph.nodes[node].name)]
        }
        3 => {
            let edge = pick(graph.edges.len())?;
            let again = graph.edges[edge];
            graph.edges.push(again);
            vec![format!(
                "edges[{}]: input {} of `{}` is connected already, by edges[{edge}]",
                graph.edges.len() - 1,
                again.input,
                name(graph, again.to)
            )]
        }
        4 => {
            let edge = pick(graph.edges.len())?;
            graph.edges[edge].input += 40;
            let to = name(graph, graph.edges[edge].to);
            vec![
                format!("edges[{edge}]: input "),
                format!(" of `{to}` is out of bounds"),
            ]
        }
        5 => {
            let node = pick(graph.nodes.len())?;
            graph.nodes[node].kind = "Zilch".to_owned();
            vec![format!("nodes.{}.type: ", graph.nodes[node].name)]
        }
        6 => {
            let edge = graph.edges[pick(graph.edges.len())?];
            let input = inputs(graph, edge.from);
            let back = EdgeSpec::new((edge.to, 0), (edge.from, input));
            graph.edges.push(back);
            let (from, to) = (name(graph, edge.from), name(graph, edge.to));
            vec![
                format!("`{from}`"),
                format!("`{to}`"),
                "has a cycle".to_owned(),
            ]
        }
        7 => {
            let edge = pick(graph.edges.len())?;
            graph.edges[edge].output += 9;
            let from = name(graph, graph.edges[edge].from);
            vec![
                format!("edges[{edge}]: found output "),
                format!(" of `{from}`"),
            ]
        }
        8 => {
            let edge = graph.edges[pick(graph.edges.len())?];
            let wants = vec!["U8:3"; inputs(graph, edge.to)].join("|");
            let node = &mut graph.nodes[edge.to.index()];
            node.settings = json!({ "is": format!("in={wants}") });
            vec![
                format!("nodes.{}: input ", node.name),
                "expected U8[3]@Host".to_owned(),
            ]
        }
        9 => {
            let node = pick(graph.nodes.len())?;
            graph.nodes[node].settings = json!({ "is": "fail=broken" });
            vec![format!(
                "nodes.{}: the task failed: broken",
                graph.nodes[node].name
            )]
        }
        10 => {
            let input = graph.inputs.get_mut("x")?;
            input.desc = None;
            vec!["inputs.x: the layout is not known".to_owned()]
        }
        11 => {
            let node = NodeId::new(u32::try_from(pick(graph.nodes.len())?).unwrap());
            let output = OutputSpec::new(node, 7);
            graph.outputs.insert("wrong".to_owned(), output);
            vec![format!(
                "outputs.wrong: found output 7 of `{}`",
                name(graph, node)
            )]
        }
        12 => {
            let node = pick(graph.nodes.len())?;
            graph.nodes[node].name = String::new();
            vec![format!("nodes[{node}]: the node has no name")]
        }
        // An edge around an async node.
        _ => {
            let kind = |node: NodeId| graph.nodes[node.index()].kind.as_str();
            let around = graph.edges.iter().find_map(|before| {
                let after = graph.edges.iter().find(|after| after.from == before.to)?;
                let fits = kind(before.from) == "S"
                    && matches!(kind(before.to), "Q" | "A")
                    && kind(after.to) == "S";
                fits.then_some((*before, *after))
            });
            let (before, after) = around?;
            let input = inputs(graph, after.to);
            let edge = EdgeSpec::new((before.from, before.output), (after.to, input));
            graph.edges.push(edge);
            let settings = graph.nodes[after.to.index()].settings["is"].as_str();
            if settings.is_some_and(|text| text.contains("in=F32")) {
                return None;
            }
            vec![
                "nodes.".to_owned(),
                "the section that pushes into".to_owned(),
            ]
        }
    };
    Some(expected)
}

fn is_refused(draft: &Draft, kind: u8, number: u16) -> Result<(), TestCaseError> {
    let (mut graph, registry) = (draft.graph(), registry());
    let compiler = Compiler::new(&registry);
    if compiler.plan(&graph).is_err() {
        return Ok(());
    }
    let Some(expected) = damage(&mut graph, kind, number) else {
        return Ok(());
    };
    match compiler.plan(&graph) {
        Ok(plan) => {
            prop_assert!(
                false,
                "not refused: {expected:?}\n{plan}\nof\n{}",
                draft.text
            );
        }
        Err(errors) => {
            let text = errors.to_string();
            let named = text
                .lines()
                .any(|line| expected.iter().all(|part| line.contains(part.as_str())));
            prop_assert!(named, "{expected:?} is not in\n{text}\nof\n{}", draft.text);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 1000, ..Config::default() })]

    #[test]
    fn a_damaged_graph_is_refused_at_the_damaged_place(
        draft in draft(16),
        kind in any::<u8>(),
        number in any::<u16>(),
    ) {
        is_refused(&draft, kind, number)?;
    }
}
