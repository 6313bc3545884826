//! Checks that a view that begins with a snapshot is equal to the view of the whole log.

use std::collections::HashMap;

use tokio::sync::watch::Receiver;
use tokio_util::task::AbortOnDropHandle;
use troupe_proto::supervisor::v1::{
    ApprovalDecision, Budget, CloseAgentRequest, CreateSessionRequest, GetThreadRequest, InterruptAgentRequest, Limits,
    ListApprovalsRequest, OnLimit, ResolveApprovalRequest, ResumeAgentRequest, SendInputRequest, SpawnAgentRequest,
    StatusKind, Thread, TurnEndedReport, TurnOutcome, UpdateSessionRequest, UpdateThreadBudgetRequest, Usage,
    WatchThreadsRequest, attach_response::Message as FromSupervisor, deliver_input::Delivery, runner_report::Kind,
};
use troupe_tests::{
    client::Supervisor,
    pair::Pair,
    rng::Rng,
    runner::{Attempt, Runner},
    tree::Tree,
    watch::Watch,
};

use super::SessionView;
use crate::ui;

/// Number of random steps in a session. After each step, another watch begins.
const STEPS: u64 = 60;

/// Runs turns: most end at once, the others run until they are interrupted or closed.
async fn work(mut runner: Runner, seed: u64) {
    let mut rng = Rng::new(seed, "runner");
    let mut held: HashMap<String, Attempt> = HashMap::new();
    loop {
        let attempt = match runner.next("a message", |message| Some(message.clone())).await {
            FromSupervisor::StartThread(start) => Attempt::of(&start),
            FromSupervisor::DeliverInput(input) => match input.delivery {
                Some(Delivery::Turn(turn)) => Attempt {
                    thread: input.thread_id,
                    generation: input.generation,
                    turn: turn.turn,
                },
                _ => continue,
            },
            FromSupervisor::Interrupt(interrupt) => {
                if let Some(attempt) = held.remove(&interrupt.thread_id) {
                    runner.end(&attempt, TurnOutcome::Interrupted, "").await;
                }
                continue;
            }
            FromSupervisor::Shutdown(shutdown) => {
                held.remove(&shutdown.thread_id);
                let attempt = Attempt {
                    thread: shutdown.thread_id,
                    generation: shutdown.generation,
                    turn: 0,
                };
                runner.stop(&attempt).await;
                continue;
            }
            _ => continue,
        };
        runner.begin(&attempt).await;
        let (outcome, message) = match rng.below(6) {
            0 => {
                held.insert(attempt.thread.clone(), attempt);
                continue;
            }
            1 => (TurnOutcome::Errored, "it broke".to_owned()),
            // Equal outputs of consecutive turns cause the condition STALLED.
            2 | 3 => (TurnOutcome::Completed, "the same".to_owned()),
            _ => (TurnOutcome::Completed, format!("result {}", rng.number())),
        };
        let ended = TurnEndedReport {
            turn: attempt.turn,
            outcome: outcome.into(),
            message,
            usage: Some(Usage {
                input_tokens: rng.below(1_000) * u64::from(attempt.turn),
                output_tokens: 7 * u64::from(attempt.turn),
                turns: attempt.turn,
                ..Usage::default()
            }),
            ..TurnEndedReport::default()
        };
        runner.report(&attempt, Kind::TurnEnded(ended)).await;
    }
}

/// Makes a random call. A rejected call is not an error.
async fn step(tree: &Tree, rng: &mut Rng) {
    let mut client = tree.client();
    let threads = tree.threads().await;
    let thread = &threads[usize::try_from(rng.below(threads.len() as u64)).unwrap()];
    let thread_id = thread.thread_id.clone();
    let is_root = thread.depth == 0;
    match rng.below(12) {
        0..5 => {
            let parent = if thread.depth < 2 { &thread_id } else { &tree.root };
            let request = SpawnAgentRequest {
                on_limit: OnLimit::Queue.into(),
                ..tree.request_under(parent, "worker")
            };
            let _ = tree.try_spawn(request).await;
        }
        5 if !is_root => {
            let request = SendInputRequest {
                thread_id,
                message: Some("more".to_owned()),
                on_limit: OnLimit::Queue.into(),
                ..SendInputRequest::default()
            };
            let _ = client.send_input(request).await;
        }
        6 => {
            let request = InterruptAgentRequest {
                thread_id,
                ..InterruptAgentRequest::default()
            };
            let _ = client.interrupt_agent(request).await;
        }
        7 => tree.note(&thread_id, &format!("note {}", rng.number())).await,
        8 => {
            let request = UpdateThreadBudgetRequest {
                thread_id,
                budget: Some(Budget {
                    tokens: 1_000 + rng.below(5_000),
                    ..Budget::default()
                }),
                ..UpdateThreadBudgetRequest::default()
            };
            let _ = client.update_thread_budget(request).await;
        }
        9 if !is_root => {
            let request = CloseAgentRequest {
                thread_id,
                wait: rng.one_in(2),
                ..CloseAgentRequest::default()
            };
            let _ = client.close_agent(request).await;
        }
        10 => {
            let request = ResumeAgentRequest {
                thread_id,
                ..ResumeAgentRequest::default()
            };
            let _ = client.resume_agent(request).await;
        }
        _ => {
            let request = UpdateSessionRequest {
                session_id: tree.session.clone(),
                paused: Some(rng.one_in(8)),
                ..UpdateSessionRequest::default()
            };
            let _ = client.update_session(request).await;
        }
    }
    if rng.one_in(3) {
        let request = ListApprovalsRequest {
            session_id: tree.session.clone(),
            ..ListApprovalsRequest::default()
        };
        let approvals = client.list_approvals(request).await.unwrap().into_inner().approvals;
        if let Some(approval) = approvals.first() {
            let request = ResolveApprovalRequest {
                session_id: tree.session.clone(),
                approval_id: approval.approval_id.clone(),
                grant: rng.one_in(2),
                ..ResolveApprovalRequest::default()
            };
            let _ = client.resolve_approval(request).await;
        }
    }
}

/// Reads a watch up to the event whose number `head` receives, and returns the resulting view.
async fn view_of(mut client: Supervisor, mut watch: Watch, mut head: Receiver<Option<u64>>) -> SessionView {
    let mut view = SessionView::default();
    loop {
        let is_at_end = head.borrow_and_update().is_some_and(|head| watch.position() >= head);
        if is_at_end && view.session().is_some() {
            break;
        }
        // The watch is read all the time, because an unread watch would use up the flow control window of the
        // connection, which all watches share.
        tokio::select! {
            message = watch.next() => view.apply(&message.unwrap().unwrap()),
            _ = head.changed() => {}
        }
    }
    for thread_id in view.take_unclear().threads {
        let request = GetThreadRequest {
            thread_id,
            ..GetThreadRequest::default()
        };
        let thread = client.get_thread(request).await.unwrap().into_inner().thread;
        view.put_read_thread(thread.unwrap());
    }
    view
}

/// Returns the threads with only those properties that events contain.
fn comparable(view: &SessionView) -> Vec<Thread> {
    let threads = view.threads().iter().map(|thread| {
        let mut thread = thread.clone();
        thread.queue_position = 0;
        thread.subtree_usage = None;
        thread.result = None;
        thread.child_thread_ids.clear();
        for usage in [&mut thread.usage, &mut thread.earlier_usage].into_iter().flatten() {
            usage.wall_time = None;
        }
        thread.usage.get_or_insert_default();
        thread.earlier_usage.get_or_insert_default();
        if ui::status_of(&thread) == StatusKind::Shutdown {
            // A closed thread has no turn to interrupt, and a snapshot does not have its last message.
            thread.turn = 0;
            thread.status.get_or_insert_default().message.clear();
        }
        thread
    });
    threads.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_and_later_events_match_whole_log() {
    for seed in 0..3 {
        let pair = Pair::start().await;
        let tree = pair
            .tree_with(CreateSessionRequest {
                limits: Some(Limits {
                    max_threads: Some(3),
                    ..Limits::default()
                }),
                approve_tools: vec!["spawn_agent".to_owned()],
                ..CreateSessionRequest::default()
            })
            .await;
        let runner = Runner::attach(&pair, "runner").await;
        let _working = AbortOnDropHandle::new(tokio::spawn(work(runner, seed)));
        let mut rng = Rng::new(seed, "operator");
        let operator = pair.operator();
        let watch = |after_sequence| {
            let request = WatchThreadsRequest {
                include_closed: true,
                after_sequence,
                ..tree.watch_request()
            };
            Watch::open(&operator, request)
        };
        let (end, head) = tokio::sync::watch::channel(None);
        let read = |watch| AbortOnDropHandle::new(tokio::spawn(view_of(operator.clone(), watch, head.clone())));
        let whole = read(watch(Some(0)).await);
        let mut later = Vec::new();
        for _ in 0..STEPS {
            step(&tree, &mut rng).await;
            later.push(read(watch(None).await));
        }
        // In a paused session no further turn begins, so the log ends at the head.
        let mut client = pair.operator();
        let request = UpdateSessionRequest {
            session_id: tree.session.clone(),
            paused: Some(true),
            ..UpdateSessionRequest::default()
        };
        client.update_session(request).await.unwrap();
        end.send_replace(Some(tree.head().await));
        let whole = whole.await.unwrap();
        assert!(whole.threads().len() > 4, "the steps do something");
        for (place, view) in later.into_iter().enumerate() {
            let view = view.await.unwrap();
            assert_eq!(view.threads().len(), whole.threads().len());
            for (found, expected) in comparable(&view).into_iter().zip(comparable(&whole)) {
                assert_eq!(found, expected, "seed {seed}, watch {place}");
            }
            assert_eq!(view.approvals(), whole.approvals());
            let paused = |view: &SessionView| view.session().map(|session| (session.paused, session.limits));
            assert_eq!(paused(&view), paused(&whole));
        }
        let decided = ApprovalDecision::Unspecified;
        assert!(whole.approvals().iter().all(|approval| approval.decision() == decided));
    }
}
