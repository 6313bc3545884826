//! Test of Ctrl-C for `troupe run`: once for an orderly shutdown, twice for an immediate exit.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Stdio},
};

use tokio::time::timeout;
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, SpawnAgentRequest, WatchThreadsRequest, event::Kind, watch_threads_response::Message,
};

use crate::support::{
    TIME_LIMIT,
    up::{NO_RUNNER, Up, interrupt, troupe},
};

/// Sends SIGINT, and again once the process reports that it is stopping. Returns its exit code and its output.
fn asked_twice(mut process: Child) -> (Option<i32>, String) {
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let mut said = String::new();
    interrupt(process.id());
    while !said.contains("a second Ctrl-C") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended by itself: {said}");
    }
    interrupt(process.id());
    stderr.read_to_string(&mut said).unwrap();
    (process.wait().unwrap().code(), said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_signal_skips_the_drain_of_run() {
    let up = Up::start_with(&[NO_RUNNER]);
    let mut client = up.client().await;
    let created = client.create_session(CreateSessionRequest::default()).await.unwrap();
    let session = created.into_inner().session.unwrap().session_id;
    let watch = WatchThreadsRequest {
        session_id: session.clone(),
        ..WatchThreadsRequest::default()
    };
    let mut events = client.watch_threads(watch).await.unwrap().into_inner();

    let runner = troupe(up.home.path())
        .args(["run", "--supervisor", up.supervisor(), "--drain", "1h"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let request = SpawnAgentRequest {
        session_id: session,
        agent_type: String::from("worker"),
        message: Some(String::from("hold")),
        ..SpawnAgentRequest::default()
    };
    client.spawn_agent(request).await.unwrap();
    timeout(TIME_LIMIT, async {
        loop {
            let message = events.message().await.unwrap().unwrap().message;
            if let Some(Message::Event(event)) = message
                && matches!(event.kind, Some(Kind::TurnStarted(_)))
            {
                return;
            }
        }
    })
    .await
    .unwrap();

    let stopping = tokio::task::spawn_blocking(move || asked_twice(runner));
    let (code, said) = timeout(TIME_LIMIT, stopping).await.unwrap().unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped at the second signal"), "{said}");
}
