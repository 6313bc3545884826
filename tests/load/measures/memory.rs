//! The supervisor's memory per session, thread and watcher.

use std::net::SocketAddr;

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::{CreateSessionRequest, WatchThreadsResponse};
use troupe_tests::{client, tree::Tree, watch::Watch};

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    raw,
    served::{Served, Upkeep},
    session::{Session, WRITERS},
    turns::{self, Worker},
};

/// Number of concurrent sessions when each session is passivated as soon as possible.
const AT_ONCE: usize = 200;
/// Expected size of an index entry, in KiB: two ids and a little more.
const INDEX_ENTRY: f64 = 0.25;
/// Maximum number of busy watchers.
const BUSY: usize = 1_000;

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let mut figures = Vec::new();
    figures.extend(open_sessions(plan, registry.address).await);
    figures.extend(sessions_at_rest(plan, registry.address).await);
    figures.extend(settled_threads(plan, registry.address).await);
    figures.extend(idle_watchers(plan, registry.address).await.into_iter().flatten());
    figures.extend(busy_watchers(plan, registry.address).await);
    Chapter {
        title: "Memory",
        how: format!(
            "Resident memory that {} sessions, {} settled threads of one session and {} watchers add to a supervisor. \
             The supervisor already has a tenth as many sessions or threads, one watcher, or the same number of \
             sessions that were active and are passive. A busy watcher received {} events of 1,000 bytes; the process \
             does not return freed memory to the system.",
            plan.sessions,
            plan.settled,
            most(plan.crowds),
            plan.backlog
        ),
        figures,
    }
}

fn most(crowds: &[usize]) -> usize {
    crowds.iter().copied().max().unwrap_or_default()
}

/// Returns the memory that each of `count` objects adds, in KiB; `None` if the system does not report memory.
fn each(before: Option<f64>, after: Option<f64>, count: usize) -> Option<f64> {
    Some((after? - before?).max(0.0) / count as f64)
}

async fn open_sessions(plan: Plan, registry: SocketAddr) -> Option<Figure> {
    let supervisor = Served::supervisor(registry, Upkeep::Never).await;
    create(supervisor.address, plan.sessions / 10).await;
    let before = supervisor.resident();
    create(supervisor.address, plan.sessions).await;
    let each = each(before, supervisor.resident(), plan.sessions)?;
    Some(Figure::new("a session in memory", each, "KiB"))
}

async fn sessions_at_rest(plan: Plan, registry: SocketAddr) -> Option<Figure> {
    let mut supervisor = Served::supervisor(registry, Upkeep::AtOnce).await;
    // First as many sessions as are measured later. The memory that these sessions leave in the allocator and in
    // caches then does not count for the measured sessions.
    pass_through(&mut supervisor, plan.sessions).await;
    let before = supervisor.resident();
    pass_through(&mut supervisor, plan.sessions).await;
    let each = each(before, supervisor.resident(), plan.sessions)?;
    Some(Figure::new("a passive session", each, "KiB").at_most(INDEX_ENTRY))
}

/// Creates `count` sessions, a few at a time, and waits until they are passivated.
async fn pass_through(supervisor: &mut Served, count: usize) {
    for begun in (0..count).step_by(AT_ONCE) {
        create(supervisor.address, AT_ONCE.min(count - begun)).await;
        supervisor.at_rest().await;
    }
}

async fn create(supervisor: SocketAddr, count: usize) {
    let client = client::supervisor(supervisor, None);
    let mut creating = JoinSet::new();
    for writer in 0..WRITERS {
        let (client, share) = (client.clone(), (writer..count).step_by(WRITERS));
        creating.spawn(async move {
            for _ in share {
                Tree::open(client.clone(), CreateSessionRequest::default()).await;
            }
        });
    }
    creating.join_all().await;
}

async fn settled_threads(plan: Plan, registry: SocketAddr) -> Option<Figure> {
    let supervisor = Served::supervisor(registry, Upkeep::Usual).await;
    let _worker = Worker::attach(supervisor.address).await;
    let tree = supervisor.tree().await;
    turns::play(&tree, plan.settled / 10, 1).await;
    let before = supervisor.resident();
    turns::play(&tree, plan.settled, 1).await;
    let each = each(before, supervisor.resident(), plan.settled)?;
    Some(Figure::new("a settled thread", each, "KiB").at_most(4.0))
}

async fn idle_watchers(plan: Plan, registry: SocketAddr) -> Option<[Figure; 2]> {
    let watchers = most(plan.crowds);
    let supervisor = Served::supervisor(registry, Upkeep::Usual).await;
    let session = Session::open(supervisor.address).await;
    snapshots(&session, 1).await;
    let before = supervisor.resident();
    let watches = snapshots(&session, watchers).await;
    let after = supervisor.resident();
    drop(watches);

    let raw_server = Served::raw(0, None).await;
    let message = WatchThreadsResponse::default();
    raw::streams(raw_server.address, &message, 1, 0).await;
    let raw_before = raw_server.resident();
    let streams = raw::streams(raw_server.address, &message, watchers, 0).await;
    let raw_after = raw_server.resident();
    drop(streams);

    let (whole, raw) = (after? * 1_024.0 / 1e6, each(raw_before, raw_after, watchers)?);
    Some([
        Figure::new(format!("a supervisor with {watchers} idle watchers"), whole, "MB").at_most(400.0),
        Figure::new("an idle watcher", each(before, after, watchers)?, "KiB").against("a raw stream", raw),
    ])
}

async fn busy_watchers(plan: Plan, registry: SocketAddr) -> Option<Figure> {
    let watchers = most(plan.crowds).min(BUSY);
    let supervisor = Served::supervisor(registry, Upkeep::Usual).await;
    let session = Session::open(supervisor.address).await;
    snapshots(&session, 1).await;
    let before = supervisor.resident();
    let watches = snapshots(&session, watchers).await;
    let last = session.tree.head().await + plan.backlog as u64;
    session.notes(plan.backlog).await;
    let mut reading = JoinSet::new();
    for mut watch in watches {
        reading.spawn(async move {
            watch.up_to(last).await;
            watch
        });
    }
    let _watches = reading.join_all().await;
    let each = each(before, supervisor.resident(), watchers)?;
    Some(Figure::new("a busy watcher", each, "KiB"))
}

/// Opens watches and waits until each has received its snapshot.
async fn snapshots(session: &Session, watchers: usize) -> Vec<Watch> {
    let request = session.tree.watch_request();
    let mut beginning = JoinSet::new();
    for mut watch in session.crowd(&request, watchers).await {
        beginning.spawn(async move {
            watch.snapshot().await;
            watch
        });
    }
    beginning.join_all().await
}
