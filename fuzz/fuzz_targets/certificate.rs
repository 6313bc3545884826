//! Principals in certificates: arbitrary bytes instead of a certificate, and arbitrary URIs in a certificate.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rcgen::{CertificateParams, KeyPair, SanType};
use svc_kit::{identity::Principal, peer::named_by};

static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().expect("a key"));

/// A direct implementation of the rule.
fn expected(uri: &str) -> Option<(&str, &str)> {
    match uri.split('/').collect::<Vec<_>>()[..] {
        [
            "spiffe:",
            "",
            domain,
            "troupe",
            kind @ ("admin" | "viewer" | "runner" | "service" | "caller"),
            name,
        ] if !domain.is_empty() && (1..=128).contains(&name.len()) && !name.contains(char::is_control) => {
            Some((kind, name))
        }
        _ => None,
    }
}

fn kind_and_name(principal: &Principal) -> (&str, &str) {
    match principal {
        Principal::Operator { name, .. } if principal.is_admin() => ("admin", name),
        Principal::Operator { name, .. } => ("viewer", name),
        Principal::Runner { name, .. } => ("runner", name),
        Principal::Service { name } => ("service", name),
        Principal::Caller { name } => ("caller", name),
        Principal::Thread(_) => panic!("a thread comes with a token"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let _ = named_by(&bytes.into());

    let Ok(uri) = str::from_utf8(bytes) else { return };
    let Ok(name) = uri.try_into() else { return };
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(name)];
    let certificate = params.self_signed(&*KEY).expect("a certificate can be made of it");
    let principal = named_by(certificate.der());
    assert_eq!(principal.as_ref().map(kind_and_name), expected(uri), "{uri:?}");
});
