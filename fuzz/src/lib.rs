//! What the fuzz targets do, apart from the fuzzer, so that a plain test can do it too.

#![forbid(unsafe_code)]

pub mod graph_json;
