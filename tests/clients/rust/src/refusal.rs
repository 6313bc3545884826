//! Reads the details of a failed call.

use std::time::Duration;

use tonic::Status;
use tonic_types::StatusExt as _;

/// The thread would be deeper than the session's limits allow.
pub const DEPTH_LIMIT: &str = "DEPTH_LIMIT";

/// Domain of Troupe's reasons. It distinguishes them from the reasons of proxies.
const DOMAIN: &str = "troupe.dev";

/// Returns the reason of a rejected call. Texts may change between releases, reasons do not; docs/api.md links to their
/// list. `None` if the error does not come from the service.
pub fn reason(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    (info.domain == DOMAIN).then_some(info.reason)
}

/// Returns the service's minimum delay before a retry.
pub(crate) fn retry_delay(status: &Status) -> Duration {
    status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay)
        .unwrap_or_default()
}
