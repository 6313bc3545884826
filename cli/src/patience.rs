//! The delay before a stream that ended or failed is opened again.

use std::time::Duration;

use tokio::time::sleep;

/// The delay before the second consecutive attempt. Later delays double.
const FIRST: Duration = Duration::from_millis(200);
/// Maximum delay between two attempts.
const LONGEST: Duration = Duration::from_secs(5);

/// The delay before the next attempt. Zero before the first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience(Duration);

impl Patience {
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
        let mut patience = Patience::new();
        patience.grow(None);
        assert_eq!(patience, Patience(FIRST));
        patience.grow(None);
        assert_eq!(patience, Patience(FIRST * 2));
        patience.grow(Some(Duration::from_secs(3600)));
        assert_eq!(patience, Patience(LONGEST));
        patience.reset();
        assert_eq!(patience, Patience::new());
    }
}
