//! The addresses under which a browser reaches the console, and the checks that a request comes from the console's own
//! page.

use std::{collections::HashMap, fmt, net::SocketAddr, str::FromStr};

use http::{HeaderMap, Uri, header};
use troupe_client::host::{is_loopback, is_this_machine};

use crate::sanitize;

/// The header in which the browser describes the origin of a request.
const SEC_FETCH_SITE: &str = "sec-fetch-site";
/// Maximum length of a value from a request that an error shows.
const QUOTED_CHARS: usize = 80;

/// The URL of a proxy in front of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicUrl(Origin);

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("invalid URL {text:?}; expected a URL without a path, like https://console.example.org");
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(expected());
        };
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !authority.as_str().contains('@');
        match scheme {
            "https" if is_bare => {}
            "http" if is_bare && is_this_machine(authority.host()) => {}
            "http" if is_bare => return Err(format!("{text:?} would send the login in plaintext; use an https URL")),
            _ => return Err(expected()),
        }
        Ok(Self(Origin::new(scheme == "https", authority.as_str())))
    }
}

/// The origin of the page: scheme, host and port, as a browser writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    is_https: bool,
    /// The host in lower case, with the port unless it is the default port of the scheme.
    host: String,
}

impl Origin {
    fn new(is_https: bool, host: &str) -> Self {
        let default_port = if is_https { ":443" } else { ":80" };
        let host = host.strip_suffix(default_port).unwrap_or(host);
        Self {
            is_https,
            host: host.to_ascii_lowercase(),
        }
    }

    /// Returns whether the browser uses TLS.
    pub(super) const fn is_https(&self) -> bool {
        self.is_https
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(out, "{scheme}://{}", self.host)
    }
}

/// The reason why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Foreign {
    /// The console does not know the host name: another site resolves its name to this address (DNS rebinding), or
    /// --public-url does not name the proxy.
    #[error("unknown host {host:?}; open {own}, or start the console with --public-url and the URL of your proxy")]
    Host {
        /// The host name from the request.
        host: String,
        /// The address to use.
        own: String,
    },
    /// The request comes from the page of another origin.
    #[error("the request comes from another origin ({from}); only the page of {own} may send it")]
    Page {
        /// The header with its value.
        from: String,
        /// The origin that is allowed.
        own: String,
    },
    /// The client is not a browser, or is too old to describe its origin.
    #[error("the request has neither Sec-Fetch-Site nor Origin; use a current browser")]
    Unknown,
}

/// The origins of the page, by the value of the Host header.
#[derive(Clone, Debug)]
pub(super) struct Origins {
    by_host: HashMap<String, Origin>,
    link: Origin,
}

impl Origins {
    /// Returns the origins of a console on this address. On an address that is not a loopback address, the public URL
    /// is the only origin.
    pub(super) fn new(listening: SocketAddr, public: Option<PublicUrl>) -> Self {
        let port = listening.port();
        let own = Origin::new(false, &listening.to_string());
        let loopback = ["127.0.0.1", "localhost", "[::1]"].map(|name| Origin::new(false, &format!("{name}:{port}")));
        let mut all: Vec<Origin> = match is_loopback(listening.ip()) {
            true => loopback.into_iter().chain([own.clone()]).collect(),
            false => Vec::new(),
        };
        let link = public.map_or(own, |PublicUrl(origin)| origin);
        all.push(link.clone());
        Self {
            by_host: all.into_iter().map(|origin| (origin.host.clone(), origin)).collect(),
            link,
        }
    }

    /// Returns the origin of the login link.
    pub(super) const fn link(&self) -> &Origin {
        &self.link
    }

    /// Returns the origin that a request addresses.
    ///
    /// # Errors
    ///
    /// Returns [`Foreign::Host`] if the request has no Host header, several Host headers or an unknown host name, or if
    /// its target contains another host than the header. Only a client of a proxy sends a host in the target.
    pub(super) fn of(&self, target: &Uri, headers: &HeaderMap) -> Result<&Origin, Foreign> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default().to_ascii_lowercase(),
            _ => String::new(),
        };
        let is_http = matches!(target.scheme_str(), None | Some("http" | "https"));
        if let Some(authority) = target.authority()
            && !(is_http && authority.as_str().eq_ignore_ascii_case(&host))
        {
            return Err(Foreign::Host {
                host: quoted(authority.as_str()),
                own: self.link.to_string(),
            });
        }
        let host_without_default = host.strip_suffix(":443").or_else(|| host.strip_suffix(":80"));
        let found = self.by_host.get(&host);
        let found = found.or_else(|| {
            let origin = self.by_host.get(host_without_default?)?;
            (Origin::new(origin.is_https, &host) == *origin).then_some(origin)
        });
        found.ok_or_else(|| Foreign::Host {
            host: quoted(&host),
            own: self.link.to_string(),
        })
    }
}

impl Origin {
    /// Checks that this page sent the request. Sec-Fetch-Site and Origin are set by the browser and cannot be changed
    /// by a page.
    ///
    /// # Errors
    ///
    /// Returns [`Foreign::Page`] for another page, and [`Foreign::Unknown`] if both headers are missing.
    pub(super) fn check_sender(&self, headers: &HeaderMap) -> Result<(), Foreign> {
        let own = self.to_string();
        let values = |name: &str| {
            headers
                .get_all(name)
                .into_iter()
                .map(|value| value.to_str().unwrap_or_default())
        };
        let checks = [(SEC_FETCH_SITE, "same-origin"), ("origin", own.as_str())];
        let other = checks.iter().find_map(|(name, expected)| {
            let value = values(name).find(|value| value != expected)?;
            Some(format!("{name}: {}", quoted(value)))
        });
        match other {
            Some(from) => Err(Foreign::Page { from, own }),
            None if checks.iter().all(|(name, _)| !headers.contains_key(*name)) => Err(Foreign::Unknown),
            None => Ok(()),
        }
    }

    /// Checks that no other site reads from the console. Requests of a user who opens the address directly are allowed.
    ///
    /// # Errors
    ///
    /// Returns [`Foreign::Page`] for another site.
    pub(super) fn check_reader(&self, headers: &HeaderMap) -> Result<(), Foreign> {
        let site = headers
            .get(SEC_FETCH_SITE)
            .map(|value| value.to_str().unwrap_or_default());
        match site {
            None | Some("same-origin" | "none") => Ok(()),
            Some(site) => Err(Foreign::Page {
                from: format!("{SEC_FETCH_SITE}: {}", quoted(site)),
                own: self.to_string(),
            }),
        }
    }
}

fn quoted(text: &str) -> String {
    sanitize::line(&text.chars().take(QUOTED_CHARS).collect::<String>())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            })
    }

    fn origins(listening: &str, public: Option<&str>) -> Origins {
        Origins::new(listening.parse().unwrap(), public.map(|url| url.parse().unwrap()))
    }

    #[test]
    fn unknown_host_is_rejected() {
        for (listening, public, host, origin) in [
            ("127.0.0.1:8080", None, "127.0.0.1:8080", Some("http://127.0.0.1:8080")),
            ("127.0.0.1:8080", None, "LocalHost:8080", Some("http://localhost:8080")),
            ("127.0.0.1:8080", None, "[::1]:8080", Some("http://[::1]:8080")),
            ("127.0.0.1:80", None, "127.0.0.1", Some("http://127.0.0.1")),
            ("127.0.0.1:80", None, "127.0.0.1:80", Some("http://127.0.0.1")),
            ("127.0.0.1:8080", None, "127.0.0.1", None),
            ("127.0.0.1:8080", None, "127.0.0.1:8081", None),
            ("127.0.0.1:8080", None, "evil.example:8080", None),
            ("127.0.0.1:8080", None, "127.0.0.1.evil.example:8080", None),
            ("127.0.0.1:8080", None, "", None),
            (
                "127.0.0.1:8080",
                Some("https://C.example"),
                "c.example",
                Some("https://c.example"),
            ),
            (
                "127.0.0.1:8080",
                Some("https://c.example:443"),
                "c.example:443",
                Some("https://c.example"),
            ),
            ("127.0.0.1:8080", Some("https://c.example"), "c.example:80", None),
            (
                "127.0.0.1:8080",
                Some("https://c.example"),
                "localhost:8080",
                Some("http://localhost:8080"),
            ),
            ("0.0.0.0:8080", Some("https://c.example"), "localhost:8080", None),
            ("0.0.0.0:8080", Some("https://c.example"), "0.0.0.0:8080", None),
        ] {
            let origins = origins(listening, public);
            let found = origins.of(&Uri::default(), &headers(&[("host", host)]));
            let found = found.map(ToString::to_string);
            assert_eq!(found.ok().as_deref(), origin, "{listening} {public:?} {host}");
        }
        let twice = headers(&[("host", "127.0.0.1:1"), ("host", "evil.example")]);
        assert!(origins("127.0.0.1:1", None).of(&Uri::default(), &twice).is_err());
        assert!(
            origins("127.0.0.1:1", None)
                .of(&Uri::default(), &HeaderMap::new())
                .is_err()
        );
    }

    #[test]
    fn target_host_must_match_host_header() {
        let origins = origins("127.0.0.1:8080", None);
        for (target, host, is_known) in [
            ("/me", "127.0.0.1:8080", true),
            ("http://127.0.0.1:8080/me", "127.0.0.1:8080", true),
            ("http://LOCALHOST:8080/me", "localhost:8080", true),
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http://localhost:8080/me", "127.0.0.1:8080", false),
            ("http://127.0.0.1/me", "127.0.0.1:8080", false),
            ("http://evil.example/me", "127.0.0.1:8080", false),
            ("http://evil.example:80/logout", "127.0.0.1:8080", false),
            ("https://evil.example/", "127.0.0.1:8080", false),
            ("http://127.0.0.1:8080@evil.example/me", "127.0.0.1:8080", false),
            ("http://127.0.0.1.evil.example:8080/me", "127.0.0.1:8080", false),
            ("http://127.0.0.1:8080/me", "evil.example", false),
            ("http://user@127.0.0.1:8080/me", "127.0.0.1:8080", false),
            ("ftp://127.0.0.1:8080/me", "127.0.0.1:8080", false),
            ("evil.example:443", "127.0.0.1:8080", false),
        ] {
            let found = origins.of(&target.parse().unwrap(), &headers(&[("host", host)]));
            assert_eq!(found.is_ok(), is_known, "{target} {host}: {found:?}");
        }
    }

    #[test]
    fn request_of_another_page_is_rejected() {
        let own = "http://127.0.0.1:8080";
        let origins = origins("127.0.0.1:8080", None);
        for (pairs, is_allowed) in [
            (&[("sec-fetch-site", "same-origin"), ("origin", own)][..], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("origin", own)], true),
            (&[], false),
            (&[("sec-fetch-site", "same-site"), ("origin", own)], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "none")], false),
            (
                &[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:3000")],
                false,
            ),
            (&[("origin", "null")], false),
            (&[("origin", "https://127.0.0.1:8080")], false),
            (&[("origin", own), ("origin", "http://evil.example")], false),
        ] {
            let checked = origins.link().check_sender(&headers(pairs));
            assert_eq!(checked.is_ok(), is_allowed, "{pairs:?}: {checked:?}");
        }
    }

    #[test]
    fn public_url_is_https_without_a_path() {
        for (text, is_valid) in [
            ("https://console.example.org", true),
            ("https://console.example.org:8443/", true),
            ("http://localhost:9000", true),
            ("http://console.example.org", false),
            ("https://console.example.org/console", false),
            ("https://console.example.org?a=1", false),
            ("https://me@console.example.org", false),
            ("console.example.org", false),
            ("ftp://console.example.org", false),
        ] {
            let parsed = text.parse::<PublicUrl>();
            assert_eq!(parsed.is_ok(), is_valid, "{text}: {parsed:?}");
        }
    }
}
