//! Pass: what can be wrong with a flat graph before any factory is asked.
//!
//! Names, kinds, the ends of edges, the numbers of inputs, the layouts of graph inputs; then
//! the order of the nodes, which a cycle makes impossible.

use std::collections::{BTreeMap, HashMap};

use super::ir::{Ir, IrInput, IrNode, IrOutput, Maker, Reader, Source};
use super::{CompileError, CompileErrors};
use crate::graph::{FlatGraph, GraphSpec};
use crate::registry::Registry;
use crate::task::Placement;
use crate::tensor::TDesc;

/// Checks a flat graph and makes the passes' form of it. Nodes of subgraphs go by their full
/// names, `outer/inner`; edges are named by their place in the description.
pub(super) fn validate(
    flat: &FlatGraph<'_>,
    registry: &Registry,
    layouts: &BTreeMap<String, TDesc>,
) -> Result<Ir, CompileErrors> {
    let graph = &*flat.spec;
    let mut errors = Vec::new();
    check_names(graph, &mut errors);
    let mut ir = Ir::default();
    ir.nodes.reserve_exact(graph.nodes.len());
    ir.edges.reserve_exact(graph.edges.len());
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
            edges: Vec::new(),
            maker,
            placement: Placement::Host,
            infer: None,
        });
    }
    connect(flat, &mut ir, layouts, &mut errors);
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

fn connect(
    flat: &FlatGraph<'_>,
    ir: &mut Ir,
    layouts: &BTreeMap<String, TDesc>,
    errors: &mut Vec<CompileError>,
) {
    let graph = &*flat.spec;
    let count = graph.nodes.len();
    let names: Vec<&String> = graph.inputs.keys().collect();
    for edge in &graph.edges {
        let source = Source::Node {
            node: edge.from.index(),
            output: edge.output,
        };
        let (node, input) = (edge.to.index(), edge.input);
        ir.edges.push((source, Reader { node, input }));
    }
    for (index, (name, input)) in graph.inputs.iter().enumerate() {
        for to in &input.to {
            let (node, input) = (to.node.index(), to.input);
            ir.edges
                .push((Source::Input(index), Reader { node, input }));
        }
        let desc = layouts.get(name).or(input.desc.as_ref()).cloned();
        ir.inputs.push(IrInput {
            name: name.clone(),
            desc,
        });
    }
    let place = |edge: usize, source: Source| match source {
        Source::Input(input) => format!("inputs.{}", names[input]),
        Source::Node { .. } => flat.edge_place(edge),
    };
    // For each node, the edges to it in order: where they begin in `to`, and one more.
    let mut begin = vec![0_usize; count + 1];
    for (edge, (source, reader)) in ir.edges.iter().enumerate() {
        let from = match source {
            Source::Node { node, .. } => Some(*node),
            Source::Input(_) => None,
        };
        for index in from.into_iter().chain([reader.node]) {
            if index >= count {
                errors.push(CompileError::NoSuchNode {
                    place: place(edge, *source),
                    index,
                    count,
                });
            }
        }
        if reader.node < count {
            begin[reader.node + 1] += 1;
        }
    }
    for node in 0..count {
        begin[node + 1] += begin[node];
    }
    let mut next = begin.clone();
    let mut to = vec![0_usize; begin[count]];
    for (edge, (_, reader)) in ir.edges.iter().enumerate() {
        if reader.node < count {
            to[next[reader.node]] = edge;
            next[reader.node] += 1;
        }
    }
    for node in 0..count {
        let edges = &mut to[begin[node]..begin[node + 1]];
        // Stable, so that of two connections to one input the first comes first.
        edges.sort_by_key(|edge| ir.edges[*edge].1.input);
        check_inputs(ir, node, edges, &place, errors);
        ir.nodes[node].inputs = edges.iter().map(|edge| ir.edges[*edge].0).collect();
        ir.nodes[node].edges = edges.to_vec();
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

/// Checks that each input of a node is connected once, and that none is left out.
fn check_inputs(
    ir: &Ir,
    node: usize,
    edges: &[usize],
    place: &impl Fn(usize, Source) -> String,
    errors: &mut Vec<CompileError>,
) {
    let input = |edge: usize| ir.edges[edge].1.input;
    let name = |edge: usize| place(edge, ir.edges[edge].0);
    let mut first = 0;
    let mut count = edges.len();
    for (index, edge) in edges.iter().enumerate().skip(1) {
        if input(*edge) != input(edges[first]) {
            first = index;
            continue;
        }
        count -= 1;
        errors.push(CompileError::ConnectedTwice {
            place: name(*edge),
            node: ir.nodes[node].name.clone(),
            input: input(*edge),
            first: name(edges[first]),
        });
    }
    if let Some(last) = edges.last()
        && input(*last) >= count
    {
        let mut missing = 0;
        for edge in edges {
            if input(*edge) > missing {
                break;
            }
            missing = input(*edge) + 1;
        }
        errors.push(CompileError::InputGap {
            place: name(*last),
            node: ir.nodes[node].name.clone(),
            input: input(*last),
            count,
            missing,
        });
    }
}
