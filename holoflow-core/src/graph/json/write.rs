//! From a description, whose names and indices are checked, to JSON.

use serde_json::{Map, Value, json};

use super::super::place::{child, grandchild};
use super::super::{GraphError, GraphErrors, GraphSpec, InputSpec};
use super::{MAX_LEVELS, MAX_OPEN};
use crate::ids::NodeId;

pub(super) fn document(graph: &GraphSpec) -> Result<Value, GraphErrors> {
    let mut errors = Vec::new();
    let value = write(graph, "", 0, &mut errors);
    GraphErrors::check(errors, Vec::new())?;
    Ok(value)
}

fn write(graph: &GraphSpec, place: &str, level: usize, errors: &mut Vec<GraphError>) -> Value {
    // Brackets open where the graph's own are.
    let open = 2 * level + 1;
    let name = |node: NodeId| {
        let node = graph.node(node);
        node.map_or("", |node| node.name.as_str())
    };
    let mut order: Vec<_> = graph.nodes.iter().collect();
    order.sort_by(|a, b| a.name.cmp(&b.name));
    let mut nodes = Map::new();
    for node in order {
        let settings = match &node.settings {
            Value::Null => Value::Object(Map::new()),
            settings => settings.clone(),
        };
        let at = || child(&grandchild(place, "nodes", &node.name), "params");
        check_depth(&settings, open + 2, &at, errors);
        let mut value = Map::new();
        value.insert("type".to_owned(), Value::from(node.kind.as_str()));
        value.insert("params".to_owned(), settings);
        if !node.debug {
            value.insert("debug".to_owned(), Value::Bool(false));
        }
        nodes.insert(node.name.clone(), Value::Object(value));
    }
    let edges = graph.edges.iter().map(|edge| {
        json!({
            "from": name(edge.from),
            "to": name(edge.to),
            "out": edge.output,
            "in": edge.input,
        })
    });
    let mut document = Map::new();
    document.insert("nodes".to_owned(), Value::Object(nodes));
    document.insert("edges".to_owned(), edges.collect());
    let inputs: Map<_, _> = graph
        .inputs
        .iter()
        .map(|(key, input)| (key.clone(), input_value(input, &name)))
        .collect();
    let outputs: Map<_, _> = graph
        .outputs
        .iter()
        .map(|(key, output)| {
            let value = json!({ "from": name(output.node), "out": output.output });
            (key.clone(), value)
        })
        .collect();
    let mut graphs = Map::new();
    for (key, inner) in &graph.graphs {
        let place = grandchild(place, "graphs", key);
        if level < MAX_LEVELS {
            graphs.insert(key.clone(), write(inner, &place, level + 1, errors));
        } else {
            errors.push(GraphError::TooDeep {
                place,
                found: level + 1,
                limit: MAX_LEVELS,
            });
        }
    }
    for (key, value) in &graph.options {
        let at = || grandchild(place, "options", key);
        check_depth(value, open + 1, &at, errors);
    }
    let options = graph.options.clone();
    for (key, value) in [
        ("inputs", inputs),
        ("outputs", outputs),
        ("graphs", graphs),
        ("options", options),
    ] {
        if !value.is_empty() {
            document.insert(key.to_owned(), Value::Object(value));
        }
    }
    Value::Object(document)
}

fn input_value<'g>(input: &InputSpec, name: &dyn Fn(NodeId) -> &'g str) -> Value {
    let mut targets: Vec<_> = input
        .to
        .iter()
        .map(|to| json!({ "to": name(to.node), "in": to.input }))
        .collect();
    let Some(desc) = &input.desc else {
        return match targets.len() {
            1 => targets.remove(0),
            _ => Value::Array(targets),
        };
    };
    let desc = json!(desc);
    match targets.as_mut_slice() {
        [target] => {
            target["desc"] = desc;
            target.take()
        }
        _ => json!({ "to": targets, "desc": desc }),
    }
}

/// What a parser would not read is not written.
fn check_depth(value: &Value, open: usize, at: &dyn Fn() -> String, errors: &mut Vec<GraphError>) {
    let found = open + depth(value);
    if found > MAX_OPEN {
        errors.push(GraphError::TooDeep {
            place: at(),
            found,
            limit: MAX_OPEN,
        });
    }
}

/// Brackets open at the deepest place.
fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut stack = vec![(value, 0)];
    while let Some((value, open)) = stack.pop() {
        deepest = deepest.max(open);
        match value {
            Value::Array(values) => {
                deepest = deepest.max(open + 1);
                stack.extend(values.iter().map(|value| (value, open + 1)));
            }
            Value::Object(values) => {
                deepest = deepest.max(open + 1);
                stack.extend(values.values().map(|value| (value, open + 1)));
            }
            _ => {}
        }
    }
    deepest
}
