//! Cases of tasks, contexts and views that need a task and nothing else.

use serde_json::json;

use super::*;
use crate::storage::{ConsumerCell, IOStorageAccess, ProducerCell, RegionSlot, TView};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::task::{
    AcquireCtx, AsyncPopCtx, AsyncPushCtx, ISyncTask, ReleaseCtx, RunCtx, SyncCtx, TaskInfo,
    TaskResult,
};
use crate::tensor::DType;

type Infer = Box<dyn Fn(&TaskRequest<'_>) -> TaskResult<InferResult> + Send + Sync>;

/// A factory made of two closures.
struct Made<C> {
    infer: Infer,
    create: C,
}

impl<C> Made<C> {
    fn new<T>(
        infer: impl Fn(&TaskRequest<'_>) -> TaskResult<InferResult> + Send + Sync + 'static,
        create: C,
    ) -> Self
    where
        C: Fn(&mut CreateCtx<'_>) -> TaskResult<T> + Send + Sync,
    {
        Self {
            infer: Box::new(infer),
            create,
        }
    }
}

impl<C, T> ISyncTaskFactory for Made<C>
where
    C: Fn(&mut CreateCtx<'_>) -> TaskResult<T> + Send + Sync,
    T: ISyncTask,
{
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Made for a test.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        (self.infer)(request)
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn ISyncTask>> {
        Ok(Box::new((self.create)(ctx)?))
    }
}

impl<C, T> IAsyncTaskFactory for Made<C>
where
    C: Fn(&mut CreateCtx<'_>) -> TaskResult<T> + Send + Sync,
    T: IAsyncTask,
{
    fn describe(&self) -> TaskInfo {
        TaskInfo::new("Made for a test.")
    }

    fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
        (self.infer)(request)
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        ctx: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        Ok(Box::new((self.create)(ctx)?))
    }
}

fn frame() -> TDesc {
    TDesc::host::<u8>([4]).unwrap()
}

/// One input, one output, sync.
fn sync_infer(request: &TaskRequest<'_>) -> TaskResult<InferResult> {
    let [frame] = request.exactly::<1>()?;
    Ok(InferResult::sync([frame.clone()], [frame.clone()]))
}

/// One input, one output, async.
fn async_infer(request: &TaskRequest<'_>) -> TaskResult<InferResult> {
    let [frame] = request.exactly::<1>()?;
    Ok(InferResult::asynchronous([frame.clone()], [frame.clone()]))
}

fn owning(infer: InferResult) -> InferResult {
    infer.owning_inputs().owning_outputs()
}

/// A task that leaves all but the necessary to the defaults.
struct Idle;

impl ISyncTask for Idle {
    fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::Ok)
    }
}

impl IAsyncTask for Idle {}

/// Passes one region from its input to its output.
struct Pass {
    slot: RegionSlot,
    pushed: ProducerCell<u32>,
    popped: ConsumerCell<u32>,
}

impl Pass {
    fn new(ctx: &mut CreateCtx<'_>) -> TaskResult<Self> {
        Ok(Self {
            slot: ctx.region_slot(&frame())?,
            pushed: ctx.producer_cell(0),
            popped: ctx.consumer_cell(0),
        })
    }
}

impl IAsyncTask for Pass {
    fn acquire_input<'c>(
        &self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        ctx.lend(index, |side| self.slot.acquire(side))
    }

    fn try_push(&self, ctx: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        let region = ctx.take_input(0)?;
        self.slot.commit(ctx.side, region)?;
        *self.pushed.open(ctx.side)? += 1;
        Ok(OpResult::Ok)
    }

    fn try_pop(&self, ctx: &mut AsyncPopCtx<'_>) -> TaskResult<OpResult> {
        let Some(region) = self.slot.pop(ctx.side)? else {
            return Ok(OpResult::NotReady);
        };
        ctx.publish(0, region)?;
        *self.popped.open(ctx.side)? += 1;
        Ok(OpResult::Ok)
    }

    fn release_output(&self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        let region = ctx.take_back(index)?;
        self.slot.release(ctx.side, region)?;
        Ok(())
    }
}

fn pass() -> TaskHarness {
    let factory = Made::new(|request| async_infer(request).map(owning), Pass::new);
    TaskHarness::asynchronous(&factory, json!({}), [frame()]).unwrap()
}

fn idle_sync(own: bool) -> TaskHarness {
    let infer = move |request: &TaskRequest<'_>| {
        let infer = sync_infer(request)?;
        Ok(if own { owning(infer) } else { infer })
    };
    TaskHarness::sync(
        &Made::new(infer, |_: &mut _| Ok(Idle)),
        json!({}),
        [frame()],
    )
    .unwrap()
}

fn idle_async(own: bool) -> TaskHarness {
    let infer = move |request: &TaskRequest<'_>| {
        let infer = async_infer(request)?;
        Ok(if own { owning(infer) } else { infer })
    };
    let factory = Made::new(infer, |_: &mut _| Ok(Idle));
    TaskHarness::asynchronous(&factory, json!({}), [frame()]).unwrap()
}

fn order(error: &HookError) -> &'static str {
    match error.contract() {
        Some(ContractError::Order { found, .. }) => found,
        other => panic!("{error:#}: {other:?}"),
    }
}

// ---------------------------------------------------------------------------------------
// I-01

#[test]
fn i_01_the_default_hooks_say_that_the_slot_is_not_owned() {
    for mut task in [idle_sync(false), idle_async(false)] {
        let slot = Slot::Input(0);
        let error = task.producer().acquire(0).unwrap_err();
        assert_eq!(error.hook, Hook::AcquireInput);
        assert_eq!(
            error.contract(),
            Some(&ContractError::SlotNotOwned { slot })
        );
        let slot = Slot::Output(0);
        let error = task.consumer().release(0).unwrap_err();
        assert_eq!(error.hook, Hook::ReleaseOutput);
        assert_eq!(
            error.contract(),
            Some(&ContractError::SlotNotOwned { slot })
        );
    }
}

#[test]
fn i_01_an_index_beyond_the_slots_is_out_of_range() {
    for own in [false, true] {
        for mut task in [idle_sync(own), idle_async(own)] {
            for index in [1, usize::MAX] {
                let slot = Slot::Input(index);
                let error = task.producer().acquire(index).unwrap_err();
                assert_eq!(
                    error.contract(),
                    Some(&ContractError::SlotOutOfRange { slot, count: 1 })
                );
                let slot = Slot::Output(index);
                let error = task.consumer().release(index).unwrap_err();
                assert_eq!(
                    error.contract(),
                    Some(&ContractError::SlotOutOfRange { slot, count: 1 })
                );
            }
        }
    }
}

#[test]
fn i_01_an_owned_slot_whose_hook_is_missing_says_so() {
    for mut task in [idle_sync(true), idle_async(true)] {
        let slot = Slot::Input(0);
        let error = task.producer().acquire(0).unwrap_err();
        assert_eq!(error.contract(), Some(&ContractError::HookMissing { slot }));
        assert_eq!(
            format!("{error:#}"),
            "node `task`, acquire_input: the storage contract was broken: input 0 is owned, \
             but the task does not implement its hook"
        );
    }
}

#[test]
fn i_01_a_task_without_a_side_says_so() {
    let mut task = idle_async(false);
    let error = task.producer().try_push().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `task`, try_push: the storage contract was broken: try_push was called, but the \
         task does not implement it"
    );
    let error = task.consumer().try_pop().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `task`, try_pop: the storage contract was broken: try_pop was called, but the \
         task does not implement it"
    );
}

// ---------------------------------------------------------------------------------------
// I-04

/// A task that knows its number and says when it is dropped.
struct Numbered {
    number: u64,
    dropped: Arc<Mutex<Vec<u64>>>,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.dropped.lock().push(self.number);
    }
}

impl ISyncTask for Numbered {
    fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        Ok(OpResult::Ok)
    }
}

impl IAsyncTask for Numbered {}

/// Makes tasks with numbers from 1 on.
fn numbering(
    dropped: &Arc<Mutex<Vec<u64>>>,
) -> impl Fn(&mut CreateCtx<'_>) -> TaskResult<Numbered> + Send + Sync + use<> {
    let dropped = Arc::clone(dropped);
    let made = Mutex::new(0);
    move |_| {
        *made.lock() += 1;
        Ok(Numbered {
            number: *made.lock(),
            dropped: Arc::clone(&dropped),
        })
    }
}

#[test]
fn i_04_the_default_update_makes_a_new_sync_task() {
    let dropped = Arc::default();
    let factory: &dyn ISyncTaskFactory = &Made::new(sync_infer, numbering(&dropped));
    let (memory, sides) = (Memory::host(), Sides::new());
    let (settings, inputs) = (json!({}), [frame()]);
    let request = TaskRequest::new("node", &settings, &inputs);
    let mut ctx = CreateCtx::new("node", &memory, &sides, None, None);
    let old = factory.create(&request, &mut ctx).unwrap();
    let new = factory.update(old, &request, &mut ctx).unwrap();
    assert_eq!(*dropped.lock(), [1]);
    assert_eq!(new.take::<Numbered>().unwrap().number, 2);
}

#[test]
fn i_04_the_default_update_makes_a_new_async_task() {
    let dropped = Arc::default();
    let factory: &dyn IAsyncTaskFactory = &Made::new(async_infer, numbering(&dropped));
    let (memory, sides) = (Memory::host(), Sides::new());
    let (settings, inputs) = (json!({}), [frame()]);
    let request = TaskRequest::new("node", &settings, &inputs);
    let mut ctx = CreateCtx::new("node", &memory, &sides, None, None);
    let old: Arc<dyn IAsyncTask> = factory.create(&request, &mut ctx).unwrap().into();
    let new: Arc<dyn IAsyncTask> = factory.update(old, &request, &mut ctx).unwrap().into();
    assert_eq!(*dropped.lock(), [1]);
    // Not while another holds it, and not as what it is not.
    assert!(Arc::clone(&new).take::<Numbered>().is_none());
    assert!(Arc::clone(&new).take::<Idle>().is_none());
    assert_eq!(new.take::<Numbered>().unwrap().number, 2);
}

// ---------------------------------------------------------------------------------------
// I-05

/// Where a context found the cells of its slots, or why not.
type Found = Vec<Result<usize, ContractError>>;

fn look(ctx: &mut impl IOStorageAccess) -> Found {
    let mut found = Found::new();
    for index in 0..2 {
        let input = ctx.owned_input_storage(index);
        found.push(input.map(|cell| std::ptr::from_ref(cell).addr()));
    }
    for index in 0..2 {
        let output = ctx.owned_output_storage(index);
        found.push(output.map(|cell| std::ptr::from_ref(cell).addr()));
    }
    found
}

/// Looks at its cells in every hook.
struct Looker(Arc<Mutex<Vec<Found>>>);

impl ISyncTask for Looker {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        self.0.lock().push(look(ctx));
        let region = ctx.take_input(0)?;
        ctx.publish(0, region)?;
        Ok(OpResult::Ok)
    }

    fn acquire_input<'c>(
        &mut self,
        index: usize,
        ctx: &'c mut AcquireCtx<'_>,
    ) -> TaskResult<Option<TView<'c>>> {
        self.0.lock().push(look(ctx));
        let buffer = TaskBuffer::allocate(&Memory::host(), crate::tensor::MemLoc::Host, 4)?;
        let mut region = Some(buffer.into_region());
        ctx.lend(index, |_| TaskResult::Ok(region.take()))
    }

    fn release_output(&mut self, index: usize, ctx: &mut ReleaseCtx<'_>) -> TaskResult<()> {
        self.0.lock().push(look(ctx));
        drop(ctx.take_back(index)?);
        Ok(())
    }
}

#[test]
fn i_05_owned_cells_are_reached_by_index_and_stay_where_they_are() {
    let seen: Arc<Mutex<Vec<Found>>> = Arc::default();
    let looker = Arc::clone(&seen);
    let factory = Made::new(
        |request| sync_infer(request).map(owning),
        move |_: &mut _| Ok(Looker(Arc::clone(&looker))),
    );
    let mut task = TaskHarness::sync(&factory, json!({}), [frame()]).unwrap();
    for _ in 0..2 {
        assert_eq!(task.run::<u8, u8>(&[1; 4]).unwrap(), Some(vec![1; 4]));
    }
    let seen = std::mem::take(&mut *seen.lock());
    assert_eq!(seen.len(), 6);
    let (input, output) = (seen[1][0].clone(), seen[1][2].clone());
    assert!(input.is_ok() && output.is_ok() && input != output);
    for (hook, found) in seen.into_iter().enumerate() {
        for (index, slot) in [(1, Slot::Input(1)), (3, Slot::Output(1))] {
            let out_of_range = ContractError::SlotOutOfRange { slot, count: 1 };
            let wrong_side = ContractError::WrongSide { slot };
            // Acquire reaches inputs only, release outputs only, execute both.
            let expected = match (hook % 3, slot) {
                (0, Slot::Output(_)) | (2, Slot::Input(_)) => wrong_side,
                _ => out_of_range,
            };
            assert_eq!(found[index], Err(expected));
        }
        if hook % 3 != 2 {
            assert_eq!(found[0], input);
        }
        if hook % 3 != 0 {
            assert_eq!(found[2], output);
        }
    }
}

// ---------------------------------------------------------------------------------------
// I-08, I-10

#[test]
fn i_08_a_result_of_the_wrong_length_is_refused_with_the_nodes_name() {
    let infer = |request: &TaskRequest<'_>| {
        let mut infer = sync_infer(request)?;
        infer.owned_outputs.clear();
        Ok(infer)
    };
    let error = TaskHarness::builder()
        .name("short")
        .sync(
            &Made::new(infer, |_: &mut _| Ok(Idle)),
            json!({}),
            [frame()],
        )
        .unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `short`, infer: the factory's inference contradicts itself: `owned_outputs` has \
         0 flags, expected 1: one for each descriptor"
    );
    let infer = |_: &TaskRequest<'_>| Ok(InferResult::asynchronous([], [frame()]));
    let error = TaskHarness::builder()
        .name("deaf")
        .asynchronous(
            &Made::new(infer, |_: &mut _| Ok(Idle)),
            json!({}),
            [frame()],
        )
        .unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `deaf`, infer: the factory's inference contradicts itself: found 0 input \
         descriptors, expected one for each of the 1 inputs"
    );
}

#[test]
fn i_10_a_result_of_the_other_kind_is_refused_with_node_and_kind() {
    let create = |_: &mut CreateCtx<'_>| -> TaskResult<Idle> { panic!("refused before") };
    let error = TaskHarness::builder()
        .name("mixed")
        .sync(&Made::new(async_infer, create), json!({}), [frame()])
        .unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `mixed`, infer: the factory's inference contradicts itself: `kind` is Async, but \
         the factory is registered as Sync"
    );
    let error = TaskHarness::builder()
        .name("mixed")
        .asynchronous(&Made::new(sync_infer, create), json!({}), [frame()])
        .unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `mixed`, infer: the factory's inference contradicts itself: `kind` is Sync, but \
         the factory is registered as Async"
    );
}

// ---------------------------------------------------------------------------------------
// I-11, I-13

#[test]
fn i_11_at_most_one_input_group_is_acquired_and_one_output_group_unreleased() {
    let mut task = pass();
    let (push, pop) = task.split().unwrap();
    assert!(push.acquire(0).unwrap());
    assert_eq!(
        order(&push.acquire(0).unwrap_err()),
        "it is acquired already"
    );
    push.write(0, &[1_u8; 4]).unwrap();
    assert_eq!(push.try_push().unwrap(), OpResult::Ok);
    assert_eq!(order(&push.try_push().unwrap_err()), "it is not acquired");
    assert!(!push.acquire(0).unwrap(), "the one region is filled");

    assert_eq!(pop.try_pop().unwrap(), OpResult::Ok);
    assert_eq!(order(&pop.try_pop().unwrap_err()), "it is not released");
    pop.release(0).unwrap();
    assert_eq!(order(&pop.release(0).unwrap_err()), "it is not popped");
    assert_eq!(pop.try_pop().unwrap(), OpResult::NotReady);
    let report = task.report();
    assert_eq!((report.lent, report.pushed), (1, 1));
    assert_eq!((report.popped, report.released), (1, 1));
}

#[test]
fn i_13_an_acquired_input_is_valid_until_it_is_pushed_or_cancelled() {
    let mut task = pass();
    let push = task.producer();
    let slot = Slot::Input(0);
    assert_eq!(
        push.input_mut::<u8>(0).unwrap_err(),
        ContractError::Empty { slot }
    );
    assert!(push.acquire(0).unwrap());
    let address = push.input_address(0).unwrap().unwrap();
    push.input_mut::<u8>(0).unwrap().fill(1);
    push.cancel_inputs().unwrap();
    assert_eq!(push.input_address(0).unwrap(), None);
    assert!(push.input_mut::<u8>(0).is_err());

    assert!(push.acquire(0).unwrap());
    assert_eq!(push.input_address(0).unwrap(), Some(address));
    push.input_mut::<u8>(0).unwrap().fill(2);
    assert_eq!(push.try_push().unwrap(), OpResult::Ok);
    assert!(push.input_mut::<u8>(0).is_err());
    assert_eq!(task.report().cancelled, 1);
}

#[test]
fn i_13_an_owned_output_is_valid_until_it_is_released() {
    let mut task = pass();
    assert_eq!(task.push(&[7_u8; 4]).unwrap(), OpResult::Ok);
    let (push, pop) = task.split().unwrap();
    let slot = Slot::Output(0);
    assert_eq!(
        pop.output::<u8>(0).unwrap_err(),
        ContractError::Empty { slot }
    );
    assert_eq!(pop.try_pop().unwrap(), OpResult::Ok);
    for _ in 0..3 {
        assert_eq!(pop.output::<u8>(0).unwrap(), [7; 4]);
        assert!(!push.acquire(0).unwrap(), "its region is not lent again");
    }
    pop.release(0).unwrap();
    assert!(pop.output::<u8>(0).is_err());
    assert_eq!(pop.output_address(0).unwrap(), None);
    assert!(push.acquire(0).unwrap());
}

#[test]
fn i_13_ownership_hooks_are_called_for_owned_slots_only() {
    // The default hooks would fail.
    let mut task = idle_sync(false);
    for _ in 0..2 {
        assert!(task.run::<u8, u8>(&[1; 4]).unwrap().is_some());
    }
    let report = task.report();
    assert_eq!((report.lent, report.published, report.released), (0, 0, 0));
    assert!(task.producer().input_address(0).unwrap().is_some());
}

// ---------------------------------------------------------------------------------------
// V-04, V-05

/// Reads its owned output without having published anything.
struct Taker;

impl ISyncTask for Taker {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        assert!(ctx.outputs.view(0)?.address().is_none());
        ctx.outputs.get_mut::<u8>(0)?.fill(1);
        Ok(OpResult::Ok)
    }
}

#[test]
fn v_04_data_of_an_unpublished_view_is_an_error_with_node_and_slot() {
    let factory = Made::new(
        |request| sync_infer(request).map(InferResult::owning_outputs),
        |_: &mut _| Ok(Taker),
    );
    let mut task = TaskHarness::builder()
        .name("taker")
        .sync(&factory, json!({}), [frame()])
        .unwrap();
    let error = task.producer().execute().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "node `taker`, execute: the storage contract was broken: output 0 is empty: nothing is \
         published in its cell"
    );
    // The task is called again and fails again; nothing is the worse for it.
    assert!(task.producer().execute().is_err());
}

/// Adds its two inputs.
struct Add;

impl ISyncTask for Add {
    fn execute(&mut self, ctx: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        let (a, b) = (ctx.inputs.get::<u8>(0)?, ctx.inputs.get::<u8>(1)?);
        let sum = ctx.outputs.get_mut::<u8>(0)?;
        for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
            *sum = a + b;
        }
        Ok(OpResult::Ok)
    }
}

#[test]
fn v_05_two_inputs_of_one_tensor_show_the_same_bytes() {
    let infer = |request: &TaskRequest<'_>| {
        let [a, b] = request.exactly::<2>()?;
        Ok(InferResult::sync([a.clone(), b.clone()], [a.clone()]))
    };
    let factory = Made::new(infer, |_: &mut _| Ok(Add));
    let mut task = TaskHarness::builder()
        .tie_inputs(0, 1)
        .sync(&factory, json!({}), [frame(), frame()])
        .unwrap();
    let side = task.producer();
    assert_eq!(
        side.input_address(0).unwrap(),
        side.input_address(1).unwrap()
    );
    for turn in 1..4 {
        assert_eq!(
            side.run::<u8, u8>(&[turn; 4]).unwrap(),
            Some(vec![2 * turn; 4])
        );
    }
    let slot = Slot::Input(1);
    assert_eq!(
        side.input_mut::<u8>(1).unwrap_err(),
        ContractError::ViewOutput { output: slot }
    );
}

#[test]
fn v_05_the_consumer_sees_what_the_owner_published_each_time() {
    let mut task = pass();
    for turn in 0..3 {
        let side = task.producer();
        assert!(side.acquire(0).unwrap());
        let written = side.input_address(0).unwrap();
        side.write(0, &[turn; 4]).unwrap();
        assert_eq!(side.try_push().unwrap(), OpResult::Ok);
        let side = task.consumer();
        assert_eq!(side.try_pop().unwrap(), OpResult::Ok);
        assert_eq!(side.output_address(0).unwrap(), written);
        assert_eq!(side.output::<u8>(0).unwrap(), [turn; 4]);
        side.release_all().unwrap();
    }
    assert_eq!(task.report().copied_bytes, 0);
}

// ---------------------------------------------------------------------------------------
// The harness itself

#[test]
fn data_of_the_wrong_length_or_type_is_an_error_that_says_so() {
    let mut task = idle_sync(false);
    let error = task.producer().write(0, &[1_u8; 3]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "input 0: found 3 elements of data, expected 4"
    );
    let error = task.producer().write(0, &[1_f32; 4]).unwrap_err();
    assert_eq!(
        error.contract(),
        Some(&ContractError::WrongType {
            slot: Slot::Input(0),
            found: DType::U8,
            expected: DType::F32,
        })
    );
}

#[test]
fn what_a_task_held_goes_back_with_the_harness() {
    let mut task = pass();
    assert_eq!(task.push(&[1_u8; 4]).unwrap(), OpResult::Ok);
    assert_eq!(task.consumer().try_pop().unwrap(), OpResult::Ok);
    let ledger = task.ledger();
    assert_eq!(task.report().memory.live_blocks, 1);
    drop(task);
    assert_eq!(ledger.counts().live_blocks, 0);
    assert_eq!(ledger.counts().faults, 0);
}

/// Tells the other thread, which waits for this one, that this one panicked.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Alarm<'_> {
    fn wait(&self) {
        assert!(!self.0.load(Ordering::Relaxed), "the other side panicked");
        std::thread::yield_now();
    }
}

#[test]
fn sides_are_used_from_two_threads() {
    let mut task = pass();
    let (push, pop) = task.split().unwrap();
    let panicked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let alarm = Alarm(&panicked);
            for turn in 0..50_u8 {
                while push.push(&[turn; 4]).unwrap() != OpResult::Ok {
                    alarm.wait();
                }
            }
        });
        let alarm = Alarm(&panicked);
        for turn in 0..50 {
            let frame = loop {
                match pop.pop::<u8>().unwrap() {
                    Some(frame) => break frame,
                    None => alarm.wait(),
                }
            };
            assert_eq!(frame, [turn; 4]);
        }
    });
}

/// Counts its frames, and reports them at the end; panics instead where there are none.
#[derive(Default)]
struct Tally(Mutex<u64>);

impl Tally {
    fn end(&self, ctx: &mut RunCtx<'_>) {
        assert_ne!(*self.0.lock(), 0, "no frames");
        ctx.report("frames", std::mem::take(&mut *self.0.lock()));
        ctx.report("cancelled", ctx.is_cancelled());
    }
}

impl ISyncTask for Tally {
    fn execute(&mut self, _: &mut SyncCtx<'_>) -> TaskResult<OpResult> {
        *self.0.lock() += 1;
        Ok(OpResult::Ok)
    }

    fn run_ended(&mut self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.end(ctx);
        Ok(())
    }
}

impl IAsyncTask for Tally {
    fn try_push(&self, _: &mut AsyncPushCtx<'_>) -> TaskResult<OpResult> {
        *self.0.lock() += 1;
        Ok(OpResult::Ok)
    }

    fn run_ended(&self, ctx: &mut RunCtx<'_>) -> TaskResult<()> {
        self.end(ctx);
        Ok(())
    }
}

#[test]
fn a_run_that_is_ended_has_what_the_task_reports() {
    let tally = Made::new(sync_infer, |_| Ok(Tally::default()));
    let mut sync = TaskHarness::sync(&tally, json!({}), [frame()]).unwrap();
    assert_eq!(sync.producer().execute().unwrap(), OpResult::Ok);
    let tally = Made::new(async_infer, |_| Ok(Tally::default()));
    let mut asynchronous = TaskHarness::asynchronous(&tally, json!({}), [frame()]).unwrap();
    assert_eq!(asynchronous.push(&[0_u8; 4]).unwrap(), OpResult::Ok);
    for mut task in [sync, asynchronous] {
        let results = task.end_run().unwrap();
        assert_eq!(json!(results), json!({ "frames": 1, "cancelled": false }));
        task.start_run().unwrap();
        let error = task.end_run().unwrap_err();
        assert!(
            format!("{error:#}")
                .starts_with("node `task`, run_ended: the task panicked: assertion"),
            "{error:#}"
        );
        assert_eq!(task.end_run().unwrap().len(), 0, "it gets no further hook");
    }
}
