//! TLS for servers and clients: rustls with ring, HTTP/2 for gRPC, certificates in PEM files that can be replaced at
//! any time.
//!
//! No file is watched. A server checks its files for each new connection, and a client reads its files when it
//! connects. A renewed certificate is used for the next connection; existing connections stay open.

mod client;
mod expiry;
mod options;
mod server;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::rustls::{
    self, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    server::VerifierBuilderError,
};

pub(crate) use self::server::peer_certificate;
pub use self::{
    client::{ClientFiles, channel, channel_to, channels, connect, http_connection},
    options::TlsOptions,
    server::{ServerFiles, ServerTls},
};

/// The ALPN protocol of gRPC.
const ALPN: &[u8] = b"h2";

/// Maximum size of a file in bytes. A bundle of authorities is the largest.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The reason why a TLS file cannot be used. Each text names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file is not PEM or has the wrong kind of content.
    #[error("{path} has no {expected} in PEM: {cause}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The expected kind of content.
        expected: &'static str,
        /// The defect.
        cause: pem::Error,
    },
    /// The crypto provider does not support the protocol versions. This is a defect of the build.
    #[error("TLS cannot be spoken: {0}")]
    Unsupported(rustls::Error),
    /// The certificate and the key do not match or are not supported.
    #[error("{path} cannot be used: {cause}")]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// The defect.
        cause: rustls::Error,
    },
    /// The authorities cannot verify certificates.
    #[error("{path} has no authority that can be used: {cause}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The defect.
        cause: VerifierBuilderError,
    },
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |cause| TlsError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        return Err(unreadable(io::Error::other(format!(
            "it has {size} bytes; at most {MAX_FILE_BYTES} are read"
        ))));
    }
    fs::read(path).map_err(unreadable)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let malformed = |cause| TlsError::Malformed {
        path: path.to_owned(),
        expected: "certificate",
        cause,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(malformed)?;
    if found.is_empty() {
        return Err(malformed(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|cause| TlsError::Malformed {
        path: path.to_owned(),
        expected: "private key",
        cause,
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|cause| TlsError::Unusable {
            path: path.to_owned(),
            cause,
        })?;
    }
    Ok(store)
}
