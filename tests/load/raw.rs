//! The lower bound for a service: tonic without generated code. It sends the same bytes to every caller. It can first
//! call another service of this kind, and it can stream a message repeatedly.

use std::{convert::Infallible, iter::repeat_n, net::SocketAddr, pin::Pin};

use futures::{StreamExt as _, stream};
use prost::Message as _;
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{
        BoxFuture, Bytes, Context, Poll, Service,
        http::{self, uri::PathAndQuery},
    },
    server::{Grpc, NamedService, ServerStreamingService, UnaryService},
    transport::{Channel, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use troupe_proto::supervisor::v1::{WatchThreadsResponse, WatchTranscriptResponse};
use troupe_tests::client::endpoint;

use crate::opaque;

/// The path of unary calls. Every path that is not used for another purpose works.
pub(crate) const CALL: &str = "/troupe.load.Raw/Call";
/// The path of the call after which streams begin: the streams that were requested before, and all later streams.
const BEGIN: &str = "/troupe.load.Raw/Begin";

/// Number of streams on one connection, for raw streams and for the watches that are compared with them.
pub(crate) const STREAMS_PER_CONNECTION: usize = 100;
/// Metadata key with the number of messages of a stream.
const LENGTH: &str = "troupe-length";

/// A message that a stream can repeat. The client sends it as the request of the stream.
pub(crate) trait Repeated: prost::Message + Clone + Default + 'static {
    /// The method.
    const REPEAT: &str;
}

impl Repeated for WatchThreadsResponse {
    const REPEAT: &str = "/troupe.load.Raw/RepeatEvent";
}

impl Repeated for WatchTranscriptResponse {
    const REPEAT: &str = "/troupe.load.Raw/RepeatEntries";
}

/// The service that is called before each response.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    pub(crate) address: SocketAddr,
    /// Size of the request to that service, in bytes.
    pub(crate) question: usize,
}

/// Returns the content of a message with about that encoded size. The message has one field of bytes, like
/// `google.protobuf.BytesValue`.
fn message(encoded: usize) -> Bytes {
    let mut size = encoded;
    while size > 0 && Bytes::from(vec![b'x'; size]).encoded_len() > encoded {
        size -= 1;
    }
    Bytes::from(vec![b'x'; size])
}

/// Returns an encoded message of about that size.
pub(crate) fn sent(encoded: usize) -> Bytes {
    message(encoded).encode_to_vec().into()
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, answer: usize, behind: Option<Behind>) {
    let raw = Raw {
        answer: message(answer),
        next: behind.map(|behind| (endpoint(behind.address).connect_lazy(), sent(behind.question))),
        begun: watch::Sender::new(false),
    };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    // The same maximum number of streams per connection as in the services.
    let server = Server::builder().max_concurrent_streams(1024).add_service(raw);
    server.serve_with_incoming(incoming).await.unwrap();
}

/// The service.
#[derive(Clone)]
struct Raw {
    answer: Bytes,
    /// The connection to the next service, and the request to it.
    next: Option<(Channel, Bytes)>,
    /// Whether streams may begin.
    begun: watch::Sender<bool>,
}

impl Raw {
    async fn repeat<M: Repeated>(&self, request: http::Request<Body>) -> http::Response<Body> {
        let repeat = Repeat {
            begun: self.begun.subscribe(),
        };
        let mut grpc = Grpc::new(ProstCodec::<M, M>::default());
        grpc.server_streaming(repeat, request).await
    }
}

impl UnaryService<Bytes> for Raw {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        let raw = self.clone();
        Box::pin(async move {
            if let Some((channel, question)) = raw.next {
                opaque::call(channel, CALL, question).await;
            }
            Ok(Response::new(raw.answer))
        })
    }
}

/// Streams the request repeatedly. The metadata contains the number of messages.
struct Repeat {
    begun: watch::Receiver<bool>,
}

impl<M: Repeated> ServerStreamingService<M> for Repeat {
    type Response = M;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<M>) -> Self::Future {
        let mut begun = self.begun.clone();
        let length = request
            .metadata()
            .get(LENGTH)
            .unwrap()
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        let message = request.into_inner();
        let messages = stream::once(async move {
            // This cannot fail, because the service holds the sender.
            let _ = begun.wait_for(|has_begun| *has_begun).await;
            tokio_stream::iter(repeat_n(message, length).map(Ok::<_, Status>))
        });
        let stream: Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>> = Box::pin(messages.flatten());
        Box::pin(async move { Ok(Response::new(stream)) })
    }
}

impl Service<http::Request<Body>> for Raw {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let raw = self.clone();
        Box::pin(async move {
            match request.uri().path() {
                WatchThreadsResponse::REPEAT => return Ok(raw.repeat::<WatchThreadsResponse>(request).await),
                WatchTranscriptResponse::REPEAT => return Ok(raw.repeat::<WatchTranscriptResponse>(request).await),
                BEGIN => drop(raw.begun.send_replace(true)),
                _ => {}
            }
            let mut grpc = Grpc::new(ProstCodec::<Bytes, Bytes>::default());
            Ok(grpc.unary(raw, request).await)
        })
    }
}

impl NamedService for Raw {
    const NAME: &'static str = "troupe.load.Raw";
}

/// Opens streams that repeat a message. The streams begin when [`begin`] is called.
pub(crate) async fn streams<M: Repeated>(
    address: SocketAddr,
    message: &M,
    count: usize,
    length: usize,
) -> Vec<Streaming<M>> {
    let mut streams = Vec::with_capacity(count);
    let mut channel = endpoint(address).connect_lazy();
    for number in 0..count {
        if number > 0 && number.is_multiple_of(STREAMS_PER_CONNECTION) {
            channel = endpoint(address).connect_lazy();
        }
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<M, M>::default();
        let path = PathAndQuery::from_static(M::REPEAT);
        let mut request = Request::new(message.clone());
        request.metadata_mut().insert(LENGTH, length.into());
        let answer = grpc.server_streaming(request, path, codec).await;
        streams.push(answer.unwrap().into_inner());
    }
    streams
}

/// Lets all streams begin.
pub(crate) async fn begin(address: SocketAddr) {
    opaque::call(endpoint(address).connect_lazy(), BEGIN, sent(0)).await;
}
