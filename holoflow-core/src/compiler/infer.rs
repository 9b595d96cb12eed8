//! Pass: asks every factory, in dependency order, what its node makes of its inputs.
//!
//! A node whose inputs could not be inferred is passed over, so that one mistake is
//! reported once and others are found as well.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ir::{Ir, Maker, Source};
use super::{CompileError, CompileErrors};
use crate::graph::FlatGraph;
use crate::registry::{Registry, TaskFactory};
use crate::task::{Hook, HookError, InferResult, Placement, TaskError, TaskKind, TaskRequest};
use crate::tensor::TDesc;

pub(super) fn infer(
    flat: &FlatGraph<'_>,
    ir: &mut Ir,
    registry: &Registry,
) -> Result<(), CompileErrors> {
    let mut errors = Vec::new();
    for position in 0..ir.order.len() {
        let node = ir.order[position];
        let Some(inputs) = input_descs(flat, ir, node, &mut errors) else {
            continue;
        };
        match infer_node(ir, node, registry, &inputs) {
            Ok((factory, placement, result)) => {
                let node = &mut ir.nodes[node];
                node.maker = Some(Maker::Factory(factory));
                node.placement = placement;
                node.infer = Some(result);
            }
            Err(error) => errors.push(error),
        }
    }
    check_outputs(ir, &mut errors);
    CompileErrors::check(errors)
}

/// Layouts of a node's inputs; `None` if one is not known, which has been reported.
fn input_descs(
    flat: &FlatGraph<'_>,
    ir: &Ir,
    node: usize,
    errors: &mut Vec<CompileError>,
) -> Option<Vec<TDesc>> {
    let mut descs = Vec::with_capacity(ir.nodes[node].inputs.len());
    let mut known = true;
    for (input, source) in ir.nodes[node].inputs.iter().enumerate() {
        match *source {
            Source::Input(_) => descs.push(ir.desc(*source).clone()),
            Source::Node { node: from, output } => match &ir.nodes[from].infer {
                None => known = false,
                Some(result) => match result.output_descs.get(output) {
                    Some(desc) => descs.push(desc.clone()),
                    None => {
                        known = false;
                        // Edges of the flat graph come first, so the numbers are its own.
                        errors.push(CompileError::NoSuchOutput {
                            place: flat.edge_place(ir.nodes[node].edges[input]),
                            node: ir.nodes[from].name.clone(),
                            output,
                            count: result.output_descs.len(),
                        });
                    }
                },
            },
        }
    }
    known.then_some(descs)
}

fn infer_node(
    ir: &Ir,
    node: usize,
    registry: &Registry,
    inputs: &[TDesc],
) -> Result<(TaskFactory, Placement, InferResult), CompileError> {
    let node = &ir.nodes[node];
    let (factory, placement) =
        choose(registry, &node.kind, inputs).map_err(|cause| CompileError::UnknownKind {
            node: node.name.clone(),
            cause,
        })?;
    let request = TaskRequest::new(&node.name, &node.settings, inputs);
    let result = catch_unwind(AssertUnwindSafe(|| match &factory {
        TaskFactory::Sync(factory) => factory.infer(&request),
        TaskFactory::Async(factory) => factory.infer(&request),
    }))
    .unwrap_or_else(|payload| Err(TaskError::panicked(payload)))
    .and_then(|result| {
        if result.kind == factory.kind() {
            result.check(inputs.len())?;
        }
        Ok(result)
    });
    let result = result
        .map_err(|error| CompileError::Infer(HookError::new(&*node.name, Hook::Infer, error)))?;
    if result.kind != factory.kind() {
        return Err(CompileError::KindMismatch {
            node: node.name.clone(),
            kind: node.kind.clone(),
            registered: factory.kind(),
            inferred: result.kind,
        });
    }
    for (input, (found, wanted)) in inputs.iter().zip(&result.input_descs).enumerate() {
        // A borrowed input is read where it is, whatever its strides and offset; what is
        // written into a task's own storage must have the layout that the task reads, and
        // what an output shares that from which the output's layout was made.
        let shared = result.in_place.iter().any(|pair| pair.input == input);
        let fits = if result.owned_inputs[input] || shared {
            found.same_layout(wanted)
        } else {
            found.shape() == wanted.shape()
                && found.dtype() == wanted.dtype()
                && found.location() == wanted.location()
        };
        if !fits {
            return Err(CompileError::InputMismatch {
                node: node.name.clone(),
                input,
                found: found.to_string(),
                expected: wanted.to_string(),
            });
        }
    }
    Ok((factory, placement, result))
}

/// The factory for the memory that the inputs lie in.
fn choose(
    registry: &Registry,
    kind: &str,
    inputs: &[TDesc],
) -> Result<(TaskFactory, Placement), crate::registry::RegistryError> {
    let on_device = inputs.iter().any(|input| input.location().is_device());
    // The only factory may still take other inputs: a copy from one memory to another has its
    // inputs in one and its outputs in the other.
    let (wanted, other) = if on_device {
        (Placement::Device, Placement::Host)
    } else {
        (Placement::Host, Placement::Device)
    };
    let found = |placement| {
        let factory = registry.get(kind, Some(placement))?;
        Ok((factory.clone(), placement))
    };
    found(wanted).or_else(|missing| found(other).map_err(|_| missing))
}

/// Graph outputs must be outputs that there are, and async nodes must have two sides.
fn check_outputs(ir: &Ir, errors: &mut Vec<CompileError>) {
    for output in &ir.outputs {
        let Source::Node {
            node,
            output: number,
        } = output.source
        else {
            continue;
        };
        if let Some(result) = &ir.nodes[node].infer
            && number >= result.output_descs.len()
        {
            errors.push(CompileError::NoSuchOutput {
                place: format!("outputs.{}", output.name),
                node: ir.nodes[node].name.clone(),
                output: number,
                count: result.output_descs.len(),
            });
        }
    }
    let mut popped = vec![false; ir.nodes.len()];
    let read = ir.edges.iter().map(|(source, _)| *source);
    for source in read.chain(ir.outputs.iter().map(|output| output.source)) {
        if let Source::Node { node, .. } = source
            && let Some(popped) = popped.get_mut(node)
        {
            *popped = true;
        }
    }
    for (node, popped) in ir.nodes.iter().zip(popped) {
        if let Some(result) = &node.infer
            && result.kind == TaskKind::Async
            && !result.output_descs.is_empty()
            && !popped
        {
            errors.push(CompileError::NeverPopped {
                node: node.name.clone(),
            });
        }
    }
}
