//! A certificate authority for tests of TLS. The tests of `svc-kit` include this file too.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, Issuer, KeyPair, SanType, string::Ia5String};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }
}

impl Authority {
    /// Writes the certificate of a server on 127.0.0.1, `NAME.crt`, and its key, `NAME.key`.
    pub fn server(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        self.issue(directory, name, SanType::IpAddress([127, 0, 0, 1].into()))
    }

    /// Writes the certificate and the key of a client with this URI as its subject alternative name.
    pub fn client(&self, directory: &Path, name: &str, uri: &str) -> (PathBuf, PathBuf) {
        let uri = Ia5String::try_from(uri).unwrap();
        self.issue(directory, name, SanType::URI(uri))
    }

    /// Writes the certificate of the authority itself.
    pub fn publish(&self, directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, self.0.pem()).unwrap();
        path
    }

    fn issue(&self, directory: &Path, name: &str, whose: SanType) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(whose);
        let key = KeyPair::generate().unwrap();
        let issuer: &Issuer<'_, KeyPair> = &self.0;
        let certificate = params.signed_by(&key, issuer).unwrap();
        let files = ["crt", "key"].map(|kind| directory.join(format!("{name}.{kind}")));
        fs::write(&files[0], certificate.pem()).unwrap();
        fs::write(&files[1], key.serialize_pem()).unwrap();
        files.into()
    }
}
