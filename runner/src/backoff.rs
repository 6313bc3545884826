//! How long to wait before the next attempt.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Exponential back-off with jitter: many runners that lost one supervisor do not come back at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self { ceiling: FIRST }
    }

    /// What went wrong is over.
    pub(crate) const fn reset(&mut self) {
        self.ceiling = FIRST;
    }

    /// How long a success must last to count as one; a shorter one is part of the trouble.
    pub(crate) const fn steady_after() -> Duration {
        LONGEST
    }

    /// The next delay, between half of the ceiling and the ceiling, which doubles each time.
    pub(crate) fn next_delay(&mut self) -> Duration {
        // Without randomness the middle: late by little is better than not at all.
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
    fn grows_from_100_ms_to_5_s_and_starts_anew() {
        let mut backoff = Backoff::new();
        for ceiling in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let delay = backoff.next_delay().as_millis();
            assert!((ceiling / 2..=ceiling).contains(&delay), "{delay} of {ceiling}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= FIRST);
    }

    #[test]
    fn spreads_over_the_upper_half() {
        assert_eq!(spread(LONGEST, 0), LONGEST / 2);
        assert_eq!(spread(LONGEST, u32::MAX), LONGEST);
    }
}
