//! Closing: one fence for the subtree, then each thread after its children. A program may stop by itself before it is
//! killed.

use std::collections::BTreeSet;

use tokio::task::JoinSet;
use tonic::Code;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{ClosePolicy, ConditionKind, Event, StatusKind, event::Kind},
};
use troupe_tests::{
    events::{about, closed, names},
    pair::Pair,
    refusal::refused,
    runner::Attempt,
    tree::{Spawned, Tree, has, input, kind},
};

use crate::attached;

/// Number of concurrent spawns.
const AT_ONCE: usize = 8;

/// Returns whether a thread was closed by force.
fn forced(events: &[Event], thread: &str) -> bool {
    let event = events
        .iter()
        .find_map(|event| match &event.kind {
            Some(Kind::ThreadClosed(closed)) if event.thread_id == thread => Some(closed),
            _ => None,
        })
        .expect("the thread is closed");
    event.forced
}

/// root -> first -> (left, right), root -> second; in this order.
struct Family {
    first: String,
    left: String,
    right: String,
    second: String,
}

impl Family {
    async fn of(tree: &Tree) -> Self {
        let first = tree.spawn("orchestrator").await.id;
        let left = tree.spawn_under(&first, "worker").await.id;
        let right = tree.spawn_under(&first, "worker").await.id;
        let second = tree.spawn("worker").await.id;
        Self {
            first,
            left,
            right,
            second,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cascade_stops_leaves_first_and_starts_nothing() {
    let (_pair, tree, mut runner) = attached().await;
    let family = Family::of(&tree).await;
    let mut attempts = Vec::new();
    for thread in [&family.left, &family.right, &family.first] {
        attempts.push(runner.run(thread).await);
    }
    let [left, right, first] = <[Attempt; 3]>::try_from(attempts).unwrap();

    let answer = tree.begin_close(&family.first).await;
    assert_eq!(answer.status_before.unwrap().kind(), StatusKind::Running);
    assert_eq!(
        kind(&answer.thread.unwrap()),
        StatusKind::Running,
        "the thread is fenced and still running"
    );
    for thread in [&family.first, &family.left] {
        assert!(has(&tree.thread(thread).await, ConditionKind::Closing), "{thread}");
    }
    let answer = tree.try_spawn(tree.request_under(&family.first, "worker")).await;
    let text = &format!("agent with id {} is being closed", family.first);
    refused(answer, Code::FailedPrecondition, Reason::ThreadClosing, text);
    let answer = tree.try_send(input(&family.left, "one thing more")).await;
    let text = "is being closed; nothing new can start in it";
    refused(answer, Code::FailedPrecondition, Reason::ThreadClosing, text);

    let asked = [runner.shutdown().await.thread_id, runner.shutdown().await.thread_id];
    assert_eq!(asked, [right.thread.as_str(), left.thread.as_str()]);
    runner.stop(&left).await;
    assert_eq!(runner.unread_shutdowns(), 0, "one child is still running");
    runner.stop(&right).await;
    assert_eq!(runner.shutdown().await.thread_id, first.thread);
    runner.stop(&first).await;

    assert_eq!(tree.status(&family.first).await, StatusKind::Shutdown);
    assert_eq!(
        tree.status(&family.second).await,
        StatusKind::PendingInit,
        "outside of the fence"
    );
    let log = tree.log().await;
    assert_eq!(closed(&log), [&family.left, &family.right, &family.first]);
    assert!(!forced(&log, &family.first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_runner_is_closed_at_the_deadline() {
    let (_pair, tree, mut runner) = attached().await;
    let parent = tree.spawn("orchestrator").await.id;
    let child = tree.spawn_under(&parent, "worker").await.id;
    runner.run(&parent).await;
    runner.run(&child).await;
    let answer = tree
        .close_where(&parent, |close| {
            close.wait = true;
            close.deadline = Some(prost_types::Duration { seconds: 1, nanos: 0 });
            close.reason = String::from("enough");
        })
        .await;
    let status = answer.thread.unwrap().status.unwrap();
    assert_eq!(
        (status.kind(), status.reason.as_str()),
        (StatusKind::Shutdown, "enough")
    );
    let log = tree.log().await;
    assert_eq!(closed(&log), [&child, &parent]);
    assert!(forced(&log, &child) && forced(&log, &parent));
    // Closing the child took the whole time until the deadline. The parent's program must still be stopped.
    loop {
        let shutdown = runner.shutdown().await;
        if shutdown.thread_id == parent {
            assert_eq!(shutdown.close_policy(), ClosePolicy::Kill);
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_without_deadline_still_sends_stop() {
    let (_pair, tree, mut runner) = attached().await;
    let worker = tree.spawn("worker").await.id;
    runner.run(&worker).await;
    tree.close_where(&worker, |close| close.deadline = Some(prost_types::Duration::default()))
        .await;
    assert_eq!(runner.shutdown().await.thread_id, worker);
}

/// An agent that reports all the time does not delay any close, not even its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steady_traffic_delays_no_deadline() {
    let (_pair, tree, mut runner) = attached().await;
    let (worker, other) = (tree.spawn("worker").await.id, tree.spawn("worker").await.id);
    runner.run(&worker).await;
    let mut traffic = JoinSet::new();
    for number in 0..4 {
        let (tree, other) = (tree.clone(), other.clone());
        traffic.spawn(async move {
            for note in 0_u64.. {
                tree.note(&other, &format!("{number}: {note}")).await;
            }
        });
    }
    let answer = tree
        .close_where(&worker, |close| {
            close.wait = true;
            close.deadline = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        })
        .await;
    assert_eq!(kind(&answer.thread.unwrap()), StatusKind::Shutdown);
    traffic.shutdown().await;
    let log = about(&tree.log().await, &worker);
    let at = |name: &str| {
        let place = names(&log).iter().position(|other| other == name).unwrap();
        log[place].time.unwrap().seconds
    };
    // If traffic delayed the deadline, the close would still happen when the traffic pauses by chance, but later.
    assert!(at("ThreadClosed") - at("CloseRequested") <= 5, "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cascade_continues_after_restart() {
    let (mut pair, tree, mut runner) = attached().await;
    let parent = tree.spawn("orchestrator").await.id;
    let running = tree.spawn_under(&parent, "worker").await.id;
    let settled = tree.spawn_under(&parent, "worker").await.id;
    let parent = runner.run(&parent).await;
    let running = runner.run(&running).await;
    let settled = runner.run(&settled).await;
    runner.complete(&settled, "done").await;
    tree.begin_close(&parent.thread).await;

    let tree = tree.after_restart(&mut pair).await;
    let mut watch = tree.watch_after(0).await;
    let held = [parent.clone(), running.clone(), settled.clone()];
    let mut runner = runner.come_back(&pair, &held).await;
    assert!(runner.welcome().threads.iter().all(|verdict| verdict.go_on));
    // The request for a level may be repeated.
    let mut asked = BTreeSet::new();
    while asked.len() < 2 {
        asked.insert(runner.shutdown().await.thread_id);
    }
    let leaves = [running.thread.clone(), settled.thread.clone()];
    assert_eq!(asked, BTreeSet::from(leaves), "the settled thread is stopped too");
    runner.stop(&running).await;
    runner.stop(&settled).await;
    while runner.shutdown().await.thread_id != parent.thread {}
    runner.stop(&parent).await;

    let events = watch.until_kind_of(&parent.thread, "ThreadClosed").await;
    assert_eq!(closed(&events), [&running.thread, &settled.thread, &parent.thread]);
    for attempt in [&running, &settled, &parent] {
        assert!(!forced(&events, &attempt.thread), "{attempt:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawns_during_a_close_are_closed_or_rejected() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let parent = tree.spawn("orchestrator").await.id;
    let request = tree.request_under(&parent, "worker");
    let (spawned, _) = tokio::join!(tree.try_spawn_concurrently(&request, AT_ONCE), tree.close(&parent));
    let mut children = BTreeSet::new();
    for answer in spawned {
        match answer {
            Ok(spawned) => {
                children.insert(Spawned::of(spawned).id);
            }
            Err(status) => assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}"),
        }
    }
    let log = tree.log().await;
    let closed = closed(&log);
    let (last, before) = closed.split_last().unwrap();
    assert_eq!(*last, parent, "children are closed first");
    assert_eq!(
        before.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>(),
        children
    );
    let open = tree.threads().await;
    let open = open.iter().filter(|thread| kind(thread) != StatusKind::Shutdown);
    assert_eq!(open.count(), 1, "only the root");
}
