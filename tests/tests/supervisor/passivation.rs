//! Passivation: unused sessions leave memory without visible effects. Calls, watches and listings continue as before.

use std::{collections::BTreeSet, time::Duration};

use supervisor_svc::UpkeepLimits;
use tokio::task::JoinSet;
use tonic::Code;
use troupe_proto::{
    fault::metadata_of,
    reason::Reason,
    supervisor::v1::{
        CloseSessionRequest, CreateSessionRequest, Event, ListSessionsRequest, NotificationPolicy, Session, StatusKind,
        WatchNotificationsRequest, WatchThreadsRequest, Webhook, event::Kind,
    },
};
use troupe_tests::{
    accepted,
    client::Supervisor,
    events::assert_whole,
    pair::{OPERATOR, Pair},
    receiver::Receiver,
    refusal::refused,
    runner::Runner,
    tree::Tree,
    watch::Watch,
    within,
};

use crate::{running, soon_compacted};

/// Starts a pair that passivates idle sessions quickly.
async fn passivating_pair() -> Pair {
    Pair::with(|config| config.upkeep.idle = Duration::from_millis(20)).await
}

fn notes(log: &[Event]) -> usize {
    log.iter()
        .filter(|event| matches!(event.kind, Some(Kind::NoteSet(_))))
        .count()
}

async fn pages(mut client: Supervisor, request: ListSessionsRequest) -> Vec<Vec<Session>> {
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListSessionsRequest {
            page_token,
            ..request.clone()
        };
        let page = accepted("a page of sessions", client.list_sessions(request)).await;
        pages.push(page.sessions);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return pages;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passivated_session_is_unchanged_on_activation() {
    let pair = passivating_pair().await;
    let tree = pair.tree().await;
    let (mut runner, mut attempt) = running(&pair, &tree).await;
    runner.complete(&attempt, "done").await;
    pair.wait_until_loaded(0).await;

    let session = tree.now().await;
    let threads = tree.threads().await;
    assert_eq!(threads.len(), 2);
    pair.wait_until_loaded(0).await;
    assert_eq!(tree.now().await, session);
    assert_eq!(tree.threads().await, threads);

    pair.wait_until_loaded(0).await;
    tree.note(&attempt.thread, "still here").await;
    assert_eq!(tree.thread(&attempt.thread).await.thread_note, "still here");
    pair.wait_until_loaded(0).await;
    // The runner still has the program and receives the next turn.
    tree.send(&attempt.thread, "more").await;
    runner.next_turn(&mut attempt).await;
    runner.complete(&attempt, "done again").await;
    pair.wait_until_loaded(0).await;
    assert_whole(&tree.log().await);
    assert_eq!(tree.head().await, tree.log().await.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn working_session_is_not_passivated() {
    let pair = passivating_pair().await;
    let (busy, idle) = (pair.tree().await, pair.tree().await);
    let worker = busy.spawn("worker").await;
    idle.note(&idle.root, "nothing to do").await;
    pair.wait_until_loaded(1).await;
    // No client called the session: the pending thread kept it in memory.
    let mut runner = Runner::attach(&pair, "r").await;
    let attempt = runner.run(&worker.id).await;
    runner.complete(&attempt, "done").await;
    pair.wait_until_loaded(0).await;
    assert_eq!(busy.status(&worker.id).await, StatusKind::Completed);
}

/// The session stays active until its deliveries are accepted. Events after the passivation are delivered too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_passivated_after_its_webhook_deliveries() {
    let pair = Pair::with(|config| {
        config.upkeep.idle = Duration::from_millis(20);
        config.webhooks.allow_private = true;
        config.webhooks.first_retry = Duration::from_millis(10);
    })
    .await;
    let receiver = Receiver::start().await;
    let webhook = Webhook {
        url: receiver.url(),
        kinds: Vec::new(),
        secret: String::from("a secret of a webhook"),
    };
    let tree = pair.tree_where(|session| session.webhooks = vec![webhook]).await;
    pair.wait_until_loaded(0).await;
    let mut runner = Runner::attach(&pair, "r").await;
    for _ in 0..2 {
        let worker = tree.complete_worker(&mut runner).await.thread;
        for status in [500, 204] {
            assert_eq!(receiver.next(status).await.json()["thread_id"], worker.as_str());
        }
        pair.wait_until_loaded(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_session_stays_active_and_watch_resumes_without_gap() {
    let pair = passivating_pair().await;
    let (watched, other) = (pair.tree().await, pair.tree().await);
    let mut watch = watched.watch().await;
    watch.snapshot().await;
    other.note(&other.root, "unwatched").await;
    pair.wait_until_loaded(1).await;
    watched.note(&watched.root, "1").await;
    let seen = watch.event().await.sequence;

    let position = watch.position();
    assert_eq!(position, seen);
    drop(watch);
    pair.wait_until_loaded(0).await;
    watched.note(&watched.root, "2").await;
    pair.wait_until_loaded(0).await;
    let mut watch = watched.watch_after(position).await;
    watched.note(&watched.root, "3").await;
    let events = watch.up_to(position + 2).await;
    let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, [position + 1, position + 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_streams_end_and_allow_passivation() {
    // More events than either stream buffers for its reader.
    const CLOSED: usize = 70;
    let pair = Pair::with(|config| {
        config.upkeep.idle = Duration::from_millis(20);
        config.watch.lifetime = Duration::from_millis(50);
        config.watch.flush_timeout = Duration::from_millis(50);
    })
    .await;
    let tree = pair.tree().await;
    for _ in 0..CLOSED {
        let worker = tree.spawn("worker").await;
        tree.close(&worker.id).await;
    }
    let mut deaf = pair.deaf(OPERATOR);
    let events = tree.by(deaf.clone()).watch_after(0).await;
    let notifications = WatchNotificationsRequest {
        session_id: tree.session.clone(),
        client_id: String::from("desk"),
        after_sequence: Some(0),
        policy: Some(NotificationPolicy {
            all: true,
            ..NotificationPolicy::default()
        }),
        ..WatchNotificationsRequest::default()
    };
    let notifications = within("a stream", deaf.watch_notifications(notifications)).await;
    let streams = (events, notifications.unwrap());
    pair.wait_until_loaded(0).await;
    drop(streams);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_stream_of_a_thread_ends_with_its_token() {
    // More events than the stream buffers for its reader.
    const NOTES: usize = 70;
    let pair = Pair::with(|config| {
        config.upkeep.idle = Duration::from_millis(20);
        config.watch.flush_timeout = Duration::from_millis(50);
    })
    .await;
    let tree = pair.tree().await;
    let thread = tree.spawn("orchestrator").await;
    for number in 0..NOTES {
        tree.note(&thread.id, &number.to_string()).await;
    }
    let request = WatchThreadsRequest {
        after_sequence: Some(0),
        ..WatchThreadsRequest::default()
    };
    let stream = Watch::open(&pair.deaf(&thread.token), request).await;
    tree.close(&thread.id).await;
    pair.wait_until_loaded(0).await;
    drop(stream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_during_passivation() {
    const CALLERS: usize = 4;
    const ROUNDS: usize = 30;
    // Each pause between two rounds is long enough for passivation.
    let pair = Pair::with(|config| config.upkeep.idle = Duration::from_millis(1)).await;
    let tree = pair.tree().await;
    for round in 0..ROUNDS {
        // In every other round, the calls start after passivation. In the other rounds, they start during passivation.
        if round % 2 == 0 {
            pair.wait_until_loaded(0).await;
        }
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let tree = tree.by(pair.operator());
            callers.spawn(async move {
                tree.note(&tree.root, &format!("{round}-{caller}")).await;
                assert_eq!(tree.now().await.session_id, tree.session);
            });
        }
        within("the callers' end", callers.join_all()).await;
    }
    let log = tree.log().await;
    assert_whole(&log);
    assert_eq!(notes(&log), ROUNDS * CALLERS, "each call has exactly one effect");
    pair.wait_until_loaded(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_log_is_compacted_up_to_its_snapshot() {
    let mut pair = Pair::with(|config| {
        config.upkeep = UpkeepLimits {
            idle: Duration::from_secs(60),
            ..soon_compacted()
        };
    })
    .await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await;
    tree.compact_beyond(0).await;
    let status = tree.watch_after(0).await.failure().await;
    let text = "are compacted; watch from";
    let status = refused::<()>(Err(status), Code::OutOfRange, Reason::HistoryCompacted, text);
    let said: u64 = metadata_of(&status)["oldest"].parse().unwrap();
    let head = tree.head().await;
    assert_eq!(metadata_of(&status)["head"], head.to_string());
    assert!(said + 10 <= head, "a watcher that resumes has a window");
    let window = tree.watch_after(said).await.up_to(head).await;
    assert_eq!(window.len() as u64, head - said);

    let (session, threads) = (tree.now().await, tree.threads().await);
    let tree = tree.after_restart(&mut pair).await;
    assert_eq!(
        tree.now().await,
        session,
        "restored from the snapshot and the later events"
    );
    assert_eq!(tree.threads().await, threads);
    tree.note(&worker.id, "after it").await;
    assert_eq!(tree.head().await, head + 1);
    let (sequence, shown) = tree.watch().await.snapshot().await;
    assert_eq!((sequence, shown.len()), (head + 1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_listed_without_being_loaded() {
    const SESSIONS: usize = 300;
    let pair = passivating_pair().await;
    let mut made: Vec<String> = Vec::new();
    let mut red = Vec::new();
    for number in 0..SESSIONS {
        let mut request = CreateSessionRequest::default();
        if number % 3 == 0 {
            request.labels.insert(String::from("team"), String::from("red"));
        }
        let tree = pair.tree_with(request).await;
        if number % 3 == 0 {
            red.push(tree.session.clone());
        }
        made.push(tree.session);
    }
    // The newest session stays in memory, with a change that its stored summary does not have.
    let newest = pair.tree().await;
    let mut watch = newest.watch().await;
    watch.snapshot().await;
    newest.spawn("worker").await;
    made.push(newest.session.clone());
    pair.wait_until_loaded(1).await;
    made.reverse();
    red.reverse();

    let ids = |pages: &[Vec<Session>]| -> Vec<String> {
        pages
            .iter()
            .flatten()
            .map(|session| session.session_id.clone())
            .collect()
    };
    let by_fifty = ListSessionsRequest {
        page_size: 50,
        ..ListSessionsRequest::default()
    };
    let listed = pages(pair.operator(), by_fifty.clone()).await;
    assert_eq!(ids(&listed), made, "each session once, newest first");
    assert_eq!(
        listed.iter().map(Vec::len).collect::<Vec<_>>(),
        [50, 50, 50, 50, 50, 50, 1]
    );
    assert_eq!(
        listed[0][0],
        newest.now().await,
        "loaded sessions are listed with their state in memory"
    );
    let labelled = ListSessionsRequest {
        page_size: 30,
        labels: [(String::from("team"), String::from("red"))].into(),
        ..ListSessionsRequest::default()
    };
    assert_eq!(ids(&pages(pair.operator(), labelled).await), red);
    assert_eq!(pair.loaded_sessions(), 1, "a listing loads nothing");

    // A session that closes in between is skipped, and each page continues after the end of the previous page.
    let mut client = pair.operator();
    let first = client.list_sessions(by_fifty.clone()).await.unwrap().into_inner();
    let closed = &made[60];
    let request = CloseSessionRequest {
        session_id: closed.clone(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    client.close_session(request).await.unwrap();
    let second = ListSessionsRequest {
        page_token: first.next_page_token,
        ..by_fifty
    };
    let second = client.list_sessions(second).await.unwrap().into_inner().sessions;
    let second: BTreeSet<String> = second.into_iter().map(|session| session.session_id).collect();
    let expected: BTreeSet<String> = made[50..101].iter().filter(|id| *id != closed).cloned().collect();
    assert_eq!(second, expected);
    let with_closed = ListSessionsRequest {
        include_closed: true,
        ..ListSessionsRequest::default()
    };
    assert_eq!(ids(&pages(pair.operator(), with_closed).await), made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_page_cost_is_bounded() {
    // More sessions than are read for a page.
    const SESSIONS: usize = 1_100;
    const CALLERS: usize = 4;
    let pair = Pair::start().await;
    let labelled = ListSessionsRequest {
        labels: [(String::from("team"), String::from("red"))].into(),
        ..ListSessionsRequest::default()
    };
    let oldest = pair
        .tree_where(|session| session.labels = labelled.labels.clone())
        .await;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let client = pair.operator();
        callers.spawn(async move {
            for _ in 0..SESSIONS / CALLERS {
                Tree::open(client.clone(), CreateSessionRequest::default()).await;
            }
        });
    }
    callers.join_all().await;
    let found = pages(pair.operator(), labelled).await;
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found[1][0].session_id, oldest.session);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_after_clean_shutdown_loads_no_session() {
    let mut pair = Pair::alone(|_| {}).await;
    let trees: Vec<Tree> = vec![pair.tree().await, pair.tree().await];
    let mut sessions = Vec::new();
    for tree in trees.iter().rev() {
        tree.note(&tree.root, "in memory at the end").await;
        sessions.push(tree.now().await);
    }
    pair.restart().await;
    let listed = pages(pair.operator(), ListSessionsRequest::default()).await;
    assert_eq!(listed, [sessions]);
    assert_eq!(pair.loaded_sessions(), 0);
}
