//! Any bytes as a graph file; see `holoflow_fuzz::graph_json`.

#![no_main]

use std::sync::LazyLock;

use holoflow::registry::Registry;
use holoflow_fuzz::graph_json::{graph_json, registry};
use libfuzzer_sys::fuzz_target;

static REGISTRY: LazyLock<Registry> = LazyLock::new(registry);

fuzz_target!(|bytes: &[u8]| {
    let _ = graph_json(&REGISTRY, bytes);
});
