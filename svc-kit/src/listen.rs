//! Binding an address, and refusing to be open to the network by accident.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use tokio::net::TcpListener;

/// Why a service does not listen. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has the address.
    #[error(
        "cannot listen on {addr}: the address is in use; stop what uses it or choose another port (0 picks a free one)"
    )]
    InUse {
        /// The address as given.
        addr: String,
    },
    /// The address is not `host:port`, is not this machine's, or needs rights.
    #[error("cannot listen on {addr}: {cause}; expected host:port of this machine, like 127.0.0.1:50052")]
    Failed {
        /// The address as given.
        addr: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// Off loopback without authentication.
    #[error(
        "refusing to listen on {addr} without authentication: configure a token, listen on 127.0.0.1, or spell out --insecure"
    )]
    Open {
        /// The address.
        addr: SocketAddr,
    },
}

/// Binds `host:port`. Port 0 picks a free one; ask the listener which.
///
/// # Errors
///
/// One sentence that names the address and what to do.
pub async fn bind(addr: &str) -> Result<TcpListener, BindError> {
    TcpListener::bind(addr).await.map_err(|cause| {
        let addr = addr.to_owned();
        match cause.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { addr },
            _ => BindError::Failed { addr, cause },
        }
    })
}

/// Off loopback, without authentication, nothing starts unless `--insecure` is spelled out.
///
/// Ask it with the bound listener's address before serving, so that a name was already resolved.
///
/// # Errors
///
/// [`BindError::Open`] in that case.
pub fn refuse_open_bind(addr: SocketAddr, authenticated: bool, insecure: bool) -> Result<(), BindError> {
    if authenticated || insecure || is_loopback(addr.ip()) {
        Ok(())
    } else {
        Err(BindError::Open { addr })
    }
}

/// The URL at which a listener of this address is reached from this machine, if it is none over TLS.
#[must_use]
pub fn url_of(listening: SocketAddr) -> String {
    format!("http://{}", reachable(listening))
}

/// The address at which a listener of this one is reached from this machine: "any" is reached by loopback.
pub(crate) fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

/// The host of a URL as a name or an address: an IPv6 address stands in brackets there.
#[must_use]
pub fn bare_host(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether the host of a URL is this machine, as far as its name tells.
#[must_use]
pub fn is_this_machine(host: &str) -> bool {
    let host = bare_host(host);
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
}

/// Whether an address is this machine's own; an IPv4 address in IPv6 form counts as IPv4.
#[must_use]
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_or_a_decision_may_be_open() {
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
    async fn an_address_in_use_is_named() {
        let first = bind("127.0.0.1:0").await.unwrap();
        let taken = first.local_addr().unwrap().to_string();
        let error = bind(&taken).await.unwrap_err();
        assert!(matches!(&error, BindError::InUse { addr } if *addr == taken), "{error}");
        assert!(error.to_string().contains(&taken));
    }

    #[tokio::test]
    async fn nonsense_is_refused_by_name() {
        let error = bind("nonsense").await.unwrap_err();
        assert!(error.to_string().contains("nonsense"), "{error}");
    }
}
