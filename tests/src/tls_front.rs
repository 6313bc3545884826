//! TLS in front of a server without TLS.

use std::{net::SocketAddr, path::Path, sync::Arc};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// Terminates TLS with these ALPN protocols, forwards to `behind`, and returns the address.
pub async fn tls_in_front_of(
    behind: SocketAddr,
    (certificate, key): (impl AsRef<Path>, impl AsRef<Path>),
    protocols: &[&str],
) -> SocketAddr {
    let certificates = CertificateDer::pem_file_iter(certificate)
        .unwrap()
        .collect::<Result<_, _>>();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates.unwrap(), PrivateKeyDer::from_pem_file(key).unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (outside, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(outside).await?;
                let mut inside = TcpStream::connect(behind).await?;
                copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    address
}
