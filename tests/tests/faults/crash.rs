//! `kill -9` in the middle of spawning, queueing, interrupting and closing: acknowledged writes exist after the next
//! start, and the log explains the state of every thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{sync::Notify, task::JoinSet};
use tonic::Status;
use troupe_proto::supervisor::v1::{
    CloseAgentRequest, CreateSessionRequest, Event, InterruptAgentRequest, OnLimit, SpawnAgentRequest, StatusKind,
};
use troupe_tests::{
    client::Supervisor,
    events::{assert_whole, statuses},
    process::{Home, Up},
    tree::{Spawned, Tree, kind},
    within,
};

const ROUNDS: usize = 3;
const WRITERS: usize = 6;
/// How many answers of a round the service lives to give.
const ANSWERS: usize = 60;

/// What the service has promised.
#[derive(Default)]
struct Promises {
    /// The thread of each answered spawn, by its request id.
    spawned: BTreeMap<String, String>,
    /// The threads that it said are closing.
    closing: BTreeSet<String>,
    /// The threads whose turn it said it stopped.
    interrupted: BTreeSet<String>,
}

/// One of the clients that load the service until it is killed.
#[derive(Clone)]
struct Writer {
    client: Supervisor,
    session: String,
    promises: Arc<Mutex<Promises>>,
    answered: Arc<AtomicUsize>,
    enough: Arc<Notify>,
}

fn spawn(session: &str, request_id: &str) -> SpawnAgentRequest {
    SpawnAgentRequest {
        request_id: request_id.to_owned(),
        session_id: session.to_owned(),
        agent_type: String::from("worker"),
        message: Some(format!("work on {request_id}")),
        on_limit: OnLimit::Queue.into(),
        ..SpawnAgentRequest::default()
    }
}

impl Writer {
    /// Spawns threads, and interrupts or closes some of them, until the connection breaks.
    async fn write(mut self, name: String) {
        for number in 0.. {
            if self.step(&format!("{name}-{number}"), number).await.is_err() {
                return;
            }
        }
    }

    async fn step(&mut self, request_id: &str, number: usize) -> Result<(), Status> {
        let answer = self.client.spawn_agent(spawn(&self.session, request_id)).await?;
        let thread = Spawned::of(answer.into_inner()).id;
        self.promised(|promises| promises.spawned.insert(request_id.to_owned(), thread.clone()));
        match number % 4 {
            0 => {
                let request = CloseAgentRequest {
                    thread_id: thread.clone(),
                    ..CloseAgentRequest::default()
                };
                self.client.close_agent(request).await?;
                self.promised(|promises| promises.closing.insert(thread));
            }
            1 => {
                let request = InterruptAgentRequest {
                    thread_id: thread.clone(),
                    ..InterruptAgentRequest::default()
                };
                self.client.interrupt_agent(request).await?;
                self.promised(|promises| promises.interrupted.insert(thread));
            }
            _ => {}
        }
        Ok(())
    }

    fn promised<T>(&self, note: impl FnOnce(&mut Promises) -> T) {
        note(&mut self.promises.lock().unwrap());
        if self.answered.fetch_add(1, Ordering::Relaxed) + 1 == ANSWERS {
            self.enough.notify_one();
        }
    }
}

/// The log, and where every thread stands, both as of one moment.
async fn both(tree: &Tree) -> (Vec<Event>, BTreeMap<String, StatusKind>) {
    within("a moment without events", async {
        loop {
            let log = tree.log().await;
            let threads = tree.threads().await;
            if tree.head().await == log.len() as u64 {
                let listed: BTreeMap<_, _> = threads
                    .into_iter()
                    .map(|thread| (thread.thread_id.clone(), kind(&thread)))
                    .collect();
                return (log, listed);
            }
        }
    })
    .await
}

fn check(round: usize, promises: &Promises, log: &[Event], listed: &BTreeMap<String, StatusKind>) {
    assert_whole(log);
    assert_eq!(
        *listed,
        statuses(log),
        "round {round}: a state that the log does not explain"
    );
    for (request, thread) in &promises.spawned {
        assert!(
            listed.contains_key(thread),
            "round {round}: the answered spawn {request} is lost"
        );
    }
    let threads: BTreeSet<&String> = promises.spawned.values().collect();
    assert_eq!(
        threads.len(),
        promises.spawned.len(),
        "round {round}: two spawns, one thread"
    );
    for thread in &promises.interrupted {
        assert_eq!(
            listed[thread],
            StatusKind::Interrupted,
            "round {round}: {thread} still works"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_sigkill() {
    let home = Home::default();
    let promises = Arc::new(Mutex::new(Promises::default()));
    let mut up = Up::start(&home).await;
    let mut tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    for round in 0..ROUNDS {
        let writer = Writer {
            client: up.client(),
            session: tree.session.clone(),
            promises: Arc::clone(&promises),
            answered: Arc::default(),
            enough: Arc::default(),
        };
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            writers.spawn(writer.clone().write(format!("{round}-{number}")));
        }
        within("enough answers", writer.enough.notified()).await;
        up.kill().await;
        within("the writers' end", writers.join_all()).await;

        up = Up::start(&home).await;
        tree = tree.by(up.client());
        let (log, listed) = both(&tree).await;
        check(round, &promises.lock().unwrap(), &log, &listed);
    }

    // A retry of an acknowledged request has no second effect, and every thread that was reported as closing is closed
    // in the end.
    let (spawned, closing) = {
        let promises = promises.lock().unwrap();
        (promises.spawned.clone(), promises.closing.clone())
    };
    for thread in &closing {
        tree.close(thread).await;
    }
    let threads = tree.threads().await.len();
    for (request_id, thread) in spawned {
        let answer = tree.try_spawn(spawn(&tree.session, &request_id)).await.unwrap();
        assert_eq!(answer.thread.unwrap().thread_id, thread, "{request_id}");
    }
    assert_eq!(tree.threads().await.len(), threads);
    up.kill().await;
}
