//! A thread that floods its session with events: the thread is limited, and its security events outlive compaction.

use std::{path::Path, time::Duration};

use supervisor_core::{ids::Sequence, rules::rate::EventRate};
use supervisor_log::maintenance;
use supervisor_svc::UpkeepLimits;
use tonic::{Code, Status};
use troupe_proto::{
    fault::{metadata_of, reason_of, retry_after},
    reason::Reason,
    supervisor::v1::{Event, SetThreadNoteRequest, SpawnAgentRequest, event::Kind},
};
use troupe_tests::{client::Supervisor, events::names, pair::Pair, refusal::refused, within};

use crate::soon_compacted;

/// Number of events that a thread may cause at once if it may cause one event per second. The duration of a test adds
/// up to [`SLACK`] events.
const BURST: usize = 50;
const SLACK: usize = 30;

async fn slow_pair() -> Pair {
    Pair::with(|config| config.event_rate = EventRate::new(1).unwrap()).await
}

async fn note(client: &Supervisor, thread: &str, text: String) -> Result<(), Status> {
    let request = SetThreadNoteRequest {
        thread_id: thread.to_owned(),
        thread_note: text,
        ..SetThreadNoteRequest::default()
    };
    within("the answer to a note", client.clone().set_thread_note(request))
        .await
        .map(drop)
}

/// Sets notes until one is rejected. Returns the number of notes that were set, and the error.
async fn flood(client: &Supervisor, thread: &str) -> (usize, Status) {
    for number in 0..10_000 {
        if let Err(status) = note(client, thread, format!("note {number}")).await {
            return (number, status);
        }
    }
    panic!("10,000 notes were set");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_thread_is_limited_and_can_still_close() {
    let pair = slow_pair().await;
    let tree = pair.tree().await;
    let (child, sibling) = (tree.spawn("worker").await, tree.spawn("worker").await);
    let before = tree.head().await;
    let root = pair.with_token(&tree.root_token);
    let (set, status) = flood(&root, &tree.root).await;
    assert!((BURST..BURST + SLACK).contains(&set), "{set} notes were set");
    let text = &format!("agent with id {} causes more than 1 events a second; wait ", tree.root);
    let status = refused::<()>(Err(status), Code::ResourceExhausted, Reason::RateLimited, text);
    assert_eq!(metadata_of(&status)["thread_id"], tree.root);
    assert!(
        retry_after(&status).is_some_and(|wait| wait <= Duration::from_secs(1)),
        "{status:?}"
    );
    assert_eq!(
        tree.head().await,
        before + set as u64,
        "a rejected call is not recorded"
    );

    // Setting an equal note causes no event.
    let present = tree.thread(&tree.root).await.thread_note;
    note(&root, &tree.root, present).await.unwrap();
    // Another thread and the operator are not limited by this one.
    note(&pair.with_token(&sibling.token), &sibling.id, String::from("mine"))
        .await
        .unwrap();
    tree.note(&tree.root, "the operator's").await;
    tree.by(root).begin_close(&child.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_spawns_are_limited() {
    let pair = slow_pair().await;
    let tree = pair.tree().await;
    let before = tree.head().await;
    let root = pair.with_token(&tree.root_token);
    let mut failed = 0;
    let status = loop {
        let request = SpawnAgentRequest {
            agent_type: String::from("nobody"),
            message: Some(String::from("the task")),
            ..SpawnAgentRequest::default()
        };
        let status = within("a refusal", root.clone().spawn_agent(request))
            .await
            .unwrap_err();
        if reason_of(&status) != Some(Reason::TemplateNotFound) {
            break status;
        }
        failed += 1;
        assert!(failed < 1_000, "spawns are not limited");
    };
    let text = "causes more than 1 events a second";
    refused::<()>(Err(status), Code::ResourceExhausted, Reason::RateLimited, text);
    assert!((BURST..BURST + SLACK).contains(&failed), "{failed} spawns failed");
    assert_eq!(tree.head().await, before + failed as u64);
}

/// A thread must not be able to hide a denial behind a flood of other events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denial_of_flooding_thread_is_recorded() {
    let pair = slow_pair().await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await;
    let agent = pair.with_token(&worker.token);
    flood(&agent, &worker.id).await;
    let mut watch = tree.watch_after(tree.head().await).await;
    assert!(!tree.by(agent).may_use("", "spawn_agent").await);
    watch.until_kind("ToolDenied").await;
}

/// Creates a session with a denial and a closed thread, and compacts its whole log. Returns the remaining events from
/// the data directory.
async fn events_after_compaction(keep: Duration) -> Vec<Event> {
    let mut pair = Pair::alone(move |config| {
        config.upkeep = UpkeepLimits {
            keep_security_events: keep,
            ..soon_compacted()
        };
    })
    .await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await;
    let mut watch = tree.watch_after(0).await;
    let agent = pair.with_token(&worker.token);
    assert!(!tree.by(agent).may_use("", "spawn_agent").await);
    watch.until_kind("ToolDenied").await;
    tree.close(&worker.id).await;
    watch.until_kind("ThreadClosed").await;
    // Two compactions: the second one must keep the events that the first one kept.
    for _ in 0..2 {
        tree.compact_beyond(tree.head().await).await;
    }
    let session = tree.session.parse().unwrap();
    let mut left = Vec::new();
    pair.restart_after(|data: &Path| {
        assert!(maintenance::verify(data, &mut |_| {}).unwrap().is_sound());
        let events = maintenance::events(data, session, Sequence::ZERO).unwrap();
        left = events.map(Result::unwrap).collect();
    })
    .await;
    let whole: Vec<u64> = left.iter().rev().take(10).map(|event| event.sequence).collect();
    assert!(
        whole.windows(2).all(|pair| pair[0] == pair[1] + 1),
        "the rest follows: {whole:?}"
    );
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn security_events_outlive_compaction() {
    let left = events_after_compaction(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(left[0].sequence, 1);
    let kinds = names(
        left.iter()
            .filter(|event| !matches!(event.kind, Some(Kind::NoteSet(_)))),
    );
    assert_eq!(
        kinds,
        [
            "SessionOpened",
            "ThreadSpawned",
            "ThreadSpawned",
            "ToolDenied",
            "CloseRequested",
            "ThreadClosed"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_security_events_are_compacted() {
    let left = events_after_compaction(Duration::ZERO).await;
    assert!(
        left.iter().all(|event| matches!(event.kind, Some(Kind::NoteSet(_)))),
        "{:?}",
        names(&left)
    );
}
