//! Makes the calls that other supervisors forward on a stream.

use std::{convert::Infallible, pin::pin, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, Version, header::CONTENT_TYPE};
use http_body_util::BodyExt as _;
use svc_kit::{
    deadline::Deadline,
    encoded::ResponseFuture,
    identity::{Forwarded, Principal},
    trace_context::TraceParent,
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming, body::Body, codegen::Service};
use tracing::Instrument as _;
use troupe_proto::cluster::v1::{ForwardRequest, ForwardResponse, member_service_server::MemberService};

use super::{Cluster, forward::Call, link::to_pairs};

/// Maximum number of answers that wait to be written.
const WAITING: usize = 1024;

/// How long a stream takes calls. This is shorter than the default maximum age of a connection, because an open stream
/// would keep the connection open.
const RENEW_AFTER: Duration = Duration::from_secs(15 * 60);

/// The service for the other supervisors of a cluster. Other callers are rejected.
#[derive(Clone)]
pub(crate) struct MemberGate<S> {
    service: S,
    cluster: Cluster,
    draining: CancellationToken,
}

impl<S> MemberGate<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = ResponseFuture>,
    S: Clone + Send + Sync + 'static,
{
    /// Creates a gate that passes calls to this service. A stream takes no more calls after [`RENEW_AFTER`], and once
    /// `draining` is cancelled.
    pub const fn new(service: S, cluster: Cluster, draining: CancellationToken) -> Self {
        Self {
            service,
            cluster,
            draining,
        }
    }

    async fn serve(self, mut calls: Streaming<ForwardRequest>, answers: mpsc::Sender<Result<ForwardResponse, Status>>) {
        let mut is_leaving = false;
        let mut leaves = pin!(timeout(RENEW_AFTER, self.draining.cancelled()));
        loop {
            let call = tokio::select! {
                call = calls.message() => call,
                _ = &mut leaves, if !is_leaving => {
                    is_leaving = true;
                    let _ = answers.send(Ok(ForwardResponse::default())).await;
                    continue;
                }
            };
            let Ok(Some(call)) = call else { return };
            let (gate, answers) = (self.clone(), answers.clone());
            tokio::spawn(async move {
                let answer = gate.answer(call).await;
                // An error means that the caller's stream has ended.
                let _ = answers.send(Ok(answer)).await;
            });
        }
    }

    async fn answer(self, request: ForwardRequest) -> ForwardResponse {
        let number = request.call;
        let response = match received(request) {
            Some((call, trace)) => {
                let span = tracing::info_span!("rpc", method = call.parts.uri.path(), trace_id = trace.trace_id());
                call.make(self.service, &self.cluster).instrument(span).await
            }
            None => Status::internal("the other supervisor forwarded a call without its caller").into_http(),
        };
        let (mut parts, body) = response.into_parts();
        parts.headers.remove(CONTENT_TYPE);
        let mut answer = ForwardResponse {
            call: number,
            headers: to_pairs(&parts.headers),
            ..ForwardResponse::default()
        };
        match body.collect().await {
            Ok(collected) => {
                answer.trailers = collected.trailers().map(to_pairs).unwrap_or_default();
                answer.body = collected.to_bytes();
            }
            Err(status) => {
                let mut trailers = HeaderMap::new();
                // Adding the status fails only if its metadata is malformed. The response then has no status.
                let _ = status.add_header(&mut trailers);
                answer.trailers = to_pairs(&trailers);
            }
        }
        answer
    }
}

#[tonic::async_trait]
impl<S> MemberService for MemberGate<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = ResponseFuture>,
    S: Clone + Send + Sync + 'static,
{
    type ForwardStream = ReceiverStream<Result<ForwardResponse, Status>>;

    async fn forward(
        &self,
        request: tonic::Request<Streaming<ForwardRequest>>,
    ) -> Result<tonic::Response<Self::ForwardStream>, Status> {
        let (answers, responses) = mpsc::channel(WAITING);
        tokio::spawn(self.clone().serve(request.into_inner(), answers));
        Ok(tonic::Response::new(ReceiverStream::new(responses)))
    }
}

/// Returns the call in a message and its trace. Returns `None` if the message is malformed.
fn received(request: ForwardRequest) -> Option<(Call, TraceParent)> {
    let trace = TraceParent::parse(&request.trace).unwrap_or_else(TraceParent::root);
    let message = Request::post(&request.method)
        .version(Version::HTTP_2)
        .body(request.body);
    let (mut parts, message) = message.ok()?.into_parts();
    let extensions = &mut parts.extensions;
    extensions.insert(Principal::from_header(
        &HeaderValue::from_str(&request.principal).ok()?,
    )?);
    extensions.insert(Forwarded);
    extensions.insert(trace.clone());
    if let Some(millis) = request.timeout_millis {
        let at = Instant::now().checked_add(Duration::from_millis(millis))?;
        extensions.insert(Deadline { at });
    }
    Some((Call { parts, message }, trace))
}
