//! The innermost layer of calls. It limits the time in which a request's message arrives. It also replaces the statuses
//! that tonic creates for invalid messages: the new status has the code and the reason that the API documents.

use std::{
    collections::HashSet,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use prost::{DecodeError, bytes::Bytes};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};
use troupe_proto::{fault::Fault, reason::Reason};

use crate::{
    auth::quote,
    identity::{Forwarded, Principal},
    peer::Peer,
    stream_limits,
};

/// The minimum arrival rate of a large message. Each part of this size extends the deadline by one second.
pub(crate) const BYTES_PER_SECOND: usize = 64 * 1024;

/// Prefix of tonic's text for a request that is too large.
const TOO_LARGE: &str = "Error, decoded message length too large: found ";
/// Prefix of tonic's text for a response that is too large.
const ANSWER_TOO_LARGE: &str = "Error, encoded message length too large: found ";
/// Prefixes of tonic's texts for malformed messages. All of them have the code INTERNAL.
const MALFORMED: &[&str] = &[
    "failed to decode Protobuf message",
    "protocol error: received message with",
    "Unexpected EOF decoding stream",
    "Missing request message",
    "Error decompressing",
];

/// The layer that creates [`Messages`].
#[derive(Clone, Debug)]
pub(crate) struct MessageLayer {
    /// Methods with client streaming. Their messages may arrive at any time.
    streaming: Arc<HashSet<String>>,
    within: Duration,
}

impl MessageLayer {
    /// Creates the layer. A message must arrive within `within`, except for the client-streaming methods in
    /// `descriptor_set`.
    ///
    /// # Errors
    ///
    /// The descriptors cannot be decoded.
    pub(crate) fn new(descriptor_set: &[u8], within: Duration) -> Result<Self, DecodeError> {
        let streaming = stream_limits::methods(descriptor_set, prost_types::MethodDescriptorProto::client_streaming)?;
        Ok(Self {
            streaming: Arc::new(streaming),
            within,
        })
    }
}

impl<S> Layer<S> for MessageLayer {
    type Service = Messages<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Messages {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service of [`MessageLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Messages<S> {
    inner: S,
    layer: MessageLayer,
}

impl<S> Service<Request<Body>> for Messages<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method: Arc<str> = quote(request.uri().path()).into();
        let is_known = request.extensions().get::<Principal>().is_some();
        let peer = request.extensions().get::<Peer>();
        let call = peer.map(|peer| peer.usage.begin(is_known));
        // The other members of a cluster are trusted, and the stream on which they forward calls has no end.
        let is_forwarded = request.extensions().get::<Forwarded>().is_some();
        let request = if is_forwarded || self.layer.streaming.contains(&*method) {
            request
        } else {
            let (begun, within) = (Instant::now(), self.layer.within);
            request.map(|inner| {
                Body::new(RequestBody {
                    inner,
                    begun,
                    within,
                    received: 0,
                    late: None,
                })
            })
        };
        let work = self.inner.call(request);
        Box::pin(async move {
            let mut answer = work.await?;
            correct(answer.headers_mut(), &method);
            Ok(answer.map(|body| {
                Body::new(body.map_frame(move |mut frame| {
                    // The closure owns `call`, so the call is open until its response is sent or dropped.
                    let _ = &call;
                    if let Some(trailers) = frame.trailers_mut() {
                        correct(trailers, &method);
                    }
                    frame
                }))
            }))
        })
    }
}

/// A request body that fails with DEADLINE_EXCEEDED when it is late.
struct RequestBody {
    inner: Body,
    begun: Instant,
    within: Duration,
    received: usize,
    /// The timer of the deadline. Set while the rest of the message is awaited.
    late: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    fn ends(&self) -> Instant {
        let extra = u64::try_from(self.received / BYTES_PER_SECOND).unwrap_or(u64::MAX);
        self.begun + self.within + Duration::from_secs(extra)
    }

    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let ends = self.ends();
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(ends)));
        if late.deadline() != ends {
            late.as_mut().reset(ends);
        }
        late.as_mut().poll(context).is_ready()
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.received += frame.data_ref().map_or(0, Bytes::len);
                let is_late = Instant::now() >= self.ends();
                Poll::Ready(Some(if is_late { Err(late(self.within)) } else { Ok(frame) }))
            }
            Poll::Pending if self.is_late(context) => Poll::Ready(Some(Err(late(self.within)))),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Replaces a status that tonic created for a message by the status of the API.
fn correct(headers: &mut HeaderMap, method: &str) {
    // A status with details comes from the service.
    if !headers.contains_key(Status::GRPC_STATUS) || headers.contains_key("grpc-status-details-bin") {
        return;
    }
    let fault = Status::from_header_map(headers).and_then(|status| fault_of(&status));
    let Some(fault) = fault else { return };
    let status = Status::from(fault.with("method", method));
    // The percent-encoded text is always a valid header value.
    let _ = status.add_header(headers);
}

/// Returns the fault that replaces a status of tonic.
fn fault_of(status: &Status) -> Option<Fault> {
    let text = status.message();
    match status.code() {
        Code::OutOfRange => {
            let (subject, sizes, remedy) = match (text.strip_prefix(TOO_LARGE), text.strip_prefix(ANSWER_TOO_LARGE)) {
                (Some(sizes), _) => ("the message", sizes, "send less in one call"),
                (None, Some(sizes)) => ("the answer", sizes, "ask for less in one call"),
                (None, None) => return None,
            };
            let (found, max) = sizes.strip_suffix(" bytes")?.split_once(" bytes, the limit is: ")?;
            let text = format!("{subject} has {found} bytes; at most {max} are allowed; {remedy}");
            let fault = Fault::new(Code::ResourceExhausted, Reason::MessageTooLarge, text);
            Some(fault.with("bytes", found).with("max", max))
        }
        Code::Internal if MALFORMED.iter().any(|begin| text.starts_with(begin)) => {
            let text = format!("the request is not a message of this method ({text}); check the client's API version");
            Some(Fault::new(Code::InvalidArgument, Reason::MalformedMessage, text))
        }
        _ => None,
    }
}

fn late(within: Duration) -> Status {
    let text = format!(
        "the message of the request did not arrive within {} s; nothing was done, send it again",
        within.as_secs()
    );
    Fault::new(Code::DeadlineExceeded, Reason::DeadlineExceeded, text).into()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use tokio::time::advance;
    use tower::{ServiceExt as _, service_fn};
    use troupe_proto::{
        FILE_DESCRIPTOR_SET,
        fault::{metadata_of, reason_of},
    };

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);
    const GET: &str = "/troupe.supervisor.v1.AgentSupervisorService/GetThread";
    const ATTACH: &str = "/troupe.supervisor.v1.ThreadRunnerService/Attach";

    /// Reads the request to its end, as tonic does, and returns the resulting status.
    async fn call(method: &str, body: Body) -> Option<Status> {
        let handler = service_fn(|request: Request<Body>| async {
            let read = request.into_body().collect().await;
            let answer = read.map_or_else(|late| late.into_http(), |_| Response::new(Body::empty()));
            Ok::<_, Infallible>(answer)
        });
        let layer = MessageLayer::new(FILE_DESCRIPTOR_SET, WITHIN).unwrap();
        let request = Request::builder().uri(method).body(body).unwrap();
        let answer = layer.layer(handler).oneshot(request).await.unwrap();
        Status::from_header_map(answer.headers())
    }

    /// Returns a body of `parts` parts of `bytes` bytes, with a pause before each.
    fn slow(parts: usize, bytes: usize, pause: Duration) -> Body {
        Body::new(StreamBody::new(stream::unfold(0, move |number| async move {
            if number == parts {
                return None;
            }
            tokio::time::sleep(pause).await;
            Some((Ok::<_, Status>(Frame::data(Bytes::from(vec![0; bytes]))), number + 1))
        })))
    }

    #[tokio::test(start_paused = true)]
    async fn late_message_ends_its_call() {
        let never = || slow(1, 1, WITHIN * 100);
        let trickle = slow(1_000, 1, Duration::from_secs(1));
        for body in [never(), trickle] {
            let started = Instant::now();
            let status = call(GET, body).await.unwrap();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert_eq!(reason_of(&status), Some(Reason::DeadlineExceeded));
            assert_eq!(started.elapsed(), WITHIN);
        }
        // A large message that keeps arriving has more time. The stream of a runner has no deadline.
        assert!(
            call(GET, slow(40, BYTES_PER_SECOND, Duration::from_secs(1)))
                .await
                .is_none()
        );
        assert!(call(ATTACH, never()).await.is_none());
        advance(WITHIN).await;
    }

    #[test]
    fn only_message_statuses_are_replaced() {
        for (code, text, expected) in [
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 9 bytes, the limit is: 4 bytes",
                Some((
                    Code::ResourceExhausted,
                    Reason::MessageTooLarge,
                    "the message has 9 bytes; at most 4",
                )),
            ),
            (
                Code::OutOfRange,
                "Error, encoded message length too large: found 9 bytes, the limit is: 4 bytes",
                Some((
                    Code::ResourceExhausted,
                    Reason::MessageTooLarge,
                    "the answer has 9 bytes; at most 4",
                )),
            ),
            (
                Code::Internal,
                "failed to decode Protobuf message: invalid varint",
                Some((Code::InvalidArgument, Reason::MalformedMessage, "invalid varint")),
            ),
            (
                Code::Internal,
                "Missing request message.",
                Some((
                    Code::InvalidArgument,
                    Reason::MalformedMessage,
                    "Missing request message",
                )),
            ),
            (Code::Internal, "h2 protocol error", None),
            (Code::OutOfRange, "something else", None),
            (Code::Unimplemented, "failed to decode Protobuf message", None),
        ] {
            let mut headers = HeaderMap::new();
            Status::new(code, text).add_header(&mut headers).unwrap();
            correct(&mut headers, GET);
            let status = Status::from_header_map(&headers).unwrap();
            match expected {
                None => assert_eq!((status.code(), status.message()), (code, text)),
                Some((code, reason, part)) => {
                    assert_eq!((status.code(), reason_of(&status)), (code, Some(reason)), "{text}");
                    assert!(status.message().contains(part), "{}", status.message());
                    assert_eq!(metadata_of(&status)["method"], GET);
                }
            }
        }
        // A status of the service is not replaced, even if it has such a text.
        let mut headers = HeaderMap::new();
        let own: Status = Fault::new(Code::Internal, Reason::Internal, MALFORMED[0]).into();
        own.add_header(&mut headers).unwrap();
        correct(&mut headers, GET);
        assert_eq!(
            reason_of(&Status::from_header_map(&headers).unwrap()),
            Some(Reason::Internal)
        );
    }
}
