//! A collector of spans and metrics over OTLP, which hands on what it is told.

use std::net::SocketAddr;

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
    trace::v1::Span,
};
use tokio::{net::TcpListener, process::Command, sync::mpsc};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use crate::within;

/// What a collector is told at a time.
#[derive(Clone, Debug)]
pub enum Told {
    /// Spans.
    Spans(ExportTraceServiceRequest),
    /// Metrics.
    Metrics(ExportMetricsServiceRequest),
}

/// A collector that listens.
#[derive(Debug)]
pub struct Collector {
    /// Where it listens.
    pub address: SocketAddr,
    told: mpsc::Receiver<Told>,
    /// All that was told so far.
    pub seen: Vec<Told>,
}

impl Collector {
    /// Starts one.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, told) = mpsc::channel(64);
        let serving = Server::builder()
            .add_service(TraceServiceServer::new(Ear(sender.clone())))
            .add_service(MetricsServiceServer::new(Ear(sender)));
        tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
        Self {
            address,
            told,
            seen: Vec::new(),
        }
    }

    /// Has a program tell this collector, and soon.
    pub fn hears<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        self.hears_at(command, &format!("http://{}", self.address))
    }

    /// The same by another way to it.
    pub fn hears_at<'c>(&self, command: &'c mut Command, url: &str) -> &'c mut Command {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            .env("OTEL_BSP_SCHEDULE_DELAY", "50")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
    }

    /// Listens until something is to be found in what was told.
    ///
    /// # Panics
    ///
    /// If it never is; `what` says what.
    pub async fn until<T>(&mut self, what: &str, find: impl Fn(&Self) -> Option<T>) -> T {
        let heard = async {
            loop {
                if let Some(found) = find(self) {
                    return found;
                }
                let told = self.told.recv().await.unwrap();
                self.seen.push(told);
            }
        };
        within(what, heard).await
    }

    /// Each span, with the name of the process that it is from.
    #[must_use]
    pub fn spans(&self) -> Vec<(String, Span)> {
        let mut spans = Vec::new();
        for told in &self.seen {
            let Told::Spans(request) = told else { continue };
            for resource in &request.resource_spans {
                let attributes = &resource.resource.as_ref().unwrap().attributes;
                let name = attributes
                    .iter()
                    .find(|attribute| attribute.key == "service.name")
                    .unwrap();
                let Some(Value::StringValue(name)) = name.value.as_ref().unwrap().value.clone() else {
                    panic!("a service's name is text");
                };
                let inner = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
                spans.extend(inner.map(|span| (name.clone(), span.clone())));
            }
        }
        spans
    }

    /// The names of all metrics.
    #[must_use]
    pub fn metrics(&self) -> Vec<String> {
        let requests = self.seen.iter().filter_map(|told| match told {
            Told::Metrics(request) => Some(request),
            Told::Spans(_) => None,
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

/// Hands on what it is told.
#[derive(Debug)]
struct Ear(mpsc::Sender<Told>);

#[tonic::async_trait]
impl TraceService for Ear {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let _ = self.0.send(Told::Spans(request.into_inner())).await;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Ear {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let _ = self.0.send(Told::Metrics(request.into_inner())).await;
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
