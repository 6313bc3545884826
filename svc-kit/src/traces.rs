//! Traces: spans of calls and of agents' turns, sent over OTLP to where OpenTelemetry's own variables say.
//!
//! The module `collector` has what switches it on. Without it spans cost nothing, and a call's trace context is passed on
//! all the same. Spans have names, ids and numbers, and no text of a prompt, an input or an answer.

use std::{
    borrow::Cow,
    error::Error as _,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
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

use crate::{call::code, collector::Signal, rpc, telemetry::TelemetryError, trace_context::TraceParent};

/// What makes our spans.
const TRACER: &str = "troupe";

/// Whether spans go to a collector. Set once, and read by those that make some for nobody but it.
static ARE_SENT: AtomicBool = AtomicBool::new(false);

/// The spans of this process on their way to a collector.
#[derive(Debug)]
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts sending, for everything in this process, if a collector is named. Needs a Tokio runtime.
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

/// A call as a span.
pub(crate) struct CallSpan {
    span: global::BoxedSpan,
    kind: SpanKind,
}

impl CallSpan {
    /// Begins it, below the span that the caller named.
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

    /// What calls that this one makes are below; `None`: it is not recorded.
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

/// A channel whose calls are spans, each below the one that its `traceparent` names, where spans are sent at all.
#[derive(Clone, Debug)]
pub struct Traced {
    channel: Channel,
    tracer: Arc<CallTracer>,
}

impl Traced {
    /// That channel. Made after spans are sent, so after [`crate::telemetry::Telemetry::start`].
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

/// What a call comes to that got no answer.
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
