//! A local proxy between one thread's program and its model provider.
//!
//! The proxy listens on 127.0.0.1 and forwards every request below one base URL. It counts requests and failures, which
//! some programs do not report themselves. It can also hold the provider's keys: the program gets a random placeholder
//! for each key, and the proxy replaces the placeholder by the key in the headers of each request. Bodies are streamed
//! in both directions and never stored. [`super::provider_access`] decides which program gets which proxies.

use std::{convert::Infallible, io, net::Ipv4Addr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{
        CONNECTION, CONTENT_TYPE, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
        UPGRADE,
    },
};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;
use troupe_client::tls::ClientFiles;
use uuid::Uuid;

use crate::{agent::Secret, http_client};

/// Maximum number of connections that the proxy serves at once. Further connections wait in the kernel's backlog.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Time limit for a program to send the headers of a request.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Headers that belong to one connection and are not forwarded.
const HOP_BY_HOP: [http::HeaderName; 7] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// The provider behind a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    base: Uri,
    keys: Vec<HeldKey>,
}

/// A key of a provider, and the placeholder that the program receives instead.
#[derive(Clone, Debug)]
struct HeldKey {
    placeholder: Secret,
    key: Secret,
}

impl Upstream {
    /// Returns an upstream at a base URL, `http` or `https`. With keys, the proxy accepts only requests with a key's
    /// placeholder in a header. Without keys, it forwards the program's own credentials unchanged.
    ///
    /// # Errors
    ///
    /// The URL is not an absolute `http` or `https` URL.
    pub(crate) fn new(base_url: &str, keys: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let base: Uri = base_url
            .parse()
            .map_err(|error| format!("\"{base_url}\" is not a URL: {error}"))?;
        let is_absolute = matches!(base.scheme_str(), Some("http" | "https")) && base.host().is_some();
        if !is_absolute {
            return Err(format!("\"{base_url}\" is not an http or https URL"));
        }
        let held = |key| HeldKey {
            placeholder: Secret::new(format!("troupe-{}", Uuid::new_v4().simple())),
            key: Secret::new(key),
        };
        Ok(Self {
            base,
            keys: keys.into_iter().map(held).collect(),
        })
    }

    /// Returns the placeholders of the keys, in the order of the keys.
    pub(crate) fn placeholders(&self) -> Vec<String> {
        let placeholders = self.keys.iter().map(|held| held.placeholder.expose().to_owned());
        placeholders.collect()
    }

    /// Replaces the placeholders in the headers of a request. Returns false if keys are held and the request contains
    /// no placeholder.
    fn authenticate(&self, headers: &mut HeaderMap) -> bool {
        let mut is_found = self.keys.is_empty();
        for held in &self.keys {
            is_found |= substitute(headers, held.placeholder.expose(), held.key.expose());
        }
        is_found
    }

    /// Returns the path of the base URL, without a slash at its end.
    fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }
}

/// The requests of a program so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Number of POST requests.
    pub(crate) requests: u64,
    /// Number of failures since the last successful request.
    pub(crate) failures: u32,
    /// The last failure: a status code, or the reason why the provider could not be reached.
    pub(crate) last_failure: String,
}

/// A running proxy. Dropping it closes its listener and every connection.
#[derive(Debug)]
pub(crate) struct ProviderProxy {
    base_url: String,
    _task: AbortOnDropHandle<()>,
}

impl ProviderProxy {
    /// Starts a proxy on a free port of 127.0.0.1. It counts its requests in `counter`, which all proxies of one
    /// program share.
    ///
    /// # Errors
    ///
    /// No port can be opened.
    pub(crate) async fn start(upstream: Upstream, counter: watch::Sender<Traffic>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base_url = format!("http://{}{}", listener.local_addr()?, upstream.path());
        let forwarder = Arc::new(Forwarder { upstream, counter });
        Ok(Self {
            base_url,
            _task: AbortOnDropHandle::new(tokio::spawn(serve(listener, forwarder))),
        })
    }

    /// Returns the base URL that the program uses instead of the provider's base URL. Both URLs have the same path.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }
}

async fn serve(listener: TcpListener, forwarder: Arc<Forwarder>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropping this task also drops the set, which closes every connection.
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the provider proxy cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let forwarder = Arc::clone(&forwarder);
        connections.spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            let service = service_fn(move |request| {
                let forwarder = Arc::clone(&forwarder);
                async move { Ok::<_, Infallible>(forwarder.forward(request).await) }
            });
            let served = server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection to the provider proxy ended early");
            }
        });
    }
}

#[derive(Debug)]
struct Forwarder {
    upstream: Upstream,
    counter: watch::Sender<Traffic>,
}

impl Forwarder {
    async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let is_counted = request.method() == Method::POST;
        if is_counted {
            self.counter.send_modify(|traffic| traffic.requests += 1);
        }
        let request = match self.rewrite(request) {
            Ok(request) => request,
            Err((status, text)) => return refusal(status, &text),
        };
        let (response, failure) = match self.exchange(request).await {
            Ok(response) => {
                let status = response.status();
                let is_failure = status.is_client_error() || status.is_server_error();
                (answered(response), is_failure.then(|| status.as_u16().to_string()))
            }
            Err(why) => {
                let text = format!("the provider cannot be reached: {why}");
                (refusal(StatusCode::BAD_GATEWAY, &text), Some(why))
            }
        };
        if is_counted {
            self.counter.send_modify(|traffic| match failure {
                Some(failure) => {
                    traffic.failures = traffic.failures.saturating_add(1);
                    traffic.last_failure = failure;
                }
                None => traffic.failures = 0,
            });
        }
        response
    }

    /// Returns the request for the provider, or the status and text of a rejection.
    fn rewrite(&self, request: Request<Incoming>) -> Result<Request<Incoming>, (StatusCode, String)> {
        let (mut parts, body) = request.into_parts();
        if parts.headers.contains_key(UPGRADE) {
            // If a WebSocket is rejected, Codex sends ordinary requests.
            let text = "only requests of HTTP/1.1 are forwarded".to_owned();
            return Err((StatusCode::UPGRADE_REQUIRED, text));
        }
        let path = parts.uri.path();
        let below = path.strip_prefix(self.upstream.path());
        let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if !is_below || path.split('/').any(|segment| matches!(segment, "." | "..")) {
            let text = format!("\"{path}\" is not below \"{}/\"", self.upstream.path());
            return Err((StatusCode::NOT_FOUND, text));
        }
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        parts.uri = target
            .parse()
            .map_err(|_| (StatusCode::BAD_REQUEST, "the path cannot be forwarded".to_owned()))?;
        for name in HOP_BY_HOP {
            parts.headers.remove(name);
        }
        if !self.upstream.authenticate(&mut parts.headers) {
            let text = "the request does not carry this thread's key".to_owned();
            return Err((StatusCode::UNAUTHORIZED, text));
        }
        let host = self
            .upstream
            .base
            .authority()
            .map_or("", |authority| authority.as_str());
        let host = host.rsplit('@').next().unwrap_or_default();
        if let Ok(host) = HeaderValue::from_str(host) {
            parts.headers.insert(HOST, host);
        }
        Ok(Request::from_parts(parts, body))
    }

    async fn exchange(&self, request: Request<Incoming>) -> Result<Response<Incoming>, String> {
        let exchanged = http_client::exchange(&self.upstream.base, &ClientFiles::default(), request).await;
        exchanged.map_err(|error| error.to_string())
    }
}

/// Replaces the placeholder in every header that contains it. Returns false if no header does.
fn substitute(headers: &mut HeaderMap, placeholder: &str, key: &str) -> bool {
    let mut is_found = false;
    for value in headers.values_mut() {
        let Some(replaced) = value
            .to_str()
            .ok()
            .filter(|text| text.contains(placeholder))
            .and_then(|text| HeaderValue::from_str(&text.replace(placeholder, key)).ok())
        else {
            continue;
        };
        *value = replaced;
        value.set_sensitive(true);
        is_found = true;
    }
    is_found
}

/// Returns the provider's response for the program.
fn answered(response: Response<Incoming>) -> Response<Body> {
    let mut response = response.map(http_body_util::BodyExt::boxed_unsync);
    for name in HOP_BY_HOP {
        response.headers_mut().remove(name);
    }
    response
}

/// Returns an error in a format that clients of every provider can read.
fn refusal(status: StatusCode, text: &str) -> Response<Body> {
    let body = serde_json::json!({"error": {"type": "proxy_error", "code": status.as_u16(), "message": text}});
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    /// Answers each connection of a listener with the next reply, and returns the received requests.
    fn provider(listener: TcpListener, replies: Vec<&'static str>) -> tokio::task::JoinHandle<Vec<String>> {
        tokio::spawn(async move {
            let mut requests = Vec::new();
            for reply in replies {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                // A request ends with its body, which is "{}" in these tests.
                while !request.ends_with(b"{}") {
                    let mut buffer = [0; 1024];
                    let length = stream.read(&mut buffer).await.unwrap();
                    assert!(length > 0, "the request is cut off");
                    request.extend_from_slice(&buffer[..length]);
                }
                requests.push(String::from_utf8(request).unwrap());
                stream.write_all(reply.as_bytes()).await.unwrap();
            }
            requests
        })
    }

    async fn post(url: &str, path: &str, key: &str) -> String {
        let address = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {key}\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
    const LIMITED: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";

    #[tokio::test]
    async fn proxy_replaces_the_placeholder_and_counts_failures() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1/", listener.local_addr().unwrap());
        let provider = provider(listener, vec![LIMITED, LIMITED, FINE]);
        let upstream = Upstream::new(&base, ["real-key".to_owned(), "other-key".to_owned()]).unwrap();
        let (key, other) = (upstream.placeholders()[0].clone(), upstream.placeholders()[1].clone());
        let (counter, traffic) = watch::channel(Traffic::default());
        let proxy = ProviderProxy::start(upstream, counter).await.unwrap();
        assert!(proxy.base_url().ends_with("/v1"), "{}", proxy.base_url());
        let url = proxy.base_url().to_owned();

        assert!(
            post(&url, "/v1/messages?beta=1", &key)
                .await
                .starts_with("HTTP/1.1 429")
        );
        post(&url, "/v1/messages", &other).await;
        assert_eq!((traffic.borrow().requests, traffic.borrow().failures), (2, 2));
        assert_eq!(traffic.borrow().last_failure, "429");
        let fine = post(&url, "/v1/messages", &key).await;
        assert!(fine.ends_with("fine"), "{fine}");
        assert_eq!(traffic.borrow().failures, 0);

        assert!(post(&url, "/v1/messages", "wrong").await.starts_with("HTTP/1.1 401"));
        assert!(post(&url, "/v10/messages", &key).await.starts_with("HTTP/1.1 404"));
        assert!(post(&url, "/v1/../admin", &key).await.starts_with("HTTP/1.1 404"));
        let requests = provider.await.unwrap();
        assert_eq!(requests.len(), 3, "refused requests do not reach the provider");
        assert!(
            requests[0].starts_with("POST /v1/messages?beta=1 HTTP/1.1\r\n"),
            "{requests:?}"
        );
        assert!(requests[0].contains("x-api-key: real-key\r\n"), "{requests:?}");
        assert!(requests[1].contains("x-api-key: other-key\r\n"), "{requests:?}");
        assert!(!requests.concat().contains(&key));
    }

    #[tokio::test]
    async fn unreachable_provider_is_an_error_with_its_cause() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let (counter, traffic) = watch::channel(Traffic::default());
        let proxy = ProviderProxy::start(Upstream::new(&base, []).unwrap(), counter);
        let proxy = proxy.await.unwrap();
        let response = post(proxy.base_url(), "/v1/x", "own").await;
        assert!(response.starts_with("HTTP/1.1 502"), "{response}");
        assert!(response.contains("the provider cannot be reached"), "{response}");
        assert_eq!(traffic.borrow().failures, 1);
    }

    #[tokio::test]
    async fn dropped_proxy_closes_its_port() {
        let upstream = Upstream::new("http://127.0.0.1:9", []).unwrap();
        let (counter, _) = watch::channel(Traffic::default());
        let proxy = ProviderProxy::start(upstream, counter).await.unwrap();
        let address = proxy.base_url().strip_prefix("http://").unwrap().to_owned();
        let mut open = TcpStream::connect(&address).await.unwrap();
        drop(proxy);
        assert_eq!(open.read(&mut [0]).await.unwrap_or_default(), 0);
        assert!(TcpStream::connect(&address).await.is_err());
    }

    #[test]
    fn upstream_without_http_url_is_rejected() {
        for url in ["", "ftp://x", "/v1", "localhost:80/v1"] {
            assert!(Upstream::new(url, []).is_err(), "{url}");
        }
        assert_eq!(Upstream::new("https://a.example", []).unwrap().path(), "");
    }
}
