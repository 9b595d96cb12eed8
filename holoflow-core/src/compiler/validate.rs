//! Pass: what can be wrong with a flat graph before any factory is asked.
//!
//! Names, kinds, the ends of edges, the numbers of inputs, the layouts of graph inputs; then
//! the order of the nodes, which a cycle makes impossible.

use std::collections::{BTreeMap, HashMap};

use super::ir::{Ir, IrInput, IrNode, IrOutput, Maker, Reader, Source};
use super::{CompileError, CompileErrors};
use crate::graph::GraphSpec;
use crate::registry::Registry;
use crate::task::Placement;
use crate::tensor::TDesc;

/// Checks `graph`, which has no subgraphs any more, and makes the passes' form of it.
pub(super) fn validate(
    graph: &GraphSpec,
    registry: &Registry,
    layouts: &BTreeMap<String, TDesc>,
) -> Result<Ir, CompileErrors> {
    let mut errors = Vec::new();
    check_names(graph, &mut errors);
    let mut ir = Ir::default();
    for node in &graph.nodes {
        let maker = match registry.get(&node.kind, None) {
            Ok(factory) => Some(Maker::Factory(factory.clone())),
            Err(cause) => {
                let node = node.name.clone();
                errors.push(CompileError::UnknownKind { node, cause });
                None
            }
        };
        ir.nodes.push(IrNode {
            name: node.name.clone(),
            kind: node.kind.clone(),
            settings: node.settings.clone(),
            debug: node.debug,
            inserted: None,
            inputs: Vec::new(),
            maker,
            placement: Placement::Host,
            infer: None,
        });
    }
    connect(graph, &mut ir, layouts, &mut errors);
    CompileErrors::check(errors)?;
    ir.sort()?;
    Ok(ir)
}

fn check_names(graph: &GraphSpec, errors: &mut Vec<CompileError>) {
    let mut count: HashMap<&str, usize> = HashMap::with_capacity(graph.nodes.len());
    for (index, node) in graph.nodes.iter().enumerate() {
        if node.name.is_empty() {
            errors.push(CompileError::UnnamedNode { index });
        } else {
            *count.entry(&node.name).or_default() += 1;
        }
    }
    // In the order of the nodes, each name once.
    for node in &graph.nodes {
        if let Some(count) = count.remove(node.name.as_str())
            && count > 1
        {
            errors.push(CompileError::DuplicateName {
                name: node.name.clone(),
                count,
            });
        }
    }
}

/// A connection to an input, and its place in the description.
struct Connection {
    source: Source,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Edge(usize),
    Input(usize),
}

fn connect(
    graph: &GraphSpec,
    ir: &mut Ir,
    layouts: &BTreeMap<String, TDesc>,
    errors: &mut Vec<CompileError>,
) {
    let count = graph.nodes.len();
    let names: Vec<&String> = graph.inputs.keys().collect();
    let text = |place: Place| match place {
        Place::Edge(index) => format!("edges[{index}]"),
        Place::Input(index) => format!("inputs.{}", names[index]),
    };
    let mut slots: Vec<BTreeMap<usize, Connection>> = Vec::new();
    slots.resize_with(count, BTreeMap::new);
    let mut add = |ir: &mut Ir, source, node: usize, input, place: Place| {
        let Some(connected) = slots.get_mut(node) else {
            let place = text(place);
            errors.push(CompileError::NoSuchNode {
                place,
                index: node,
                count,
            });
            return;
        };
        if let Some(first) = connected.get(&input) {
            errors.push(CompileError::ConnectedTwice {
                place: text(place),
                node: graph.nodes[node].name.clone(),
                input,
                first: text(first.place),
            });
            return;
        }
        connected.insert(input, Connection { source, place });
        ir.edges.push((source, Reader { node, input }));
    };
    for (index, edge) in graph.edges.iter().enumerate() {
        let source = Source::Node {
            node: edge.from.index(),
            output: edge.output,
        };
        add(ir, source, edge.to.index(), edge.input, Place::Edge(index));
    }
    for (index, (name, input)) in graph.inputs.iter().enumerate() {
        for to in &input.to {
            add(
                ir,
                Source::Input(index),
                to.node.index(),
                to.input,
                Place::Input(index),
            );
        }
        let desc = layouts.get(name).or(input.desc.as_ref()).cloned();
        ir.inputs.push(IrInput {
            name: name.clone(),
            desc,
        });
    }
    for (index, edge) in graph.edges.iter().enumerate() {
        if edge.from.index() >= count {
            let place = format!("edges[{index}]");
            errors.push(CompileError::NoSuchNode {
                place,
                index: edge.from.index(),
                count,
            });
        }
    }
    for (node, connected) in slots.into_iter().enumerate() {
        let numbers = connected.len();
        if let Some((input, last)) = connected.last_key_value()
            && *input >= numbers
        {
            errors.push(CompileError::InputGap {
                place: text(last.place),
                node: graph.nodes[node].name.clone(),
                input: *input,
                count: numbers,
                missing: (0..numbers)
                    .find(|n| !connected.contains_key(n))
                    .unwrap_or(numbers),
            });
        }
        ir.nodes[node].inputs = connected.into_values().map(|found| found.source).collect();
    }
    for (name, output) in &graph.outputs {
        let node = output.node.index();
        if node >= count {
            let place = format!("outputs.{name}");
            errors.push(CompileError::NoSuchNode {
                place,
                index: node,
                count,
            });
        }
        let source = Source::Node {
            node,
            output: output.output,
        };
        ir.outputs.push(IrOutput {
            name: name.clone(),
            source,
        });
    }
    for input in &ir.inputs {
        if input.desc.is_none() {
            errors.push(CompileError::NoInputLayout {
                input: input.name.clone(),
            });
        }
    }
    for name in layouts
        .keys()
        .filter(|name| !graph.inputs.contains_key(*name))
    {
        let nearest = crate::text::nearest(name, names.iter().map(|name| name.as_str()));
        errors.push(CompileError::UnknownInput {
            input: name.clone(),
            nearest: nearest.map(str::to_owned),
        });
    }
}
