//! The admin port: plaintext, for those who look after the process. Health over gRPC, for probes that speak no TLS, and
//! `/metrics` over HTTP. Nothing here says or changes anything about sessions, and nobody has to prove who they are; so it
//! is not for the outside.

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

/// How many connections there are at once, and calls on each: of probes and of a few who read metrics.
const MAX_CONNECTIONS: usize = 64;
const MAX_STREAMS: u32 = 16;
/// How long the first request of a connection may take to come: as few connections are soon all taken by peers that do not
/// go on.
pub(crate) const HEAD_WITHIN: Duration = Duration::from_secs(3);
/// How often a silent connection is pinged.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long what is being answered may take at the end. A connection whose first request never came takes all of it.
const FAREWELL: Duration = Duration::from_millis(500);

/// A name in health that says only that the process lives.
pub const LIVENESS: &str = "liveness";

/// A name in health for what is no server: whether the process can do at present what it is there for.
pub const READINESS: &str = "readiness";

/// Where the admin port is, if there is one.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AdminOptions {
    /// Serve health over gRPC and metrics over HTTP here, in plaintext and to everybody, e.g. 127.0.0.1:9090
    #[arg(long, env = "TROUPE_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub admin_listen: Option<String>,
}

/// Why there is no admin port, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Its address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The listener is of no use.
    #[error("the admin port has no address: {0}")]
    Listener(io::Error),
    /// The descriptors are malformed: a defect of the build.
    #[error("reflection cannot be served: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the admin port has failed: {0}")]
    Transport(#[from] transport::Error),
    /// Nothing is served any more, and nobody asked for that.
    #[error("the admin port is not served any more")]
    Ended,
    /// What serves it broke off: a defect.
    #[error("the admin port broke off: {0}")]
    Defect(#[from] JoinError),
}

/// The admin port of a process. Each of its services tells it how it is, by [`crate::serve::Listener::tells`].
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    reporter: HealthReporter,
    /// All that it says something of, beside [`LIVENESS`].
    names: Vec<String>,
    ended: CancellationToken,
    /// The one task that serves.
    serving: JoinSet<Result<(), AdminError>>,
}

impl Admin {
    /// Binds the port and serves from now on, so before anything that takes long: the process lives, and of `services` and
    /// the whole is said that they do not serve yet. `None`: no such port is wanted.
    ///
    /// # Errors
    ///
    /// If the address cannot be had.
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

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn reporter(&self) -> HealthReporter {
        self.reporter.clone()
    }

    /// Says of these services, and of the whole, whether they serve: for what is no server and is asked for all the same.
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

    /// Waits until it is not served any more, which should not happen by itself, and answers why.
    pub async fn broken_off(&mut self) -> AdminError {
        match self.serving.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Ok(Ok(()))) | None => AdminError::Ended,
            Some(Err(defect)) => defect.into(),
        }
    }

    /// Ends it, and not much later: who still listens then is cut off. It comes last, so that services are seen to drain.
    pub async fn end(mut self) {
        self.ended.cancel();
        // Who watches health has been told; forgetting the names ends the streams, which end in no other way.
        for name in self.names.iter().map(String::as_str).chain([LIVENESS]) {
            self.reporter.clear_service_status(name).await;
        }
        if let Some(Err(defect)) = self.serving.join_next().await {
            tracing::error!(%defect, "the admin port broke off");
        }
    }
}

/// What serves.
struct Port {
    listener: TcpListener,
    address: SocketAddr,
    reporter: HealthReporter,
    metrics: Registry,
}

impl Port {
    async fn serve(self, ended: CancellationToken) -> Result<(), AdminError> {
        let address = self.address;
        tracing::info!(%address, "health and metrics are served");
        let served = self.serve_until(ended).await;
        if let Err(error) = &served {
            tracing::error!(%address, %error, "health and metrics are not served any more");
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
        // So that grpcurl can ask as probes do.
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
            () = ended.cancelled() => timeout(FAREWELL, &mut server).await.unwrap_or(Ok(())),
        };
        // Connections have tasks of their own, and some peers never leave by themselves.
        cut.cancel();
        Ok(served?)
    }
}

fn text(registry: &Registry) -> Response {
    match metrics::text(registry) {
        Ok(text) => ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
