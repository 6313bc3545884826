//! Points in time and spans, in milliseconds. The clock itself is outside.

use std::time::Duration;

/// How long a request is remembered by its `request_id`; whoever comes with it later makes another one.
pub const REQUESTS_REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(u64);

impl UnixMillis {
    /// Takes a number of milliseconds for a point in time.
    #[must_use]
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// This point and a span; saturates.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this is; nothing if it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
