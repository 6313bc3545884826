//! Stopping what runs until it is told to end.

use std::future::Future;

use svc_kit::shutdown::Signals;

use crate::error::{Error, Result};

/// Waits for what is ending in order, unless another SIGINT or SIGTERM says that it took too long.
///
/// # Errors
///
/// Its own, or that it was asked to stop twice: then the process is to end, and what it started with it.
pub(crate) async fn unless_asked_again<T>(signals: &mut Signals, ending: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        ended = ending => ended,
        () = signals.next() => Err(Error::failure("stopped at once, as it was asked to a second time")),
    }
}
