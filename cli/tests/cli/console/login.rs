//! Logging in and out, and the permissions of a login.

use http::{StatusCode, header};
use tonic::Code;
use troupe_proto::console::v1::WatchRequest;

use super::{
    assert_is_open, close_request, failure_of, free_address, list_sessions, snapshot, start, until, watch,
    watch_session,
};
use crate::support::{
    browser::{Browser, ConsoleProcess},
    up::{Up, fails, stderr},
};

#[tokio::test]
async fn link_logs_in_once() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let (page, code) = console.link();
    let mut browser = Browser::at(&page);
    assert_eq!(browser.me().await.0, StatusCode::UNAUTHORIZED);

    let (status, text) = browser.log_in("wrong").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(text.starts_with("wrong code"), "{text}");

    let (status, cookie) = browser.log_in(&code).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let attributes = "; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200";
    assert!(
        cookie.starts_with("troupe-console-") && cookie.ends_with(attributes),
        "{cookie}"
    );
    let (status, me) = browser.me().await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(me["role"], "operator");
    assert_eq!(me["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        Some(me["supervisor"].as_str().unwrap()),
        up.supervisor().strip_prefix("http://")
    );

    let mut second = Browser::at(&page);
    let (status, text) = second.log_in(&code).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(text.contains("has expired or was used"), "{text}");
    // After a used link was opened, the console prints a new link.
    let (_, code) = console.link();
    assert_eq!(second.log_in(&code).await.0, StatusCode::NO_CONTENT);
    assert_eq!(second.me().await.0, StatusCode::OK);
}

#[tokio::test]
async fn logout_ends_the_login_and_its_streams() {
    let (up, _console, browser) = start(&[]).await;
    let (session_id, _) = up.spawn(&["worker", "hold"]);
    let mut merged = watch(&browser, WatchRequest::default()).await;
    until(&mut merged, snapshot).await;
    let mut forwarded = watch_session(&browser, &session_id).await;
    assert!(forwarded.message().await.unwrap().is_some());

    let response = browser.send("POST", "/logout", "").await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert!(
        response.headers()[header::SET_COOKIE]
            .to_str()
            .unwrap()
            .ends_with("; Max-Age=0")
    );
    assert_eq!(browser.me().await.0, StatusCode::UNAUTHORIZED);
    let status = list_sessions(&browser).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    for status in [failure_of(&mut merged).await, failure_of(&mut forwarded).await] {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert_eq!(status.message(), "the login has ended");
    }
}

#[tokio::test]
async fn rejected_token_does_not_end_the_login() {
    let mut up = Up::start();
    let output = up.run(&["console", "--token", "0123456789abcdef-wrong"]);
    assert_ne!(output.status.code(), Some(0), "the token is checked at the start");
    assert!(stderr(&output).contains("UNAUTHENTICATED"), "{}", stderr(&output));

    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    up.kill();
    std::fs::write(up.data_dir().join("operator.token"), "0123456789abcdef-new").unwrap();
    up.restart();
    let status = loop {
        let status = list_sessions(&browser).await.unwrap_err();
        if status.code() != Code::Unavailable {
            break status;
        }
    };
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("token of the console"), "{status}");
    let mut stream = watch(&browser, WatchRequest::default()).await;
    let status = stream.message().await.unwrap_err();
    assert_ne!(status.code(), Code::Unauthenticated, "{status}");
    assert_eq!(browser.me().await.0, StatusCode::OK);
}

#[tokio::test]
async fn read_only_console_changes_nothing() {
    let (up, _console, browser) = start(&["--read-only"]).await;
    assert_eq!(browser.me().await.1["role"], "viewer");
    let (session_id, thread_id) = up.spawn(&["worker", "hold"]);
    let sessions = list_sessions(&browser).await.unwrap();
    assert_eq!(sessions.len(), 1);
    let mut stream = watch(&browser, WatchRequest::default()).await;
    until(&mut stream, snapshot).await;

    let request = close_request(&session_id, &thread_id);
    let status = browser.supervisor().close_agent(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("--read-only"), "{status}");
    assert_is_open(&up, &thread_id);
}

#[tokio::test]
async fn public_url_needs_tls_and_has_a_secure_cookie() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(
        &up,
        &["--listen", "127.0.0.1:0", "--public-url", "https://console.example"],
    );
    let (page, _) = console.link();
    assert_eq!(page, "https://console.example");
    drop(console);

    let address = free_address();
    let flags = ["--listen", &address, "--public-url", "https://console.example"];
    let mut console = ConsoleProcess::start(&up, &flags);
    let (page, code) = console.link();
    let mut browser = Browser::at(&format!("http://{address}"))
        .with("host", Some("console.example"))
        .with("origin", Some(&page));
    let (status, cookie) = browser.log_in(&code).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(
        cookie.starts_with("__Host-troupe-console=") && cookie.contains("; Secure"),
        "{cookie}"
    );
    assert_eq!(browser.me().await.0, StatusCode::OK);
    let plain = browser.with("origin", Some("http://console.example"));
    assert_eq!(plain.send("POST", "/logout", "").await.status(), StatusCode::FORBIDDEN);

    for (flags, text) in [
        (&["--listen", "0.0.0.0:0"][..], "--public-url"),
        (&["--public-url", "http://console.example"], "https"),
        (&["--public-url", "https://console.example/path"], "without a path"),
    ] {
        fails(&up.run(&[&["console"], flags].concat()), 2, text);
    }
}
