//! Providers that fail.

use serde_json::json;
use troupe_proto::supervisor::v1::StatusKind;
use troupe_tests::{
    agents::{CLAUDE, GEMINI, OPENCODE, are_wanted, message, send, settled, spawn, until},
    tree::kind,
};

use super::{interrupt, lab, tree_of_all};

// ---- providers that fail ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_provider_shows_in_the_activity() {
    if !are_wanted("activity of a failing provider") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in [CLAUDE, OPENCODE, GEMINI] {
        let thread = spawn(&tree, program, &json!([{"error": 429, "message": "slow down"}])).await;
        let activity = until("an activity that names the error", async || {
            let activity = tree.thread(&thread).await.activity;
            activity.starts_with("provider error 429, attempt ").then_some(activity)
        })
        .await;
        assert!(
            activity.ends_with(|last: char| last.is_ascii_digit()),
            "{program}: {activity}"
        );
        interrupt(&tree, &thread).await;
        settled(&tree, &thread).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_progress_end_the_turn() {
    if !are_wanted("the guard of the request rate") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    let thread = spawn(&tree, OPENCODE, &json!([{"garbage": true}])).await;
    let ended = settled(&tree, &thread).await;
    assert_eq!(kind(&ended), StatusKind::Errored);
    let text = message(&ended);
    assert!(text.starts_with("provider request rate: 40 requests in "), "{text}");
    assert!(lab.stand_in.asked_by(OPENCODE).len() < 60, "it goes on asking");
    // Its conversation continues with another program.
    send(&tree, &thread, &json!([{"text": "fine again"}])).await;
    assert_eq!(message(&settled(&tree, &thread).await), "fine again");
}
