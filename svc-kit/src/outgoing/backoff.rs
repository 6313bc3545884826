//! Delays between attempts of a delivery.

use std::time::Duration;

use uuid::Uuid;

/// Exponential back-off with jitter. The jitter prevents simultaneous retries when a receiver becomes available again.
#[derive(Debug)]
pub struct Backoff {
    ceiling: Duration,
    longest: Duration,
}

impl Backoff {
    /// Begins with `first` and doubles up to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            ceiling: first.min(longest),
            longest,
        }
    }

    /// Returns the next delay: a random time between half of the ceiling and the ceiling. The ceiling doubles each
    /// time.
    pub fn next_delay(&mut self) -> Duration {
        let half = self.ceiling / 2;
        let delay = half + half * random_per_mille() / 1_000;
        self.ceiling = self.ceiling.saturating_mul(2).min(self.longest);
        delay
    }
}

fn random_per_mille() -> u32 {
    u32::try_from(Uuid::new_v4().as_u128() % 1_001).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn delay_doubles_up_to_maximum() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
        for ceiling in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let (delay, ceiling) = (backoff.next_delay(), Duration::from_secs(ceiling));
            assert!(delay >= ceiling / 2 && delay <= ceiling, "{delay:?} of {ceiling:?}");
        }
        let delays: BTreeSet<_> = (0..64).map(|_| backoff.next_delay()).collect();
        assert!(delays.len() > 1, "the jitter spreads the attempts");
    }
}
