//! Attacks from several threads at once: both sides, windows dropped elsewhere, regions
//! that change hands.
//!
//! Threads meet at channels and by trying again; nothing sleeps, and no result depends on
//! who is faster.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use holoflow::memory::{HostProvider, Memory};
use holoflow::prelude::*;
use holoflow::storage::{
    ContractError, ProducerCell, Region, RegionSlot, RingLayout, Sides, SlotRing, TaskBuffer,
};
use holoflow::testkit::Ledger;
use holoflow_soundness::fixture::{
    AsyncHooks, Stash, SyncHooks, frame, limiter, nothing_leaks, owner, sync,
};

const FRAMES: u8 = 200;

#[test]
fn both_sides_of_a_task_on_two_threads_pass_every_frame_whole() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    let ledger = task.ledger();
    let (push, pop) = task.split().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..FRAMES {
                while push.push(&[n; 4]).unwrap() != OpResult::Ok {
                    thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            for n in 0..FRAMES {
                let frame = loop {
                    match pop.pop::<u8>().unwrap() {
                        Some(frame) => break frame,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(frame, [n; 4]);
            }
        });
    });
    drop(task);
    nothing_leaks(&ledger);
}

#[test]
fn sides_moved_from_thread_to_thread_see_what_was_done_before() {
    let mut task = limiter(|hooks, _| hooks).unwrap();
    for n in 0..8_u8 {
        task = thread::spawn(move || {
            assert_eq!(task.push(&[n; 4]).unwrap(), OpResult::Ok);
            task
        })
        .join()
        .unwrap();
        task = thread::spawn(move || {
            assert_eq!(task.pop::<u8>().unwrap(), Some(vec![n; 4]));
            task
        })
        .join()
        .unwrap();
    }
}

#[test]
fn one_side_driven_by_many_threads_in_turn_loses_and_doubles_no_frame() {
    // A side is a mutable borrow: threads can only take turns at it.
    let mut task = limiter(|hooks, _| hooks).unwrap();
    let (push, pop) = task.split().unwrap();
    let push = Mutex::new((push, 0_u8));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let mut turn = push.lock().unwrap();
                    if turn.1 == FRAMES {
                        break;
                    }
                    let frame = [turn.1; 4];
                    if turn.0.push(&frame).unwrap() == OpResult::Ok {
                        turn.1 += 1;
                    } else {
                        drop(turn);
                        thread::yield_now();
                    }
                }
            });
        }
        for n in 0..FRAMES {
            let frame = loop {
                match pop.pop::<u8>().unwrap() {
                    Some(frame) => break frame,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(frame, [n; 4]);
        }
    });
}

#[test]
fn the_whole_harness_driven_by_many_threads_through_a_lock() {
    let task = limiter(|hooks, _| hooks).unwrap();
    let ledger = task.ledger();
    let task = Arc::new(Mutex::new(task));
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (1..5_u8)
        .map(|mark| {
            let (task, start) = (Arc::clone(&task), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                for _ in 0..50 {
                    // Whatever the others left behind, each call is an answer or an error.
                    let _ = task.lock().unwrap().push(&[mark; 4]);
                    let frame = task.lock().unwrap().pop::<u8>();
                    if let Ok(Some(frame)) = frame {
                        assert!(frame.iter().all(|byte| *byte == frame[0]), "{frame:?}");
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    drop(task);
    nothing_leaks(&ledger);
}

/// A ring of `rows` rows of eight bytes.
fn ring(sides: &Sides, ledger: &Ledger, rows: usize) -> SlotRing {
    let layout = RingLayout {
        row_bytes: 8,
        rows,
        push_rows: 1,
        pop_rows: 1,
        pop_stride: 1,
    };
    let memory = Memory::none().with(ledger.provider());
    let buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 8 * rows).unwrap();
    SlotRing::new(sides, layout, buffer.into_region()).unwrap()
}

#[test]
fn a_window_dropped_on_another_thread_is_handed_out_again_only_after_its_last_write() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let mut sides = Sides::new();
    let ring = ring(&sides, &ledger, 1);
    let producer = sides.split().0;
    let (send, receive) = mpsc::channel::<Region>();
    let dropper = thread::spawn(move || {
        for (n, mut window) in receive.into_iter().enumerate() {
            let (mut head, mut tail) = {
                window.as_mut_bytes().unwrap().fill(n as u8);
                window.split_at(3).unwrap()
            };
            head.as_mut_bytes().unwrap().fill(!(n as u8));
            drop(head);
            tail.as_mut_bytes().unwrap().fill(!(n as u8));
        }
    });
    for n in 0..FRAMES {
        let window = loop {
            match ring.acquire(producer) {
                Ok(window) => break window.unwrap(),
                Err(ContractError::WindowOut) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        if n > 0 {
            assert_eq!(window.as_bytes().unwrap(), [!(n - 1); 8]);
        }
        send.send(window).unwrap();
    }
    drop(send);
    dropper.join().unwrap();
    drop(ring);
    nothing_leaks(&ledger);
}

#[test]
fn windows_of_both_sides_dropped_at_random_on_other_threads_never_overlap() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let sides = Sides::new();
    let ring = Arc::new(ring(&sides, &ledger, 3));
    let (mut producer, mut consumer) = sides.into_parts();
    let (send, receive) = mpsc::channel::<Region>();
    let push = {
        let (ring, send) = (Arc::clone(&ring), send.clone());
        thread::spawn(move || {
            let mut n = 0_u64;
            let mut attempt = 0_u32;
            while n < u64::from(FRAMES) {
                match ring.acquire(&mut producer) {
                    Ok(Some(mut window)) => {
                        attempt += 1;
                        window.as_mut_slice::<u64>().unwrap()[0] = n;
                        if attempt.is_multiple_of(3) {
                            send.send(window).unwrap();
                        } else {
                            ring.commit(&mut producer, window).unwrap();
                            n += 1;
                        }
                    }
                    Ok(None) | Err(ContractError::WindowOut) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let pop = {
        let (ring, send) = (Arc::clone(&ring), send);
        thread::spawn(move || {
            let mut n = 0_u64;
            let mut attempt = 0_u32;
            while n < u64::from(FRAMES) {
                match ring.pop(&mut consumer) {
                    Ok(Some(window)) => {
                        attempt += 1;
                        assert_eq!(window.as_slice::<u64>().unwrap(), [n]);
                        if attempt.is_multiple_of(4) {
                            send.send(window).unwrap();
                        } else {
                            ring.release(&mut consumer, window).unwrap();
                            n += 1;
                        }
                    }
                    Ok(None) | Err(ContractError::WindowOut) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    for window in receive {
        assert!(window.as_slice::<u64>().unwrap()[0] < u64::from(FRAMES));
    }
    push.join().unwrap();
    pop.join().unwrap();
    drop(ring);
    nothing_leaks(&ledger);
}

#[test]
fn state_of_one_side_follows_its_token_from_thread_to_thread() {
    let sides = Sides::new();
    // `Cell` is not `Sync`, and need not be: one holder of the token at a time.
    let cell = Arc::new(ProducerCell::new(&sides, Cell::new(0)));
    let (mut token, _) = sides.into_parts();
    for n in 0..8 {
        let cell = Arc::clone(&cell);
        token = thread::spawn(move || {
            let count = cell.open(&mut token).unwrap();
            assert_eq!(count.replace(n + 1), n);
            token
        })
        .join()
        .unwrap();
    }
}

#[test]
fn readers_of_a_shared_region_on_many_threads_and_the_last_one_makes_it_unique() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 64)
        .unwrap()
        .into_region();
    let shared = region.into_shared();
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (shared, start) = (shared.clone(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                for _ in 0..50 {
                    assert_eq!(shared.to_region().as_bytes().unwrap(), [0; 64]);
                }
                shared.try_into_unique().is_ok()
            })
        })
        .collect();
    let mut shared = Some(shared);
    let mut unique = loop {
        match shared.take().unwrap().try_into_unique() {
            Ok(region) => break region,
            Err(back) => {
                shared = Some(back);
                thread::yield_now();
            }
        }
    };
    unique.as_mut_bytes().unwrap().fill(1);
    // We held it throughout, so none of the others got it.
    assert!(threads.into_iter().all(|thread| !thread.join().unwrap()));
    drop(unique);
    nothing_leaks(&ledger);
}

#[test]
fn views_of_a_hook_read_by_scoped_threads_while_another_output_is_written() {
    let infer = InferResult::sync([frame()], [frame()]);
    let mut task = sync(infer, [frame()], |_| {
        Ok(SyncHooks::new(|ctx| {
            let x = ctx.inputs.get::<u8>(0)?;
            let y = ctx.outputs.get_mut::<u8>(0)?;
            let (low, high) = y.split_at_mut(2);
            thread::scope(|scope| {
                scope.spawn(|| low.copy_from_slice(&x[..2]));
                scope.spawn(|| high.copy_from_slice(&x[2..]));
            });
            Ok(OpResult::Ok)
        }))
    })
    .unwrap();
    assert_eq!(
        task.run::<u8, u8>(&[1, 2, 3, 4]).unwrap(),
        Some(vec![1, 2, 3, 4])
    );
}

#[test]
fn a_region_that_a_thread_of_the_task_still_writes_is_not_in_the_cell() {
    // A camera thread fills the region; the task can only publish what it got back.
    let mut task = owner(|ctx| {
        let mut region = ctx.buffer(MemLoc::Host, 4)?.into_region();
        let (send, receive) = mpsc::channel();
        let filled = Stash::new();
        thread::spawn(move || {
            region.as_mut_bytes().unwrap().fill(5);
            send.send(region).unwrap();
        });
        let receive = Mutex::new(receive);
        Ok(AsyncHooks::idle().pop(move |ctx| {
            let got = receive.lock().unwrap().try_recv();
            match got.ok().or_else(|| filled.find()) {
                Some(region) => {
                    ctx.publish(0, region)?;
                    Ok(OpResult::Ok)
                }
                None => Ok(OpResult::NotReady),
            }
        }))
    })
    .unwrap();
    let frame = loop {
        match task.pop::<u8>().unwrap() {
            Some(frame) => break frame,
            None => thread::yield_now(),
        }
    };
    assert_eq!(frame, [5; 4]);
}

#[test]
fn two_slots_of_one_node_opened_by_one_token_are_two_windows() {
    let mut sides = Sides::new();
    let memory = Memory::host();
    let mut buffer = TaskBuffer::allocate(&memory, MemLoc::Host, 8).unwrap();
    let a = RegionSlot::new(&sides, buffer.take(4).unwrap()).unwrap();
    let b = RegionSlot::new(&sides, buffer.take(4).unwrap()).unwrap();
    let producer = sides.split().0;
    let mut first = a.acquire(producer).unwrap().unwrap();
    let mut second = b.acquire(producer).unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| first.as_mut_bytes().unwrap().fill(1));
        scope.spawn(|| second.as_mut_bytes().unwrap().fill(2));
    });
    assert_eq!(
        (first.as_bytes().unwrap(), second.as_bytes().unwrap()),
        (&[1; 4][..], &[2; 4][..])
    );
}

/// Says that it is dropped.
struct Farewell(mpsc::Sender<()>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // Nobody listens once the test is over.
        let _ = self.0.send(());
    }
}

#[test]
fn a_task_dropped_with_one_side_lives_while_a_hook_of_the_other_runs() {
    let (gone, farewell) = mpsc::channel();
    let (entered, inside) = mpsc::channel();
    let (leave, wait) = mpsc::channel::<()>();
    let parts = Mutex::new(Some((Farewell(gone), entered, wait)));
    let mut task = owner(|ctx| {
        let (farewell, entered, wait) = parts.lock().unwrap().take().unwrap();
        let wait = Mutex::new(wait);
        let region = Mutex::new(ctx.region_for(&frame())?);
        Ok(AsyncHooks::idle().pop(move |_| {
            let _kept = &farewell;
            entered.send(()).map_err(TaskError::other)?;
            wait.lock().unwrap().recv().map_err(TaskError::other)?;
            region.lock().unwrap().as_mut_bytes()?.fill(1);
            Ok(OpResult::NotReady)
        }))
    })
    .unwrap();
    let ledger = task.ledger();
    // Sides are exchanged, so that the harness dropped has one side of each task.
    let mut other = limiter(|hooks, _| hooks).unwrap();
    std::mem::swap(task.consumer(), other.consumer());
    thread::scope(|scope| {
        let popping = scope.spawn(move || {
            let result = other.consumer().try_pop().unwrap();
            (result, other)
        });
        inside.recv().unwrap();
        drop(task);
        assert!(farewell.try_recv().is_err(), "a hook of it runs");
        assert_eq!(ledger.counts().live_blocks, 1);
        leave.send(()).unwrap();
        let (result, other) = popping.join().unwrap();
        assert_eq!(result, OpResult::NotReady);
        assert!(farewell.try_recv().is_err(), "one side of it is left");
        drop(other);
        farewell.recv().unwrap();
    });
    nothing_leaks(&ledger);
}

#[test]
fn parts_of_a_shared_window_dropped_on_many_threads_bring_the_window_back_once() {
    let ledger = Ledger::new(Arc::new(HostProvider));
    let memory = Memory::none().with(ledger.provider());
    let region = TaskBuffer::allocate(&memory, MemLoc::Host, 8).unwrap();
    let mut sides = Sides::new();
    let slot = RegionSlot::new(&sides, region.into_region()).unwrap();
    let producer = sides.split().0;
    for round in 0..50_u8 {
        let mut window = loop {
            match slot.acquire(producer) {
                Ok(window) => break window.unwrap(),
                Err(error) => assert_eq!(error, ContractError::WindowOut),
            }
            thread::yield_now();
        };
        window.as_mut_bytes().unwrap().fill(round);
        let shared = window.into_shared();
        for at in [0, 2, 4, 6] {
            let part = shared.to_region().split_at(at).unwrap().1;
            thread::spawn(move || {
                assert!(part.as_bytes().unwrap().iter().all(|byte| *byte == round));
                // Alone or not, what is written is nobody else's.
                if let Ok(mut part) = part.into_shared().try_into_unique() {
                    part.as_mut_bytes().unwrap().fill(0xFF);
                }
            });
        }
        drop(shared);
    }
    loop {
        if slot.acquire(producer).is_ok() {
            break;
        }
        thread::yield_now();
    }
    drop(slot);
    nothing_leaks(&ledger);
}
