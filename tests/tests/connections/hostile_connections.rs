//! Peers that violate HTTP/2 or flood the server. Each connection or call is ended with a code of RFC 9113, while other
//! clients are served on their own connections.
//!
//! The frames are built by hand, because a client library would not send them.

use std::{convert::Infallible, future::Future, net::SocketAddr, time::Duration};

use prost::Message as _;
use registry_svc::{Config, Registry};
use svc_kit::{
    auth::{Authenticator, Trust},
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use troupe_proto::{
    fault::retry_after,
    reason::Reason,
    registry::v1::ListAgentsRequest,
    supervisor::v1::{CreateSessionRequest, GetSessionRequest, WaitAgentsRequest},
};
use troupe_tests::{
    client,
    pair::Pair,
    process::{Home, Up},
    refusal::refused,
    runner::Runner,
    tree::Tree,
    watch::Watch,
    within,
};

/// The connection preface of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

// Flags of frames.
const NONE: u8 = 0;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

// Error codes.
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The stream number of frames that concern the whole connection.
const CONNECTION: u32 = 0;
/// The number of the first stream of a client.
const FIRST: u32 = 1;

/// Default maximum size of a payload that a server accepts, in bytes.
const MAX_PAYLOAD: usize = 16_384;

/// Number of frames of a flood: many times more than any limit allows.
const FLOOD: u32 = 2_000;

/// A method that requires authentication.
const LIST_AGENTS: &str = "/troupe.registry.v1.AgentRegistryService/ListAgents";

/// An empty gRPC message: uncompressed and with length 0.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Encodes header fields with HPACK, without compression and without indexing.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    const LITERAL: u8 = 0;
    /// Lengths from this value on need a second byte.
    const LONG: usize = 127;
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(LITERAL);
        for text in [name, value] {
            block.push(u8::try_from(text.len().min(LONG)).unwrap());
            if let Some(rest) = text.len().checked_sub(LONG) {
                // Each byte contains seven bits of the length.
                assert!(rest < LONG, "{text}");
                block.push(u8::try_from(rest).unwrap());
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// Returns the header fields of a call that both services accept from every caller.
fn health() -> Vec<u8> {
    call_of("/grpc.health.v1.Health/Check")
}

/// Returns the header fields of a call of this method.
fn call_of(path: &str) -> Vec<u8> {
    block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "troupe"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ])
}

/// Returns the frames that begin a call, without its message.
fn begin(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &health())
}

/// Returns the frame with the message of a call that has begun. It also ends the stream.
fn finish(stream: u32) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, EMPTY_MESSAGE)
}

/// A received frame.
#[derive(Debug)]
struct Received {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Received {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the 32-bit number at an offset of the payload.
    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A raw HTTP/2 connection.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// Connects and sends nothing.
    async fn connect(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).await.unwrap();
        Self { stream }
    }

    /// Connects and sends the preface and the settings of a client.
    async fn greet(at: SocketAddr) -> Self {
        let mut peer = Self::connect(at).await;
        peer.send(PREFACE).await;
        peer.send(&frame(SETTINGS, NONE, CONNECTION, &[])).await;
        peer
    }

    /// Sends bytes until all are sent or the server stops reading.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = within("the end of a write", self.stream.write_all(bytes)).await;
    }

    /// Returns the next frame; `None` if the server has closed the connection.
    async fn receive(&mut self) -> Option<Received> {
        let receiving = async {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            Some(Received {
                kind,
                flags,
                stream: u32::from_be_bytes(stream),
                payload,
            })
        };
        within("a frame or the end", receiving).await
    }

    /// Sends bytes on a new connection and returns the error code with which the server ends it.
    async fn ended_after(at: SocketAddr, bytes: &[u8]) -> Option<u32> {
        let mut peer = Self::greet(at).await;
        peer.send(bytes).await;
        peer.ended().await
    }

    /// Waits until the server ends the connection and returns the error code of its GOAWAY frame; `None` without such a
    /// frame.
    async fn ended(&mut self) -> Option<u32> {
        let mut reason = None;
        while let Some(received) = self.receive().await {
            if received.kind == GOAWAY {
                reason = Some(received.number(4));
            }
        }
        reason
    }

    /// Waits for the response on a stream: a message, or the error code of the stream's reset.
    async fn answered(&mut self, stream: u32) -> Result<(), u32> {
        loop {
            let received = self.receive().await.expect("the connection continues");
            match received.kind {
                RST_STREAM if received.stream == stream => return Err(received.number(0)),
                DATA if received.stream == stream => return Ok(()),
                _ => {}
            }
        }
    }

    /// Waits until the server has read everything that was sent.
    async fn ping(&mut self) {
        self.send(&frame(PING, NONE, CONNECTION, &[0; 8])).await;
        loop {
            let received = self.receive().await.expect("the connection continues");
            if received.kind == PING && received.has(ACK) {
                return;
            }
        }
    }

    /// Returns the payload of the next ping; `None` if the server has closed the connection.
    async fn pinged(&mut self) -> Option<Vec<u8>> {
        loop {
            let received = self.receive().await?;
            if received.kind == PING && !received.has(ACK) {
                return Some(received.payload);
            }
        }
    }
}

/// Both services as a process, and a well-behaved client.
struct TestCluster {
    up: Up,
    tree: Tree,
    _home: Home,
}

impl TestCluster {
    async fn start() -> Self {
        let home = Home::default();
        let up = Up::start(&home).await;
        let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
        Self { up, tree, _home: home }
    }

    fn services(&self) -> [SocketAddr; 2] {
        [self.up.registry, self.up.supervisor]
    }

    /// Runs a hostile client while both services serve another client continuously, and serves that client once more
    /// afterwards.
    async fn beside<T>(&self, hostile: impl Future<Output = T>) -> T {
        let output = tokio::select! {
            output = hostile => output,
            never = self.call_for_ever() => match never {},
        };
        self.call().await;
        output
    }

    async fn call_for_ever(&self) -> Infallible {
        loop {
            self.call().await;
        }
    }

    async fn call(&self) {
        list_agents(self.up.registry).await;
        self.tree.head().await;
    }
}

async fn list_agents(at: SocketAddr) {
    let mut registry = client::registry(at, None);
    let answer = within("the agents", registry.list_agents(ListAgentsRequest::default())).await;
    answer.unwrap();
}

/// Starts a registry with changed limits and returns its address.
async fn registry_with(change: impl FnOnce(&mut ServeLimits)) -> SocketAddr {
    let mut limits = ServeLimits::default();
    change(&mut limits);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let registry = Registry::open(Config::default()).unwrap();
    let authenticator = Authenticator::new().trust(Trust::Loopback);
    tokio::spawn(registry.serve(listener, authenticator, limits, Shutdown::new()));
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_frame_ends_its_connection() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    const MAX_FRAME_SIZE: u16 = 5;
    let setting = |name: u16, value: u32| {
        let payload = [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(SETTINGS, NONE, CONNECTION, &payload)
    };
    let interrupted = [
        frame(HEADERS, NONE, FIRST, &health()),
        frame(PING, NONE, CONNECTION, &[0; 8]),
    ]
    .concat();
    let promise = [&2_u32.to_be_bytes()[..], &health()].concat();
    let protocol: &[u32] = &[PROTOCOL_ERROR];
    // Where two codes are listed, the RFC requires the first one, and the services' HTTP/2 library sends the second
    // one.
    let size_or_protocol: &[u32] = &[FRAME_SIZE_ERROR, PROTOCOL_ERROR];
    let malformed: &[(&str, Vec<u8>, &[u32])] = &[
        ("data of no stream", frame(DATA, NONE, CONNECTION, b"x"), protocol),
        (
            "data of a stream that was not opened",
            frame(DATA, NONE, FIRST, b"x"),
            protocol,
        ),
        (
            "a payload over the bound",
            frame(DATA, NONE, FIRST, &[0; MAX_PAYLOAD + 1]),
            &[FRAME_SIZE_ERROR],
        ),
        ("a stream of the server's", begin(2), protocol),
        (
            "a continuation without headers",
            frame(CONTINUATION, END_HEADERS, FIRST, &health()),
            protocol,
        ),
        ("another frame between fields", interrupted, protocol),
        (
            "invalid header compression",
            frame(HEADERS, END_HEADERS, FIRST, &[0x80]),
            &[COMPRESSION_ERROR, PROTOCOL_ERROR],
        ),
        (
            "a reset of a stream that was not opened",
            frame(RST_STREAM, NONE, FIRST, &CANCEL.to_be_bytes()),
            protocol,
        ),
        (
            "half a setting",
            frame(SETTINGS, NONE, CONNECTION, &[0; 3]),
            size_or_protocol,
        ),
        ("settings of a stream", frame(SETTINGS, NONE, FIRST, &[]), protocol),
        (
            "a window that is too large",
            setting(INITIAL_WINDOW_SIZE, 1 << 31),
            &[FLOW_CONTROL_ERROR, PROTOCOL_ERROR],
        ),
        ("frames that are too small", setting(MAX_FRAME_SIZE, 1), protocol),
        ("a push", frame(PUSH_PROMISE, END_HEADERS, FIRST, &promise), protocol),
        ("half a ping", frame(PING, NONE, CONNECTION, &[0; 4]), size_or_protocol),
        (
            "a window that grows by nothing",
            frame(WINDOW_UPDATE, NONE, CONNECTION, &[0; 4]),
            protocol,
        ),
        (
            "a window that grows over the bound",
            frame(WINDOW_UPDATE, NONE, CONNECTION, &[0x7f, 0xff, 0xff, 0xff]),
            &[FLOW_CONTROL_ERROR],
        ),
    ];
    let cluster = TestCluster::start().await;
    for at in cluster.services() {
        for (what, bytes, reasons) in malformed {
            let reason = cluster.beside(Peer::ended_after(at, bytes)).await;
            let is_named = reason.is_some_and(|reason| reasons.contains(&reason));
            assert!(is_named, "{what}: {reason:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_protocols_receive_only_settings() {
    let cluster = TestCluster::start().await;
    for at in cluster.services() {
        for said in [
            &b"GET / HTTP/1.1\r\nHost: troupe\r\n\r\n"[..],
            &[0x16, 0x03, 0x01, 0x02, 0x00],
        ] {
            let answered = async {
                let mut peer = Peer::connect(at).await;
                peer.send(said).await;
                let mut kinds = Vec::new();
                while let Some(received) = peer.receive().await {
                    kinds.push(received.kind);
                }
                kinds
            };
            // An HTTP/2 server sends its settings before it has received anything.
            assert_eq!(cluster.beside(answered).await, [SETTINGS]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_ends_its_connection() {
    let field = frame(CONTINUATION, NONE, FIRST, &block(&[("a", "b")]));
    let fields_without_end = [frame(HEADERS, NONE, FIRST, &health()), field.repeat(FLOOD as usize)];
    let nothing = frame(DATA, NONE, FIRST, &[]);
    let data_without_content = [begin(FIRST), nothing.repeat(FLOOD as usize)];
    let streams = (0..FLOOD).map(|number| FIRST + 2 * number);
    let resets = streams.map(|stream| {
        let reset = frame(RST_STREAM, NONE, stream, &CANCEL.to_be_bytes());
        [begin(stream), reset].concat()
    });
    let floods = [
        ("streams that are reset at once", resets.collect::<Vec<_>>().concat()),
        ("fields without end", fields_without_end.concat()),
        ("data without content", data_without_content.concat()),
    ];
    let cluster = TestCluster::start().await;
    for at in cluster.services() {
        for (what, bytes) in &floods {
            let reason = cluster.beside(Peer::ended_after(at, bytes)).await;
            assert_eq!(reason, Some(ENHANCE_YOUR_CALM), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_call_is_reset_alone() {
    let cluster = TestCluster::start().await;
    for at in cluster.services() {
        let answers = async {
            let mut peer = Peer::greet(at).await;
            // HTTP/2 does not permit this field.
            let more = block(&[("connection", "close")]);
            peer.send(&frame(HEADERS, END_HEADERS, 1, &[health(), more].concat()))
                .await;
            let first = peer.answered(1).await;
            peer.send(&[begin(3), finish(3)].concat()).await;
            (first, peer.answered(3).await)
        };
        let answers = cluster.beside(answers).await;
        assert_eq!(answers, (Err(PROTOCOL_ERROR), Ok(())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_call_with_oversized_headers_is_rejected() {
    /// HTTP/2 adds this to the size of each field.
    const OVERHEAD: usize = 32;
    let (name, value) = ("x", "x".repeat(100));
    let size = name.len() + value.len() + OVERHEAD;
    let bound = ServeLimits::default().max_header_bytes as usize;
    let call = |stream: u32, more: usize| {
        let more = block(&vec![(name, value.as_str()); more]);
        let begun = frame(HEADERS, END_HEADERS, stream, &[health(), more].concat());
        [begun, finish(stream)].concat()
    };
    let cluster = TestCluster::start().await;
    for at in cluster.services() {
        let answers = async {
            let mut peer = Peer::greet(at).await;
            let mut answers = Vec::new();
            // Three fields fewer leave enough space for the fields of every call.
            for (stream, more) in [(1, bound / size - 3), (3, bound / size + 1), (5, 0)] {
                peer.send(&call(stream, more)).await;
                answers.push(peer.answered(stream).await);
            }
            answers
        };
        let answers = cluster.beside(answers).await;
        assert_eq!(answers, [Ok(()), Err(PROTOCOL_ERROR), Ok(())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_above_the_limit_is_rejected_alone() {
    let bound = ServeLimits::default().max_streams_per_connection;
    let stream = |number: u32| FIRST + 2 * number;
    let cluster = TestCluster::start().await;
    for at in cluster.services() {
        let answers = async {
            let mut peer = Peer::greet(at).await;
            for number in 0..=bound {
                peer.send(&begin(stream(number))).await;
            }
            let last = peer.answered(stream(bound)).await;
            peer.send(&finish(FIRST)).await;
            let first = peer.answered(FIRST).await;
            // After a stream has ended, a new stream is accepted.
            let next = stream(bound + 1);
            peer.send(&[begin(next), finish(next)].concat()).await;
            [last, first, peer.answered(next).await]
        };
        let answers = cluster.beside(answers).await;
        assert_eq!(answers, [Err(REFUSED_STREAM), Ok(()), Ok(())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_limits_of_threads_and_operators_are_separate() {
    let cluster = TestCluster::start().await;
    let thread = client::supervisor(cluster.up.supervisor, Some(&cluster.tree.root_token));
    let request = cluster.tree.watch_request();
    let watch = async || {
        let mut thread = thread.clone();
        let answer = within("a watch or a refusal", thread.watch_threads(request.clone())).await;
        answer.map(tonic::Response::into_inner)
    };
    let opening = async {
        let mut watches = Vec::new();
        for _ in 0..ServeLimits::default().max_open_streams_per_thread {
            watches.push(watch().await.unwrap());
        }
        let refusal = refused(
            watch().await,
            Code::ResourceExhausted,
            Reason::Overloaded,
            "too many open streams",
        );
        assert!(retry_after(&refusal).is_some());
        watches
    };
    let mut watches = cluster.beside(opening).await;
    Watch::open(&cluster.up.client(), request.clone()).await;

    // After a watch has ended, a new watch is accepted.
    watches.pop();
    within("an accepted watch", async { while watch().await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_streams_are_limited_but_calls_work() {
    let cluster = TestCluster::start().await;
    for at in cluster.services() {
        let health = HealthClient::new(client::endpoint(at).connect_lazy());
        let ask = HealthCheckRequest { service: String::new() };
        let opening = async {
            let mut health = health.clone();
            let mut watches = Vec::new();
            for _ in 0..ServeLimits::default().max_open_streams_per_stranger {
                watches.push(within("a watch", health.watch(ask.clone())).await.unwrap());
            }
            let more = within("a refusal", health.watch(ask.clone())).await;
            refused(
                more,
                Code::ResourceExhausted,
                Reason::Overloaded,
                "too many open streams",
            );
            let answer = within("health", health.check(ask.clone())).await.unwrap();
            assert_eq!(answer.get_ref().status(), ServingStatus::Serving);
            watches
        };
        cluster.beside(opening).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_connection_gets_goaway_and_finishes_its_calls() {
    let at = registry_with(|limits| limits.max_connection_age = Some(Duration::from_secs(1))).await;
    let mut old = Peer::greet(at).await;
    old.send(&begin(FIRST)).await;
    let reason = loop {
        let received = old.receive().await.expect("the connection is not cut off");
        if received.kind == GOAWAY {
            break received.number(4);
        }
    };
    assert_eq!(reason, NO_ERROR);
    let ping = old.pinged().await.expect("the connection still has a call");
    old.send(&frame(PING, ACK, CONNECTION, &ping)).await;
    list_agents(at).await;
    old.send(&finish(FIRST)).await;
    assert_eq!(old.answered(FIRST).await, Ok(()));
    assert!(matches!(old.ended().await, None | Some(NO_ERROR)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_without_ping_responses_is_closed() {
    /// Number of ping responses after which the connection counts as alive.
    const PINGS: usize = 5;
    let at = registry_with(|limits| {
        limits.keepalive_interval = Duration::from_millis(20);
        limits.keepalive_timeout = Duration::from_secs(2);
    })
    .await;

    let mut silent = Peer::greet(at).await;
    silent.send(&begin(FIRST)).await;
    assert!(silent.pinged().await.is_some());

    let mut alive = Peer::greet(at).await;
    alive.send(&begin(FIRST)).await;
    for _ in 0..PINGS {
        let ping = alive
            .pinged()
            .await
            .expect("a connection that answers pings stays open");
        alive.send(&frame(PING, ACK, CONNECTION, &ping)).await;
    }
    alive.send(&finish(FIRST)).await;
    assert_eq!(alive.answered(FIRST).await, Ok(()));

    assert_eq!(silent.ended().await, Some(NO_ERROR));
    list_agents(at).await;
}

/// Number of streams that a hostile thread opens on each connection.
const STREAMS: u32 = 1_000;
const CONNECTIONS: usize = 3;

/// Opens calls of a method with a token, and reads until `answers` calls have a response.
async fn open_calls(at: SocketAddr, path: &str, token: &str, message: Option<&[u8]>, answers: u32) -> Peer {
    let token = block(&[("authorization", &format!("Bearer {token}"))]);
    let fields = [call_of(path), token].concat();
    let mut peer = Peer::greet(at).await;
    for number in 0..STREAMS {
        let stream = FIRST + 2 * number;
        peer.send(&frame(HEADERS, END_HEADERS, stream, &fields)).await;
        if let Some(message) = message {
            peer.send(&frame(DATA, END_STREAM, stream, message)).await;
        }
    }
    // The ping is answered after all earlier frames.
    peer.send(&frame(PING, NONE, CONNECTION, &[0; 8])).await;
    let (mut answered, mut is_read) = (0, false);
    while answered < answers || !is_read {
        let received = peer.receive().await.expect("the connection continues");
        match received.kind {
            HEADERS => answered += 1,
            PING if received.has(ACK) => is_read = true,
            _ => {}
        }
    }
    peer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_threads_do_not_lock_out_operators() {
    let pair = Pair::start().await;
    let at = pair.supervisor_at();
    // Each tree has a thread without a runner, so a wait for that thread does not end.
    let mut trees = Vec::new();
    for _ in 0..2 {
        let tree = pair.tree().await;
        let child = tree.spawn("worker").await.id;
        trees.push((tree, child));
    }
    let limits = ServeLimits::default();
    let method = |name: &str| format!("/troupe.supervisor.v1.AgentSupervisorService/{name}");
    for (name, waits, bound) in [
        ("GetThread", false, limits.max_calls_per_thread),
        ("WaitAgents", true, limits.max_waits_per_thread),
    ] {
        // The minimum number of rejected calls of a connection: all calls above the number that a thread may have open.
        let answers = STREAMS - u32::try_from(bound).unwrap();
        let mut attack = Vec::new();
        for (tree, child) in &trees {
            let request = WaitAgentsRequest {
                thread_ids: vec![child.clone()],
                timeout: Some(prost_types::Duration {
                    seconds: 30 * 60,
                    nanos: 0,
                }),
                ..WaitAgentsRequest::default()
            };
            let encoded = request.encode_to_vec();
            let length = u32::try_from(encoded.len()).unwrap().to_be_bytes();
            let message = [&[0], &length[..], &encoded].concat();
            for _ in 0..CONNECTIONS {
                let message = waits.then_some(&message[..]);
                attack.push(open_calls(at, &method(name), &tree.root_token, message, answers).await);
            }
        }
        let (tree, _) = &trees[0];
        // A thread with the maximum number of waiting calls may still call other methods.
        let own = pair.with_token(&tree.root_token);
        let request = GetSessionRequest::default();
        let answer = within("an answer", own.clone().get_session(request)).await;
        if waits {
            answer.unwrap();
        } else {
            let status = refused(
                answer,
                Code::ResourceExhausted,
                Reason::Overloaded,
                "max_calls_per_thread",
            );
            assert!(retry_after(&status).is_some());
        }
        let doomed = tree.spawn("worker").await.id;
        tree.head().await;
        tree.close(&doomed).await;
        Runner::attach(&pair, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_connections_do_not_block_operators() {
    const MOST: usize = 16;
    let at = registry_with(|limits| limits.max_connections = MOST).await;
    let mut strangers = Vec::new();
    for _ in 0..2 * MOST {
        let mut peer = Peer::greet(at).await;
        peer.ping().await;
        strangers.push(peer);
    }
    list_agents(at).await;
    // The service closed the oldest connections, each with a GOAWAY.
    for peer in &mut strangers[..MOST] {
        assert_eq!(peer.ended().await, Some(NO_ERROR));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_connection_gets_goaway() {
    let at = registry_with(|limits| {
        limits.known_within = Duration::from_secs(1);
        limits.open_within = Duration::from_secs(3);
    })
    .await;
    let mut silent = Peer::greet(at).await;
    let mut checking = Peer::greet(at).await;
    checking.send(&[begin(FIRST), finish(FIRST)].concat()).await;
    assert_eq!(checking.answered(FIRST).await, Ok(()));
    let mut watching = Peer::greet(at).await;
    let watch = frame(HEADERS, END_HEADERS, FIRST, &call_of("/grpc.health.v1.Health/Watch"));
    watching.send(&[watch, finish(FIRST)].concat()).await;
    assert_eq!(watching.answered(FIRST).await, Ok(()));
    // The call authenticates the connection, because calls from this machine are trusted.
    let mut known = Peer::greet(at).await;
    let list = frame(HEADERS, END_HEADERS, FIRST, &call_of(LIST_AGENTS));
    known.send(&[list, finish(FIRST)].concat()).await;
    assert_eq!(known.answered(FIRST).await, Ok(()));

    assert_eq!(silent.ended().await, Some(NO_ERROR));
    assert_eq!(checking.ended().await, Some(NO_ERROR));
    // An unauthenticated connection with an open watch has more time than the others, but not unlimited time.
    watching.ping().await;
    assert_eq!(watching.ended().await, Some(NO_ERROR));
    known.ping().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_message_releases_slot_of_its_call() {
    let at = registry_with(|limits| {
        limits.message_within = Duration::from_millis(200);
        limits.max_calls_per_caller = 1;
    })
    .await;
    let mut slow = Peer::greet(at).await;
    slow.send(&frame(HEADERS, END_HEADERS, FIRST, &call_of(LIST_AGENTS)))
        .await;
    // The response consists of headers only.
    loop {
        let received = slow.receive().await.expect("the connection continues");
        if received.kind == HEADERS {
            assert!(received.has(END_STREAM));
            break;
        }
    }
    list_agents(at).await;
}
