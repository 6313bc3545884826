//! Interrupts and stops programs, first with a message and then with signals. No process is left.

use std::time::Duration;

use troupe_proto::supervisor::v1::{ClosePolicy, TurnOutcome};

use crate::{
    program::{ECHO, STUBBORN, all_gone, stubborn},
    supervisor::{TestRunner, start, turn},
};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(3600);

/// Ends its turn when it is interrupted.
const POLITE: &str = r#"
while IFS= read -r line; do
  case "$line" in
    *'"type":"turn"'*) echo '{"type":"output","text":"ready"}' ;;
    *'"type":"interrupt"'*) echo '{"type":"turn_end","outcome":"completed","message":"half done"}' ;;
    *'"type":"shutdown"'*) exit 0 ;;
  esac
done
"#;

#[tokio::test]
async fn program_that_exits_is_not_killed() {
    let runner = TestRunner::with_script(ECHO).await;
    let mut supervisor = runner.in_first_turn().await;
    supervisor.turn_ended().await;
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    let stopped = supervisor.stopped().await;
    assert_eq!((stopped.detail.as_str(), stopped.killed), ("exit status 0", false));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn stubborn_process_group_is_killed_after_grace() {
    let runner = TestRunner::with_script(STUBBORN).await;
    let (mut supervisor, ids) = stubborn(&runner).await;
    supervisor.close(ClosePolicy::Terminate, SHORT).await;
    let ended = supervisor.turn_ended().await;
    assert_eq!(
        (ended.outcome(), ended.message.as_str()),
        (TurnOutcome::Interrupted, "closed")
    );
    let stopped = supervisor.stopped().await;
    assert_eq!(
        (stopped.detail.as_str(), stopped.killed),
        ("killed after its grace", true)
    );
    all_gone(&ids).await;
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn kill_order_ends_grace() {
    let runner = TestRunner::with_script(STUBBORN).await;
    let (mut supervisor, ids) = stubborn(&runner).await;
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    supervisor.close(ClosePolicy::Kill, LONG).await;
    supervisor.turn_ended().await;
    assert!(supervisor.stopped().await.killed);
    all_gone(&ids).await;
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn graceful_close_finishes_running_turn() {
    let runner = TestRunner::with_script(POLITE).await;
    let mut supervisor = runner.started(start()).await;
    supervisor.output("ready").await;
    supervisor.close(ClosePolicy::FinishTurn, LONG).await;
    supervisor.interrupt(1).await;
    assert_eq!(supervisor.turn_ended().await.message, "half done");
    assert!(!supervisor.stopped().await.killed);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn interrupted_turn_ends_and_program_continues() {
    let runner = TestRunner::with_script(POLITE).await;
    let mut supervisor = runner.started(start()).await;
    supervisor.output("ready").await;
    // An interrupt of a turn that is not running has no effect.
    supervisor.interrupt(9).await;
    supervisor.interrupt(1).await;
    let ended = supervisor.turn_ended().await;
    assert_eq!(
        (ended.outcome(), ended.message.as_str()),
        (TurnOutcome::Interrupted, "half done")
    );
    supervisor.give_turn(turn(2)).await;
    assert_eq!(supervisor.turn_started().await, 2);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn interrupt_without_effect_kills_program() {
    let runner = TestRunner::with(STUBBORN, |config| config.timing.interrupt_grace = SHORT).await;
    let (mut supervisor, ids) = stubborn(&runner).await;
    supervisor.interrupt(1).await;
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Interrupted);
    all_gone(&ids).await;
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn stopped_runner_leaves_no_processes() {
    let runner = TestRunner::with_script(STUBBORN).await;
    let (_supervisor, ids) = stubborn(&runner).await;
    runner.shut_down().await.unwrap();
    all_gone(&ids).await;
}
