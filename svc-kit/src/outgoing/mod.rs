//! Requests to receivers whose URLs come from clients: webhooks and push notifications.

mod backoff;
mod post;
mod target;

use std::sync::Arc;

use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, RootCertStore, crypto::ring},
};

pub use self::{
    backoff::Backoff,
    post::{Poster, Undelivered},
    target::{BadUrl, NoAddress, Target},
};

/// Returns a connector that trusts the public certificate authorities.
///
/// # Errors
///
/// TLS cannot be set up.
pub fn public_tls() -> Result<TlsConnector, rustls::Error> {
    let roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
