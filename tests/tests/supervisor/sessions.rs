//! Session settings that can change: pause, limits, mode, automatic orchestration; and eviction.

use troupe_proto::{
    common::v1::{BlockKind, Mode},
    supervisor::v1::{Budget, Limits, ListActiveAgentsRequest, OnLimit, Orchestration, StatusKind},
};
use troupe_tests::{
    accepted,
    pair::Pair,
    runner::{Runner, task, text},
    tree::Tree,
};

use crate::{attached, started};

async fn pause(tree: &Tree, paused: bool) {
    let session = tree.update(|session| session.paused = Some(paused)).await;
    assert_eq!(session.paused, paused);
}

// ---- pause ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_before_dispatch_waits_for_end_of_pause() {
    let (pair, tree) = started().await;
    let worker = tree.spawn("worker").await.id;
    pause(&tree, true).await;
    let mut runner = Runner::attach(&pair, "r").await;
    // The note is recorded after the runner attached, so the runner has received no turn.
    tree.note(&worker, "held").await;
    assert_eq!(tree.event_names(&worker).await, ["ThreadSpawned", "NoteSet"]);
    pause(&tree, false).await;
    runner.start_of(&worker).await;
}

// ---- settings ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absent_limit_fields_stay_unchanged() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(1).await;
    tree.spawn("worker").await;
    let queued = tree
        .spawn_where("worker", |spawn| spawn.on_limit = OnLimit::Queue.into())
        .await
        .id;
    let two = |rest| Limits {
        max_threads: Some(2),
        ..rest
    };
    let before = tree.now().await.limits.unwrap();
    let session = tree
        .update(|session| session.limits = Some(two(Limits::default())))
        .await;
    assert_eq!(session.limits, Some(two(before)));
    assert_eq!(tree.status(&queued).await, StatusKind::PendingInit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mode_change_applies_to_prompt_of_next_turn() {
    let (pair, tree, mut runner) = attached().await;
    let worker = tree.spawn("worker").await.id;
    let start = runner.start_of(&worker).await;
    let first = start.turn.as_ref().unwrap();
    assert!(text(first, BlockKind::Mode).contains("IMPLEMENTATION"));
    assert_eq!(first.docs_directory, "");
    let attempt = runner.begin_start(&start).await;
    runner.complete(&attempt, "done").await;

    let planning = tree.update(|session| session.mode = Some(Mode::Planning.into())).await;
    assert_eq!(planning.mode(), Mode::Planning);
    tree.send(&worker, "plan the rest").await;
    let turn = runner.turn_of(&attempt).await;
    assert!(text(&turn, BlockKind::Mode).starts_with("## Mode: PLANNING"));
    assert_eq!(turn.docs_directory, format!("{}/docs", pair.project()));
    let planned = pair.tree_where(|session| session.mode = Mode::Planning.into()).await;
    let start = runner.start_of(&planned.spawn("worker").await.id).await;
    let first = start.turn.unwrap();
    assert!(text(&first, BlockKind::Mode).starts_with("## Mode: PLANNING"));
    assert_eq!(first.docs_directory, format!("{}/docs", pair.project()));
}

// ---- automatic orchestration ----

async fn orchestrated(pair: &Pair, budget: Option<Budget>) -> Tree {
    pair.tree_where(|session| {
        session.orchestration = Orchestration::Auto.into();
        session.budget = budget;
    })
    .await
}

/// Sets a note and returns the names of the thread's earlier events. An automatic turn would be among them.
async fn event_names(tree: &Tree, thread: &str) -> Vec<String> {
    tree.note(thread, "checked").await;
    let mut event_names = tree.event_names(thread).await;
    assert_eq!(event_names.pop().as_deref(), Some("NoteSet"));
    event_names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_loop_continues_until_completion_mark() {
    let pair = Pair::start().await;
    let tree = orchestrated(&pair, None).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let lead = tree.spawn("orchestrator").await.id;
    let mut attempt = runner.run(&lead).await;
    for round in 2..4 {
        runner.complete(&attempt, &format!("step {round}")).await;
        let turn = runner.next_turn(&mut attempt).await;
        assert_eq!(turn.turn, round);
        assert!(
            task(&turn).contains(
                "Auto loop turn: no new inputs. Continue toward the goal or explicitly mark completion/stall."
            )
        );
    }
    // The mark comes after more text than the log keeps of a message.
    let last = format!("{}\nTROUPE_COMPLETE", "x".repeat(10_000));
    runner.complete(&attempt, &last).await;
    assert_eq!(event_names(&tree, &lead).await.last().unwrap(), "TurnEnded");
    assert_eq!(tree.status(&lead).await, StatusKind::Completed);
}

// ---- eviction ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_can_be_read_with_its_subtree() {
    let (_pair, tree) = started().await;
    let lead = tree.spawn("worker").await.id;
    let below = tree.spawn_under(&lead, "worker").await.id;
    tree.spawn("worker").await;
    tree.close(&below).await;
    let answer = tree.try_thread(&lead).await.unwrap();
    let counted: Vec<(StatusKind, u32)> = answer
        .roll_up
        .unwrap()
        .threads
        .iter()
        .map(|counted| (counted.kind(), counted.count))
        .collect();
    assert_eq!(counted, [(StatusKind::PendingInit, 1), (StatusKind::Shutdown, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_pages_are_stable_while_threads_close() {
    let (_pair, tree) = started().await;
    let workers = [tree.spawn("worker").await.id, tree.spawn("worker").await.id];
    let mut page_token = String::new();
    for worker in &workers {
        let request = ListActiveAgentsRequest {
            session_id: tree.session.clone(),
            page_size: 1,
            page_token,
            ..ListActiveAgentsRequest::default()
        };
        let page = accepted("a page of threads", tree.client().list_active_agents(request)).await;
        let listed: Vec<&String> = page.threads.iter().map(|thread| &thread.thread_id).collect();
        assert_eq!(listed, [worker]);
        page_token = page.next_page_token;
        tree.close(worker).await;
    }
    assert_eq!(page_token, "");
}
