//! Targets of requests whose URL comes from a client. This service connects to the URL, so the URL must not lead to
//! addresses that only this service can reach. Private, loopback and link-local addresses are rejected after name
//! resolution, unless the service was started with the option that permits them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use http::Uri;
use tokio::net::lookup_host;

use troupe_client::host::bare_host;

/// Maximum number of addresses to try per name.
const MAX_ADDRESSES: usize = 8;

/// The target of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    is_https: bool,
    /// Host and port as the URL has them.
    authority: String,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    path: String,
}

/// Why a text is not a valid webhook URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// The text is not a URL.
    #[error("it is not a URL; expected a URL such as https://example.com/hook, with a host in ASCII")]
    Malformed,
    /// The scheme is missing or unsupported.
    #[error("its scheme is neither http nor https")]
    Scheme,
    /// The URL contains a user name or a password.
    #[error("it contains credentials; remove them, deliveries are signed")]
    Credentials,
    /// The port is invalid.
    #[error("its port is not a number from 1 to 65535")]
    Port,
}

/// Why a target has no address to send to.
#[derive(Debug, thiserror::Error)]
pub enum NoAddress {
    /// The target's name could not be resolved.
    #[error("the name cannot be resolved: {0}")]
    Unresolved(#[from] io::Error),
    /// All addresses are forbidden.
    #[error("it has private, loopback or link-local addresses only; --webhook-allow-private allows them")]
    Private,
}

impl Target {
    /// Parses the URL of a webhook.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let uri: Uri = url.parse().map_err(|_| BadUrl::Malformed)?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(BadUrl::Scheme),
        };
        let authority = uri.authority().ok_or(BadUrl::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(BadUrl::Credentials);
        }
        let host = authority.host();
        if host.is_empty() {
            return Err(BadUrl::Malformed);
        }
        let port = match authority.port_u16() {
            Some(0) => return Err(BadUrl::Port),
            Some(port) => port,
            None if authority.as_str() != host => return Err(BadUrl::Port),
            None if is_https => 443,
            None => 80,
        };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        Ok(Self {
            is_https,
            authority: authority.as_str().to_owned(),
            host: bare_host(host).to_owned(),
            port,
            path: format!("{}{query}", uri.path()),
        })
    }

    /// Returns whether the host of the URL is `localhost` or a private address. Other host names are checked after they
    /// are resolved.
    #[must_use]
    pub fn is_plainly_private(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|address| !is_public(address))
    }

    /// Returns whether the URL is an `https` URL.
    #[must_use]
    pub const fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns host and port, as the header `host` has them.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the host without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns path and query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Resolves the current addresses. The result is never empty.
    pub(crate) async fn addresses(&self, allow_private: bool) -> Result<Vec<SocketAddr>, NoAddress> {
        let found = lookup_host((self.host.as_str(), self.port)).await?;
        let allowed: Vec<SocketAddr> = found
            .filter(|address| allow_private || is_public(address.ip()))
            .take(MAX_ADDRESSES)
            .collect();
        if allowed.is_empty() {
            return Err(NoAddress::Private);
        }
        Ok(allowed)
    }
}

/// Returns whether an address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.segments() {
            // An IPv4 address inside an IPv6 address (mapped, translated, NAT64, 6to4) is checked as an IPv4 address.
            [0, 0, 0, 0, 0, 0xffff, high, low]
            | [0, 0, 0, 0, 0xffff, 0, high, low]
            | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
            | [0x2002, high, low, _, _, _, _, _] => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                is_public_v4(Ipv4Addr::new(a, b, c, d))
            }
            // Unspecified, loopback and deprecated IPv4-compatible addresses, local NAT64, and site-local addresses,
            // the predecessor of unique local ones.
            [0, 0, 0, 0, 0, 0, _, _] | [0x64, 0xff9b, 1, _, _, _, _, _] | [0xfec0..=0xfeff, ..] => false,
            _ => !(address.is_multicast() || address.is_unique_local() || address.is_unicast_link_local()),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    // The special networks: this network, carriers' shared space, protocol assignments, benchmarks, reserved.
    let special = matches!(
        address.octets(),
        [0, _, _, _] | [100, 64..=127, _, _] | [192, 0, 0, _] | [198, 18 | 19, _, _] | [240..=255, _, _, _]
    );
    !(special || address.is_loopback() || address.is_private() || address.is_link_local() || address.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_or_rejected() {
        for (url, authority, host, port, path) in [
            ("http://example.com", "example.com", "example.com", 80, "/"),
            (
                "https://example.com/hook?a=b",
                "example.com",
                "example.com",
                443,
                "/hook?a=b",
            ),
            (
                "https://example.com:8443?a",
                "example.com:8443",
                "example.com",
                8443,
                "/?a",
            ),
            ("http://[2001:db8::1]:81/x", "[2001:db8::1]:81", "2001:db8::1", 81, "/x"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(
                (target.authority(), target.host(), target.port, target.path()),
                (authority, host, port, path),
                "{url}"
            );
        }
        for (url, why) in [
            ("", BadUrl::Malformed),
            ("no url", BadUrl::Malformed),
            ("/hook", BadUrl::Scheme),
            ("ftp://example.com/", BadUrl::Scheme),
            ("https://ada:secret@example.com/", BadUrl::Credentials),
            ("https://example.com:0/", BadUrl::Port),
            ("https://example.com:99999/", BadUrl::Port),
        ] {
            assert_eq!(Target::parse(url), Err(why), "{url}");
        }
    }

    #[test]
    fn only_public_addresses_are_public() {
        for address in [
            "93.184.216.34",
            "100.128.0.1",
            "172.32.0.1",
            "2606:2800:220:1::1",
            "64:ff9b::5db8:d822",
            "::ffff:0:5db8:d822",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "fe80::1",
            "fec0::1",
            "fd00::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn private_url_is_recognised() {
        for url in [
            "http://localhost/",
            "http://LOCALHOST:1/",
            "https://10.1.2.3/",
            "http://[::1]/",
        ] {
            assert!(Target::parse(url).unwrap().is_plainly_private(), "{url}");
        }
        for url in ["https://example.com/", "https://93.184.216.34/"] {
            assert!(!Target::parse(url).unwrap().is_plainly_private(), "{url}");
        }
    }

    #[tokio::test]
    async fn host_name_is_checked_by_its_addresses() {
        // An address in a spelling that only the resolver understands, and a name.
        for url in ["http://localhost:1/", "http://127.1:1/"] {
            let target = Target::parse(url).unwrap();
            assert!(
                matches!(target.addresses(false).await, Err(NoAddress::Private)),
                "{url} is refused"
            );
            let allowed = target.addresses(true).await.unwrap();
            assert!(allowed.iter().all(|address| address.ip().is_loopback()), "{allowed:?}");
        }
    }
}
