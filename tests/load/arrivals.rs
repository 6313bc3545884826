//! Arrival patterns: closed loops, whose callers wait for responses, and open loops, whose callers do not.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    plan::Plan,
    samples::{Samples, median},
};

/// Makes the call with that number and returns the time at which its result was available.
pub(crate) type Call = Arc<dyn Fn(usize) -> BoxFuture<'static, Instant> + Send + Sync>;

/// A service to call. Each run opens new connections.
pub(crate) trait Target {
    async fn begin(&self) -> Call;

    /// Returns the number of connections of a run. Call number `n` uses connection number `n` modulo this number.
    fn connections(&self) -> usize;
}

/// The arrival pattern of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    /// The given number of callers, each with one call at a time.
    Callers(usize),
    /// The given number of calls per second, whether or not earlier calls have finished. The time of a call starts when
    /// the call is due, so that a stalled service is charged for every waiting call.
    PerSecond(f64),
}

impl Arrivals {
    /// Returns the number of calls of a run.
    fn calls(self, plan: Plan) -> usize {
        match self {
            Self::Callers(callers) => plan.calls * callers.min(10),
            Self::PerSecond(rate) => ((rate * plan.open.as_secs_f64()) as usize).max(plan.connections),
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Responses per second.
    pub(crate) rate: f64,
    pub(crate) times: Samples,
}

/// The results of several runs of a floor and of a service.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) floor: Vec<Run>,
    pub(crate) service: Vec<Run>,
}

impl Rounds {
    /// Runs the floor and the service alternately, so that other load on the machine slows both equally.
    pub(crate) async fn of(plan: Plan, arrivals: Arrivals, floor: &impl Target, service: &impl Target) -> Self {
        let calls = arrivals.calls(plan);
        let mut found = Self::default();
        for _ in 0..plan.rounds {
            found.floor.push(run(floor, arrivals, calls).await);
            found.service.push(run(service, arrivals, calls).await);
        }
        found
    }
}

/// Returns the median of the runs' rates.
pub(crate) fn rate(runs: &[Run]) -> f64 {
    median(&runs.iter().map(|run| run.rate).collect::<Vec<_>>())
}

/// Returns the durations of the calls of each run.
pub(crate) fn times(runs: &[Run]) -> Vec<Samples> {
    runs.iter().map(|run| run.times.clone()).collect()
}

async fn run(target: &impl Target, arrivals: Arrivals, calls: usize) -> Run {
    let call = target.begin().await;
    // One call on each connection first, so that all connections are open before the measurement.
    for number in 0..target.connections() {
        call(number).await;
    }
    let start = Instant::now();
    let times = match arrivals {
        Arrivals::Callers(callers) => closed(callers, calls, &call).await,
        Arrivals::PerSecond(rate) => open(rate, calls, &call).await,
    };
    Run {
        rate: calls as f64 / start.elapsed().as_secs_f64(),
        times,
    }
}

async fn closed(callers: usize, calls: usize, call: &Call) -> Samples {
    let mut calling = JoinSet::new();
    for caller in 0..callers {
        let call = Arc::clone(call);
        calling.spawn(async move {
            let mut times = Vec::with_capacity(calls.div_ceil(callers));
            for number in (caller..calls).step_by(callers) {
                let asked = Instant::now();
                times.push(call(number).await.duration_since(asked));
            }
            times
        });
    }
    Samples(calling.join_all().await.concat())
}

async fn open(rate: f64, calls: usize, call: &Call) -> Samples {
    // The channel holds all calls, so that the schedule never waits.
    let (schedule, mut due) = mpsc::channel(calls);
    let clock = thread::spawn(move || keep_schedule(rate, calls, &schedule));
    let mut calling = JoinSet::new();
    while let Some((number, due)) = due.recv().await {
        let call = Arc::clone(call);
        calling.spawn(async move { call(number).await.duration_since(due) });
    }
    clock.join().unwrap();
    Samples(calling.join_all().await)
}

/// Sends each call's number when the call is due. Runs in a separate thread, because the timers of the runtime have a
/// resolution of a millisecond, which is more than many calls take.
#[expect(clippy::disallowed_methods, reason = "the thread only keeps the schedule")]
fn keep_schedule(rate: f64, calls: usize, schedule: &mpsc::Sender<(usize, Instant)>) {
    let start = Instant::now();
    for number in 0..calls {
        let due = start + Duration::from_secs_f64(number as f64 / rate);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        schedule.try_send((number, due)).unwrap();
    }
}
