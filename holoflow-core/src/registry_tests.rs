//! The registry cases, and every message of the registry's errors.

use super::*;
use crate::task::{CreateCtx, IAsyncTask, ISyncTask, InferResult, TaskRequest, TaskResult};

/// A factory of the given placement that makes nothing.
struct Fake(Placement);

impl Fake {
    fn info(&self) -> TaskInfo {
        let info = TaskInfo::new("A fake.");
        match self.0 {
            Placement::Host => info,
            Placement::Device => info.on_device(),
        }
    }
}

impl ISyncTaskFactory for Fake {
    fn describe(&self) -> TaskInfo {
        self.info()
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(InferResult::sync([], []))
    }

    fn create(&self, _: &TaskRequest<'_>, _: &mut CreateCtx<'_>) -> TaskResult<Box<dyn ISyncTask>> {
        unreachable!("the registry makes no tasks")
    }
}

impl IAsyncTaskFactory for Fake {
    fn describe(&self) -> TaskInfo {
        self.info()
    }

    fn infer(&self, _: &TaskRequest<'_>) -> TaskResult<InferResult> {
        Ok(InferResult::asynchronous([], []))
    }

    fn create(
        &self,
        _: &TaskRequest<'_>,
        _: &mut CreateCtx<'_>,
    ) -> TaskResult<Box<dyn IAsyncTask>> {
        unreachable!("the registry makes no tasks")
    }
}

const HOST: Fake = Fake(Placement::Host);
const DEVICE: Fake = Fake(Placement::Device);

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register_sync("Scale", HOST).unwrap();
    registry.register_async("Queue", HOST).unwrap();
    registry
}

/// Address of a factory, to know it again.
fn sync_address(factory: &Arc<dyn ISyncTaskFactory>) -> *const () {
    Arc::as_ptr(factory).cast()
}

fn async_address(factory: &Arc<dyn IAsyncTaskFactory>) -> *const () {
    Arc::as_ptr(factory).cast()
}

#[test]
fn r_01_a_sync_factory_is_registered_and_found() {
    let mut registry = Registry::new();
    assert!(!registry.is_registered("Scale"));
    registry.register_sync("Scale", HOST).unwrap();
    assert!(registry.is_registered("Scale"));
    assert!(registry.is_sync("Scale"));
    assert!(!registry.is_async("Scale"));
    let TaskFactory::Sync(general) = registry.get("Scale", None).unwrap() else {
        panic!("registered as sync");
    };
    let special = registry.get_sync("Scale", None).unwrap();
    assert_eq!(sync_address(general), sync_address(special));
}

#[test]
fn r_02_an_async_factory_is_registered_and_found() {
    let registry = registry();
    assert!(registry.is_registered("Queue"));
    assert!(registry.is_async("Queue"));
    assert!(!registry.is_sync("Queue"));
    let TaskFactory::Async(general) = registry.get("Queue", None).unwrap() else {
        panic!("registered as async");
    };
    let special = registry.get_async("Queue", None).unwrap();
    assert_eq!(async_address(general), async_address(special));
}

#[test]
fn r_03_a_kind_is_registered_once_and_the_first_stays() {
    let mut registry = registry();
    let scale = sync_address(registry.get_sync("Scale", None).unwrap());
    let queue = async_address(registry.get_async("Queue", None).unwrap());
    for (error, expected) in [
        (
            registry.register_sync("Scale", HOST).unwrap_err(),
            "kind `Scale` already has a Sync factory for Host memory",
        ),
        (
            registry.register_async("Queue", HOST).unwrap_err(),
            "kind `Queue` already has a Async factory for Host memory",
        ),
        (
            registry.register_async("Scale", HOST).unwrap_err(),
            "kind `Scale` already has a Sync factory for Host memory",
        ),
        (
            registry.register_sync("Queue", HOST).unwrap_err(),
            "kind `Queue` already has a Async factory for Host memory",
        ),
        (
            registry.register_async("Scale", DEVICE).unwrap_err(),
            "kind `Scale` is registered as Sync, so it cannot be Async too",
        ),
        (
            registry.register_sync("Queue", DEVICE).unwrap_err(),
            "kind `Queue` is registered as Async, so it cannot be Sync too",
        ),
    ] {
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(
        sync_address(registry.get_sync("Scale", None).unwrap()),
        scale
    );
    assert_eq!(
        async_address(registry.get_async("Queue", None).unwrap()),
        queue
    );
    assert_eq!(registry.factories().count(), 2);
}

#[test]
fn r_03_a_kind_has_a_factory_for_host_and_one_for_device_memory() {
    let mut registry = registry();
    registry.register_sync("Scale", DEVICE).unwrap();
    let placed = |placement| {
        registry
            .get_sync("Scale", placement)
            .unwrap()
            .describe()
            .placement
    };
    assert_eq!(placed(Some(Placement::Host)), Placement::Host);
    assert_eq!(placed(Some(Placement::Device)), Placement::Device);
    assert_eq!(placed(None), Placement::Host);
    assert_eq!(registry.kinds().collect::<Vec<_>>(), ["Queue", "Scale"]);
    let all: Vec<_> = registry
        .factories()
        .map(|(kind, placement, factory)| (kind, placement, factory.kind()))
        .collect();
    assert_eq!(
        all,
        [
            ("Queue", Placement::Host, TaskKind::Async),
            ("Scale", Placement::Host, TaskKind::Sync),
            ("Scale", Placement::Device, TaskKind::Sync),
        ]
    );

    // Of a kind for the device alone, that is the one there is.
    registry.register_sync("Fft", DEVICE).unwrap();
    let factory = registry.get("Fft", None).unwrap();
    assert_eq!(factory.describe().placement, Placement::Device);
    assert_eq!(
        registry
            .get("Fft", Some(Placement::Host))
            .unwrap_err()
            .to_string(),
        "kind `Fft` has no factory for Host memory"
    );
}

#[test]
fn r_04_unknown_kinds_are_not_found_by_any_lookup() {
    let registry = registry();
    assert!(!registry.is_registered("Scales"));
    assert!(!registry.is_sync("Scales") && !registry.is_async("Scales"));
    for placement in [None, Some(Placement::Host), Some(Placement::Device)] {
        let expected = "no task of kind `Scales` is registered: did you mean `Scale`?";
        for error in [
            registry.get("Scales", placement).unwrap_err(),
            registry.get_sync("Scales", placement).unwrap_err(),
            registry.get_async("Scales", placement).unwrap_err(),
        ] {
            assert!(matches!(error, RegistryError::NotFound { .. }));
            assert_eq!(error.to_string(), expected);
        }
    }
    // No name is near this one.
    assert_eq!(
        registry.get("Hologram", None).unwrap_err().to_string(),
        "no task of kind `Hologram` is registered"
    );
}

#[test]
fn a_kind_of_the_other_sort_is_told_from_an_unknown_one() {
    let registry = registry();
    assert_eq!(
        registry.get_async("Scale", None).unwrap_err().to_string(),
        "kind `Scale` is Sync, asked for as Async"
    );
    assert_eq!(
        registry.get_sync("Queue", None).unwrap_err().to_string(),
        "kind `Queue` is Async, asked for as Sync"
    );
}
