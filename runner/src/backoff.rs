//! Delays between attempts.

use std::time::Duration;

use svc_kit::outgoing::Backoff;

const FIRST: Duration = Duration::from_millis(100);
/// Maximum delay. Also the duration of a stream after which the delays begin again.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// Returns the delays of a new series of attempts. Their jitter prevents runners that lost one supervisor from
/// reconnecting all at once.
pub(crate) fn new() -> Backoff {
    Backoff::new(FIRST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_from_100_ms_to_5_s() {
        let mut backoff = new();
        for ceiling in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let (delay, ceiling) = (backoff.next_delay(), Duration::from_millis(ceiling));
            assert!(delay >= ceiling / 2 && delay <= ceiling, "{delay:?} of {ceiling:?}");
        }
    }
}
