//! The admin port, in plaintext: health over gRPC, for probes that do not support TLS, and `/metrics` over HTTP.
//!
//! The port neither shows nor changes sessions, and it has no authentication. Do not expose it to untrusted networks.

use std::{future::ready, io, net::SocketAddr, time::Duration};

use axum::{
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};
use prometheus::Registry;
use tokio::{
    net::TcpListener,
    task::{JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::{
    service::Routes,
    transport::{self, Server},
};
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use crate::{
    connection::{Listener, Rules, accept},
    listen::{BindError, bind},
    metrics,
    serve::reflection,
    telemetry::Telemetry,
    usage::Bounds,
};

/// Maximum number of connections, and of calls on each connection. The port serves probes and a few metrics readers.
const MAX_CONNECTIONS: usize = 64;
const MAX_STREAMS: u32 = 16;
/// Time limit for the first request of a connection. Without this limit, idle peers could occupy all of the few
/// connections.
pub(crate) const HEAD_WITHIN: Duration = Duration::from_secs(3);
/// Interval of pings on a silent connection.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Maximum time that the shutdown waits for responses in progress. If a connection has never sent a request, the
/// shutdown waits for this whole time.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// Health name that is serving as long as the process is alive.
pub const LIVENESS: &str = "liveness";

/// Health name for programs that are not servers: whether the process is currently ready for its work.
pub const READINESS: &str = "readiness";

/// Address of the admin port, if enabled.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AdminOptions {
    /// Address of the admin port: health over gRPC and metrics over HTTP, in plaintext without authentication, e.g.
    /// 127.0.0.1:9090
    #[arg(long, env = "TROUPE_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub admin_listen: Option<String>,
}

/// Why the admin port did not start or stopped.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The listener is unusable.
    #[error("the admin port has no address: {0}")]
    Listener(io::Error),
    /// The descriptors are malformed: a defect of the build.
    #[error("reflection cannot be served: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the admin port has failed: {0}")]
    Transport(#[from] transport::Error),
    /// The server ended without a shutdown request.
    #[error("the admin port stopped without a shutdown request")]
    Ended,
    /// The server task panicked or was aborted: a defect.
    #[error("the admin port panicked or was aborted: {0}")]
    Defect(#[from] JoinError),
}

/// The admin port of a process. Each service reports its health to the port; see
/// [`crate::serve::Listener::report_health_to`].
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    reporter: HealthReporter,
    /// Every health name that the port announces, except [`LIVENESS`].
    names: Vec<String>,
    ended: CancellationToken,
    /// The single server task.
    serving: JoinSet<Result<(), AdminError>>,
}

impl Admin {
    /// Binds the port and starts to serve. Returns `None` if the port is not enabled.
    ///
    /// Call this before slow startup work. [`LIVENESS`] is serving at once; `services` and the overall health are
    /// NOT_SERVING.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn start(
        options: &AdminOptions,
        telemetry: &Telemetry,
        services: &[&str],
    ) -> Result<Option<Self>, AdminError> {
        let Some(address) = &options.admin_listen else {
            return Ok(None);
        };
        let listener = bind(address).await?;
        let mut admin = Self {
            address: listener.local_addr().map_err(AdminError::Listener)?,
            reporter: HealthReporter::new(),
            names: services.iter().chain(&[""]).map(|name| (*name).to_owned()).collect(),
            ended: CancellationToken::new(),
            serving: JoinSet::new(),
        };
        admin.announce(services, false).await;
        admin
            .reporter
            .set_service_status(LIVENESS, ServingStatus::Serving)
            .await;
        let port = Port {
            listener,
            address: admin.address,
            reporter: admin.reporter.clone(),
            metrics: telemetry.registry(),
        };
        admin.serving.spawn(port.serve(admin.ended.clone()));
        Ok(Some(admin))
    }

    /// Returns the address that the port listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the health reporter of the port.
    #[must_use]
    pub fn reporter(&self) -> HealthReporter {
        self.reporter.clone()
    }

    /// Sets the health of these services and the overall health, for programs that are not servers.
    pub async fn announce(&self, services: &[&str], is_serving: bool) {
        let status = if is_serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for name in services.iter().chain(&[""]) {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Waits until the server ends unexpectedly, and returns the reason.
    pub async fn broken_off(&mut self) -> AdminError {
        match self.serving.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Ok(Ok(()))) | None => AdminError::Ended,
            Some(Err(defect)) => defect.into(),
        }
    }

    /// Stops accepting connections, waits at most 500 ms for responses in progress, then closes the remaining
    /// connections. Call it last, so that probes see the services drain.
    pub async fn end(mut self) {
        self.ended.cancel();
        // The services have already reported NOT_SERVING to the health watchers. Removing the names ends the watchers'
        // streams, which do not end otherwise.
        for name in self.names.iter().map(String::as_str).chain([LIVENESS]) {
            self.reporter.clear_service_status(name).await;
        }
        if let Some(Err(defect)) = self.serving.join_next().await {
            tracing::error!(%defect, "admin port panicked");
        }
    }
}

/// State of the server task.
struct Port {
    listener: TcpListener,
    address: SocketAddr,
    reporter: HealthReporter,
    metrics: Registry,
}

impl Port {
    async fn serve(self, ended: CancellationToken) -> Result<(), AdminError> {
        let address = self.address;
        tracing::info!(%address, "serving health and metrics");
        let served = self.serve_until(ended).await;
        if let Err(error) = &served {
            tracing::error!(%address, %error, "health and metrics are no longer served");
        }
        served
    }

    async fn serve_until(self, ended: CancellationToken) -> Result<(), AdminError> {
        let Self {
            listener,
            reporter,
            metrics,
            address: _,
        } = self;
        let health = HealthServer::new(HealthService::from_health_reporter(reporter));
        // Lets grpcurl use the health service as probes do.
        let described = reflection(&[], tonic_health::pb::FILE_DESCRIPTOR_SET);
        let router = Routes::new(health)
            .add_service(described.build_v1()?)
            .into_axum_router()
            .route("/metrics", get(move || ready(text(&metrics))));
        let cut = CancellationToken::new();
        let rules = Rules {
            bounds: Bounds {
                total: MAX_CONNECTIONS,
                per_address: MAX_CONNECTIONS,
            },
            greeted_within: HEAD_WITHIN,
            known_within: None,
        };
        let incoming = accept(Listener::from(listener), rules, cut.clone());
        let mut server = Box::pin(
            Server::builder()
                .accept_http1(true)
                .max_concurrent_streams(MAX_STREAMS)
                .http2_keepalive_interval(Some(KEEPALIVE))
                .add_routes(Routes::from(router))
                .serve_with_incoming_shutdown(incoming, ended.clone().cancelled_owned()),
        );
        let served = tokio::select! {
            served = &mut server => served,
            () = ended.cancelled() => timeout(STOP_TIMEOUT, &mut server).await.unwrap_or(Ok(())),
        };
        // Closes the remaining connections. Each runs in its own task, and some peers never disconnect.
        cut.cancel();
        Ok(served?)
    }
}

fn text(registry: &Registry) -> Response {
    match metrics::text(registry) {
        Ok(text) => ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot encode metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
