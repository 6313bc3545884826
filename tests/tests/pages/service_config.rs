//! The recommended service config for clients: it names every method, matches the limits of the services, and retries
//! only methods that may be repeated.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use serde_json::{Value, json};
use supervisor_core::rules::{approval::APPROVAL_TIMEOUT, cascade::CASCADE_DEADLINE};
use supervisor_svc::MAX_WAIT;
use svc_kit::auth::Caller;
use troupe_proto::{FILE_DESCRIPTOR_SET, MAX_MESSAGE_BYTES, MAX_WORKSPACE_MESSAGE_BYTES};

const CONFIG: &str = include_str!("../../../proto/service-config.json");
const README: &str = include_str!("../../../proto/README.md");

/// Reads that viewers may not call.
const OTHER_READS: [&str; 3] = ["GetWorkspace", "ListMailbox", "WaitAgents"];

/// A method, from the descriptors.
struct Method {
    name: String,
    /// Whether either side sends more than one message.
    streams: bool,
    /// Whether the request has a request_id or a batch number.
    is_idempotent: bool,
}

/// Returns the methods of the API, by `/SERVICE/METHOD`.
fn api() -> BTreeMap<String, Method> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut with_request_id = BTreeSet::new();
    for file in &set.file {
        let messages = file.message_type.iter();
        let idempotent = messages.filter(|message| {
            message
                .field
                .iter()
                .any(|field| matches!(field.name(), "request_id" | "batch"))
        });
        with_request_id.extend(idempotent.map(|message| format!(".{}.{}", file.package(), message.name())));
    }
    let mut methods = BTreeMap::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let described = Method {
                    name: method.name().to_owned(),
                    streams: method.client_streaming() || method.server_streaming(),
                    is_idempotent: with_request_id.contains(method.input_type()),
                };
                methods.insert(path, described);
            }
        }
    }
    methods
}

/// Returns the config of each method, by `/SERVICE/METHOD`.
fn configured() -> BTreeMap<String, Value> {
    let config: Value = serde_json::from_str(CONFIG).unwrap();
    let mut methods = BTreeMap::new();
    for entry in config["methodConfig"].as_array().unwrap() {
        for name in entry["name"].as_array().unwrap() {
            let (service, method) = (name["service"].as_str().unwrap(), name["method"].as_str().unwrap());
            let earlier = methods.insert(format!("/{service}/{method}"), entry.clone());
            assert!(earlier.is_none(), "{service}/{method} is named twice");
        }
    }
    methods
}

/// Returns whether the permissions table lists the method as a read. A viewer may call no other methods.
fn is_for_viewers(path: &str) -> bool {
    let mut rows = registry_svc::AUTHORITY.iter().chain(supervisor_svc::AUTHORITY);
    rows.any(|row| row.method == path && row.who.contains(&Caller::Viewer))
}

fn timeout(entry: &Value) -> Option<Duration> {
    let text = entry["timeout"].as_str()?;
    let seconds = text.strip_suffix('s').unwrap().parse().unwrap();
    Some(Duration::from_secs(seconds))
}

/// Returns the time for which the service may delay a call because its request asks it to wait.
fn longest_wait(method: &str) -> Duration {
    match method {
        "WaitAgents" => MAX_WAIT,
        "AuthorizeTool" => APPROVAL_TIMEOUT,
        "CloseAgent" | "CloseSession" => CASCADE_DEADLINE,
        _ => Duration::ZERO,
    }
}

/// Returns the maximum size of a message. Bundles of templates have a larger maximum.
fn bound(has_bundle: bool) -> Value {
    let bytes = if has_bundle {
        MAX_WORKSPACE_MESSAGE_BYTES
    } else {
        MAX_MESSAGE_BYTES
    };
    json!(bytes)
}

#[test]
fn service_config_names_exactly_the_methods() {
    let named: Vec<String> = configured().into_keys().collect();
    let methods: Vec<String> = api().into_keys().collect();
    assert_eq!(named, methods);
}

#[test]
fn only_repeatable_methods_are_retried() {
    let api = api();
    let mut retried = 0;
    for (path, entry) in configured() {
        let policy = &entry["retryPolicy"];
        if policy.is_null() {
            continue;
        }
        retried += 1;
        let method = &api[&path];
        let is_read = is_for_viewers(&path) || OTHER_READS.contains(&method.name.as_str());
        assert!(method.is_idempotent || is_read, "{path} may not be repeated");
        // With every other code, a repeated call would get the same error.
        assert_eq!(policy["retryableStatusCodes"], json!(["UNAVAILABLE"]), "{path}");
        // gRPC treats values above five as five.
        assert!((2..=5).contains(&policy["maxAttempts"].as_u64().unwrap()), "{path}");
    }
    assert!(retried > 0);
}

#[test]
fn timeout_exceeds_service_time_and_watches_have_none() {
    let api = api();
    for (path, entry) in configured() {
        let method = &api[&path];
        let waits_for_ready = entry["waitForReady"] == json!(true);
        match timeout(&entry) {
            Some(timeout) => {
                assert!(timeout > longest_wait(&method.name), "{path} has only {timeout:?}");
                assert!(!waits_for_ready, "{path} would not report an unavailable service");
            }
            None => {
                assert!(method.streams, "{path} would wait for ever");
                assert!(waits_for_ready, "{path} would end with the first connection that fails");
            }
        }
    }
}

#[test]
fn message_limits_match_the_services() {
    for (path, entry) in configured() {
        let request = bound(path.ends_with("/PutWorkspace"));
        let response = bound(path.ends_with("/GetWorkspace"));
        assert_eq!(entry["maxRequestMessageBytes"], request, "{path}");
        assert_eq!(entry["maxResponseMessageBytes"], response, "{path}");
    }
}

#[test]
fn every_timeout_is_explained() {
    for (path, entry) in configured() {
        if let Some(timeout) = timeout(&entry) {
            let shown = format!("| {} s |", timeout.as_secs());
            assert!(README.contains(&shown), "proto/README.md lacks the {shown} of {path}");
        }
    }
}
