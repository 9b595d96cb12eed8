//! CPU tasks for Holoflow.
//!
//! Each task is a file; [`register_all`] registers them all. They use what any task author
//! has: this crate forbids unsafe code and knows nothing of core beyond its public
//! interface.

#![forbid(unsafe_code)]

use holoflow_core::registry::{Registry, RegistryError};

mod tasks;

pub use tasks::{
    AtEnd, BatchQueueFactory, BatchQueueSettings, ChecksumFactory, ChecksumSettings, CopyFactory,
    CounterFactory, CounterSettings, DualReaderBatchQueueFactory, DualReaderBatchQueueSettings,
    NullSinkFactory, OwnedRateLimiterFactory, QueueOverflow, RateLimiterFactory,
    RateLimiterSettings,
};

/// Registers every task of this crate under its kind.
///
/// ```
/// use holoflow_core::registry::Registry;
///
/// let mut registry = Registry::new();
/// holoflow_cpu::register_all(&mut registry)?;
/// assert!(registry.is_async("OwnedRateLimiter"));
/// # Ok::<(), holoflow_core::registry::RegistryError>(())
/// ```
///
/// # Errors
/// If a kind is registered already.
pub fn register_all(registry: &mut Registry) -> Result<(), RegistryError> {
    registry.register_async("BatchQueue", BatchQueueFactory)?;
    registry.register_sync("Checksum", ChecksumFactory)?;
    registry.register_sync("Copy", CopyFactory)?;
    registry.register_sync("Counter", CounterFactory)?;
    registry.register_async("DualReaderBatchQueue", DualReaderBatchQueueFactory)?;
    registry.register_sync("NullSink", NullSinkFactory)?;
    registry.register_async("OwnedRateLimiter", OwnedRateLimiterFactory)?;
    registry.register_async("RateLimiter", RateLimiterFactory)?;
    Ok(())
}
