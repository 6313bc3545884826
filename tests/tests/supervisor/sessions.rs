//! Session settings that can change: pause, limits, mode, automatic orchestration; and eviction.

use tonic::{Code, Status};
use troupe_proto::{
    common::v1::{BlockKind, Mode},
    reason::Reason,
    supervisor::v1::{
        Budget, CloseSessionRequest, ConditionKind, CreateSessionRequest, GetThreadRequest, Limits,
        ListActiveAgentsRequest, OnLimit, Orchestration, ResumeAgentRequest, Session, SetThreadNoteRequest,
        SpawnAgentRequest, StatusKind, Turn, UpdateSessionRequest,
    },
};
use troupe_tests::{
    events::{about, names},
    pair::Pair,
    refusal::refused,
    runner::{Attempt, Runner},
    tree::{Tree, has, kind},
    within,
};

async fn update(tree: &Tree, request: UpdateSessionRequest) -> Result<Session, Status> {
    let request = UpdateSessionRequest {
        session_id: tree.session.clone(),
        ..request
    };
    let answer = within("the answer to an update", tree.client().update_session(request)).await?;
    Ok(answer.into_inner().session.unwrap())
}

async fn pause(tree: &Tree, paused: bool) {
    let request = UpdateSessionRequest {
        paused: Some(paused),
        ..UpdateSessionRequest::default()
    };
    assert_eq!(update(tree, request).await.unwrap().paused, paused);
}

fn task(turn: &Turn) -> &str {
    text(turn, BlockKind::Task)
}

fn text(turn: &Turn, kind: BlockKind) -> &str {
    let block = turn.blocks.iter().find(|block| block.kind() == kind);
    &block.expect("the block was sent").text
}

/// The next turn of a thread that its runner has.
async fn next(runner: &mut Runner, attempt: &Attempt) -> (Attempt, Turn) {
    let turn = runner.turn_of(attempt).await;
    let next = Attempt {
        turn: turn.turn,
        ..attempt.clone()
    };
    (next, turn)
}

// ---- pause ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpausing_starts_pending_turns() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(2).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let worker = tree.spawn("worker").await.id;
    let attempt = runner.run(&worker).await;
    tree.send(&worker, "and the tests").await;

    pause(&tree, true).await;
    runner.complete(&attempt, "done").await;
    assert_eq!(
        tree.status(&worker).await,
        StatusKind::Completed,
        "running turns finish"
    );
    refused(
        tree.try_spawn(tree.request("worker")).await,
        Code::FailedPrecondition,
        Reason::SessionPaused,
        "the session is paused",
    );
    pause(&tree, false).await;
    let (second, turn) = next(&mut runner, &attempt).await;
    assert!(task(&turn).contains("and the tests"));
    runner.begin(&second).await;
    runner.complete(&second, "tested").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undispatched_turn_waits_for_end_of_pause() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await.id;
    pause(&tree, true).await;
    let mut runner = Runner::attach(&pair, "r").await;
    // A record after the runner came: it found nothing to do.
    let note = SetThreadNoteRequest {
        thread_id: worker.clone(),
        thread_note: String::from("held"),
        ..SetThreadNoteRequest::default()
    };
    tree.client().set_thread_note(note).await.unwrap();
    let lived = names(&about(&tree.log().await, &worker));
    assert_eq!(lived, ["ThreadSpawned", "NoteSet"]);
    pause(&tree, false).await;
    runner.start_of(&worker).await;
}

// ---- settings ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_their_absent_fields() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(1).await;
    tree.spawn("worker").await;
    let queued = SpawnAgentRequest {
        on_limit: OnLimit::Queue.into(),
        ..tree.request("worker")
    };
    let queued = tree.try_spawn(queued).await.unwrap().thread.unwrap().thread_id;
    let more = UpdateSessionRequest {
        limits: Some(Limits {
            max_threads: Some(2),
            ..Limits::default()
        }),
        ..UpdateSessionRequest::default()
    };
    let before = tree.now().await.limits.unwrap();
    let session = update(&tree, more.clone()).await.unwrap();
    let expected = Limits {
        max_threads: Some(2),
        ..before
    };
    assert_eq!(session.limits, Some(expected));
    assert_eq!(tree.status(&queued).await, StatusKind::PendingInit);

    let head = tree.head().await;
    update(&tree, more.clone()).await.unwrap();
    assert_eq!(tree.head().await, head, "what is so already is not recorded");

    let close = CloseSessionRequest {
        session_id: tree.session.clone(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    tree.client().close_session(close).await.unwrap();
    refused(
        update(&tree, more).await,
        Code::FailedPrecondition,
        Reason::SessionClosed,
        "the session is closed",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_mode_binds_the_prompt_of_the_next_turn() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let worker = tree.spawn("worker").await.id;
    let start = runner.start_of(&worker).await;
    let first = start.turn.as_ref().unwrap();
    assert!(text(first, BlockKind::Mode).contains("IMPLEMENTATION"));
    let attempt = Attempt::of(&start);
    runner.begin(&attempt).await;
    runner.complete(&attempt, "done").await;

    let planning = UpdateSessionRequest {
        mode: Some(Mode::Planning.into()),
        ..UpdateSessionRequest::default()
    };
    assert_eq!(update(&tree, planning).await.unwrap().mode(), Mode::Planning);
    tree.send(&worker, "plan the rest").await;
    let (_, turn) = next(&mut runner, &attempt).await;
    assert!(text(&turn, BlockKind::Mode).starts_with("## Mode: PLANNING"));

    // A session that begins in PLANNING says so from its first prompt on.
    let planned = pair
        .tree_with(CreateSessionRequest {
            mode: Mode::Planning.into(),
            ..CreateSessionRequest::default()
        })
        .await;
    let planner = planned.spawn("worker").await.id;
    let start = runner.start_of(&planner).await;
    assert!(text(start.turn.as_ref().unwrap(), BlockKind::Mode).starts_with("## Mode: PLANNING"));
}

// ---- automatic orchestration ----

async fn orchestrated(pair: &Pair, budget: Option<Budget>) -> Tree {
    pair.tree_with(CreateSessionRequest {
        orchestration: Orchestration::Auto.into(),
        budget,
        ..CreateSessionRequest::default()
    })
    .await
}

/// Sets a note, and answers what has happened to the thread up to there: a turn that it gets by itself would have come
/// before.
async fn lived(tree: &Tree, thread: &str) -> Vec<String> {
    let note = SetThreadNoteRequest {
        thread_id: thread.to_owned(),
        thread_note: String::from("looked at"),
        ..SetThreadNoteRequest::default()
    };
    tree.client().set_thread_note(note).await.unwrap();
    let mut lived = names(&about(&tree.log().await, thread));
    assert_eq!(lived.pop().as_deref(), Some("NoteSet"));
    lived
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loop_goes_on_until_the_mark() {
    let pair = Pair::start().await;
    let tree = orchestrated(&pair, None).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let lead = tree.spawn("orchestrator").await.id;
    let mut attempt = runner.run(&lead).await;
    for round in 2..4 {
        runner.complete(&attempt, &format!("step {round}")).await;
        let (following, turn) = next(&mut runner, &attempt).await;
        assert_eq!(turn.turn, round);
        assert!(
            task(&turn).contains(
                "Auto loop turn: no new inputs. Continue toward the goal or explicitly mark completion/stall."
            )
        );
        runner.begin(&following).await;
        attempt = following;
    }
    // Behind more than the log keeps of a message.
    let last = format!("{}\nTROUPE_COMPLETE", "x".repeat(10_000));
    runner.complete(&attempt, &last).await;
    assert_eq!(lived(&tree, &lead).await.last().unwrap(), "TurnEnded");
    assert_eq!(tree.status(&lead).await, StatusKind::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loop_goes_on_until_the_budget_is_spent() {
    let pair = Pair::start().await;
    let two_turns = Budget {
        turns: 2,
        ..Budget::default()
    };
    let tree = orchestrated(&pair, Some(two_turns)).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let lead = tree.spawn("orchestrator").await.id;
    let attempt = runner.run(&lead).await;
    runner.complete(&attempt, "one").await;
    let (second, _) = next(&mut runner, &attempt).await;
    runner.begin(&second).await;
    runner.complete(&second, "two").await;
    assert_eq!(lived(&tree, &lead).await.last().unwrap(), "TurnEnded");
    assert!(has(&tree.thread(&tree.root).await, ConditionKind::BudgetExhausted));

    // With more budget it continues by itself.
    let three = UpdateSessionRequest {
        budget: Some(Budget {
            turns: 3,
            ..Budget::default()
        }),
        ..UpdateSessionRequest::default()
    };
    update(&tree, three).await.unwrap();
    let (third, turn) = next(&mut runner, &second).await;
    assert_eq!(turn.turn, 3);
    runner.begin(&third).await;
    assert_eq!(tree.status(&lead).await, StatusKind::Running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_auto_nobody_goes_on_by_himself() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let lead = tree.spawn("orchestrator").await.id;
    let attempt = runner.run(&lead).await;
    runner.complete(&attempt, "more to do").await;
    assert_eq!(lived(&tree, &lead).await.last().unwrap(), "TurnEnded");

    let auto = UpdateSessionRequest {
        orchestration: Some(Orchestration::Auto.into()),
        ..UpdateSessionRequest::default()
    };
    update(&tree, auto).await.unwrap();
    next(&mut runner, &attempt).await;
}

// ---- eviction ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_thread_can_be_resumed() {
    let pair = Pair::start().await;
    let tree = pair
        .tree_with(CreateSessionRequest {
            limits: Some(Limits {
                max_open_threads: Some(2),
                ..Limits::default()
            }),
            ..CreateSessionRequest::default()
        })
        .await;
    let mut runner = Runner::attach(&pair, "r").await;
    let first = tree.spawn("worker").await.id;
    let attempt = runner.run(&first).await;
    refused(
        tree.try_spawn(tree.request("worker")).await,
        Code::ResourceExhausted,
        Reason::OpenLimit,
        "open agent thread limit reached (max 2)",
    );
    runner.complete(&attempt, "done").await;

    let second = tree.spawn("worker").await.id;
    assert_eq!(runner.shutdown().await.thread_id, first);
    runner.stop(&attempt).await;
    let evicted = tree.thread(&first).await;
    let status = evicted.status.as_ref().unwrap();
    assert_eq!(kind(&evicted), StatusKind::Shutdown);
    assert!(status.reason.starts_with("EVICTED: "), "{}", status.reason);

    let again = runner.run(&second).await;
    runner.complete(&again, "done too").await;
    let resume = ResumeAgentRequest {
        thread_id: first.clone(),
        ..ResumeAgentRequest::default()
    };
    let resumed = within("a resumed thread", tree.client().resume_agent(resume)).await;
    let resumed = resumed.unwrap().into_inner().thread.unwrap();
    assert_eq!(kind(&resumed), StatusKind::Completed);
    assert!(
        has(&tree.thread(&second).await, ConditionKind::Closing),
        "now the other one goes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_is_read_with_what_is_below_it() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let lead = tree.spawn("worker").await.id;
    let below = tree.spawn_under(&lead, "worker").await.id;
    tree.spawn("worker").await;
    tree.close(&below).await;
    let request = GetThreadRequest {
        thread_id: lead.clone(),
        ..GetThreadRequest::default()
    };
    let answer = tree.client().get_thread(request).await.unwrap().into_inner();
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
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let workers = [tree.spawn("worker").await.id, tree.spawn("worker").await.id];
    let mut page_token = String::new();
    for worker in &workers {
        let request = ListActiveAgentsRequest {
            session_id: tree.session.clone(),
            page_size: 1,
            page_token,
            ..ListActiveAgentsRequest::default()
        };
        let page = within("a page of threads", tree.client().list_active_agents(request)).await;
        let page = page.unwrap().into_inner();
        let listed: Vec<&String> = page.threads.iter().map(|thread| &thread.thread_id).collect();
        assert_eq!(listed, [worker]);
        page_token = page.next_page_token;
        tree.close(worker).await;
    }
    assert_eq!(page_token, "");
}
