//! TLS of clients: rustls with ring, HTTP/2 for gRPC, certificates in PEM files that can be replaced at any time.
//!
//! No file is watched. A client reads its files when it connects, so a renewed certificate is used for the next
//! connection.

mod connect;

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

pub use self::connect::{ClientFiles, channel, channel_to, channels, connect, http_connection};

/// The ALPN protocol of gRPC.
pub const ALPN: &[u8] = b"h2";

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
    #[error("unsupported TLS protocol versions: {0}")]
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

/// Returns the cryptography of all connections.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
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

/// Reads the certificates in a PEM file, at least one.
///
/// # Errors
///
/// The file cannot be read or has other content.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
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

/// Reads the private key in a PEM file.
///
/// # Errors
///
/// The file cannot be read or has other content.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|cause| TlsError::Malformed {
        path: path.to_owned(),
        expected: "private key",
        cause,
    })
}

/// Reads the authorities in a PEM file.
///
/// # Errors
///
/// The file cannot be read or has other content.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|cause| TlsError::Unusable {
            path: path.to_owned(),
            cause,
        })?;
    }
    Ok(store)
}
