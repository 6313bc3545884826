//! Watching and retrying over a real restart of the service.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::{Client, PATIENCE, log, start};
use tokio::time::timeout;
use tonic::{Code, Streaming};
use troupe_proto::{
    fault::{metadata_of, reason_of},
    reason::Reason,
    supervisor::v1::{
        CloseAgentRequest, CreateSessionRequest, SendInputRequest, SpawnAgentRequest, WatchThreadsRequest,
        WatchThreadsResponse, event::Kind, watch_threads_response::Message,
    },
};

async fn session(client: &mut Client) -> String {
    let request = CreateSessionRequest {
        request_id: String::from("the session"),
        ..CreateSessionRequest::default()
    };
    client
        .create_session(request)
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap()
        .session_id
}

fn worker(session: &str, request_id: &str) -> SpawnAgentRequest {
    SpawnAgentRequest {
        request_id: request_id.to_owned(),
        session_id: session.to_owned(),
        agent_type: String::from("worker"),
        message: Some(String::from("work")),
        ..SpawnAgentRequest::default()
    }
}

async fn spawn(client: &mut Client, session: &str, request_id: &str) -> String {
    let answer = client.spawn_agent(worker(session, request_id)).await.unwrap();
    answer.into_inner().thread.unwrap().thread_id
}

async fn watch(client: &mut Client, session: &str, after: Option<u64>) -> Streaming<WatchThreadsResponse> {
    let request = WatchThreadsRequest {
        session_id: session.to_owned(),
        after_sequence: after,
        ..WatchThreadsRequest::default()
    };
    client.watch_threads(request).await.unwrap().into_inner()
}

async fn next(stream: &mut Streaming<WatchThreadsResponse>) -> WatchThreadsResponse {
    timeout(PATIENCE, stream.message()).await.unwrap().unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_after_a_restart_where_it_was() {
    let home = tempfile::tempdir().unwrap();
    let (mut process, mut client) = start(home.path()).await;
    let session = session(&mut client).await;
    let first = spawn(&mut client, &session, "1").await;

    // A snapshot as of S, with the thread in it, then what comes after S.
    let mut stream = watch(&mut client, &session, None).await;
    let part = next(&mut stream).await;
    let Some(Message::Snapshot(snapshot)) = part.message else {
        panic!("no snapshot")
    };
    assert!(snapshot.last);
    assert_eq!(snapshot.session.unwrap().session_id, session);
    assert!(snapshot.threads.iter().any(|thread| thread.thread_id == first));
    let second = spawn(&mut client, &session, "2").await;
    let event = loop {
        if let Some(Message::Event(event)) = next(&mut stream).await.message {
            break event;
        }
    };
    assert_eq!(
        (event.sequence, event.thread_id.as_str()),
        (part.sequence + 1, second.as_str())
    );

    process.kill().await.unwrap();
    (process, client) = start(home.path()).await;
    let third = spawn(&mut client, &session, "3").await;
    let mut stream = watch(&mut client, &session, Some(event.sequence)).await;
    let Some(Message::Event(resumed)) = next(&mut stream).await.message else {
        panic!("no event")
    };
    assert_eq!(
        (resumed.sequence, resumed.thread_id.as_str()),
        (event.sequence + 1, third.as_str())
    );
    assert!(matches!(resumed.kind, Some(Kind::ThreadSpawned(_))));
    drop(process);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_ahead_of_the_log_says_where_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let (_process, mut client) = start(home.path()).await;
    let session = session(&mut client).await;
    let mut stream = watch(&mut client, &session, Some(99)).await;
    let status = timeout(PATIENCE, stream.message()).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    assert_eq!(reason_of(&status), Some(Reason::AheadOfHead));
    assert_eq!(metadata_of(&status)["head"], "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_has_one_effect_also_over_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let (mut process, mut client) = start(home.path()).await;
    let session_id = session(&mut client).await;
    assert_eq!(session(&mut client).await, session_id, "CreateSession");

    // At once, twelve times the same request.
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (mut client, session_id) = (client.clone(), session_id.clone());
        calls.spawn(async move { spawn(&mut client, &session_id, "same").await });
    }
    let threads = timeout(PATIENCE, calls.join_all()).await.unwrap();
    assert!(threads.iter().all(|thread| *thread == threads[0]), "{threads:?}");
    let thread = threads[0].clone();

    let input = SendInputRequest {
        request_id: String::from("input"),
        thread_id: thread.clone(),
        message: Some(String::from("more")),
        ..SendInputRequest::default()
    };
    let number = client
        .send_input(input.clone())
        .await
        .unwrap()
        .into_inner()
        .input_number;
    let close = CloseAgentRequest {
        request_id: String::from("close"),
        thread_id: thread.clone(),
        wait: true,
        ..CloseAgentRequest::default()
    };
    let before = client
        .close_agent(close.clone())
        .await
        .unwrap()
        .into_inner()
        .status_before
        .unwrap();
    let events = log(&mut client, &session_id).await.len();

    process.kill().await.unwrap();
    (process, client) = start(home.path()).await;
    assert_eq!(session(&mut client).await, session_id);
    assert_eq!(spawn(&mut client, &session_id, "same").await, thread);
    assert_eq!(
        client
            .send_input(input.clone())
            .await
            .unwrap()
            .into_inner()
            .input_number,
        number
    );
    let again = client.close_agent(close).await.unwrap().into_inner();
    assert_eq!(again.status_before.unwrap().kind, before.kind);
    assert_eq!(
        log(&mut client, &session_id).await.len(),
        events,
        "a retry recorded something"
    );

    let other = SendInputRequest {
        message: Some(String::from("something else")),
        ..input
    };
    let status = client.send_input(other).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert_eq!(reason_of(&status), Some(Reason::RequestIdReused));
    drop(process);
}
