//! How long to wait before a stream that ended or broke is opened again.

use std::time::Duration;

use tokio::time::sleep;

/// The pause before the second attempt in a row; it doubles from there.
const FIRST: Duration = Duration::from_millis(200);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_secs(5);

/// The pause before the next attempt; none before the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience(Duration);

impl Patience {
    /// No attempt failed yet.
    pub(crate) const fn new() -> Self {
        Self(Duration::ZERO)
    }

    /// Something came: the next attempt is a first one again.
    pub(crate) const fn reset(&mut self) {
        self.0 = Duration::ZERO;
    }

    /// An attempt is over; `asked` is how long the service wants to be left alone.
    pub(crate) fn grow(&mut self, asked: Option<Duration>) {
        self.0 = asked.unwrap_or(self.0 * 2).clamp(FIRST, LONGEST);
    }

    /// Waits that long.
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
