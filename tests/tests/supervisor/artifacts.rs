//! Artifacts and content: they are stored completely or not at all, and only authorized callers can read them.

use std::slice;

use prost::bytes::Bytes;
use supervisor_core::ids::Digest;
use tonic::Status;
use troupe_proto::supervisor::v1::{
    Artifact, ArtifactReport, ListArtifactsRequest, ListArtifactsResponse, PolicyGapReport, SpawnAgentRequest,
    ToolRequest, event::Kind, runner_report::Kind as Report,
};
use troupe_tests::{
    client::Supervisor,
    content::read,
    events::about,
    pair::{Pair, VIEWER},
    refusal::{invalid, not_found, not_permitted, outside_subtree},
    runner::{Attempt, Runner},
    tree::{Spawned, Tree},
    within,
};

use crate::working;

const MIB: usize = 1024 * 1024;

/// Returns a report with the complete artifact `log`.
fn piece(data: impl Into<Bytes>) -> ArtifactReport {
    ArtifactReport {
        turn: 1,
        name: String::from("log"),
        kind: String::from("report"),
        media_type: String::from("text/plain"),
        data: data.into(),
        ..ArtifactReport::default()
    }
}

fn first(data: impl Into<Bytes>) -> Report {
    Report::Artifact(ArtifactReport {
        more: true,
        ..piece(data)
    })
}

fn middle(data: impl Into<Bytes>) -> Report {
    Report::Artifact(ArtifactReport {
        append: true,
        more: true,
        ..piece(data)
    })
}

fn last(data: impl Into<Bytes>) -> Report {
    Report::Artifact(ArtifactReport {
        append: true,
        ..piece(data)
    })
}

async fn page(
    client: &Supervisor,
    request: ListArtifactsRequest,
    size: i32,
    token: &str,
) -> Result<ListArtifactsResponse, Status> {
    let request = ListArtifactsRequest {
        page_size: size,
        page_token: token.to_owned(),
        ..request
    };
    let answer = within("a page of artifacts", client.clone().list_artifacts(request)).await?;
    Ok(answer.into_inner())
}

fn of_thread(thread: &str) -> ListArtifactsRequest {
    ListArtifactsRequest {
        thread_id: thread.to_owned(),
        ..ListArtifactsRequest::default()
    }
}

fn sum(artifact: &Artifact) -> &str {
    &artifact.content.as_ref().unwrap().digest
}

/// Returns the content of the only artifact of a thread.
async fn only_content(tree: &Tree, thread: &str) -> Vec<u8> {
    let found = tree.artifacts(thread).await;
    let [artifact] = &found[..] else {
        panic!("expected one artifact, not {found:?}");
    };
    let bytes = read(&tree.client(), &tree.session, sum(artifact)).await.unwrap();
    assert_eq!(sum(artifact), Digest::of(&bytes).to_string());
    assert_eq!(artifact.content.as_ref().unwrap().size, bytes.len() as u64);
    bytes
}

/// Waits until the supervisor has read all earlier messages of the runner. For this purpose, the runner sends a request
/// for a tool call, which does not interrupt the pieces of an artifact.
async fn wait_until_read(runner: &mut Runner, attempt: &Attempt) {
    let call = ToolRequest {
        request_id: String::from("heard"),
        thread_id: attempt.thread.clone(),
        generation: attempt.generation,
        tool: String::from("read_file"),
        ..ToolRequest::default()
    };
    runner.ask(call).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifact_of_one_report_is_stored_with_its_turn() {
    let (_pair, tree, mut runner, worker, attempt) = working().await;
    // The acknowledgement keeps the runner from sending an artifact of an unknown turn again.
    for turn in [0, 2, u32::MAX] {
        let made = ArtifactReport { turn, ..piece("never") };
        runner.report(&attempt, Report::Artifact(made)).await;
    }
    runner.report(&attempt, Report::Artifact(piece("found it"))).await;

    let found = tree.artifacts(&worker).await;
    assert_eq!(found.len(), 1);
    let artifact = &found[0];
    assert_eq!((&artifact.thread_id, artifact.turn), (&worker, 1));
    assert_eq!(
        [&artifact.name, &artifact.kind, &artifact.media_type],
        ["log", "report", "text/plain"]
    );
    assert_eq!(artifact.artifact_id.len(), 36);
    assert!(artifact.create_time.is_some());
    assert_eq!(only_content(&tree, &worker).await, b"found it");

    // An empty artifact is stored too. Its names are cleaned, and truncated at a character boundary.
    let long = ArtifactReport {
        name: format!(" a\u{1b}[31m{}\n", "é".repeat(200)),
        kind: "k".repeat(100),
        media_type: "m\u{0}".repeat(200),
        ..piece("")
    };
    runner.report(&attempt, Report::Artifact(long)).await;
    let empty = tree.artifacts(&worker).await.pop().unwrap();
    assert_eq!(read(&tree.client(), &tree.session, sum(&empty)).await.unwrap(), b"");
    assert_eq!(empty.name, format!("a[31m{}", "é".repeat(125)), "at most 256 bytes");
    assert_eq!((empty.kind, empty.media_type), ("k".repeat(64), "m".repeat(128)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reattached_runner_resends_every_piece() {
    let (pair, tree, mut runner, worker, attempt) = working().await;
    runner.send_report(&attempt, 2, first("one, ")).await;
    runner.send_report(&attempt, 3, middle("two, ")).await;
    wait_until_read(&mut runner, &attempt).await;
    assert!(
        tree.artifacts(&worker).await.is_empty(),
        "an incomplete artifact is not stored"
    );

    let mut runner = runner.come_back(&pair, slice::from_ref(&attempt)).await;
    let verdict = &runner.welcome().threads[0];
    assert_eq!((verdict.go_on, verdict.applied_report_sequence), (true, 1));
    runner.send_report(&attempt, 2, first("one, ")).await;
    runner.send_report(&attempt, 3, middle("two, ")).await;
    runner.report_as(&attempt, 4, last("three")).await;
    assert!(
        runner.unread_acks(&attempt).is_empty(),
        "the last acknowledgement covers all pieces"
    );
    assert_eq!(only_content(&tree, &worker).await, b"one, two, three");
    let log = about(&tree.log().await, &worker);
    let recorded = log.iter().filter_map(|event| match &event.kind {
        Some(Kind::ArtifactRecorded(artifact)) => Some(artifact.report_sequence),
        _ => None,
    });
    assert_eq!(recorded.collect::<Vec<_>>(), [4]);

    // An acknowledged part that is sent again is void.
    runner.send_report(&attempt, 2, first("one, ")).await;
    runner.send_report(&attempt, 3, middle("two, ")).await;
    runner.report_as(&attempt, 4, last("three")).await;
    assert_eq!(tree.artifacts(&worker).await.len(), 1);

    // The last piece alone creates no artifact if the earlier pieces were sent on another stream.
    runner.send_report(&attempt, 5, first("four, ")).await;
    wait_until_read(&mut runner, &attempt).await;
    let mut runner = runner.come_back(&pair, slice::from_ref(&attempt)).await;
    runner.report_as(&attempt, 6, last("five")).await;
    assert_eq!(tree.artifacts(&worker).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_report_discards_unfinished_artifact() {
    let (_pair, tree, mut runner, worker, attempt) = working().await;
    let gap = PolicyGapReport {
        gap: String::from("it may write"),
    };
    runner.send_report(&attempt, 2, first("one, ")).await;
    runner.report_as(&attempt, 3, Report::PolicyGap(gap)).await;
    runner.report_as(&attempt, 4, last("two")).await;
    assert!(tree.artifacts(&worker).await.is_empty());

    // Another artifact also discards the unfinished one.
    runner.send_report(&attempt, 5, first("one, ")).await;
    runner.report_as(&attempt, 6, Report::Artifact(piece("another"))).await;
    runner.report_as(&attempt, 7, last("two")).await;
    assert_eq!(only_content(&tree, &worker).await, b"another");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifact_above_16_mib_is_dropped() {
    let (_pair, tree, mut runner, worker, attempt) = working().await;
    let part = |number: u8| Bytes::from(vec![number; 2 * MIB]);

    runner.send_report(&attempt, 2, first(part(1))).await;
    for number in 2..8 {
        runner
            .send_report(&attempt, u64::from(number) + 1, middle(part(number)))
            .await;
    }
    runner.report_as(&attempt, 9, last(part(8))).await;
    let whole = (1..=8).map(part).collect::<Vec<_>>().concat();
    assert!(only_content(&tree, &worker).await == whole, "all 16 MiB, in order");

    runner.send_report(&attempt, 10, first(part(1))).await;
    for number in 2..=8 {
        runner
            .send_report(&attempt, u64::from(number) + 9, middle(part(number)))
            .await;
    }
    // The part is void, not rejected: the runner drops it and continues.
    runner.report_as(&attempt, 18, last("x")).await;
    runner
        .report_as(&attempt, 19, Report::Artifact(piece("the next")))
        .await;
    let found = tree.artifacts(&worker).await;
    let sizes: Vec<u64> = found
        .iter()
        .map(|artifact| artifact.content.as_ref().unwrap().size)
        .collect();
    assert_eq!(sizes, [16 * MIB as u64, 8]);
}

/// Two branches of threads. Each thread has an artifact with the thread's name.
struct Branches {
    tree: Tree,
    a: Spawned,
    child: Spawned,
    b: Spawned,
    runner: Runner,
    attempt_of_child: Attempt,
}

impl Branches {
    async fn of(pair: &Pair) -> Self {
        let tree = pair.tree().await;
        let mut runner = Runner::attach(pair, "r").await;
        let a = tree.spawn("orchestrator").await;
        let request = SpawnAgentRequest {
            message: Some(String::from("the child's own task")),
            ..tree.request_under(&a.id, "worker")
        };
        let child = tree.spawn_with(request).await;
        let b = tree.spawn("orchestrator").await;
        let mut attempts = Vec::new();
        for (thread, name) in [(&a, "a"), (&child, "child"), (&b, "b")] {
            let attempt = runner.run(&thread.id).await;
            let made = ArtifactReport {
                name: name.to_owned(),
                ..piece(format!("made by {name}"))
            };
            runner.report(&attempt, Report::Artifact(made)).await;
            attempts.push(attempt);
        }
        Self {
            tree,
            a,
            child,
            b,
            runner,
            attempt_of_child: attempts.swap_remove(1),
        }
    }
}

fn names(artifacts: &[Artifact]) -> Vec<&str> {
    artifacts.iter().map(|artifact| artifact.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_are_listed_within_the_subtree() {
    let pair = Pair::start().await;
    let Branches { tree, a, child, b, .. } = Box::pin(Branches::of(&pair)).await;
    let (by_a, by_b) = (pair.with_token(&a.token), pair.with_token(&b.token));
    let all = ListArtifactsRequest::default;
    let of_session = || ListArtifactsRequest {
        session_id: tree.session.clone(),
        ..ListArtifactsRequest::default()
    };

    for client in [tree.client(), pair.with_token(VIEWER)] {
        let found = page(&client, of_session(), 0, "").await.unwrap();
        assert_eq!(names(&found.artifacts), ["a", "child", "b"]);
        assert_eq!(found.next_page_token, "");
        let found = page(&client, of_thread(&a.id), 0, "").await.unwrap().artifacts;
        assert_eq!(names(&found), ["a"], "artifacts of the thread itself");
    }
    assert_eq!(
        names(&page(&by_a, all(), 0, "").await.unwrap().artifacts),
        ["a", "child"]
    );
    assert_eq!(names(&page(&by_b, all(), 0, "").await.unwrap().artifacts), ["b"]);
    assert_eq!(
        names(&page(&by_a, of_thread(&child.id), 0, "").await.unwrap().artifacts),
        ["child"]
    );

    let one = page(&by_a, all(), 1, "").await.unwrap();
    let other = page(&by_a, all(), 1, &one.next_page_token).await.unwrap();
    assert_eq!(
        (names(&one.artifacts), names(&other.artifacts)),
        (vec!["a"], vec!["child"])
    );
    let answer = page(&by_b, all(), 1, &one.next_page_token).await;
    invalid(answer, "start again without it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_readable_only_within_the_subtree() {
    let pair = Pair::start().await;
    let Branches {
        tree,
        a,
        child,
        b,
        mut runner,
        attempt_of_child,
    } = Box::pin(Branches::of(&pair)).await;
    let message = "é".repeat(5_000);
    runner.complete(&attempt_of_child, &message).await;
    let (by_a, by_b) = (pair.with_token(&a.token), pair.with_token(&b.token));
    let (operator, viewer) = (tree.client(), pair.with_token(VIEWER));

    let made = tree.artifacts(&child.id).await;
    let log = about(&tree.log().await, &child.id);
    let input = log.iter().find_map(|event| match &event.kind {
        Some(Kind::ThreadSpawned(spawned)) => spawned.input.as_ref(),
        _ => None,
    });
    let status = tree.thread(&child.id).await.status.unwrap();
    let of_child = [
        (sum(&made[0]), true),
        (input.unwrap().digest.as_str(), false),
        (status.content.as_ref().unwrap().digest.as_str(), false),
    ];
    for (digest, is_artifact) in of_child {
        let whole = read(&operator, &tree.session, digest).await.unwrap();
        assert_eq!(read(&by_a, "", digest).await.unwrap(), whole);
        let answer = read(&by_b, "", digest).await;
        not_found(answer, &format!("content {digest} not found"));
        let answer = read(&viewer, &tree.session, digest).await;
        if is_artifact {
            assert_eq!(answer.unwrap(), whole);
        } else {
            let text = "viewers read the contents of artifacts only";
            not_permitted(answer, text);
        }
    }
    let digest = of_child[2].0;
    assert_eq!(read(&by_a, &tree.session, digest).await.unwrap(), message.as_bytes());

    // A caller without permission gets the same answer for existing and missing content.
    let nothing = "0".repeat(64);
    for client in [&operator, &viewer, &by_a, &by_b] {
        let answer = read(client, &tree.session, &nothing).await;
        not_found(answer, &format!("content {nothing} not found"));
    }
    // Content belongs to its session.
    let elsewhere = pair.tree().await;
    let answer = read(&elsewhere.client(), &elsewhere.session, digest).await;
    not_found(answer, "not found");
    let answer = read(&by_a, &elsewhere.session, digest).await;
    outside_subtree(answer, "outside your subtree");
    for malformed in [String::new(), "0".repeat(63), "g".repeat(64), "A".repeat(64)] {
        let answer = read(&by_a, "", &malformed).await;
        let text = "expected a SHA-256 of 64 lower-case hexadecimal digits";
        invalid(answer, text);
    }
}
