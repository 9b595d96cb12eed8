//! One task a file.

mod owned_rate_limiter;
mod rate_limiter;

pub use owned_rate_limiter::OwnedRateLimiterFactory;
pub use rate_limiter::{RateLimiterFactory, RateLimiterSettings};
