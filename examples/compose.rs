//! A graph made in Rust: nodes of registered kinds, closures for what is needed once, and a
//! report that says what came of the run.
//!
//! A counter makes frames of four numbers. One branch scales them and takes a checksum, behind a
//! queue and so on a thread of its own; the other adds up what is even and leaves out the rest.
//!
//! ```text
//! cargo run --example compose
//! ```

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holoflow::cpu::{BatchQueueSettings, CounterSettings, register_all};
use holoflow::graph::GraphBuilder;
use holoflow::prelude::*;
use holoflow::registry::Registry;
use holoflow::scheduler::Outcome;

const FRAMES: u64 = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = GraphBuilder::new();

    // Handles of nodes, by which they are connected. Settings are structs, or JSON.
    let shape = [1, 4];
    let count = CounterSettings::new(FRAMES)
        .with_shape(shape)
        .with_dtype(DType::U32);
    let count = graph.node("count", "Counter", count);
    let queue = graph.node("queue", "BatchQueue", BatchQueueSettings::new(8, 1));
    let checksum = graph.node("checksum", "Checksum", ());

    // Closures. This one maps elements to elements.
    let scale = graph.map_fn("scale", |x: &[u32], y: &mut [u32]| {
        for (y, x) in y.iter_mut().zip(x) {
            *y = 10 * x;
        }
    });
    // This one says itself which tensors it reads and writes, and that it may skip a frame.
    let even = graph.sync_fn(
        "even",
        |request| {
            let [x] = request.exactly::<1>()?;
            Ok(InferResult::sync([x.clone()], [TDesc::host::<u32>([1])?]).skipping())
        },
        |ctx| {
            let first = ctx.inputs.get::<u32>(0)?[0];
            if !first.is_multiple_of(2) {
                return Ok(OpResult::Skip);
            }
            ctx.outputs.get_mut::<u32>(0)?[0] = first;
            Ok(OpResult::Ok)
        },
    );
    // And this one has a result, which it shares with `main`.
    let total = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&total);
    let add = graph.sync_fn(
        "add",
        |request| Ok(InferResult::sync([request.input(0)?.clone()], [])),
        move |ctx| {
            let x = u64::from(ctx.inputs.get::<u32>(0)?[0]);
            sum.fetch_add(x, Ordering::Relaxed);
            Ok(OpResult::Ok)
        },
    );

    graph.connect(count, scale);
    graph.connect(scale, queue);
    graph.connect(queue, checksum);
    graph.connect(count, even);
    graph.connect(even, add);

    let mut registry = Registry::new();
    register_all(&mut registry)?;
    let mut pipeline = Pipeline::build(&graph.finish()?, &registry)?;
    // The queue cuts the graph in two: each part runs on its own thread.
    assert_eq!(pipeline.plan().sections.len(), 2);

    let report = pipeline.run()?;
    println!("{report}");
    assert_eq!(report.outcome, Outcome::Completed);
    assert!(!report.has_losses());
    let node = |name| report.node(name).ok_or("every node is in the report");
    assert_eq!(node("queue")?.delivered, FRAMES);
    assert_eq!(node("queue")?.copied_bytes, 0);
    assert_eq!(node("checksum")?.results["frames"], FRAMES);
    assert_eq!(node("checksum")?.results["checksum"], "431de8fb");
    assert_eq!(node("even")?.skipped, FRAMES / 2);
    assert_eq!(node("add")?.delivered, FRAMES / 2);
    let even_numbers = (0..FRAMES).step_by(2);
    assert_eq!(total.load(Ordering::Relaxed), even_numbers.sum::<u64>());
    Ok(())
}
