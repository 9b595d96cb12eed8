//! From a kind's name to its factory.
//!
//! One kind is sync or async, and has at most one factory for host and one for device
//! memory.

use std::collections::BTreeMap;
use std::fmt;

use crate::graph::{BuiltGraph, CLOSURE_PREFIX};
use crate::sync::Arc;
use crate::task::{IAsyncTaskFactory, ISyncTaskFactory, Placement, TaskInfo, TaskKind};

/// A factory as the registry holds it.
#[derive(Clone)]
#[allow(clippy::exhaustive_enums, reason = "a kind is sync or async")]
pub enum TaskFactory {
    /// Makes sync tasks.
    Sync(Arc<dyn ISyncTaskFactory>),
    /// Makes async tasks.
    Async(Arc<dyn IAsyncTaskFactory>),
}

impl TaskFactory {
    /// Whether its tasks are sync or async.
    #[must_use]
    pub fn kind(&self) -> TaskKind {
        match self {
            Self::Sync(_) => TaskKind::Sync,
            Self::Async(_) => TaskKind::Async,
        }
    }

    /// What the factory says of itself.
    #[must_use]
    pub fn describe(&self) -> TaskInfo {
        match self {
            Self::Sync(factory) => factory.describe(),
            Self::Async(factory) => factory.describe(),
        }
    }
}

impl fmt::Debug for TaskFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TaskFactory::{:?}({:?})",
            self.kind(),
            self.describe().help
        )
    }
}

/// The kinds of task that a pipeline can be made of.
///
/// ```
/// use holoflow_core::registry::{Registry, RegistryError};
///
/// let registry = Registry::new();
/// let error = registry.get_sync("Scale", None).unwrap_err();
/// assert_eq!(error.to_string(), "no task of kind `Scale` is registered");
/// ```
#[derive(Debug, Default, Clone)]
pub struct Registry {
    kinds: BTreeMap<String, BTreeMap<Placement, TaskFactory>>,
}

/// Why a factory cannot be registered or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The kind has a factory for this memory already.
    #[error("kind `{kind}` already has a {registered:?} factory for {placement:?} memory")]
    Duplicate {
        /// Name of the kind.
        kind: String,
        /// Whether the factory registered first is sync or async.
        registered: TaskKind,
        /// Memory of its tensors.
        placement: Placement,
    },
    /// The kind is sync in one memory and would be async in the other.
    #[error("kind `{kind}` is registered as {registered:?}, so it cannot be {found:?} too")]
    MixedKinds {
        /// Name of the kind.
        kind: String,
        /// What the kind is.
        registered: TaskKind,
        /// What it would be too.
        found: TaskKind,
    },
    /// No factory of this kind.
    #[error("no task of kind `{kind}` is registered{}", hint(.kind, .nearest))]
    NotFound {
        /// Name asked for.
        kind: String,
        /// The nearest name there is.
        nearest: Option<String>,
    },
    /// The kind has no factory for the memory asked for.
    #[error("kind `{kind}` has no factory for {placement:?} memory")]
    NotPlaced {
        /// Name of the kind.
        kind: String,
        /// Memory asked for.
        placement: Placement,
    },
    /// The kind is of the other sort.
    #[error("kind `{kind}` is {found:?}, asked for as {expected:?}")]
    WrongKind {
        /// Name of the kind.
        kind: String,
        /// What it is.
        found: TaskKind,
        /// What was asked for.
        expected: TaskKind,
    },
}

fn hint(kind: &str, nearest: &Option<String>) -> String {
    if kind.starts_with(CLOSURE_PREFIX) {
        return ": closures are in the registry that `Registry::with` makes of the built graph"
            .to_owned();
    }
    nearest
        .as_ref()
        .map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

impl Registry {
    /// A registry without kinds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a factory of sync tasks.
    ///
    /// # Errors
    /// If the kind has a factory for the same memory, or is async; the first stays.
    pub fn register_sync(
        &mut self,
        kind: impl Into<String>,
        factory: impl ISyncTaskFactory + 'static,
    ) -> Result<(), RegistryError> {
        self.register(kind.into(), TaskFactory::Sync(Arc::new(factory)))
    }

    /// Registers a factory of async tasks.
    ///
    /// # Errors
    /// If the kind has a factory for the same memory, or is sync; the first stays.
    pub fn register_async(
        &mut self,
        kind: impl Into<String>,
        factory: impl IAsyncTaskFactory + 'static,
    ) -> Result<(), RegistryError> {
        self.register(kind.into(), TaskFactory::Async(Arc::new(factory)))
    }

    fn register(&mut self, kind: String, factory: TaskFactory) -> Result<(), RegistryError> {
        let placement = factory.describe().placement;
        let placed = self.kinds.entry(kind.clone()).or_default();
        if let Some(first) = placed.get(&placement) {
            return Err(RegistryError::Duplicate {
                kind,
                registered: first.kind(),
                placement,
            });
        }
        if let Some(first) = placed.values().next()
            && first.kind() != factory.kind()
        {
            let (registered, found) = (first.kind(), factory.kind());
            return Err(RegistryError::MixedKinds {
                kind,
                registered,
                found,
            });
        }
        placed.insert(placement, factory);
        Ok(())
    }

    /// This registry and the closures of `graph`, which are found in it only.
    ///
    /// ```
    /// use holoflow_core::graph::GraphBuilder;
    /// use holoflow_core::registry::Registry;
    ///
    /// let mut graph = GraphBuilder::new();
    /// graph.map_fn::<f32, f32>("negate", |x, y| {
    ///     y.iter_mut().zip(x).for_each(|(y, x)| *y = -x);
    /// });
    /// let registry = Registry::new().with(&graph.finish()?)?;
    /// assert!(registry.is_sync("closure:negate"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a kind of a closure is registered already.
    pub fn with(&self, graph: &BuiltGraph) -> Result<Self, RegistryError> {
        let mut registry = self.clone();
        for (kind, factory) in graph.factories() {
            registry.register(kind.to_owned(), TaskFactory::Sync(Arc::clone(factory)))?;
        }
        Ok(registry)
    }

    /// Whether the kind has a factory.
    #[must_use]
    pub fn is_registered(&self, kind: &str) -> bool {
        self.kinds.contains_key(kind)
    }

    /// Whether the kind is sync.
    #[must_use]
    pub fn is_sync(&self, kind: &str) -> bool {
        self.kind_of(kind) == Some(TaskKind::Sync)
    }

    /// Whether the kind is async.
    #[must_use]
    pub fn is_async(&self, kind: &str) -> bool {
        self.kind_of(kind) == Some(TaskKind::Async)
    }

    fn kind_of(&self, kind: &str) -> Option<TaskKind> {
        self.kinds.get(kind)?.values().next().map(TaskFactory::kind)
    }

    /// The factory of a kind, for tensors in the memory of `placement`; with `None` the only
    /// one there is, or the one for host memory.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(
        &self,
        kind: &str,
        placement: Option<Placement>,
    ) -> Result<&TaskFactory, RegistryError> {
        let Some(placed) = self.kinds.get(kind) else {
            let nearest = crate::text::nearest(kind, self.kinds()).map(str::to_owned);
            return Err(RegistryError::NotFound {
                kind: kind.to_owned(),
                nearest,
            });
        };
        let factory = match placement {
            // Host sorts before device.
            None => placed.values().next(),
            Some(placement) => placed.get(&placement),
        };
        factory.ok_or_else(|| RegistryError::NotPlaced {
            kind: kind.to_owned(),
            placement: placement.unwrap_or(Placement::Host),
        })
    }

    /// The factory of a sync kind; see [`get`](Self::get).
    ///
    /// # Errors
    /// If there is none, or the kind is async.
    pub fn get_sync(
        &self,
        kind: &str,
        placement: Option<Placement>,
    ) -> Result<&Arc<dyn ISyncTaskFactory>, RegistryError> {
        match self.get(kind, placement)? {
            TaskFactory::Sync(factory) => Ok(factory),
            TaskFactory::Async(_) => Err(RegistryError::WrongKind {
                kind: kind.to_owned(),
                found: TaskKind::Async,
                expected: TaskKind::Sync,
            }),
        }
    }

    /// The factory of an async kind; see [`get`](Self::get).
    ///
    /// # Errors
    /// If there is none, or the kind is sync.
    pub fn get_async(
        &self,
        kind: &str,
        placement: Option<Placement>,
    ) -> Result<&Arc<dyn IAsyncTaskFactory>, RegistryError> {
        match self.get(kind, placement)? {
            TaskFactory::Async(factory) => Ok(factory),
            TaskFactory::Sync(_) => Err(RegistryError::WrongKind {
                kind: kind.to_owned(),
                found: TaskKind::Sync,
                expected: TaskKind::Async,
            }),
        }
    }

    /// The names of all kinds, sorted.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    /// All factories, sorted by kind, those for host memory first.
    pub fn factories(&self) -> impl Iterator<Item = (&str, Placement, &TaskFactory)> {
        self.kinds.iter().flat_map(|(kind, placed)| {
            placed
                .iter()
                .map(move |(placement, factory)| (kind.as_str(), *placement, factory))
        })
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
