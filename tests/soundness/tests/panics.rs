//! Attacks by panics, in every hook and in what a panic leaves behind.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::mpsc;
use std::thread;

use holoflow::prelude::*;
use holoflow::task::{Hook, HookError, TaskErrorKind};
use holoflow::testkit::TaskHarness;
use holoflow_soundness::fixture::{
    AsyncHooks, Factory, Stash, SyncHooks, asynchronous, builder, frame, limiter, named,
    nothing_leaks, owner, stray, sync,
};
use serde_json::json;

/// Unwinds without a report on the test's output.
fn burst() -> ! {
    resume_unwind(Box::new("burst"))
}

fn panicked(error: &HookError, hook: Hook) {
    named(error, hook, None);
    assert!(
        matches!(error.error.kind(), TaskErrorKind::Panicked { .. }),
        "{error:#}"
    );
}

/// One frame in, its output published: as much as can be in flight.
fn mid_flight(task: &mut TaskHarness) {
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
}

#[test]
fn a_panic_in_acquire_after_publishing_empties_the_cell() {
    let mut task = limiter(|hooks, slot| {
        let slot = slot.clone();
        hooks.acquire(move |index, ctx| {
            ctx.lend(index, |side| slot.acquire(side))?;
            burst()
        })
    })
    .unwrap();
    let ledger = task.ledger();
    panicked(&task.producer().acquire(0).unwrap_err(), Hook::AcquireInput);
    assert!(task.producer().input_mut::<u8>(0).is_err());
    panicked(&task.producer().acquire(0).unwrap_err(), Hook::AcquireInput);
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn a_panic_in_push_before_or_after_taking_the_region_empties_the_cell() {
    for take in [false, true] {
        let mut task = limiter(move |hooks, _| {
            hooks.push(move |ctx| {
                let _held = if take { Some(ctx.take_input(0)?) } else { None };
                burst()
            })
        })
        .unwrap();
        let ledger = task.ledger();
        panicked(&task.push(&[1_u8; 4]).unwrap_err(), Hook::TryPush);
        assert!(task.producer().input_mut::<u8>(0).is_err());
        panicked(&task.producer().try_push().unwrap_err(), Hook::TryPush);
        drop(task);
        nothing_leaks(&ledger);
    }
}

#[test]
fn a_panic_in_push_while_the_region_is_hidden_elsewhere_leaves_it_to_its_holder() {
    let loot = Stash::new();
    let hidden = loot.clone();
    let mut task = limiter(move |hooks, _| {
        let hidden = hidden.clone();
        hooks.push(move |ctx| {
            hidden.hide(ctx.take_input(0)?);
            burst()
        })
    })
    .unwrap();
    let ledger = task.ledger();
    panicked(&task.push(&[1_u8, 2, 3, 4]).unwrap_err(), Hook::TryPush);
    drop(task);
    let region = loot.seek();
    assert_eq!(region.as_bytes().unwrap(), [1, 2, 3, 4]);
    drop(region);
    nothing_leaks(&ledger);
}

#[test]
fn a_panic_in_pop_after_publishing_empties_the_cell() {
    let mut task = limiter(|hooks, _| {
        hooks.pop(|ctx| {
            ctx.publish(0, stray(4))?;
            burst()
        })
    })
    .unwrap();
    panicked(&task.consumer().try_pop().unwrap_err(), Hook::TryPop);
    assert!(task.consumer().output::<u8>(0).is_err());
}

#[test]
fn a_panic_in_release_empties_the_cell_and_no_hook_follows() {
    let mut task = limiter(|hooks, _| hooks.release(|_, _| burst())).unwrap();
    let ledger = task.ledger();
    mid_flight(&mut task);
    panicked(
        &task.consumer().release(0).unwrap_err(),
        Hook::ReleaseOutput,
    );
    assert!(task.consumer().output::<u8>(0).is_err());
    panicked(
        &task.consumer().release(0).unwrap_err(),
        Hook::ReleaseOutput,
    );
    panicked(&task.consumer().try_pop().unwrap_err(), Hook::TryPop);
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn a_panic_in_cancel_empties_all_cells() {
    let mut task = limiter(|hooks, _| hooks.cancel(|_, _| burst())).unwrap();
    assert!(task.producer().acquire(0).unwrap());
    panicked(
        &task.producer().cancel_inputs().unwrap_err(),
        Hook::CancelInput,
    );
    assert!(task.producer().input_mut::<u8>(0).is_err());
    task.producer().cancel_inputs().unwrap();
}

#[test]
fn a_panic_when_a_run_starts_is_an_error_of_the_harness() {
    let error = limiter(|hooks, _| hooks.started(|_| burst())).unwrap_err();
    panicked(&error, Hook::RunStarted);
    let infer = InferResult::sync([], []);
    let error = sync(infer, [], |_| {
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)).started(|_| burst()))
    })
    .unwrap_err();
    panicked(&error, Hook::RunStarted);
}

#[test]
fn a_panic_when_a_side_finishes_is_an_error() {
    let mut task = limiter(|hooks, _| hooks.finished(|| burst(), || burst())).unwrap();
    panicked(
        &task.producer().finish().unwrap_err(),
        Hook::ProducerFinished,
    );
}

#[test]
fn a_panic_when_the_consumer_side_finishes_names_its_own_hook() {
    let mut task = limiter(|hooks, _| hooks.finished(|| {}, || burst())).unwrap();
    panicked(
        &task.consumer().finish().unwrap_err(),
        Hook::ConsumerFinished,
    );
}

#[test]
fn a_panic_in_execute_with_input_taken_and_output_published_empties_both_cells() {
    let infer = InferResult::sync([frame()], [frame()])
        .owning_inputs()
        .owning_outputs();
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            let _input = ctx.take_input(0)?;
            ctx.publish(0, stray(4))?;
            burst()
        })
        .acquire(|index, ctx| {
            Ok(ctx
                .lend(index, |_| TaskResult::Ok(Some(stray(4))))?
                .map(|_| index))
        }))
    })
    .unwrap();
    let ledger = task.ledger();
    assert!(task.producer().acquire(0).unwrap());
    panicked(&task.producer().execute().unwrap_err(), Hook::Execute);
    assert!(task.producer().input_mut::<u8>(0).is_err());
    assert!(task.producer().output::<u8>(0).is_err());
    panicked(&task.producer().execute().unwrap_err(), Hook::Execute);
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn a_panic_inside_the_closure_that_finds_a_region_to_lend_is_an_error() {
    let mut task = limiter(|hooks, _| {
        hooks.acquire(|index, ctx| {
            let lent = ctx.lend(index, |_| -> TaskResult<_> { burst() })?;
            Ok(lent.map(|_| index))
        })
    })
    .unwrap();
    panicked(&task.producer().acquire(0).unwrap_err(), Hook::AcquireInput);
}

/// Panics in `infer` or `create`.
struct Bursting {
    infer: bool,
}

impl IAsyncTaskFactory for Bursting {
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Panics.")
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        if self.infer {
            burst();
        }
        Ok(InferResult::asynchronous([], []))
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        let _buffer = ctx.buffer(MemLoc::Host, 64)?;
        burst()
    }
}

#[test]
fn a_panic_in_the_factory_is_an_error_that_names_the_hook() {
    for (infer, hook) in [(true, Hook::Infer), (false, Hook::Create)] {
        let error = builder()
            .asynchronous(&Bursting { infer }, json!({}), [])
            .unwrap_err();
        panicked(&error, hook);
    }
}

#[test]
fn a_panic_on_one_side_closes_the_other_side_too() {
    let mut task = limiter(|hooks, _| hooks.push(|_| burst())).unwrap();
    panicked(&task.push(&[1_u8; 4]).unwrap_err(), Hook::TryPush);
    panicked(&task.consumer().try_pop().unwrap_err(), Hook::TryPop);
}

#[test]
fn a_task_whose_consumer_side_panicked_is_not_started_again() {
    let mut task = limiter(|hooks, _| hooks.pop(|_| burst())).unwrap();
    panicked(&task.consumer().try_pop().unwrap_err(), Hook::TryPop);
    panicked(&task.start_run().unwrap_err(), Hook::RunStarted);
}

/// A task whose one side panics, when told to, while the other holds a region.
fn two_sided(armed: &Stash<()>) -> TaskHarness {
    let armed = armed.clone();
    let infer = InferResult::asynchronous([frame()], [frame()])
        .owning_inputs()
        .owning_outputs();
    asynchronous(infer, [frame()], move |_| {
        let [push, pop, release] = [(); 3].map(|()| armed.clone());
        let explode = |armed: &Stash<()>| {
            if armed.find().is_some() {
                burst();
            }
        };
        Ok(AsyncHooks::idle()
            .acquire(|index, ctx| {
                let lent = ctx.lend(index, |_| TaskResult::Ok(Some(stray(4))))?;
                Ok(lent.map(|_| index))
            })
            .push(move |ctx| {
                explode(&push);
                ctx.take_input(0).map(|_| OpResult::Ok)
            })
            .pop(move |ctx| {
                explode(&pop);
                let mut region = stray(4);
                region.as_mut_bytes()?.fill(1);
                ctx.publish(0, region).map(|()| OpResult::Ok)
            })
            .release(move |index, ctx| {
                explode(&release);
                ctx.take_back(index).map(drop)
            }))
    })
    .unwrap()
}

#[test]
fn a_popped_frame_stays_readable_when_the_push_side_panics_and_is_given_back_without_the_task() {
    let armed = Stash::new();
    let mut task = two_sided(&armed);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    armed.hide(());
    panicked(&task.push(&[1_u8; 4]).unwrap_err(), Hook::TryPush);
    let side = task.consumer();
    assert_eq!(side.output::<u8>(0).unwrap(), [1; 4]);
    panicked(&side.try_pop().unwrap_err(), Hook::TryPop);
    assert_eq!(side.output::<u8>(0).unwrap(), [1; 4]);
    armed.hide(());
    panicked(&side.release(0).unwrap_err(), Hook::ReleaseOutput);
    assert!(armed.find().is_some(), "no hook was called");
    assert!(side.output_address(0).unwrap().is_none());
    panicked(&side.release(0).unwrap_err(), Hook::ReleaseOutput);
    side.finish().unwrap();
}

#[test]
fn a_lent_input_is_taken_back_without_the_task_when_the_pop_side_panics() {
    let armed = Stash::new();
    let mut task = two_sided(&armed);
    assert!(task.producer().acquire(0).unwrap());
    armed.hide(());
    panicked(&task.consumer().try_pop().unwrap_err(), Hook::TryPop);
    let side = task.producer();
    side.write(0, &[1_u8; 4]).unwrap();
    panicked(&side.try_push().unwrap_err(), Hook::TryPush);
    side.cancel_inputs().unwrap();
    assert!(side.input_address(0).unwrap().is_none());
    panicked(&side.acquire(0).unwrap_err(), Hook::AcquireInput);
    panicked(&task.start_run().unwrap_err(), Hook::RunStarted);
}

#[test]
fn a_panic_on_another_thread_closes_this_side_between_two_hooks() {
    let armed = Stash::new();
    let mut task = two_sided(&armed);
    let ledger = task.ledger();
    let (push, pop) = task.split().unwrap();
    let (popped, wait) = mpsc::channel();
    thread::scope(|scope| {
        let pushing = scope.spawn(move || {
            wait.recv().unwrap();
            let mut frames = 0;
            loop {
                match push.push(&[1_u8; 4]) {
                    Ok(result) => assert_eq!(result, OpResult::Ok),
                    Err(error) => break (frames, error),
                }
                frames += 1;
                if frames == 3 {
                    armed.hide(());
                }
            }
        });
        // Whichever side takes what is armed, the other gets no hook after it.
        assert_eq!(pop.try_pop().unwrap(), OpResult::Ok);
        popped.send(()).unwrap();
        let error = loop {
            match pop.release_all().and_then(|()| pop.try_pop()) {
                Ok(result) => assert_eq!(result, OpResult::Ok),
                Err(error) => break error,
            }
            thread::yield_now();
        };
        for (error, hooks) in [
            (error, [Hook::TryPop, Hook::ReleaseOutput]),
            (
                pushing.join().unwrap().1,
                [Hook::TryPush, Hook::AcquireInput],
            ),
        ] {
            assert!(hooks.contains(&error.hook), "{error:#}");
            panicked(&error, error.hook);
        }
        panicked(&pop.try_pop().unwrap_err(), Hook::TryPop);
    });
    drop(task);
    nothing_leaks(&ledger);
}

/// Panics when it is dropped, unless a panic is on its way already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            burst();
        }
    }
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_is_an_error_all_the_same() {
    let mut task = limiter(|hooks, _| hooks.push(|_| panic_any(Bomb))).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| task.push(&[1_u8; 4])));
    let error = outcome.expect("no panic leaves the harness").unwrap_err();
    panicked(&error, Hook::TryPush);
}

/// A factory whose tasks panic when they are dropped.
fn bombs(
    infer: InferResult,
) -> Factory<impl Fn(&mut CreateCtx<'_>) -> TaskResult<AsyncHooks> + Send + Sync> {
    Factory::new(infer, |_: &mut CreateCtx<'_>| {
        let bomb = Bomb;
        Ok(AsyncHooks::idle().push(move |_| {
            let _kept = &bomb;
            Ok(OpResult::NotReady)
        }))
    })
}

#[test]
fn a_task_that_panics_when_dropped_does_not_unwind_out_of_a_harness_that_cannot_be_made() {
    let elsewhere = TDesc::new([4], DType::U8, MemLoc::Device(7)).unwrap();
    let larger = TDesc::host::<u8>([5]).unwrap();
    for (input, infer) in [
        // No memory for either side.
        (
            elsewhere.clone(),
            InferResult::asynchronous([elsewhere.clone()], [frame()]),
        ),
        (
            frame(),
            InferResult::asynchronous([frame()], [elsewhere.clone()]),
        ),
        // The input given does not fit the one wanted.
        (frame(), InferResult::asynchronous([larger], [frame()])),
    ] {
        let made = catch_unwind(AssertUnwindSafe(|| {
            builder().asynchronous(&bombs(infer), json!({}), [input])
        }));
        if let Err(error) = made.expect("the task's drop is contained") {
            named(&error, Hook::Create, None);
        }
    }

    // A task of one side that cannot be bound: its output lies outside of the input given.
    let wide = TDesc::host::<u8>([64]).unwrap();
    let infer = InferResult::sync([wide.clone()], [wide]).viewing(0, 0);
    let factory = Factory::new(infer, |_: &mut CreateCtx<'_>| {
        let bomb = Bomb;
        Ok(SyncHooks::new(move |_| {
            let _kept = &bomb;
            Ok(OpResult::Ok)
        }))
    });
    let made = catch_unwind(AssertUnwindSafe(|| {
        builder().sync(&factory, json!({}), [frame()])
    }));
    let error = made.expect("the task's drop is contained").unwrap_err();
    named(&error, Hook::Create, None);
}

#[test]
fn a_task_that_panics_when_dropped_does_not_unwind_out_of_the_harness() {
    let mut task = limiter(|hooks, _| {
        let bomb = Bomb;
        hooks.push(move |_| {
            let _kept = &bomb;
            Ok(OpResult::NotReady)
        })
    })
    .unwrap();
    let ledger = task.ledger();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::NotReady);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(task))).is_ok());
    nothing_leaks(&ledger);
}

#[test]
fn memory_comes_back_even_if_the_task_panics_when_dropped() {
    let mut task = limiter(|hooks, _| {
        let bomb = Bomb;
        hooks.release(move |_, _| {
            let _kept = &bomb;
            Ok(())
        })
    })
    .unwrap();
    let ledger = task.ledger();
    mid_flight(&mut task);
    let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    nothing_leaks(&ledger);
}

#[test]
fn values_in_side_cells_that_panic_when_dropped_lose_no_memory() {
    let task = owner(|ctx| {
        let (bomb, region) = (ctx.producer_cell(Bomb), ctx.buffer(MemLoc::Host, 64)?);
        Ok(AsyncHooks::idle().finished(
            move || {
                let _kept = (&bomb, &region);
            },
            || {},
        ))
    })
    .unwrap();
    let ledger = task.ledger();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    nothing_leaks(&ledger);
}

#[test]
fn frames_dropped_beyond_counting_do_not_panic() {
    let mut task = limiter(|hooks, _| {
        hooks
            .push(|ctx| {
                ctx.dropped(u64::MAX);
                ctx.dropped(u64::MAX);
                Ok(OpResult::NotReady)
            })
            .pop(|ctx| {
                ctx.dropped(1);
                Ok(OpResult::NotReady)
            })
    })
    .unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::NotReady);
    assert_eq!(task.pop::<u8>().unwrap(), None);
    assert_eq!(task.report().dropped, u64::MAX);
}

#[test]
fn asking_for_the_last_of_all_inputs_is_an_error_of_the_input_count() {
    let settings = json!({});
    let request = TaskRequest::new("victim", &settings, &[]);
    let error = request.input(usize::MAX).unwrap_err();
    assert!(
        matches!(error.kind(), TaskErrorKind::InputCount { found: 0, .. }),
        "{error}"
    );
}

#[test]
fn a_factory_that_is_used_again_after_its_panic_is_served() {
    let fails = Stash::new();
    fails.hide(());
    let factory = Factory::new(InferResult::sync([], []), move |_: &mut CreateCtx<'_>| {
        if fails.find().is_some() {
            burst();
        }
        Ok(SyncHooks::new(|_| Ok(OpResult::Ok)))
    });
    panicked(
        &builder().sync(&factory, json!({}), []).unwrap_err(),
        Hook::Create,
    );
    let mut task = builder().sync(&factory, json!({}), []).unwrap();
    assert_eq!(task.producer().execute().unwrap(), OpResult::Ok);
}
