//! Traces: a span for each call, sent over OTLP to where OpenTelemetry's own variables say.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` (or that of traces alone) switches it on; the other variables of OpenTelemetry have their
//! usual meaning. Without it spans cost nothing, and a call's trace context is passed on all the same. Spans have
//! the method and the outcome, and nothing that a caller wrote.

use std::{env, fmt};

use opentelemetry::{
    KeyValue, global,
    trace::{Span as _, SpanKind, Status as Outcome, Tracer as _},
};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tonic::Code;

use crate::trace_context::TraceParent;

/// Any of these says where spans go.
const ENDPOINTS: &[&str] = &["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// The spans of this process on their way to a collector.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts sending, for everything in this process, if a collector is named. Needs a Tokio runtime.
    ///
    /// # Errors
    ///
    /// If what the variables say is of no use.
    pub fn start(process: &'static str) -> Result<Option<Self>, ExporterBuildError> {
        let is_wanted = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        if !ENDPOINTS.iter().any(|name| is_wanted(name)) {
            return Ok(None);
        }
        let exporter = SpanExporter::builder().with_tonic().build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(Resource::builder().with_service_name(process).build())
            .build();
        global::set_tracer_provider(provider.clone());
        Ok(Some(Self(provider)))
    }

    /// Sends what is left.
    pub async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Makes the spans of calls. Made once for each server, after [`Traces::start`]: finding a tracer takes a lock.
pub(crate) struct CallTracer(global::BoxedTracer);

impl Default for CallTracer {
    fn default() -> Self {
        Self(global::tracer("troupe"))
    }
}

impl fmt::Debug for CallTracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTracer").finish_non_exhaustive()
    }
}

/// A call that is being served, as a span.
pub(crate) struct CallSpan(global::BoxedSpan);

impl CallSpan {
    /// Begins it, below the span that the caller named.
    pub(crate) fn begin(tracer: &CallTracer, method: &'static str, caller: Option<&TraceParent>) -> Self {
        let CallTracer(tracer) = tracer;
        let builder = tracer
            .span_builder(method)
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new("rpc.system.name", "grpc"),
                KeyValue::new("rpc.method", method),
            ]);
        let parent = caller.map(TraceParent::context).unwrap_or_default();
        Self(tracer.build_with_context(builder, &parent))
    }

    /// What calls that this one makes are below; `None`: it is not recorded.
    pub(crate) fn context(&self) -> Option<TraceParent> {
        TraceParent::of_span(self.0.span_context())
    }

    pub(crate) fn end(mut self, code: Code) {
        self.0
            .set_attribute(KeyValue::new("rpc.response.status_code", i64::from(i32::from(code))));
        // A refusal is the caller's; of these the service is the cause.
        if matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ) {
            self.0.set_status(Outcome::error(code.description()));
        }
        self.0.end();
    }
}
