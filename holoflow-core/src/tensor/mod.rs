//! What bytes mean: element types, memory locations and layouts.
//!
//! A [`TDesc`] describes a tensor and has no bytes. All arithmetic on sizes is checked once,
//! when a descriptor is made, so that what reads one cannot fail.
//!
//! This module does not know where bytes come from or who may touch them.

mod desc;
mod dtype;
mod element;
mod error;
mod location;

pub use desc::TDesc;
pub use dtype::DType;
pub use element::Element;
pub use error::TensorError;
pub use location::MemLoc;
