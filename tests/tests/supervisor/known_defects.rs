//! Defects of codex's own sub-agents, reproduced there or reported by its users, that do not occur here. Each test is
//! named after the defect. The number is that of the report, if any.
//!
//! The most frequent requests of users of agent programs, with the tests that show them, as `file::test`. The names are
//! checked.
//!
//! |    | asked for | shown by |
//! |----|-----------|----------|
//! | 1  | a depth limit that cannot be bypassed | `known_defects::codex_46704_the_depth_limit_is_ignored` |
//! | 1  | | `spawning::spawn_below_max_depth_is_rejected` |
//! | 2  | slots freed by settling, right after a crash | `known_defects::codex_22779_finished_agents_keep_their_slots` |
//! | 2  | | `crash::acknowledged_writes_survive_sigkill` |
//! | 3  | a queue instead of a refusal, and known capacity | `known_defects::codex_16183_excess_spawns_are_refused` |
//! | 3  | | `known_defects::codex_12960_capacity_cannot_be_asked_for` |
//! | 3  | | `spawning::queued_threads_are_admitted_in_order` |
//! | 4  | completions never lost | `known_defects::codex_13244_a_completion_is_lost_while_the_parent_is_away` |
//! | 4  | | `known_defects::codex_46120_an_interrupted_child_tells_nobody` |
//! | 4  | | `mail::mail_waits_until_it_is_acknowledged_also_over_a_restart` |
//! | 4  | | `notifications::missed_notifications_are_delivered_after_restart` |
//! | 5  | a watch that survives a disconnect | `watching::a_watch_resumes_from_any_position_with_exactly_the_rest` |
//! | 5  | | `watching::a_slow_watcher_loses_nothing_and_slows_nobody` |
//! | 5  | | `watching::a_position_of_another_log_is_no_position` |
//! | 6  | a stop that stops the subtree | `known_defects::codex_15732_an_interrupt_spares_the_children` |
//! | 6  | | `known_defects::codex_31036_children_spawned_during_a_close_leak` |
//! | 6  | | `closing::cascade_stops_leaves_first_and_starts_nothing` |
//! | 7  | closing, waiting and spawning that never hang | `known_defects::codex_24389_a_close_waits_without_end` |
//! | 7  | | `spawning::a_registry_that_is_away_is_no_verdict` |
//! | 8  | the whole tree back after a crash | `known_defects::codex_22033_a_restart_loses_the_tree` |
//! | 8  | | `known_defects::codex_34220_a_resumed_agent_loses_its_result` |
//! | 8  | | `closing::a_cascade_goes_on_after_a_restart` |
//! | 8  | | `leases::expired_lease_settles_thread_and_clears_unreachable` |
//! | 9  | budgets with a hard stop, of a child and of the tree | `known_defects::codex_12487_a_child_has_no_budget` |
//! | 9  | | `budgets::tokens_that_telemetry_tells_stop_the_turn` |
//! | 9  | | `budgets::wall_time_budget_stops_turn_of_silent_runner` |
//! | 9  | | `budgets::a_session_gives_what_it_has` |
//! | 10 | slow told from dead | `leases::half_a_lease_without_its_runner_puts_a_thread_out_of_reach` |
//! | 10 | | `leases::silence_is_a_stall_until_the_next_word` |
//! | 11 | the tree seen: task, role, model, activity | `known_defects::codex_children_start_unannounced` |
//! | 11 | | `watching::telemetry_comes_beside_the_log` |
//! | 12 | the role and model that were asked for | `known_defects::codex_33268_what_runs_is_not_what_was_asked_for` |
//! | 12 | | `known_defects::codex_26718_a_resumed_agent_forgets_its_model` |
//! | 13 | a child's rights within its parent's | `known_defects::codex_36381_child_rights_exceed_the_parents` |
//! | 13 | approvals that reach somebody | `known_defects::codex_23324_approvals_reach_nobody` |
//! | 13 | | `approvals::spawn_by_project_template_awaits_operator` |
//! | 14 | control from outside, with ownership | `known_defects::codex_34519_nobody_outside_can_execute_a_child` |
//! | 14 | | `known_defects::codex_41834_children_take_no_input` |
//! | 14 | | `subtree::target_outside_subtree_is_indistinguishable_from_unknown` |
//! | 15 | templates: reloaded, diagnosed, pinned | `known_defects::codex_roles_are_neither_reloaded_nor_pinned` |
//! | 15 | | `known_defects::codex_a_malformed_role_is_passed_over` |
//! | 15 | | `watch::changes_on_disk_are_sent_as_differences` |
//! | 15 | | `grpc::unreadable_files_are_diagnosed_and_do_not_affect_others` |

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    slice,
};

use tokio::task::JoinSet;
use tonic::{Code, Status};
use troupe_proto::{
    common::v1::{BlockKind, Sandbox, ValueOrigin},
    reason::Reason,
    supervisor::v1::{
        AuthorizeToolRequest, Budget, CloseAgentRequest, ConditionKind, CreateSessionRequest, DescribeToolsRequest,
        Event, GetQuotaRequest, InterruptAgentRequest, Limits, ListApprovalsRequest, ListMailboxRequest, OnLimit,
        Quota, ResolveApprovalRequest, ResumeAgentRequest, RunnerHello, SendInputRequest, SendInputResponse,
        SpawnAgentRequest, SpawnAgentResponse, StatusKind, Thread, ToolRequest, TurnOutcome, UpdateSessionRequest,
        WakePolicy, WatchThreadsRequest, attach_request::Message as ToSupervisor,
        attach_response::Message as FromSupervisor, event::Kind, mail::Body,
    },
};
use troupe_tests::{
    events::{closed, names, statuses},
    pair::Pair,
    refusal::refused,
    runner::{Attempt, Runner, hello},
    tree::{Spawned, Tree, has, kind},
    watch::Watch,
    within,
};

const TOO_DEEP: &str = "Agent depth limit reached. Solve the task yourself.";

/// How many spawn at once.
const AT_ONCE: usize = 8;

fn depth(max_depth: u32) -> Limits {
    Limits {
        max_depth: Some(max_depth),
        ..Limits::default()
    }
}

fn close(thread: &str) -> CloseAgentRequest {
    CloseAgentRequest {
        thread_id: thread.to_owned(),
        ..CloseAgentRequest::default()
    }
}

fn interrupt(thread: &str) -> InterruptAgentRequest {
    InterruptAgentRequest {
        thread_id: thread.to_owned(),
        ..InterruptAgentRequest::default()
    }
}

fn input(thread: &str) -> SendInputRequest {
    SendInputRequest {
        thread_id: thread.to_owned(),
        message: Some(String::from("go on")),
        ..SendInputRequest::default()
    }
}

async fn spawn(tree: &Tree, request: SpawnAgentRequest) -> Spawned {
    Spawned::of(tree.try_spawn(request).await.unwrap())
}

/// Makes the same spawn from many sides at once.
async fn at_once(tree: &Tree, request: &SpawnAgentRequest) -> Vec<Result<SpawnAgentResponse, Status>> {
    let mut calls = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (tree, request) = (tree.clone(), request.clone());
        calls.spawn(async move { tree.try_spawn(request).await });
    }
    calls.join_all().await
}

async fn send(tree: &Tree, request: SendInputRequest) -> SendInputResponse {
    let answer = within("the answer to an input", tree.client().send_input(request)).await;
    answer.unwrap().into_inner()
}

async fn resume(tree: &Tree, thread: &str) -> Result<Thread, Status> {
    let request = ResumeAgentRequest {
        thread_id: thread.to_owned(),
        ..ResumeAgentRequest::default()
    };
    let answer = within("the answer to a resume", tree.client().resume_agent(request)).await?;
    Ok(answer.into_inner().thread.unwrap())
}

async fn quota(tree: &Tree) -> Quota {
    let request = GetQuotaRequest {
        session_id: tree.session.clone(),
        ..GetQuotaRequest::default()
    };
    let answer = within("a quota", tree.client().get_quota(request)).await;
    answer.unwrap().into_inner().quota.unwrap()
}

/// Whether a thread is offered a tool.
async fn is_offered(tree: &Tree, thread: &str, tool: &str) -> bool {
    let request = DescribeToolsRequest {
        thread_id: thread.to_owned(),
        ..DescribeToolsRequest::default()
    };
    let answer = within("the tools", tree.client().describe_tools(request)).await;
    let tools = answer.unwrap().into_inner().tools;
    tools.iter().any(|described| described.name == tool)
}

/// Whether a thread may use a tool.
async fn may_use(tree: &Tree, thread: &str, tool: &str) -> bool {
    let request = AuthorizeToolRequest {
        thread_id: thread.to_owned(),
        tool: tool.to_owned(),
        arguments_json: String::from("{}"),
        ..AuthorizeToolRequest::default()
    };
    let answer = within("a decision", tree.client().authorize_tool(request)).await;
    answer.unwrap().into_inner().allowed
}

/// Has a new worker below a thread complete a turn.
async fn completed(tree: &Tree, runner: &mut Runner, parent: &str, message: &str) -> Attempt {
    let worker = tree.spawn_under(parent, "worker").await.id;
    let attempt = runner.run(&worker).await;
    runner.complete(&attempt, message).await;
    attempt
}

// ---- bounds ----

/// There: with `max_depth = 1` a chain of five was spawned without an error. Here a thread's depth is absolute and
/// bound on every way in, for every caller (CONTRACT.md §3.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_46704_the_depth_limit_is_ignored() {
    let mut pair = Pair::start().await;
    let mut tree = pair
        .tree_with(CreateSessionRequest {
            limits: Some(depth(1)),
            ..CreateSessionRequest::default()
        })
        .await;
    let child = tree.spawn("orchestrator").await;
    // And once more after a restart.
    for _ in 0..2 {
        let node = SpawnAgentRequest {
            role_template: String::from("orchestrator"),
            ..tree.request_under(&child.id, "")
        };
        let by_itself = tree.by(pair.with_token(&child.token));
        for (by, request) in [
            (&by_itself, tree.request_under(&child.id, "worker")),
            (&tree, tree.request_under(&child.id, "worker")),
            (&tree, node),
        ] {
            refused(
                by.try_spawn(request).await,
                Code::FailedPrecondition,
                Reason::DepthLimit,
                TOO_DEEP,
            );
        }
        pair.restart().await;
        tree = tree.by(pair.operator());
    }
    assert!(is_offered(&tree, &tree.root, "spawn_agent").await);
    assert!(!is_offered(&tree, &child.id, "spawn_agent").await);

    // Opening a closed one again is no way around it.
    let tree = pair.tree().await;
    let parent = tree.spawn("orchestrator").await.id;
    let deep = tree.spawn_under(&parent, "worker").await.id;
    tree.close(&deep).await;
    let lower = UpdateSessionRequest {
        session_id: tree.session.clone(),
        limits: Some(depth(1)),
        ..UpdateSessionRequest::default()
    };
    tree.client().update_session(lower).await.unwrap();
    refused(
        resume(&tree, &deep).await,
        Code::FailedPrecondition,
        Reason::DepthLimit,
        TOO_DEEP,
    );
}

/// There: six completed children fill six slots, and the seventh spawn fails. Here settling frees the slot, and a slot
/// is a function of the threads' states, so a restart counts the same (CONTRACT.md §3.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_22779_finished_agents_keep_their_slots() {
    let mut pair = Pair::start().await;
    let tree = pair.tree_of(2).await;
    let mut runner = Runner::attach(&pair, "r").await;
    for _ in 0..6 {
        completed(&tree, &mut runner, &tree.root, "done").await;
    }
    let counted = quota(&tree).await;
    assert_eq!((counted.active_threads, counted.open_threads), (0, 7));
    pair.restart().await;
    let tree = tree.by(pair.operator());
    assert_eq!(quota(&tree).await, counted);
    for active in 1..=2 {
        tree.spawn("worker").await;
        assert_eq!(quota(&tree).await.active_threads, active);
    }
}

/// There: eight spawns at once, and spawns above the limit fail at once. Here they wait on request, and all get their
/// turn (CONTRACT.md §3.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_16183_excess_spawns_are_refused() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(3).await;
    let request = SpawnAgentRequest {
        on_limit: OnLimit::Queue.into(),
        ..tree.request("worker")
    };
    let answers = at_once(&tree, &request).await;
    let mut positions: Vec<u32> = answers
        .into_iter()
        .map(|answer| answer.unwrap().queue_position)
        .collect();
    positions.sort_unstable();
    assert_eq!(positions, [0, 0, 0, 1, 2, 3, 4, 5]);

    let mut runner = Runner::attach(&pair, "r").await;
    for _ in 0..AT_ONCE {
        let attempt = Attempt::of(&runner.start().await);
        runner.begin(&attempt).await;
        assert!(quota(&tree).await.active_threads <= 3);
        runner.complete(&attempt, "done").await;
    }
    let statuses = statuses(&tree.log().await);
    let completed = statuses.values().filter(|status| **status == StatusKind::Completed);
    assert_eq!(completed.count(), AT_ONCE);
}

/// There: the check before a spawn reserves no slot, and more agents ran than the limit allows. Here as many of the
/// spawns that come at once are admitted as there are slots (STATE.md §3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_41316_more_agents_run_than_the_limit() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(3).await;
    let (admitted, others): (Vec<_>, Vec<_>) = at_once(&tree, &tree.request("worker"))
        .await
        .into_iter()
        .partition(Result::is_ok);
    assert_eq!((admitted.len(), others.len()), (3, AT_ONCE - 3));
    for answer in others {
        refused(
            answer,
            Code::ResourceExhausted,
            Reason::ThreadLimit,
            "agent thread limit reached (max 3)",
        );
    }
    assert_eq!(quota(&tree).await.active_threads, 3);
}

/// There: no caller can query the capacity for a spawn. Here GetQuota returns the use of each limit (API.md).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_12960_capacity_cannot_be_asked_for() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(1).await;
    tree.spawn("worker").await;
    let queued = SpawnAgentRequest {
        on_limit: OnLimit::Queue.into(),
        ..tree.request("worker")
    };
    spawn(&tree, queued).await;
    let quota = quota(&tree).await;
    assert_eq!(quota.limits.unwrap().max_threads, Some(1));
    assert_eq!((quota.active_threads, quota.queued_threads), (1, 1));
    assert_eq!((quota.open_threads, quota.total_threads), (3, 3));
    assert_eq!(quota.remaining_depth, 2);
}

/// There: one pool of tokens for the whole tree, and a child cannot be bounded. Here each child's budget is its own
/// hard stop, and its sibling continues (CONTRACT.md §3.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_12487_a_child_has_no_budget() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let one_turn = Budget {
        turns: 1,
        ..Budget::default()
    };
    let bounded = SpawnAgentRequest {
        budget: Some(one_turn),
        ..tree.request("worker")
    };
    let bounded = spawn(&tree, bounded).await.id;
    let attempt = runner.run(&bounded).await;
    runner.complete(&attempt, "done").await;
    let sibling = completed(&tree, &mut runner, &tree.root, "done").await;

    refused(
        tree.client().send_input(input(&bounded)).await,
        Code::ResourceExhausted,
        Reason::BudgetExhausted,
        "(turns)",
    );
    let thread = tree.thread(&bounded).await;
    assert!(has(&thread, ConditionKind::BudgetExhausted));
    assert_eq!(kind(&thread), StatusKind::Completed, "stopped, not closed");
    send(&tree, input(&sibling.thread)).await;
    assert_eq!(runner.turn_of(&sibling).await.turn, 2);
}

// ---- stopping ----

/// There: the parent is idle, its child still active seconds later. Here an interrupt goes down the whole subtree,
/// whose threads stay open (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_15732_an_interrupt_spares_the_children() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let parent = tree.spawn("orchestrator").await.id;
    let child = tree.spawn_under(&parent, "worker").await.id;
    let beside = tree.spawn("worker").await.id;
    let attempts = [runner.run(&parent).await, runner.run(&child).await];
    runner.run(&beside).await;

    let answer = tree.client().interrupt_agent(interrupt(&parent)).await.unwrap();
    assert_eq!(answer.into_inner().interrupted_thread_ids, [&*parent, &*child]);
    for attempt in &attempts {
        runner.interrupt_of(attempt).await;
        runner.end(attempt, TurnOutcome::Interrupted, "as asked").await;
        assert_eq!(tree.status(&attempt.thread).await, StatusKind::Interrupted);
    }
    assert_eq!(tree.status(&beside).await, StatusKind::Running);
}

/// There: close takes a snapshot of the descendants, and threads that are spawned after it live on. Here a fence comes
/// first: a spawn is rejected or closed with the rest, children before their parent (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_31036_children_spawned_during_a_close_leak() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let parent = tree.spawn("orchestrator").await.id;
    let request = tree.request_under(&parent, "worker");
    let (spawned, _) = tokio::join!(at_once(&tree, &request), tree.close(&parent));
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
    assert_eq!(*last, parent, "leaf first");
    assert_eq!(
        before.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>(),
        children
    );
    let open = tree.threads().await;
    let open = open.iter().filter(|thread| kind(thread) != StatusKind::Shutdown);
    assert_eq!(open.count(), 1, "only the root");
}

/// There: close waits for each agent without a timeout, for hours. Here the cascade has one deadline, and who does not
/// stop is forced, with a reason (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_24389_a_close_waits_without_end() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "silent").await;
    let worker = tree.spawn("worker").await.id;
    runner.run(&worker).await;
    let request = CloseAgentRequest {
        wait: true,
        reason: String::from("enough"),
        deadline: Some(prost_types::Duration {
            seconds: 0,
            nanos: 100_000_000,
        }),
        ..close(&worker)
    };
    let answer = within("the end of a cascade", tree.client().close_agent(request)).await;
    let status = answer.unwrap().into_inner().thread.unwrap().status.unwrap();
    assert_eq!((status.kind(), &*status.reason), (StatusKind::Shutdown, "enough"));
    let log = tree.log().await;
    let is_forced = |event: &Event| matches!(&event.kind, Some(Kind::ThreadClosed(closed)) if closed.forced);
    assert!(log.iter().any(is_forced));
}

/// There: any caller that knows an id can close it, and siblings stop each other. Here a thread acts on itself and its
/// descendants (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_siblings_can_stop_each_other() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let a = tree.spawn("orchestrator").await;
    let b = tree.spawn("orchestrator").await;
    let head = tree.head().await;
    let mut by_a = pair.with_token(&a.token);
    refused(
        by_a.close_agent(close(&b.id)).await,
        Code::PermissionDenied,
        Reason::OutsideSubtree,
        "Not permitted to close agents outside your subtree.",
    );
    refused(
        by_a.interrupt_agent(interrupt(&b.id)).await,
        Code::PermissionDenied,
        Reason::OutsideSubtree,
        "Not permitted to act on agents outside your subtree.",
    );
    assert_eq!(tree.head().await, head);
}

// ---- telling ----

/// There: clients get no `thread/started` for children. Here who watches a thread sees each child of it begin: where it
/// is spawned, given to a runner, and runs (CONTRACT.md §3.7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_children_start_unannounced() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let parent = tree.spawn("orchestrator").await.id;
    runner.run(&parent).await;
    let below = WatchThreadsRequest {
        thread_id: parent.clone(),
        after_sequence: Some(tree.head().await),
        ..WatchThreadsRequest::default()
    };
    let mut watch = Watch::open(&tree.client(), below).await;
    let child = tree.spawn_under(&parent, "worker").await.id;
    runner.run(&child).await;

    let events = watch
        .until(|event| matches!(event.kind, Some(Kind::TurnStarted(_))))
        .await;
    assert_eq!(
        names(&events),
        ["ThreadSpawned", "ThreadPlaced", "TurnDispatched", "TurnStarted"]
    );
    assert!(events.iter().all(|event| event.thread_id == child));
    let Some(Kind::ThreadSpawned(spawned)) = &events[0].kind else {
        panic!("{:?}", events[0])
    };
    assert_eq!((&spawned.parent_thread_id, &*spawned.agent_type), (&parent, "worker"));
}

/// There: a parent that is not loaded is not told, and the completion is gone. Here it is mail, durable until it is
/// acknowledged (CONTRACT.md §3.6).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_13244_a_completion_is_lost_while_the_parent_is_away() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let parent = completed(&tree, &mut runner, &tree.root, "delegated").await;
    let child = completed(&tree, &mut runner, &parent.thread, "the answer").await;
    pair.restart().await;
    let tree = tree.by(pair.operator());
    let request = ListMailboxRequest {
        thread_id: parent.thread.clone(),
        ..ListMailboxRequest::default()
    };
    let mail = tree.client().list_mailbox(request).await.unwrap().into_inner().mail;
    let [letter] = mail.as_slice() else {
        panic!("one letter is expected, not {mail:?}")
    };
    let Some(Body::Settled(settled)) = &letter.body else {
        panic!("{letter:?}")
    };
    assert_eq!(settled.thread_id, child.thread);
    assert_eq!(settled.status.as_ref().unwrap().message, "the answer");
}

/// There: an interrupted child does not notify its parent, and nothing ever begins a turn of the parent. Here every
/// settling is notified, and wakes a parent that requests it (CONTRACT.md §3.6).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_46120_an_interrupted_child_tells_nobody() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let request = SpawnAgentRequest {
        wake_policy: WakePolicy::Always.into(),
        ..tree.request("orchestrator")
    };
    let parent = spawn(&tree, request).await.id;
    let resting = runner.run(&parent).await;
    runner.complete(&resting, "delegated").await;
    let child = tree.spawn_under(&parent, "worker").await.id;
    let attempt = runner.run(&child).await;
    tree.client().interrupt_agent(interrupt(&child)).await.unwrap();
    runner.interrupt_of(&attempt).await;
    runner.end(&attempt, TurnOutcome::Interrupted, "as asked").await;
    assert_eq!(runner.turn_of(&resting).await.turn, 2);
}

/// There: delivery is best effort and not deduplicated, and a submission's id does not prove its delivery. Here a retry
/// is the same input, and the log says which turn consumed it (STATE.md §3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_an_input_is_delivered_twice_or_never() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let attempt = completed(&tree, &mut runner, &tree.root, "done").await;
    let request = SendInputRequest {
        request_id: String::from("once"),
        ..input(&attempt.thread)
    };
    let first = send(&tree, request.clone()).await.input_number;
    assert_eq!(send(&tree, request).await.input_number, first);
    assert_eq!(runner.turn_of(&attempt).await.inputs.len(), 1);
    let log = tree.log().await;
    let consumed: Vec<u32> = log
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::TurnDispatched(dispatched)) if dispatched.turn == 2 => Some(dispatched.inputs.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(consumed, [first]);
}

/// There: a spawn that is tried again is another agent. Here it is the same one (STATE.md §3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_a_retried_spawn_is_another_agent() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let request = SpawnAgentRequest {
        request_id: String::from("once"),
        ..tree.request("worker")
    };
    let answers = at_once(&tree, &request).await;
    let ids: BTreeSet<String> = answers
        .into_iter()
        .map(|answer| Spawned::of(answer.unwrap()).id)
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(tree.threads().await.len(), 2, "the root and one worker");
}

// ---- coming back ----

/// There: a crash between creating a thread and writing its edge loses it, and children come back without their state.
/// Here the tree is the log, and a restart brings all of it back (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_22033_a_restart_loses_the_tree() {
    let mut pair = Pair::start().await;
    let tree = pair.tree_of(1).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let parent = completed(&tree, &mut runner, &tree.root, "delegated").await;
    let running = tree.spawn_under(&parent.thread, "worker").await.id;
    let attempt = runner.run(&running).await;
    let queued = SpawnAgentRequest {
        on_limit: OnLimit::Queue.into(),
        ..tree.request_under(&parent.thread, "worker")
    };
    let queued = spawn(&tree, queued).await.id;
    let before = tree.threads().await;

    pair.restart().await;
    let tree = tree.by(pair.operator());
    assert_eq!(tree.threads().await, before);
    let mut runner = runner.come_back(&pair, slice::from_ref(&attempt)).await;
    runner.complete(&attempt, "done").await;
    let next = runner.run(&queued).await;
    assert_eq!((next.generation, next.turn), (1, 1), "the queue moves up");
}

/// There: a child that is resumed is PendingInit, and what it had said is lost. Here it is as it had settled
/// (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_34220_a_resumed_agent_loses_its_result() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let attempt = completed(&tree, &mut runner, &tree.root, "the answer").await;
    tree.client().close_agent(close(&attempt.thread)).await.unwrap();
    runner.shutdown().await;
    runner.stop(&attempt).await;
    assert_eq!(tree.status(&attempt.thread).await, StatusKind::Shutdown);
    pair.restart().await;
    let tree = tree.by(pair.operator());
    let status = resume(&tree, &attempt.thread).await.unwrap().status.unwrap();
    assert_eq!((status.kind(), &*status.message), (StatusKind::Completed, "the answer"));
}

/// There: model and effort are not restored. Here a resumed thread runs with the values that its spawn fixed
/// (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_26718_a_resumed_agent_forgets_its_model() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let request = SpawnAgentRequest {
        model: String::from("the-one"),
        reasoning_effort: String::from("low"),
        ..tree.request("worker")
    };
    let worker = spawn(&tree, request).await.id;
    tree.close(&worker).await;
    let thread = resume(&tree, &worker).await.unwrap();
    assert_eq!((&*thread.model, &*thread.reasoning_effort), ("the-one", "low"));
    let mut runner = Runner::attach(&pair, "r").await;
    send(&tree, input(&worker)).await;
    let resolved = runner.start_of(&worker).await.resolved.unwrap();
    assert_eq!((&*resolved.model, &*resolved.reasoning_effort), ("the-one", "low"));
}

// ---- roles and rights ----

/// There: role and model of a spawn get lost on the way to the agent. Here the runner is given what was resolved,
/// explicit before persona before role, and each value says where it comes from (CONTRACT.md §2.4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_33268_what_runs_is_not_what_was_asked_for() {
    let pair = Pair::start().await;
    pair.write_role(
        "scout",
        "---\ndescription: Looks around.\nmodel: of-the-role\nreasoning_effort: low\nagent_names:\n  - name: fast\n    \
         description: Looks once.\n    model: of-the-persona\n---\nYou look around.\n\n<!-- agent_name: fast -->\n\
         You look once.\n",
    );
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let request = SpawnAgentRequest {
        agent_name: String::from("fast"),
        reasoning_effort: String::from("high"),
        ..tree.request("scout")
    };
    let scout = spawn(&tree, request).await;
    let start = runner.start_of(&scout.id).await;
    let resolved = start.resolved.unwrap();
    assert_eq!((&*resolved.agent_type, &*resolved.agent_name), ("scout", "fast"));
    assert_eq!(
        (&*resolved.model, &*resolved.reasoning_effort),
        ("of-the-persona", "high")
    );
    assert_eq!(
        (&scout.thread.model, &scout.thread.source),
        (&resolved.model, &resolved.source)
    );
    for (field, origin) in [
        ("model", ValueOrigin::Persona),
        ("reasoning_effort", ValueOrigin::Explicit),
    ] {
        assert_eq!(resolved.origins[field], i32::from(origin), "{field}");
    }
    let turn = start.turn.unwrap();
    let role = turn
        .blocks
        .iter()
        .find(|block| block.kind() == BlockKind::Role)
        .unwrap();
    assert!(role.text.contains("You look once."), "{}", role.text);
}

/// There: a session reads its roles once, and nothing pins them. Here an edited role counts for the next spawn, and a
/// spawn may require the digest of the role that it has read (CONTRACT.md §2.1, §2.4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_roles_are_neither_reloaded_nor_pinned() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    pair.write_role("scout", "---\ndescription: Looks around.\n---\nYou look around.\n");
    let seen = tree.spawn("scout").await.thread.source.unwrap().digest;
    pair.write_role("scout", "---\ndescription: Looks around.\n---\nYou look twice.\n");
    let demanding = SpawnAgentRequest {
        expected_digest: seen.clone(),
        ..tree.request("scout")
    };
    refused(
        tree.try_spawn(demanding).await,
        Code::FailedPrecondition,
        Reason::DigestMismatch,
        "",
    );
    let edited = tree.spawn("scout").await.thread.source.unwrap().digest;
    assert_ne!(edited, seen);
}

/// There: a malformed role is skipped with a warning, and another one with its name takes its place. Here the spawn is
/// rejected with the reason, and other roles continue to work (CONTRACT.md §2.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_a_malformed_role_is_passed_over() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    pair.write_role("worker", "---\ndeny_list: [\n---\nYou work.\n");
    refused(
        tree.try_spawn(tree.request("worker")).await,
        Code::FailedPrecondition,
        Reason::TemplateInvalid,
        "invalid agent template \"worker\": invalid YAML: ",
    );
    tree.spawn("explorer").await;
}

/// There: a child has its parent's permissions or more, and a role cannot list its tools at all. Here a child's tools
/// and sandbox are within its parent's for every role (CONTRACT.md §2.5).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_36381_child_rights_exceed_the_parents() {
    let pair = Pair::start().await;
    pair.write_role(
        "reader",
        "---\ndescription: Reads.\nread_only: true\nallow_list:\n  - spawn_agent\n  - read_file\n---\nYou read.\n",
    );
    let tree = pair.tree().await;
    let alone = tree.spawn("worker").await;
    assert_eq!(alone.thread.sandbox(), Sandbox::WorkspaceWrite);
    assert!(may_use(&tree, &alone.id, "web_search").await);

    let reader = tree.spawn("reader").await;
    let by_reader = tree.by(pair.with_token(&reader.token));
    for by in [&by_reader, &tree] {
        let child = spawn(by, tree.request_under(&reader.id, "worker")).await;
        assert_eq!(child.thread.sandbox(), Sandbox::ReadOnly);
        assert!(may_use(&tree, &child.id, "read_file").await);
        assert!(!may_use(&tree, &child.id, "web_search").await);
    }
}

/// There: a child's approval request is not displayed anywhere, and the child hangs. Here it is a condition that every
/// client sees and an approval that an operator lists and decides (CONTRACT.md §3.4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_23324_approvals_reach_nobody() {
    let pair = Pair::start().await;
    let tree = pair
        .tree_with(CreateSessionRequest {
            approve_tools: vec![String::from("exec_command")],
            ..CreateSessionRequest::default()
        })
        .await;
    let mut runner = Runner::attach(&pair, "r").await;
    let parent = tree.spawn("orchestrator").await.id;
    let child = tree.spawn_under(&parent, "worker").await.id;
    let attempt = runner.run(&child).await;
    let mut watch = tree.watch_after(0).await;
    let question = ToolRequest {
        request_id: String::from("q"),
        thread_id: child.clone(),
        generation: attempt.generation,
        tool: String::from("exec_command"),
        arguments_json: String::from("{}"),
        ..ToolRequest::default()
    };
    runner.say(ToSupervisor::ToolRequest(question)).await;
    watch
        .until(|event| matches!(event.kind, Some(Kind::ApprovalRequested(_))))
        .await;
    assert!(has(&tree.thread(&child).await, ConditionKind::AwaitingToolApproval));

    let pending = ListApprovalsRequest {
        session_id: tree.session.clone(),
        ..ListApprovalsRequest::default()
    };
    let pending = tree.client().list_approvals(pending).await.unwrap().into_inner();
    let [approval] = pending.approvals.as_slice() else {
        panic!("one approval is expected, not {pending:?}")
    };
    assert_eq!(approval.thread_id, child);
    let decision = ResolveApprovalRequest {
        session_id: tree.session.clone(),
        approval_id: approval.approval_id.clone(),
        grant: true,
        ..ResolveApprovalRequest::default()
    };
    tree.client().resolve_approval(decision).await.unwrap();
    let is_allowed = runner
        .next("a decision", |message| match message {
            FromSupervisor::ToolDecision(decision) => Some(decision.allowed),
            _ => None,
        })
        .await;
    assert!(is_allowed);
}

// ---- from outside ----

/// There: an outside client cannot register a child that it executes itself. Here any client attaches as the runner of
/// its own session's threads, and gets no others (API.md).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_34519_nobody_outside_can_execute_a_child() {
    let pair = Pair::start().await;
    let (tree, other) = (pair.tree().await, pair.tree().await);
    let own = RunnerHello {
        session_id: tree.session.clone(),
        ..hello("a client")
    };
    let mut client = Runner::greet(&pair, own).await;
    let not_its_own = other.spawn("worker").await.id;
    let attempt = completed(&tree, &mut client, &tree.root, "from outside").await;
    let thread = tree.thread(&attempt.thread).await;
    assert_eq!(&*thread.runner_id, "a client");
    assert_eq!(thread.status.unwrap().message, "from outside");
    let thread = other.thread(&not_its_own).await;
    assert!(has(&thread, ConditionKind::NoRunner), "{thread:?}");
}

/// There: children refuse input that does not come from their parent. Here whoever may act on a thread sends it input
/// (CONTRACT.md §3.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_41834_children_take_no_input() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let parent = completed(&tree, &mut runner, &tree.root, "delegated").await;
    let child = completed(&tree, &mut runner, &parent.thread, "done").await;
    let answer = send(&tree, input(&child.thread)).await;
    assert_eq!(kind(&answer.thread.unwrap()), StatusKind::PendingInit);
    let turn = runner.turn_of(&child).await;
    let task = turn
        .blocks
        .iter()
        .find(|block| block.kind() == BlockKind::Task)
        .unwrap();
    assert!(task.text.contains("go on"), "{}", task.text);
}

// ---- the table ----

/// Every Rust file below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The texts of the workspace's test files, by their names; files of several crates may have one name.
fn tests() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut tests: BTreeMap<String, String> = BTreeMap::new();
    for member in fs::read_dir(root).unwrap() {
        let member = member.unwrap().path();
        let directory = member.join("tests");
        if !member.join("Cargo.toml").is_file() || !directory.is_dir() {
            continue;
        }
        for path in sources(&directory) {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            *tests.entry(name).or_default() += &fs::read_to_string(&path).unwrap();
        }
    }
    tests
}

#[test]
fn the_table_names_tests_that_exist() {
    let tests = tests();
    let mut wishes = BTreeSet::new();
    for row in include_str!("known_defects.rs").lines() {
        let Some(row) = row.strip_prefix("//! | ") else {
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        // The head has no number.
        let Ok(number) = cells[0].parse::<u32>() else {
            continue;
        };
        let name = cells[2].trim_matches('`');
        let (file, test) = name.split_once("::").unwrap();
        let exists = tests
            .get(file)
            .is_some_and(|text| text.contains(&format!("fn {test}(")));
        assert!(exists, "{name} of row {number} does not exist");
        wishes.insert(number);
    }
    assert_eq!(wishes, (1..=15).collect::<BTreeSet<u32>>());
}
