//! The delay before a stream that ended or failed is opened again.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The delay before the second consecutive attempt. Later delays double.
const FIRST: Duration = Duration::from_millis(200);
/// Maximum delay between two attempts.
const LONGEST: Duration = Duration::from_secs(5);

/// The delay before the next attempt. There is no delay before the first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    delay: Duration,
    /// When the delay is over.
    until: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// Creates a delay of zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            delay: Duration::ZERO,
            until: None,
        }
    }

    /// Resets the delay to zero after a received message.
    pub const fn reset(&mut self) {
        *self = Self::new();
    }

    /// Increases the delay after an attempt, and starts it. `asked` is the delay that the service requested.
    pub fn grow(&mut self, asked: Option<Duration>) {
        self.delay = asked.unwrap_or(self.delay * 2).clamp(FIRST, LONGEST);
        self.until = Some(Instant::now() + self.delay);
    }

    /// Waits until the delay is over.
    ///
    /// Cancel safe: another call waits for the rest of the delay.
    pub async fn wait(self) {
        if let Some(until) = self.until {
            sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_maximum() {
        let mut backoff = Backoff::new();
        backoff.grow(None);
        assert_eq!(backoff.delay, FIRST);
        backoff.grow(None);
        assert_eq!(backoff.delay, FIRST * 2);
        backoff.grow(Some(Duration::from_secs(3600)));
        assert_eq!(backoff.delay, LONGEST);
        backoff.reset();
        assert_eq!(backoff, Backoff::new());
    }
}
