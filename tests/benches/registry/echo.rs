//! The least that a call can cost: a service without generated code that answers the same bytes to everybody.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
};

use prost::{
    Message as _,
    bytes::{Buf as _, BufMut as _},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{
        BoxFuture, Bytes, Context, Poll, Service,
        http::{self, uri::PathAndQuery},
    },
    server::{Grpc, NamedService, UnaryService},
    transport::{Channel, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;

/// Its one method.
pub(crate) const PATH: &str = "/troupe.bench.Echo/Echo";

/// A message of about that encoded size, as the service holds it: one field of bytes, like `google.protobuf.BytesValue`.
pub(crate) fn message(encoded: usize) -> Bytes {
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

/// The service.
#[derive(Clone)]
struct Echo {
    answer: Bytes,
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(self.answer.clone())))
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Bytes, Bytes>::default());
            Ok(grpc.unary(method, request).await)
        })
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "troupe.bench.Echo";
}

/// The service on a port, until it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(answer: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = Server::builder().add_service(Echo { answer });
        let task = tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
        Self { address, task }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One call that reads the answer's bytes and nothing in them, of the echo or of any other service.
pub(crate) async fn call(channel: Channel, path: &'static str, request: Bytes) -> Bytes {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(Request::new(request), path, Opaque).await;
    answer.unwrap().into_inner()
}

/// Sends and takes bytes as they are.
#[derive(Clone, Copy)]
struct Opaque;

impl Codec for Opaque {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Opaque {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Opaque {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
