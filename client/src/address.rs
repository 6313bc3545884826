//! Addresses of the services, and connections to them.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Uri};

use crate::{
    channel::Identified,
    error::Error,
    host::is_this_machine,
    service::Service,
    tls::{self, ClientFiles},
    token::Token,
};

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 keep-alive pings on a silent connection.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A valid address of a service, and the files with which it is reached.
#[derive(Clone, Debug)]
pub struct Address {
    service: Service,
    uri: Uri,
    tls: ClientFiles,
}

impl Address {
    /// Parses an address: a URL, or the `host:port` of an `http` URL.
    ///
    /// # Errors
    ///
    /// [`Error::Address`].
    pub fn parse(service: Service, text: &str) -> Result<Self, Error> {
        Self::over(service, text, ClientFiles::default())
    }

    /// Parses an address: a URL, or a `host:port`, whose URL is `https` if there are TLS files. With TLS files, an
    /// `http` URL of another machine is an error: the token would leave this machine in plaintext although the caller
    /// wants TLS.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] and [`Error::Plaintext`].
    pub fn over(service: Service, text: &str, tls: ClientFiles) -> Result<Self, Error> {
        let wants_tls = tls != ClientFiles::default();
        let text = text.trim();
        let url = match (text.contains("://"), wants_tls) {
            (true, _) => text.to_owned(),
            (false, true) => format!("https://{text}"),
            (false, false) => format!("http://{text}"),
        };
        let invalid = || Error::Address {
            service,
            text: text.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let is_plain = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) if !host.is_empty() => true,
            (Some("https"), Some(host)) if !host.is_empty() => false,
            _ => return Err(invalid()),
        };
        let address = Self { service, uri, tls };
        if wants_tls && is_plain && !is_this_machine(address.host()) {
            return Err(Error::Plaintext {
                service,
                url: text.to_owned(),
            });
        }
        Ok(address)
    }

    /// Returns the host without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// Returns the URL.
    #[must_use]
    pub const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Opens a channel that sends the token.
    ///
    /// # Errors
    ///
    /// [`Error::TokenCharacters`] and [`Error::Unreachable`].
    pub async fn channel(&self, token: &Token) -> Result<Identified, Error> {
        Identified::new(self.connect().await?, token)
    }

    /// Opens a connection, which reconnects by itself when it is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`].
    pub async fn connect(&self) -> Result<Channel, Error> {
        let endpoint = Endpoint::from(self.uri.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE);
        tls::connect(endpoint, &self.tls)
            .await
            .map_err(|error| Error::Unreachable {
                service: self.service,
                uri: self.uri.clone(),
                cause: root_cause(&error),
            })
    }
}

/// Returns the innermost error: "connection refused" says more than "transport error".
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn address_is_url_or_host_and_port() {
        for text in ["http://127.0.0.1:50052", "127.0.0.1:50052", " localhost:50052 "] {
            let address = Address::parse(Service::Supervisor, text).unwrap();
            assert!(["127.0.0.1", "localhost"].contains(&address.host()), "{text}");
        }
        for text in ["", "ftp://host:1", "http://", "not an address"] {
            let error = Address::parse(Service::Supervisor, text).unwrap_err();
            assert!(matches!(error, Error::Address { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn tls_files_need_https_or_this_machine() {
        let files = || ClientFiles {
            authorities: Some("ca.pem".into()),
            identity: None,
        };
        let over = |text: &str| Address::over(Service::Registry, text, files());
        assert_eq!(over("example.com:1").unwrap().uri().scheme_str(), Some("https"));
        assert_eq!(over("http://[::1]:1").unwrap().uri().scheme_str(), Some("http"));
        let error = over("http://example.com:1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the registry at http://example.com:1 is not reached over TLS"
        );
    }
}
