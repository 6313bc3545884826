//! The service: its port and its background work.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use ::http::header::AUTHORIZATION;
use axum::{
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
};
use svc_kit::{
    listen::url_of,
    serve::{Listener, ServeLimits},
    shutdown::Shutdown,
    web::{self, WebError},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::service::Routes;

use crate::{
    card::Cards,
    config::Config,
    gateway::{Gateway, Parts},
    grpc::Grpc,
    http, idle,
    metrics::Binding,
    pb::a2a_service_server::A2aServiceServer,
    push::PushError,
    upstream::Upstream,
};

/// Maximum size of a gRPC request in bytes.
const MAX_REQUEST_BYTES: usize = 2 * 1024 * 1024;

/// Number of connections to the supervisor for streams, in addition to the one for calls.
const STREAM_CONNECTIONS: usize = 8;

/// The options of the service.
#[derive(Debug)]
pub struct Options {
    /// The exported roles and the callers.
    pub config: Config,
    /// The supervisor.
    pub supervisor: Upstream,
    /// The registry, for the descriptions of roles.
    pub registry: Upstream,
    /// The directory of the push notification configurations. It belongs to this process alone.
    pub push_directory: PathBuf,
    /// The address of the listener, for the agent cards.
    pub address: SocketAddr,
    /// Whether the listener uses TLS.
    pub is_https: bool,
}

/// Why the service does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL of the supervisor or the registry is not valid.
    #[error("invalid URL of the supervisor or the registry: {0}")]
    Url(#[from] tonic::transport::Error),
    /// Push notifications cannot start.
    #[error(transparent)]
    Push(#[from] PushError),
}

/// The service before it serves.
pub struct Service {
    gateway: Arc<Gateway>,
    draining: CancellationToken,
}

impl Service {
    /// Opens the service. Must be called within a runtime.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let draining = CancellationToken::new();
        let own_url = match options.is_https {
            true => url_of(options.address).replacen("http://", "https://", 1),
            false => url_of(options.address),
        };
        let url = options.config.public_url.clone().unwrap_or(own_url);
        let streams = (0..STREAM_CONNECTIONS).map(|_| options.supervisor.supervisor());
        let gateway = Gateway::new(Parts {
            cards: Cards::new(options.registry.registry()?, url),
            config: options.config,
            streams: streams.collect::<Result<_, _>>()?,
            supervisor: options.supervisor.supervisor()?,
            push_directory: options.push_directory,
            draining: draining.clone(),
        })?;
        Ok(Self { gateway, draining })
    }

    /// Serves until `shutdown` is triggered.
    ///
    /// # Errors
    ///
    /// The listener or the transport fails.
    pub async fn serve(
        self,
        listener: impl Into<Listener>,
        limits: ServeLimits,
        shutdown: Shutdown,
    ) -> Result<(), WebError> {
        let Self { gateway, draining } = self;
        let _idle = AbortOnDropHandle::new(tokio::spawn(idle::close_idle(Arc::clone(&gateway))));
        let checked = Arc::clone(&gateway);
        let _check = AbortOnDropHandle::new(tokio::spawn(async move { checked.check_agents().await }));
        let _clean = AbortOnDropHandle::new(tokio::spawn(idle::clean_push(Arc::clone(&gateway))));
        let trigger = shutdown.clone();
        let _drain = AbortOnDropHandle::new(tokio::spawn(async move {
            trigger.triggered().await;
            draining.cancel();
        }));
        let grpc = A2aServiceServer::new(Grpc(Arc::clone(&gateway)))
            .max_decoding_message_size(MAX_REQUEST_BYTES)
            .max_encoding_message_size(usize::MAX);
        let guarded = Arc::clone(&gateway);
        let router = Routes::new(grpc)
            .into_axum_router()
            .layer(from_fn(move |request, next| guard(Arc::clone(&guarded), request, next)))
            .fallback(move |request| http::handle(Arc::clone(&gateway), request));
        web::serve(listener, router, limits, shutdown).await
    }
}

/// Authenticates a gRPC call before its message is read.
async fn guard(gateway: Arc<Gateway>, mut request: Request, next: Next) -> Response {
    let authorization = request
        .headers()
        .get(AUTHORIZATION)
        .map(|value| value.to_str().unwrap_or_default());
    match gateway.enter(authorization, request.extensions()) {
        Ok(entry) => {
            request.extensions_mut().insert(entry);
            next.run(request).await
        }
        Err(error) => {
            gateway.metrics.called(Binding::Grpc, Some(&error));
            error.to_status().into_http()
        }
    }
}
