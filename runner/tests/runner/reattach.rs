//! Broken streams: threads continue, and their reports arrive on the next stream.

use std::time::Duration;

use svc_kit::shown_token::ShownToken;
use troupe_proto::supervisor::v1::{ClosePolicy, RunnerGoAway, TurnOutcome, attach_response, runner_report::Kind};

use crate::{
    program::{ECHO, PATIENT, is_running},
    supervisor::{TestRunner, start, turn, verdict},
};

#[tokio::test]
async fn unacknowledged_reports_are_resent() {
    let runner = TestRunner::with_script(ECHO).await;
    let mut supervisor = runner.started(start()).await;
    let started = supervisor.acknowledged_report().await;
    let ended = supervisor.report().await;
    assert_eq!((started.report_sequence, ended.report_sequence), (1, 2));
    drop(supervisor);

    let mut supervisor = runner.attached(vec![verdict(true, 1)]).await;
    let held = &supervisor.hello.threads[0];
    assert_eq!((held.generation, held.turn, held.report_sequence), (1, 1, 2));
    assert_eq!(supervisor.acknowledged_report().await, ended);
    // The new stream receives new reports as well.
    supervisor.give_turn(turn(2)).await;
    assert_eq!(supervisor.acknowledged_report().await.report_sequence, 3);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn turn_end_during_disconnect_is_reported() {
    let runner = TestRunner::with_script(PATIENT).await;
    let supervisor = runner.in_first_turn().await;
    supervisor
        .send(attach_response::Message::GoAway(RunnerGoAway {
            reason: "draining".to_owned(),
        }))
        .await;
    std::fs::write(runner.directory.path().join("go"), "").unwrap();

    let mut supervisor = runner.attached(vec![verdict(true, 1)]).await;
    let ended = supervisor.turn_ended().await;
    assert_eq!((ended.turn, ended.outcome()), (1, TurnOutcome::Completed));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn released_thread_is_stopped_without_report() {
    let runner = TestRunner::with_script(PATIENT).await;
    let mut supervisor = runner.started(start()).await;
    supervisor.output("ready").await;
    drop(supervisor);

    let mut supervisor = runner.attached(vec![verdict(false, 1)]).await;
    // The thread's next attempt starts after the old one has ended. Only the new attempt is reported.
    let old = runner.file("pid");
    std::fs::write(runner.directory.path().join("go"), "").unwrap();
    let mut second = start();
    second.generation = 2;
    supervisor.start(second).await;
    let report = supervisor.acknowledged_report().await;
    assert_eq!((report.generation, report.report_sequence), (2, 1));
    assert!(!is_running(&old));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn each_stream_uses_current_token_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    // The token is as long as a projected Kubernetes service account token.
    let token = |name: &str| format!("runner-token-{name}-{}", "x".repeat(1_500));
    std::fs::write(&path, token("old")).unwrap();
    let runner = TestRunner::with(ECHO, |config| {
        config.token = Some(ShownToken::load(path.clone()).unwrap());
    })
    .await;
    let supervisor = runner.attached(Vec::new()).await;
    assert_eq!(supervisor.token, token("old"));
    std::fs::write(&path, token("newer")).unwrap();
    drop(supervisor);
    let supervisor = runner.attached(Vec::new()).await;
    assert_eq!(supervisor.token, token("newer"));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn unknown_thread_is_reported_stopped() {
    let runner = TestRunner::with_script(ECHO).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    supervisor
        .close_generation(4, ClosePolicy::Terminate, Duration::from_secs(1))
        .await;
    let report = supervisor.report().await;
    assert_eq!((report.generation, report.report_sequence), (4, 1));
    assert!(matches!(report.kind, Some(Kind::Stopped(_))));
    drop(supervisor);

    // The runner reports the stop again on each stream until it is durable.
    let mut supervisor = runner.attached(vec![verdict(true, 0)]).await;
    assert_eq!(supervisor.hello.threads[0].report_sequence, 1);
    supervisor.stopped().await;
    runner.shut_down().await.unwrap();
}
