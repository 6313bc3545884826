//! An OTLP collector that forwards the received spans and metrics to its test.

use std::{collections::BTreeMap, net::SocketAddr};

use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::any_value::Value,
    resource::v1::Resource,
    trace::v1::Span,
};
use tokio::{net::TcpListener, process::Command, sync::mpsc};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use crate::within;

/// A message to the collector.
#[derive(Clone, Debug)]
pub enum Export {
    /// Spans.
    Spans(ExportTraceServiceRequest),
    /// Metrics.
    Metrics(ExportMetricsServiceRequest),
}

/// A listening collector.
#[derive(Debug)]
pub struct Collector {
    /// Address of the listener.
    pub address: SocketAddr,
    exports: mpsc::Receiver<Export>,
    /// All messages so far.
    pub seen: Vec<Export>,
}

impl Collector {
    /// Starts a collector on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, exports) = mpsc::channel(64);
        let serving = Server::builder()
            .add_service(TraceServiceServer::new(Forwarder(sender.clone())))
            .add_service(MetricsServiceServer::new(Forwarder(sender)));
        tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
        Self {
            address,
            exports,
            seen: Vec::new(),
        }
    }

    /// Makes a program export to this collector, with a short interval.
    pub fn export_from<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        self.export_through(command, &format!("http://{}", self.address))
    }

    /// Makes a program export to this collector through another URL.
    pub fn export_through<'c>(&self, command: &'c mut Command, url: &str) -> &'c mut Command {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            .env("OTEL_BSP_SCHEDULE_DELAY", "50")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
    }

    /// Receives messages until `find` returns a value.
    ///
    /// # Panics
    ///
    /// If `find` returns no value in time; `what` names the expectation.
    pub async fn until<T>(&mut self, what: &str, find: impl Fn(&Self) -> Option<T>) -> T {
        let heard = async {
            loop {
                if let Some(found) = find(self) {
                    return found;
                }
                let export = self.exports.recv().await.unwrap();
                self.seen.push(export);
            }
        };
        within(what, heard).await
    }

    /// Returns each span with the service name of its process.
    #[must_use]
    pub fn spans(&self) -> Vec<(String, Span)> {
        let mut spans = Vec::new();
        for export in &self.seen {
            let Export::Spans(request) = export else { continue };
            for resource in &request.resource_spans {
                let name = attributes(resource.resource.as_ref())["service.name"].clone();
                let inner = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
                spans.extend(inner.map(|span| (name.clone(), span.clone())));
            }
        }
        spans
    }

    /// Returns the resource attributes of each process, from its spans and from its metrics.
    #[must_use]
    pub fn processes(&self) -> [Vec<BTreeMap<String, String>>; 2] {
        let mut processes = [Vec::new(), Vec::new()];
        for export in &self.seen {
            match export {
                Export::Spans(request) => {
                    let resources = request.resource_spans.iter();
                    processes[0].extend(resources.map(|spans| attributes(spans.resource.as_ref())));
                }
                Export::Metrics(request) => {
                    let resources = request.resource_metrics.iter();
                    processes[1].extend(resources.map(|metrics| attributes(metrics.resource.as_ref())));
                }
            }
        }
        processes
    }

    /// Returns the names of all metrics.
    #[must_use]
    pub fn metrics(&self) -> Vec<String> {
        let requests = self.seen.iter().filter_map(|export| match export {
            Export::Metrics(request) => Some(request),
            Export::Spans(_) => None,
        });
        let scopes = requests
            .flat_map(|request| &request.resource_metrics)
            .flat_map(|resource| &resource.scope_metrics);
        scopes
            .flat_map(|scope| &scope.metrics)
            .map(|metric| metric.name.clone())
            .collect()
    }
}

/// Returns the text attributes of a process.
fn attributes(resource: Option<&Resource>) -> BTreeMap<String, String> {
    let attributes = resource.into_iter().flat_map(|resource| &resource.attributes);
    attributes
        .filter_map(|attribute| match attribute.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Some((attribute.key.clone(), text.clone())),
            _ => None,
        })
        .collect()
}

/// Forwards the received messages.
#[derive(Debug)]
struct Forwarder(mpsc::Sender<Export>);

#[tonic::async_trait]
impl TraceService for Forwarder {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let _ = self.0.send(Export::Spans(request.into_inner())).await;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Forwarder {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let _ = self.0.send(Export::Metrics(request.into_inner())).await;
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
