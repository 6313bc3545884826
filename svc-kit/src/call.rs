//! The first layer of every call: it gives the call a trace, a deadline and a log line, and measures the time until its
//! response begins.
//!
//! The module `limit_layer` limits the calls of each caller after authentication. Health and reflection, which are open
//! to all callers, have a deadline of their own until their response begins.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response, header::SERVER};
use opentelemetry::{KeyValue, metrics::Histogram, trace::SpanKind};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument as _;
use troupe_proto::{fault::Fault, reason::Reason};

use crate::{
    auth::{is_open, quote},
    deadline::Deadline,
    instruments::meter,
    rpc::{self, code},
    trace_context::TraceParent,
    traces::{CallSpan, CallTracer},
};

/// Retry delay of a call that was rejected because of overload.
const SHED_RETRY: Duration = Duration::from_secs(1);

/// Time limit until a method that is open to all callers begins its response. These methods answer at once or stream;
/// only a client that does not finish its request reaches the limit.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

/// Label of unknown methods in metrics, because callers could invent any number of method names.
const OTHER: &str = "_OTHER";

/// The `server` header of each response. `troupe doctor` compares the version with its own.
const SOFTWARE: &str = concat!("troupe/", env!("CARGO_PKG_VERSION"));

/// Puts [`Call`] in front of a server.
#[derive(Clone, Debug)]
pub struct CallLayer {
    open_within: Duration,
    measure: Arc<Measure>,
}

/// Metrics of the time until a response begins, and the spans of calls.
#[derive(Debug)]
struct Measure {
    methods: BTreeSet<&'static str>,
    duration: Histogram<f64>,
    tracer: CallTracer,
}

impl Measure {
    /// Returns the method's name if it is known, otherwise [`OTHER`].
    fn known(&self, method: &str) -> &'static str {
        self.methods
            .get(method)
            .map_or(OTHER, |method| method.trim_start_matches('/'))
    }

    fn record(&self, method: &str, code: Code, elapsed: Duration) {
        let mut attributes = vec![KeyValue::new("rpc.method", self.known(method)), rpc::system()];
        attributes.extend(rpc::outcome(&SpanKind::Server, code));
        self.duration.record(elapsed.as_secs_f64(), &attributes);
    }
}

impl CallLayer {
    /// Creates a layer for these methods, given by their full paths.
    #[must_use]
    pub fn new(methods: impl IntoIterator<Item = &'static str>) -> Self {
        let duration = meter()
            .f64_histogram("rpc.server.call.duration")
            .with_unit("s")
            .with_description("Time from the start of a call until its response begins")
            .build();
        Self {
            open_within: OPEN_WITHIN,
            measure: Arc::new(Measure {
                methods: methods.into_iter().collect(),
                duration,
                tracer: CallTracer::default(),
            }),
        }
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = Call<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Call {
            inner,
            open_within: self.open_within,
            measure: Arc::clone(&self.measure),
        }
    }
}

/// The service that [`CallLayer`] creates.
#[derive(Clone, Debug)]
pub struct Call<S> {
    inner: S,
    open_within: Duration,
    measure: Arc<Measure>,
}

impl<S, B, R> Service<Request<B>> for Call<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let started = Instant::now();
        let method = quote(request.uri().path()).to_owned();
        let open = is_open(&method);
        let caller = TraceParent::from_headers(request.headers());
        let known = self.measure.known(&method);
        let call = (!open).then(|| CallSpan::begin(&self.measure.tracer, SpanKind::Server, known, caller.as_ref()));
        let recorded = call.as_ref().and_then(CallSpan::context);
        let trace = recorded.or(caller).unwrap_or_else(TraceParent::root);
        let span = tracing::info_span!("rpc", method = %method, trace_id = trace.trace_id());
        let deadline = Deadline::from_headers(request.headers(), started);
        request.extensions_mut().insert(trace);
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(deadline);
        }

        // These deadlines apply only until the response begins, because streams may last longer.
        let own = open.then(|| started + self.open_within);
        let ends = deadline.map(|deadline| deadline.at).into_iter().chain(own).min();

        let measure = Arc::clone(&self.measure);
        let work = span.in_scope(|| self.inner.call(request));
        let run = async move {
            let mut answer = match ends {
                // tonic's own timeout would return CANCELLED. This timeout is inside tonic's, so it fires first.
                Some(ends) => match timeout_at(ends, work).await {
                    Ok(answer) => answer,
                    Err(_) => Ok(deadline_exceeded().into_http()),
                },
                None => work.await,
            };
            if let Ok(response) = &mut answer {
                response
                    .headers_mut()
                    .insert(SERVER, HeaderValue::from_static(SOFTWARE));
            }
            if let (Some(call), Ok(response)) = (call, &answer) {
                let (code, elapsed) = (code(response.headers()), started.elapsed());
                measure.record(&method, code, elapsed);
                call.end(code);
                tracing::debug!(?code, ?elapsed, "answered");
            }
            answer
        };
        Box::pin(run.instrument(span))
    }
}

/// Creates the fault of a call that exceeds a bound of [`crate::serve::ServeLimits`].
pub(crate) fn overloaded(why: &str, limit: &'static str, max: usize) -> Status {
    let text = format!("{why}; at most {max} are allowed ({limit}); nothing was done, try again in a second");
    Fault::new(Code::ResourceExhausted, Reason::Overloaded, text)
        .with("limit", limit)
        .with("max", max)
        .retry_after(SHED_RETRY)
        .into()
}

fn deadline_exceeded() -> Status {
    Fault::new(
        Code::DeadlineExceeded,
        Reason::DeadlineExceeded,
        "the deadline of the call passed before the work was done; it may still be done, so retry with the same request_id",
    )
    .into()
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use futures::poll;
    use tower::{ServiceExt as _, service_fn};
    use troupe_proto::fault::reason_of;

    use super::*;

    fn request(method: &str) -> Request<()> {
        Request::builder().uri(method).body(()).unwrap()
    }

    #[tokio::test]
    async fn unfinished_health_check_ends_at_its_own_deadline() {
        let handler = service_fn(|_: Request<()>| pending::<Result<Response<()>, Infallible>>());
        let mut layer = CallLayer::new([]);
        let mut begun = Box::pin(layer.layer(handler).oneshot(request("/grpc.health.v1.Health/Check")));
        assert!(poll!(&mut begun).is_pending());

        layer.open_within = Duration::ZERO;
        let ended = layer
            .layer(handler)
            .oneshot(request("/grpc.health.v1.Health/Check"))
            .await;
        let status = Status::from_header_map(ended.unwrap().headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }

    #[tokio::test]
    async fn call_past_deadline_gets_deadline_exceeded() {
        let handler = service_fn(|_: Request<()>| pending::<Result<Response<()>, Infallible>>());
        let mut late = request("/test.v1.Thing/Read");
        late.headers_mut().insert("grpc-timeout", "1m".parse().unwrap());
        let response = CallLayer::new([]).layer(handler).oneshot(late).await.unwrap();
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(reason_of(&status), Some(Reason::DeadlineExceeded));
    }

    #[tokio::test]
    async fn handler_receives_trace_and_deadline() {
        const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (header, expected) in [(CALLER, Some(CALLER)), ("nonsense", None)] {
            let handler = service_fn(move |request: Request<()>| async move {
                let trace = request.extensions().get::<TraceParent>().unwrap();
                assert!(expected.is_none_or(|expected| trace.as_str() == expected), "{trace}");
                assert!(request.extensions().get::<Deadline>().is_some());
                Ok::<_, Infallible>(Response::new(()))
            });
            let mut call = request("/test.v1.Thing/Read");
            call.headers_mut().insert("traceparent", header.parse().unwrap());
            call.headers_mut().insert("grpc-timeout", "1M".parse().unwrap());
            CallLayer::new([]).layer(handler).oneshot(call).await.unwrap();
        }
    }
}
