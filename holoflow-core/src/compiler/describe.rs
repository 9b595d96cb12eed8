//! Pass: writes down what the others found, as a [`Plan`].
//!
//! Here roles are decided, by slot and nothing else: a storage with a declared output in it
//! is I/O memory, one that a task or the application owns is not allocated, every other is
//! execution memory.

use super::ir::{Ir, Source};
use super::plan::{Plan, PlanNode, PlanSection, PlanStorage, PlanTensor, Role};
use super::sections::Sections;
use super::storage::{Owner, Storages};
use crate::ids::{NodeId, SectionId, StorageId, TensorId};
use crate::storage::Slot;

/// Ids are 32 bits: a graph with more than four thousand million things is out of reach long
/// before.
fn id(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

pub(super) fn describe(ir: &Ir, found: &Storages, sections: &Sections) -> Plan {
    let tensor_id = |source: Source| TensorId::new(id(found.tensor(source)));
    let section_id = |section: Option<usize>| section.map(|index| SectionId::new(id(index)));
    let node_ids = |nodes: &[usize]| nodes.iter().map(|node| NodeId::new(id(*node))).collect();

    let nodes = (0..ir.nodes.len())
        .map(|index| {
            let (node, result) = (&ir.nodes[index], ir.inferred(index));
            let outputs = 0..result.output_descs.len();
            PlanNode {
                name: node.name.clone(),
                kind: node.kind.clone(),
                settings: node.settings.clone(),
                debug: node.debug,
                task: result.kind,
                placement: node.placement,
                inserted: node.inserted.clone(),
                inputs: node
                    .inputs
                    .iter()
                    .map(|source| tensor_id(*source))
                    .collect(),
                outputs: outputs
                    .map(|output| {
                        tensor_id(Source::Node {
                            node: index,
                            output,
                        })
                    })
                    .collect(),
                owned_inputs: result.owned_inputs.clone(),
                owned_outputs: result.owned_outputs.clone(),
                in_place: result.in_place.clone(),
                may_skip: result.may_skip,
                blocking: result.blocking,
                flow: result.flow,
                producer: section_id(sections.taking(index)),
                consumer: section_id(sections.popping(index)),
            }
        })
        .collect();

    let tensors = found.tensors.iter().enumerate().map(|(index, source)| {
        let storage = found.of[index];
        let producer = match source {
            Source::Input(_) => None,
            Source::Node { node, output } => Some((NodeId::new(id(*node)), *output)),
        };
        let readers = found.readers(index).iter();
        PlanTensor {
            desc: found.layout(ir, index),
            producer,
            readers: readers
                .map(|reader| (NodeId::new(id(reader.node)), reader.input))
                .collect(),
            storage: StorageId::new(id(storage)),
        }
    });
    let tensors: Vec<PlanTensor> = tensors.collect();

    let mut storages: Vec<PlanStorage> = found
        .storages
        .iter()
        .map(|storage| PlanStorage {
            location: ir.desc(storage.root).location(),
            bytes: storage.bytes,
            role: match storage.owner {
                Owner::Compiler => Role::Execution,
                Owner::Input(_) => Role::Borrowed,
                Owner::NodeInput(reader) => Role::Task {
                    node: NodeId::new(id(reader.node)),
                    slot: Slot::Input(reader.input),
                },
                Owner::NodeOutput { node, output } => Role::Task {
                    node: NodeId::new(id(node)),
                    slot: Slot::Output(output),
                },
            },
            written: false,
            section: section_id(sections.giving(ir, storage.root)),
            tensors: Vec::new(),
        })
        .collect();
    for (index, tensor) in tensors.iter().enumerate() {
        let storage = &mut storages[tensor.storage.index()];
        storage.tensors.push(TensorId::new(id(index)));
        // An async node's own output is published by its task and written by nobody else; a
        // sync node writes what it gives, unless it is a view.
        storage.written |= tensor.producer.is_some_and(|(node, output)| {
            let result = ir.inferred(node.index());
            let pair = result.in_place.iter().find(|pair| pair.output == output);
            !result.owned_outputs[output]
                && pair.is_none_or(|pair| pair.aliasing == crate::task::Aliasing::Overwrite)
        });
    }
    for output in &ir.outputs {
        let storage = &mut storages[found.of[found.tensor(output.source)]];
        if storage.role == Role::Execution {
            storage.role = Role::Io;
        }
    }

    Plan {
        nodes,
        sections: sections
            .sections
            .iter()
            .map(|section| PlanSection {
                sync: node_ids(&section.sync),
                pops: node_ids(&section.pops),
                pushes: node_ids(&section.pushes),
                device: section.device.map(|(device, _)| device),
            })
            .collect(),
        inputs: ir
            .inputs
            .iter()
            .enumerate()
            .map(|(index, input)| (input.name.clone(), tensor_id(Source::Input(index))))
            .collect(),
        outputs: ir
            .outputs
            .iter()
            .map(|output| (output.name.clone(), tensor_id(output.source)))
            .collect(),
        tensors,
        storages,
    }
}
