//! Traces: spans of calls and of agents' turns, sent over OTLP to where OpenTelemetry's own variables say.
//!
//! The module `collector` has what switches it on. Without it spans cost nothing, and a call's trace context is passed on
//! all the same. Spans have names, ids and numbers, and no text of a prompt, an input or an answer.

use std::fmt;

use opentelemetry::{
    KeyValue, global,
    trace::{Span as _, SpanKind, Status as Outcome, Tracer as _},
};
use opentelemetry_otlp::{SpanExporter, WithTonicConfig as _};
use opentelemetry_sdk::{Resource, error::OTelSdkResult, trace::SdkTracerProvider};
use tonic::Code;

use crate::{collector::Signal, telemetry::TelemetryError, trace_context::TraceParent};

/// What makes our spans.
const TRACER: &str = "troupe";

/// The spans of this process on their way to a collector.
#[derive(Debug)]
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts sending, for everything in this process, if a collector is named. Needs a Tokio runtime.
    pub(crate) fn start(process: &'static str) -> Result<Option<Self>, TelemetryError> {
        let Some(channel) = Signal::Traces.channel()? else {
            return Ok(None);
        };
        let exporter = SpanExporter::builder().with_tonic().with_channel(channel).build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(Resource::builder().with_service_name(process).build())
            .build();
        global::set_tracer_provider(provider.clone());
        Ok(Some(Self(provider)))
    }

    /// Sends what is left. Blocks.
    pub(crate) fn end(self) -> OTelSdkResult {
        self.0.shutdown()
    }
}

/// Work that is no call, as a span. Dropped, it ends.
#[derive(Debug)]
pub struct WorkSpan(global::BoxedSpan);

impl WorkSpan {
    /// Begins it, below the span of whoever asked for it.
    #[must_use]
    pub fn begin(name: String, attributes: Vec<KeyValue>, asked: Option<&TraceParent>) -> Self {
        let tracer = global::tracer(TRACER);
        let builder = tracer
            .span_builder(name)
            .with_kind(SpanKind::Internal)
            .with_attributes(attributes);
        let parent = asked.map(TraceParent::context).unwrap_or_default();
        Self(tracer.build_with_context(builder, &parent))
    }

    /// What calls that the work makes are below; `None`: it is not recorded.
    #[must_use]
    pub fn context(&self) -> Option<TraceParent> {
        TraceParent::of_span(self.0.span_context())
    }

    /// Ends it with what is known only now; `failure`: it did not do what it was to, and why.
    pub fn end(mut self, attributes: Vec<KeyValue>, failure: Option<&'static str>) {
        self.0.set_attributes(attributes);
        if let Some(failure) = failure {
            self.0.set_status(Outcome::error(failure));
        }
    }
}

/// Makes the spans of calls. Made once for each server, after [`Traces::start`]: finding a tracer takes a lock.
pub(crate) struct CallTracer(global::BoxedTracer);

impl Default for CallTracer {
    fn default() -> Self {
        Self(global::tracer(TRACER))
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
