//! Tests of Ctrl-C: once for an orderly shutdown, twice for an immediate exit.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use support::{
    TIME_LIMIT, ready_address, start,
    up::{interrupt, troupe, wait_for_ready},
};
use tokio::time::timeout;
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, SpawnAgentRequest, WatchThreadsRequest, event::Kind, watch_threads_response::Message,
};

/// Returns a `troupe` command that logs to standard error.
fn telling(home: &Path, arguments: &[&str]) -> Command {
    let mut command = troupe(home);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

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

#[test]
fn second_signal_skips_the_drain_of_up() {
    let home = tempfile::tempdir().unwrap();
    let ready = home.path().join("ready.json");
    let mut process = telling(home.path(), &["up", "--no-runner", "--ready-file", "ready.json"])
        .args(["--registry-listen", "127.0.0.1:0", "--supervisor-listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    let addresses = wait_for_ready(&ready, &mut process);
    // A silent peer blocks the drain until its time limit. The received bytes show that the connection was accepted.
    let mut silent = TcpStream::connect(addresses["supervisor"].as_str().unwrap()).unwrap();
    silent.read_exact(&mut [0; 9]).unwrap();

    let (code, said) = asked_twice(process);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped at the second signal"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_signal_skips_the_drain_of_run() {
    let home = tempfile::tempdir().unwrap();
    let (_pair, mut client) = start(home.path()).await;
    let created = client.create_session(CreateSessionRequest::default()).await.unwrap();
    let session = created.into_inner().session.unwrap().session_id;
    let watch = WatchThreadsRequest {
        session_id: session.clone(),
        ..WatchThreadsRequest::default()
    };
    let mut events = client.watch_threads(watch).await.unwrap().into_inner();

    let address = ready_address(home.path());
    let runner = telling(home.path(), &["run", "--supervisor", &address, "--drain", "1h"])
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
