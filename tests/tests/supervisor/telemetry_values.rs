//! Telemetry: a thread contains the latest value of each kind that its runner sent, of the current attempt only.

use troupe_proto::supervisor::v1::{
    PlanStep, Telemetry, Thread, ToolUse, Usage, attach_request::Message as ToSupervisor, event::Kind as Event,
    plan_step::State, watch_threads_response::Message,
};
use troupe_tests::{
    pair::VIEWER,
    runner::{Attempt, Runner},
    tree::Tree,
    watch::Watch,
};

use crate::{attached, working};

fn step(step: &str, state: State) -> PlanStep {
    PlanStep {
        step: step.to_owned(),
        state: state.into(),
    }
}

/// Returns telemetry of an attempt with all values.
fn values(attempt: &Attempt, activity: &str) -> Telemetry {
    Telemetry {
        thread_id: attempt.thread.clone(),
        generation: attempt.generation,
        usage: Some(Usage {
            input_tokens: 1_000,
            cached_input_tokens: 200,
            output_tokens: 300,
            turns: 0,
            wall_time: Some(prost_types::Duration {
                seconds: 4,
                nanos: 500_000_000,
            }),
            cost_micros: 0,
            unpriced_tokens: 1_300,
        }),
        context_left_percent: Some(71),
        last_tool: Some(ToolUse {
            name: String::from("exec_command"),
            detail: String::from("cargo test"),
        }),
        activity: activity.to_owned(),
        plan: vec![
            step("look", State::Completed),
            step("write", State::InProgress),
            step("test", State::Pending),
        ],
        turn_time: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
    }
}

/// Returns the next telemetry with this activity.
async fn next_telemetry(watch: &mut Watch, activity: &str) -> Telemetry {
    watch
        .first(|message| match message {
            Message::Telemetry(telemetry) if telemetry.activity == activity => Some(telemetry),
            _ => None,
        })
        .await
}

#[track_caller]
fn assert_shows(thread: &Thread, values: &Telemetry) {
    assert_eq!(thread.last_tool, values.last_tool);
    assert_eq!(thread.plan, values.plan);
    assert_eq!(thread.usage, values.usage);
    assert_eq!(thread.context_left_percent, values.context_left_percent);
    assert_eq!(thread.activity, values.activity);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_contains_latest_plan_tool_and_usage() {
    let (_pair, tree, mut runner) = attached().await;
    let worker = tree.spawn("worker").await.id;
    let other = tree.spawn("worker").await.id;
    let attempt = runner.run(&worker).await;
    let beside = runner.run(&other).await;
    let head = tree.head().await;
    let mut watch = tree.watch().await;
    let mut subtree = tree.watch_where(|watch| watch.thread_id = worker.clone()).await;
    watch.snapshot().await;
    subtree.snapshot().await;

    let (first, elsewhere) = (values(&attempt, "writing"), values(&beside, "reading"));
    runner.say(ToSupervisor::Telemetry(elsewhere.clone())).await;
    runner.say(ToSupervisor::Telemetry(first.clone())).await;
    assert_eq!(next_telemetry(&mut watch, "reading").await, elsewhere);
    assert_eq!(next_telemetry(&mut watch, "writing").await, first);
    let own = subtree
        .first(|message| match message {
            Message::Telemetry(telemetry) => Some(telemetry),
            _ => None,
        })
        .await;
    assert_eq!(own, first, "a watcher of a subtree receives only values of its threads");
    assert_shows(&tree.thread(&worker).await, &first);
    for thread in tree.threads().await {
        if thread.thread_id == worker {
            assert_shows(&thread, &first);
        }
    }
    let (_, threads) = tree.watch().await.snapshot().await;
    let shown = threads.iter().find(|thread| thread.thread_id == worker).unwrap();
    assert_shows(shown, &first);
    assert_eq!(tree.head().await, head, "telemetry is not in the log");

    // The latest telemetry replaces all earlier values, including values that it does not contain.
    let second = Telemetry {
        last_tool: None,
        plan: vec![step("test", State::Completed)],
        ..values(&attempt, "testing")
    };
    runner.say(ToSupervisor::Telemetry(second.clone())).await;
    assert_eq!(next_telemetry(&mut watch, "testing").await, second);
    assert_shows(&tree.thread(&worker).await, &second);
    assert_shows(&tree.thread(&other).await, &elsewhere);
}

/// Without a check of the generation, late values of an earlier attempt would replace the current values.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_telemetry_of_earlier_attempt_is_ignored() {
    let (_pair, tree, mut runner, worker, first) = working().await;
    let second = resume_with_turn(&tree, &mut runner, &first).await;
    let mut watch = tree.watch().await;
    let present = values(&second, "writing");
    runner.say(ToSupervisor::Telemetry(present.clone())).await;
    next_telemetry(&mut watch, "writing").await;

    runner.say(ToSupervisor::Telemetry(values(&first, "reading"))).await;
    // A runner's messages are read in order, so the telemetry is processed before this report is durable.
    runner.complete(&second, "done").await;
    let thread = tree.thread(&worker).await;
    assert_eq!((&thread.plan, &thread.last_tool), (&present.plan, &present.last_tool));
    assert_eq!(thread.activity, "writing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_see_the_latest_tool_without_its_detail() {
    let (pair, tree, runner, worker, attempt) = working().await;
    let viewer = pair.with_token(VIEWER);
    let mut watch = Watch::open(&viewer, tree.watch_request()).await;
    runner.say(ToSupervisor::Telemetry(values(&attempt, "reading"))).await;
    let seen = Some(ToolUse {
        name: String::from("exec_command"),
        detail: String::new(),
    });
    assert_eq!(next_telemetry(&mut watch, "reading").await.last_tool, seen);
    let tree = tree.by(viewer);
    assert_eq!(tree.thread(&worker).await.last_tool, seen);
}

/// The proto file promises smaller limits for the steps of a plan and for the detail of a tool than for the other texts
/// of telemetry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_values_are_truncated_to_limits() {
    let (_pair, tree, runner, _, attempt) = working().await;
    let mut watch = tree.watch().await;
    let long = "é".repeat(1_000);
    let much = Telemetry {
        last_tool: Some(ToolUse {
            name: String::from("exec_command"),
            detail: long.clone(),
        }),
        plan: vec![step(&long, State::Pending); 100],
        ..values(&attempt, "writing")
    };
    runner.say(ToSupervisor::Telemetry(much)).await;
    let told = next_telemetry(&mut watch, "writing").await;
    assert_eq!(told.plan.len(), 64);
    assert!(
        told.plan
            .iter()
            .all(|step| long.starts_with(&step.step) && !step.step.is_empty())
    );
    let longest = told.plan.iter().map(|step| step.step.len()).max().unwrap();
    assert!(longest <= 256, "a step of {longest} bytes");
    let detail = told.last_tool.unwrap().detail;
    assert!(detail.chars().count() <= 160, "{} characters", detail.chars().count());
}

/// Returns a usage with this number of input tokens and turns.
fn tokens(input_tokens: u64, turns: u32) -> Usage {
    Usage {
        input_tokens,
        turns,
        ..Usage::default()
    }
}

/// Returns the input tokens and the turns that a thread has used.
async fn used(tree: &Tree, thread: &str) -> (u64, u32) {
    let usage = tree.thread(thread).await.usage.unwrap();
    (usage.input_tokens, usage.turns)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_survives_close_resume_loss_and_restart() {
    let (mut pair, tree, mut runner, worker, first) = working().await;
    runner.complete_having_used(&first, tokens(1_000, 1)).await;
    assert_eq!(used(&tree, &worker).await, (1_000, 1));

    // After a close and a resume, the usage of the next attempt starts at zero, but not the usage of the thread.
    let second = resume_with_turn(&tree, &mut runner, &first).await;
    assert_eq!(used(&tree, &worker).await, (1_000, 1));
    let mut watch = tree.watch().await;
    let present = Telemetry {
        usage: Some(tokens(500, 0)),
        ..values(&second, "writing")
    };
    runner.say(ToSupervisor::Telemetry(present)).await;
    let shown = next_telemetry(&mut watch, "writing").await.usage.unwrap();
    assert_eq!(shown.input_tokens, 1_500, "watchers see the lifetime's usage as well");
    assert_eq!(used(&tree, &worker).await.0, 1_500);

    // The runner reconnects without the thread. The last telemetry is not lost with the attempt.
    let mut runner = runner.come_back(&pair, &[]).await;
    tree.watch_after(0)
        .await
        .until(|event| matches!(&event.kind, Some(Event::TurnEnded(ended)) if ended.generation == second.generation))
        .await;
    assert_eq!(used(&tree, &worker).await.0, 1_500);
    tree.send(&worker, "once more").await;
    let third = runner.run(&worker).await;
    runner.complete_having_used(&third, tokens(200, 1)).await;
    assert_eq!(used(&tree, &worker).await.0, 1_700);

    tree.close_with(&mut runner, &third).await;
    let tree = tree.after_restart(&mut pair).await;
    assert_eq!(used(&tree, &worker).await.0, 1_700);
    let session = tree.now().await.roll_up.unwrap().usage.unwrap();
    assert_eq!(session.input_tokens, 1_700, "a session's usage includes closed threads");
    let below = tree.try_thread(&tree.root).await.unwrap();
    let below = below.roll_up.unwrap().usage.unwrap();
    assert_eq!(below.input_tokens, 1_700, "a subtree's usage includes closed threads");
}

/// Closes the thread of an attempt, resumes it and begins its next turn. Returns the new attempt.
async fn resume_with_turn(tree: &Tree, runner: &mut Runner, attempt: &Attempt) -> Attempt {
    runner.complete(attempt, "done").await;
    tree.close_with(runner, attempt).await;
    tree.resume(&attempt.thread).await;
    tree.send(&attempt.thread, "once more").await;
    let next = runner.run(&attempt.thread).await;
    assert!(next.generation > attempt.generation);
    next
}
