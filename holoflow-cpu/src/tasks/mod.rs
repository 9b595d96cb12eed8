//! One task a file.

mod batch_queue;
mod checksum;
mod copy;
mod counter;
mod dual_reader_batch_queue;
mod no_settings;
mod null_sink;
mod owned_rate_limiter;
mod rate_limiter;

pub use batch_queue::{AtEnd, BatchQueueFactory, BatchQueueSettings, QueueOverflow};
pub use checksum::{ChecksumFactory, ChecksumSettings};
pub use copy::CopyFactory;
pub use counter::{CounterFactory, CounterSettings};
pub use dual_reader_batch_queue::{DualReaderBatchQueueFactory, DualReaderBatchQueueSettings};
pub use null_sink::NullSinkFactory;
pub use owned_rate_limiter::OwnedRateLimiterFactory;
pub use rate_limiter::{RateLimiterFactory, RateLimiterSettings};
