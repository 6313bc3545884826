//! Request headers for the caller, the trace and the deadline: one line each of `authorization`, `traceparent` and
//! `grpc-timeout`.
#![no_main]

use std::{net::Ipv4Addr, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use svc_kit::{
    auth::{Authenticator, Trust},
    deadline::Deadline,
    peer::Peer,
    trace_context::TraceParent,
};
use tokio::time::Instant;
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use troupe_tests::pair::{OPERATOR, RUNNER, SERVICE, VIEWER, authenticator};

/// The authenticator also trusts loopback, but it still checks a token in the header.
static AUTHENTICATOR: LazyLock<Authenticator> = LazyLock::new(|| {
    let keys = troupe_fuzz::keys::token_keys();
    authenticator().threads(keys.into()).trust(Trust::Loopback)
});

fn single_header(name: &'static str, value: &[u8]) -> Option<HeaderMap> {
    let value = HeaderValue::from_bytes(value).ok()?;
    Some(HeaderMap::from_iter([(HeaderName::from_static(name), value)]))
}

fn authorization(value: &[u8]) {
    let Some(headers) = single_header("authorization", value) else {
        return;
    };
    let peer = Peer {
        address: Some((Ipv4Addr::LOCALHOST, 1).into()),
        ..Peer::default()
    };
    if AUTHENTICATOR.authenticate(&headers, &peer).is_some() {
        let text = str::from_utf8(value).expect("a token is ASCII");
        let (scheme, token) = text.split_once(' ').expect("a scheme precedes the token");
        assert!(scheme.eq_ignore_ascii_case("bearer"), "{text}");
        assert!([OPERATOR, VIEWER, RUNNER, SERVICE].contains(&token.trim()), "{text}");
    }
}

fn traceparent(value: &[u8]) {
    let of_text = TraceParent::parse(&String::from_utf8_lossy(value));
    if let Some(parent) = &of_text {
        assert_eq!(parent.as_str().len(), 55, "{parent}");
        assert_eq!(parent.trace_id().len(), 32, "{parent}");
        assert_eq!(TraceParent::parse(parent.as_str()).as_ref(), Some(parent));
    }
    // Header values are ASCII.
    if value.is_ascii()
        && let Some(headers) = single_header("traceparent", value)
    {
        assert_eq!(TraceParent::from_headers(&headers), of_text);
    }
}

fn timeout(value: &[u8]) {
    let Some(headers) = single_header("grpc-timeout", value) else {
        return;
    };
    let now = Instant::now();
    if let Some(deadline) = Deadline::from_headers(&headers, now) {
        assert!(deadline.at >= now, "no deadline is in the past");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    authorization(line());
    traceparent(line());
    timeout(line());
});
