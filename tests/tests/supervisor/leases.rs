//! Runner obligations over time: leases and the effects of their expiry, capacity, draining, and silence.

use std::{collections::BTreeMap, slice, time::Duration};

use tonic::Code;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        self as pb, ConditionKind, CreateSessionRequest, Event, HeldThread, ListRunnersRequest, PromptExtent,
        RunnerDraining, RunnerHello, RunnerState, StartRefusal, StatusKind, ThreadOutput, ThreadStoppedReport,
        TurnOutcome, attach_request::Message as ToSupervisor, event::Kind, runner_report::Kind as Report,
    },
};
use troupe_tests::{
    events::{about, names},
    pair::{Pair, RUNNER, VIEWER},
    refusal::refused,
    runner::{Attempt, Runner, ended, hello},
    tree::{has, kind},
    watch::Watch,
    within,
};

use crate::{attached, running, started, working};

/// A lease that is long enough for a runner on a busy machine to attach again within half of it.
const LEASE: Duration = Duration::from_secs(8);

async fn with_lease() -> Pair {
    Pair::with(|config| config.lease = LEASE).await
}

/// Returns the hello of a runner that attaches again with an attempt and its number of reports.
fn returning(attempt: &Attempt, report_sequence: u64) -> RunnerHello {
    let held = HeldThread {
        thread_id: attempt.thread.clone(),
        generation: attempt.generation,
        turn: attempt.turn,
        report_sequence,
    };
    RunnerHello {
        threads: vec![held],
        ..hello("r")
    }
}

/// Waits until a condition of a thread has changed to `active` and returns the reason.
async fn wait_for_change(watch: &mut Watch, thread: &str, condition: ConditionKind, active: bool) -> String {
    let is_it = |event: &Event| match &event.kind {
        Some(Kind::ConditionChanged(changed)) => {
            event.thread_id == thread && changed.kind() == condition && changed.active == active
        }
        _ => false,
    };
    let events = watch.until(is_it).await;
    match events.last().and_then(|event| event.kind.clone()) {
        Some(Kind::ConditionChanged(changed)) => changed.reason,
        other => panic!("{other:?} is not a change of a condition"),
    }
}

// ---- leases ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_lease_without_runner_sets_unreachable() {
    let pair = with_lease().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let worker = tree.spawn("worker").await.id;
    let idle = tree.spawn("worker").await.id;
    let done = runner.run(&idle).await;
    runner.complete(&done, "done").await;
    let attempt = runner.run(&worker).await;
    let mut watch = tree.watch_after(0).await;
    drop(runner);

    let reason = wait_for_change(&mut watch, &worker, ConditionKind::Unreachable, true).await;
    assert_eq!(reason, "runner r has been disconnected for half of its lease");
    let thread = tree.thread(&worker).await;
    assert!(has(&thread, ConditionKind::Unreachable));
    assert_eq!(kind(&thread), StatusKind::Running, "the thread is not lost yet");

    let mut runner = Runner::greet(&pair, returning(&attempt, 1)).await;
    assert!(runner.welcome().threads[0].go_on);
    wait_for_change(&mut watch, &worker, ConditionKind::Unreachable, false).await;
    let ended = ended(&attempt, TurnOutcome::Completed, "");
    runner.report_as(&attempt, 2, ended).await;
    assert_eq!(tree.status(&worker).await, StatusKind::Completed);
    let log = about(&tree.log().await, &idle);
    assert!(
        !names(&log).contains(&String::from("ConditionChanged")),
        "a settled thread is not unreachable"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_start_sets_no_thread_unreachable() {
    let mut pair = with_lease().await;
    let tree = pair.tree().await;
    let (runner, attempt) = running(&pair, &tree).await;
    let tree = tree.after_restart(&mut pair).await;
    assert!(!has(&tree.thread(&attempt.thread).await, ConditionKind::Unreachable));
    let mut runner = runner.come_back(&pair, slice::from_ref(&attempt)).await;
    runner.complete(&attempt, "done").await;
    let log = about(&tree.log().await, &attempt.thread);
    assert!(!names(&log).contains(&String::from("ConditionChanged")), "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_closed_without_its_runner_is_stopped_when_it_returns() {
    let (pair, tree, mut runner, worker, attempt) = working().await;
    runner.complete(&attempt, "done").await;
    drop(runner);
    tree.begin_close(&worker).await;
    let mut runner = Runner::greet(&pair, returning(&attempt, 2)).await;
    assert!(runner.welcome().threads[0].go_on, "the close waits for the runner");
    assert_eq!(runner.shutdown().await.thread_id, worker);
    let stopped = Report::Stopped(ThreadStoppedReport::default());
    runner.report_as(&attempt, 3, stopped).await;
    assert_eq!(kind(&tree.close(&worker).await.thread.unwrap()), StatusKind::Shutdown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_runner_is_lost_after_one_lease() {
    // Long enough that other load on the machine does not matter.
    let pair = Pair::with(|config| config.lease = Duration::from_secs(8)).await;
    let mut silent = Vec::new();
    // A supervisor relays the messages of its runner to the owner of the session, which may be another supervisor.
    for (number, client) in pair.runners_of_each(RUNNER).into_iter().enumerate() {
        let labels = BTreeMap::from([(String::from("number"), number.to_string())]);
        let tree = pair.tree_where(|session| session.runner_labels = labels.clone()).await;
        let hello = RunnerHello {
            labels,
            ..hello(&format!("r{number}"))
        };
        let mut runner = Runner::greet_by(client, hello).await;
        let worker = tree.run_worker(&mut runner).await.thread;
        silent.push((tree, worker, runner));
    }
    for (tree, worker, _runner) in &silent {
        let log = tree.watch_after(0).await.until_kind_of(worker, "TurnEnded").await;
        let log = about(&log, worker);
        let seconds = |event: Option<&Event>| event.and_then(|event| event.time).unwrap().seconds;
        let started = log
            .iter()
            .find(|event| matches!(event.kind, Some(Kind::TurnStarted(_))));
        let lost_after = seconds(log.last()) - seconds(started);
        assert!((7..16).contains(&lost_after), "lost after {lost_after} s");
    }
}

// ---- capacity ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longest_idle_program_is_stopped_for_capacity() {
    let (pair, tree) = started().await;
    let mut runner = Runner::attach_where(&pair, "r", |hello| hello.capacity = 2).await;
    let mut rested = Vec::new();
    for _ in 0..2 {
        rested.push(tree.complete_worker(&mut runner).await);
    }
    let third = tree.spawn("worker").await.id;
    let shutdown = runner.shutdown().await;
    assert_eq!(shutdown.thread_id, rested[0].thread);
    assert!(
        has(&tree.thread(&third).await, ConditionKind::NoRunner),
        "no runner has capacity"
    );
    runner.stop(&rested[0]).await;
    let busy = runner.run(&third).await;
    assert_eq!(runner.unread_shutdowns(), 0, "only one program is stopped");
    let let_go = tree.thread(&rested[0].thread).await;
    assert_eq!(kind(&let_go), StatusKind::Completed, "the thread stays open");

    // The thread's next turn is a new attempt with the full prompt. The other idle program is stopped for this attempt.
    tree.send(&rested[0].thread, "and this").await;
    assert_eq!(runner.shutdown().await.thread_id, rested[1].thread);
    runner.stop(&rested[1]).await;
    let restarted = runner.start_of(&rested[0].thread).await;
    assert_eq!(restarted.generation, rested[0].generation + 1);
    assert_eq!(restarted.turn.as_ref().unwrap().extent(), PromptExtent::Full);

    // While every program runs a turn, none can be stopped. The first program that becomes idle is stopped.
    let fourth = tree.spawn("worker").await.id;
    runner.begin(&Attempt::of(&restarted)).await;
    assert!(has(&tree.thread(&fourth).await, ConditionKind::NoRunner));
    runner.complete(&busy, "done").await;
    assert_eq!(runner.shutdown().await.thread_id, third);
    runner.stop(&busy).await;
    runner.run(&fourth).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_runner_takes_no_turns_and_releases_idle() {
    let (pair, tree, mut runner) = attached().await;
    let resting = tree.spawn("worker").await.id;
    let rests = runner.run(&resting).await;
    runner.complete(&rests, "done").await;
    let running = tree.spawn("worker").await.id;
    let runs = runner.run(&running).await;

    runner.say(ToSupervisor::Draining(RunnerDraining {})).await;
    assert_eq!(runner.shutdown().await.thread_id, resting);
    runner.stop(&rests).await;
    let third = tree.spawn("worker").await.id;
    assert!(has(&tree.thread(&third).await, ConditionKind::NoRunner));
    // A running turn continues. At its end, the program must stop, even if more input is pending.
    tree.send(&running, "and this").await;
    runner.complete(&runs, "done").await;
    assert_eq!(runner.shutdown().await.thread_id, running);
    runner.stop(&runs).await;

    // Another runner gets the remaining work.
    let mut other = Runner::attach(&pair, "other").await;
    assert_eq!(Attempt::of(&other.start_of(&third).await).generation, 1);
    let restarted = other.start_of(&running).await;
    assert_eq!(restarted.generation, runs.generation + 1);
    assert_eq!(restarted.turn.unwrap().extent(), PromptExtent::Full);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runners_are_listed_with_their_state_and_programs() {
    let pair = with_lease().await;
    let tree = pair.tree().await;
    let list = async || {
        let answer = within(
            "ListRunners",
            pair.with_token(VIEWER).list_runners(ListRunnersRequest::default()),
        )
        .await;
        answer.unwrap().into_inner().runners
    };
    assert_eq!(list().await, []);
    let hello = RunnerHello {
        labels: BTreeMap::from([(String::from("os"), String::from("linux"))]),
        capacity: 4,
        ..hello("r")
    };
    let mut runner = Runner::greet(&pair, hello.clone()).await;
    let resting = tree.spawn("worker").await.id;
    let rests = runner.run(&resting).await;
    runner.complete(&rests, "done").await;
    let working = tree.spawn("worker").await.id;
    runner.run(&working).await;
    let [found] = &list().await[..] else {
        panic!("expected one runner")
    };
    let expected = pb::Runner {
        runner_id: String::from("r"),
        state: RunnerState::Attached.into(),
        kinds: hello.kinds,
        labels: hello.labels,
        capacity: 4,
        programs: 2,
        working: 1,
        session_id: String::new(),
    };
    assert_eq!(*found, expected);
    runner.say(ToSupervisor::Draining(RunnerDraining {})).await;
    runner.shutdown().await;
    assert_eq!(list().await[0].state(), RunnerState::Draining);
    drop(runner);
    let ended = async {
        loop {
            match &list().await[..] {
                [runner] if runner.state() == RunnerState::Draining => tokio::task::yield_now().await,
                [runner] => return runner.state(),
                _ => panic!("the lease has not expired"),
            }
        }
    };
    assert_eq!(within("the end of the stream", ended).await, RunnerState::Disconnected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_are_placed_by_labels() {
    let pair = Pair::start().await;
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = |size: &str| BTreeMap::from([label("size", size), label("os", "linux")]);
    let tree = pair
        .tree_where(|session| session.runner_labels = BTreeMap::from([label("size", "large")]))
        .await;
    assert_eq!(tree.now().await.runner_labels.len(), 1);
    let _small = Runner::attach_where(&pair, "a", |hello| hello.labels = labels("small")).await;
    let worker = tree.spawn("worker").await.id;
    assert!(has(&tree.thread(&worker).await, ConditionKind::NoRunner));
    let mut large = Runner::attach_where(&pair, "b", |hello| hello.labels = labels("large")).await;
    assert_eq!(large.start().await.thread_id, worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_that_no_runner_can_enforce_is_rejected() {
    let (pair, tree) = started().await;
    // Without any runner, the thread waits for one.
    tree.spawn("explorer").await;
    let mut loose = hello("loose");
    loose.kinds[0].enforces_read_only = false;
    let _loose = Runner::greet(&pair, loose).await;
    let head = tree.head().await;
    let answer = tree.try_spawn(tree.request("explorer")).await;
    let text = "which needs a READ_ONLY sandbox; attach one that can";
    let refusal = refused(answer, Code::FailedPrecondition, Reason::PolicyNotEnforceable, text);
    assert!(!refusal.message().contains("tool policy"), "{refusal:?}");
    assert_eq!(tree.head().await, head, "nothing was recorded");
    let root = CreateSessionRequest {
        cwd: pair.project(),
        message: Some(String::from("look around")),
        agent_type: String::from("explorer"),
        ..CreateSessionRequest::default()
    };
    let answer = tree.client().create_session(root).await;
    let text = "READ_ONLY";
    refused(answer, Code::FailedPrecondition, Reason::PolicyNotEnforceable, text);
    // Missing capacity is not a reason to reject a spawn.
    let mut strict = Runner::attach_where(&pair, "strict", |hello| hello.capacity = 1).await;
    strict.start().await;
    tree.spawn("explorer").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_policy_that_no_runner_can_enforce_is_rejected() {
    let (pair, tree) = started().await;
    let mut loose = hello("loose");
    loose.kinds[0].enforces_tools = false;
    let _loose = Runner::greet(&pair, loose).await;
    refused(
        tree.try_spawn(tree.request("worker")).await,
        Code::FailedPrecondition,
        Reason::PolicyNotEnforceable,
        "which needs a tool policy; attach one that can",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_of_rejected_start_goes_to_next_thread() {
    let (pair, tree) = started().await;
    let mut runner = Runner::attach_where(&pair, "r", |hello| hello.capacity = 1).await;
    let first = tree.spawn("worker").await.id;
    let attempt = Attempt::of(&runner.start_of(&first).await);
    let second = tree.spawn("worker").await.id;
    assert!(
        has(&tree.thread(&second).await, ConditionKind::NoRunner),
        "the runner has no capacity"
    );
    runner
        .refuse(&attempt, StartRefusal::NoProgram, "no such program")
        .await;
    assert_eq!(runner.start().await.thread_id, second);
}

// ---- stalls ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_a_stall_until_the_next_message() {
    let pair = Pair::with(|config| config.stall.silence = Duration::from_millis(200)).await;
    let tree = pair.tree().await;
    let (runner, attempt) = running(&pair, &tree).await;
    let mut watch = tree.watch_after(0).await;
    for _ in 0..2 {
        let reason = wait_for_change(&mut watch, &attempt.thread, ConditionKind::Stalled, true).await;
        assert_eq!(reason, "no activity for 200ms");
        let output = ThreadOutput {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            text: String::from("still here\n"),
        };
        runner.say(ToSupervisor::Output(output)).await;
        wait_for_change(&mut watch, &attempt.thread, ConditionKind::Stalled, false).await;
    }
    let log = about(&tree.log().await, &tree.root);
    assert!(
        !names(&log).contains(&String::from("ConditionChanged")),
        "a root that its client executes never stalls"
    );
}
