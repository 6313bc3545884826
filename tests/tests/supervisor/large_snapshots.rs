//! Snapshots of large trees: parts of at most 256 threads and 512 KiB, which together contain each thread once.

use std::collections::BTreeSet;

use prost::Message as _;
use supervisor_core::settings::Limits;
use troupe_proto::supervisor::v1::{
    Snapshot, StatusKind, Thread, ToolCeiling, WatchThreadsRequest, event::Kind, watch_threads_response::Message,
};
use troupe_tests::{
    pair::Pair,
    tree::{Tree, kind},
    watch::Watch,
};

/// Maximum number of threads in a part.
const PART_THREADS: usize = 256;
/// Maximum size of a part, in bytes.
const PART_BYTES: usize = 512 * 1024;
/// Number of threads with long policies. Fewer than 256 of them fit into a part.
const WORDY: usize = 120;
/// Number of patterns in each spawn: as many as fit into a record, which contains them twice.
const PATTERNS: usize = 40;
/// Size of a pattern, in bytes.
const PATTERN_BYTES: usize = 100;

async fn pair() -> Pair {
    Pair::with(|config| config.limits = Limits::CEILING).await
}

/// Returns the sequence and the parts of the snapshot at the beginning of a watch.
async fn parts(watch: &mut Watch) -> (u64, Vec<Snapshot>) {
    let mut parts: Vec<Snapshot> = Vec::new();
    let mut sequence = None;
    loop {
        let response = watch.next().await.unwrap().expect("the stream continues");
        assert_eq!(*sequence.get_or_insert(response.sequence), response.sequence);
        let Some(Message::Snapshot(part)) = response.message else {
            panic!("expected a part of the snapshot, not {response:?}")
        };
        let is_last = part.last;
        parts.push(part);
        if is_last {
            return (sequence.unwrap(), parts);
        }
    }
}

/// Checks the parts of one snapshot and returns its threads.
fn joined(parts: Vec<Snapshot>, tree: &Tree) -> Vec<Thread> {
    let session = parts[0].session.clone().unwrap();
    assert_eq!(session.session_id, tree.session);
    for (number, part) in parts.iter().enumerate() {
        assert_eq!(part.session.is_some(), number == 0, "the session is in the first part");
        assert!(!part.log_id.is_empty());
        assert_eq!(part.log_id, parts[0].log_id);
        assert!((1..=PART_THREADS).contains(&part.threads.len()));
        assert!(part.encoded_len() <= PART_BYTES, "{} bytes", part.encoded_len());
    }
    let threads: Vec<Thread> = parts.into_iter().flat_map(|part| part.threads).collect();
    let mut seen = BTreeSet::new();
    for thread in &threads {
        let parent = thread.parent_thread_id.as_str();
        assert!(parent.is_empty() || seen.contains(parent), "a parent comes first");
        assert!(seen.insert(thread.thread_id.as_str()), "each thread comes once");
    }
    threads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_of_thousand_threads_has_four_parts() {
    let pair = pair().await;
    let tree = pair.tree().await;
    tree.grow(3).await;
    let all = tree.threads().await;
    assert_eq!(all.len(), 1_000);
    let head = tree.head().await;

    // Snapshots of the session, of the root's subtree, and for a client with a small flow control window.
    let subtree = WatchThreadsRequest {
        thread_id: tree.root.clone(),
        ..WatchThreadsRequest::default()
    };
    for (client, request) in [
        (tree.client(), tree.watch_request()),
        (tree.client(), subtree),
        (pair.narrow_operator(), tree.watch_request()),
    ] {
        let mut watch = Watch::open(&client, request).await;
        let (sequence, parts) = parts(&mut watch).await;
        assert_eq!(sequence, head);
        let sizes: Vec<usize> = parts.iter().map(|part| part.threads.len()).collect();
        assert_eq!(sizes, [256, 256, 256, 232]);
        assert!(joined(parts, &tree) == all, "equal to the response of ListActiveAgents");
    }

    let mut watch = tree.watch().await;
    let (sequence, _) = parts(&mut watch).await;
    let next = tree.spawn("default").await.id;
    let event = watch.event().await;
    assert_eq!((event.sequence, event.thread_id), (sequence + 1, next));
    assert!(matches!(event.kind, Some(Kind::ThreadSpawned(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_parts_are_limited_in_bytes() {
    let pair = pair().await;
    let tree = pair.tree().await;
    let mut wordy = Vec::new();
    for thread in 0..WORDY {
        let pattern = |number| format!("{:x>PATTERN_BYTES$}", format!("-{thread}-{number}"));
        wordy.push(
            tree.spawn_where("worker", |spawn| {
                spawn.permissions = Some(ToolCeiling {
                    allow_list: Vec::new(),
                    deny_list: (0..PATTERNS).map(pattern).collect(),
                });
            })
            .await
            .id,
        );
    }
    // A thread of the first part and a thread of the last part.
    for closed in [&wordy[3], &wordy[WORDY - 3]] {
        tree.close(closed).await;
    }
    let all = tree.threads().await;
    let mut open = all.clone();
    open.retain(|thread| kind(thread) != StatusKind::Shutdown);
    assert_eq!(open.len(), all.len() - 2);

    for (include_closed, expected) in [(false, open), (true, all)] {
        let mut watch = tree.watch_where(|watch| watch.include_closed = include_closed).await;
        let (_, parts) = parts(&mut watch).await;
        assert!(parts.len() > 1, "the snapshot has only one part");
        // Each part is as full as possible: the first thread of the next part did not fit.
        for neighbours in parts.windows(2) {
            let framed = neighbours[1].threads[0].encode_length_delimited_to_vec().len() + 1;
            assert!(neighbours[0].encoded_len() + framed > PART_BYTES);
        }
        assert!(
            joined(parts, &tree) == expected,
            "equal to the response of ListActiveAgents"
        );
    }
}
