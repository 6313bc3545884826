//! Delays between attempts.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Exponential backoff with jitter, so that runners that lost one supervisor do not all reconnect at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self { ceiling: FIRST }
    }

    /// Resets the delay after a lasting success.
    pub(crate) const fn reset(&mut self) {
        self.ceiling = FIRST;
    }

    /// Returns how long a success must last to reset the delay.
    pub(crate) const fn steady_after() -> Duration {
        LONGEST
    }

    /// Returns the next delay, between half of the ceiling and the ceiling. The ceiling doubles each time.
    pub(crate) fn next_delay(&mut self) -> Duration {
        // Without randomness, use the middle.
        let random = getrandom::u32().unwrap_or(u32::MAX / 2);
        let delay = spread(self.ceiling, random);
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        delay
    }
}

fn spread(ceiling: Duration, random: u32) -> Duration {
    let half = ceiling / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_from_100_ms_to_5_s_and_resets() {
        let mut backoff = Backoff::new();
        for ceiling in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let delay = backoff.next_delay().as_millis();
            assert!((ceiling / 2..=ceiling).contains(&delay), "{delay} of {ceiling}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= FIRST);
    }

    #[test]
    fn jitter_covers_upper_half_of_delay() {
        assert_eq!(spread(LONGEST, 0), LONGEST / 2);
        assert_eq!(spread(LONGEST, u32::MAX), LONGEST);
    }
}
