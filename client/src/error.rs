//! Why a service cannot be called.

use std::{io, path::PathBuf};

use tonic::transport::Uri;

use crate::service::Service;

/// Why a service cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address is neither a URL nor `host:port`.
    #[error("invalid address of the {service}: {text:?}")]
    Address {
        /// The service.
        service: Service,
        /// The address.
        text: String,
    },
    /// There are TLS files, but the URL of another machine begins with `http`.
    #[error("the {service} at {url} is not reached over TLS")]
    Plaintext {
        /// The service.
        service: Service,
        /// Its URL.
        url: String,
    },
    /// A client certificate has no key, or a key has no certificate.
    #[error("TROUPE_CLIENT_CERT and TROUPE_CLIENT_KEY belong together; set both or none")]
    HalfIdentity,
    /// The token is not visible ASCII.
    #[error("the token has characters that cannot be sent; use visible ASCII characters only")]
    TokenCharacters,
    /// A named token file is missing or empty.
    #[error("there is no token in {}", .path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
    },
    /// A token file cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// There is no context with this name.
    #[error("unknown context \"{name}\"")]
    UnknownContext {
        /// The name.
        name: String,
        /// The names of the contexts.
        known: Vec<String>,
    },
    /// The file of the contexts cannot be read.
    #[error("cannot read \"{}\": {cause}", .path.display())]
    UnreadableContexts {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file of the contexts cannot be written.
    #[error("cannot write \"{}\": {cause}", .path.display())]
    UnwritableContexts {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// There is no directory for the file of the contexts.
    #[error("cannot find the configuration directory; set HOME or XDG_CONFIG_HOME")]
    NoConfigDir,
    /// The file of the contexts is malformed.
    #[error("invalid contexts in \"{}\": {cause}", .path.display())]
    InvalidContexts {
        /// The file.
        path: PathBuf,
        /// The defect.
        cause: String,
    },
    /// The service does not respond, or its certificate is not trusted.
    #[error("cannot reach the {service} at {uri}: {cause}")]
    Unreachable {
        /// The service.
        service: Service,
        /// Its URL.
        uri: Uri,
        /// The innermost error.
        cause: String,
    },
}
