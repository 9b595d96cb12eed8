//! The scheduler from outside, by subject.

mod attacking;
mod ending;
mod failing;
mod iterating;
mod kit;
mod random;
mod stopping;
mod telling;
