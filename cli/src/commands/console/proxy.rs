//! Logins by an authenticating proxy. With each request, the proxy sends a shared secret and the name of the person.
//!
//! The console does not store these logins. It checks every request, so that a login ends when the proxy ends it.

use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue};
use svc_kit::{
    identity::is_name,
    secret::MAX_TOKEN_BYTES,
    token_file::{TokenFile, Tokens},
};

use super::methods::Access;
use crate::error::{Error, Result};

/// The header with the secret.
const SECRET_HEADER: HeaderName = HeaderName::from_static("x-troupe-proxy-secret");
const NAME_RULE: &str = "a name has 1 to 128 ASCII letters, digits and characters of ._-:@/|+=,~";

/// The flags for a proxy that logs people in.
#[derive(Debug, clap::Args)]
pub(super) struct ProxyArgs {
    /// File with secrets, one of which the proxy sends in X-Troupe-Proxy-Secret; the proxy then logs people in
    #[arg(
        long,
        env = "TROUPE_CONSOLE_PROXY_SECRET_FILE",
        value_name = "FILE",
        requires = "public_url"
    )]
    proxy_secret_file: Option<PathBuf>,
    /// Header in which the proxy names the person
    #[arg(
        long,
        env = "TROUPE_CONSOLE_PROXY_USER_HEADER",
        value_name = "HEADER",
        default_value = "X-Forwarded-Email",
        value_parser = parse_user_header
    )]
    proxy_user_header: HeaderName,
    /// Name of a person with all permissions (repeatable); all other people can only view
    #[arg(
        long = "proxy-operator",
        value_name = "NAME",
        value_parser = parse_name,
        requires = "proxy_secret_file",
        conflicts_with = "read_only"
    )]
    proxy_operators: Vec<String>,
}

fn parse_user_header(text: &str) -> std::result::Result<HeaderName, String> {
    let name: HeaderName = text.parse().map_err(|_| format!("invalid header name {text:?}"))?;
    match name == SECRET_HEADER {
        true => Err(format!("{text:?} has the secret of the proxy")),
        false => Ok(name),
    }
}

fn parse_name(text: &str) -> std::result::Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("invalid name {text:?}; {NAME_RULE}")),
    }
}

impl ProxyArgs {
    /// Returns whether a proxy logs people in.
    pub(super) const fn is_given(&self) -> bool {
        self.proxy_secret_file.is_some()
    }

    /// Loads the secrets. Returns `None` if people log in with a link.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or protected, or contains no secret.
    pub(super) fn load(self) -> Result<Option<Proxy>> {
        let Some(path) = self.proxy_secret_file else {
            return Ok(None);
        };
        Ok(Some(Proxy {
            secrets: TokenFile::load(path).map_err(Error::of)?,
            user_header: self.proxy_user_header,
            operators: self.proxy_operators,
        }))
    }
}

/// A proxy that logs people in.
pub(super) struct Proxy {
    secrets: Tokens,
    user_header: HeaderName,
    operators: Vec<String>,
}

/// A person whom the proxy has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// The name, which is safe to log and to show.
    pub(super) name: String,
    /// The permissions of the person.
    pub(super) access: Access,
}

/// The reason why a request has no user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unidentified {
    /// The request did not pass the proxy, or the proxy does not add the header.
    #[error("the request has no {0} header; open the console through its proxy, which has to add the header")]
    Missing(HeaderName),
    /// The header has several values. The client may have sent one of them.
    #[error("the request has several {0} headers; the proxy has to replace those of the client")]
    Repeated(HeaderName),
    /// The secret is not in the file.
    #[error("wrong secret in {SECRET_HEADER}; the proxy has to send a secret of the console's --proxy-secret-file")]
    WrongSecret,
    /// The name could be confused with another one.
    #[error("invalid name in {0}; {NAME_RULE}")]
    InvalidName(HeaderName),
}

impl Proxy {
    /// Returns the user of a request.
    ///
    /// # Errors
    ///
    /// Returns the reason why the request has no user. A client without the secret cannot find out which header
    /// contains the name.
    pub(super) fn identify(&self, headers: &HeaderMap) -> std::result::Result<User, Unidentified> {
        let secret = single(headers, &SECRET_HEADER)?;
        let secret = secret.to_str().ok().filter(|text| text.len() <= MAX_TOKEN_BYTES);
        if !secret.is_some_and(|text| self.secrets.matches(text)) {
            return Err(Unidentified::WrongSecret);
        }
        let name = single(headers, &self.user_header)?.to_str();
        let name = name.ok().filter(|name| is_name(name));
        let name = name.ok_or_else(|| Unidentified::InvalidName(self.user_header.clone()))?;
        Ok(User {
            name: name.to_owned(),
            access: match self.operators.iter().any(|operator| operator == name) {
                true => Access::Operator,
                false => Access::Viewer,
            },
        })
    }
}

/// Returns the value of a header that a request must contain exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> std::result::Result<&'a HeaderValue, Unidentified> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(Unidentified::Missing(name.clone())),
        (Some(_), Some(_)) => Err(Unidentified::Repeated(name.clone())),
    }
}
