//! Serving: builds a server with health, reflection, limits and a graceful end from a listener and the routes of a
//! service.
//!
//! After [`Shutdown::trigger`]:
//!
//! 1. Health reports NOT_SERVING for the server and for each service. New calls are accepted for
//!    [`ServeLimits::notice`].
//! 2. [`Shutdown::draining`] fires. Streams and long calls end, each with a position to resume from.
//! 3. The listener closes, connections receive a GOAWAY, and calls in flight finish.
//! 4. At [`ServeLimits::drain`] after the trigger all remaining connections are closed, and serving returns in any
//!    case.

use std::io;

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

use crate::{
    auth::AuthLayer,
    call::CallLayer,
    connection::{self, KnownWithin, PREFACE_WITHIN, Rules},
    limit_layer::LimitLayer,
    message::MessageLayer,
    shutdown::Shutdown,
    usage::Bounds,
};
pub use crate::{connection::Listener, serve_limits::ServeLimits};

/// The services of a server.
#[derive(Debug)]
pub struct Serving {
    /// The routes of the services. The server adds health, and reflection if the listener allows it.
    pub routes: Routes,
    /// The full names of the services for health and reflection, such as `troupe.registry.v1.AgentRegistryService`.
    pub names: Vec<&'static str>,
    /// The encoded descriptors for reflection.
    pub descriptor_set: &'static [u8],
}

impl Serving {
    /// Creates the value for services of Troupe's API.
    #[must_use]
    pub const fn new(routes: Routes, names: Vec<&'static str>) -> Self {
        Self {
            routes,
            names,
            descriptor_set: troupe_proto::FILE_DESCRIPTOR_SET,
        }
    }
}

/// Flow control windows for a stream and for a connection: the amount of data that a peer can make the server buffer.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// The reason why serving failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener has no local address.
    #[error("the listener has no address: {0}")]
    Listener(io::Error),
    /// The descriptors are malformed. This is a defect of the build.
    #[error("reflection cannot be served: {0}")]
    Reflection(tonic_reflection::server::Error),
    /// The API descriptors are malformed. This is a defect of the build.
    #[error("the API cannot be read: {0}")]
    Descriptors(#[from] prost::DecodeError),
    /// The transport failed.
    #[error("serving failed: {0}")]
    Transport(#[source] tonic::transport::Error),
}

/// Serves until `shutdown` is triggered, then drains. See the module documentation.
///
/// # Errors
///
/// The descriptors are malformed or the transport fails. A drain that reaches its deadline is logged and is not an
/// error.
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
    let reporters = listener.reporter().into_iter().collect();
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
    // Each connection runs in its own task, which does not end with the server's future.
    cut.cancel();
    ended
}

/// Serves connections from a stream, without reflection. The caller accepts and limits them, and closes them after the
/// drain. `names` are the full names of the services for health.
///
/// # Errors
///
/// The descriptors are malformed or the transport fails.
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

/// Runs a server. The server reports its health to `reporters` in addition to its own health service.
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
    let mut builder = builder(&limits).max_concurrent_streams(limits.max_streams_per_connection);
    if let Some(age) = limits.max_connection_age {
        // Do not set max_connection_age_grace: in tonic 0.14 it closes streams instead of asking clients to leave.
        builder = builder.max_connection_age(age);
    }
    let limit = LimitLayer::new(troupe_proto::FILE_DESCRIPTOR_SET, limits, auth.waiting())?;
    let mut server = Box::pin(
        builder
            .layer(CallLayer::new(auth.methods()))
            .layer(auth)
            .layer(limit)
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
        // The watchers of health have received NOT_SERVING. Removing the names ends their streams.
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
            tracing::warn!(services = ?names, deadline = ?limits.drain, "some connections did not drain in time; closing them");
            Ok(())
        }
    }
}

/// Returns a server with the limits that apply to every port.
pub(crate) fn builder(limits: &ServeLimits) -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(limits.max_header_bytes)
        .http2_max_pending_accept_reset_streams(Some(limits.max_pending_resets))
        .http2_keepalive_interval(Some(limits.keepalive_interval))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout))
}

/// Sets the health of the server and of each service.
pub(crate) async fn announce(reporters: &[HealthReporter], names: &[&'static str], status: ServingStatus) {
    for reporter in reporters {
        for name in names.iter().chain(&[""]) {
            reporter.set_service_status(name, status).await;
        }
    }
}

/// Returns reflection that lists only these services, health and itself, even if the descriptors contain more.
pub(crate) fn reflection(names: &[&'static str], descriptor_set: &'static [u8]) -> Builder<'static> {
    let always = &[
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(descriptor_set)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // Lets tools decode the details of errors.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET);
    names
        .iter()
        .chain(always)
        .fold(builder, |builder, name| builder.with_service_name(*name))
}
