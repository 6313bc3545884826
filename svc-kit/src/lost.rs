//! Calls that were lost with their connection, as their clients hear of them.

use std::error::Error as _;

use tonic::{Code, Status, TimeoutExpired};

/// Whether the connection went away under the call, so that nobody says what became of it: worth another try where trying
/// twice does no harm. Not where it was the call's time that ended; then there is none left for another.
///
/// What tonic makes of a server that leaves depends on where the call was: CANCELLED where it had not been sent, INTERNAL
/// where it was sent after the server had counted its calls (GOAWAY with `NO_ERROR`), UNKNOWN where the socket broke. What
/// they have in common is a cause; what the other side itself said has none.
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
