//! `kill -9` in the middle of spawning: what was answered is there after the next start, exactly once, and the log explains
//! every state.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use support::{Client, PATIENCE, log, start};
use tokio::{sync::Notify, task::JoinSet, time::timeout};
use troupe_proto::supervisor::v1::{
    CloseAgentRequest, CreateSessionRequest, Event, Limits, ListActiveAgentsRequest, SpawnAgentRequest, StatusKind,
    event::Kind,
};

const ROUNDS: usize = 4;
const WRITERS: usize = 8;
/// How many answers of a round the service lives to give.
const ANSWERS: usize = 40;

/// What the service promised: the thread of each answered request, and which threads it said are closing.
#[derive(Default)]
struct Promises {
    spawned: BTreeMap<String, String>,
    closed: BTreeSet<String>,
}

/// Spawns until the connection dies, and closes every fifth thread; writes down what was answered.
async fn write(
    mut client: Client,
    session: String,
    name: String,
    promises: Arc<Mutex<Promises>>,
    answered: Arc<AtomicUsize>,
    enough: Arc<Notify>,
) {
    for number in 0.. {
        let request_id = format!("{name}-{number}");
        let request = SpawnAgentRequest {
            request_id: request_id.clone(),
            session_id: session.clone(),
            agent_type: String::from("worker"),
            message: Some(format!("work {request_id}")),
            ..SpawnAgentRequest::default()
        };
        let Ok(answer) = client.spawn_agent(request).await else {
            return;
        };
        let thread = answer.into_inner().thread.unwrap().thread_id;
        promises.lock().unwrap().spawned.insert(request_id, thread.clone());
        if number % 5 == 0 {
            let request = CloseAgentRequest {
                thread_id: thread.clone(),
                ..CloseAgentRequest::default()
            };
            let Ok(_) = client.close_agent(request).await else {
                return;
            };
            promises.lock().unwrap().closed.insert(thread);
        }
        if answered.fetch_add(1, Ordering::Relaxed) + 1 == ANSWERS {
            enough.notify_one();
        }
    }
}

/// Where each thread stands by its events alone.
fn explained(events: &[Event]) -> BTreeMap<String, StatusKind> {
    let mut status = BTreeMap::new();
    for event in events {
        let kind = match event.kind.as_ref().unwrap() {
            Kind::ThreadSpawned(spawned) => spawned.first_status(),
            Kind::ThreadClosed(_) => StatusKind::Shutdown,
            _ => continue,
        };
        status.insert(event.thread_id.clone(), kind);
    }
    status
}

async fn listed(client: &mut Client, session: &str) -> BTreeMap<String, StatusKind> {
    let mut found = BTreeMap::new();
    let mut page_token = String::new();
    loop {
        let request = ListActiveAgentsRequest {
            session_id: session.to_owned(),
            include_closed: true,
            include_self: true,
            page_token,
            ..ListActiveAgentsRequest::default()
        };
        let page = client.list_active_agents(request).await.unwrap().into_inner();
        for thread in page.threads {
            let kind = thread.status.as_ref().unwrap().kind();
            found.insert(thread.thread_id, kind);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_kill_minus_nine() {
    let home = tempfile::tempdir().unwrap();
    let promises = Arc::new(Mutex::new(Promises::default()));
    let (mut process, mut client) = start(home.path()).await;
    let request = CreateSessionRequest {
        limits: Some(Limits {
            max_threads: Some(5_000),
            ..Limits::default()
        }),
        ..CreateSessionRequest::default()
    };
    let session = client
        .create_session(request)
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap();
    let session = session.session_id;

    for round in 0..ROUNDS {
        let answered = Arc::new(AtomicUsize::new(0));
        let enough = Arc::new(Notify::new());
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(
                client.clone(),
                session.clone(),
                format!("{round}-{writer}"),
                Arc::clone(&promises),
                Arc::clone(&answered),
                Arc::clone(&enough),
            ));
        }
        timeout(PATIENCE, enough.notified()).await.unwrap();
        process.kill().await.unwrap();
        timeout(PATIENCE, writers.join_all()).await.unwrap();

        (process, client) = start(home.path()).await;
        let events = log(&mut client, &session).await;
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(
            numbers,
            (1..=events.len() as u64).collect::<Vec<_>>(),
            "round {round}: a gap"
        );
        let now = listed(&mut client, &session).await;
        let explained = explained(&events);
        let promises = promises.lock().unwrap();
        for (request, thread) in &promises.spawned {
            assert!(
                now.contains_key(thread),
                "round {round}: the answered spawn {request} is lost"
            );
        }
        assert_eq!(
            promises.spawned.values().collect::<BTreeSet<_>>().len(),
            promises.spawned.len(),
            "two requests were answered with one thread"
        );
        // A fence whose closing was cut off is carried on after the start, so the listing may be ahead of the first look.
        for (thread, kind) in &now {
            let by_log = explained[thread];
            assert!(
                *kind == by_log || *kind == StatusKind::Shutdown,
                "round {round}: {thread} is {kind:?}, its log says {by_log:?}"
            );
        }
    }

    // What was said to be closing is closed in the end, and a retry of what was answered has no second effect.
    let (request_id, thread, closing) = {
        let promises = promises.lock().unwrap();
        let (request_id, thread) = promises.spawned.first_key_value().unwrap();
        (request_id.clone(), thread.clone(), promises.closed.clone())
    };
    let before = listed(&mut client, &session).await.len();
    let again = SpawnAgentRequest {
        request_id: request_id.clone(),
        session_id: session.clone(),
        agent_type: String::from("worker"),
        message: Some(format!("work {request_id}")),
        ..SpawnAgentRequest::default()
    };
    let answer = client.spawn_agent(again).await.unwrap().into_inner();
    assert_eq!(answer.thread.unwrap().thread_id, thread);
    let now = listed(&mut client, &session).await;
    assert_eq!(now.len(), before);
    for thread in closing {
        assert_eq!(now[&thread], StatusKind::Shutdown);
    }
}
