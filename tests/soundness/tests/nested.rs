//! Attacks from inside hooks: a task that drives another task, its own other side, or
//! itself while one of its hooks runs, and exchanges what can be exchanged.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::mem;
use std::sync::{Arc, Mutex, OnceLock};

use holoflow::prelude::*;
use holoflow::storage::{ContractError, Region, RegionSlot, Sides};
use holoflow::task::Hook;
use holoflow::testkit::TaskHarness;
use holoflow_soundness::broken;
use holoflow_soundness::fixture::{
    AsyncHooks, Stash, SyncHooks, asynchronous, frame, limiter, nothing_leaks, owner, sync,
};

/// A sync task that adds one to each byte.
fn incrementing() -> TaskHarness {
    let infer = InferResult::sync([frame()], [frame()]);
    sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            let x = ctx.inputs.get::<u8>(0)?;
            let y = ctx.outputs.get_mut::<u8>(0)?;
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1);
            Ok(OpResult::Ok)
        }))
    })
    .unwrap()
}

#[test]
fn a_task_that_drives_another_task_while_it_holds_its_own_slices() {
    let inner = incrementing();
    let ledger = inner.ledger();
    let inner = Mutex::new(Some(inner));
    let infer = InferResult::sync([frame()], [frame()]);
    let mut outer = sync(infer, [frame()], |_| {
        let mut inner = inner.lock().unwrap().take().unwrap();
        Ok(SyncHooks::new(move |ctx| {
            let x = ctx.inputs.get::<u8>(0)?;
            let y = ctx.outputs.get_mut::<u8>(0)?;
            for _ in 0..3 {
                let made = inner.run::<u8, u8>(x).map_err(TaskError::other)?.unwrap();
                y.copy_from_slice(&made);
            }
            assert_eq!(x, [1, 2, 3, 4]);
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    assert_eq!(
        outer.run::<u8, u8>(&[1, 2, 3, 4]).unwrap(),
        Some(vec![2, 3, 4, 5])
    );
    drop(outer);
    nothing_leaks(&ledger);
}

#[test]
fn a_region_taken_in_an_outer_hook_is_published_in_an_inner_one() {
    let hand: Stash<Region> = Stash::new();
    let given = hand.clone();
    let infer = InferResult::asynchronous([], [frame()]).owning_outputs();
    let inner = asynchronous(infer, [], move |_| {
        let given = given.clone();
        Ok(AsyncHooks::idle().pop(move |ctx| {
            ctx.publish(0, given.seek())?;
            ctx.outputs.get_mut::<u8>(0)?[0] = 9;
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    let inner = Arc::new(Mutex::new(inner));
    let driven = Arc::clone(&inner);
    let mut outer = limiter(move |hooks, _| {
        let (hand, driven) = (hand.clone(), Arc::clone(&driven));
        hooks.push(move |ctx| {
            hand.hide(ctx.take_input(0)?);
            assert!(ctx.inputs.get::<u8>(0).is_err(), "it left this cell");
            let mut inner = driven.lock().unwrap();
            assert_eq!(
                inner.consumer().try_pop().map_err(TaskError::other)?,
                OpResult::Ok
            );
            assert!(ctx.inputs.get::<u8>(0).is_err());
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    let ledger = outer.ledger();
    assert_eq!(outer.push(&[1_u8, 2, 3, 4]).unwrap(), OpResult::Ok);
    drop(outer);
    let mut task = inner.lock().unwrap();
    assert_eq!(task.consumer().output::<u8>(0).unwrap(), [9, 2, 3, 4]);
    assert_eq!(ledger.counts().live_blocks, 1);
    task.consumer().release_all().unwrap();
    nothing_leaks(&ledger);
}

/// A cell for a harness that its own task reaches.
type Own = Arc<OnceLock<Mutex<TaskHarness>>>;

#[test]
fn a_task_that_drives_itself_finds_its_side_taken() {
    let own: Own = Arc::default();
    let inside = Arc::clone(&own);
    let blocked = Stash::new();
    let seen = blocked.clone();
    let task = limiter(move |hooks, _| {
        let (inside, seen) = (Arc::clone(&inside), seen.clone());
        hooks.push(move |ctx| {
            // The harness is mutably borrowed for this very hook: a lock is all that can
            // stand between, and it is taken.
            seen.hide(inside.get().unwrap().try_lock().is_err());
            drop(ctx.take_input(0)?);
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    own.set(Mutex::new(task)).unwrap();
    let mut task = own.get().unwrap().lock().unwrap();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert!(blocked.seek());
}

#[test]
fn a_push_hook_that_pops_its_own_other_side_gets_the_frame_it_just_committed() {
    // The two sides are parted by exchanging one with a harness that nobody uses.
    let pop_side: Own = Arc::default();
    let inside = Arc::clone(&pop_side);
    let got = Stash::new();
    let seen = got.clone();
    let mut task = limiter(move |hooks, slot| {
        let (inside, seen, slot) = (Arc::clone(&inside), seen.clone(), Arc::clone(slot));
        hooks.push(move |ctx| {
            let window = ctx.take_input(0)?;
            slot.commit(ctx.side, window)?;
            let mut other = inside.get().unwrap().lock().unwrap();
            seen.hide(other.consumer().pop::<u8>().map_err(TaskError::other)?);
            // Released: the producer side has it again, within the same hook.
            let mut window = slot.acquire(ctx.side)?.unwrap();
            window.as_mut_bytes()?.fill(9);
            assert_eq!(
                slot.acquire(ctx.side).unwrap_err(),
                ContractError::WindowOut
            );
            drop(window);
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    let ledger = task.ledger();
    let mut spare = limiter(|hooks, _| hooks).unwrap();
    mem::swap(task.consumer(), spare.consumer());
    pop_side.set(Mutex::new(spare)).unwrap();
    for turn in 1..4_u8 {
        assert_eq!(task.push(&[turn; 4]).unwrap(), OpResult::Ok);
        assert_eq!(got.seek(), Some(vec![turn; 4]));
    }
    drop(task);
    assert_eq!(
        ledger.counts().live_blocks,
        1,
        "the other side still has the task"
    );
    assert!(got.find().is_none());
}

#[test]
fn a_pop_hook_that_pushes_its_own_other_side_is_as_good_as_a_section_of_its_own() {
    let push_side: Own = Arc::default();
    let inside = Arc::clone(&push_side);
    let mut task = limiter(move |hooks, slot| {
        let (inside, slot) = (Arc::clone(&inside), Arc::clone(slot));
        hooks.pop(move |ctx| {
            let mut other = inside.get().unwrap().lock().unwrap();
            let pushed = other
                .producer()
                .push(&[7_u8; 4])
                .map_err(TaskError::other)?;
            assert_eq!(pushed, OpResult::Ok);
            let frame = slot.pop(ctx.side)?.unwrap();
            ctx.publish(0, frame)?;
            // Pushed again while the frame is out on this side: there is no storage.
            let again = other
                .producer()
                .push(&[8_u8; 4])
                .map_err(TaskError::other)?;
            assert_eq!(again, OpResult::NotReady);
            Ok(OpResult::Ok)
        })
    })
    .unwrap();
    let mut spare = limiter(|hooks, _| hooks).unwrap();
    mem::swap(task.producer(), spare.producer());
    push_side.set(Mutex::new(spare)).unwrap();
    for _ in 0..3 {
        assert_eq!(task.pop::<u8>().unwrap(), Some(vec![7; 4]));
    }
}

#[test]
fn inputs_and_outputs_of_an_outer_hook_survive_an_inner_hook_that_panics() {
    let mut inner =
        limiter(|hooks, _| hooks.push(|_| std::panic::resume_unwind(Box::new("burst")))).unwrap();
    let infer = InferResult::sync([frame()], [frame()]);
    let mut outer = sync(infer, [frame()], move |_| {
        Ok(SyncHooks::new(|ctx| {
            ctx.outputs
                .get_mut::<u8>(0)?
                .copy_from_slice(ctx.inputs.get::<u8>(0)?);
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    outer.producer().write(0, &[1_u8; 4]).unwrap();
    assert!(inner.push(&[1_u8; 4]).is_err());
    assert_eq!(outer.producer().execute().unwrap(), OpResult::Ok);
    assert_eq!(outer.producer().output::<u8>(0).unwrap(), [1; 4]);
}

#[test]
fn a_factory_that_builds_and_runs_a_task_while_it_creates_one() {
    let mut task = owner(|ctx| {
        // A ring for the outer node, made in the middle of an inner node's creation.
        let outer = Mutex::new(Some(ctx.region_for(&frame())?));
        let sides = ctx.sides();
        let made = Mutex::new(None);
        let mut inner = owner(|ctx| {
            let region = outer.lock().unwrap().take().unwrap();
            let ring = Arc::new(RegionSlot::new(sides, region)?);
            *made.lock().unwrap() = Some(Arc::clone(&ring));
            assert!(!std::ptr::eq(sides, ctx.sides()));
            Ok(AsyncHooks::limiter(&ring))
        })
        .map_err(TaskError::other)?;
        let error = inner.producer().acquire(0).unwrap_err();
        broken!(error, Hook::AcquireInput, None, ContractError::ForeignSide);
        let ring = made.lock().unwrap().take().unwrap();
        Ok(AsyncHooks::limiter(&ring))
    })
    .unwrap();
    let ledger = task.ledger();
    assert_eq!(task.push(&[3_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.pop::<u8>().unwrap(), Some(vec![3; 4]));
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn a_token_kept_from_one_hook_opens_its_side_once_and_not_beside_the_hook() {
    // The task exchanges its side's token for one of its own and keeps the real one. From
    // then on its hooks hold the wrong one, and only the thief opens its cells.
    let real = Stash::new();
    let hidden = real.clone();
    let mut task = limiter(move |hooks, slot| {
        let (hidden, slot) = (hidden.clone(), Arc::clone(slot));
        hooks.pop(move |ctx| {
            if !slot.is_filled() {
                let (_, fake) = Sides::new().into_parts();
                hidden.hide(mem::replace(ctx.side, fake));
                return Ok(OpResult::NotReady);
            }
            slot.pop(ctx.side)?;
            Ok(OpResult::NotReady)
        })
    })
    .unwrap();
    assert_eq!(task.pop::<u8>().unwrap(), None);
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    let error = task.consumer().try_pop().unwrap_err();
    broken!(error, Hook::TryPop, None, ContractError::ForeignSide);
    let _token = real.seek();
    assert!(real.find().is_none(), "there is one such token");
}

#[test]
fn both_windows_of_a_ring_taken_when_the_run_starts_are_the_task_s_to_keep() {
    let kept = Stash::new();
    let hidden = kept.clone();
    let mut task = owner(move |ctx| {
        let region = ctx.region_for(&frame())?;
        let slot = Arc::new(RegionSlot::new(ctx.sides(), region)?);
        let (hidden, early) = (hidden.clone(), Arc::clone(&slot));
        Ok(AsyncHooks::limiter(&slot).started(move |ctx| {
            let window = early.acquire(ctx.producer)?.unwrap();
            early.commit(ctx.producer, window)?;
            hidden.hide(early.pop(ctx.consumer)?.unwrap());
            Ok(())
        }))
    })
    .unwrap();
    assert!(!task.producer().acquire(0).unwrap(), "its only row is out");
    let error = task.consumer().try_pop().unwrap_err();
    broken!(error, Hook::TryPop, None, ContractError::WindowOut);
    let ledger = task.ledger();
    drop(task);
    let mut window = kept.seek();
    window.as_mut_bytes().unwrap().fill(1);
    drop(window);
    nothing_leaks(&ledger);
}
