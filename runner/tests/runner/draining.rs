//! Runner drain: a stopping runner accepts no more threads, lets turns end, and disconnects.

use std::time::Duration;

use troupe_proto::supervisor::v1::{ClosePolicy, HeldThreadVerdict, StartRefusal, StartThread, TurnOutcome};

use crate::{
    program::{ECHO, INTERRUPTIBLE, PATIENT, STUBBORN, all_gone, is_running},
    supervisor::{Stage, THREAD, start, turn},
};

const LONG: Duration = Duration::from_secs(3600);

/// A runner that drains for as long as it takes.
async fn stage(script: &str) -> Stage {
    Stage::with(script, |config| config.timing.drain_limit = LONG).await
}

/// Another thread than the one of most tests.
fn another() -> StartThread {
    StartThread {
        thread_id: "0190a5a4-0000-7000-8000-000000000002".to_owned(),
        ..start()
    }
}

fn let_it_go_on(stage: &Stage) {
    std::fs::write(stage.directory.path().join("go"), "").unwrap();
}

#[tokio::test]
async fn a_turn_under_way_ends_before_the_runner_does() {
    let stage = stage(PATIENT).await;
    let mut supervisor = stage.attached(Vec::new()).await;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    stage.ask_to_end();
    supervisor.draining().await;

    supervisor.start(another()).await;
    let refused = supervisor.refused().await;
    assert_eq!(
        (refused.refusal(), refused.message.as_str()),
        (StartRefusal::NoCapacity, "the runner is stopping")
    );
    let_it_go_on(&stage);
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Completed);
    // The program of a settled thread is the supervisor's to stop.
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    supervisor.stopped().await;
    stage.over().await.unwrap();
}

#[tokio::test]
async fn every_stream_is_told() {
    let stage = stage(PATIENT).await;
    let mut supervisor = stage.attached(Vec::new()).await;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    stage.ask_to_end();
    supervisor.draining().await;
    drop(supervisor);

    let verdict = HeldThreadVerdict {
        thread_id: THREAD.to_owned(),
        go_on: true,
        applied_report_sequence: 1,
    };
    let mut supervisor = stage.attached(vec![verdict]).await;
    supervisor.draining().await;
    let_it_go_on(&stage);
    assert_eq!(supervisor.turn_ended().await.turn, 1);
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    supervisor.stopped().await;
    stage.over().await.unwrap();
}

#[tokio::test]
async fn what_does_not_end_in_time_is_stopped() {
    let stage = Stage::with(STUBBORN, |config| {
        config.timing.drain_limit = Duration::from_millis(200);
    })
    .await;
    let mut supervisor = stage.attached(Vec::new()).await;
    supervisor.start(start()).await;
    supervisor.output("stubborn").await;
    let ids = ["parent", "child"].map(|who| stage.file(who));
    assert!(ids.iter().all(|id| is_running(id)), "{ids:?} are running");
    stage.ask_to_end();
    supervisor.draining().await;
    stage.over().await.unwrap();
    all_gone(&ids).await;
}

/// A runner that gives turns no time to end, and programs enough to end a turn that is interrupted.
async fn impatient(script: &str) -> Stage {
    Stage::with(script, |config| {
        config.timing.drain_limit = Duration::ZERO;
        config.timing.stop_grace = LONG;
    })
    .await
}

#[tokio::test]
async fn running_turn_of_stopped_runner_is_interrupted() {
    let stage = impatient(INTERRUPTIBLE).await;
    let mut supervisor = stage.attached(Vec::new()).await;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    stage.ask_to_end();
    let ended = supervisor.turn_ended().await;
    assert_eq!(
        (ended.outcome(), ended.message.as_str(), ended.runner_stopped),
        (TurnOutcome::Interrupted, "the service was stopped", true)
    );
    supervisor.stopped().await;
    assert_eq!(stage.over().await.unwrap().interrupted, [THREAD]);
}

#[tokio::test]
async fn stopped_runner_waits_for_acknowledgement_of_reports() {
    let stage = impatient(INTERRUPTIBLE).await;
    let mut supervisor = stage.attached(Vec::new()).await;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    stage.ask_to_end();
    let ended = supervisor.report().await;
    let stopped = supervisor.report().await;
    assert_eq!(stopped.report_sequence, ended.report_sequence + 1);
    // The stream is lost before the acknowledgements: on the next one the reports come again.
    drop(supervisor);
    let verdict = HeldThreadVerdict {
        thread_id: THREAD.to_owned(),
        go_on: true,
        applied_report_sequence: 1,
    };
    let mut supervisor = stage.attached(vec![verdict]).await;
    assert!(supervisor.turn_ended().await.runner_stopped);
    supervisor.stopped().await;
    stage.over().await.unwrap();
}

#[tokio::test]
async fn stopped_runner_ends_without_acknowledgement_in_time() {
    let stage = Stage::with(INTERRUPTIBLE, |_| {}).await;
    let mut supervisor = stage.attached(Vec::new()).await;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    stage.ask_to_end();
    stage.over().await.unwrap();
}

#[tokio::test]
async fn a_runner_without_threads_leaves_at_once() {
    let stage = stage(ECHO).await;
    let _supervisor = stage.attached(Vec::new()).await;
    stage.shut_down().await.unwrap();
}

#[tokio::test]
async fn the_place_of_a_settled_thread_is_free_once_its_program_has_stopped() {
    let stage = Stage::with(ECHO, |config| config.capacity = 1).await;
    let mut supervisor = stage.attached(Vec::new()).await;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    supervisor.close(ClosePolicy::Terminate, LONG).await;
    supervisor.stopped().await;

    supervisor.start(another()).await;
    let report = supervisor.acknowledged_report().await;
    assert_eq!((report.thread_id, report.report_sequence), (another().thread_id, 1));
    supervisor.turn_ended().await;

    // The first one is open still; its next turn is a new attempt, for which there is no place yet.
    let next = StartThread {
        generation: 2,
        turn: Some(turn(2)),
        ..start()
    };
    supervisor.start(next).await;
    assert_eq!(supervisor.refused().await.refusal(), StartRefusal::NoCapacity);
    stage.shut_down().await.unwrap();
}
