//! Turns: the messages that a program receives and sends, and the runner's reports about them.

use std::time::Duration;

use tonic::Code;
use troupe_proto::{
    common::v1::{BlockKind, ResolvedSpawn, Sandbox},
    supervisor::v1::{
        ClosePolicy, PromptExtent, StartRefusal, StartThread, Turn, TurnOutcome, deliver_input::Delivery,
        runner_report::Kind,
    },
};
use troupe_runner::RunnerError;

use crate::{
    program::ECHO,
    supervisor::{TestRunner, block, change, input, start, turn, verdict},
};

#[tokio::test]
async fn thread_and_its_turns_start_and_end() {
    let runner = TestRunner::with_script(ECHO).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    assert_eq!(supervisor.hello.runner_id, "runner-1");
    assert_eq!(supervisor.hello.kinds[0].kind, "process");
    supervisor.heartbeat().await;

    supervisor.start(start()).await;
    let started = supervisor.acknowledged_report().await;
    assert_eq!((started.generation, started.report_sequence), (1, 1));
    assert!(matches!(started.kind, Some(Kind::TurnStarted(_))));
    let ended = supervisor.turn_ended().await;
    assert_eq!(
        (ended.turn, ended.outcome(), ended.message.as_str()),
        (1, TurnOutcome::Completed, "done")
    );
    assert_eq!(ended.usage.map(|usage| usage.turns), Some(1));
    assert_eq!(ended.output_sha256.len(), 64);

    // The same program executes the next turn. A repeated dispatch of a turn has no effect.
    supervisor.give_turn(turn(1)).await;
    supervisor.give_turn(turn(2)).await;
    assert_eq!(supervisor.turn_started().await, 2);
    assert_eq!(supervisor.turn_ended().await.usage.map(|usage| usage.turns), Some(2));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn repeated_start_is_idempotent() {
    let runner = TestRunner::with_script(&format!("echo started >> $DIR/starts\n{ECHO}")).await;
    let mut supervisor = runner.started(start()).await;
    supervisor.start(start()).await;
    assert_eq!(supervisor.turn_started().await, 1);
    supervisor.turn_ended().await;
    supervisor.give_turn(turn(2)).await;
    assert_eq!(supervisor.turn_started().await, 2);
    assert_eq!(runner.file("starts"), "started");
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn commands_of_another_generation_are_dropped() {
    let runner = TestRunner::with_script(ECHO).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    let mut second = start();
    second.generation = 2;
    supervisor.start(second).await;
    assert_eq!(supervisor.acknowledged_report().await.generation, 2);
    supervisor.turn_ended().await;

    supervisor.deliver(1, Delivery::Turn(turn(7))).await;
    supervisor.start(start()).await;
    supervisor.deliver(2, Delivery::Turn(turn(2))).await;
    assert_eq!(supervisor.turn_started().await, 2);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn newer_generation_replaces_older_one() {
    let runner = TestRunner::with_script(ECHO).await;
    let mut supervisor = runner.in_first_turn().await;
    supervisor.turn_ended().await;
    let mut second = start();
    second.generation = 2;
    second.turn = Some(turn(2));
    supervisor.start(second).await;
    let report = supervisor.acknowledged_report().await;
    assert_eq!((report.generation, report.report_sequence), (2, 1));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn program_exit_fails_turn_and_next_turn_has_full_prompt() {
    let script = r#"
        IFS= read -r line; printf '%s\n' "$line" >> $DIR/turns
        if [ -e $DIR/once ]; then
          echo '{"type":"turn_end","outcome":"completed","message":"better"}'; read -r line; exit 0
        fi
        touch $DIR/once; echo 'out of ideas' >&2; exit 3
    "#;
    let runner = TestRunner::with_script(script).await;
    let mut supervisor = runner.in_first_turn().await;
    let ended = supervisor.turn_ended().await;
    assert_eq!(ended.outcome(), TurnOutcome::Errored);
    assert_eq!(ended.message, "the program ended (exit status 3): out of ideas");

    let delta = Turn {
        turn: 2,
        blocks: vec![block(BlockKind::Task, "the next task")],
        extent: PromptExtent::Delta.into(),
        inputs: vec![input("again")],
        ..Default::default()
    };
    supervisor.give_turn(delta).await;
    assert_eq!(supervisor.turn_started().await, 2);
    let Some(Kind::Prompt(prompt)) = supervisor.acknowledged_report().await.kind else {
        panic!("the runner says what it made of the prompt");
    };
    let texts: Vec<_> = prompt.blocks.iter().map(|block| block.text.as_str()).collect();
    assert_eq!(texts, ["the system", "the next task"]);
    assert_eq!(supervisor.turn_ended().await.message, "better");
    let turns = runner.file("turns");
    assert!(turns.lines().all(|line| line.contains(r#""extent":"full""#)), "{turns}");
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn unknown_lines_are_output_and_long_lines_dropped() {
    let script = r#"
        read -r line
        echo '{"type":"turn_end","outcome":"sideways"}'
        echo '{"tool_call":'
        head -c 1500000 /dev/zero | tr '\0' 'x'; echo
        read -r line
        echo '{"type":"input_taken","number":2}'
        echo '{"type":"turn_end","outcome":"completed","message":"still here"}'
        read -r line
    "#;
    let runner = TestRunner::with_script(script).await;
    let mut supervisor = runner.in_first_turn().await;
    supervisor.output("[a line of 1500000 bytes was dropped]").await;
    supervisor.give_input(2, 1, "go on").await;
    assert!(matches!(
        supervisor.acknowledged_report().await.kind,
        Some(Kind::InputDelivered(_))
    ));
    let ended = supervisor.turn_ended().await;
    assert_eq!(
        (ended.outcome(), ended.message.as_str()),
        (TurnOutcome::Completed, "still here")
    );
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn input_reaches_running_turn_once() {
    let script = r#"
        while IFS= read -r line; do
          case "$line" in
            *'"type":"turn"'*) echo '{"type":"output","text":"ready"}' ;;
            *more*)
              echo '{"type":"input_taken","number":0}'
              echo '{"type":"input_taken","number":1}'
              echo '{"type":"input_taken","number":2}'
              echo '{"type":"input_taken","number":2}'
              ;;
            *passed_over*) ;;
            *last*)
              echo '{"type":"input_taken","number":5}'
              echo '{"type":"turn_end","outcome":"completed"}'
              ;;
          esac
        done
    "#;
    let runner = TestRunner::with_script(script).await;
    let mut supervisor = runner.in_first_turn().await;
    supervisor.give_input(2, 1, "more").await;
    supervisor.give_input(2, 1, "more").await;
    supervisor.give_input(3, 9, "of another turn").await;
    supervisor.give_input(4, 1, "passed_over").await;
    supervisor.give_input(5, 1, "last").await;
    let mut delivered = Vec::new();
    for _ in 0..2 {
        match supervisor.acknowledged_report().await.kind {
            Some(Kind::InputDelivered(input)) => delivered.push(input.number),
            other => panic!("input is delivered, not {other:?}"),
        }
    }
    assert_eq!(delivered, [2, 5], "only offered input is delivered, and only once");
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Completed);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn interrupted_turn_gets_no_more_input() {
    let script = r#"
        read -r turn
        read -r interrupt
        IFS= read -r line; printf '%s\n' "$line" > $DIR/next
    "#;
    let runner = TestRunner::with_script(script).await;
    let mut supervisor = runner.in_first_turn().await;
    supervisor.interrupt(1).await;
    supervisor.give_input(2, 1, "more").await;
    supervisor
        .close(ClosePolicy::Terminate, Duration::from_secs(3600))
        .await;
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Interrupted);
    supervisor.stopped().await;
    assert!(runner.file("next").contains("shutdown"), "{}", runner.file("next"));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn thread_that_cannot_start_is_refused() {
    let runner = TestRunner::with(ECHO, |config| {
        change(config, |program| program.command = "/nowhere/agent".into());
    })
    .await;
    let mut supervisor = runner.started(start()).await;
    let refused = supervisor.refused().await;
    assert_eq!(refused.refusal(), StartRefusal::NoProgram);
    assert!(refused.message.contains("/nowhere/agent"), "{}", refused.message);

    // Uses another thread: a repeated start of the attempt that was just rejected may count as a repetition.
    let mut elsewhere = start();
    elsewhere.thread_id = "0190a5a4-0000-7000-8000-000000000002".to_owned();
    elsewhere.working_directory = "/nowhere".to_owned();
    supervisor.start(elsewhere).await;
    assert!(supervisor.refused().await.message.contains("cannot work in /nowhere"));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn full_or_unenforcing_runner_refuses_start() {
    let runner = TestRunner::with(ECHO, |config| config.capacity = 1).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    let read_only = StartThread {
        thread_id: "0190a5a4-0000-7000-8000-000000000002".to_owned(),
        resolved: Some(ResolvedSpawn {
            sandbox: Sandbox::ReadOnly.into(),
            ..ResolvedSpawn::default()
        }),
        ..start()
    };
    supervisor.start(read_only).await;
    assert_eq!(supervisor.refused().await.refusal(), StartRefusal::PolicyNotEnforceable);

    supervisor.start(start()).await;
    supervisor.turn_started().await;
    let mut second = start();
    second.thread_id = "0190a5a4-0000-7000-8000-000000000003".to_owned();
    supervisor.start(second).await;
    assert_eq!(supervisor.refused().await.refusal(), StartRefusal::NoCapacity);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn runner_for_single_use_has_one_session() {
    let runner = TestRunner::with(ECHO, |config| config.is_single_use = true).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    let of = |session: &str, number: u32, cwd: &str| StartThread {
        command_id: format!("start-{number}"),
        session_id: session.to_owned(),
        thread_id: format!("0190a5a4-0000-7000-8000-00000000000{number}"),
        working_directory: cwd.to_owned(),
        ..start()
    };
    // A failed start leaves the runner available.
    supervisor.start(of("a", 2, "/nowhere")).await;
    assert_eq!(supervisor.refused().await.refusal(), StartRefusal::NoProgram);
    supervisor.start(of("b", 1, "")).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    supervisor.start(of("a", 3, "")).await;
    let refused = supervisor.refused().await;
    assert_eq!(
        (refused.refusal(), refused.message.as_str()),
        (
            StartRefusal::NoCapacity,
            "the runner executes threads of session b only"
        )
    );

    // After the runner's first thread, a failed start does not make the runner available to other sessions.
    supervisor.start(of("b", 4, "/nowhere")).await;
    assert_eq!(supervisor.refused().await.refusal(), StartRefusal::NoProgram);
    supervisor.start(of("a", 5, "")).await;
    assert_eq!(supervisor.refused().await.refusal(), StartRefusal::NoCapacity);
    drop(supervisor);
    let mut supervisor = runner.attached(vec![verdict(true, 2)]).await;
    assert_eq!(supervisor.hello.session_id, "b");
    supervisor
        .close(ClosePolicy::Terminate, Duration::from_secs(3600))
        .await;
    supervisor.draining().await;
    supervisor.stopped().await;
    runner.ended().await.unwrap();
}

#[tokio::test]
async fn program_environment_has_no_token() {
    let script = r#"
        env > $DIR/env
        read -r line
        echo '{"type":"turn_end","outcome":"completed"}'
        read -r line
    "#;
    let runner = TestRunner::with_script(script).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    let mut secret = start();
    secret.thread_token = "thread-token".to_owned();
    supervisor.start(secret).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    let environment = runner.file("env");
    assert!(environment.contains("TROUPE_THREAD_ID="), "{environment}");
    assert!(!environment.contains("-token"), "{environment}");
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn rejected_token_ends_runner() {
    let runner = TestRunner::with(ECHO, |config| config.token = Some("wrong".parse().unwrap())).await;
    let refused = runner.ended().await;
    assert!(
        matches!(
            refused,
            Err(RunnerError::Refused {
                code: Code::Unauthenticated,
                ..
            })
        ),
        "{refused:?}"
    );
}
