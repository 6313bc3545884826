//! Closing ten thousand threads at once.

use std::collections::{BTreeMap, BTreeSet};

use supervisor_core::settings::Limits;
use troupe_proto::supervisor::v1::{CloseSessionRequest, StatusKind, event::Kind};
use troupe_tests::{
    events::{assert_whole, closed, statuses},
    pair::Pair,
};

/// The threads of the session are ten to the power of this.
const LEVELS: u32 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_threads_close_children_and_newest_first() {
    let pair = Pair::with(|config| config.limits = Limits::CEILING).await;
    let tree = pair.tree().await;
    tree.grow(LEVELS).await;
    let request = CloseSessionRequest {
        session_id: tree.session.clone(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    let answer = tree.client().close_session(request).await.unwrap().into_inner();
    assert!(answer.session.unwrap().closed);

    let log = tree.log().await;
    assert_whole(&log);
    let threads = 10_usize.pow(LEVELS);
    let statuses = statuses(&log);
    assert_eq!(statuses.len(), threads);
    assert!(statuses.values().all(|status| *status == StatusKind::Shutdown));
    let fences = log
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::CloseRequested(_))));
    assert_eq!(fences.count(), 1, "one record fences the whole tree");

    // Each with its parent, in spawn order.
    let family: Vec<(&str, &str)> = log
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::ThreadSpawned(spawned)) => Some((event.thread_id.as_str(), spawned.parent_thread_id.as_str())),
            _ => None,
        })
        .collect();
    let closed = closed(&log);
    assert_eq!(closed.len(), threads, "each is closed once");
    let places: BTreeMap<&str, usize> = closed.iter().enumerate().map(|(place, id)| (*id, place)).collect();
    for (child, parent) in &family {
        if *child != tree.root {
            assert!(
                places[child] < places[parent],
                "{parent} was closed before its child {child}"
            );
        }
    }

    // A thread without children was ready from the beginning.
    let parents: BTreeSet<&str> = family.iter().map(|(_, parent)| *parent).collect();
    let ready: Vec<&str> = family
        .iter()
        .map(|(child, _)| *child)
        .filter(|child| !parents.contains(child))
        .collect();
    let closed_of_these: Vec<&str> = closed.into_iter().filter(|id| !parents.contains(id)).collect();
    let newest_first: Vec<&str> = ready.into_iter().rev().collect();
    assert!(
        closed_of_these == newest_first,
        "the newest is closed first among those that are ready"
    );
}
