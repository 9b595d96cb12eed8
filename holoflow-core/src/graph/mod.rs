//! The description of a pipeline: as data, as JSON, as a drawing, and built in Rust.
//!
//! - [`GraphSpec`] is the description as plain data.
//! - [`GraphSpec::from_json_str`] and [`GraphSpec::to_json`] read and write graph files.
//! - [`GraphSpec::to_dot`] draws it for Graphviz.
//! - [`GraphBuilder`] makes one in Rust, with handles instead of names.
//! - [`flatten`] puts subgraphs in place.
//! - [`GraphErrors`] is all that is wrong with one, each with its place.
//!
//! What this layer does not know: what the nodes' tasks make of their inputs. It finds what
//! is wrong with a text; what is wrong with a graph, the compiler finds.

mod builder;
mod check;
mod closure;
mod dot;
mod error;
mod json;
mod near;
pub(crate) mod place;
mod settings;
mod spec;
mod subgraph;

pub use builder::{BuiltGraph, GraphBuilder, GraphRef, In, Node, Out, Subgraph};
pub use closure::{CLOSURE_PREFIX, ClosureInUse};
pub(crate) use dot::quoted;
pub use error::{GraphError, GraphErrorKind, GraphErrors, GraphWarning};
pub(crate) use json::RUN_OPTIONS;
pub use spec::{EdgeSpec, GraphSpec, InputRef, InputSpec, NodeSpec, OutputSpec, SUBGRAPH_PREFIX};
pub use subgraph::{FlatGraph, flatten};
