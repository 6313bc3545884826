//! `kill -9` at any moment, repeatedly, with many writers: every acknowledged write is in the log exactly once and in
//! order, and watchers that resume receive every event exactly once.
//!
//! `TROUPE_CRASH_ROUNDS` sets the number of kills (20 by default). `TROUPE_CRASH_SEED` repeats the moments and the
//! scripts of a failed run.

use std::{
    collections::BTreeMap,
    error::Error as _,
    fmt::Debug,
    future::Future,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{sync::watch, task::JoinSet, time::sleep};
use tonic::{Code, Response, Status};
use troupe_proto::supervisor::v1::{
    CloseAgentRequest, CloseAgentResponse, CloseSessionRequest, CreateSessionRequest, Event, InterruptAgentRequest,
    InterruptAgentResponse, SendInputRequest, SendInputResponse, SetThreadNoteRequest, SetThreadNoteResponse,
    SpawnAgentRequest, SpawnAgentResponse, StatusKind, TurnOutcome, WatchThreadsRequest, event::Kind,
    watch_threads_response::Message,
};
use troupe_tests::{
    client::Supervisor,
    events::{assert_whole, statuses},
    rng::Rng,
    service::{Ground, Service},
    tree::{Tree, kind},
    within,
};

use crate::{number_from, seed};

const WRITERS: usize = 32;
const WATCHERS: usize = 4;
/// Number of kills of the service with one session. A start replays the session's log and must not take longer than the
/// time between two kills.
const DEATHS_PER_SESSION: usize = 25;
/// Time from the start of serving until the next kill, in milliseconds.
const LIFE: RangeInclusive<u64> = 50..=400;
/// One of this number of calls is made twice, as by a client that missed the response.
const TWICE: u64 = 8;
/// Limits that no writer reaches.
const LIMITS: &[&str] = &["--max-threads", "10000", "--max-open-threads", "10000"];

/// A change of a thread, according to a response or to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Spawned { parent: String, task: String },
    Input { number: u32, text: String },
    Note(String),
    Interrupted,
    Fenced,
    Closed,
}

impl Change {
    fn of(event: &Event) -> Self {
        match event.kind.clone().unwrap() {
            Kind::ThreadSpawned(spawned) => Self::Spawned {
                parent: spawned.parent_thread_id,
                task: spawned.input.unwrap().preview,
            },
            Kind::InputQueued(queued) => Self::Input {
                number: queued.number,
                text: queued.input.unwrap().preview,
            },
            Kind::NoteSet(set) => Self::Note(set.thread_note),
            Kind::TurnEnded(ended) if ended.outcome() == TurnOutcome::Interrupted => Self::Interrupted,
            Kind::CloseRequested(_) => Self::Fenced,
            Kind::ThreadClosed(_) => Self::Closed,
            other => panic!("unexpected event: {other:?}"),
        }
    }
}

/// The changes of each thread, in order.
type Journal = BTreeMap<String, Vec<Change>>;

/// A writer that continues across restarts of the service.
struct Writer {
    lives: watch::Receiver<Supervisor>,
    session: String,
    root: String,
    name: String,
    calls: usize,
    rng: Rng,
    enough: Arc<AtomicBool>,
    cut_off: Arc<AtomicUsize>,
    journal: Journal,
}

impl Writer {
    /// Writes until it is told to stop, and returns the acknowledged changes. Each call is repeated until it has a
    /// response.
    async fn write(mut self) -> Journal {
        loop {
            self.episode().await;
            if self.enough.load(Ordering::Relaxed) {
                return self.journal;
            }
        }
    }

    /// Works with a thread and its child, and with another thread that is sometimes closed.
    async fn episode(&mut self) {
        let root = self.root.clone();
        let parent = self.spawn(&root).await;
        let other = self.spawn(&root).await;
        let child = self.spawn(&parent).await;
        for _ in 0..self.rng.below(4) {
            self.send(&child).await;
        }
        for _ in 0..=self.rng.below(3) {
            self.note(&parent).await;
            self.note(&other).await;
        }
        self.interrupt(&child).await;
        self.interrupt(&other).await;
        self.close(&parent).await;
        self.promised(&child, Change::Closed);
        if self.rng.one_in(2) {
            self.close(&other).await;
        }
    }

    async fn spawn(&mut self, parent: &str) -> String {
        let request_id = self.next_id();
        let request = SpawnAgentRequest {
            request_id: request_id.clone(),
            session_id: self.session.clone(),
            parent_thread_id: parent.to_owned(),
            agent_type: String::from("worker"),
            message: Some(request_id.clone()),
            ..SpawnAgentRequest::default()
        };
        let thread = self
            .ask(
                request,
                |mut client, request| async move { client.spawn_agent(request).await },
                |answer: SpawnAgentResponse| answer.thread.unwrap().thread_id,
            )
            .await;
        let spawned = Change::Spawned {
            parent: parent.to_owned(),
            task: request_id,
        };
        self.promised(&thread, spawned);
        thread
    }

    async fn send(&mut self, thread: &str) {
        let request_id = self.next_id();
        let request = SendInputRequest {
            request_id: request_id.clone(),
            thread_id: thread.to_owned(),
            message: Some(request_id.clone()),
            ..SendInputRequest::default()
        };
        let number = self
            .ask(
                request,
                |mut client, request| async move { client.send_input(request).await },
                |answer: SendInputResponse| answer.input_number,
            )
            .await;
        self.promised(
            thread,
            Change::Input {
                number,
                text: request_id,
            },
        );
    }

    async fn note(&mut self, thread: &str) {
        let request_id = self.next_id();
        let request = SetThreadNoteRequest {
            request_id: request_id.clone(),
            thread_id: thread.to_owned(),
            thread_note: request_id.clone(),
            ..SetThreadNoteRequest::default()
        };
        let note = self
            .ask(
                request,
                |mut client, request| async move { client.set_thread_note(request).await },
                |answer: SetThreadNoteResponse| answer.thread.unwrap().thread_note,
            )
            .await;
        assert_eq!(note, request_id, "the note of {thread} has another value");
        self.promised(thread, Change::Note(note));
    }

    async fn interrupt(&mut self, thread: &str) {
        let request = InterruptAgentRequest {
            request_id: self.next_id(),
            thread_id: thread.to_owned(),
            ..InterruptAgentRequest::default()
        };
        self.ask(
            request,
            |mut client, request| async move { client.interrupt_agent(request).await },
            |answer: InterruptAgentResponse| answer.thread.unwrap().thread_id,
        )
        .await;
        self.promised(thread, Change::Interrupted);
    }

    async fn close(&mut self, thread: &str) {
        let request = CloseAgentRequest {
            request_id: self.next_id(),
            thread_id: thread.to_owned(),
            wait: self.rng.one_in(2),
            ..CloseAgentRequest::default()
        };
        self.ask(
            request,
            |mut client, request| async move { client.close_agent(request).await },
            |answer: CloseAgentResponse| answer.thread.unwrap().thread_id,
        )
        .await;
        self.promised(thread, Change::Fenced);
        self.promised(thread, Change::Closed);
    }

    /// Returns the request id of the next call. It is also the text of the call.
    fn next_id(&mut self) -> String {
        self.calls += 1;
        format!("{}-{}", self.name, self.calls)
    }

    fn promised(&mut self, thread: &str, change: Change) {
        self.journal.entry(thread.to_owned()).or_default().push(change);
    }

    /// Makes a call once or twice and returns its response. Checks that a repeated call gets the same response.
    async fn ask<Q, A, T, F>(&mut self, request: Q, call: impl Fn(Supervisor, Q) -> F, told: impl Fn(A) -> T) -> T
    where
        Q: Clone + Debug,
        T: PartialEq + Debug,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let first = told(self.answer(&request, &call).await);
        if self.rng.one_in(TWICE) {
            let again = told(self.answer(&request, &call).await);
            assert_eq!(again, first, "repeated request: {request:?}");
        }
        first
    }

    /// Returns the response to a call. If the service dies during the call, the same request is sent after its restart.
    async fn answer<Q, A, F>(&mut self, request: &Q, call: &impl Fn(Supervisor, Q) -> F) -> A
    where
        Q: Clone + Debug,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        loop {
            let client = self.lives.borrow_and_update().clone();
            match within("an answer", call(client, request.clone())).await {
                Ok(answer) => return answer.into_inner(),
                Err(status) => {
                    assert!(leaves_open(&status), "{request:?} was refused: {status:?}");
                    self.cut_off.fetch_add(1, Ordering::Relaxed);
                    next_life(&mut self.lives).await;
                }
            }
        }
    }
}

/// Returns whether it is unknown if a call had its effect. The status of a connection error has a source, the status of
/// a rejection by the service has no source.
fn leaves_open(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown) || status.source().is_some()
}

async fn next_life(lives: &mut watch::Receiver<Supervisor>) {
    within("the next life", lives.changed()).await.unwrap();
}

/// Watches a session to its end, across all restarts of the service.
async fn follow(mut lives: watch::Receiver<Supervisor>, session: String) -> Vec<Event> {
    let mut seen = Vec::new();
    loop {
        let client = lives.borrow_and_update().clone();
        match read_on(client, &session, &mut seen).await {
            Ok(true) => return seen,
            // The stream ended without an error and can be resumed immediately.
            Ok(false) => {}
            Err(status) => {
                assert!(leaves_open(&status), "a watch after {}: {status:?}", seen.len());
                next_life(&mut lives).await;
            }
        }
    }
}

/// Resumes a watch at its position and reads it. Returns whether the session has ended.
async fn read_on(mut client: Supervisor, session: &str, seen: &mut Vec<Event>) -> Result<bool, Status> {
    let request = WatchThreadsRequest {
        session_id: session.to_owned(),
        after_sequence: Some(seen.len() as u64),
        ..WatchThreadsRequest::default()
    };
    let mut stream = client.watch_threads(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        if let Some(Message::Event(event)) = response.message {
            assert_eq!(event.sequence, seen.len() as u64 + 1, "an event is missing or repeated");
            let is_last = matches!(event.kind, Some(Kind::SessionClosed(_)));
            seen.push(event);
            if is_last {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Checks at a moment without events that the log explains the status of every thread.
async fn assert_explained(tree: &Tree) {
    within("a moment without events", async {
        loop {
            let log = tree.log().await;
            let threads = tree.threads().await;
            if tree.head().await == log.len() as u64 {
                let listed = threads.iter().map(|thread| (thread.thread_id.clone(), kind(thread)));
                assert_eq!(listed.collect::<BTreeMap<_, _>>(), statuses(&log));
                return;
            }
        }
    })
    .await;
}

/// Returns the changes in the log of all threads except the root.
fn logged_changes(log: &[Event], root: &str) -> Journal {
    let mut journal = Journal::new();
    for event in log {
        if !event.thread_id.is_empty() && event.thread_id != root {
            journal
                .entry(event.thread_id.clone())
                .or_default()
                .push(Change::of(event));
        }
    }
    journal
}

/// Compares the log of a closed session with the acknowledged changes.
fn check(log: &[Event], root: &str, promised: &Journal) {
    assert_whole(log);
    let statuses = statuses(log);
    assert!(statuses.values().all(|status| *status == StatusKind::Shutdown));
    let logged = logged_changes(log, root);
    for (thread, changes) in promised {
        assert_eq!(
            logged.get(thread),
            Some(changes),
            "{thread}: changes in the log and acknowledged changes differ"
        );
    }
    for thread in logged.keys() {
        assert!(promised.contains_key(thread), "{thread} was spawned without a request");
    }
}

fn assert_same(seen: &[Event], log: &[Event]) {
    assert_eq!(seen.len(), log.len(), "number of events that a watcher received");
    for (seen, logged) in seen.iter().zip(log) {
        assert_eq!(seen, logged, "an event that a watcher received");
    }
}

/// The data that all sessions share.
struct Run {
    ground: Ground,
    lives: watch::Sender<Supervisor>,
    rng: Rng,
    cut_off: Arc<AtomicUsize>,
}

impl Run {
    /// Writes and watches a session while the service is killed `deaths` times. Returns the last process, the session
    /// and its log.
    async fn session(&mut self, mut service: Service, deaths: usize) -> (Service, Tree, Vec<Event>) {
        let tree = Tree::open(service.client(), CreateSessionRequest::default()).await;
        let enough = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let writer = Writer {
                lives: self.lives.subscribe(),
                session: tree.session.clone(),
                root: tree.root.clone(),
                name: number.to_string(),
                calls: 0,
                rng: Rng::new(self.rng.number(), "writer"),
                enough: Arc::clone(&enough),
                cut_off: Arc::clone(&self.cut_off),
                journal: Journal::new(),
            };
            writers.spawn(writer.write());
        }
        let mut watchers = JoinSet::new();
        for _ in 0..WATCHERS {
            watchers.spawn(follow(self.lives.subscribe(), tree.session.clone()));
        }
        for _ in 0..deaths {
            // The time of the kill is random, so there is no event to wait for.
            sleep(self.rng.millis(LIFE)).await;
            service.kill().await;
            service = self.ground.start(LIMITS).await;
            self.lives.send_replace(service.client());
        }
        enough.store(true, Ordering::Relaxed);
        let mut promised = Journal::new();
        for journal in within("the writers' end", writers.join_all()).await {
            promised.extend(journal);
        }

        let tree = tree.by(service.client());
        assert_explained(&tree).await;
        let close = CloseSessionRequest {
            session_id: tree.session.clone(),
            wait: true,
            ..CloseSessionRequest::default()
        };
        within("the session's end", tree.client().close_session(close))
            .await
            .unwrap();
        for changes in promised.values_mut() {
            // Threads that were still open closed with the session.
            if changes.last() != Some(&Change::Closed) {
                changes.push(Change::Closed);
            }
        }
        let log = tree.log().await;
        check(&log, &tree.root, &promised);
        for seen in within("the watchers' end", watchers.join_all()).await {
            assert_same(&seen, &log);
        }
        (service, tree, log)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_repeated_sigkill_in_order() {
    let rounds: usize = number_from("TROUPE_CRASH_ROUNDS", 20);

    let ground = Ground::new().await;
    let mut service = ground.start(LIMITS).await;
    let mut run = Run {
        ground,
        lives: watch::Sender::new(service.client()),
        rng: Rng::new(seed("TROUPE_CRASH_SEED"), "run"),
        cut_off: Arc::default(),
    };
    let mut finished = Vec::new();
    let mut left = rounds;
    while left > 0 {
        let deaths = left.min(DEATHS_PER_SESSION);
        left -= deaths;
        let (last, tree, log) = run.session(service, deaths).await;
        service = last;
        finished.push((tree, log));
    }
    assert!(run.cut_off.load(Ordering::Relaxed) > 0, "no kill interrupted a call");

    // The logs of sessions that ended long ago are unchanged.
    for (tree, log) in finished {
        assert_same(&tree.by(service.client()).log().await, &log);
    }
    service.kill().await;
}
