//! Connections: peers that violate HTTP/2, TLS, certificates, tokens and identity providers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod certificate_rotation;
mod hostile_connections;
mod identity;
mod tls;
mod token_rotation;
