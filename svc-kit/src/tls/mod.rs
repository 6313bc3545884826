//! TLS of both sides: rustls with ring, HTTP/2 for gRPC, certificates from PEM files that may be replaced at any time.
//!
//! Nothing is watched. A server looks at its files when a connection comes, a client reads its own when it connects: so
//! a certificate that was renewed counts from the next connection on, and connections that are there stay.

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

pub(crate) use self::server::shown;
pub use self::{
    client::{ClientFiles, channel, channels, connect, http_connection},
    options::TlsOptions,
    server::{ServerFiles, ServerTls},
};

/// The protocol of gRPC.
const ALPN: &[u8] = b"h2";

/// The largest file that is read, in bytes: of a bundle of authorities.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Why files are of no use. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// It is no PEM, or not of the right kind.
    #[error("{path} has no {expected} in PEM: {cause}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should have.
        expected: &'static str,
        /// What is wrong.
        cause: pem::Error,
    },
    /// The protocol versions are not supported by the cryptography: a defect of the build.
    #[error("TLS cannot be spoken: {0}")]
    Unsupported(rustls::Error),
    /// Certificate and key do not fit, or are not supported.
    #[error("{path} cannot be used: {cause}")]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        cause: rustls::Error,
    },
    /// The authorities cannot verify anybody.
    #[error("{path} has no authority that can be used: {cause}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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
