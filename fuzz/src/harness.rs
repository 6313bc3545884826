//! An in-memory supervisor with one session for one input. The supervisor is dropped with the input, and ids are
//! sequential, so that each input is reproducible.

use std::{
    future::ready,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper_util::rt::TokioIo;
use prost::{Message as _, bytes::Bytes};
use supervisor_core::time::UnixMillis;
use supervisor_log::store::MemoryStore;
use supervisor_svc::{
    Config, PeerConnector, RegistryClient, Supervisor, Surroundings,
    clock::{Clock, TimeSource},
};
use svc_kit::{serve::ServeLimits, shutdown::Shutdown};
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
    time::Instant,
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint, Server, Uri},
};
use tower::service_fn;
use troupe_proto::supervisor::v1::{
    AttachRequest, AttachResponse, CreateSessionRequest, ListSessionsRequest,
    agent_supervisor_service_server::SERVICE_NAME as AGENTS, attach_request::Message as ToSupervisor,
    attach_response::Message as FromSupervisor, thread_runner_service_server::SERVICE_NAME as RUNNERS,
};
use troupe_runner::mcp::{Caller, ToolServer};
use troupe_tests::{
    client,
    pair::{OPERATOR, RUNNER, SERVICE, VIEWER, authenticator},
    runner::hello,
};
use uuid::Uuid;

use crate::{calls, keys, registry};

/// The session's id in the seeds.
pub const SESSION: &str = "00000000-0000-0000-0000-000000000001";
/// The root thread's id.
pub const ROOT: &str = "00000000-0000-0000-0000-000000000002";

/// The start time of every run.
const BEGINNING: UnixMillis = UnixMillis::new(1_900_000_000_000);
/// Buffer size of a connection, in bytes.
const WAITING_BYTES: usize = 64 * 1024;
/// Maximum number of buffered messages of a runner.
const WAITING_MESSAGES: usize = 64;

/// A supervisor with one session.
pub struct FuzzHarness {
    channel: Channel,
    /// The root's token.
    root_token: String,
}

/// Runs `input` with a supervisor whose session is created by this request.
pub fn run<F: Future<Output = ()>>(opening: CreateSessionRequest, input: impl FnOnce(FuzzHarness) -> F) {
    calls::run(async {
        let (connect, incoming) = mpsc::channel(1);
        let to_supervisor = channel(move |far| {
            connect
                .try_send(Ok(far))
                .map_err(|_| io::ErrorKind::ConnectionRefused.into())
        });
        let serving = supervisor().await.serve_over(
            ReceiverStream::new(incoming),
            authenticator(),
            ServeLimits::default(),
            Shutdown::new(),
        );
        let running = async { input(FuzzHarness::open(to_supervisor, opening).await).await };
        tokio::select! {
            ended = serving => panic!("the service has ended: {ended:?}"),
            () = running => {}
        }
    });
}

impl FuzzHarness {
    async fn open(channel: Channel, opening: CreateSessionRequest) -> Self {
        let mut operator = client::supervisor_over(channel.clone(), Some(OPERATOR));
        let opened = operator.create_session(opening).await.expect("the session is opened");
        let opened = opened.into_inner();
        let session = opened.session.expect("the answer has the session");
        assert_eq!(
            (session.session_id.as_str(), session.root_thread_id.as_str()),
            (SESSION, ROOT),
            "the seeds use these ids"
        );
        Self {
            channel,
            root_token: opened.thread_token,
        }
    }

    /// Calls a method as a kind of caller. Unknown kinds have no token.
    pub async fn call(&self, caller: &str, method: &str, message: Bytes) -> Result<(), Status> {
        let token = match caller {
            "operator" => Some(OPERATOR),
            "viewer" => Some(VIEWER),
            "runner" => Some(RUNNER),
            "service" => Some(SERVICE),
            "root" => Some(self.root_token.as_str()),
            _ => None,
        };
        let service = if method == "Attach" { RUNNERS } else { AGENTS };
        let path = format!("/{service}/{method}");
        let answers = calls::open(self.channel.clone(), &path, token, tokio_stream::once(message)).await?;
        calls::read_answers(answers).await
    }

    /// Returns an MCP server with the tools of the root thread.
    pub async fn tools(&self) -> ToolServer {
        let token = self.root_token.clone();
        let server = ToolServer::connect(self.channel.clone(), Caller::Thread { token }).await;
        server.expect("the root has tools")
    }

    /// Attaches a runner and waits for the command to start the root. Returns both ends of the stream.
    pub async fn attach(&self) -> (mpsc::Sender<Bytes>, Streaming<Bytes>) {
        let (outgoing, messages) = mpsc::channel(WAITING_MESSAGES);
        let hello = AttachRequest {
            message: Some(ToSupervisor::Hello(hello("fuzz"))),
        };
        outgoing
            .send(hello.encode_to_vec().into())
            .await
            .expect("the channel has room");
        let path = format!("/{RUNNERS}/Attach");
        let messages = ReceiverStream::new(messages);
        let attached = calls::open(self.channel.clone(), &path, Some(RUNNER), messages).await;
        let mut incoming = attached.expect("the runner attaches");
        loop {
            let message = incoming.message().await.expect("the stream has no error");
            let response =
                AttachResponse::decode(message.expect("the stream continues")).expect("a message of the API");
            if let Some(FromSupervisor::StartThread(start)) = response.message {
                assert_eq!(
                    (start.thread_id.as_str(), start.generation),
                    (ROOT, 1),
                    "the seeds use these ids"
                );
                return (outgoing, incoming);
            }
        }
    }

    /// Checks that the supervisor still answers calls.
    pub async fn check_alive(&self) {
        let mut operator = client::supervisor_over(self.channel.clone(), Some(OPERATOR));
        let listed = operator.list_sessions(ListSessionsRequest::default()).await;
        listed.expect("the service still answers");
    }
}

async fn supervisor() -> Supervisor {
    let to_registry = channel(|far| {
        let incoming = tokio_stream::once(Ok::<_, io::Error>(far)).chain(tokio_stream::pending());
        let server = Server::builder().add_service(registry::server());
        tokio::spawn(server.serve_with_incoming(incoming));
        Ok(())
    });
    let clock = Clock::new(SequentialIds::new());
    let surroundings = Surroundings {
        store: Arc::new(MemoryStore::new().expect("a database in memory")),
        registry: RegistryClient::over(|| to_registry.clone(), String::from("registry"), None, clock.clone()),
        peers: PeerConnector::over(|_| None),
        clock,
    };
    let config = Config::new(keys::directory(), String::new());
    Supervisor::over(surroundings, config)
        .await
        .expect("the supervisor needs only its keys")
}

/// Creates a channel. `take` receives the other end of each connection.
fn channel(mut take: impl FnMut(DuplexStream) -> io::Result<()> + Send + 'static) -> Channel {
    let connect = service_fn(move |_: Uri| {
        let (near, far) = duplex(WAITING_BYTES);
        ready(take(far).map(|()| TokioIo::new(near)))
    });
    Endpoint::from_static("http://memory").connect_with_connector_lazy(connect)
}

/// A time source with the runtime's clock and with ids that count up from 1.
struct SequentialIds {
    began: Instant,
    last: AtomicU64,
}

impl SequentialIds {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            last: AtomicU64::new(0),
        }
    }
}

impl TimeSource for SequentialIds {
    fn now(&self) -> UnixMillis {
        BEGINNING.plus(self.began.elapsed())
    }

    fn new_uuid(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.last.fetch_add(1, Ordering::Relaxed)) + 1)
    }
}
