//! What the details of a failed call say.

use std::time::Duration;

use tonic::Status;
use tonic_types::StatusExt as _;

/// The thread would be deeper than the session's limits allow.
pub const DEPTH_LIMIT: &str = "DEPTH_LIMIT";

/// Tells Troupe's reasons from those of whatever stands between.
const DOMAIN: &str = "troupe.dev";

/// Why the call was refused. Texts may change between releases, reasons do not; docs/api.md points to their list.
/// `None`: the call failed without a word of the service.
pub fn reason(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    (info.domain == DOMAIN).then_some(info.reason)
}

/// How long the service asks to be left alone before the call is tried again.
pub(crate) fn retry_delay(status: &Status) -> Duration {
    status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay)
        .unwrap_or_default()
}
