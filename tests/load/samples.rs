//! The durations of calls, and statistics of them.

use std::time::Duration;

/// The durations of the calls of a round.
#[derive(Clone, Debug)]
pub(crate) struct Samples(pub(crate) Vec<Duration>);

impl Samples {
    /// Returns the duration that the given part of the calls does not exceed.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len() - 1;
        let index = (last as f64 * part).round() as usize;
        sorted[index.min(last)]
    }

    /// Returns the durations of pairs: one call of these, followed by one of the others.
    pub(crate) fn followed_by(&self, others: &Self) -> Self {
        let pairs = self.0.iter().zip(others.0.iter().cycle());
        Self(pairs.map(|(one, other)| *one + *other).collect())
    }
}

/// Returns the median of the rounds' quantiles, in milliseconds.
pub(crate) fn typical(rounds: &[Samples], part: f64) -> f64 {
    let each: Vec<Duration> = rounds.iter().map(|round| round.quantile(part)).collect();
    millis(median(&each))
}

/// Returns the median. For an even number of values, it is the lower of the two middle values.
pub(crate) fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).unwrap());
    sorted[(sorted.len() - 1) / 2]
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
