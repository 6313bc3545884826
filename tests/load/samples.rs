//! How long calls took, and the few numbers that are made of that.

use std::time::Duration;

/// How long the calls of a round took.
#[derive(Clone, Debug)]
pub(crate) struct Samples(pub(crate) Vec<Duration>);

impl Samples {
    /// The time within which that part of the calls was done.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len() - 1;
        let index = (last as f64 * part).round() as usize;
        sorted[index.min(last)]
    }

    /// How long one of these and one of the others take, one after the other.
    pub(crate) fn followed_by(&self, others: &Self) -> Self {
        let pairs = self.0.iter().zip(others.0.iter().cycle());
        Self(pairs.map(|(one, other)| *one + *other).collect())
    }
}

/// A quantile of the rounds, in milliseconds: the median of theirs.
pub(crate) fn typical(rounds: &[Samples], part: f64) -> f64 {
    let each: Vec<Duration> = rounds.iter().map(|round| round.quantile(part)).collect();
    millis(median(&each))
}

/// The middle one; of an even number the lower.
pub(crate) fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).unwrap());
    sorted[(sorted.len() - 1) / 2]
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
