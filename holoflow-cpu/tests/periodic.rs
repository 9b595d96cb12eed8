//! W-23: fast timers in a pipeline, by a clock that stands still in between.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};

use holoflow_core::clock::Timestamp;
use holoflow_core::compiler::Compiler;
use holoflow_core::graph::{GraphBuilder, GraphSpec};
use holoflow_core::registry::Registry;
use holoflow_core::scheduler::{Outcome, RunOptions};
use holoflow_core::task::{InferResult, OpResult};
use holoflow_core::testkit::StepScheduler;
use holoflow_cpu::{CounterSettings, RateLimiterSettings};
use serde_json::json;

/// When the frames of a limiter came, over some seconds of the clock.
fn ticks(max_fps: f64, seconds: u64) -> Vec<Timestamp> {
    let mut graph = GraphBuilder::new();
    let source = graph.node("source", "Counter", CounterSettings::default());
    let limit = graph.node(
        "limit",
        "OwnedRateLimiter",
        RateLimiterSettings::new(max_fps),
    );
    graph.connect(source, limit);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let end = Timestamp::from_nanos(seconds * 1_000_000_000);
    let sink = graph.sync_fn(
        "sink",
        |request| Ok(InferResult::sync([request.input(0)?.clone()], [])),
        move |ctx| {
            if ctx.now() >= end {
                return Ok(OpResult::Eof);
            }
            kept.lock().unwrap().push(ctx.now());
            Ok(OpResult::Ok)
        },
    );
    graph.connect(limit, sink);
    let built = graph.finish().unwrap();
    // Saved as a file, and loaded.
    let text = built.spec.to_json().unwrap().to_string();
    let (spec, warnings) = GraphSpec::from_json_str(&text).unwrap();
    assert!(warnings.is_empty());
    let mut registry = Registry::new();
    holoflow_cpu::register_all(&mut registry).unwrap();
    let registry = registry.with(&built).unwrap();
    let graph = Compiler::new(&registry).compile(&spec).unwrap();
    let mut steps = StepScheduler::new(graph, RunOptions::default(), 5);
    assert_eq!(steps.run().unwrap().outcome, Outcome::Completed);
    let seen = seen.lock().unwrap();
    seen.clone()
}

#[test]
fn w_23_no_tick_is_lost_or_doubled_at_three_and_at_twenty_five_kilohertz() {
    for (rate, period, seconds) in [(3_000.0, 333_333, 10), (25_000.0, 40_000, 10)] {
        let ticks = ticks(rate, seconds);
        assert_eq!(
            ticks.len() as u64,
            (seconds * 1_000_000_000).div_ceil(period)
        );
        for (number, at) in ticks.iter().enumerate() {
            assert_eq!(at.as_nanos(), number as u64 * period, "{rate} Hz");
        }
    }
}

#[test]
fn w_23_rates_that_are_none_are_refused_by_name() {
    for rate in [
        json!(0),
        json!(-3),
        json!(1e300),
        json!("fast"),
        json!(null),
    ] {
        let text = json!({
            "nodes": {
                "source": { "type": "Counter" },
                "limit": { "type": "OwnedRateLimiter", "params": { "max_fps": rate } }
            },
            "edges": [{ "from": "source", "to": "limit", "out": 0, "in": 0 }],
            "outputs": { "out": { "from": "limit", "out": 0 } }
        });
        let (spec, _) = GraphSpec::from_json_str(&text.to_string()).unwrap();
        let mut registry = Registry::new();
        holoflow_cpu::register_all(&mut registry).unwrap();
        let errors = Compiler::new(&registry).compile(&spec).unwrap_err();
        assert!(errors.to_string().contains("max_fps"), "{errors}");
    }
}
