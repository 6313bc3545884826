//! Loading sessions from their whole log after a SIGKILL, and from a snapshot.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::{GetSessionRequest, SetThreadNoteRequest};
use troupe_tests::{UNKNOWN, client, tree::Tree};

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    samples::{median, millis},
    served::{Served, Upkeep},
    session::WRITERS,
    turns::{self, Worker},
};

/// Minimum length of a log whose rate has a target, in events. Loading a shorter log takes most of its time for the
/// takeover of the session, which is a commit.
const LONG: u64 = 10_000;
/// Number of times that a session is loaded from its snapshot in each round.
const OPENED: usize = 10;

pub(crate) async fn run(plan: Plan) -> Chapter {
    let mut figures = Vec::new();
    for threads in plan.histories {
        figures.extend(measure(plan, *threads).await);
    }
    figures.push(remembering(plan).await);
    Chapter {
        title: "Bringing sessions back",
        how: format!(
            "Sessions with {:?} threads of {} turns each, which a runner without programs executed. Measured is the \
             duration of GetSession, the first call about the session: after a SIGKILL without a snapshot, and with a \
             snapshot of the whole log. The requests that the last session remembers set notes of one thread. Medians \
             of {} starts and of {} loads from a snapshot.",
            plan.histories,
            plan.turns,
            plan.rounds,
            plan.rounds * OPENED
        ),
        figures,
    }
}

async fn measure(plan: Plan, threads: usize) -> Vec<Figure> {
    let registry = Served::registry(None).await;
    let mut supervisor = Served::supervisor(registry.address, Upkeep::Never).await;
    let worker = Worker::attach(supervisor.address).await;
    let tree = supervisor.tree().await;
    turns::play(&tree, threads, plan.turns).await;
    let events = tree.head().await;
    drop(worker);

    let mut replayed = Vec::new();
    for _ in 0..plan.rounds {
        supervisor = supervisor.again(registry.address, Upkeep::Never).await;
        replayed.push(open(&supervisor, &tree).await);
    }
    supervisor = supervisor.again(registry.address, Upkeep::AtOnce).await;
    open(&supervisor, &tree).await;
    let mut opened = Vec::new();
    for _ in 0..plan.rounds * OPENED {
        supervisor.at_rest().await;
        opened.push(open(&supervisor, &tree).await);
    }

    let replayed = median(&replayed);
    let rate = Figure::new(
        format!("{events} events, replayed"),
        events as f64 / replayed.as_secs_f64(),
        "events/s",
    );
    vec![
        Figure::new(format!("{events} events, from the log"), millis(replayed), "ms"),
        if events < LONG { rate } else { rate.at_least(500_000.0) },
        Figure::new(
            format!("{events} events, from a snapshot"),
            millis(median(&opened)),
            "ms",
        )
        .at_most(5.0),
    ]
}

/// Opens a session that remembers many requests.
async fn remembering(plan: Plan) -> Figure {
    let registry = Served::registry(None).await;
    let mut supervisor = Served::supervisor(registry.address, Upkeep::Never).await;
    let tree = supervisor.tree().await;
    let mut writing = JoinSet::new();
    for writer in 0..WRITERS {
        let (mut client, thread) = (tree.client(), tree.root.clone());
        let share = (writer..plan.requests).step_by(WRITERS);
        writing.spawn(async move {
            for number in share {
                let request = SetThreadNoteRequest {
                    request_id: number.to_string(),
                    thread_id: thread.clone(),
                    thread_note: format!("note {number}"),
                    ..SetThreadNoteRequest::default()
                };
                client.set_thread_note(request).await.unwrap();
            }
        });
    }
    writing.join_all().await;
    supervisor = supervisor.again(registry.address, Upkeep::AtOnce).await;
    let mut opened = Vec::new();
    for _ in 0..=OPENED {
        opened.push(open(&supervisor, &tree).await);
        supervisor.at_rest().await;
    }
    // The first call replayed the log.
    let opened = median(&opened[1..]);
    let name = format!("{} remembered requests, from a snapshot", plan.requests);
    Figure::new(name, millis(opened), "ms").at_most(20.0)
}

/// Returns the duration of the session's first call. The connection is open before the call.
async fn open(supervisor: &Served, tree: &Tree) -> Duration {
    let tree = tree.by(client::supervisor(supervisor.address, None));
    let unknown = GetSessionRequest {
        session_id: UNKNOWN.to_owned(),
    };
    tree.client().get_session(unknown).await.unwrap_err();
    let start = Instant::now();
    tree.now().await;
    start.elapsed()
}
