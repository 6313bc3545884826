//! Stopping what runs until it is told to end.

use std::future::Future;

use svc_kit::shutdown::Shutdown;

use crate::error::{Error, Result};

/// Waits for what is ending in order, unless a second SIGINT or SIGTERM says that it took too long.
///
/// # Errors
///
/// Its own, or that it was asked to stop twice: then the process is to end, and what it started with it.
pub(crate) async fn unless_asked_again<T>(ending: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        ended = ending => ended,
        signalled = Shutdown::new().on_signal() => {
            signalled?;
            Err(Error::failure("stopped at once, as it was asked to a second time"))
        }
    }
}
