//! Delays between attempts.

use std::time::Duration;

use svc_kit::outgoing::Backoff;

const FIRST: Duration = Duration::from_millis(100);
/// The longest delay, and how long a success must last to reset the delay.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// Returns the delays of a new series of attempts. Their jitter keeps runners that lost one supervisor from reconnecting all
/// at once.
pub(crate) fn new() -> Backoff {
    Backoff::new(FIRST, LONGEST)
}
