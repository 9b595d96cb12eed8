//! Tests of putting subgraphs in place.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::graph::{EdgeSpec, InputRef, InputSpec, NodeSpec, OutputSpec};

fn node(graph: &mut GraphSpec, name: &str, kind: &str) -> NodeId {
    graph.add(NodeSpec::new(name, kind))
}

/// `in` and `gain` into `mul`, `mul` into `lim`, whose output is `out`; `mul`'s is `raw`.
fn filter() -> GraphSpec {
    let mut graph = GraphSpec::default();
    let mul = node(&mut graph, "mul", "Multiply");
    let lim = node(&mut graph, "lim", "Limit");
    graph.edges.push(EdgeSpec::new((mul, 0), (lim, 0)));
    graph.inputs.insert("frame".into(), InputSpec::new(mul, 0));
    graph.inputs.insert("gain".into(), InputSpec::new(mul, 1));
    graph.outputs.insert("out".into(), OutputSpec::new(lim, 0));
    graph.outputs.insert("raw".into(), OutputSpec::new(mul, 0));
    graph
}

/// Edges as text, by full names.
fn edges(flat: &FlatGraph<'_>) -> Vec<String> {
    let name = |id| flat.spec.node(id).unwrap().name.as_str();
    flat.spec
        .edges
        .iter()
        .map(|edge| {
            format!(
                "{}.{} > {}.{}",
                name(edge.from),
                edge.output,
                name(edge.to),
                edge.input
            )
        })
        .collect()
}

fn names<'f>(flat: &'f FlatGraph<'_>) -> Vec<&'f str> {
    flat.spec
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .collect()
}

fn message(graph: &GraphSpec) -> String {
    flatten(graph).unwrap_err().to_string()
}

#[test]
fn a_graph_without_subgraphs_is_returned_as_it_is() {
    let mut graph = filter();
    graph.options.insert("threads".into(), json!(2));
    let flat = flatten(&graph).unwrap();
    assert!(matches!(flat.spec, Cow::Borrowed(_)));
    assert_eq!(*flat.spec, graph);
    assert_eq!(flat.place(NodeId::new(1)), "nodes.lim");
    assert_eq!(flat.edge_place(0), "edges[0]");
}

#[test]
fn nodes_and_edges_of_a_subgraph_take_the_place_of_its_node() {
    let mut graph = GraphSpec::default();
    let src = node(&mut graph, "src", "Source");
    let left = node(&mut graph, "left", "graph:filter");
    let sink = node(&mut graph, "sink", "Sink");
    graph.edges = vec![
        EdgeSpec::new((src, 0), (left, 0)),
        EdgeSpec::new((src, 1), (left, 1)),
        EdgeSpec::new((left, 1), (sink, 0)),
        EdgeSpec::new((left, 0), (sink, 1)),
    ];
    graph.graphs.insert("filter".into(), filter());
    graph.options.insert("threads".into(), json!(2));
    let flat = flatten(&graph).unwrap();
    assert_eq!(names(&flat), ["src", "left/mul", "left/lim", "sink"]);
    assert_eq!(
        edges(&flat),
        [
            "left/mul.0 > left/lim.0",
            "src.0 > left/mul.0",
            "src.1 > left/mul.1",
            "left/mul.0 > sink.0",
            "left/lim.0 > sink.1",
        ]
    );
    assert!(flat.spec.graphs.is_empty());
    assert_eq!(flat.spec.options, graph.options);
    let places: Vec<_> = (0..4).map(|id| flat.place(NodeId::new(id))).collect();
    assert_eq!(
        places,
        [
            "nodes.src",
            "graphs.filter.nodes.mul",
            "graphs.filter.nodes.lim",
            "nodes.sink"
        ]
    );
    let places: Vec<_> = (0..5).map(|edge| flat.edge_place(edge)).collect();
    assert_eq!(
        places,
        [
            "graphs.filter.edges[0]",
            "edges[0]",
            "edges[1]",
            "edges[2]",
            "edges[3]"
        ]
    );
    assert_eq!(flat.by_name()["left/lim"], NodeId::new(2));
}

#[test]
fn subgraphs_nest_and_reach_those_of_the_graphs_around_them() {
    // `pair` uses `filter` of the graph around it twice, and its own `tail`.
    let mut tail = GraphSpec::default();
    let end = node(&mut tail, "end", "Copy");
    tail.inputs.insert("x".into(), InputSpec::new(end, 0));
    tail.outputs.insert("y".into(), OutputSpec::new(end, 0));
    let mut pair = GraphSpec::default();
    let a = node(&mut pair, "a", "graph:filter");
    let b = node(&mut pair, "b", "graph:filter");
    let t = node(&mut pair, "t", "graph:tail");
    pair.edges = vec![EdgeSpec::new((a, 0), (b, 0)), EdgeSpec::new((b, 0), (t, 0))];
    pair.inputs.insert("frame".into(), InputSpec::new(a, 0));
    let mut gain = InputSpec::new(a, 1);
    gain.to.push(InputRef { node: b, input: 1 });
    pair.inputs.insert("gain".into(), gain);
    pair.outputs.insert("y".into(), OutputSpec::new(t, 0));
    pair.graphs.insert("tail".into(), tail);
    let mut graph = GraphSpec::default();
    let p = node(&mut graph, "p", "graph:pair");
    graph.graphs.insert("pair".into(), pair);
    graph.graphs.insert("filter".into(), filter());
    graph.inputs.insert("frame".into(), InputSpec::new(p, 0));
    graph.inputs.insert("gain".into(), InputSpec::new(p, 1));
    graph.outputs.insert("y".into(), OutputSpec::new(p, 0));
    let flat = flatten(&graph).unwrap();
    assert_eq!(
        names(&flat),
        ["p/a/mul", "p/a/lim", "p/b/mul", "p/b/lim", "p/t/end"]
    );
    assert_eq!(
        edges(&flat),
        [
            "p/a/mul.0 > p/a/lim.0",
            "p/b/mul.0 > p/b/lim.0",
            "p/a/lim.0 > p/b/mul.0",
            "p/b/lim.0 > p/t/end.0",
        ]
    );
    let targets: Vec<_> = flat.spec.inputs["gain"]
        .to
        .iter()
        .map(|to| (flat.spec.node(to.node).unwrap().name.as_str(), to.input))
        .collect();
    assert_eq!(targets, [("p/a/mul", 1), ("p/b/mul", 1)]);
    let output = flat.spec.outputs["y"];
    assert_eq!(flat.spec.node(output.node).unwrap().name, "p/t/end");
    assert_eq!(flat.place(output.node), "graphs.pair.graphs.tail.nodes.end");
    assert_eq!(flat.edge_place(2), "graphs.pair.edges[0]");
}

#[test]
fn the_nearest_definition_of_a_name_counts() {
    let copy = |kind: &str| {
        let mut graph = GraphSpec::default();
        node(&mut graph, "x", kind);
        graph
    };
    let mut inner = GraphSpec::default();
    node(&mut inner, "use", "graph:copy");
    inner.graphs.insert("copy".into(), copy("Inner"));
    let mut graph = GraphSpec::default();
    node(&mut graph, "a", "graph:inner");
    node(&mut graph, "b", "graph:copy");
    graph.graphs.insert("inner".into(), inner);
    graph.graphs.insert("copy".into(), copy("Outer"));
    let flat = flatten(&graph).unwrap();
    let kinds: Vec<_> = flat
        .spec
        .nodes
        .iter()
        .map(|node| node.kind.as_str())
        .collect();
    assert_eq!(kinds, ["Inner", "Outer"]);
}

#[test]
fn an_unknown_subgraph_is_an_error_with_a_near_match() {
    let mut graph = GraphSpec::default();
    node(&mut graph, "left", "graph:fliter");
    node(&mut graph, "far", "graph:resample");
    graph.graphs.insert("filter".into(), filter());
    assert_eq!(
        message(&graph),
        "nodes.left.type: found `graph:fliter`, expected the name of a subgraph there is: did \
         you mean `filter`?\n\
         nodes.far.type: found `graph:resample`, expected the name of a subgraph there is"
    );
}

#[test]
fn a_subgraph_is_not_seen_from_outside_the_graph_it_is_in() {
    let mut outer = GraphSpec::default();
    outer.graphs.insert("hidden".into(), GraphSpec::default());
    let mut graph = GraphSpec::default();
    node(&mut graph, "x", "graph:hidden");
    graph.graphs.insert("outer".into(), outer);
    assert!(message(&graph).starts_with("nodes.x.type: found `graph:hidden`"));
}

#[test]
fn a_graph_that_contains_itself_is_an_error_that_names_the_cycle() {
    let mut graph = GraphSpec::default();
    node(&mut graph, "x", "graph:a");
    for (name, next) in [("a", "b"), ("b", "c"), ("c", "b"), ("d", "d")] {
        let mut inner = GraphSpec::default();
        node(&mut inner, "next", &format!("graph:{next}"));
        graph.graphs.insert(name.into(), inner);
    }
    assert_eq!(
        message(&graph),
        "graphs.c.nodes.next: the subgraph contains itself: graphs.b > graphs.c > graphs.b, \
         expected none that does\n\
         graphs.d.nodes.next: the subgraph contains itself: graphs.d > graphs.d, expected none \
         that does"
    );
}

#[test]
fn wrong_connections_to_a_subgraph_are_errors_at_their_place() {
    let mut graph = GraphSpec::default();
    let src = node(&mut graph, "src", "Source");
    let left = node(&mut graph, "left", "graph:filter");
    let bare = node(&mut graph, "bare", "graph:empty");
    graph.edges = vec![
        EdgeSpec::new((src, 0), (left, 0)),
        EdgeSpec::new((src, 0), (left, 2)),
        EdgeSpec::new((left, 5), (src, 0)),
        EdgeSpec::new((bare, 0), (left, 0)),
    ];
    graph.inputs.insert("x".into(), InputSpec::new(bare, 0));
    graph.inputs.insert("y".into(), InputSpec::new(left, 0));
    graph.outputs.insert("z".into(), OutputSpec::new(left, 2));
    graph.graphs.insert("filter".into(), filter());
    graph.graphs.insert("empty".into(), GraphSpec::default());
    let expected = [
        "edges[1]: found input 2 of node `left`, but its subgraph has the inputs 0 (`frame`), \
         1 (`gain`)",
        "edges[2]: found output 5 of node `left`, but its subgraph has the outputs 0 (`out`), \
         1 (`raw`)",
        "edges[3]: found output 0 of node `bare`, but its subgraph has no outputs",
        "nodes.left: input 0 (`frame`) is connected twice, by edges[0] and edges[3], expected \
         one connection",
        "inputs.x: found input 0 of node `bare`, but its subgraph has no inputs",
        "nodes.left: input 0 (`frame`) is connected twice, by edges[0] and inputs.y, expected \
         one connection",
        "outputs.z: found output 2 of node `left`, but its subgraph has the outputs 0 (`out`), \
         1 (`raw`)",
        "nodes.left: nothing is connected to input 1 (`gain`), expected one connection",
    ];
    assert_eq!(message(&graph), expected.join("\n"));
    let errors = flatten(&graph).unwrap_err();
    assert!(
        errors
            .iter()
            .all(|error| error.kind().to_string() == "subgraphs")
    );
}

#[test]
fn errors_are_found_in_subgraphs_that_nobody_uses() {
    let mut inner = GraphSpec::default();
    node(&mut inner, "x", "graph:gone");
    node(&mut inner, "", "Copy");
    let mut graph = GraphSpec::default();
    graph.graphs.insert("inner".into(), inner);
    assert_eq!(
        message(&graph),
        "graphs.inner.nodes[1]: found an empty name, expected one"
    );
    graph.graphs.get_mut("inner").unwrap().nodes.pop();
    assert_eq!(
        message(&graph),
        "graphs.inner.nodes.x.type: found `graph:gone`, expected the name of a subgraph there is"
    );
}

#[test]
fn settings_of_a_subgraph_are_an_error() {
    let mut graph = GraphSpec::default();
    graph.add(NodeSpec::new("x", "graph:a").with_settings(json!({ "gain": 2 })));
    graph.add(NodeSpec::new("y", "graph:a").with_settings(json!(null)));
    graph.graphs.insert("a".into(), GraphSpec::default());
    assert_eq!(
        message(&graph),
        r#"nodes.x.params: found {"gain":2}, expected none: a subgraph takes no settings"#
    );
}

#[test]
fn full_names_that_clash_are_an_error() {
    let mut inner = GraphSpec::default();
    node(&mut inner, "b", "Copy");
    let mut graph = GraphSpec::default();
    node(&mut graph, "a", "graph:inner");
    node(&mut graph, "a/b", "Copy");
    node(&mut graph, "c/d", "Copy");
    graph.graphs.insert("inner".into(), inner);
    assert_eq!(
        message(&graph),
        "nodes.a/b: found the full name `a/b`, which graphs.inner.nodes.b has too, expected \
         another"
    );
}

#[test]
fn sg1_a_description_that_expands_without_bounds_is_refused_at_once() {
    // Each level uses the next twice.
    let mut graph = GraphSpec::default();
    node(&mut graph, "x", "graph:0");
    for level in 0..60 {
        let mut inner = GraphSpec::default();
        for name in ["a", "b"] {
            let kind = match level {
                59 => "Copy".to_owned(),
                _ => format!("graph:{}", level + 1),
            };
            node(&mut inner, name, &kind);
        }
        graph.graphs.insert(level.to_string(), inner);
    }
    assert_eq!(
        message(&graph),
        "the subgraphs put in place make 1152921504606846976 nodes, expected at most 4194304"
    );
    // The same with nothing in it, and with an input that feeds the next level's twice.
    let last = graph.graphs.get_mut("59").unwrap();
    last.nodes.clear();
    assert_eq!(
        message(&graph),
        "the subgraphs put in place make 1152921504606846976 uses of subgraphs, expected at \
         most 4194304"
    );
    let mut graph = GraphSpec::default();
    let x = node(&mut graph, "x", "graph:0");
    graph.inputs.insert("i".into(), InputSpec::new(x, 0));
    for level in 0..70 {
        let mut inner = GraphSpec::default();
        let kind = match level {
            69 => "Copy".to_owned(),
            _ => format!("graph:{}", level + 1),
        };
        let mut input = InputSpec::default();
        for name in ["a", "b"] {
            let node = if level < 25 || name == "a" {
                node(&mut inner, name, &kind)
            } else {
                node(&mut inner, name, "Copy")
            };
            input.to.push(InputRef { node, input: 0 });
        }
        inner.inputs.insert("i".into(), input);
        graph.graphs.insert(level.to_string(), inner);
    }
    assert!(message(&graph).contains("expected at most"));
}

#[test]
fn sg2_depth_costs_no_stack() {
    let mut graph = GraphSpec::default();
    node(&mut graph, "n", "graph:0");
    let depth = 10_000;
    for level in 0..depth {
        let mut inner = GraphSpec::default();
        let kind = match level + 1 {
            next if next == depth => "Copy".to_owned(),
            next => format!("graph:{next}"),
        };
        let n = node(&mut inner, "n", &kind);
        inner.outputs.insert("y".into(), OutputSpec::new(n, 0));
        graph.graphs.insert(level.to_string(), inner);
    }
    graph
        .outputs
        .insert("y".into(), OutputSpec::new(NodeId::new(0), 0));
    let flat = flatten(&graph).unwrap();
    assert_eq!(flat.spec.nodes.len(), 1);
    assert_eq!(flat.spec.nodes[0].name.len(), 2 * depth + 1);
    assert_eq!(flat.spec.outputs["y"], OutputSpec::new(NodeId::new(0), 0));
}

/// What a flat edge joins, found by following the description naively.
fn naive(graph: &GraphSpec) -> Vec<String> {
    // Ends of each kind: leaf slots, and slots of subgraphs, by full name.
    fn walk(
        graph: &GraphSpec,
        around: &[&GraphSpec],
        prefix: &str,
        links: &mut Vec<(String, String)>,
    ) {
        let name = |id: NodeId| format!("{prefix}{}", graph.node(id).unwrap().name);
        for edge in &graph.edges {
            links.push((
                format!("{}>{}", name(edge.from), edge.output),
                format!("{}<{}", name(edge.to), edge.input),
            ));
        }
        let border = prefix.strip_suffix('/').unwrap_or("");
        for (number, input) in graph.inputs.values().enumerate() {
            for to in &input.to {
                links.push((
                    format!("{border}<{number}"),
                    format!("{}<{}", name(to.node), to.input),
                ));
            }
        }
        for (number, output) in graph.outputs.values().enumerate() {
            links.push((
                format!("{}>{}", name(output.node), output.output),
                format!("{border}>{number}"),
            ));
        }
        let mut scopes = around.to_vec();
        scopes.push(graph);
        for node in &graph.nodes {
            let Some(kind) = node.subgraph() else {
                continue;
            };
            let depth = scopes
                .iter()
                .rposition(|scope| scope.graphs.contains_key(kind))
                .unwrap();
            let inner = &scopes[depth].graphs[kind];
            walk(
                inner,
                &scopes[..=depth],
                &format!("{prefix}{}/", node.name),
                links,
            );
        }
    }
    let mut links = Vec::new();
    walk(graph, &[], "", &mut links);
    let mut next: HashMap<&str, Vec<&str>> = HashMap::new();
    for (from, to) in &links {
        next.entry(from).or_default().push(to);
    }
    let inner: Vec<&str> = links.iter().map(|(_, to)| to.as_str()).collect();
    let mut ends = Vec::new();
    for from in next.keys() {
        // Begin at outputs of leaves: nothing leads to them.
        if !from.contains('>') || inner.contains(from) {
            continue;
        }
        let mut open = vec![*from];
        while let Some(at) = open.pop() {
            match next.get(at) {
                Some(further) => open.extend(further),
                None => {
                    let (from, output) = from.rsplit_once('>').unwrap();
                    // Otherwise it ends at an output of the whole, or at an input that feeds
                    // nothing.
                    if let Some((to, input)) = at.rsplit_once('<')
                        && to.rsplit('/').next().unwrap().starts_with("leaf")
                    {
                        ends.push(format!("{from}.{output} > {to}.{input}"));
                    }
                }
            }
        }
    }
    ends.sort();
    ends
}

/// A graph with `leaves` leaves and uses of `kinds` subgraphs with two inputs and two outputs
/// each, all connected. Leaves are sources of any number of outputs.
fn random(picks: &[u32], kinds: &[&str]) -> GraphSpec {
    let mut picks = picks.iter().copied().cycle();
    let mut pick = |below: usize| picks.next().unwrap_or(0) as usize % below;
    let mut graph = GraphSpec::default();
    for index in 0..2 + pick(3) {
        node(&mut graph, &format!("leaf{index}"), "Leaf");
    }
    let leaves = graph.nodes.len();
    for index in 0..pick(3) * kinds.len().min(1) {
        let kind = kinds[pick(kinds.len())];
        node(&mut graph, &format!("use{index}"), &format!("graph:{kind}"));
    }
    let id = |index: usize| NodeId::new(u32::try_from(index).unwrap());
    let mut next_input = vec![0; leaves];
    let count = graph.nodes.len();
    let mut targets = Vec::new();
    for inner in leaves..count {
        targets.extend([(id(inner), 0), (id(inner), 1)]);
    }
    for _ in 0..pick(5) {
        let leaf = pick(leaves);
        targets.push((id(leaf), next_input[leaf]));
        next_input[leaf] += 1;
    }
    let mut inputs = [InputSpec::default(), InputSpec::default()];
    for to in targets {
        match pick(4) {
            side @ 0..2 => inputs[side].to.push(InputRef {
                node: to.0,
                input: to.1,
            }),
            _ => graph
                .edges
                .push(EdgeSpec::new((id(pick(count)), pick(2)), to)),
        }
    }
    for (name, input) in ["x", "y"].into_iter().zip(inputs) {
        graph.inputs.insert(name.into(), input);
        let output = OutputSpec::new(id(pick(count)), pick(2));
        graph.outputs.insert(name.into(), output);
    }
    graph
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn edges_join_what_following_the_description_finds(
        picks in prop::collection::vec(prop::collection::vec(any::<u32>(), 8..40), 5)
    ) {
        // `c` uses none, `b` uses `c`, `a` uses `b` and its own `d`.
        let mut a = random(&picks[0], &["b", "d"]);
        a.graphs.insert("d".into(), random(&picks[1], &["c"]));
        let mut graph = random(&picks[2], &["a", "b", "c"]);
        graph.graphs.insert("a".into(), a);
        graph.graphs.insert("b".into(), random(&picks[3], &["c"]));
        graph.graphs.insert("c".into(), random(&picks[4], &[]));
        let flat = flatten(&graph).unwrap();
        let mut found = edges(&flat);
        found.sort();
        prop_assert_eq!(found, naive(&graph));
        prop_assert!(flat.spec.nodes.iter().all(|node| node.subgraph().is_none()));
        for (id, node) in flat.spec.nodes.iter().enumerate() {
            let place = flat.place(NodeId::new(u32::try_from(id).unwrap()));
            let own = node.name.rsplit('/').next().unwrap();
            prop_assert!(place.ends_with(&format!("nodes.{own}")), "{place}");
        }
        prop_assert_eq!(flat.by_name().len(), flat.spec.nodes.len());
    }
}
