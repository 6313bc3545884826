//! Forwarded calls, and the merged stream of the page.

use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::time::{sleep, timeout};
use tonic::Code;
use troupe_proto::{
    console::v1::{WatchRequest, watch_response::Update},
    registry::v1::ListAgentsRequest,
    supervisor::v1::{GetThreadRequest, TranscriptKind, WaitAgentsRequest, watch_threads_response::Message},
};

use super::{close_request, free_address, list_sessions, snapshot, start, until, watch, watch_session};
use crate::support::{
    TIME_LIMIT,
    browser::{Browser, ConsoleProcess},
    up::Up,
};

/// An id of no session and no thread.
const UNKNOWN: &str = "01939c5a-0000-7000-8000-00000000aa01";

#[tokio::test]
async fn calls_and_streams_are_forwarded() {
    let (up, _console, browser) = start(&[]).await;
    let (session_id, thread_id) = up.spawn(&["worker", "hold"]);

    let sessions = list_sessions(&browser).await.unwrap();
    assert_eq!(sessions[0].session_id, session_id);
    let roles = browser
        .registry()
        .list_agents(ListAgentsRequest {
            allow_partial: true,
            ..Default::default()
        })
        .await;
    assert!(!roles.unwrap().into_inner().agents.is_empty());

    // Forwarded errors contain their details.
    let request = GetThreadRequest {
        thread_id: UNKNOWN.to_owned(),
        ..Default::default()
    };
    let status = browser.supervisor().get_thread(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert!(troupe_proto::fault::reason_of(&status).is_some());

    let mut stream = watch_session(&browser, &session_id).await;
    let first = stream.message().await.unwrap().unwrap();
    assert!(matches!(first.message, Some(Message::Snapshot(_))), "{first:?}");

    let request = close_request(&session_id, &thread_id);
    browser.supervisor().close_agent(request).await.unwrap();
    let closed = async {
        loop {
            if let Some(Message::Event(event)) = stream.message().await.unwrap().unwrap().message
                && event.thread_id == thread_id
            {
                return;
            }
        }
    };
    timeout(TIME_LIMIT, closed).await.unwrap();

    let mut request = tonic::Request::new(WaitAgentsRequest {
        thread_ids: vec![up.spawn(&["worker", "hold"]).1],
        ..Default::default()
    });
    request.set_timeout(Duration::from_millis(300));
    let started = Instant::now();
    let waited = browser.supervisor().wait_agents(request).await.unwrap().into_inner();
    assert!(waited.timed_out, "the supervisor knows the deadline");
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Returns the number of streams that watch a session of the pair.
async fn watchers(admin: &Browser) -> u32 {
    let metrics = admin.send("GET", "/metrics", "").await.into_body();
    let line = metrics.lines().find(|line| line.starts_with("troupe_watchers"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn closed_page_ends_its_streams_at_the_supervisor() {
    let address = free_address();
    let up = Up::start_with(&["--admin-listen", &address]);
    let admin = Browser::at(&format!("http://{address}"));
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    let (session_id, _) = up.spawn(&["worker", "hold"]);
    let mut forwarded = watch_session(&browser, &session_id).await;
    assert!(forwarded.message().await.unwrap().is_some());
    let mut merged = watch(&browser, WatchRequest::default()).await;
    until(&mut merged, snapshot).await;
    assert_eq!(watchers(&admin).await, 2);
    drop((forwarded, merged));
    let ended = async {
        while watchers(&admin).await > 0 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIME_LIMIT, ended).await.expect("the streams end");
}

#[tokio::test]
async fn watch_recovers_from_a_killed_supervisor() {
    let mut up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    let (session_id, thread_id) = up.spawn(&["worker", "hold"]);
    let mut stream = watch(&browser, WatchRequest::default()).await;
    until(&mut stream, |update| match update {
        Update::Session(session) => (session.session?.session_id == session_id).then_some(()),
        _ => None,
    })
    .await;
    let threads = until(&mut stream, snapshot).await;
    assert!(threads.contains(&thread_id), "{threads:?}");

    up.kill();
    let (mut is_lost, mut is_interrupted) = (false, false);
    while !(is_lost && is_interrupted) {
        let news = until(&mut stream, |update| match update {
            Update::Lost(why) => Some(Ok(why)),
            Update::InterruptedSessionId(id) => Some(Err(id)),
            _ => None,
        });
        match news.await {
            Ok(why) => is_lost |= !why.is_empty(),
            Err(id) => is_interrupted |= id == session_id,
        }
    }
    up.restart();
    let (second, _) = up.spawn(&["worker", "hold"]);
    let (mut old, mut new) = (false, false);
    while !(old && new) {
        let id = until(&mut stream, |update| match update {
            Update::OpenedSessionId(id) => Some(id),
            _ => None,
        })
        .await;
        old |= id == session_id;
        new |= id == second;
    }
    assert_eq!(
        browser.me().await.0,
        StatusCode::OK,
        "the login outlives the supervisor"
    );
}

#[tokio::test]
async fn one_session_is_followed_with_a_transcript() {
    let (up, _console, browser) = start(&[]).await;
    let (session_id, thread_id) = up.spawn(&["worker", "say: hello"]);
    let (other, _) = up.spawn(&["worker", "hold"]);
    let request = WatchRequest {
        session_id: session_id.clone(),
        thread_id,
        ..Default::default()
    };
    let mut stream = watch(&browser, request.clone()).await;
    let (mut has_threads, mut has_session, mut has_message) = (false, false, false);
    while !(has_threads && has_session && has_message) {
        match until(&mut stream, Some).await {
            Update::Threads(threads) => {
                assert_eq!(threads.session_id, session_id);
                has_threads = true;
            }
            Update::Session(session) => {
                assert_eq!(
                    session.session.unwrap().session_id,
                    session_id,
                    "{other} is not followed"
                );
                has_session = true;
            }
            Update::Transcript(transcript) => {
                has_message |= transcript
                    .entries
                    .iter()
                    .any(|entry| entry.kind() == TranscriptKind::Message && entry.text.contains("hello"));
            }
            Update::OpenedSessionId(id) => assert_eq!(id, session_id),
            other => panic!("unexpected {other:?}"),
        }
    }

    assert_eq!(up.json(&["session", "close", &session_id]).0, Some(0));
    let request = WatchRequest {
        include_closed: true,
        ..request
    };
    let mut stream = watch(&browser, request).await;
    assert_eq!(until(&mut stream, snapshot).await.len(), 2, "a closed session is shown");

    let request = WatchRequest {
        session_id: UNKNOWN.to_owned(),
        ..Default::default()
    };
    let mut stream = watch(&browser, request).await;
    until(&mut stream, |update| {
        matches!(update, Update::DeletedSessionId(_)).then_some(())
    })
    .await;
}
