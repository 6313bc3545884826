//! TLS of servers: rustls with ring, HTTP/2 for gRPC, certificates in PEM files that can be replaced at any time.
//!
//! No file is watched. A server checks its files for each new connection. A renewed certificate is used for the next
//! connection; existing connections stay open.

mod expiry;
mod options;
mod server;

pub(crate) use self::server::peer_certificate;
pub use self::{
    options::TlsOptions,
    server::{ServerFiles, ServerTls},
};
