//! The end of the console's process, and `troupe up --console`.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use http::StatusCode;
use tonic::Code;
use troupe_proto::console::v1::WatchRequest;

use super::{failure_of, free_address, list_sessions, snapshot, until, watch};
use crate::support::{
    browser::ConsoleProcess,
    up::{Up, troupe, words},
};

#[tokio::test]
async fn signal_ends_the_console_and_its_logins() {
    let up = Up::start();
    let address = free_address();
    let mut console = ConsoleProcess::start(&up, &["--listen", &address]);
    let browser = console.log_in().await;
    up.spawn(&["worker", "hold"]);
    let mut stream = watch(&browser, WatchRequest::default()).await;
    until(&mut stream, snapshot).await;
    let started = Instant::now();
    assert_eq!(console.terminate(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let status = failure_of(&mut stream).await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");

    let mut console = ConsoleProcess::start(&up, &["--listen", &address]);
    console.link();
    assert_eq!(browser.me().await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn up_serves_the_console() {
    let home = tempfile::tempdir().unwrap();
    let mut command = troupe(home.path());
    command
        .args(words(
            "up --registry-listen 127.0.0.1:0 --supervisor-listen 127.0.0.1:0",
        ))
        .args(["--console", "--console-listen", "127.0.0.1:0", "--output", "json"]);
    let mut up = ConsoleProcess::of(command, Stdio::null());
    let browser = up.log_in().await;
    assert_eq!(browser.me().await.1["role"], "operator");
    let sessions = list_sessions(&browser).await.unwrap();
    assert!(sessions.is_empty());
    let _stream = watch(&browser, WatchRequest::default()).await;
    let started = Instant::now();
    assert_eq!(up.terminate(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}
