//! Traces: spans of calls and of agents' turns, exported over OTLP to the endpoint in OpenTelemetry's variables.
//!
//! The module `collector` enables the export. Without the export, spans have no cost, and the trace context of a call
//! is still passed on. Spans contain names, ids and numbers, and no text of prompts, inputs or outputs.

use std::{
    borrow::Cow,
    error::Error as _,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::SystemTime,
};

use futures::future::{BoxFuture, Either};
use http::{Request, Response};
use opentelemetry::{
    KeyValue, Value, global,
    trace::{Span as _, SpanKind, Status as Outcome, Tracer as _},
};
use opentelemetry_otlp::{SpanExporter, WithTonicConfig as _};
use opentelemetry_sdk::{Resource, error::OTelSdkResult, trace::SdkTracerProvider};
use tonic::{Code, TimeoutExpired, body::Body, transport::Channel};
use tower::Service;

use crate::{
    collector::{Signal, TelemetryError},
    rpc::{self, code},
    trace_context::TraceParent,
};

/// The name of the tracer.
const TRACER: &str = "troupe";

/// Whether spans are exported. Set once at startup. Code reads it before creating spans that only the export needs.
static ARE_SENT: AtomicBool = AtomicBool::new(false);

/// The span export of this process.
#[derive(Debug)]
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export for the whole process if a collector is configured. Requires a Tokio runtime.
    pub(crate) fn start(resource: Resource) -> Result<Option<Self>, TelemetryError> {
        let Some(channel) = Signal::Traces.channel()? else {
            return Ok(None);
        };
        let exporter = SpanExporter::builder().with_tonic().with_channel(channel).build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        global::set_tracer_provider(provider.clone());
        ARE_SENT.store(true, Ordering::Relaxed);
        Ok(Some(Self(provider)))
    }

    /// Exports the remaining spans. Blocks.
    pub(crate) fn end(self) -> OTelSdkResult {
        self.0.shutdown()
    }
}

/// A span of work other than a call. Dropping it ends the span.
#[derive(Debug)]
pub struct WorkSpan(global::BoxedSpan);

impl WorkSpan {
    /// Begins a span as a child of `asked`.
    #[must_use]
    pub fn begin(name: String, attributes: Vec<KeyValue>, asked: Option<&TraceParent>) -> Self {
        Self::start(name, attributes, asked, None)
    }

    /// Records work that began earlier and ends now, as a child of `asked`. `failure` is the reason if it failed.
    pub fn record(
        name: String,
        attributes: Vec<KeyValue>,
        asked: Option<&TraceParent>,
        began: SystemTime,
        failure: Option<&'static str>,
    ) {
        Self::start(name, attributes, asked, Some(began)).end(Vec::new(), failure);
    }

    fn start(name: String, attributes: Vec<KeyValue>, asked: Option<&TraceParent>, began: Option<SystemTime>) -> Self {
        let tracer = global::tracer(TRACER);
        let mut builder = tracer
            .span_builder(name)
            .with_kind(SpanKind::Internal)
            .with_attributes(attributes);
        builder.start_time = began;
        let parent = asked.map(TraceParent::context).unwrap_or_default();
        Self(tracer.build_with_context(builder, &parent))
    }

    /// Returns the trace context for calls that the work makes, or `None` if the span is not recorded.
    #[must_use]
    pub fn context(&self) -> Option<TraceParent> {
        TraceParent::of_span(self.0.span_context())
    }

    /// Ends the span with its last attributes. `failure` is the reason if the work failed.
    pub fn end(mut self, attributes: Vec<KeyValue>, failure: Option<&'static str>) {
        self.0.set_attributes(attributes);
        if let Some(failure) = failure {
            self.0.set_status(Outcome::error(failure));
        }
    }
}

/// Creates spans of calls. Create it once per server after [`Traces::start`], because finding a tracer takes a lock.
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

/// The span of a call.
pub(crate) struct CallSpan {
    span: global::BoxedSpan,
    kind: SpanKind,
}

impl CallSpan {
    /// Begins a span as a child of the caller's span.
    pub(crate) fn begin<M>(tracer: &CallTracer, kind: SpanKind, method: M, caller: Option<&TraceParent>) -> Self
    where
        M: Clone + Into<Cow<'static, str>> + Into<Value>,
    {
        let CallTracer(tracer) = tracer;
        let builder = tracer
            .span_builder(method.clone())
            .with_kind(kind.clone())
            .with_attributes([rpc::system(), KeyValue::new("rpc.method", method)]);
        let parent = caller.map(TraceParent::context).unwrap_or_default();
        let span = tracer.build_with_context(builder, &parent);
        Self { span, kind }
    }

    /// Returns the trace context for calls that this call makes, or `None` if the span is not recorded.
    pub(crate) fn context(&self) -> Option<TraceParent> {
        TraceParent::of_span(self.span.span_context())
    }

    pub(crate) fn end(mut self, code: Code) {
        self.span.set_attributes(rpc::outcome(&self.kind, code));
        if rpc::is_failure(&self.kind, code) {
            self.span.set_status(Outcome::error(code.description()));
        }
        self.span.end();
    }
}

/// A channel that records a span for each call, as a child of the span in its `traceparent`, if spans are exported.
#[derive(Clone, Debug)]
pub struct Traced {
    channel: Channel,
    tracer: Arc<CallTracer>,
}

impl Traced {
    /// Wraps the channel. Call it after [`crate::telemetry::Telemetry::start`].
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        let tracer = Arc::default();
        Self { channel, tracer }
    }
}

impl Service<Request<Body>> for Traced {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future =
        Either<<Channel as Service<Request<Body>>>::Future, BoxFuture<'static, Result<Self::Response, Self::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.channel, context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if !ARE_SENT.load(Ordering::Relaxed) {
            return Either::Left(self.channel.call(request));
        }
        let method = request.uri().path().trim_start_matches('/').to_owned();
        let caller = TraceParent::from_headers(request.headers());
        let span = CallSpan::begin(&self.tracer, SpanKind::Client, method, caller.as_ref());
        if let Some(context) = span.context() {
            context.put(request.headers_mut());
        }
        let work = self.channel.call(request);
        Either::Right(Box::pin(async move {
            let answer = work.await;
            span.end(match &answer {
                Ok(response) => code(response.headers()),
                Err(error) => code_of(error),
            });
            answer
        }))
    }
}

/// Returns the code of a call that failed without a response.
fn code_of(error: &tonic::transport::Error) -> Code {
    let mut cause = error.source();
    while let Some(next) = cause {
        if next.is::<TimeoutExpired>() {
            return Code::DeadlineExceeded;
        }
        cause = next.source();
    }
    Code::Unavailable
}
