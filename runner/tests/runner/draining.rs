//! Runner drain: a stopping runner accepts no more threads, lets turns end, and disconnects.

use std::time::Duration;

use troupe_proto::supervisor::v1::{ClosePolicy, StartRefusal, StartThread, TurnOutcome};

use crate::{
    program::{ECHO, INTERRUPTIBLE, PATIENT, STUBBORN, all_gone, stubborn},
    supervisor::{THREAD, TestRunner, start, turn, verdict},
};

const LONG: Duration = Duration::from_secs(3600);

/// Returns a runner with a drain limit that no test reaches.
async fn runner(script: &str) -> TestRunner {
    TestRunner::with(script, |config| config.timing.drain_limit = LONG).await
}

/// Returns the start of a second thread.
fn another() -> StartThread {
    StartThread {
        thread_id: "0190a5a4-0000-7000-8000-000000000002".to_owned(),
        ..start()
    }
}

fn finish_turn(runner: &TestRunner) {
    std::fs::write(runner.directory.path().join("go"), "").unwrap();
}

#[tokio::test]
async fn running_turn_ends_before_runner() {
    let runner = runner(PATIENT).await;
    let mut supervisor = runner.in_first_turn().await;
    runner.request_stop();
    supervisor.draining().await;

    supervisor.start(another()).await;
    let refused = supervisor.refused().await;
    assert_eq!(
        (refused.refusal(), refused.message.as_str()),
        (StartRefusal::NoCapacity, "the runner is stopping")
    );
    finish_turn(&runner);
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Completed);
    // The supervisor must stop the program of a settled thread.
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    supervisor.stopped().await;
    runner.ended().await.unwrap();
}

#[tokio::test]
async fn draining_is_announced_on_every_stream() {
    let runner = runner(PATIENT).await;
    let mut supervisor = runner.in_first_turn().await;
    runner.request_stop();
    supervisor.draining().await;
    drop(supervisor);

    let mut supervisor = runner.attached(vec![verdict(true, 1)]).await;
    supervisor.draining().await;
    finish_turn(&runner);
    assert_eq!(supervisor.turn_ended().await.turn, 1);
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    supervisor.stopped().await;
    runner.ended().await.unwrap();
}

#[tokio::test]
async fn draining_runner_without_supervisor_ends_after_lease() {
    let runner = runner(STUBBORN).await;
    let (mut supervisor, ids) = stubborn(&runner).await;
    runner.request_stop();
    supervisor.draining().await;
    drop(supervisor);
    runner.ended().await.unwrap();
    all_gone(&ids).await;
}

#[tokio::test]
async fn thread_over_drain_timeout_is_stopped() {
    let runner = TestRunner::with(STUBBORN, |config| {
        config.timing.drain_limit = Duration::from_millis(200);
    })
    .await;
    let (mut supervisor, ids) = stubborn(&runner).await;
    runner.request_stop();
    supervisor.draining().await;
    runner.ended().await.unwrap();
    all_gone(&ids).await;
}

/// Returns a runner that interrupts running turns immediately, and whose programs have enough time to end them.
async fn runner_without_drain_time(script: &str) -> TestRunner {
    TestRunner::with(script, |config| {
        config.timing.drain_limit = Duration::ZERO;
        config.timing.stop_grace = LONG;
    })
    .await
}

#[tokio::test]
async fn running_turn_of_stopped_runner_is_interrupted() {
    let runner = runner_without_drain_time(INTERRUPTIBLE).await;
    let mut supervisor = runner.in_first_turn().await;
    runner.request_stop();
    let ended = supervisor.turn_ended().await;
    assert_eq!(
        (ended.outcome(), ended.message.as_str(), ended.runner_stopped),
        (TurnOutcome::Interrupted, "the service was stopped", true)
    );
    supervisor.stopped().await;
    assert_eq!(runner.ended().await.unwrap().interrupted, [THREAD]);
}

#[tokio::test]
async fn stopped_runner_waits_for_acknowledgement_of_reports() {
    let runner = runner_without_drain_time(INTERRUPTIBLE).await;
    let mut supervisor = runner.in_first_turn().await;
    runner.request_stop();
    let ended = supervisor.report().await;
    let stopped = supervisor.report().await;
    assert_eq!(stopped.report_sequence, ended.report_sequence + 1);
    // The stream is lost before the acknowledgements, so the reports are sent again on the next one.
    drop(supervisor);
    let mut supervisor = runner.attached(vec![verdict(true, 1)]).await;
    assert!(supervisor.turn_ended().await.runner_stopped);
    supervisor.stopped().await;
    runner.ended().await.unwrap();
}

#[tokio::test]
async fn stopped_runner_ends_without_acknowledgement_in_time() {
    let runner = TestRunner::with(INTERRUPTIBLE, |_| {}).await;
    let _supervisor = runner.in_first_turn().await;
    runner.request_stop();
    runner.ended().await.unwrap();
}

#[tokio::test]
async fn runner_without_threads_stops_immediately() {
    let runner = runner(ECHO).await;
    let _supervisor = runner.attached(Vec::new()).await;
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn slot_of_closed_thread_is_freed_after_program_stops() {
    let runner = TestRunner::with(ECHO, |config| config.capacity = 1).await;
    let mut supervisor = runner.in_first_turn().await;
    supervisor.turn_ended().await;
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    supervisor.stopped().await;

    supervisor.start(another()).await;
    let report = supervisor.acknowledged_report().await;
    assert_eq!((report.thread_id, report.report_sequence), (another().thread_id, 1));
    supervisor.turn_ended().await;

    // The first thread is still open. Its next turn is a new attempt, for which there is no capacity.
    let next = StartThread {
        generation: 2,
        turn: Some(turn(2)),
        ..start()
    };
    supervisor.start(next).await;
    assert_eq!(supervisor.refused().await.refusal(), StartRefusal::NoCapacity);
    runner.shut_down().await.unwrap();
}
