//! The ways in which a run ends, and what its report says of each: it is told to finish, it is
//! cancelled, a frame fails, a task fails, or a task panics.
//!
//! ```text
//! cargo run --example stop_and_errors
//! ```

#![forbid(unsafe_code)]

use std::error::Error;

use holoflow::cpu::{BatchQueueSettings, CounterSettings, register_all};
use holoflow::graph::GraphBuilder;
use holoflow::prelude::*;
use holoflow::registry::Registry;
use holoflow::scheduler::{FailureCause, Outcome, Phase, RunError};
use serde_json::json;

/// A source without end, a queue, and a sink that does `work` with each number.
fn pipeline(
    work: impl FnMut(u64, &mut SyncCtx<'_>) -> TaskResult<OpResult> + Send + 'static,
) -> Result<Pipeline, Box<dyn Error>> {
    let mut work = work;
    let mut graph = GraphBuilder::new();
    let count = graph.node("count", "Counter", CounterSettings::default());
    let queue = graph.node("queue", "BatchQueue", BatchQueueSettings::new(8, 1));
    let sink = graph.sync_fn(
        "sink",
        |request| Ok(InferResult::sync([request.input(0)?.clone()], [])),
        move |ctx| work(ctx.inputs.get::<u64>(0)?[0], ctx),
    );
    graph.connect(count, queue);
    graph.connect(queue, sink);
    let mut registry = Registry::new();
    register_all(&mut registry)?;
    Ok(Pipeline::build(&graph.finish()?, &registry)?)
}

/// Says so at number 100, and goes on.
fn says_100(number: u64, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
    if number == 100 {
        ctx.emit(json!({ "reached": number }));
    }
    Ok(OpResult::Ok)
}

/// Starts a pipeline, and stops it by `stop` once its sink has had number 100.
fn stopped(stop: impl FnOnce(&Pipeline)) -> Result<Report, Box<dyn Error>> {
    let mut pipeline = pipeline(says_100)?;
    pipeline.start()?;
    while pipeline.receive().is_none() {
        std::thread::yield_now(); // a program would do something else meanwhile
    }
    stop(&pipeline);
    Ok(pipeline.wait()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    // Finish: the source ends, and what it has made comes through.
    let report = stopped(Pipeline::finish)?;
    println!("{report}");
    let delivered = |report: &Report, name| report.node(name).map_or(0, |node| node.delivered);
    assert_eq!(report.outcome, Outcome::Finished);
    assert!(delivered(&report, "sink") > 100);
    assert_eq!(delivered(&report, "sink"), delivered(&report, "count"));

    // Cancel: everything ends now. What the queue holds is in the report, and stays in it for
    // the next run.
    let report = stopped(Pipeline::cancel)?;
    println!("{report}");
    assert_eq!(report.outcome, Outcome::Cancelled);
    let queue = report.node("queue").ok_or("it is in the report")?;
    let gone = queue.delivered + queue.discarded_at_end;
    assert_eq!(queue.frames_in, gone + queue.held);

    // A frame that fails is counted, and the run goes on.
    let mut some_fail = pipeline(|number, _| match number % 10 {
        3 => Err(TaskError::frame("it ends in a 3")),
        _ => Ok(OpResult::Ok),
    })?;
    some_fail.options_mut().frames = Some(100);
    let report = some_fail.run()?;
    println!("{report}");
    let sink = report.node("sink").ok_or("it is in the report")?;
    assert_eq!((sink.delivered, sink.failed), (90, 10));
    assert!(report.has_losses());

    // Any other error ends the run. It comes with its place, and with the report.
    let failed = pipeline(|number, _| match number {
        50 => Err(TaskError::other("the disk is full")),
        _ => Ok(OpResult::Ok),
    })?
    .run();
    println!("{}", explained(&failed));
    let error = failed.expect_err("number 50 comes");
    let first = error.first().ok_or("the run has begun")?;
    assert_eq!(first.node.as_deref(), Some("sink"));
    assert_eq!(first.phase, Phase::ExecuteSync);
    assert!(first.to_string().contains("the disk is full"));
    let report = error.report().ok_or("the run has begun")?;
    assert_eq!(delivered(report, "sink"), 50);

    // So does a panic. It harms nobody else: the pipeline is dropped like any other.
    let panicked = pipeline(|number, _| {
        assert_ne!(number, 50, "a mistake of the task's own");
        Ok(OpResult::Ok)
    })?
    .run();
    println!("{}", explained(&panicked));
    let error = panicked.expect_err("number 50 comes");
    let cause = error.first().map(|first| &first.cause);
    assert!(matches!(cause, Some(FailureCause::Hook(hook)) if hook.node == "sink"));
    assert!(error.to_string().contains("a mistake of the task's own"));
    Ok(())
}

fn explained(result: &Result<Report, RunError>) -> String {
    match result {
        Ok(report) => report.to_string(),
        Err(error) => format!("failed: {error}\n"),
    }
}
