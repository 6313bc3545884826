//! Expiry of certificates.

use std::time::Duration;

use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// Returns the earliest expiry of these certificates in seconds since 1970, or `None` if none is known.
pub(super) fn first_end(certificates: &[CertificateDer<'_>]) -> Option<u64> {
    certificates.iter().filter_map(end).min()
}

/// Returns the expiry of a certificate. webpki reveals the expiry only in its error for an expired certificate, so the
/// certificate is checked at the maximum time: every certificate has expired then, and webpki checks the time first.
fn end(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let end_of_time = UnixTime::since_unix_epoch(Duration::MAX);
    let verified = certificate.verify_for_usage(&[], &[], &[], end_of_time, KeyUsage::server_auth(), None, None);
    match verified {
        Err(Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn until(year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec![String::from("localhost")]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn earliest_expiry_is_returned() {
        let (past, future) = (until(2000), until(2100));
        assert_eq!(first_end(slice::from_ref(&future)), Some(4_102_444_800));
        assert_eq!(first_end(&[future, past]), Some(946_684_800));
        assert_eq!(first_end(&[CertificateDer::from(vec![0_u8; 8])]), None);
    }
}
