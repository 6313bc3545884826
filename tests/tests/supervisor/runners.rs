//! Runners: the work that they receive, the effects of their reports, and the fate of threads whose runner disappears.

use std::{path::Path, slice, time::Duration};

use rusqlite::Connection;
use supervisor_log::store::DATABASE;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use troupe_proto::{
    common::v1::BlockKind,
    reason::Reason,
    supervisor::v1::{
        AttachRequest, ConditionKind, Event, InputDeliveredReport, InterruptAgentRequest, PromptExtent, RestartPolicy,
        RunnerDraining, RunnerReport, RunningInput, SendInputRequest, StartRefusal, StatusKind, ToolRequest, Turn,
        TurnOutcome, TurnStartedReport, attach_request::Message as ToSupervisor,
        attach_response::Message as FromSupervisor, deliver_input::Delivery, event::Kind, input_item::Item,
        runner_report::Kind as Report,
    },
};
use troupe_tests::{
    content,
    events::{about, assert_whole, names, statuses},
    pair::{Pair, RUNNER},
    refusal::refused,
    runner::{Attempt, Runner, ended, hello, task},
    tree::{Tree, has, input, kind},
    within,
};

use crate::{attached, started, working};

/// The events of a thread with one completed turn.
const ONE_TURN: &[&str] = &[
    "ThreadSpawned",
    "ThreadPlaced",
    "TurnDispatched",
    "TurnStarted",
    "TurnEnded",
];

/// Waits until a thread has settled and returns its status and message.
async fn settled(tree: &Tree, thread: &str) -> (StatusKind, String) {
    tree.watch_after(0).await.until_kind_of(thread, "TurnEnded").await;
    tree.outcome(thread).await
}

fn kinds(turn: &Turn) -> Vec<BlockKind> {
    turn.blocks.iter().map(|block| block.kind()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_runs_from_start_to_last_message() {
    let (pair, tree, mut runner) = attached().await;
    let worker = tree.spawn("worker").await.id;

    let start = runner.start_of(&worker).await;
    assert_eq!(
        (&start.session_id, start.generation, start.depth),
        (&tree.session, 1, 1)
    );
    assert_eq!(start.working_directory, pair.project());
    assert_eq!(start.resolved.as_ref().unwrap().agent_type, "worker");
    assert!(!start.tool_policy.as_ref().unwrap().layers.is_empty());
    let turn = start.turn.as_ref().unwrap();
    assert_eq!((turn.turn, turn.extent()), (1, PromptExtent::Full));
    for block in [BlockKind::System, BlockKind::Role, BlockKind::Task] {
        assert!(kinds(turn).contains(&block), "{block:?}");
    }
    assert!(task(turn).contains("the task"));
    // The token in the start is the thread's own token.
    tree.by(pair.with_token(&start.thread_token)).thread(&worker).await;
    assert_eq!(tree.thread(&worker).await.runner_id, "r");

    let attempt = runner.begin_start(&start).await;
    assert_eq!(tree.status(&worker).await, StatusKind::Running);
    runner.complete(&attempt, "it works").await;
    let completed = (StatusKind::Completed, String::from("it works"));
    assert_eq!(tree.outcome(&worker).await, completed);
    assert_eq!(tree.event_names(&worker).await, ONE_TURN);
}

/// A reader can distinguish a message that was too large to be stored from a message that was stored and is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_last_message_is_distinct_from_omitted() {
    let mut pair = Pair::alone(|config| config.session_content_bytes = 300_000).await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let mut digests = Vec::new();
    for message in ["é".repeat(5_000), "b".repeat(400_000)] {
        let worker = tree.spawn("worker").await.id;
        let attempt = runner.run(&worker).await;
        runner.complete(&attempt, &message).await;
        let status = tree.thread(&worker).await.status.unwrap();
        assert!(status.message.len() <= 4 * 1024 && message.starts_with(&status.message));
        let content = status.content.unwrap();
        assert_eq!(content.size, message.len() as u64);
        digests.push(content.digest);
    }
    assert!(content::read(&tree.client(), &tree.session, &digests[0]).await.is_ok());

    drop(runner);
    let size = 10_000;
    let lose = |data: &Path| {
        let log = Connection::open(data.join(DATABASE)).unwrap();
        let lost = log
            .execute("DELETE FROM contents WHERE length(bytes) = ?1", [size])
            .unwrap();
        assert_eq!(lost, 1);
    };
    pair.restart_after(lose).await;
    let tree = tree.by(pair.operator());
    for (digest, code, reason, text) in [
        (&digests[0], Code::DataLoss, Reason::CorruptRecord, "is missing"),
        (&digests[1], Code::NotFound, Reason::NotFound, "not found"),
    ] {
        let by_parent = pair.with_token(&tree.root_token);
        for client in [tree.client(), by_parent] {
            let read = content::read(&client, &tree.session, digest).await;
            refused(read, code, reason, text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_to_settled_thread_starts_turn_with_new_input() {
    let (_pair, tree, mut runner, worker, mut attempt) = working().await;
    runner.complete(&attempt, "done").await;

    let answered = tree.send(&worker, "and the tests").await;
    assert_eq!(kind(&answered), StatusKind::PendingInit, "no longer COMPLETED");
    let turn = runner.next_turn(&mut attempt).await;
    assert_eq!((turn.turn, turn.extent()), (2, PromptExtent::Delta));
    assert!(!kinds(&turn).contains(&BlockKind::System) && !kinds(&turn).contains(&BlockKind::Role));
    assert!(task(&turn).contains("and the tests") && !task(&turn).contains("the task"));

    runner.complete(&attempt, "tested").await;
    assert_eq!(tree.thread(&worker).await.status.unwrap().message, "tested");
    assert_eq!(tree.thread(&worker).await.generation, 1, "the same attempt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steering_input_reaches_running_turn() {
    let (_pair, tree, mut runner, worker, mut attempt) = working().await;
    let steer = |text: &str| SendInputRequest {
        steer: true,
        ..input(&worker, text)
    };
    let text = |input: RunningInput| match input.input.unwrap().items.remove(0).item {
        Some(Item::Text(text)) => text,
        other => panic!("{other:?}"),
    };

    tree.send(&worker, "one").await;
    tree.try_send(steer("two")).await.unwrap();
    for (number, told) in [(2, "one"), (3, "two")] {
        let input = runner.input_of(&attempt).await;
        assert_eq!((input.number, input.turn), (number, attempt.turn));
        assert_eq!(text(input), told);
        let turn = attempt.turn;
        let delivered = Report::InputDelivered(InputDeliveredReport { number, turn });
        runner.report(&attempt, delivered).await;
    }
    // Input that the turn does not receive is part of the next turn.
    tree.try_send(steer("three")).await.unwrap();
    assert_eq!(runner.input_of(&attempt).await.number, 4);
    runner.complete(&attempt, "done").await;
    let turn = runner.next_turn(&mut attempt).await;
    assert!(task(&turn).contains("three") && !task(&turn).contains("two"));
    let log = names(&about(&tree.log().await, &worker));
    assert_eq!(log.iter().filter(|name| *name == "InputDelivered").count(), 2);

    // Steering input for a thread without a running turn is normal input.
    runner.complete(&attempt, "done").await;
    tree.try_send(steer("four")).await.unwrap();
    assert!(task(&runner.turn_of(&attempt).await).contains("four"));

    let interrupting = SendInputRequest {
        interrupt: true,
        ..steer("five")
    };
    let overriding = SendInputRequest {
        r#override: String::from("five"),
        ..steer("five")
    };
    for (both, message) in [
        (
            interrupting,
            "give steer or interrupt, not both: a turn that is stopped takes no more input",
        ),
        (
            overriding,
            "give steer or override, not both: an override applies to a turn that begins",
        ),
    ] {
        let refused = tree.try_send(both).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, message));
    }
}

/// An override applies to a turn that begins. Later input must not reach the agent before the input with the override.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steering_input_does_not_overtake_an_override() {
    let (mut pair, tree, mut runner, worker, attempt) = working().await;
    let steer = |text: &str| SendInputRequest {
        steer: true,
        ..input(&worker, text)
    };
    let last_word = SendInputRequest {
        r#override: String::from("be brief"),
        ..input(&worker, "one")
    };
    for request in [last_word, steer("two"), steer("three")] {
        tree.try_send(request).await.unwrap();
    }
    runner.complete(&attempt, "done").await;
    let turn = runner.turn_of(&attempt).await;
    let places: Vec<_> = ["one", "two", "three"].map(|text| task(&turn).find(text)).into();
    assert!(places.is_sorted() && places[0].is_some(), "{places:?}");
    // The restart ends the stream of the runner.
    pair.restart().await;
    for message in runner.ended().await {
        if let FromSupervisor::DeliverInput(input) = message {
            assert!(!matches!(input.delivery, Some(Delivery::Running(_))), "{input:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_turn_ends_and_thread_stays_open() {
    let (_pair, tree, mut runner, worker, mut attempt) = working().await;
    let request = InterruptAgentRequest {
        thread_id: worker.clone(),
        reason: String::from("wrong way"),
        ..InterruptAgentRequest::default()
    };
    let answer = tree.client().interrupt_agent(request).await.unwrap().into_inner();
    assert_eq!(answer.interrupted_thread_ids, [worker.as_str()]);
    let interrupt = runner.interrupt_of(&attempt).await;
    assert_eq!((interrupt.turn, interrupt.reason.as_str()), (1, "wrong way"));
    runner
        .end(&attempt, TurnOutcome::Interrupted, "the program's words")
        .await;
    let status = tree.thread(&worker).await.status.unwrap();
    assert_eq!(
        (status.kind(), status.reason.as_str()),
        (StatusKind::Interrupted, "wrong way")
    );

    // Input that interrupts: the turn is stopped, then the input has a turn of its own.
    tree.send(&worker, "this way").await;
    runner.next_turn(&mut attempt).await;
    let request = SendInputRequest {
        interrupt: true,
        ..input(&worker, "no, that way")
    };
    tree.try_send(request).await.unwrap();
    assert_eq!(runner.interrupt_of(&attempt).await.turn, attempt.turn);
    runner.end(&attempt, TurnOutcome::Interrupted, "new input").await;
    assert!(task(&runner.turn_of(&attempt).await).contains("no, that way"));
}

/// The response names the threads that the call stopped. It does not name threads that were stopped or ended before the
/// call. A retry gets the same response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupt_response_names_stopped_threads() {
    let (mut pair, tree, mut runner) = attached().await;
    let parent = tree.spawn("orchestrator").await.id;
    let done = tree.spawn_under(&parent, "worker").await.id;
    let at_work = runner.run(&parent).await;
    let child = runner.run(&done).await;
    runner.complete(&child, "done").await;
    let interrupt = async |tree: &Tree, request_id: &str| {
        let request = InterruptAgentRequest {
            request_id: request_id.to_owned(),
            thread_id: parent.clone(),
            ..InterruptAgentRequest::default()
        };
        let answer = tree.client().interrupt_agent(request).await.unwrap();
        answer.into_inner().interrupted_thread_ids
    };

    assert_eq!(interrupt(&tree, "first").await, [parent.as_str()]);
    let nobody: [&str; 0] = [];
    assert_eq!(interrupt(&tree, "second").await, nobody, "the turn was already to stop");
    runner.end(&at_work, TurnOutcome::Interrupted, "as asked").await;
    assert_eq!(interrupt(&tree, "third").await, nobody, "the turn has already stopped");
    for restarts in [false, true] {
        if restarts {
            pair.restart().await;
        }
        let tree = tree.by(pair.operator());
        assert_eq!(
            interrupt(&tree, "first").await,
            [parent.as_str()],
            "restarts: {restarts}"
        );
        assert_eq!(interrupt(&tree, "second").await, nobody, "restarts: {restarts}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_start_settles_thread_or_is_dispatched_again() {
    let (pair, tree) = started().await;
    let mut runner = Runner::attach(&pair, "a").await;
    for (refusal, message) in [
        (StartRefusal::NoProgram, "no such program"),
        (
            StartRefusal::PolicyNotEnforceable,
            "POLICY_NOT_ENFORCEABLE: no such program",
        ),
    ] {
        let worker = tree.spawn("worker").await.id;
        let attempt = Attempt::of(&runner.start_of(&worker).await);
        runner.refuse(&attempt, refusal, "no such program").await;
        assert_eq!(
            settled(&tree, &worker).await,
            (StatusKind::Errored, String::from(message)),
            "{refusal:?}"
        );
    }

    // A rejection for lack of capacity does not settle the thread.
    let worker = tree.spawn("worker").await.id;
    let first = Attempt::of(&runner.start_of(&worker).await);
    let mut other = Runner::attach(&pair, "b").await;
    runner.refuse(&first, StartRefusal::NoCapacity, "full").await;
    let second = other.run(&worker).await;
    assert!(second.generation > first.generation);
    other.complete(&second, "done").await;
    assert_eq!(tree.status(&worker).await, StatusKind::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_lost_before_its_start_is_dispatched_again() {
    let (pair, tree, mut runner) = attached().await;
    let worker = tree.spawn("worker").await.id;
    let lost = Attempt::of(&runner.start_of(&worker).await);
    let mut runner = runner.come_back(&pair, &[]).await;
    let start = runner.start_of(&worker).await;
    let attempt = Attempt::of(&start);
    assert!(attempt.generation > lost.generation);
    assert!(
        task(start.turn.as_ref().unwrap()).contains("the task"),
        "with the same input"
    );

    // All later reports of the old attempt are void. They are acknowledged so that the runner does not send them again.
    let turn = lost.turn;
    runner
        .report(&lost, Report::TurnStarted(TurnStartedReport { turn }))
        .await;
    runner.end(&lost, TurnOutcome::Errored, "too late").await;
    assert_eq!(tree.status(&worker).await, StatusKind::PendingInit);
    runner.begin(&attempt).await;
    runner.complete(&attempt, "done").await;
    let completed = (StatusKind::Completed, String::from("done"));
    assert_eq!(tree.outcome(&worker).await, completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returning_runner_continues_its_turns() {
    let (mut pair, tree, mut runner, worker, attempt) = working().await;

    // The runner's stream breaks twice: by itself, and because the service restarts.
    runner = runner.come_back(&pair, slice::from_ref(&attempt)).await;
    let tree = tree.after_restart(&mut pair).await;
    runner = runner.come_back(&pair, slice::from_ref(&attempt)).await;
    let verdict = &runner.welcome().threads[0];
    assert!(verdict.go_on);
    assert_eq!(
        verdict.applied_report_sequence, 1,
        "the report that the turn began is applied"
    );
    assert_eq!(tree.status(&worker).await, StatusKind::Running);

    // The runner sends all unacknowledged reports again. Each report is applied once.
    let began = Report::TurnStarted(TurnStartedReport { turn: 1 });
    runner.report_as(&attempt, 1, began).await;
    for _ in 0..2 {
        runner
            .report_as(&attempt, 2, ended(&attempt, TurnOutcome::Completed, "done"))
            .await;
    }
    assert_eq!(tree.event_names(&worker).await, ONE_TURN);
    let log = tree.log().await;
    assert_whole(&log);
    assert_eq!(statuses(&log)[&worker], StatusKind::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undelivered_turn_is_dispatched_again() {
    let (pair, tree, mut runner, worker, attempt) = working().await;
    runner.complete(&attempt, "done").await;
    tree.send(&worker, "the second task").await;
    runner.turn_of(&attempt).await;

    // The stream breaks before the runner reads the second turn, so the runner attaches again with the first turn.
    let mut runner = runner.come_back(&pair, slice::from_ref(&attempt)).await;
    assert!(!runner.welcome().threads[0].go_on);
    let start = runner.start_of(&worker).await;
    assert!(start.generation > attempt.generation);
    let turn = start.turn.unwrap();
    assert_eq!(turn.extent(), PromptExtent::Full, "its program is gone");
    assert!(task(&turn).contains("the second task"));
}

/// The second stream ends the first one, whose messages are ignored from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_on_replaced_runner_stream_are_ignored() {
    let (pair, tree) = started().await;
    let (outgoing, stream) = mpsc::channel(2);
    let says = |message| AttachRequest { message: Some(message) };
    outgoing.send(says(ToSupervisor::Hello(hello("r")))).await.unwrap();
    let attached = pair.runners(RUNNER).attach(ReceiverStream::new(stream)).await;
    let mut first = attached.unwrap().into_inner();
    let mut second = Runner::attach(&pair, "r").await;
    // The connection may be closed by then.
    let _ = outgoing.send(says(ToSupervisor::Draining(RunnerDraining {}))).await;
    within("the end of the first stream", async {
        while let Ok(Some(_)) = first.message().await {}
    })
    .await;
    let worker = tree.spawn("worker").await.id;
    assert_eq!(second.start().await.thread_id, worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_runner_messages_are_ignored() {
    let (_pair, tree, mut runner, worker, attempt) = working().await;
    runner.send_unknown_message().await;
    let report = RunnerReport {
        thread_id: worker.clone(),
        generation: attempt.generation,
        report_sequence: 2,
        kind: None,
    };
    runner.say(ToSupervisor::Report(report)).await;
    runner
        .next("the acknowledgement of a void report", |message| match message {
            FromSupervisor::ReportAck(ack) if ack.report_sequence == 2 => Some(()),
            _ => None,
        })
        .await;
    runner
        .report_as(&attempt, 3, ended(&attempt, TurnOutcome::Completed, "done"))
        .await;
    assert_eq!(tree.event_names(&worker).await, ONE_TURN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_service_notifies_runners() {
    let mut pair = Pair::start().await;
    let runner = Runner::attach(&pair, "r").await;
    pair.restart().await;
    let last = runner.ended().await;
    assert!(last.iter().any(|message| matches!(message, FromSupervisor::GoAway(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_policy_decides_after_runner_loss() {
    // Longer than the pair needs for any message, so that only silence ends a lease.
    let pair = Pair::with(|config| config.lease = Duration::from_secs(3)).await;
    let settling = pair.tree().await;
    let restarting = pair
        .tree_where(|session| session.restart_policy = RestartPolicy::OnLost.into())
        .await;
    let mut runner = Runner::attach(&pair, "r").await;
    let settled_worker = settling.spawn("worker").await.id;
    let restarted_worker = restarting.spawn("worker").await.id;
    runner.run(&settled_worker).await;
    let lost = runner.run(&restarted_worker).await;
    drop(runner);

    let (status, message) = settled(&settling, &settled_worker).await;
    assert_eq!(status, StatusKind::Errored);
    assert_eq!(message, "runner r was lost: its lease ran out");
    let unreachable = has(&settling.thread(&settled_worker).await, ConditionKind::Unreachable);
    assert!(!unreachable, "UNREACHABLE ends with the lease");
    let is_anew = |event: &Event| match &event.kind {
        Some(Kind::ThreadPlaced(placed)) => placed.generation > lost.generation,
        _ => false,
    };
    restarting.watch_after(0).await.until(is_anew).await;
    let mut other = Runner::attach(&pair, "other").await;
    let start = other.start_of(&restarted_worker).await;
    assert!(start.turn.as_ref().is_some_and(|turn| turn.repeats), "{start:?}");
    let anew = other.begin_start(&start).await;
    other.complete(&anew, "done").await;
    assert_eq!(restarting.status(&restarted_worker).await, StatusKind::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_runs_only_if_thread_policy_allows_it() {
    let (_pair, _tree, mut runner, _, attempt) = working().await;
    for (tool, generation, allowed, reason) in [
        ("apply_patch", 1, true, ""),
        ("spawn_agent", 1, false, "denied by"),
        ("apply_patch", 2, false, "not known"),
    ] {
        let question = ToolRequest {
            request_id: format!("{tool}-{generation}"),
            thread_id: attempt.thread.clone(),
            generation,
            tool: tool.to_owned(),
            arguments_json: String::from("{}"),
            ..ToolRequest::default()
        };
        let decision = runner.ask(question.clone()).await;
        assert_eq!(decision.request_id, question.request_id);
        assert_eq!(decision.allowed, allowed, "{decision:?}");
        assert!(decision.reason.contains(reason), "{decision:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_program_of_lost_runner_closes_at_once() {
    let (_pair, tree, mut runner, worker, attempt) = working().await;
    runner.complete(&attempt, "done").await;
    runner.stop(&attempt).await;
    drop(runner);
    tree.close(&worker).await;
    let log = tree.log().await;
    let forced = about(&log, &worker).into_iter().find_map(|event| match event.kind {
        Some(Kind::ThreadClosed(closed)) => Some(closed.forced),
        _ => None,
    });
    assert_eq!(forced, Some(false), "the close did not wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_runner_gets_only_threads_of_its_session() {
    let pair = Pair::start().await;
    let (tree, other) = (pair.tree().await, pair.tree().await);
    let mut client = Runner::attach_where(&pair, "a client", |hello| hello.session_id = tree.session.clone()).await;
    let not_its_own = other.spawn("worker").await.id;
    let own = tree.spawn("worker").await.id;
    let attempt = client.run(&own).await;
    client.complete(&attempt, "from outside").await;
    let thread = tree.thread(&own).await;
    assert_eq!(&*thread.runner_id, "a client");
    assert_eq!(thread.status.unwrap().message, "from outside");
    let thread = other.thread(&not_its_own).await;
    assert!(has(&thread, ConditionKind::NoRunner), "{thread:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_for_single_use_is_free_again_after_refusal() {
    // Other supervisors do not know that the runner has a session, and would offer it the second thread.
    let pair = Pair::alone(|_| {}).await;
    let (tree, other) = (pair.tree().await, pair.tree().await);
    let mut runner = Runner::attach_where(&pair, "a", |hello| hello.single_use = true).await;
    let first = tree.spawn("worker").await.id;
    let attempt = Attempt::of(&runner.start_of(&first).await);
    let second = other.spawn("worker").await.id;
    assert!(has(&other.thread(&second).await, ConditionKind::NoRunner));
    runner
        .refuse(&attempt, StartRefusal::NoProgram, "no such program")
        .await;
    runner.start_of(&second).await;
}
