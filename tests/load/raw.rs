//! The lower bound for a service: tonic without generated code. It sends the same bytes to every caller. On request it
//! first calls another service of its kind, and it repeats a message as often as requested.

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

/// Any call but the two below.
pub(crate) const CALL: &str = "/troupe.load.Raw/Call";
/// Starts streams from now on, including streams that were requested before.
const BEGIN: &str = "/troupe.load.Raw/Begin";

/// Streams on one connection, of raw ones and of watches that are compared with them.
pub(crate) const STREAMS_PER_CONNECTION: usize = 100;
/// Of a stream: how many messages it has.
const LENGTH: &str = "troupe-length";

/// A message of which a stream can have many: the request, once streams begin.
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

/// Whom it asks before it answers.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    pub(crate) address: SocketAddr,
    /// Bytes of the question.
    pub(crate) question: usize,
}

/// A message of about that encoded size, as the service holds it: one field of bytes, as `google.protobuf.BytesValue`.
fn message(encoded: usize) -> Bytes {
    let mut size = encoded;
    while size > 0 && Bytes::from(vec![b'x'; size]).encoded_len() > encoded {
        size -= 1;
    }
    Bytes::from(vec![b'x'; size])
}

/// The bytes of such a message as they are sent.
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
    // As many as the services let one connection have.
    let server = Server::builder().max_concurrent_streams(1024).add_service(raw);
    server.serve_with_incoming(incoming).await.unwrap();
}

/// The service.
#[derive(Clone)]
struct Raw {
    answer: Bytes,
    /// Whom it asks, and what.
    next: Option<(Channel, Bytes)>,
    /// Whether streams begin.
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

/// A stream of the request, as long as its metadata says.
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
            // It cannot fail: the service has the other end.
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

/// Opens so many streams of that message, as long as that. They begin with [`begin`].
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

/// Has all streams begin.
pub(crate) async fn begin(address: SocketAddr) {
    opaque::call(endpoint(address).connect_lazy(), BEGIN, sent(0)).await;
}
