//! The planning passes: required cases by their number, and what random graphs show.
//!
//! Graphs are written in the form that [`kit`] reads.

mod checker;
mod conflicts;
mod damage;
mod flows;
mod kit;
mod plans;
mod properties;
mod random;
mod sectioning;
mod storing;
mod validation;
