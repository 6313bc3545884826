//! Timers with an optional time.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

/// Waits until that time. `None`: waits forever.
pub(crate) async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
