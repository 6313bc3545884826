//! Binds listening addresses and rejects unauthenticated addresses outside loopback.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use tokio::net::TcpListener;
use troupe_client::host::is_loopback;

/// Why a service cannot listen. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process uses the address.
    #[error(
        "cannot listen on {addr}: the address is in use; stop the process that uses it or choose another port (0 selects \
         a free one)"
    )]
    InUse {
        /// The address as given.
        addr: String,
    },
    /// The address is not `host:port`, does not belong to this machine, or needs privileges.
    #[error("cannot listen on {addr}: {cause}; expected host:port of this machine, like 127.0.0.1:50052")]
    Failed {
        /// The address as given.
        addr: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The address is outside loopback, and authentication is not configured.
    #[error(
        "refusing to listen on {addr} without authentication: configure a token, listen on 127.0.0.1, or set --insecure"
    )]
    Open {
        /// The address.
        addr: SocketAddr,
    },
}

/// Binds `host:port`. Port 0 selects a free port; the listener's address contains it.
///
/// # Errors
///
/// If the address cannot be bound. The message is one sentence that names the address and says what to do.
pub async fn bind(addr: &str) -> Result<TcpListener, BindError> {
    TcpListener::bind(addr).await.map_err(|cause| {
        let addr = addr.to_owned();
        match cause.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { addr },
            _ => BindError::Failed { addr, cause },
        }
    })
}

/// Rejects an address outside loopback without authentication unless `--insecure` is set.
///
/// Call this function before serving. Pass the address of the bound listener, in which a host name is already resolved.
///
/// # Errors
///
/// [`BindError::Open`] if the address is rejected.
pub fn refuse_open_bind(addr: SocketAddr, authenticated: bool, insecure: bool) -> Result<(), BindError> {
    if authenticated || insecure || is_loopback(addr.ip()) {
        Ok(())
    } else {
        Err(BindError::Open { addr })
    }
}

/// Returns the URL that reaches a plaintext listener of this address from this machine.
#[must_use]
pub fn url_of(listening: SocketAddr) -> String {
    format!("http://{}", reachable(listening))
}

/// Returns the address that reaches a listener from this machine: loopback for an unspecified address.
pub(crate) fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_bind_needs_loopback_or_insecure() {
        for (addr, authenticated, insecure, starts) in [
            ("127.0.0.1:1", false, false, true),
            ("127.9.9.9:1", false, false, true),
            ("[::1]:1", false, false, true),
            ("[::ffff:127.0.0.1]:1", false, false, true),
            ("0.0.0.0:1", false, false, false),
            ("[::]:1", false, false, false),
            ("10.0.0.1:1", false, false, false),
            ("10.0.0.1:1", true, false, true),
            ("10.0.0.1:1", false, true, true),
        ] {
            let answer = refuse_open_bind(addr.parse().unwrap(), authenticated, insecure);
            assert_eq!(answer.is_ok(), starts, "{addr} {authenticated} {insecure}");
        }
    }

    #[tokio::test]
    async fn address_in_use_is_named_in_error() {
        let first = bind("127.0.0.1:0").await.unwrap();
        let taken = first.local_addr().unwrap().to_string();
        let error = bind(&taken).await.unwrap_err();
        assert!(matches!(&error, BindError::InUse { addr } if *addr == taken), "{error}");
        assert!(error.to_string().contains(&taken));
    }

    #[tokio::test]
    async fn invalid_address_is_named_in_error() {
        let error = bind("nonsense").await.unwrap_err();
        assert!(error.to_string().contains("nonsense"), "{error}");
    }
}
