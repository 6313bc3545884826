//! Forwards a call to the supervisor that owns its session.
//!
//! If this supervisor knows that another one owns the session of a request, it sends the call to that owner. It makes
//! any other call itself. If another supervisor owns the session of such a call, the handler fails with
//! [`Failure::Elsewhere`](crate::engine::Failure::Elsewhere) before it has an effect, and the same bytes are sent to
//! the owner. The owner checks the call and its ownership itself.

use std::{
    convert::Infallible,
    error::Error as _,
    future::ready,
    io::ErrorKind,
    pin::Pin,
    str::FromStr as _,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, header::CONTENT_TYPE, request::Parts};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use supervisor_log::store::MemberId;
use svc_kit::{
    deadline::{self, Deadline},
    encoded::ResponseFuture,
    identity::{Forwarded, Principal},
    trace_context::TraceParent,
};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status, body::Body, codegen::Service, metadata::GRPC_CONTENT_TYPE, server::NamedService};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    cluster::v1::{ForwardRequest, ForwardResponse},
    fault::Fault,
    reason::Reason,
};
use uuid::Uuid;

use super::{
    Cluster,
    link::{LinkError, from_pairs},
    request_field::{self, Field},
};
use crate::{convert::status::ELSEWHERE, domain::ids::SessionId};

/// How long a call is tried again while its session moves. Time in a handler does not count: a call that has waited for
/// an hour when its session moves is still tried again for this whole time.
const RETRY_WITHIN: Duration = Duration::from_secs(10);

/// The pauses between two attempts. The last one is used for all further attempts.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
];

/// Maximum time that a call waits for a valid lease.
const LEASE_WITHIN: Duration = Duration::from_secs(2);

/// Maximum body size of a call that shares a stream, in bytes. A larger body would delay the other calls.
const SHORT_BYTES: usize = 64 * 1024;

/// The length of the header of a gRPC message, in bytes.
const PREFIX: usize = 5;

/// The service of clients, with forwarding if there can be several supervisors.
#[derive(Clone)]
pub(crate) struct Forwarding<S> {
    service: S,
    cluster: Option<Cluster>,
}

impl<S> Forwarding<S> {
    /// Forwards calls within this cluster.
    pub const fn new(service: S, cluster: Option<Cluster>) -> Self {
        Self { service, cluster }
    }
}

impl<S: NamedService> NamedService for Forwarding<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Forwarding<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = ResponseFuture>,
    S: Clone + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        let Some(cluster) = self.cluster.clone() else {
            return self.service.call(request);
        };
        let service = self.service.clone();
        Box::pin(async move {
            Ok(match Call::read(request).await {
                Ok(call) => call.make(service, &cluster).await,
                Err(status) => status.into_http(),
            })
        })
    }
}

/// The location of a session that a handler returned with [`Failure::Elsewhere`](crate::engine::Failure::Elsewhere).
struct Elsewhere {
    session: SessionId,
    owner: Option<MemberId>,
}

impl Elsewhere {
    fn of(response: &Response<Body>) -> Option<Self> {
        let (session, owner) = response.headers().get(ELSEWHERE)?.to_str().ok()?.split_once('/')?;
        Some(Self {
            session: SessionId::from_uuid(Uuid::from_str(session).ok()?),
            owner: Uuid::from_str(owner).ok().map(MemberId::from_uuid),
        })
    }
}

/// A call whose request has been read.
pub(super) struct Call {
    pub parts: Parts,
    pub message: Bytes,
}

/// The result of a forwarded call.
pub(super) enum Sent {
    Answered(Response<Body>),
    /// The peer does not own the session either.
    NotOwner,
    /// The peer was not reached. The call had no effect.
    NotReached,
    /// The connection was lost. The call may have had an effect.
    Lost(String),
}

impl Sent {
    /// The labels of all results.
    pub const RESULTS: [&'static str; 4] = ["answered", "not_owner", "not_reached", "lost"];

    fn new(response: Response<Body>) -> Self {
        match Elsewhere::of(&response) {
            Some(_) => Self::NotOwner,
            None => Self::Answered(response),
        }
    }

    /// Returns the result's label in the metrics.
    pub const fn result(&self) -> &'static str {
        match self {
            Self::Answered(_) => "answered",
            Self::NotOwner => "not_owner",
            Self::NotReached => "not_reached",
            Self::Lost(_) => "lost",
        }
    }
}

impl Call {
    /// Reads the message of a request. Reads slightly more than the maximum size, so that the service rejects a message
    /// that is too large.
    async fn read(request: Request<Body>) -> Result<Self, Status> {
        let (parts, mut body) = request.into_parts();
        let mut message = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                message.extend_from_slice(&data);
            }
            if message.len() > PREFIX + MAX_MESSAGE_BYTES {
                break;
            }
        }
        Ok(Self {
            parts,
            message: message.freeze(),
        })
    }

    /// Makes the call in this supervisor, or at the owner of its session.
    pub async fn make<S>(self, mut service: S, cluster: &Cluster) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    {
        let caller_deadline = self.parts.extensions.get::<Deadline>().copied();
        let mut end = Instant::now() + RETRY_WITHIN;
        if let Some((session, owner)) = self.known_owner(cluster)
            && let Some(answer) = self.forward(cluster, session, owner, &mut end).await
        {
            return answer;
        }
        let is_forwarded = self.parts.extensions.get::<Forwarded>().is_some();
        let mut is_first = true;
        let mut pauses = PAUSES.into_iter().chain(std::iter::repeat(PAUSES[PAUSES.len() - 1]));
        loop {
            if !cluster.shared.lease.valid_within(LEASE_WITHIN).await {
                return no_lease().into_http();
            }
            let begun = Instant::now();
            let Ok(mut response) = service.call(self.request()).await;
            end += begun.elapsed();
            let Some(elsewhere) = Elsewhere::of(&response) else {
                return self.guarded(response, cluster);
            };
            if is_forwarded {
                // The member that forwarded the call may have newer information. This one therefore forgets the owner
                // and tries once more. If that fails too, the other member tries again.
                if let Some(owner) = elsewhere.owner {
                    cluster.shared.directory.forget_owner(elsewhere.session, owner);
                }
                if !std::mem::take(&mut is_first) {
                    return response;
                }
                continue;
            }
            let is_leaving = || cluster.other_for(elsewhere.session).filter(|_| cluster.is_leaving());
            if let Some(owner) = elsewhere.owner.or_else(is_leaving)
                && let Some(answer) = self.forward(cluster, elsewhere.session, owner, &mut end).await
            {
                return answer;
            }
            let pause = pauses.next().unwrap_or_default();
            let is_too_late = caller_deadline.is_some_and(|deadline| deadline.remaining() <= pause);
            if is_too_late || Instant::now() + pause >= end {
                tracing::warn!(
                    session = %elsewhere.session,
                    owner = elsewhere.owner.map(tracing::field::display),
                    method = self.parts.uri.path(),
                    "a call was not forwarded in time; can the supervisors reach each other at their --cluster-address?"
                );
                response.headers_mut().remove(ELSEWHERE);
                return response;
            }
            sleep(pause).await;
        }
    }

    /// Returns the session of the call and its owner, if this supervisor knows that another one owns the session. The
    /// session is that of the calling thread, or otherwise the one in the request. A call that was forwarded is not
    /// forwarded again.
    fn known_owner(&self, cluster: &Cluster) -> Option<(SessionId, MemberId)> {
        if self.parts.extensions.get::<Forwarded>().is_some() {
            return None;
        }
        let session = match self.parts.extensions.get::<Principal>()?.thread() {
            // A thread must learn nothing about other sessions, even if its request names one.
            Some(thread) => SessionId::from_uuid(thread.session),
            None => {
                let named = request_field::find(Field::SessionId, self.parts.uri.path(), &self.message)?;
                named.parse().ok()?
            }
        };
        Some((session, cluster.shared.directory.known_owner(session)?))
    }

    /// Makes the call at the owner of its session. Returns `None` if the call must be made again. Moves `end` by the
    /// time that the call may have spent in the owner's handler, because that time does not count.
    async fn forward(
        &self,
        cluster: &Cluster,
        session: SessionId,
        owner: MemberId,
        end: &mut Instant,
    ) -> Option<Response<Body>> {
        let begun = Instant::now();
        let sent = self.send(cluster, owner).await;
        cluster.shared.metrics.forwarded(&sent);
        match sent {
            Sent::Answered(answer) => return Some(answer),
            Sent::NotReached => {}
            Sent::NotOwner => *end += begun.elapsed(),
            Sent::Lost(_) if self.can_be_repeated(cluster) => *end += begun.elapsed(),
            Sent::Lost(cause) => return Some(outcome_unknown(&cause).into_http()),
        }
        cluster.shared.directory.forget_owner(session, owner);
        None
    }

    /// Returns whether the call may be made again after its answer was lost.
    fn can_be_repeated(&self, cluster: &Cluster) -> bool {
        let method = self.parts.uri.path();
        !cluster.changes_data(method) || request_field::find(Field::RequestId, method, &self.message).is_some()
    }

    /// Returns a new copy of the request.
    fn request(&self) -> Request<Body> {
        Request::from_parts(self.parts.clone(), Body::new(Full::new(self.message.clone())))
    }

    /// Sends the call to a peer. Short calls share a stream; any other call has its own.
    async fn send(&self, cluster: &Cluster, owner: MemberId) -> Sent {
        let Some(caller) = self.parts.extensions.get::<Principal>() else {
            return Sent::NotReached;
        };
        let sending = async {
            // The first byte says whether the message is compressed.
            let is_plain = self.message.first() == Some(&0);
            if is_plain && self.message.len() <= SHORT_BYTES && cluster.is_short(self.parts.uri.path()) {
                self.send_on_link(cluster, owner, caller).await
            } else {
                self.send_alone(cluster, owner, caller).await
            }
        };
        tokio::select! {
            sent = sending => sent,
            () = cluster.member_is_gone(owner) => Sent::Lost(String::from("it was removed from the cluster")),
        }
    }

    async fn send_on_link(&self, cluster: &Cluster, owner: MemberId, caller: &Principal) -> Sent {
        let Some(link) = cluster.link(owner) else {
            return Sent::NotReached;
        };
        let deadline = self.parts.extensions.get::<Deadline>();
        let trace = self.parts.extensions.get::<TraceParent>();
        let answer = link.call(ForwardRequest {
            call: 0,
            method: self.parts.uri.path().to_owned(),
            principal: caller.to_header().to_str().unwrap_or_default().to_owned(),
            timeout_millis: deadline
                .map(|deadline| u64::try_from(deadline.remaining().as_millis()).unwrap_or(u64::MAX)),
            trace: trace.map(|trace| trace.as_str().to_owned()).unwrap_or_default(),
            body: self.message.clone(),
        });
        match answer.await {
            Ok(answer) => match response(answer) {
                Some(response) => Sent::new(response),
                None => Sent::Lost(String::from("its answer is malformed")),
            },
            Err(LinkError::NotReached) => Sent::NotReached,
            Err(LinkError::Lost(cause)) => Sent::Lost(cause),
        }
    }

    async fn send_alone(&self, cluster: &Cluster, owner: MemberId, caller: &Principal) -> Sent {
        let Some(mut channel) = cluster.channel(owner) else {
            return Sent::NotReached;
        };
        let mut request = self.request();
        // The extensions concern the connection of the client.
        request.extensions_mut().clear();
        cluster.shared.peers.sign(request.headers_mut(), caller);
        if let Some(deadline) = self.parts.extensions.get::<Deadline>() {
            let (name, value) = deadline::header_value(deadline.remaining());
            request.headers_mut().insert(name, value);
        }
        let sending = async {
            std::future::poll_fn(|context| channel.poll_ready(context)).await?;
            channel.call(request).await
        };
        match sending.await {
            Ok(response) => Sent::new(response),
            Err(error) if was_not_reached(&error) => Sent::NotReached,
            Err(error) => Sent::Lost(error.to_string()),
        }
    }

    /// Returns a response that ends with an error if the lease ends during a read.
    fn guarded(&self, response: Response<Body>, cluster: &Cluster) -> Response<Body> {
        // A change was decided by the log, so its answer does not depend on the lease.
        if cluster.changes_data(self.parts.uri.path()) {
            return response;
        }
        let cluster = cluster.clone();
        response.map(|body| {
            Body::new(GuardedBody {
                body,
                cluster,
                has_ended: false,
            })
        })
    }
}

/// Returns the response in an answer. Returns `None` if the answer is malformed.
fn response(answer: ForwardResponse) -> Option<Response<Body>> {
    let headers = from_pairs(answer.headers)?;
    let trailers = from_pairs(answer.trailers)?;
    let body = Full::new(answer.body);
    // The headers of an error end the response: clients do not accept an empty body after them.
    let body = if trailers.is_empty() {
        Body::new(body)
    } else {
        Body::new(body.with_trailers(ready(Some(Ok(trailers)))))
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    Some(response)
}

/// Returns whether the error comes from a connection attempt.
fn was_not_reached(error: &tonic::transport::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        let refused = cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::TimedOut));
        if refused || cause.is::<tonic::ConnectError>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The body of an answer from memory. It ends with an error if the lease is over.
struct GuardedBody {
    body: Body,
    cluster: Cluster,
    has_ended: bool,
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.as_ref().is_some_and(|frame| frame.is_ok()) && !self.cluster.shared.lease.is_valid() {
            self.has_ended = true;
            let mut trailers = HeaderMap::new();
            if no_lease().add_header(&mut trailers).is_ok() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            return Poll::Ready(Some(Err(no_lease())));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the error of a call while the lease of this supervisor is not valid.
fn no_lease() -> Status {
    Fault::new(
        Code::Unavailable,
        Reason::StoreUnavailable,
        "the supervisor has no contact with its database; try again",
    )
    .retry_after(Duration::from_secs(1))
    .into()
}

/// Returns the error of a change whose answer was lost.
fn outcome_unknown(cause: &str) -> Status {
    Fault::new(
        Code::Unavailable,
        Reason::OutcomeUnknown,
        format!("the connection to the supervisor of the session was lost ({cause}); retry with the same request_id"),
    )
    .retry_after(Duration::from_secs(1))
    .into()
}
