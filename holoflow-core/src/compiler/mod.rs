//! From a description to a plan that says where every byte lives, and to the tasks that run
//! by it.
//!
//! A [`Compiler`] holds what a description is compiled against: the registry, the memory,
//! the devices and the layouts of the graph's inputs. [`Compiler::plan`] runs the passes that
//! need no memory and no task; [`Compiler::compile`] also allocates, and creates the tasks.
//!
//! Passes, each a file, in this order: flatten subgraphs (`crate::graph`), `validate`,
//! `infer`, `owners` (tensor ids and storage ids, see `storage`; owners, copies;
//! `wishes` says what it cannot order), `sections` (and streams), `flow`, `describe`
//! (roles, memory), and `build` (allocate; verify, by binding every slot to its cell; create or
//! update tasks).
//!
//! What this layer does not know: threads, time, and when a section runs. It is the one place
//! that decides where bytes live.
//!
//! Invariants:
//!
//! - **CP1** A pass reports all the errors that it finds, and a later pass runs only on a
//!   graph without errors.
//! - **CP2** The same description gives the same plan. In a graph file the order of the nodes
//!   decides nothing, since they are sorted by name; in a description made in Rust it decides
//!   their numbers, and which of several that could run next comes first. Who owns a storage
//!   and what is copied goes by the order of the edges.
//! - **CP3** A storage has one owner; every cell but those of owned slots and graph inputs has
//!   a region before the first frame.
//! - **CP4** A failed recompilation leaves the previous graph as usable as before: all that
//!   can fail without touching a task is done before the first task is updated.

mod build;
mod copy;
mod describe;
mod dot;
mod error;
mod flow;
mod infer;
mod insert;
mod ir;
mod owners;
mod plan;
mod sections;
mod storage;
mod validate;
mod wishes;

use std::collections::BTreeMap;

pub use build::CompiledGraph;
pub(crate) use build::Section;
pub use error::{CompileError, CompileErrors};
pub use plan::{Plan, PlanNode, PlanSection, PlanStorage, PlanTensor, Role};

use crate::device::DeviceBackend;
use crate::graph::{GraphSpec, flatten};
use crate::memory::Memory;
use crate::registry::Registry;
use crate::sync::Arc;
use crate::tensor::TDesc;

/// What to do where two slots own one storage, or a node overwrites what others still read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_enums, reason = "a copy is allowed or not")]
pub enum Conflicts {
    /// Insert a copy, and show it in the plan.
    #[default]
    Copy,
    /// Refuse the graph.
    Error,
}

/// Compiles descriptions.
#[derive(Debug, Clone)]
pub struct Compiler<'r> {
    registry: &'r Registry,
    layouts: BTreeMap<String, TDesc>,
    conflicts: Option<Conflicts>,
    resources: build::Resources,
}

/// A recompilation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{errors}")]
#[non_exhaustive]
pub struct RecompileError {
    /// What is wrong.
    pub errors: CompileErrors,
    /// The previous graph, as usable as before; `None` if a task of it failed to be updated,
    /// and the graph is gone with it.
    pub previous: Option<CompiledGraph>,
}

impl<'r> Compiler<'r> {
    /// A compiler for graphs of the kinds in `registry`.
    #[must_use]
    pub fn new(registry: &'r Registry) -> Self {
        Self {
            registry,
            layouts: BTreeMap::new(),
            conflicts: None,
            resources: build::Resources {
                memory: Memory::host(),
                devices: Vec::new(),
            },
        }
    }

    /// Gives the layout of a graph input; it goes before one in the description.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, desc: TDesc) -> Self {
        self.layouts.insert(name.into(), desc);
        self
    }

    /// Says what to do in a conflict; it goes before the option `on_ownership_conflict` of the
    /// description.
    #[must_use]
    pub fn on_conflict(mut self, conflicts: Conflicts) -> Self {
        self.conflicts = Some(conflicts);
        self
    }

    /// Takes memory from here; plain host memory unless set.
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.resources.memory = memory;
        self
    }

    /// Adds a device for sections with device nodes.
    #[must_use]
    pub fn device(mut self, backend: Arc<dyn DeviceBackend>) -> Self {
        self.resources.devices.push(backend);
        self
    }

    /// The plan of a description.
    ///
    /// # Errors
    /// All that the first pass that finds something wrong finds.
    pub fn plan(&self, graph: &GraphSpec) -> Result<Plan, CompileErrors> {
        self.passes(graph).map(|(_, plan)| plan)
    }

    /// The plan of a description, with memory, streams and tasks.
    ///
    /// # Errors
    /// As [`plan`](Self::plan), or if memory, a stream or a task cannot be had.
    pub fn compile(&self, graph: &GraphSpec) -> Result<CompiledGraph, CompileErrors> {
        let (ir, plan) = self.passes(graph)?;
        build::build(&ir, plan, &self.resources, None).map_err(|(errors, _)| errors)
    }

    /// As [`compile`](Self::compile), taking over memory, streams and tasks of `previous`:
    /// the task of a node with the same name and kind is updated.
    ///
    /// # Errors
    /// As [`compile`](Self::compile), with the previous graph.
    #[allow(clippy::result_large_err, reason = "the error carries the graph back")]
    pub fn recompile(
        &self,
        graph: &GraphSpec,
        previous: CompiledGraph,
    ) -> Result<CompiledGraph, RecompileError> {
        let (ir, plan) = match self.passes(graph) {
            Ok(found) => found,
            Err(errors) => {
                return Err(RecompileError {
                    errors,
                    previous: Some(previous),
                });
            }
        };
        build::build(&ir, plan, &self.resources, Some(previous))
            .map_err(|(errors, previous)| RecompileError { errors, previous })
    }

    fn passes(&self, graph: &GraphSpec) -> Result<(ir::Ir, Plan), CompileErrors> {
        let flat = flatten(graph)?;
        let mut ir = validate::validate(&flat, self.registry, &self.layouts)?;
        infer::infer(&flat, &mut ir, self.registry)?;
        let conflicts = self.conflicts_of(graph)?;
        let storages = owners::assign(&mut ir, self.registry, conflicts)?;
        let push_order = owners::push_order(&ir, &storages);
        let sections = sections::cut(&ir, &push_order)?;
        flow::check(&ir, &sections)?;
        let plan = describe::describe(&ir, &storages, &sections);
        Ok((ir, plan))
    }

    fn conflicts_of(&self, graph: &GraphSpec) -> Result<Conflicts, CompileError> {
        let written = graph.options.get("on_ownership_conflict");
        let found = match written.map(|value| (value, value.as_str())) {
            None => Conflicts::Copy,
            Some((_, Some("copy"))) => Conflicts::Copy,
            Some((_, Some("error"))) => Conflicts::Error,
            Some((value, _)) => {
                return Err(CompileError::Option {
                    option: "on_ownership_conflict",
                    found: value.to_string(),
                    expected: "\"copy\" or \"error\"",
                });
            }
        };
        Ok(self.conflicts.unwrap_or(found))
    }
}

#[cfg(test)]
mod tests;
