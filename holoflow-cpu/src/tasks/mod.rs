//! One task a file.

mod batch_queue;
mod copy;
mod counter;
mod owned_rate_limiter;
mod rate_limiter;
mod sinks;

pub use batch_queue::{AtEnd, BatchQueueFactory, BatchQueueSettings, QueueOverflow};
pub use copy::CopyFactory;
pub use counter::{CounterFactory, CounterSettings};
pub use owned_rate_limiter::OwnedRateLimiterFactory;
pub use rate_limiter::{RateLimiterFactory, RateLimiterSettings};
pub use sinks::{ChecksumFactory, NullSinkFactory};
