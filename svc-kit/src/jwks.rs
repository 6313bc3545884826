//! The public keys of an identity provider: from a file that may be replaced, or from a URL that is polled, with a
//! token if the URL requires authentication.

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{
    HeaderValue, Request, Uri,
    header::{AUTHORIZATION, HOST},
};
use http_body_util::{BodyExt as _, Empty, Limited, combinators::BoxBody};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use jsonwebtoken::jwk::JwkSet;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use troupe_client::{
    host::{bare_host, is_this_machine},
    tls::{ClientFiles, http_connection},
};

use crate::{fresh::Fresh, secret::SecretError, shown_token::ShownToken};

/// Maximum size of a key set in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// Time limit of a provider's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between requests for the keys.
const REFRESH: Duration = Duration::from_secs(300);
/// Minimum interval between requests, used after a token named an unknown key or a request failed.
const EARLY_REFRESH: Duration = Duration::from_secs(10);

/// Location of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysAt {
    /// A JWKS file.
    File(PathBuf),
    /// The URL of a JWKS.
    Url(Uri),
}

impl FromStr for KeysAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let uri: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
        let host = uri.host().ok_or("the URL has no host")?;
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return Err("the URL contains a password; remove it".to_owned());
        }
        match uri.scheme_str() {
            Some("https") => Ok(Self::Url(uri)),
            // Over plain HTTP, an attacker on the network could replace the keys.
            Some("http") if is_this_machine(host) => Ok(Self::Url(uri)),
            _ => Err("the URL must use https, or http with a host of this machine".to_owned()),
        }
    }
}

/// Configuration of requests for keys at a URL.
#[derive(Debug, Default)]
pub(crate) struct FetchOptions {
    /// The trusted authorities of that server.
    pub(crate) files: ClientFiles,
    /// The file with the bearer token for that server.
    pub(crate) token: Option<PathBuf>,
}

/// Why keys are unavailable or cannot be requested.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The token for the requests is unavailable.
    #[error("--jwt-keys-token: {0}")]
    Token(#[from] SecretError),
    /// A token is configured, but the keys are in a file.
    #[error("--jwt-keys-token needs a URL, but --jwt-keys is the file {path:?}; remove the token or use a URL")]
    TokenForFile {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a JWKS.
    #[error("cannot parse {path:?} as a JWKS: {cause}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The parse error.
        cause: serde_json::Error,
    },
}

/// Why a request for a provider's keys failed.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("no connection: {0}")]
    Unconnected(#[from] io::Error),
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("cannot build a request: {0}")]
    Request(#[from] http::Error),
    #[error("response status {0}; redirects are not followed")]
    Status(http::StatusCode),
    #[error("the response is incomplete or has more than {MAX_BYTES} bytes: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the response is not a JWKS: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("no response within {RESPONSE_TIMEOUT:?}")]
    TimedOut,
}

/// The current keys of an issuer.
#[derive(Debug)]
pub(crate) enum Keys {
    File { path: PathBuf, keys: Fresh<JwkSet> },
    Url(Remote),
}

impl Keys {
    /// Opens the keys. A file must be valid. A URL may be unreachable; tokens are rejected until its keys are
    /// available. Requires a Tokio runtime.
    pub(crate) fn open(location: KeysAt, options: FetchOptions) -> Result<Self, KeysError> {
        let FetchOptions { files, token } = options;
        match (location, token) {
            (KeysAt::File(path), None) => Ok(Self::File {
                keys: Fresh::new(vec![path.clone()], || read(&path))?,
                path,
            }),
            (KeysAt::File(path), Some(_)) => Err(KeysError::TokenForFile { path }),
            (KeysAt::Url(uri), token) => {
                let token = token.map(ShownToken::load).transpose()?;
                Ok(Self::Url(Remote::open(uri, files, token)))
            }
        }
    }

    pub(crate) fn get(&self) -> Arc<JwkSet> {
        match self {
            Self::File { path, keys } => keys.get(|| read(path)),
            Self::Url(remote) => remote.shared.get(),
        }
    }

    /// Requests an early refresh, because a token named an unknown key: the issuer may have a new key.
    pub(crate) fn request_refresh(&self) {
        match self {
            // The file was already checked for a change when the keys were looked up for this token.
            Self::File { .. } => {}
            Self::Url(remote) => remote.shared.refresh_requested.notify_one(),
        }
    }
}

fn read(path: &Path) -> Result<JwkSet, KeysError> {
    let text = fs::read(path).map_err(|cause| KeysError::Unreadable {
        path: path.to_owned(),
        cause,
    })?;
    serde_json::from_slice(&text).map_err(|cause| KeysError::Malformed {
        path: path.to_owned(),
        cause,
    })
}

/// Keys at a URL, and the task that requests them.
#[derive(Debug)]
pub(crate) struct Remote {
    shared: Arc<Shared>,
    _polling: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    uri: Uri,
    files: ClientFiles,
    token: Option<ShownToken>,
    keys: Mutex<Arc<JwkSet>>,
    refresh_requested: Notify,
}

impl Remote {
    fn open(uri: Uri, files: ClientFiles, token: Option<ShownToken>) -> Self {
        let shared = Arc::new(Shared {
            uri,
            files,
            token,
            keys: Mutex::new(Arc::new(JwkSet { keys: Vec::new() })),
            refresh_requested: Notify::new(),
        });
        let polling = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&shared).poll()));
        Self {
            shared,
            _polling: polling,
        }
    }
}

impl Shared {
    fn get(&self) -> Arc<JwkSet> {
        Arc::clone(&self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Polls the URL forever. Unknown keys in tokens cannot make it poll more often than every [`EARLY_REFRESH`].
    async fn poll(self: Arc<Self>) {
        loop {
            let started = Instant::now();
            let answer = timeout(RESPONSE_TIMEOUT, self.fetch()).await;
            let next = match answer.unwrap_or(Err(FetchError::TimedOut)) {
                Ok(keys) => {
                    *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                    REFRESH
                }
                Err(error) => {
                    tracing::warn!(url = %self.uri, %error, "JWKS refresh failed; using cached keys");
                    EARLY_REFRESH
                }
            };
            sleep_until(started + EARLY_REFRESH).await;
            tokio::select! {
                () = sleep_until(started + next) => {}
                () = self.refresh_requested.notified() => {}
            }
        }
    }

    async fn fetch(&self) -> Result<JwkSet, FetchError> {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::get(path)
            .header(HOST, authority)
            .body(Empty::<Bytes>::new().boxed())?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, bearer(token)?);
        }
        let host = bare_host(self.uri.host().unwrap_or_default());
        let text = if self.uri.scheme_str() == Some("https") {
            exchange(http_connection(&self.files, host, self.uri.port_u16()).await?, request).await?
        } else {
            exchange(
                TcpStream::connect((host, self.uri.port_u16().unwrap_or(80))).await?,
                request,
            )
            .await?
        };
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Returns the current token as a header value that logs do not show.
fn bearer(token: &ShownToken) -> Result<HeaderValue, http::Error> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.present().expose()))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn exchange<S>(stream: S, request: Request<BoxBody<Bytes, std::convert::Infallible>>) -> Result<Bytes, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let answer = sender.send_request(request).await?;
    if !answer.status().is_success() {
        return Err(FetchError::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    Ok(body.map_err(FetchError::Body)?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_files_and_over_https() {
        assert_eq!("keys.json".parse(), Ok(KeysAt::File("keys.json".into())));
        for url in [
            "https://id.example.org/jwks",
            "http://127.0.0.1:1/jwks",
            "http://localhost/",
            "http://[::1]:2/",
        ] {
            assert_eq!(url.parse(), Ok(KeysAt::Url(Uri::from_static(url))), "{url}");
        }
        for url in [
            "http://id.example.org/jwks",
            "ftp://127.0.0.1/",
            "https://",
            "https://a:b@c/",
            "http://10.0.0.1/",
        ] {
            assert!(url.parse::<KeysAt>().is_err(), "{url}");
        }
    }
}
