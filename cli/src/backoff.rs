//! The delay before a stream that ended or failed is opened again.

use std::time::Duration;

use tokio::time::sleep;

/// The delay before the second consecutive attempt. Later delays double.
const FIRST: Duration = Duration::from_millis(200);
/// Maximum delay between two attempts.
const LONGEST: Duration = Duration::from_secs(5);

/// The delay before the next attempt. Zero before the first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    /// Creates a delay of zero.
    pub(crate) const fn new() -> Self {
        Self(Duration::ZERO)
    }

    /// Resets the delay to zero after a received message.
    pub(crate) const fn reset(&mut self) {
        self.0 = Duration::ZERO;
    }

    /// Increases the delay after an attempt. `asked` is the delay that the service requested.
    pub(crate) fn grow(&mut self, asked: Option<Duration>) {
        self.0 = asked.unwrap_or(self.0 * 2).clamp(FIRST, LONGEST);
    }

    /// Waits for the delay.
    pub(crate) async fn wait(self) {
        sleep(self.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_their_bounds() {
        let mut backoff = Backoff::new();
        backoff.grow(None);
        assert_eq!(backoff, Backoff(FIRST));
        backoff.grow(None);
        assert_eq!(backoff, Backoff(FIRST * 2));
        backoff.grow(Some(Duration::from_secs(3600)));
        assert_eq!(backoff, Backoff(LONGEST));
        backoff.reset();
        assert_eq!(backoff, Backoff::new());
    }
}
