//! Waiting for a time that may not be set.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

/// Waits until then; for ever where there is no such time.
pub(crate) async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
