//! The rate of spawns, and the time from the call to the event at a watcher, against two hops and a durable commit of
//! the same sizes.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use futures::future::BoxFuture;
use prost::Message as _;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Channel;
use troupe_proto::{
    registry::v1::ResolveSpawnRequest,
    supervisor::v1::{CreateSessionRequest, SpawnAgentRequest, event::Kind},
};
use troupe_tests::{client, tree::Tree, watch::Watch, within};

use super::loads;
use crate::{
    arrivals::{Arrivals, Call, Rounds, Target, times},
    commits::Commits,
    figure::{Chapter, Figure},
    opaque::{self, Opaque},
    plan::Plan,
    raw::{self, Behind},
    samples::{Samples, typical},
    served::{Served, Upkeep},
};

/// The method.
const PATH: &str = "/troupe.supervisor.v1.AgentSupervisorService/SpawnAgent";
const ROLE: &str = "worker";
/// Spawns per second in the open loops. The rates do not depend on the speed of the service.
const RATES: [u32; 4] = [250, 500, 1_000, 2_000];
/// The rate that has targets. At this rate calls rarely wait for one another.
pub(super) const BARRED: u32 = 500;

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let sizes = Sizes::of(registry.address, supervisor.address).await;
    let echo = Served::raw(sizes.resolved, None).await;
    let behind = Behind {
        address: echo.address,
        question: sizes.question,
    };
    let hop = Served::raw(sizes.answer, Some(behind)).await;
    let hops = Opaque {
        address: hop.address,
        path: raw::CALL,
        request: raw::sent(sizes.request),
        connections: plan.connections,
    };
    let spawns = |supervisor: &Served, is_watched| Spawns {
        supervisor: supervisor.address,
        connections: plan.connections,
        is_watched,
    };

    let unwatched = spawns(&supervisor, false);
    let (mut figures, _) = loads::rates(plan, ("echo over two hops", &hops), &unwatched, 0.7).await;
    let commits = Commits::beside_log(supervisor.data());
    let committed: Vec<Samples> = (0..plan.rounds)
        .map(|_| commits.make((0..plan.calls).map(|_| sizes.row)))
        .collect();
    for rate in RATES {
        // A new supervisor, without the threads of the loops above.
        let fresh = Served::supervisor(registry.address, Upkeep::Usual).await;
        let found = Rounds::of(plan, Arrivals::PerSecond(f64::from(rate)), &hops, &spawns(&fresh, true)).await;
        let (hopped, spawned) = (times(&found.floor), times(&found.service));
        let floor: Vec<Samples> = hopped
            .iter()
            .zip(&committed)
            .map(|(hopped, committed)| hopped.followed_by(committed))
            .collect();
        let figure = |name, part, least| {
            Figure::new(
                format!("to the watcher at {rate} a second, {name}"),
                typical(&spawned, part),
                "ms",
            )
            .against("echo over two hops, then a commit", least)
        };
        let half = figure("p50", 0.5, typical(&hopped, 0.5) + typical(&committed, 0.5));
        let nearly_all = figure("p99", 0.99, typical(&floor, 0.99));
        figures.extend(match rate {
            BARRED => [half.at_most(1.4), nearly_all.at_most(2.5)],
            2_000 => [half.at_most(1.8), nearly_all],
            _ => [half, nearly_all],
        });
    }
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        figures.push(Figure::new(
            format!("a commit by SQLite alone, {name}"),
            typical(&committed, part),
            "ms",
        ));
    }

    Chapter {
        title: "Spawns",
        how: format!(
            "SpawnAgent over {} connections, each with a session. Each spawn includes a call of the registry and a \
             durable event. Latencies come from open loops, from the time at which a spawn is due until a watcher on \
             another connection receives its event. The request has {} bytes, the messages to and from the registry \
             {} and {}, the committed row {}, and the response {}; the clients do not decode the response. The \
             floor's p50 is the p50 of the echo plus the p50 of the commit. Its p99 is the p99 of the sums of both. \
             Medians of {} rounds.",
            plan.connections, sizes.request, sizes.question, sizes.resolved, sizes.row, sizes.answer, plan.rounds
        ),
        figures,
    }
}

/// Sizes of encoded messages and of stored rows, in bytes.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    request: usize,
    /// The request to the registry.
    question: usize,
    /// The registry's response.
    resolved: usize,
    /// The committed row.
    row: usize,
    answer: usize,
}

impl Sizes {
    /// Returns the sizes of a spawn.
    async fn of(registry: SocketAddr, supervisor: SocketAddr) -> Self {
        let question = ResolveSpawnRequest {
            agent_type: Some(ROLE.to_owned()),
            ..ResolveSpawnRequest::default()
        };
        let mut registry = client::registry(registry, None);
        let first = registry.resolve_spawn(question.clone()).await.unwrap().into_inner();
        // The request that the supervisor sends to the registry for later spawns.
        let question = ResolveSpawnRequest {
            known_etag: first.etag,
            ..question
        };
        let resolved = registry.resolve_spawn(question.clone()).await.unwrap().into_inner();
        let tree = Tree::open(client::supervisor(supervisor, None), CreateSessionRequest::default()).await;
        let head = tree.head().await;
        let request = request(&tree, 0);
        let answer = tree.try_spawn(request.clone()).await.unwrap();
        let event = tree.watch_after(head).await.event().await;
        assert!(matches!(event.kind, Some(Kind::ThreadSpawned(_))));
        Self {
            request: request.encoded_len(),
            question: question.encoded_len(),
            resolved: resolved.encoded_len(),
            row: event.encoded_len(),
            answer: answer.encoded_len(),
        }
    }
}

/// Returns the spawn request with this number. Its event contains the number too.
fn request(tree: &Tree, number: usize) -> SpawnAgentRequest {
    SpawnAgentRequest {
        thread_note: Some(number.to_string()),
        ..tree.request(ROLE)
    }
}

/// Spawns in new sessions, one session for each connection. Authentication costs the same as for calls of the echo.
pub(super) struct Spawns {
    pub(super) supervisor: SocketAddr,
    pub(super) connections: usize,
    /// Whether a spawn is finished when a watcher receives its event. Otherwise it is finished with its response.
    pub(super) is_watched: bool,
}

impl Target for Spawns {
    async fn begin(&self) -> Call {
        let mut spawning = Spawning::default();
        for _ in 0..self.connections {
            let channel = client::endpoint(self.supervisor).connect().await.unwrap();
            let client = client::supervisor_over(channel.clone(), None);
            let tree = Tree::open(client, CreateSessionRequest::default()).await;
            if self.is_watched {
                let watcher = client::supervisor(self.supervisor, None);
                let watch = tree.by(watcher).watch_after(tree.head().await).await;
                let following = tokio::spawn(spawning.awaited.clone().follow(watch));
                spawning.watching.push(AbortOnDropHandle::new(following));
            }
            spawning.sessions.push((tree, channel));
        }
        let spawning = Arc::new(spawning);
        Arc::new(move |number: usize| -> BoxFuture<'static, Instant> {
            let spawning = Arc::clone(&spawning);
            Box::pin(async move { spawning.spawn(number).await })
        })
    }

    fn connections(&self) -> usize {
        self.connections
    }
}

/// The sessions of a run.
#[derive(Default)]
struct Spawning {
    /// The sessions, each with the connection of its spawns.
    sessions: Vec<(Tree, Channel)>,
    awaited: Awaited,
    /// The watcher of each session; empty if spawns are not watched.
    watching: Vec<AbortOnDropHandle<()>>,
}

impl Spawning {
    async fn spawn(&self, number: usize) -> Instant {
        let (tree, channel) = &self.sessions[number % self.sessions.len()];
        let request = request(tree, number).encode_to_vec();
        let spawn = opaque::call(channel.clone(), PATH, request.into());
        if self.watching.is_empty() {
            spawn.await;
            return Instant::now();
        }
        let seen = self.awaited.register(number);
        spawn.await;
        within("the event of a spawn", seen).await.unwrap()
    }
}

/// The receivers of spawn events, by spawn.
#[derive(Clone, Default)]
struct Awaited(Arc<Mutex<HashMap<String, oneshot::Sender<Instant>>>>);

impl Awaited {
    /// Returns a receiver of the time at which the event of a spawn arrives.
    fn register(&self, number: usize) -> oneshot::Receiver<Instant> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap().insert(number.to_string(), sender);
        receiver
    }

    /// Sends the arrival times of the watcher's events to their receivers.
    async fn follow(self, mut watch: Watch) {
        loop {
            let event = watch.event().await;
            let seen = Instant::now();
            let Some(Kind::ThreadSpawned(spawned)) = event.kind else {
                continue;
            };
            let waiting = self.0.lock().unwrap().remove(&spawned.thread_note);
            waiting.expect("each spawn is expected").send(seen).unwrap();
        }
    }
}
