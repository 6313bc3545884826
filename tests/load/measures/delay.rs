//! The delay between the request for an append and the event at each watcher, with and without a watcher that reads
//! only one message per second.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::task::AbortOnDropHandle;
use troupe_tests::watch::Watch;

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    samples::{Samples, millis},
    served::{Served, Upkeep},
    session::Session,
};

/// The delays of one run.
struct Delays {
    /// Time until the response to the append.
    answered: Samples,
    /// Time until a watcher received the event, for all watchers and events.
    received: Samples,
}

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let mut figures = Vec::new();
    for watchers in plan.delay_crowds {
        let alone = measure(&supervisor, plan, *watchers, false).await;
        let beside = measure(&supervisor, plan, *watchers, true).await;
        for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
            let at = |samples: &Samples| millis(samples.quantile(part));
            figures.extend([
                Figure::new(format!("{watchers} watchers, {name}"), at(&alone.received), "ms")
                    .against("response to the append", at(&alone.answered)),
                Figure::new(
                    format!("{watchers} watchers and a slow one, {name}"),
                    at(&beside.received),
                    "ms",
                )
                .against("without the slow one", at(&alone.received)),
            ]);
        }
    }
    Chapter {
        title: "From an append to its watchers",
        how: format!(
            "{} notes, each sent after all watchers have received the note before it. Measured from the call until a \
             watcher receives the note. The slow watcher is an additional watcher, {} notes behind, that reads one \
             message per second.",
            plan.notes, plan.backlog
        ),
        figures,
    }
}

async fn measure(supervisor: &Served, plan: Plan, watchers: usize, beside_slow: bool) -> Delays {
    let session = Session::open(supervisor.address).await;
    let _slow = if beside_slow {
        Some(fall_behind(&session, plan).await)
    } else {
        None
    };

    let request = session.watch_from_now().await;
    let received = Arc::new(Semaphore::new(0));
    let mut receiving = JoinSet::new();
    for watch in session.crowd(&request, watchers).await {
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
    let received: Vec<Duration> = times
        .iter()
        .flat_map(|times| times.iter().zip(&started).map(|(at, start)| at.duration_since(*start)))
        .collect();
    Delays {
        answered: Samples(answered),
        received: Samples(received),
    }
}

/// Returns the arrival time of each event.
async fn receive(mut watch: Watch, events: usize, received: Arc<Semaphore>) -> Vec<Instant> {
    let mut times = Vec::with_capacity(events);
    for _ in 0..events {
        watch.event().await;
        times.push(Instant::now());
        received.add_permits(1);
    }
    times
}

/// Starts a watcher that is far behind and reads one message per second.
async fn fall_behind(session: &Session, plan: Plan) -> AbortOnDropHandle<()> {
    let request = session.watch_from_now().await;
    let mut watch = Watch::open(&session.connect_narrowly(), request).await;
    for number in 0..plan.backlog {
        session.note(number).await;
    }
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            second.tick().await;
            watch.event().await;
        }
    }))
}
