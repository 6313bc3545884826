//! Logins by a proxy.

use std::fs;

use http::{HeaderValue, StatusCode, header};
use tonic::Code;
use troupe_proto::console::v1::WatchRequest;

use super::{
    EMPTY, GRPC_WEB, LIST_SESSIONS, assert_is_open, close_request, free_address, requests::send_slowly, snapshot,
    start_logged_out, until, watch,
};
use crate::support::{
    browser::{Browser, ConsoleProcess, audit},
    up::{Up, stderr},
};

/// The header in which a proxy sends its secret.
const SECRET_HEADER: &str = "x-troupe-proxy-secret";
const SECRET: &str = "proxy-secret-0123456789";
const USER_HEADER: &str = "x-forwarded-email";
const CLOSE_AGENT: &str = "troupe.supervisor.v1.AgentSupervisorService/CloseAgent";

/// Starts a console whose proxy logs people in. Returns the browser of a person whom the proxy names.
fn start_behind_proxy(up: &Up, user: &str, flags: &[&str]) -> (ConsoleProcess, Browser) {
    let file = up.home.path().join("proxy.token");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let address = free_address();
    let own = ["--listen", &address, "--public-url", "https://console.example"];
    let proxy = ["--proxy-secret-file", file.to_str().unwrap()];
    let mut console = ConsoleProcess::start(up, &[&own[..], &proxy, flags].concat());
    assert_eq!(console.url(), "https://console.example");
    let browser = Browser::at(&format!("http://{address}"))
        .with("host", Some("console.example"))
        .with("origin", Some("https://console.example"))
        .with(SECRET_HEADER, Some(SECRET))
        .with(USER_HEADER, Some(user));
    (console, browser)
}

#[tokio::test]
async fn proxy_logs_in_operators_and_viewers() {
    let up = Up::start();
    let operators = ["--proxy-operator", "ann@example.org", "--proxy-operator", "auth0|5f7c"];
    let (_console, ann) = start_behind_proxy(&up, "ann@example.org", &operators);
    let bob = ann.with(USER_HEADER, Some("bob@example.org"));
    for (browser, role, user) in [
        (&ann, "operator", "ann@example.org"),
        (&ann.with(USER_HEADER, Some("auth0|5f7c")), "operator", "auth0|5f7c"),
        (
            &ann.with(USER_HEADER, Some("Ann@example.org")),
            "viewer",
            "Ann@example.org",
        ),
        (
            &ann.with(USER_HEADER, Some("ann@example.org,bob")),
            "viewer",
            "ann@example.org,bob",
        ),
        (&bob, "viewer", "bob@example.org"),
    ] {
        let (status, me) = browser.me().await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!((me["role"].as_str(), me["user"].as_str()), (Some(role), Some(user)));
    }
    let page = ann.send("GET", "/sessions", "").await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(!page.headers().contains_key(header::SET_COOKIE));
    for path in ["/login", "/logout"] {
        assert_eq!(ann.send("POST", path, "").await.status(), StatusCode::NOT_FOUND);
    }

    let (session_id, thread_id) = up.spawn(&["worker", "hold"]);
    let mut stream = watch(&bob, WatchRequest::default()).await;
    until(&mut stream, snapshot).await;
    let request = close_request(&session_id, &thread_id);
    let status = bob.supervisor().close_agent(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("--proxy-operator"), "{status}");
    assert_is_open(&up, &thread_id);
    ann.supervisor().close_agent(request).await.unwrap();

    let lines = audit(&up);
    let expected = [("bob", "PERMISSION_DENIED"), ("ann", "OK")]
        .map(|(user, code)| format!("principal=operator:{user}@example.org method=\"{CLOSE_AGENT}\" code=\"{code}\""));
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.contains(&expected), "{line}");
    }
}

#[tokio::test]
async fn read_only_console_makes_proxy_users_viewers() {
    let up = Up::start();
    let (_console, browser) = start_behind_proxy(&up, "ann@example.org", &["--read-only"]);
    assert_eq!(browser.me().await.1["role"], "viewer");
}

#[tokio::test]
async fn health_probe_needs_no_known_host_and_no_login() {
    let up = Up::start();
    let (_console, browser) = start_behind_proxy(&up, "ann", &[]);
    let mut probe = browser.with("host", Some("10.0.0.1:8080"));
    for name in ["origin", "sec-fetch-site", SECRET_HEADER, USER_HEADER] {
        probe = probe.with(name, None);
    }
    let response = probe.send("GET", "/healthz", "").await;
    assert_eq!((response.status(), response.body().as_str()), (StatusCode::OK, "ok\n"));
    for (method, path) in [("POST", "/healthz"), ("GET", "/healthz/me"), ("GET", "/me")] {
        assert_eq!(
            probe.send(method, path, "").await.status(),
            StatusCode::FORBIDDEN,
            "{method} {path}"
        );
    }
}

/// Returns the page with an additional value of a header. The value may contain any bytes.
fn adding(browser: &Browser, name: &'static str, value: &[u8]) -> Browser {
    let mut changed = browser.clone();
    changed.headers.append(name, HeaderValue::from_bytes(value).unwrap());
    changed
}

#[tokio::test]
async fn request_that_bypasses_proxy_is_rejected() {
    let up = Up::start();
    let (_console, browser) = start_behind_proxy(&up, "ann@example.org", &["--proxy-operator", "ann@example.org"]);
    let browser = browser.with("content-type", Some(GRPC_WEB));
    let secret = |value: &str| browser.with(SECRET_HEADER, Some(value));
    let user = |value: &[u8]| adding(&browser.with(USER_HEADER, None), USER_HEADER, value);
    let long = "x".repeat(20_000);
    for (rejected, text) in [
        (browser.with(SECRET_HEADER, None), "no x-troupe-proxy-secret header"),
        (
            browser.with(SECRET_HEADER, None).with(USER_HEADER, None),
            "no x-troupe-proxy-secret header",
        ),
        (secret(""), "wrong secret"),
        (secret("proxy-secret-012345678"), "wrong secret"),
        (secret(&format!("{SECRET}0")), "wrong secret"),
        (secret(&format!("Bearer {SECRET}")), "wrong secret"),
        (secret("wrong").with(USER_HEADER, None), "wrong secret"),
        (secret(&long), "wrong secret"),
        (
            adding(&browser.with(SECRET_HEADER, None), SECRET_HEADER, b"\xff"),
            "wrong secret",
        ),
        (
            adding(&browser, SECRET_HEADER, SECRET.as_bytes()),
            "several x-troupe-proxy-secret headers",
        ),
        (
            adding(&secret("wrong"), SECRET_HEADER, SECRET.as_bytes()),
            "several x-troupe-proxy-secret headers",
        ),
        (browser.with(USER_HEADER, None), "no x-forwarded-email header"),
        (
            browser.with(USER_HEADER, None).with("x-forwarded-user", Some("ann")),
            "no x-forwarded-email header",
        ),
        (
            adding(&browser, USER_HEADER, b"bob@example.org"),
            "several x-forwarded-email headers",
        ),
        (user(b""), "invalid name"),
        (user(b"ann bob"), "invalid name"),
        (user(b"ann\tbob"), "invalid name"),
        (user(b"ann\xff"), "invalid name"),
        (user("ann\u{202e}".as_bytes()), "invalid name"),
        (user(&[b'x'; 129]), "invalid name"),
    ] {
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/me"),
            ("GET", "/none.js"),
            ("POST", LIST_SESSIONS),
        ] {
            let response = rejected.send(method, path, EMPTY).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{method} {path} {text}");
            assert!(response.body().contains(text), "{text}: {}", response.body());
            assert!(!response.body().contains(SECRET) && response.body().len() < 300);
        }
    }
    let address = browser.address.clone();
    let request =
        format!("GET / HTTP/1.1\r\nHost: console.example\r\n{SECRET_HEADER}: {SECRET}\r\n{USER_HEADER}: a\x01\r\n\r\n");
    let answer = tokio::task::spawn_blocking(move || send_slowly(&address, &request));
    assert!(answer.await.unwrap().starts_with("HTTP/1.1 400 "));
    assert_eq!(browser.me().await.0, StatusCode::OK);
}

#[tokio::test]
async fn proxy_login_keeps_origin_checks() {
    let up = Up::start();
    let (_console, browser) = start_behind_proxy(&up, "ann@example.org", &["--proxy-operator", "ann@example.org"]);
    let browser = browser.with("content-type", Some(GRPC_WEB));
    assert_eq!(
        browser.send("POST", LIST_SESSIONS, EMPTY).await.status(),
        StatusCode::OK
    );
    for host in ["evil.example", "console.example.evil.example", ""] {
        let response = browser.with("host", Some(host)).send("GET", "/", "").await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{host}");
    }
    for foreign in [
        browser.with("origin", Some("https://evil.example")),
        browser.with("origin", Some("http://console.example")),
        browser.with("sec-fetch-site", Some("cross-site")),
        browser.with("sec-fetch-site", Some("same-site")),
        browser.with("sec-fetch-site", None).with("origin", None),
    ] {
        let response = foreign.send("POST", LIST_SESSIONS, EMPTY).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{:?}", foreign.headers);
    }
    let other_site = browser.with("sec-fetch-site", Some("cross-site"));
    assert_eq!(other_site.send("GET", "/me", "").await.status(), StatusCode::FORBIDDEN);
    let form = browser.with("content-type", Some("text/plain"));
    let response = form.send("POST", LIST_SESSIONS, EMPTY).await;
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn proxy_headers_are_ignored_without_secret_file() {
    let (up, _console, browser) = start_logged_out();
    let browser = browser
        .with(SECRET_HEADER, Some(SECRET))
        .with(USER_HEADER, Some("ann@example.org"));
    assert_eq!(browser.me().await.0, StatusCode::UNAUTHORIZED);

    let file = up.home.path().join("proxy.token");
    let file = file.to_str().unwrap();
    let public = ["--public-url", "https://console.example"];
    let proxy = ["--proxy-secret-file", file];
    for (secret, flags, text) in [
        (SECRET, &[&proxy[..]][..], "--public-url"),
        (SECRET, &[&public, &["--proxy-operator", "ann"]], "--proxy-secret-file"),
        (
            SECRET,
            &[&public, &proxy, &["--proxy-operator", "ann bob"]],
            "invalid name",
        ),
        (
            SECRET,
            &[&public, &proxy, &["--proxy-operator", "ann", "--read-only"]],
            "--read-only",
        ),
        (
            SECRET,
            &[&public, &proxy, &["--proxy-user-header", SECRET_HEADER]],
            "has the secret",
        ),
        ("short", &[&public, &proxy], "16 to 512"),
        ("", &[&public, &proxy], "16 to 512"),
    ] {
        fs::write(file, secret).unwrap();
        let output = up.run(&[&["console"], &flags.concat()[..]].concat());
        assert!(!output.status.success(), "{flags:?}");
        assert!(stderr(&output).contains(text), "{flags:?}: {}", stderr(&output));
    }
}

#[tokio::test]
async fn secret_of_the_proxy_can_be_rotated() {
    let up = Up::start();
    let (_console, browser) = start_behind_proxy(&up, "ann", &[]);
    let file = up.home.path().join("proxy.token");
    let new = browser.with(SECRET_HEADER, Some("new-secret-0123456789"));
    fs::write(&file, format!("{SECRET}\nnew-secret-0123456789\n")).unwrap();
    assert_eq!(browser.me().await.0, StatusCode::OK);
    assert_eq!(new.me().await.0, StatusCode::OK);
    fs::write(&file, "new-secret-0123456789").unwrap();
    assert_eq!(browser.me().await.0, StatusCode::FORBIDDEN);
    assert_eq!(new.me().await.0, StatusCode::OK);
}
