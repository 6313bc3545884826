//! The sample agent as a real process.

use std::time::Duration;

use troupe_proto::supervisor::v1::{ClosePolicy, StartThread, TurnOutcome};
use troupe_runner::ProcessProgram;

use crate::{
    supervisor::{TestRunner, input, start},
    tools::SPAWNED,
};

async fn runner() -> TestRunner {
    TestRunner::with("", |config| {
        config.programs = ProcessProgram::new(env!("CARGO_BIN_EXE_troupe-sample-agent"), [""; 0]).into();
    })
    .await
}

fn start_with(task: &str) -> StartThread {
    let mut start = start();
    start.thread_token = "thread-token".to_owned();
    if let Some(turn) = &mut start.turn {
        turn.inputs = vec![input(task)];
    }
    start
}

#[tokio::test]
async fn tool_calls_use_thread_token_and_are_answered() {
    let runner = runner().await;
    let mut supervisor = runner.attached(Vec::new()).await;
    let calls = [
        r#"{"tool_call":{"name":"spawn_agent","args":{"agent_type":"explorer","message":"look"}}}"#,
        r#"{"tool_call":{"name":"spawn_agent","args":{"agent_type":"worker","message":"work"}}}"#,
        r#"{"tool_call":{"name":"compile","args":{}}}"#,
        r#"{"tool_call":{"name":"spawn_node","args":{"label":"Docs Agent"}}}"#,
        r#"{"tool_call":{"name":"send_handoff","args":{"to":"$spawned","message":"this is yours"}}}"#,
        r#"{"tool_call":{"name":"send_handoff","args":{"to":"wolf","message":"this is not"}}}"#,
        r#"{"tool_call":{"name":"create_edge","args":{"from":"wolf","to":"$spawned"}}}"#,
    ];
    supervisor.start(start_with(&calls.join("\n"))).await;
    supervisor.turn_started().await;
    let ended = supervisor.turn_ended().await;
    assert_eq!(ended.outcome(), TurnOutcome::Completed);
    assert_eq!(
        ended.message,
        format!(
            "spawned explorer 0190a5a4…\n\
             spawn_agent refused: agent_type \"worker\" may not be spawned\n\
             compile refused: unsupported tool: compile\n\
             spawn_node refused: spawn_node requires label, roleTemplate (or role), and provider\n\
             handed over to {SPAWNED}\n\
             send_handoff refused: no edge to wolf\n\
             create_edge: waits for an operator"
        )
    );
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn holding_agent_can_be_closed() {
    let runner = runner().await;
    let mut supervisor = runner.started(start_with("hold")).await;
    supervisor.activity("holding").await;
    supervisor
        .close(ClosePolicy::Terminate, Duration::from_secs(3600))
        .await;
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Interrupted);
    assert!(!supervisor.stopped().await.killed);
    runner.shut_down().await.unwrap();
}
