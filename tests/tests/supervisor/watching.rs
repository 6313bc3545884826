//! Watching: every event once and in order, from any position, for every watcher.

use std::time::Duration;

use supervisor_svc::WatchLimits;
use tonic::Code;
use troupe_proto::{
    fault::{metadata_of, retry_after},
    reason::Reason,
    supervisor::v1::{
        Event, EventKind, ThreadOutput, WatchThreadsRequest, attach_request::Message as ToSupervisor, event::Kind,
        watch_threads_response::Message,
    },
};
use troupe_tests::{
    UNKNOWN,
    events::{assert_whole, closed, names},
    pair::{Pair, VIEWER},
    refusal::refused,
    watch::Watch,
};

use crate::{attached, started, working};

/// More notes than a stream's window, its outbox and the feed hold together.
const MANY: usize = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_sends_snapshot_then_later_events() {
    let (_pair, tree) = started().await;
    let worker = tree.spawn("worker").await;
    let closed = tree.spawn("worker").await;
    tree.close(&closed.id).await;
    let head = tree.head().await;

    let mut watch = tree.watch().await;
    let (sequence, threads) = watch.snapshot().await;
    assert_eq!(sequence, head);
    let ids: Vec<&str> = threads.iter().map(|thread| thread.thread_id.as_str()).collect();
    assert_eq!(
        ids,
        [&tree.root, &worker.id],
        "parents come first, and closed threads only on request"
    );
    assert_eq!(
        threads[1],
        tree.thread(&worker.id).await,
        "equal to the response of GetThread"
    );

    let next = tree.spawn("worker").await;
    let event = watch.event().await;
    assert_eq!((event.sequence, &event.thread_id), (head + 1, &next.id));
    assert!(matches!(event.kind, Some(Kind::ThreadSpawned(_))));

    let mut all = tree.watch_where(|watch| watch.include_closed = true).await;
    let (_, threads) = all.snapshot().await;
    assert_eq!(threads.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_resumes_at_any_position_without_gap() {
    let (mut pair, tree, mut runner) = attached().await;
    let worker = tree.spawn("worker").await;
    let attempt = runner.run(&worker.id).await;
    runner.complete(&attempt, "done").await;
    tree.note(&worker.id, "done").await;
    let log = tree.log().await;
    assert_whole(&log);
    assert!(matches!(log[0].kind, Some(Kind::SessionOpened(_))));
    let head = log.len() as u64;
    for (after, rest) in (0..=head).zip((0..=log.len()).map(|from| &log[from..])) {
        let events = tree.watch_after(after).await.up_to(head).await;
        assert_eq!(events, rest, "after {after}");
    }

    let tree = tree.after_restart(&mut pair).await;
    assert_eq!(
        tree.watch_after(2).await.up_to(head).await,
        log[2..],
        "across a restart"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn position_ahead_of_the_log_is_rejected_with_head() {
    let (_pair, tree) = started().await;
    let head = tree.head().await;
    let status = tree.watch_after(head + 1).await.failure().await;
    let text = "is ahead of the newest event";
    let status = refused::<()>(Err(status), Code::OutOfRange, Reason::AheadOfHead, text);
    assert_eq!(metadata_of(&status)["head"], head.to_string());

    // The head itself is a valid position: the next message is the next event.
    let mut watch = tree.watch_after(head).await;
    tree.spawn("worker").await;
    assert_eq!(watch.event().await.sequence, head + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn position_of_another_log_is_rejected() {
    let (_pair, tree) = started().await;
    let from_start_of = async |log_id: String| {
        tree.watch_where(|watch| {
            watch.after_sequence = Some(0);
            watch.log_id = log_id;
        })
        .await
    };
    let mut watch = from_start_of(UNKNOWN.to_owned()).await;
    assert!(matches!(watch.message().await, Message::Reset(_)));

    let log_id = tree
        .watch()
        .await
        .first(|message| match message {
            Message::Snapshot(snapshot) => Some(snapshot.log_id),
            _ => None,
        })
        .await;
    let mut watch = from_start_of(log_id).await;
    assert_eq!(watch.event().await.sequence, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subtree_watch_has_own_events_and_fences_above() {
    let (_pair, tree) = started().await;
    let mine = tree.spawn("orchestrator").await.id;
    let other = tree.spawn("orchestrator").await.id;
    let mut watch = tree
        .watch_where(|watch| {
            watch.session_id.clear();
            watch.thread_id = mine.clone();
        })
        .await;
    let (_, threads) = watch.snapshot().await;
    assert_eq!(threads.len(), 1, "only the subtree");

    tree.spawn_under(&other, "worker").await;
    let child = tree.spawn_under(&mine, "worker").await.id;
    tree.close(&tree.root).await;
    let events = watch.until_kind("SessionClosed").await;
    assert_eq!(
        names(&events),
        [
            "ThreadSpawned",
            "CloseRequested",
            "ThreadClosed",
            "ThreadClosed",
            "SessionClosed"
        ]
    );
    assert_eq!(events[1].thread_id, tree.root, "the fence above the subtree");
    assert_eq!(closed(&events), [&child, &mine]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_sends_only_requested_event_kinds() {
    let (_pair, tree) = started().await;
    let worker = tree.spawn("worker").await.id;
    tree.note(&worker, "on it").await;
    tree.close(&worker).await;
    let mut watch = tree
        .watch_where(|watch| {
            watch.after_sequence = Some(0);
            watch.kinds = vec![EventKind::Spawn.into(), EventKind::End.into()];
        })
        .await;
    let events = watch.until_kind("ThreadClosed").await;
    assert_eq!(
        names(&events),
        ["ThreadSpawned", "ThreadSpawned", "CloseRequested", "ThreadClosed"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watcher_misses_nothing_and_delays_none() {
    let (pair, tree) = started().await;
    let worker = tree.spawn("worker").await.id;
    let head = tree.head().await;
    let mut slow = tree.by(pair.narrow_operator()).watch_after(head).await;
    let mut quick = tree.watch_after(head).await;
    // The slow watch is not read during these writes.
    for number in 0..MANY {
        tree.note(&worker, &format!("{number:0>1000}")).await;
    }
    let last = head + MANY as u64;
    let told = quick.up_to(last).await;
    assert_eq!(told.len(), MANY);
    assert_eq!(slow.up_to(last).await, told);
}

/// Reads a watch to its planned end and returns its events. Checks that the reported position is the position of the
/// last event.
async fn read_to_end(watch: &mut Watch) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    while let Some(message) = watch.next().await.unwrap() {
        match message.message.unwrap() {
            Message::Event(event) => events.push(event),
            Message::Bookmark(_) => {
                if let Some(last) = events.last() {
                    assert_eq!(message.sequence, last.sequence);
                }
            }
            other => panic!("unexpected message: {other:?}"),
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_ends_at_its_lifetime_without_loss() {
    let pair = Pair::alone(|config| config.watch.lifetime = Duration::from_millis(100)).await;
    let tree = pair.tree().await;
    for number in 0..MANY {
        tree.note(&tree.root, &format!("{number:0>1000}")).await;
    }
    let head = tree.head().await;
    let mut unread = tree.by(pair.narrow_operator()).watch_after(0).await;
    // Two lifetimes of other watches exceed the lifetime of the unread one, including its random part.
    for _ in 0..2 {
        read_to_end(&mut tree.watch_after(head).await).await;
    }
    let mut seen = read_to_end(&mut unread).await;
    let mut position = unread.position();
    assert!(position < head, "the stream outlived its lifetime");
    while position < head {
        let mut rest = tree.watch_after(position).await;
        seen.extend(read_to_end(&mut rest).await);
        position = rest.position();
    }
    assert_whole(&seen);
    assert_eq!(seen.len() as u64, head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_watch_sends_positions_and_ends() {
    let pair = Pair::with(|config| {
        config.watch = WatchLimits {
            bookmark_every: Duration::from_millis(20),
            lifetime: Duration::from_millis(500),
            ..WatchLimits::default()
        };
    })
    .await;
    let tree = pair.tree().await;
    let head = tree.head().await;
    let mut watch = tree.watch().await;
    watch.snapshot().await;
    let Message::Bookmark(bookmark) = watch.message().await else {
        panic!("an idle stream gets a bookmark")
    };
    assert!(!bookmark.ending);
    assert_eq!(watch.position(), head);
    watch
        .first(|message| match message {
            Message::Bookmark(bookmark) => bookmark.ending.then_some(()),
            _ => None,
        })
        .await;
    assert!(
        watch.next().await.unwrap().is_none(),
        "the stream ends without an error"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_watch_can_be_resumed() {
    let (mut pair, tree) = started().await;
    let mut watch = tree.watch_after(0).await;
    watch.up_to(tree.head().await).await;
    let position = watch.position();
    pair.restart().await;
    let status = watch.failure().await;
    let text = "watch again from the last sequence";
    let status = refused::<()>(Err(status), Code::Unavailable, Reason::Draining, text);
    assert!(retry_after(&status).is_some());

    let tree = tree.by(pair.operator());
    let worker = tree.spawn("worker").await.id;
    let event = tree.watch_after(position).await.event().await;
    assert_eq!((event.sequence, event.thread_id), (position + 1, worker));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_thread_ends_with_its_token() {
    let (pair, tree) = started().await;
    let thread = tree.spawn("orchestrator").await;
    let client = pair.with_token(&thread.token);
    let mut watch = Watch::open(&client, WatchThreadsRequest::default()).await;
    let (_, threads) = watch.snapshot().await;
    assert_eq!(
        threads.len(),
        1,
        "a watch without a session and a thread covers the caller's subtree"
    );
    tree.close(&thread.id).await;
    let status = watch.failure().await;
    let text = "stale token";
    refused::<()>(Err(status), Code::Unauthenticated, Reason::Unauthenticated, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_output_is_sent_only_if_requested() {
    let (pair, tree, mut runner, worker, attempt) = working().await;
    let below = async |client, output| {
        tree.by(client)
            .watch_where(|watch| {
                watch.thread_id = worker.clone();
                watch.output = output;
            })
            .await
    };
    let mut shown = below(tree.client(), true).await;
    let mut not_asked = below(tree.client(), false).await;
    let mut viewer = below(pair.with_token(VIEWER), true).await;
    for watch in [&mut shown, &mut not_asked, &mut viewer] {
        watch.snapshot().await;
    }

    let output = ThreadOutput {
        thread_id: worker.clone(),
        generation: 1,
        text: String::from("reading the tests"),
    };
    runner.say(ToSupervisor::Output(output)).await;
    let chunk = shown
        .first(|message| match message {
            Message::Output(chunk) => Some(chunk),
            _ => None,
        })
        .await;
    assert_eq!((chunk.thread_id, chunk.generation), (worker.clone(), 1));
    assert_eq!(chunk.text, "reading the tests");

    // The other watchers receive the next event without any output before it.
    runner.complete(&attempt, "done").await;
    for watch in [&mut not_asked, &mut viewer] {
        let next = watch
            .first(|message| match message {
                Message::Output(chunk) => Some(Err(chunk)),
                Message::Event(event) => Some(Ok(event)),
                _ => None,
            })
            .await;
        assert!(next.is_ok(), "{next:?}");
    }
}
