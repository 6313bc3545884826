//! Deletion of sessions, their retention, and the maximum size of their content.

use std::time::Duration;

use tonic::{Code, Status};
use troupe_proto::{
    fault::reason_of,
    reason::Reason,
    supervisor::v1::{DeleteSessionRequest, GetSessionRequest, NotificationKind, StatusKind, Webhook},
};
use troupe_tests::{
    pair::{Pair, VIEWER},
    refusal::{illegal_transition, not_permitted, refused},
    runner::Runner,
    tree::{Tree, input},
    within,
};

fn deletion(tree: &Tree, request_id: &str) -> DeleteSessionRequest {
    DeleteSessionRequest {
        request_id: request_id.to_owned(),
        session_id: tree.session.clone(),
    }
}

async fn delete(pair: &Pair, request: DeleteSessionRequest) -> Result<(), Status> {
    within("the answer to a deletion", pair.operator().delete_session(request))
        .await
        .map(drop)
}

/// Returns a webhook that no event of these tests matches.
fn webhook() -> Webhook {
    Webhook {
        url: String::from("https://example.org/hook"),
        kinds: vec![NotificationKind::Stalled.into()],
        secret: String::from("a secret of 19 byte"),
    }
}

async fn session_exists(pair: &Pair, session: &str) -> bool {
    let request = GetSessionRequest {
        session_id: session.to_owned(),
    };
    match within("a session", pair.operator().get_session(request)).await {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(reason_of(&status), Some(Reason::SessionNotFound), "{status:?}");
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_session_leaves_no_data() {
    let mut pair = Pair::start().await;
    let (tree, other) = (pair.tree().await, pair.tree().await);
    let worker = tree.spawn("worker").await;
    let answer = delete(&pair, deletion(&tree, "first")).await;
    illegal_transition(answer, "close it with CloseSession before it is deleted");
    assert!(session_exists(&pair, &tree.session).await);

    let mut watch = tree.watch().await;
    tree.end().await;
    let answer = pair.with_token(VIEWER).delete_session(deletion(&tree, "")).await;
    not_permitted(answer, "");
    delete(&pair, deletion(&tree, "first")).await.unwrap();

    assert!(!session_exists(&pair, &tree.session).await);
    within("the end of the watch", async {
        while watch.next().await.unwrap().is_some() {}
    })
    .await;
    let by_itself = tree.by(pair.with_token(&worker.token));
    let answer = by_itself.try_thread(&worker.id).await;
    refused(answer, Code::Unauthenticated, Reason::Unauthenticated, "");
    let answer = tree.try_thread(&worker.id).await;
    refused(answer, Code::NotFound, Reason::ThreadNotFound, &worker.id);
    assert!(session_exists(&pair, &other.session).await, "others are not deleted");

    // A retry gets the same response, also after a restart. Another request finds no session.
    delete(&pair, deletion(&tree, "first")).await.unwrap();
    pair.restart().await;
    delete(&pair, deletion(&tree, "first")).await.unwrap();
    for request_id in ["", "second"] {
        let answer = delete(&pair, deletion(&tree, request_id)).await;
        refused(answer, Code::NotFound, Reason::SessionNotFound, &tree.session);
    }
    let answer = delete(&pair, deletion(&other, "first")).await;
    refused(answer, Code::AlreadyExists, Reason::RequestIdReused, "first");
    assert!(session_exists(&pair, &other.session).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_kept_for_its_retention() {
    let pair = Pair::start().await;
    let kept_for = async |nanos, webhooks| {
        pair.tree_where(|session| {
            session.retention = Some(prost_types::Duration { seconds: 0, nanos });
            session.webhooks = webhooks;
        })
        .await
    };
    let (now, soon) = (kept_for(0, Vec::new()).await, kept_for(1_000_000, Vec::new()).await);
    // No event matches the webhook, so no notification is pending.
    let told = kept_for(2_000_000, vec![webhook()]).await;
    let (kept, open) = (pair.tree().await, kept_for(0, Vec::new()).await);
    assert_eq!(soon.now().await.retention.unwrap().nanos, 1_000_000);
    for tree in [&now, &soon, &told, &kept] {
        tree.end().await;
    }
    for tree in [&now, &soon, &told] {
        within("the deletion", async {
            while session_exists(&pair, &tree.session).await {}
        })
        .await;
    }
    assert!(session_exists(&pair, &kept.session).await);
    assert!(session_exists(&pair, &open.session).await);
}

/// A passive session is not activated for its deletion, so the session must stay active until it is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_webhooks_is_deleted_in_time() {
    let pair = Pair::with(|config| config.upkeep.idle = Duration::from_millis(20)).await;
    let tree = pair
        .tree_where(|session| {
            session.retention = Some(prost_types::Duration { seconds: 1, nanos: 0 });
            session.webhooks = vec![webhook()];
        })
        .await;
    tree.end().await;
    // No client calls the session before its deletion, because a call would activate the session.
    pair.wait_until_loaded(0).await;
    assert!(!session_exists(&pair, &tree.session).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_content_is_limited_with_a_condition() {
    const PIECE: usize = 100_000;
    let pair = Pair::with(|config| config.session_content_bytes = 300_000).await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let (filled, worker) = (tree.spawn("worker").await, tree.spawn("worker").await);
    let attempt = runner.run(&worker.id).await;

    let mut taken = 0;
    let refusal = loop {
        let piece = format!("{taken}{}", "x".repeat(PIECE));
        match tree.try_send(input(&filled.id, &piece)).await {
            Ok(_) => taken += 1,
            Err(status) => break status,
        }
        assert!(taken < 4, "more content than the session may hold");
    };
    assert!(taken > 0, "{refusal:?}");
    let text = "raise --session-content-bytes";
    refused::<()>(Err(refusal), Code::ResourceExhausted, Reason::LimitExceeded, text);

    // A runner's report is still recorded, and commands without content succeed.
    runner.complete(&attempt, &"y".repeat(PIECE)).await;
    let status = tree.thread(&worker.id).await.status.unwrap();
    assert_eq!(status.kind(), StatusKind::Completed);
    assert_eq!(status.content.unwrap().size, PIECE as u64);
    tree.note(&worker.id, "full").await;
    assert_eq!(tree.thread(&worker.id).await.thread_note, "full");
}
