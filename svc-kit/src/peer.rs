//! Who is at the other end of a connection, as far as the connection says it: an address, and over TLS the principal that
//! a verified certificate names.

use std::{net::SocketAddr, sync::Arc};

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::{
    identity::{MAX_NAME_BYTES, OperatorRole, Principal},
    usage::Usage,
};

/// Where a certificate's URI speaks of Troupe, below the trust domain: `spiffe://DOMAIN/troupe/KIND/NAME`.
const OURS: &str = "troupe";

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address.
    pub address: Option<SocketAddr>,
    /// Whom its certificate names. Verified; None: it has shown none that names anybody.
    pub principal: Option<Arc<Principal>>,
    /// What its connection is used for.
    pub usage: Usage,
}

/// The principal that a certificate names, which was verified before: by a URI among its alternative names,
/// `spiffe://DOMAIN/troupe/admin/NAME`, or `viewer`, `runner`, `service`. The first such URI counts.
#[must_use]
pub fn named_by(certificate: &CertificateDer<'_>) -> Option<Principal> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_uri_names().find_map(of_uri)
}

fn of_uri(uri: &str) -> Option<Principal> {
    let (domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
    let mut parts = path.split('/');
    let (OURS, kind, name, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    if domain.is_empty() || !(1..=MAX_NAME_BYTES).contains(&name.len()) || name.chars().any(char::is_control) {
        return None;
    }
    let name = name.to_owned();
    match kind {
        "admin" => Some(Principal::Operator {
            name,
            role: OperatorRole::Admin,
        }),
        "viewer" => Some(Principal::Operator {
            name,
            role: OperatorRole::Viewer,
        }),
        "runner" => Some(Principal::Runner { name }),
        "service" => Some(Principal::Service { name }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_principal_of_ours_or_nobody() {
        for (uri, expected) in [
            ("spiffe://example.org/troupe/admin/ann", Some("operator:ann")),
            ("spiffe://example.org/troupe/viewer/vic", Some("operator:vic")),
            ("spiffe://example.org/troupe/runner/box", Some("runner:box")),
            (
                "spiffe://example.org/troupe/service/supervisor",
                Some("service:supervisor"),
            ),
            ("spiffe://example.org/troupe/admin", None),
            ("spiffe://example.org/troupe/admin/", None),
            ("spiffe://example.org/troupe/admin/ann/more", None),
            ("spiffe://example.org/troupe/thread/t", None),
            ("spiffe://example.org/other/admin/ann", None),
            ("spiffe://troupe/admin/ann", None),
            ("spiffe:///troupe/admin/ann", None),
            ("spiffe://d/troupe/admin/a\nb", None),
            ("https://example.org/troupe/admin/ann", None),
            ("", None),
        ] {
            let found = of_uri(uri).map(|principal| principal.scope_key());
            assert_eq!(found.as_deref(), expected, "{uri}");
        }
        let viewer = of_uri("spiffe://d/troupe/viewer/vic");
        assert!(viewer.is_some_and(|principal| !principal.is_admin()));
    }

    #[test]
    fn what_is_no_certificate_names_nobody() {
        assert_eq!(named_by(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
