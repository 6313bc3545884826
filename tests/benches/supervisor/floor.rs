//! The least that the supervisor could cost, by tonic and SQLite alone: a call that asks another service and commits
//! one row before it answers, and a stream that repeats a message.

use std::{convert::Infallible, iter::repeat, net::SocketAddr, path::Path, pin::Pin, thread};

use rusqlite::{Connection, params};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
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
use troupe_proto::supervisor::v1::WatchThreadsResponse;
use troupe_tests::client::endpoint;

use crate::echo;

const REPEAT: &str = "/troupe.bench.Echo/Repeat";
/// Commits that wait for the one under way.
const WAITING: usize = 64;

/// Sizes of encoded messages and of what is stored, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    /// What the other service is asked.
    pub(crate) question: usize,
    /// What is committed.
    pub(crate) row: usize,
    /// What is answered in the end.
    pub(crate) answer: usize,
}

/// The service. It answers [`echo::call`], as an echo with more behind it.
#[derive(Clone)]
struct Floor {
    echo: Channel,
    commits: mpsc::Sender<oneshot::Sender<()>>,
    question: Bytes,
    answer: Bytes,
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, data: &Path, echo: SocketAddr, sizes: Sizes) {
    let floor = Floor {
        echo: endpoint(echo).connect_lazy(),
        commits: committer(data, vec![b'x'; sizes.row]),
        question: echo::sent(sizes.question),
        answer: echo::message(sizes.answer),
    };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_service(floor);
    server.serve_with_incoming(incoming).await.unwrap();
}

/// Commits the row whenever it is asked to, as durably as the supervisor does, and says when that is done.
fn committer(data: &Path, row: Vec<u8>) -> mpsc::Sender<oneshot::Sender<()>> {
    let connection = Connection::open(data.join("floor.db")).unwrap();
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL;
             PRAGMA fullfsync = ON;
             PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE rows (bytes BLOB NOT NULL) STRICT;",
        )
        .unwrap();
    let (sender, mut asked) = mpsc::channel::<oneshot::Sender<()>>(WAITING);
    thread::spawn(move || {
        while let Some(done) = asked.blocking_recv() {
            connection
                .prepare_cached("INSERT INTO rows (bytes) VALUES (?1)")
                .unwrap()
                .execute(params![row])
                .unwrap();
            // Who asked may be gone.
            let _ = done.send(());
        }
    });
    sender
}

impl UnaryService<Bytes> for Floor {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        let floor = self.clone();
        Box::pin(async move {
            echo::call(floor.echo, echo::PATH, floor.question).await;
            let (done, committed) = oneshot::channel();
            floor.commits.send(done).await.unwrap();
            committed.await.unwrap();
            Ok(Response::new(floor.answer))
        })
    }
}

/// A stream of the request, without end.
struct Repeat;

impl ServerStreamingService<WatchThreadsResponse> for Repeat {
    type Response = WatchThreadsResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<WatchThreadsResponse, Status>> + Send>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<WatchThreadsResponse>) -> Self::Future {
        Box::pin(async move {
            let messages = repeat(request.into_inner()).map(Ok);
            let stream: Self::ResponseStream = Box::pin(tokio_stream::iter(messages));
            Ok(Response::new(stream))
        })
    }
}

impl Service<http::Request<Body>> for Floor {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let floor = self.clone();
        Box::pin(async move {
            if request.uri().path() == REPEAT {
                let mut grpc = Grpc::new(ProstCodec::<WatchThreadsResponse, WatchThreadsResponse>::default());
                Ok(grpc.server_streaming(Repeat, request).await)
            } else {
                let mut grpc = Grpc::new(ProstCodec::<Bytes, Bytes>::default());
                Ok(grpc.unary(floor, request).await)
            }
        })
    }
}

impl NamedService for Floor {
    const NAME: &'static str = "troupe.bench.Echo";
}

/// A stream of that message, without end.
pub(crate) async fn repeated(channel: Channel, message: WatchThreadsResponse) -> Streaming<WatchThreadsResponse> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<WatchThreadsResponse, WatchThreadsResponse>::default();
    let path = PathAndQuery::from_static(REPEAT);
    let answer = grpc.server_streaming(Request::new(message), path, codec).await;
    answer.unwrap().into_inner()
}
