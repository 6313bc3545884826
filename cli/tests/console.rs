//! Tests of `troupe console` over HTTP, against a real pair with sample agents.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Stdio,
    time::{Duration, Instant},
};

use http::{HeaderName, HeaderValue, StatusCode, header};
use support::{
    TIME_LIMIT,
    browser::{Browser, ConsoleProcess, audit},
    up::{Up, stderr, troupe},
};
use tokio::time::{sleep, timeout};
use tonic::{Code, Streaming};
use troupe_proto::{
    console::v1::{WatchRequest, WatchResponse, watch_response::Update},
    registry::v1::ListAgentsRequest,
    supervisor::v1::{
        CloseAgentRequest, GetThreadRequest, ListSessionsRequest, TranscriptKind, WatchThreadsRequest,
        watch_threads_response::Message,
    },
};

const LIST_SESSIONS: &str = "/troupe.supervisor.v1.AgentSupervisorService/ListSessions";
const GRPC_WEB: &str = "application/grpc-web+proto";
/// A message without fields.
const EMPTY: &[u8] = &[0; 5];

/// Spawns an agent and returns its session and its thread.
#[track_caller]
fn spawn(up: &Up, prompt: &str) -> (String, String) {
    let (code, value) = up.json(&["spawn", "worker", prompt]);
    assert_eq!(code, Some(0), "{value}");
    let id = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    (id(&value["session_id"]), id(&value["thread"]["thread_id"]))
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
    // The used link makes the terminal show another one.
    let (_, code) = console.link();
    assert_eq!(second.log_in(&code).await.0, StatusCode::NO_CONTENT);
    assert_eq!(second.me().await.0, StatusCode::OK);
}

#[tokio::test]
async fn logout_ends_the_login_and_its_streams() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    let (session_id, _) = spawn(&up, "hold");
    let mut merged = watch(&browser, WatchRequest::default()).await;
    until(&mut merged, snapshot).await;
    let request = WatchThreadsRequest {
        session_id,
        ..Default::default()
    };
    let mut forwarded = browser.supervisor().watch_threads(request).await.unwrap().into_inner();
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
    let status = browser
        .supervisor()
        .list_sessions(ListSessionsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let ended = async {
        let status = loop {
            match merged.message().await {
                Ok(message) => assert!(message.is_some(), "the stream ends with a status"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        loop {
            match forwarded.message().await {
                Ok(message) => assert!(message.is_some(), "the stream ends with a status"),
                Err(status) => break status,
            }
        }
    };
    let status = timeout(TIME_LIMIT, ended).await.unwrap();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert_eq!(status.message(), "the login has ended");
}

#[tokio::test]
async fn calls_and_streams_are_forwarded() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    let (session_id, thread_id) = spawn(&up, "hold");

    let sessions = browser
        .supervisor()
        .list_sessions(ListSessionsRequest::default())
        .await
        .unwrap();
    assert_eq!(sessions.into_inner().sessions[0].session_id, session_id);
    let roles = browser
        .registry()
        .list_agents(ListAgentsRequest {
            allow_partial: true,
            ..Default::default()
        })
        .await;
    assert!(!roles.unwrap().into_inner().agents.is_empty());

    // Errors keep their details.
    let request = GetThreadRequest {
        thread_id: "01939c5a-0000-7000-8000-00000000aa01".to_owned(),
        ..Default::default()
    };
    let status = browser.supervisor().get_thread(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert!(troupe_proto::fault::reason_of(&status).is_some());

    let request = WatchThreadsRequest {
        session_id: session_id.clone(),
        ..Default::default()
    };
    let mut stream = browser.supervisor().watch_threads(request).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert!(matches!(first.message, Some(Message::Snapshot(_))), "{first:?}");

    let request = CloseAgentRequest {
        session_id,
        thread_id: thread_id.clone(),
        ..Default::default()
    };
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

    let mut request = tonic::Request::new(troupe_proto::supervisor::v1::WaitAgentsRequest {
        thread_ids: vec![spawn(&up, "hold").1],
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
    let (probe, address) = free_port();
    drop(probe);
    let up = Up::start_with(&["--admin-listen", &address]);
    let admin = Browser::at(&format!("http://{address}"));
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    let (session_id, _) = spawn(&up, "hold");
    let request = WatchThreadsRequest {
        session_id,
        ..Default::default()
    };
    let mut forwarded = browser.supervisor().watch_threads(request).await.unwrap().into_inner();
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

/// Returns a free port and the listener that keeps it.
fn free_port() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[tokio::test]
async fn watch_recovers_from_a_killed_supervisor() {
    let mut up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    let (session_id, thread_id) = spawn(&up, "hold");
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
    let (second, _) = spawn(&up, "hold");
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
    let request = ListSessionsRequest::default();
    let status = loop {
        let status = browser.supervisor().list_sessions(request.clone()).await.unwrap_err();
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
async fn one_session_is_followed_with_a_transcript() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await;
    let (session_id, thread_id) = spawn(&up, "say: hello");
    let (other, _) = spawn(&up, "hold");
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
        session_id: "01939c5a-0000-7000-8000-00000000aa01".to_owned(),
        ..Default::default()
    };
    let mut stream = watch(&browser, request).await;
    until(&mut stream, |update| {
        matches!(update, Update::DeletedSessionId(_)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn read_only_console_changes_nothing() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &["--read-only"]);
    let browser = console.log_in().await;
    assert_eq!(browser.me().await.1["role"], "viewer");
    let (session_id, thread_id) = spawn(&up, "hold");
    let sessions = browser
        .supervisor()
        .list_sessions(ListSessionsRequest::default())
        .await
        .unwrap();
    assert_eq!(sessions.into_inner().sessions.len(), 1);
    let mut stream = watch(&browser, WatchRequest::default()).await;
    until(&mut stream, snapshot).await;

    let request = CloseAgentRequest {
        session_id,
        thread_id: thread_id.clone(),
        ..Default::default()
    };
    let status = browser.supervisor().close_agent(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("--read-only"), "{status}");
    let thread = up.json(&["show", &thread_id]).1;
    assert_ne!(thread["thread"]["status"]["kind"], "STATUS_KIND_SHUTDOWN", "{thread}");
}

#[tokio::test]
async fn foreign_requests_are_refused() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await.with("content-type", Some(GRPC_WEB));
    assert_eq!(
        browser.send("POST", LIST_SESSIONS, EMPTY).await.status(),
        StatusCode::OK
    );
    let forbidden = [
        browser.with("host", Some("evil.example")),
        browser.with("host", Some("evil.example:80")),
        browser.with("host", Some("127.0.0.1:1")),
        browser.with("host", Some("")),
        browser.with("origin", Some("http://evil.example")),
        browser.with("origin", Some("http://127.0.0.1:3000")),
        browser.with("origin", Some("null")),
        browser.with("sec-fetch-site", Some("cross-site")),
        browser.with("sec-fetch-site", Some("same-site")),
        browser.with("sec-fetch-site", None).with("origin", None),
        browser
            .with("sec-fetch-site", None)
            .with("origin", Some("https://evil.example")),
    ];
    for foreign in &forbidden {
        for path in [
            LIST_SESSIONS,
            "/login",
            "/logout",
            "/troupe.console.v1.ConsoleService/Watch",
        ] {
            let response = foreign.send("POST", path, EMPTY).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path} {:?}", foreign.headers);
            assert!(!response.headers().contains_key(header::SET_COOKIE));
        }
    }
    for foreign in &forbidden[..4] {
        for path in ["/", "/me"] {
            assert_eq!(
                foreign.send("GET", path, "").await.status(),
                StatusCode::FORBIDDEN,
                "{path}"
            );
        }
    }
    let other_site = browser.with("sec-fetch-site", Some("cross-site"));
    assert_eq!(other_site.send("GET", "/me", "").await.status(), StatusCode::FORBIDDEN);
    assert_eq!(browser.me().await.0, StatusCode::OK, "no attack ended the login");

    for content_type in [
        None,
        Some("text/plain"),
        Some("application/grpc-web"),
        Some("application/grpc-web-text+proto"),
    ] {
        let response = browser
            .with("content-type", content_type)
            .send("POST", LIST_SESSIONS, EMPTY)
            .await;
        assert_eq!(
            response.status(),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{content_type:?}"
        );
    }
    for method in ["PUT", "DELETE", "OPTIONS", "PATCH"] {
        let response = browser.send(method, LIST_SESSIONS, EMPTY).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert!(
            !response
                .headers()
                .keys()
                .any(|name| name.as_str().starts_with("access-control"))
        );
    }
    for path in [
        "/troupe.supervisor.v1.ThreadRunnerService/Attach",
        "/troupe.supervisor.v1.AgentSupervisorService/AuthorizeTool",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ] {
        let response = browser.send("POST", path, EMPTY).await;
        assert_eq!(response.headers()["grpc-status"], "12", "{path}");
    }
    for cookie in [None, Some("troupe-console-1=x"), Some("__Host-troupe-console=x")] {
        let response = browser.with("cookie", cookie).send("POST", LIST_SESSIONS, EMPTY).await;
        assert_eq!(response.headers()["grpc-status"], "16", "{cookie:?}");
    }
}

#[tokio::test]
async fn files_have_security_headers_and_stay_in_the_page() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = Browser::at(&console.link().0);
    for (path, status) in [
        ("/", StatusCode::OK),
        ("/login", StatusCode::OK),
        ("/sessions/1/threads/2", StatusCode::OK),
        ("/unknown.js", StatusCode::NOT_FOUND),
        ("/assets/../../Cargo.toml", StatusCode::NOT_FOUND),
        ("/..%2f..%2fCargo.toml", StatusCode::NOT_FOUND),
        ("/%2e%2e/Cargo.toml", StatusCode::NOT_FOUND),
        ("//etc/passwd.txt", StatusCode::NOT_FOUND),
        ("/me", StatusCode::UNAUTHORIZED),
    ] {
        let response = browser.send("GET", path, "").await;
        assert_eq!(response.status(), status, "{path}");
        assert!(!response.body().contains("[package]") && !response.body().contains("root:"));
        let headers = response.headers();
        assert_eq!(
            headers["content-security-policy"],
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; \
             base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
        );
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
    }
    let page = browser.send("GET", "/", "").await;
    assert_eq!(page.headers()[header::CACHE_CONTROL], "no-cache");
    let etag = page.headers()[header::ETAG].to_str().unwrap();
    let again = browser.with("if-none-match", Some(etag)).send("GET", "/", "").await;
    assert_eq!((again.status(), again.body().as_str()), (StatusCode::NOT_MODIFIED, ""));
    let head = browser.send("HEAD", "/", "").await;
    assert_eq!((head.status(), head.body().as_str()), (StatusCode::OK, ""));
}

#[tokio::test]
async fn sizes_and_attempts_are_bounded() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = console.log_in().await.with("content-type", Some(GRPC_WEB));
    let response = browser.send("POST", LIST_SESSIONS, vec![0; 4 * 1024 * 1024 + 6]).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let response = browser.send("POST", "/login", vec![b'x'; 600]).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let long = "x".repeat(100_000);
    let response = browser.with("x-long", Some(&long)).send("GET", "/", "").await;
    assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let mut many = browser.clone();
    for number in 0..100 {
        many.headers.append(
            HeaderName::try_from(format!("x-{number}")).unwrap(),
            "1".parse().unwrap(),
        );
    }
    assert_eq!(
        many.send("GET", "/", "").await.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );

    let mut stranger = Browser::at(&format!("http://{}", browser.address));
    let mut answers = Vec::new();
    for _ in 0..30 {
        answers.push(stranger.log_in("guess").await.1);
    }
    assert!(answers[29].contains("too many attempts"), "{answers:?}");
    assert_eq!(browser.me().await.0, StatusCode::OK);
}

#[tokio::test]
async fn connections_are_bounded() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = Browser::at(&console.link().0);
    let idle: Vec<TcpStream> = (0..256)
        .map(|_| TcpStream::connect(&browser.address).unwrap())
        .collect();
    let mut refused = TcpStream::connect(&browser.address).unwrap();
    refused.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let answer = refused.read(&mut [0; 1]);
    assert!(matches!(answer, Ok(0) | Err(_)), "{answer:?}");
    drop(idle);
    let admitted = async {
        while browser.try_send("GET", "/", "").await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIME_LIMIT, admitted)
        .await
        .expect("closed connections make room");
}

/// Sends the beginning of a request and returns what the console answers until it closes the connection.
fn send_slowly(address: &str, beginning: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    stream.write_all(beginning.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn slow_requests_end() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let (page, _) = console.link();
    let address = Browser::at(&page).address;
    let same = address.clone();
    let head = tokio::task::spawn_blocking(move || send_slowly(&same, "GET / HTTP/1.1\r\nHost: "));
    let body = tokio::task::spawn_blocking(move || {
        let head = format!("POST /login HTTP/1.1\r\nHost: {address}\r\nOrigin: {page}\r\nContent-Length: 9\r\n\r\nab");
        send_slowly(&address, &head)
    });
    assert!(!head.await.unwrap().contains("200 OK"));
    assert!(body.await.unwrap().starts_with("HTTP/1.1 408 "));
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

    let (probe, address) = free_port();
    drop(probe);
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
        let output = up.run(&[&["console"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(stderr(&output).contains(text), "{flags:?}: {}", stderr(&output));
    }
}

/// The header in which a proxy sends its secret, and a secret.
const SECRET_HEADER: &str = "x-troupe-proxy-secret";
const SECRET: &str = "proxy-secret-0123456789";
const USER_HEADER: &str = "x-forwarded-email";
const CLOSE_AGENT: &str = "troupe.supervisor.v1.AgentSupervisorService/CloseAgent";

/// Starts a console whose proxy logs people in. Returns the browser of a person whom the proxy names.
fn start_behind_proxy(up: &Up, user: &str, flags: &[&str]) -> (ConsoleProcess, Browser) {
    let file = up.home.path().join("proxy.token");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let (probe, address) = free_port();
    drop(probe);
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

    let (session_id, thread_id) = spawn(&up, "hold");
    let mut stream = watch(&bob, WatchRequest::default()).await;
    until(&mut stream, snapshot).await;
    let request = CloseAgentRequest {
        session_id,
        thread_id: thread_id.clone(),
        ..Default::default()
    };
    let status = bob.supervisor().close_agent(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("--proxy-operator"), "{status}");
    let thread = up.json(&["show", &thread_id]).1;
    assert_ne!(thread["thread"]["status"]["kind"], "STATUS_KIND_SHUTDOWN", "{thread}");
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
async fn read_only_console_has_no_operators_of_the_proxy() {
    let up = Up::start();
    let (_console, browser) = start_behind_proxy(&up, "ann@example.org", &["--read-only"]);
    assert_eq!(browser.me().await.1["role"], "viewer");
}

#[tokio::test]
async fn probe_needs_neither_name_nor_login() {
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

/// Returns the page with a header whose value has any bytes, in addition to the same header.
fn adding(browser: &Browser, name: &'static str, value: &[u8]) -> Browser {
    let mut changed = browser.clone();
    changed.headers.append(name, HeaderValue::from_bytes(value).unwrap());
    changed
}

#[tokio::test]
async fn requests_past_the_proxy_are_rejected() {
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
        (user(long.as_bytes()), "invalid name"),
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
async fn proxy_does_not_replace_the_checks_of_the_origin() {
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
async fn headers_of_a_proxy_need_a_secret_file() {
    let up = Up::start();
    let mut console = ConsoleProcess::start(&up, &[]);
    let browser = Browser::at(&console.link().0)
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

#[tokio::test]
async fn signal_ends_the_console_and_its_logins() {
    let up = Up::start();
    let (probe, address) = free_port();
    drop(probe);
    let mut console = ConsoleProcess::start(&up, &["--listen", &address]);
    let browser = console.log_in().await;
    spawn(&up, "hold");
    let mut stream = watch(&browser, WatchRequest::default()).await;
    until(&mut stream, snapshot).await;
    let started = Instant::now();
    assert_eq!(console.terminate(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let status = loop {
        if let Err(status) = stream.message().await {
            break status;
        }
    };
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
        .args([
            "up",
            "--registry-listen",
            "127.0.0.1:0",
            "--supervisor-listen",
            "127.0.0.1:0",
        ])
        .args(["--console", "--console-listen", "127.0.0.1:0", "--output", "json"]);
    let mut up = ConsoleProcess::of(command, Stdio::null());
    let browser = up.log_in().await;
    assert_eq!(browser.me().await.1["role"], "operator");
    let sessions = browser
        .supervisor()
        .list_sessions(ListSessionsRequest::default())
        .await
        .unwrap();
    assert!(sessions.into_inner().sessions.is_empty());
    let _stream = watch(&browser, WatchRequest::default()).await;
    let started = Instant::now();
    assert_eq!(up.terminate(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}
