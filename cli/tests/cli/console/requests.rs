//! The checks and limits of requests that apply before the login is checked.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use http::{HeaderName, StatusCode, header};
use tokio::time::{sleep, timeout};

use super::{EMPTY, GRPC_WEB, LIST_SESSIONS, start, start_logged_out};
use crate::support::{TIME_LIMIT, browser::Browser};

#[tokio::test]
async fn foreign_requests_are_refused() {
    let (_up, _console, browser) = start(&[]).await;
    let browser = browser.with("content-type", Some(GRPC_WEB));
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
async fn files_have_security_headers_and_no_path_leaves_the_page() {
    let (_up, _console, browser) = start_logged_out();
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

/// Sends the headers of a page with a target that HTTP clients would change. Returns the status and the response.
fn send_target(page: &Browser, method: &str, target: &str) -> (u16, String) {
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    for (name, value) in &page.headers {
        request.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    let body = if method == "POST" { "\0\0\0\0\0" } else { "" };
    request.push_str(&format!(
        "content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ));
    let answer = send_slowly(&page.address, &request);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_default(), answer)
}

#[tokio::test]
async fn console_does_not_act_as_proxy() {
    let (_up, _console, browser) = start(&[]).await;
    let own = format!("http://{}/me", browser.address);
    for (method, target, expected) in [
        ("GET", own.as_str(), 200),
        ("GET", "http://evil.example/me", 403),
        ("POST", "http://evil.example/logout", 403),
        ("CONNECT", "evil.example:443", 403),
        ("CONNECT", browser.address.as_str(), 405),
        ("GET", "evil.example:80", 403),
        ("GET", "evil.example", 403),
        ("OPTIONS", "*", 405),
        ("GET", "*", 404),
    ] {
        let (status, answer) = send_target(&browser, method, target);
        assert_eq!(status, expected, "{method} {target}: {answer}");
        assert!(
            answer.contains("content-security-policy: default-src 'none'"),
            "{answer}"
        );
    }
    assert_eq!(browser.me().await.0, StatusCode::OK, "no request ended the login");
}

#[tokio::test]
async fn long_targets_are_refused() {
    let (_up, _console, browser) = start(&[]).await;
    for size in [40_000, 70_000, 1_000_000] {
        let long = "a".repeat(size);
        for target in [format!("/{long}"), format!("/?{long}"), format!("http://{long}/")] {
            // The console may close the connection before it has read the whole target.
            let (status, answer) = send_target(&browser, "GET", &target);
            assert!(matches!(status, 0 | 414 | 431), "{size}: {answer}");
        }
    }
    assert_eq!(browser.me().await.0, StatusCode::OK);
}

#[tokio::test]
async fn sizes_and_attempts_are_bounded() {
    let (_up, _console, browser) = start(&[]).await;
    let browser = browser.with("content-type", Some(GRPC_WEB));
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
    let (_up, _console, browser) = start_logged_out();
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

/// Sends the beginning of a request, and returns everything that the console sends until it closes the connection.
pub(crate) fn send_slowly(address: &str, beginning: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    // The console may close the connection early.
    let _ = stream.write_all(beginning.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn slow_request_is_closed() {
    let (_up, _console, Browser { address, .. }) = start_logged_out();
    let same = address.clone();
    let head = tokio::task::spawn_blocking(move || send_slowly(&same, "GET / HTTP/1.1\r\nHost: "));
    let body = tokio::task::spawn_blocking(move || {
        let head = format!(
            "POST /login HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Length: 9\r\n\r\nab"
        );
        send_slowly(&address, &head)
    });
    assert!(!head.await.unwrap().contains("200 OK"));
    assert!(body.await.unwrap().starts_with("HTTP/1.1 408 "));
}
