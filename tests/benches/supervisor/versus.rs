//! Calls against the least that they could cost: one at a time, in the same run.

use std::time::{Duration, Instant};

use crate::{
    Plan,
    table::{self, median, millis, percent, quantile},
};

/// How long the calls of each round took, sorted.
type Rounds = Vec<Vec<Duration>>;

/// Makes both kinds of call in turns, so that whatever slows the machine down slows both, and prints what they took.
pub(crate) async fn compare(plan: Plan, floor: (&str, impl AsyncFn()), service: (&str, impl AsyncFn())) {
    let (mut least, mut served) = (Rounds::new(), Rounds::new());
    for _ in 0..plan.rounds {
        least.push(times(plan.calls, &floor.1).await);
        served.push(times(plan.calls, &service.1).await);
    }
    let at = |rounds: &Rounds, part| {
        let each: Vec<Duration> = rounds.iter().map(|times| quantile(times, part)).collect();
        median(&each)
    };
    let row = |what: &str, rounds: &Rounds| {
        [
            what.to_owned(),
            millis(at(rounds, 0.5)),
            millis(at(rounds, 0.99)),
            percent(at(rounds, 0.5), at(&least, 0.5)),
        ]
    };
    table::print(
        ["service", "p50, ms", "p99, ms", "p50 of the floor's"],
        &[row(floor.0, &least), row(service.0, &served)],
    );
}

async fn times(count: usize, call: &impl AsyncFn()) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        call().await;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times
}
