//! A thousand watchers of one session, one of which does not read: it delays no other watcher, and no watcher misses an
//! event, not even the slow one.

use std::sync::Arc;

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::{Event, SetThreadNoteRequest, WatchThreadsRequest};
use troupe_tests::{crowd, pair::Pair, tree::Tree, watch::Watch};

/// Those who read.
const READERS: usize = 999;
/// Those of them who stay to the end.
const STAYING: usize = 9;
/// Number of notes after which all reading watchers catch up, so that none of them is ever served from the log.
const NOTES: usize = 50;
/// How often all readers catch up.
const ROUNDS_OF_ALL: usize = 2;
/// Number of rounds of the remaining watchers after that. The notes then exceed the idle stream's window, its outbox
/// and the feed together, so that its next events can only come from the log.
const ROUNDS_OF_FEW: usize = 8;

/// Sets a thread's note so many times, a kibibyte each, and answers the events as the log has them.
async fn notes(tree: &Tree, thread: &str, after: u64) -> Arc<Vec<Event>> {
    let mut client = tree.client();
    for number in 0..NOTES {
        let request = SetThreadNoteRequest {
            thread_id: thread.to_owned(),
            thread_note: format!("{number:0>1000}"),
            ..SetThreadNoteRequest::default()
        };
        client.set_thread_note(request).await.unwrap();
    }
    let events = tree.watch_after(after).await.up_to(after + NOTES as u64).await;
    assert_eq!(events.len(), NOTES);
    Arc::new(events)
}

/// Waits until each watch has read the expected events.
async fn all_read(watches: Vec<Watch>, expected: &Arc<Vec<Event>>) -> Vec<Watch> {
    let mut reading = JoinSet::new();
    for mut watch in watches {
        let expected = Arc::clone(expected);
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
async fn idle_watcher_of_a_thousand_delays_none_and_misses_none() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await.id;
    let begin = tree.head().await;
    let request = WatchThreadsRequest {
        after_sequence: Some(begin),
        ..tree.watch_request()
    };
    let mut idle = Watch::open(&pair.narrow_operator(), request.clone()).await;
    let mut readers = crowd::open(|| pair.operator(), &request, READERS).await;

    let mut log = Vec::new();
    for round in 0..ROUNDS_OF_ALL + ROUNDS_OF_FEW {
        if round == ROUNDS_OF_ALL {
            readers.truncate(STAYING);
        }
        let expected = notes(&tree, &worker, begin + log.len() as u64).await;
        readers = all_read(readers, &expected).await;
        log.extend(expected.iter().cloned());
    }

    // The idle one begins to read only now: from the log, until it is where the others are, and then with them.
    for event in &log {
        assert_eq!(idle.event().await, *event);
    }
    readers.push(idle);
    let expected = notes(&tree, &worker, begin + log.len() as u64).await;
    all_read(readers, &expected).await;
}
