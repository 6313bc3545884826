//! Watching all sessions: existing sessions, changes, removals.

use std::time::Duration;

use tonic::{Code, Streaming};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{CreateSessionRequest, Session, StatusKind, WatchSessionsRequest, WatchSessionsResponse},
};
use troupe_tests::{
    client::Supervisor,
    pair::{Pair, VIEWER},
    refusal::refused,
    within,
};

use crate::started;

/// An open stream of WatchSessions.
struct Sessions(Streaming<WatchSessionsResponse>);

impl Sessions {
    async fn open(mut client: Supervisor, request: WatchSessionsRequest) -> Self {
        let answer = within("a watch", client.watch_sessions(request)).await;
        Self(answer.unwrap().into_inner())
    }

    async fn next(&mut self) -> WatchSessionsResponse {
        let next = within("a message of a session watch", self.0.message()).await;
        next.unwrap().expect("the stream continues")
    }

    /// Returns the initial sessions in the order of their ids.
    async fn first(&mut self) -> Vec<Session> {
        let mut sessions = Vec::new();
        loop {
            let news = self.next().await;
            if news.synced {
                sessions.sort_by_key(|session: &Session| session.session_id.clone());
                return sessions;
            }
            assert!(!news.removed);
            sessions.push(news.session.unwrap());
        }
    }

    /// Returns the session of the first message that `pick` accepts, and the number of messages up to it.
    async fn until(&mut self, pick: impl Fn(&Session, bool) -> bool) -> (Session, usize) {
        let mut passed = 0;
        loop {
            let news = self.next().await;
            let session = news.session.unwrap();
            passed += 1;
            if pick(&session, news.removed) {
                return (session, passed);
            }
        }
    }
}

fn labelled(team: &str) -> CreateSessionRequest {
    CreateSessionRequest {
        labels: [(String::from("team"), team.to_owned())].into(),
        ..CreateSessionRequest::default()
    }
}

fn count(session: &Session, kind: StatusKind) -> u32 {
    let threads = &session.roll_up.as_ref().unwrap().threads;
    threads
        .iter()
        .find(|counted| counted.kind() == kind)
        .map_or(0, |counted| counted.count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_watch_reports_existing_changed_and_removed() {
    let pair = Pair::start().await;
    let (old, blue) = (
        pair.tree_with(labelled("red")).await,
        pair.tree_with(labelled("blue")).await,
    );
    let gone = pair.tree_with(labelled("red")).await;
    gone.end().await;
    let request = WatchSessionsRequest {
        labels: labelled("red").labels,
        include_closed: false,
    };
    let mut sessions = Sessions::open(pair.with_token(VIEWER), request.clone()).await;
    let mut closed_too = Sessions::open(
        pair.operator(),
        WatchSessionsRequest {
            include_closed: true,
            ..request
        },
    )
    .await;
    assert_eq!(sessions.first().await, [old.now().await]);
    assert_eq!(closed_too.first().await, [old.now().await, gone.now().await]);

    let new = pair.tree_with(labelled("red")).await;
    let (told, _) = sessions.until(|session, _| session.session_id == new.session).await;
    assert_eq!(told, new.now().await);
    blue.spawn("worker").await;
    new.spawn("worker").await;
    let (told, _) = sessions
        .until(|session, _| {
            assert_ne!(session.session_id, blue.session, "the session has other labels");
            count(session, StatusKind::PendingInit) == 1
        })
        .await;
    assert_eq!(told, new.now().await);

    let ended = old.end().await;
    let (told, _) = sessions.until(|_, removed| removed).await;
    assert_eq!(told, ended, "closed sessions are not returned");
    let (told, _) = closed_too.until(|session, _| session.closed).await;
    assert_eq!(told, ended);

    old.delete().await;
    let (told, _) = closed_too.until(|_, removed| removed).await;
    assert_eq!(told.session_id, old.session);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_watch_merges_many_changes() {
    const NOTES: usize = 200;
    let (pair, tree) = started().await;
    let mut sessions = Sessions::open(pair.operator(), WatchSessionsRequest::default()).await;
    sessions.first().await;
    for number in 0..NOTES {
        tree.note(&tree.root, &number.to_string()).await;
    }
    let head = tree.head().await;
    let (_, messages) = sessions.until(|session, _| session.sequence == head).await;
    assert!(messages < NOTES / 2, "{messages} messages for {NOTES} changes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_watch_includes_passive_sessions() {
    let mut pair = Pair::with(|config| config.upkeep.idle = Duration::from_millis(20)).await;
    let tree = pair.tree().await;
    pair.wait_until_loaded(0).await;
    let before = tree.now().await;
    pair.wait_until_loaded(0).await;
    let mut sessions = Sessions::open(pair.operator(), WatchSessionsRequest::default()).await;
    assert_eq!(sessions.first().await, [before]);
    pair.wait_until_loaded(0).await;
    tree.note(&tree.root, "awake").await;
    let head = tree.head().await;
    sessions.until(|session, _| session.sequence == head).await;

    // A service that stops closes the stream with a status, and the stream can be reopened.
    pair.restart().await;
    let status = loop {
        match within("the end of the stream", sessions.0.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without an error"),
            Err(status) => break status,
        }
    };
    refused::<()>(Err(status), Code::Unavailable, Reason::Draining, "shutting down");
    let mut sessions = Sessions::open(pair.operator(), WatchSessionsRequest::default()).await;
    assert_eq!(sessions.first().await.len(), 1);
}
