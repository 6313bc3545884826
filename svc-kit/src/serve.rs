//! Serving: a listener and a service's routes become a server with health, reflection, bounds, and an end.
//!
//! The end, after [`Shutdown::trigger`]:
//!
//! 1. health says NOT_SERVING, for the whole and for each service; calls are still taken for [`ServeLimits::notice`];
//! 2. [`Shutdown::draining`] fires: streams and long calls end themselves, each with a position to resume from;
//! 3. the listener closes, connections are told to go away, calls in flight finish;
//! 4. at [`ServeLimits::drain`] after the trigger whatever is left is cut off, and serving returns in any case.

use std::{io, time::Duration};

use futures::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout_at,
};
use tokio_util::sync::CancellationToken;
use tonic::{
    service::Routes,
    transport::{Server, server::Connected},
};
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::Builder;

pub use crate::connection::Listener;
use crate::{
    auth::AuthLayer,
    call::CallLayer,
    connection::{self, KnownWithin, PREFACE_WITHIN, Rules},
    message::MessageLayer,
    share::ShareLayer,
    shutdown::{DRAINS_WITHIN, Shutdown},
    streams::StreamLayer,
    usage::Bounds,
};

/// What is served.
#[derive(Debug)]
pub struct Serving {
    /// The services. Health is added to them, and reflection unless the listener does without.
    pub routes: Routes,
    /// The full names of the services, for health and reflection: `troupe.registry.v1.AgentRegistryService`.
    pub names: Vec<&'static str>,
    /// The encoded descriptors that reflection answers from.
    pub descriptor_set: &'static [u8],
}

impl Serving {
    /// These services of Troupe's API.
    #[must_use]
    pub const fn new(routes: Routes, names: Vec<&'static str>) -> Self {
        Self {
            routes,
            names,
            descriptor_set: troupe_proto::FILE_DESCRIPTOR_SET,
        }
    }
}

/// The bounds of a server. The sizes of messages are bounded by the services' own generated servers.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections at once. For one more, the oldest one without an authenticated caller ends, else an idle one.
    pub max_connections: usize,
    /// Connections from one address at once, of IPv6 from one /64 network; loopback has no bound of its own.
    pub max_connections_per_address: usize,
    /// How long a connection lasts without a call of an authenticated caller.
    pub known_within: Duration,
    /// The same for a connection on which health is watched or reflection is used.
    pub open_within: Duration,
    /// How long the message of a call may take to arrive, unless its caller streams; a large one has more time, one second
    /// for each 64 KiB.
    pub message_within: Duration,
    /// Streams, which are calls, at once on one connection.
    pub max_streams_per_connection: u32,
    /// Calls of operators, runners and services at once that have not begun to answer, over all connections; more are
    /// refused as OVERLOADED, here and below.
    pub max_calls_in_flight: usize,
    /// Of these, those of one caller.
    pub max_calls_per_caller: usize,
    /// Calls of all threads at once that have not begun to answer.
    pub max_calls_of_threads: usize,
    /// Of these, those of one thread.
    pub max_calls_per_thread: usize,
    /// Calls of operators, runners and services of methods that wait for minutes. They count nowhere else.
    pub max_waits: usize,
    /// Of these, those of one caller.
    pub max_waits_per_caller: usize,
    /// Calls of all threads of methods that wait for minutes.
    pub max_waits_of_threads: usize,
    /// Of these, those of one thread.
    pub max_waits_per_thread: usize,
    /// Streams of one operator, runner or service, each from its call on; more are refused as OVERLOADED.
    pub max_open_streams_per_caller: usize,
    /// The same of one thread.
    pub max_open_streams_per_thread: usize,
    /// The same of one address, of the methods that are open to all.
    pub max_open_streams_per_stranger: usize,
    /// The same of all addresses together.
    pub max_open_streams_of_strangers: usize,
    /// The headers of a call, in bytes.
    pub max_header_bytes: u32,
    /// Streams that a peer opened and reset at once before they were looked at ("rapid reset").
    pub max_pending_resets: usize,
    /// How often a silent connection is pinged, so that dead watchers are noticed.
    pub keepalive_interval: Duration,
    /// How long the answer to a ping may take.
    pub keepalive_timeout: Duration,
    /// After this age a connection is asked to go away, so that clients behind a balancer spread anew; open streams
    /// live on. None: connections stay.
    pub max_connection_age: Option<Duration>,
    /// How long calls are still taken once health says NOT_SERVING. Part of `drain`.
    pub notice: Duration,
    /// From the trigger of the shutdown to the return of [`serve`], at most.
    pub drain: Duration,
}

/// The age at which connections are asked to go away unless something else is set: longer than a watch lasts.
pub(crate) const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
/// Connections from one address unless something else is set: a proxy in front of many clients has one address.
pub(crate) const MAX_CONNECTIONS_PER_ADDRESS: u32 = 1024;

impl ServeLimits {
    /// The bounds unless something else is set.
    pub const DEFAULT: Self = Self {
        max_connections: 4096,
        max_connections_per_address: MAX_CONNECTIONS_PER_ADDRESS as usize,
        known_within: Duration::from_secs(10),
        open_within: Duration::from_secs(5 * 60),
        message_within: Duration::from_secs(10),
        max_streams_per_connection: 1024,
        max_calls_in_flight: 4096,
        max_calls_per_caller: 2048,
        max_calls_of_threads: 1024,
        max_calls_per_thread: 64,
        max_waits: 4096,
        max_waits_per_caller: 2048,
        max_waits_of_threads: 4096,
        // As many tool calls of one thread may wait for an operator.
        max_waits_per_thread: 64,
        max_open_streams_per_caller: 16_384,
        max_open_streams_per_thread: 64,
        max_open_streams_per_stranger: 256,
        // A client that follows the health of a service has one such stream a connection.
        max_open_streams_of_strangers: 4096,
        max_header_bytes: 16 * 1024,
        max_pending_resets: 64,
        keepalive_interval: Duration::from_secs(30),
        keepalive_timeout: Duration::from_secs(10),
        max_connection_age: Some(MAX_CONNECTION_AGE),
        notice: Duration::ZERO,
        drain: DRAINS_WITHIN,
    };
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Windows of flow control: what a peer may make us buffer, for one stream and for one connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Why serving failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener is of no use.
    #[error("the listener has no address: {0}")]
    Listener(io::Error),
    /// The descriptors are malformed: a defect of the build.
    #[error("reflection cannot be served: {0}")]
    Reflection(tonic_reflection::server::Error),
    /// The descriptors of the API are malformed: a defect of the build.
    #[error("the API cannot be read: {0}")]
    Descriptors(#[from] prost::DecodeError),
    /// The transport failed.
    #[error("serving failed: {0}")]
    Transport(#[source] tonic::transport::Error),
}

/// Serves until `shutdown` is triggered, then drains; see the module.
///
/// # Errors
///
/// If the descriptors are malformed or the transport fails. A drain that met its deadline is no error; it is logged.
pub async fn serve(
    listener: impl Into<Listener>,
    serving: Serving,
    auth: AuthLayer,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let Serving {
        routes,
        names,
        descriptor_set,
    } = serving;
    let listener = listener.into();
    let url = listener.url().map_err(ServeError::Listener)?;
    let described = || reflection(&names, descriptor_set);
    let routes = if listener.is_reflecting() {
        routes
            .add_service(described().build_v1().map_err(ServeError::Reflection)?)
            .add_service(described().build_v1alpha().map_err(ServeError::Reflection)?)
    } else {
        routes
    };
    let reporters = listener.told().into_iter().collect();
    let cut = CancellationToken::new();
    let rules = Rules {
        bounds: Bounds {
            total: limits.max_connections,
            per_address: limits.max_connections_per_address,
        },
        greeted_within: PREFACE_WITHIN,
        known_within: Some(KnownWithin {
            idle: limits.known_within,
            open: limits.open_within,
        }),
    };
    let incoming = connection::accept(listener, rules, cut.clone());
    tracing::info!(url, services = ?names, "serving");
    let ended = run(incoming, routes, &names, auth, limits, shutdown, reporters).await;
    // Connections have tasks of their own, which do not end with the server's future.
    cut.cancel();
    ended
}

/// As [`serve`], over connections that the caller accepts, bounds, and cuts off after the drain; and without reflection.
/// `names` are the full names of the services, for health.
///
/// # Errors
///
/// If the descriptors are malformed or the transport fails.
pub async fn serve_over<C>(
    incoming: impl Stream<Item = io::Result<C>>,
    routes: Routes,
    names: &[&'static str],
    auth: AuthLayer,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> Result<(), ServeError>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    run(incoming, routes, names, auth, limits, shutdown, Vec::new()).await
}

/// `reporters` are told of the server's health beside those who ask it.
async fn run<C>(
    incoming: impl Stream<Item = io::Result<C>>,
    routes: Routes,
    names: &[&'static str],
    auth: AuthLayer,
    limits: ServeLimits,
    shutdown: Shutdown,
    mut reporters: Vec<HealthReporter>,
) -> Result<(), ServeError>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let (mut own, health) = tonic_health::server::health_reporter();
    reporters.push(own.clone());
    announce(&reporters, names, ServingStatus::Serving).await;
    let routes = routes.add_service(health).prepare();

    let close = CancellationToken::new();
    let mut builder = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.max_streams_per_connection)
        .http2_max_header_list_size(limits.max_header_bytes)
        .http2_max_pending_accept_reset_streams(Some(limits.max_pending_resets))
        .http2_keepalive_interval(Some(limits.keepalive_interval))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout));
    if let Some(age) = limits.max_connection_age {
        // Never with max_connection_age_grace: in tonic 0.14 that cuts streams instead of asking clients to go.
        builder = builder.max_connection_age(age);
    }
    let share = ShareLayer::new(&limits, auth.waiting());
    let mut server = Box::pin(
        builder
            .layer(CallLayer::new(auth.methods()))
            .layer(auth)
            .layer(share)
            .layer(StreamLayer::new(troupe_proto::FILE_DESCRIPTOR_SET, limits)?)
            .layer(MessageLayer::new(
                troupe_proto::FILE_DESCRIPTOR_SET,
                limits.message_within,
            )?)
            .serve_with_incoming_shutdown(routes, incoming, close.clone().cancelled_owned()),
    );

    tokio::select! {
        ended = &mut server => return ended.map_err(ServeError::Transport),
        () = shutdown.triggered() => {}
    }

    let deadline = shutdown.deadline(limits.drain);
    let drain = async move {
        announce(&reporters, names, ServingStatus::NotServing).await;
        tokio::time::sleep(limits.notice).await;
        shutdown.start_draining();
        // Watchers of health have been told; forgetting the names ends their streams.
        for name in names.iter().chain(&[""]) {
            own.clear_service_status(name).await;
        }
        close.cancel();
    };
    let ended = timeout_at(deadline, async { tokio::join!(drain, &mut server).1 }).await;
    match ended {
        Ok(ended) => {
            tracing::info!(services = ?names, "drained");
            ended.map_err(ServeError::Transport)
        }
        Err(_) => {
            tracing::warn!(services = ?names, deadline = ?limits.drain, "some connections did not drain in time and are cut off");
            Ok(())
        }
    }
}

/// Sets the health of the whole and of each service.
async fn announce(reporters: &[HealthReporter], names: &[&'static str], status: ServingStatus) {
    for reporter in reporters {
        for name in names.iter().chain(&[""]) {
            reporter.set_service_status(name, status).await;
        }
    }
}

/// Reflection that names these services, health and itself, whatever else the descriptors hold.
pub(crate) fn reflection(names: &[&'static str], descriptor_set: &'static [u8]) -> Builder<'static> {
    let always = &[
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(descriptor_set)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // So that tools can read the details of errors.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET);
    names
        .iter()
        .chain(always)
        .fold(builder, |builder, name| builder.with_service_name(*name))
}
