//! Hosts and addresses of this machine.

use std::net::IpAddr;

/// Returns the host of a URL as a name or an address, without the brackets of an IPv6 address.
#[must_use]
pub fn bare_host(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns whether the host of a URL is this machine. Host names are not resolved.
#[must_use]
pub fn is_this_machine(host: &str) -> bool {
    let host = bare_host(host);
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
}

/// Returns whether an address is a loopback address; an IPv4 address in IPv6 form counts as IPv4.
#[must_use]
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_loopback_only() {
        for host in [
            "127.0.0.1",
            "localhost",
            "::1",
            "[::1]",
            "127.1.2.3",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["10.0.0.1", "localhost.example.com", "0.0.0.0", ""] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
