//! Tests of `troupe console` over HTTP, against a real pair with sample agents.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod login;
mod process;
mod proxy;
mod requests;
mod streams;

use tokio::time::timeout;
use tonic::{Status, Streaming};
use troupe_proto::{
    console::v1::{WatchRequest, WatchResponse, watch_response::Update},
    supervisor::v1::{
        CloseAgentRequest, ListSessionsRequest, Session, WatchThreadsRequest, WatchThreadsResponse,
        watch_threads_response::Message,
    },
};

use crate::support::{
    TIME_LIMIT,
    browser::{Browser, ConsoleProcess},
    up::Up,
};

const LIST_SESSIONS: &str = "/troupe.supervisor.v1.AgentSupervisorService/ListSessions";
const GRPC_WEB: &str = "application/grpc-web+proto";
/// A message without fields.
const EMPTY: &[u8] = &[0; 5];

/// Starts a pair and its console with additional flags. Returns a browser that is logged in.
async fn start(flags: &[&str]) -> (Up, ConsoleProcess, Browser) {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, flags);
    let browser = console.log_in().await;
    (up, console, browser)
}

/// Starts a pair and its console. Returns a browser without a login.
fn start_logged_out() -> (Up, ConsoleProcess, Browser) {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = Browser::at(&console.link().0);
    (up, console, browser)
}

/// Waits for an update of a stream for which the function returns a value.
async fn until<T>(stream: &mut Streaming<WatchResponse>, find: impl Fn(Update) -> Option<T>) -> T {
    let found = async {
        loop {
            let message = stream.message().await.unwrap().expect("the stream continues");
            if let Some(found) = message.update.and_then(&find) {
                return found;
            }
        }
    };
    timeout(TIME_LIMIT, found).await.expect("the stream has the update")
}

/// Returns the threads of a snapshot.
fn snapshot(update: Update) -> Option<Vec<String>> {
    match update {
        Update::Threads(threads) => match threads.response?.message? {
            Message::Snapshot(snapshot) => Some(snapshot.threads.into_iter().map(|thread| thread.thread_id).collect()),
            _ => None,
        },
        _ => None,
    }
}

async fn watch(browser: &Browser, request: WatchRequest) -> Streaming<WatchResponse> {
    browser.console().watch(request).await.unwrap().into_inner()
}

async fn watch_session(browser: &Browser, session_id: &str) -> Streaming<WatchThreadsResponse> {
    let request = WatchThreadsRequest {
        session_id: session_id.to_owned(),
        ..Default::default()
    };
    browser.supervisor().watch_threads(request).await.unwrap().into_inner()
}

/// Waits for the status with which a stream fails.
async fn failure_of<T>(stream: &mut Streaming<T>) -> Status {
    let failed = async {
        loop {
            match stream.message().await {
                Ok(message) => assert!(message.is_some(), "the stream ends with a status"),
                Err(status) => break status,
            }
        }
    };
    timeout(TIME_LIMIT, failed).await.expect("the stream fails")
}

async fn list_sessions(browser: &Browser) -> Result<Vec<Session>, Status> {
    let response = browser
        .supervisor()
        .list_sessions(ListSessionsRequest::default())
        .await?;
    Ok(response.into_inner().sessions)
}

fn close_request(session_id: &str, thread_id: &str) -> CloseAgentRequest {
    CloseAgentRequest {
        session_id: session_id.to_owned(),
        thread_id: thread_id.to_owned(),
        ..Default::default()
    }
}

#[track_caller]
fn assert_is_open(up: &Up, thread_id: &str) {
    let thread = up.json(&["show", thread_id]).1;
    assert_ne!(thread["thread"]["status"]["kind"], "STATUS_KIND_SHUTDOWN", "{thread}");
}

/// Returns an address of this machine with a free port.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
