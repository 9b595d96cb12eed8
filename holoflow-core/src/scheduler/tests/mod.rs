//! The scheduler from outside, by subject.

mod ending;
mod failing;
mod iterating;
mod kit;
mod stopping;
mod telling;
