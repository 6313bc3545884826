//! Traces as a collector gets them: one spawn, from the client through the supervisor to the registry, in one trace.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Stdio;

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::Span,
};
use tokio::{net::TcpListener, process::Child, sync::mpsc};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_tests::{
    client,
    process::{Home, service},
    tree::Tree,
    within,
};

/// A trace that its client began.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

/// Hands on what it is told.
struct Collector(mpsc::Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let _ = self.0.send(request.into_inner()).await;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A span, and the process that it is from.
type Told = (String, Span);

fn told(request: ExportTraceServiceRequest) -> Vec<Told> {
    let mut spans = Vec::new();
    for resource in request.resource_spans {
        let attributes = resource.resource.unwrap().attributes;
        let name = attributes.into_iter().find(|attribute| attribute.key == "service.name");
        let Some(Value::StringValue(name)) = name.unwrap().value.unwrap().value else {
            panic!("a service's name is text");
        };
        let inner = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(inner.map(|span| (name.clone(), span)));
    }
    spans
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn start(home: &Home, name: &str, collector: &str, arguments: &[&str]) -> (Child, String) {
    let (mut command, ready) = service(home, name);
    command
        .args(arguments)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .stderr(Stdio::null());
    let process = command.spawn().unwrap();
    let address = within("a service that serves", ready.address()).await;
    (process, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spawn_is_one_trace() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut requests) = mpsc::channel(64);
    let serving = Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
    tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));

    let home = Home::default();
    let (_registry, registry) = start(&home, "registry", &collector, &[]).await;
    let url = format!("http://{registry}");
    let (_supervisor, supervisor) = start(
        &home,
        "supervisor",
        &collector,
        &["--data-dir", "data", "--registry-url", &url],
    )
    .await;
    let mut client = client::supervisor(supervisor.parse().unwrap(), None);
    let tree = Tree::open(client.clone(), CreateSessionRequest::default()).await;
    let mut request = Request::new(tree.request("worker"));
    request.get_mut().message = Some("a secret plan".to_owned());
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    client.spawn_agent(request).await.unwrap();

    let mut spans: Vec<Told> = Vec::new();
    let in_trace = |spans: &[Told], name: &str| {
        let found = spans
            .iter()
            .find(|(_, span)| span.name.ends_with(name) && hexadecimal(&span.trace_id) == TRACE);
        found.cloned()
    };
    while in_trace(&spans, "/SpawnAgent").is_none() || in_trace(&spans, "/ResolveSpawn").is_none() {
        let request = within("spans", requests.recv()).await.unwrap();
        let text = format!("{request:?}");
        assert!(!text.contains("secret plan"), "nothing that a caller wrote: {text}");
        spans.extend(told(request));
    }
    let (spawning, spawn) = in_trace(&spans, "/SpawnAgent").unwrap();
    let (resolving, resolve) = in_trace(&spans, "/ResolveSpawn").unwrap();
    assert_eq!(
        (spawning.as_str(), resolving.as_str()),
        ("supervisor-svc", "registry-svc")
    );
    assert_eq!(spawn.name, "troupe.supervisor.v1.AgentSupervisorService/SpawnAgent");
    assert_eq!(hexadecimal(&spawn.parent_span_id), CLIENT);
    assert_eq!(resolve.parent_span_id, spawn.span_id);
}
