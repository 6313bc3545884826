//! The remote end of a connection: its address and, over TLS, the principal in its verified certificate.

use std::{net::SocketAddr, sync::Arc};

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::{
    identity::{MAX_NAME_BYTES, Principal, RunnerIds},
    usage::Usage,
};

/// The first path segment of a certificate's URI: `spiffe://DOMAIN/troupe/KIND/NAME`.
const OURS: &str = "troupe";
/// The scheme of the URI.
const SPIFFE: &str = "spiffe";
/// Maximum length of a trust domain in bytes.
const MAX_DOMAIN_BYTES: usize = 255;

/// The remote end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address.
    pub address: Option<SocketAddr>,
    /// The principal in its verified certificate. `None` if there is no certificate or it names no principal.
    pub principal: Option<Arc<Principal>>,
    /// The usage of the connection.
    pub usage: Usage,
}

/// Returns the principal of a verified certificate. The only SPIFFE URI among the alternative names identifies the
/// principal: `spiffe://DOMAIN/troupe/admin/NAME`, or `viewer`, `runner`, `service`, `caller`. A certificate with
/// several SPIFFE URIs has no principal.
#[must_use]
pub fn named_by(certificate: &CertificateDer<'_>) -> Option<Principal> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    of_uris(certificate.valid_uri_names())
}

fn of_uris<'a>(uris: impl Iterator<Item = &'a str>) -> Option<Principal> {
    let is_spiffe = |uri: &&str| {
        uri.split(':')
            .next()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case(SPIFFE))
    };
    let mut uris = uris.filter(is_spiffe);
    match (uris.next(), uris.next()) {
        (Some(uri), None) => of_uri(uri),
        _ => None,
    }
}

fn of_uri(uri: &str) -> Option<Principal> {
    let uri = uri.strip_prefix(SPIFFE)?.strip_prefix("://")?;
    let (domain, path) = uri.split_once('/')?;
    let mut parts = path.split('/');
    let (OURS, kind, name, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    if !is_domain(domain) || !is_segment(name) {
        return None;
    }
    Principal::named(kind, name.to_owned(), RunnerIds::Certificate(name.to_owned()))
}

/// Returns whether this is a SPIFFE trust domain.
fn is_domain(domain: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    (1..=MAX_DOMAIN_BYTES).contains(&domain.len()) && domain.chars().all(fits)
}

/// Returns whether this is a SPIFFE path segment that is short enough for a name.
fn is_segment(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(fits) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_names_at_most_one_principal() {
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
            ("spiffe://d/troupe/admin/x?y", None),
            ("spiffe://d/troupe/admin/x#y", None),
            ("spiffe://d/troupe/admin/x%20y", None),
            ("spiffe://d/troupe/admin/x y", None),
            ("spiffe://d/troupe/admin/l\u{43e}cal", None),
            ("spiffe://d/troupe/admin/..", None),
            ("spiffe://d:1/troupe/admin/ann", None),
            ("spiffe://u@d/troupe/admin/ann", None),
            ("spiffe://D/troupe/admin/ann", None),
            ("SPIFFE://d/troupe/admin/ann", None),
            ("https://example.org/troupe/admin/ann", None),
            ("", None),
        ] {
            let found = of_uri(uri).map(|principal| principal.scope_key());
            assert_eq!(found.as_deref(), expected, "{uri}");
        }
        let runner = of_uri("spiffe://d/troupe/runner/box");
        assert!(matches!(runner, Some(Principal::Runner { ids: RunnerIds::Certificate(name), .. }) if name == "box"));
        let viewer = of_uri("spiffe://d/troupe/viewer/vic");
        assert!(viewer.is_some_and(|principal| !principal.is_admin()));
    }

    #[test]
    fn second_spiffe_uri_invalidates_certificate() {
        let ann = "spiffe://d/troupe/admin/ann";
        for (uris, is_named) in [
            (&[ann][..], true),
            (&["https://example.org/ann", ann], true),
            (&[ann, "spiffe://d/troupe/viewer/vic"], false),
            (&[ann, ann], false),
            (&["spiffe://d/somebody/else", ann], false),
            (&["SPIFFE:nothing", ann], false),
            (&[], false),
        ] {
            assert_eq!(of_uris(uris.iter().copied()).is_some(), is_named, "{uris:?}");
        }
    }

    #[test]
    fn malformed_certificate_has_no_principal() {
        assert_eq!(named_by(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
