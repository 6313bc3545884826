//! The telemetry that a collector receives: a spawn as one trace, from its client through supervisor, registry and
//! runner and back, and metrics; over TLS if the collector requires it.

use std::{convert::Infallible, net::SocketAddr, process::Stdio};

use opentelemetry_proto::tonic::{
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use serde_json::json;
use tokio::process::{Child, Command};
use tonic::Request;
use troupe_proto::{
    common::v1::Sandbox,
    registry::v1::ListAgentsRequest,
    supervisor::v1::{CreateGroupRequest, CreateSessionRequest, GroupItem, SpawnAgentRequest, StatusKind, event::Kind},
};
use troupe_tests::{
    agents::settled,
    authority::Authority,
    client,
    collector::Collector,
    process::{Home, Ready, service},
    relay::Relay,
    tls_front::tls_in_front_of,
    tree::{Spawned, Tree, kind},
    within,
};

/// The id of a trace that the client began.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn start(command: &mut Command, ready: &Ready) -> (Child, SocketAddr) {
    ready.start(command.stderr(Stdio::null())).await
}

/// Returns the span of the trace that comes from this process and whose name ends with `name`.
fn of_trace(collector: &Collector, process: &str, name: &str) -> Option<Span> {
    let spans = collector.spans();
    let mut spans = spans.into_iter().filter(|(of, _)| of == process).map(|(_, span)| span);
    spans.find(|span| span.name.ends_with(name) && hexadecimal(&span.trace_id) == TRACE)
}

/// Waits until the trace has all of these spans.
async fn spans_of_trace<const N: usize>(collector: &mut Collector, spans: [(&str, &str); N]) -> [Span; N] {
    let mut found = Vec::new();
    for (process, name) in spans {
        let span = collector.until(name, |collector| of_trace(collector, process, name));
        found.push(span.await);
    }
    found.try_into().unwrap()
}

/// Waits for a span of any trace whose name ends with `name`.
pub(crate) async fn await_span(collector: &mut Collector, name: &str) {
    let is_there = |collector: &Collector| collector.spans().iter().any(|(_, span)| span.name.ends_with(name));
    collector
        .until(name, |collector| is_there(collector).then_some(()))
        .await;
}

/// Waits for a metric with this name.
pub(crate) async fn await_metric(collector: &mut Collector, name: &str) {
    let is_there = |collector: &Collector| collector.metrics().iter().any(|metric| metric == name);
    collector
        .until(name, |collector| is_there(collector).then_some(()))
        .await;
}

fn assert_below(child: &Span, parent: &Span) {
    let (id, parent_id) = (&child.parent_span_id, &parent.span_id);
    assert_eq!(id, parent_id, "{} is below {}", child.name, parent.name);
}

/// Returns the text attribute of a span with this key.
fn said<'s>(span: &'s Span, key: &str) -> Option<&'s str> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_is_one_trace_through_all_processes() {
    let home = Home::default();
    let mut collector = Collector::start().await;
    let (mut command, ready) = service(&home, "registry");
    let (_registry, registry) = start(collector.export_from(&mut command), &ready).await;
    let (mut command, ready) = service(&home, "supervisor");
    command.args(["--data-dir", "data", "--registry-url", &format!("http://{registry}")]);
    let (_supervisor, supervisor) = start(collector.export_from(&mut command), &ready).await;
    let mut command = home.troupe(&["run", "--supervisor", &format!("http://{supervisor}")]);
    command
        .args(["--token-file", "data/runner.token"])
        .stderr(Stdio::null());
    let _runner = collector.export_from(&mut command).spawn().unwrap();

    let mut client = client::supervisor(supervisor, None);
    let mut session = CreateSessionRequest {
        cwd: home.path().display().to_string(),
        ..CreateSessionRequest::default()
    };
    session.set_sandbox(Sandbox::ReadOnly);
    let tree = Tree::open(client.clone(), session).await;
    let mut request = Request::new(SpawnAgentRequest {
        // The sample agent makes a tool call, which its runner forwards to the supervisor.
        message: Some(json!({"tool_call": {"name": "set_thread_note", "args": {"note": "a secret plan"}}}).to_string()),
        ..tree.request("worker")
    });
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    let worker = Spawned::of(client.spawn_agent(request).await.unwrap().into_inner()).id;

    let spans = [
        ("supervisor-svc", "/SpawnAgent"),
        ("supervisor-svc", "/ResolveSpawn"),
        ("registry-svc", "/ResolveSpawn"),
        ("troupe-runner", "invoke_agent worker"),
        ("troupe-runner", "execute_tool set_thread_note"),
        ("supervisor-svc", "/SetThreadNote"),
    ];
    let [spawn, ask, resolve, turn, tool, note] = &spans_of_trace(&mut collector, spans).await;
    for (span, kind) in [
        (spawn, SpanKind::Server),
        (ask, SpanKind::Client),
        (resolve, SpanKind::Server),
    ] {
        assert_eq!(span.kind(), kind, "{}", span.name);
        for (key, value) in [
            ("rpc.system.name", "grpc"),
            ("rpc.method", span.name.as_str()),
            ("rpc.response.status_code", "OK"),
        ] {
            assert_eq!(said(span, key), Some(value), "{}", span.name);
        }
        assert_eq!(said(span, "error.type"), None, "{}", span.name);
    }
    assert_eq!(spawn.name, "troupe.supervisor.v1.AgentSupervisorService/SpawnAgent");
    assert_eq!(hexadecimal(&spawn.parent_span_id), CLIENT);
    for (child, parent) in [(ask, spawn), (resolve, ask), (turn, spawn), (tool, turn), (note, tool)] {
        assert_below(child, parent);
    }
    for (span, key, value) in [
        (turn, "gen_ai.operation.name", "invoke_agent"),
        (turn, "gen_ai.agent.name", "worker"),
        (tool, "gen_ai.operation.name", "execute_tool"),
        (tool, "gen_ai.tool.name", "set_thread_note"),
    ] {
        assert_eq!(said(span, key), Some(value), "{}", span.name);
    }
    group_is_in_trace(&mut collector, &tree).await;
    let text = format!("{:?}", collector.seen);
    assert!(!text.contains("secret plan"), "spans contain no texts");

    // A later watcher of the session can still find the trace.
    assert_eq!(kind(&settled(&tree, &worker).await), StatusKind::Completed);
    let of_turn = |kind: &Kind| matches!(kind, Kind::ThreadSpawned(_) | Kind::TurnStarted(_) | Kind::TurnEnded(_));
    let events = tree.log().await.into_iter().filter(|event| event.thread_id == worker);
    let traces: Vec<String> = events
        .filter(|event| event.kind.as_ref().is_some_and(of_turn))
        .map(|event| event.traceparent)
        .collect();
    let expected = format!("00-{TRACE}-{}-01", hexadecimal(&spawn.span_id));
    assert_eq!(traces, [expected.clone(), expected.clone(), expected]);
}

/// Creates a group whose only item calls a tool without permission.
async fn group_is_in_trace(collector: &mut Collector, tree: &Tree) {
    let write = json!({"name": "write_file", "args": {"path": "plan.txt", "content": "a secret plan"}});
    let mut request = Request::new(CreateGroupRequest {
        session_id: tree.session.clone(),
        name: String::from("review"),
        template: Some(SpawnAgentRequest {
            agent_type: String::from("explorer"),
            ..SpawnAgentRequest::default()
        }),
        items: vec![GroupItem {
            key: String::from("one"),
            message: json!({"tool_call": write}).to_string(),
            ..GroupItem::default()
        }],
        ..CreateGroupRequest::default()
    });
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    tree.client().create_group(request).await.unwrap();

    let spans = [
        ("supervisor-svc", "/CreateGroup"),
        ("troupe-runner", "invoke_agent explorer"),
        ("troupe-runner", "execute_tool write_file"),
        ("supervisor-svc", "invoke_workflow review"),
    ];
    let [create, turn, tool, group] = &spans_of_trace(collector, spans).await;
    for (child, parent) in [(group, create), (turn, create), (tool, turn)] {
        assert_below(child, parent);
    }
    assert_eq!(said(tool, "troupe.tool.decision"), Some("denied"));
    assert_eq!(said(tool, "error.type"), Some("denied"));
    assert_eq!(said(group, "gen_ai.workflow.name"), Some("review"));
    assert!(
        group.start_time_unix_nano <= turn.start_time_unix_nano && group.end_time_unix_nano >= turn.end_time_unix_nano
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn otel_variables_set_service_name_and_instance() {
    let mut ids = Vec::new();
    for (name, variables) in [
        ("registry-svc", &[][..]),
        (
            "other",
            &[("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,service.instance.id=one")][..],
        ),
        (
            "catalogue",
            &[
                ("OTEL_SERVICE_NAME", "catalogue"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other"),
            ][..],
        ),
    ] {
        let home = Home::default();
        let mut collector = Collector::start().await;
        let (mut command, ready) = service(&home, "registry");
        command.envs(variables.iter().copied());
        let (_registry, registry) = start(collector.export_from(&mut command), &ready).await;
        let mut client = client::registry(registry, None);
        let answer = within("the agents", client.list_agents(ListAgentsRequest::default())).await;
        answer.unwrap();
        let [by_spans, by_metrics] = collector
            .until("spans and metrics", |collector| {
                let processes = collector.processes().map(|processes| processes.first().cloned());
                let [Some(by_spans), Some(by_metrics)] = processes else {
                    return None;
                };
                Some([by_spans, by_metrics])
            })
            .await;
        assert_eq!(by_spans, by_metrics);
        assert_eq!(by_spans["service.name"], name);
        assert_eq!(by_spans["service.version"], env!("CARGO_PKG_VERSION"));
        ids.push(by_spans["service.instance.id"].clone());
    }
    assert_eq!(ids[1], "one");
    assert_ne!(ids[0], ids[2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_behind_tls_receives_spans_and_metrics() {
    let home = Home::default();
    let mut collector = Collector::start().await;
    let authority = Authority::default();
    let believed = authority.publish(home.path(), "ca.crt");
    let server = authority.server(home.path(), "collector");
    let front = tls_in_front_of(collector.address, server, &["h2"]).await;

    let (mut command, ready) = service(&home, "supervisor");
    command
        .args(["--data-dir", "data"])
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", believed);
    let command = collector.export_through(&mut command, &format!("https://{front}"));
    let (_supervisor, supervisor) = start(command, &ready).await;
    let client = client::supervisor(supervisor, None);
    let tree = Tree::open(client, CreateSessionRequest::default()).await;
    tree.note(&tree.root, "something to write down").await;

    for metric in [
        "rpc.server.call.duration",
        "troupe.log.append.duration",
        "troupe.sessions.loaded",
    ] {
        await_metric(&mut collector, metric).await;
    }
    await_span(&mut collector, "/CreateSession").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exporter_reconnects_after_collector_vanishes() {
    let home = Home::default();
    let mut collector = Collector::start().await;
    let mut relay = Relay::to(collector.address).await;
    let (mut command, ready) = service(&home, "supervisor");
    command
        .args(["--data-dir", "data"])
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "2000");
    let command = collector.export_through(&mut command, &format!("http://{}", relay.address()));
    let (_supervisor, supervisor) = start(command, &ready).await;
    let client = client::supervisor(supervisor, None);
    let tree = Tree::open(client, CreateSessionRequest::default()).await;
    await_span(&mut collector, "/CreateSession").await;

    relay.silence().await;
    // Telemetry in flight may be lost, so the test produces more.
    let notes = tokio::spawn(keep_noting(tree));
    await_span(&mut collector, "/SetThreadNote").await;
    notes.abort();
}

async fn keep_noting(tree: Tree) -> Infallible {
    loop {
        tree.note(&tree.root, "something to write down").await;
    }
}

#[tokio::test]
async fn invalid_collector_is_reported_at_start() {
    let home = Home::default();
    for (variable, value, said) in [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "localhost:4317",
            "expected a gRPC endpoint such as \"http://127.0.0.1:4317\"",
        ),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "use \"grpc\""),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem", "set both"),
    ] {
        let (mut command, _) = service(&home, "registry");
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
            .env(variable, value);
        let output = within("its end", command.output()).await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(said), "{variable}: {text}");
    }
}
