//! How long it takes from asking for an append until each watcher has its event, alone and beside one that reads a
//! message a second.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};
use troupe_tests::{crowd, watch::Watch};

use crate::{
    Plan,
    served::{self, Served},
    session::Session,
    table::{self, millis, quantile},
};

/// What one run took, sorted.
struct Delays {
    /// Until the append was answered.
    answered: Vec<Duration>,
    /// Until a watcher had the event, of all watchers and events.
    received: Vec<Duration>,
}

pub(crate) async fn run(plan: Plan) {
    let registry = served::registry().await;
    let supervisor = Served::supervisor(registry).await;
    let mut rows = Vec::new();
    for watchers in plan.crowds {
        let alone = measure(&supervisor, plan, *watchers, false).await;
        let beside = measure(&supervisor, plan, *watchers, true).await;
        let ratio = |part| {
            let slowed = quantile(&beside.received, part).as_secs_f64();
            format!("{:.2}", slowed / quantile(&alone.received, part).as_secs_f64())
        };
        rows.push([
            watchers.to_string(),
            millis(quantile(&alone.answered, 0.5)),
            millis(quantile(&alone.received, 0.5)),
            millis(quantile(&alone.received, 0.99)),
            ratio(0.5),
            ratio(0.99),
        ]);
    }
    println!("## From an append to its watchers\n");
    println!(
        "{} notes, each when everybody has the one before; measured from the call that asks for it. Beside: with one \
         more watcher, {} notes behind, that reads a message a second.\n",
        plan.notes, plan.backlog
    );
    table::print(
        [
            "watchers",
            "append p50, ms",
            "receipt p50, ms",
            "p99, ms",
            "beside a slow one: p50, ratio",
            "p99, ratio",
        ],
        &rows,
    );
}

async fn measure(supervisor: &Served, plan: Plan, watchers: usize, beside_slow: bool) -> Delays {
    let session = Session::open(supervisor.address).await;
    let slow = if beside_slow {
        Some(fall_behind(&session, plan).await)
    } else {
        None
    };

    let request = session.watch_from_now().await;
    let received = Arc::new(Semaphore::new(0));
    let mut receiving = JoinSet::new();
    for watch in crowd::open(|| session.connect(), &request, watchers).await {
        receiving.spawn(receive(watch, plan.notes, Arc::clone(&received)));
    }
    let everybody = u32::try_from(watchers).unwrap();
    let (mut started, mut answered) = (Vec::new(), Vec::new());
    for number in 0..plan.notes {
        let start = Instant::now();
        session.note(number).await;
        started.push(start);
        answered.push(start.elapsed());
        received.acquire_many(everybody).await.unwrap().forget();
    }
    let times = receiving.join_all().await;
    if let Some(slow) = slow {
        slow.abort();
    }

    let mut received: Vec<Duration> = times
        .iter()
        .flat_map(|times| times.iter().zip(&started).map(|(at, start)| at.duration_since(*start)))
        .collect();
    received.sort_unstable();
    answered.sort_unstable();
    Delays { answered, received }
}

/// When each of the events came.
async fn receive(mut watch: Watch, events: usize, received: Arc<Semaphore>) -> Vec<Instant> {
    let mut times = Vec::with_capacity(events);
    for _ in 0..events {
        watch.event().await;
        times.push(Instant::now());
        received.add_permits(1);
    }
    times
}

/// A watcher that reads a message a second and is far behind.
async fn fall_behind(session: &Session, plan: Plan) -> AbortHandle {
    let request = session.watch_from_now().await;
    let mut watch = Watch::open(&session.connect_narrowly(), request).await;
    for number in 0..plan.backlog {
        session.note(number).await;
    }
    let reading = tokio::spawn(async move {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            second.tick().await;
            watch.event().await;
        }
    });
    reading.abort_handle()
}
