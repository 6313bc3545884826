//! Ten thousand watchers of one session: each receives every event once and in order. After a restart of the service,
//! all watchers reconnect at the same time and resume at their positions.

use std::sync::Arc;

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::{Event, WatchThreadsRequest};
use troupe_tests::{crowd, pair::Pair, tree::Tree, watch::Watch};

const WATCHERS: usize = 10_000;
/// Number of concurrent calls. A service rejects more than 4,096 calls that wait for a response.
const AT_ONCE: usize = 2_000;
const NOTES: u64 = 5;

/// Opens a stream after a sequence for every watcher.
async fn open(pair: &Pair, tree: &Tree, after: u64) -> Vec<Watch> {
    let request = WatchThreadsRequest {
        after_sequence: Some(after),
        ..tree.watch_request()
    };
    let mut watches = Vec::new();
    while watches.len() < WATCHERS {
        watches.extend(crowd::open(|| pair.operator(), &request, AT_ONCE).await);
    }
    watches
}

/// Causes some events and returns them from the log.
async fn events(tree: &Tree) -> Vec<Event> {
    let head = tree.head().await;
    for number in 0..NOTES {
        tree.note(&tree.root, &number.to_string()).await;
    }
    tree.watch_after(head).await.up_to(head + NOTES).await
}

/// Waits until each watch has read these events.
async fn all_read(watches: Vec<Watch>, expected: Vec<Event>) -> Vec<Watch> {
    let expected = Arc::new(expected);
    let mut reading = JoinSet::new();
    for mut watch in watches {
        let expected = Arc::clone(&expected);
        reading.spawn(async move {
            for event in expected.iter() {
                assert_eq!(watch.event().await, *event);
            }
            watch
        });
    }
    reading.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_watchers_miss_nothing_and_reconnect() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let watches = open(&pair, &tree, tree.head().await).await;
    let watches = all_read(watches, events(&tree).await).await;

    pair.restart().await;
    let tree = tree.by(pair.operator());
    let head = tree.head().await;
    for watch in watches {
        assert_eq!(watch.position_at_drain().await, head);
    }
    let watches = open(&pair, &tree, head).await;
    all_read(watches, events(&tree).await).await;
}
