//! Calls that fail because their connection is lost.

use std::error::Error as _;

use tonic::{Code, Status, TimeoutExpired};

/// Returns whether the connection failed during the call, so that the outcome is unknown. An idempotent call can be
/// retried. A call that reached its deadline does not count, because no time is left for a retry.
///
/// The code that tonic reports when a server leaves depends on the progress of the call: CANCELLED if the request was
/// not sent, INTERNAL if the request was sent too late for the server to accept it (GOAWAY with `NO_ERROR`), UNKNOWN if
/// the socket broke. These statuses have a source error. A status from the server has no source.
#[must_use]
pub fn in_transport(status: &Status) -> bool {
    let mut cause = status.source();
    let by_transport = cause.is_some();
    while let Some(next) = cause {
        if next.is::<TimeoutExpired>() {
            return false;
        }
        cause = next.source();
    }
    by_transport
        && matches!(
            status.code(),
            Code::Cancelled | Code::Unavailable | Code::Unknown | Code::Internal
        )
}
