//! Serving of an open registry.

use svc_kit::{
    auth::{AuthLayer, Authenticator},
    serve::{self, Listener, ServeError, ServeLimits, Serving},
    shutdown::Shutdown,
};
use tonic::service::Routes;
use troupe_proto::registry::v1::agent_registry_service_server::SERVICE_NAME;

use crate::{AUTHORITY, Registry};

/// The full names of the gRPC services, as reported by the health service.
pub const SERVICES: &[&str] = &[SERVICE_NAME];

impl Registry {
    /// Serves until `shutdown`, with health and reflection.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    pub async fn serve(
        self,
        listener: impl Into<Listener>,
        authenticator: Authenticator,
        limits: ServeLimits,
        shutdown: Shutdown,
    ) -> Result<(), ServeError> {
        let routes = Routes::new(self.service_until(shutdown.draining()));
        let serving = Serving::new(routes, SERVICES.to_vec());
        let auth = AuthLayer::new(authenticator, AUTHORITY);
        serve::serve(listener, serving, auth, limits, shutdown).await
    }
}
