//! Inserts copies between a tensor and what reads it.
//!
//! In host memory the compiler has a task of its own for that ([`copy`](super::copy)); in
//! device memory it takes a registered kind named `Copy`.
//!
//! What this module does not know: when a copy is needed.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::CompileError;
use super::ir::{Ir, IrNode, Maker, Reader, Source};
use super::storage::moved_to;
use crate::registry::{Registry, TaskFactory};
use crate::storage::Slot;
use crate::task::{InferResult, Placement, TaskRequest};
use crate::tensor::TDesc;

/// How the names of copies begin.
pub(super) const COPY: &str = "copy for ";

/// A copy to be inserted before an input, or before a graph output.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) before: Before,
    /// Why, for the plan.
    pub(super) why: String,
    /// What is said if no copy may be made.
    pub(super) error: CompileError,
}

/// What reads the copy.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before {
    Input(Reader),
    Output(usize),
}

/// Inserts a copy between a tensor and what reads it.
pub(super) fn insert_copy(
    ir: &mut Ir,
    registry: &Registry,
    need: Need,
    names: &mut HashSet<String>,
) -> Result<(), CompileError> {
    let (source, place) = match need.before {
        Before::Input(reader) => {
            let node = &ir.nodes[reader.node];
            (
                node.inputs[reader.input],
                format!("{}[{}]", node.name, reader.input),
            )
        }
        Before::Output(output) => {
            let output = &ir.outputs[output];
            (output.source, format!("outputs.{}", output.name))
        }
    };
    let mut name = format!("{COPY}{place}");
    while !names.insert(name.clone()) {
        name.push('\'');
    }
    let desc = ir.desc(source).clone();
    let packed = moved_to(&desc, 0);
    let settings = serde_json::Value::Object(serde_json::Map::new());
    let (maker, placement) = if desc.location().is_device() {
        let factory = device_copy(registry, &name, &settings, &desc, &packed);
        let place = match need.before {
            Before::Input(reader) => {
                let (node, input) = (&ir.nodes[reader.node].name, Slot::Input(reader.input));
                format!("nodes.{node}: {input}")
            }
            Before::Output(_) => place,
        };
        let factory = factory.ok_or(CompileError::NoDeviceCopy {
            place,
            location: desc.location(),
        })?;
        (Maker::Factory(factory), Placement::Device)
    } else {
        (Maker::Copy, Placement::Host)
    };
    let node = ir.nodes.len();
    let input = Reader { node, input: 0 };
    let edge = ir.connect(source, input);
    ir.nodes.push(IrNode {
        name,
        kind: "Copy".to_owned(),
        settings,
        debug: true,
        inserted: Some(need.why),
        inputs: vec![source],
        edges: vec![edge],
        maker: Some(maker),
        placement,
        infer: Some(InferResult::sync([desc], [packed])),
    });
    let output = Source::Node { node, output: 0 };
    match need.before {
        Before::Input(reader) => {
            let node = &mut ir.nodes[reader.node];
            node.inputs[reader.input] = output;
            ir.edges[node.edges[reader.input]].0 = output;
        }
        Before::Output(index) => ir.outputs[index].source = output,
    }
    Ok(())
}

/// The registered factory of copies in device memory, if it makes plain ones.
fn device_copy(
    registry: &Registry,
    node: &str,
    settings: &serde_json::Value,
    from: &TDesc,
    to: &TDesc,
) -> Option<TaskFactory> {
    let factory = registry.get("Copy", Some(Placement::Device)).ok()?;
    let TaskFactory::Sync(sync) = factory else {
        return None;
    };
    let request = TaskRequest::new(node, settings, std::slice::from_ref(from));
    let infer = AssertUnwindSafe(|| sync.infer(&request));
    let found = catch_unwind(infer).ok()?.ok()?;
    found.check(1).ok()?;
    let plain = InferResult::sync(found.input_descs.clone(), [to.clone()]);
    let plain = InferResult {
        synchronizes_producer_stream: found.synchronizes_producer_stream,
        ..plain
    };
    (found == plain && found.input_descs[0].shape() == from.shape()).then(|| factory.clone())
}
