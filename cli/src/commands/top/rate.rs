//! The rate at which an amount grows, computed from the growth in short periods.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of periods.
pub(super) const PERIODS: usize = 30;
/// The length of a period.
const PERIOD: Duration = Duration::from_secs(10);
/// The number of periods in a minute.
const PERIODS_OF_A_MINUTE: usize = 6;

/// The growth of an amount in the last [`PERIODS`] periods.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// The growth in each period, the oldest first.
    growth: [u64; PERIODS],
    /// The number of the newest period.
    newest: u64,
}

impl Rate {
    /// Adds growth at this time.
    pub(super) fn add(&mut self, amount: u64, now: SystemTime) {
        self.growth = self.growth_at(now);
        self.newest = self.newest.max(period(now));
        if let Some(newest) = self.growth.last_mut() {
            *newest = newest.saturating_add(amount);
        }
    }

    /// Returns the growth in each period up to this time, the oldest first.
    pub(super) fn growth_at(&self, now: SystemTime) -> [u64; PERIODS] {
        let passed = usize::try_from(period(now).saturating_sub(self.newest)).unwrap_or(PERIODS);
        let mut growth = [0; PERIODS];
        for (to, from) in growth.iter_mut().zip(self.growth.iter().skip(passed)) {
            *to = *from;
        }
        growth
    }

    /// Returns the growth in the last minute.
    pub(super) fn per_minute(&self, now: SystemTime) -> u64 {
        self.growth_at(now).iter().rev().take(PERIODS_OF_A_MINUTE).sum()
    }

    /// Returns the growth per hour at the average rate of all periods.
    pub(super) fn per_hour(&self, now: SystemTime) -> u64 {
        let seconds = PERIOD.as_secs() * PERIODS as u64;
        self.growth_at(now).iter().sum::<u64>().saturating_mul(3600) / seconds
    }
}

fn period(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / PERIOD.as_secs()
}

/// Draws amounts as a line of bars, one column each.
pub(super) fn sparkline(amounts: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = amounts.iter().copied().max().unwrap_or_default().max(1);
    let bar = |amount: &u64| {
        let height = usize::try_from(amount.saturating_mul(7).div_ceil(most)).unwrap_or_default();
        BARS.get(height).copied().unwrap_or('█')
    };
    amounts.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn old_growth_leaves_the_window() {
        let mut rate = Rate::default();
        rate.add(100, at(1_000));
        rate.add(20, at(1_030));
        assert_eq!(rate.per_minute(at(1_030)), 120);
        assert_eq!(rate.per_minute(at(1_065)), 20);
        assert_eq!(rate.per_minute(at(1_200)), 0);
        assert_eq!(rate.per_hour(at(1_200)), 120 * 12);
        assert_eq!(rate.per_hour(at(9_000)), 0);
        // If the clock goes back, the growth is added to the newest period.
        rate.add(1, at(900));
        assert_eq!(rate.per_minute(at(1_030)), 121);
    }

    #[test]
    fn bar_heights_follow_amounts() {
        assert_eq!(sparkline(&[0, 1, 50, 100]), "▁▂▅█");
        assert_eq!(sparkline(&[0, 0]), "▁▁");
    }
}
