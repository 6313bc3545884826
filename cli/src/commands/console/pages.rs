//! The requests of a browser: login, files and calls. Every request except a health probe passes the checks of
//! `origins` first.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::json;
use svc_kit::secret::SecretToken;
use tokio::{sync::Notify, time::timeout};
use tonic::{Code, body::Body};
use troupe_proto::{MAX_MESSAGE_BYTES, fault::Fault, reason::Reason};

use super::{
    api::{self, Api},
    assets::{self, plain},
    logins::{LOGIN_LIFETIME, Login, Logins, Rejected},
    origins::{Origin, Origins},
    proxy::{Proxy, Unidentified},
};

/// Maximum size of a code.
const MAX_CODE_BYTES: usize = 512;
/// Maximum time for the body of a request to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// The path of health probes. Probes use other host names and have no login, so the answer is only that the console
/// serves.
const HEALTH_PATH: &str = "/healthz";
/// Number of bytes before the message of a call: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Headers of every response. They prevent pages of other sites from embedding, reading or scripting the console.
const SECURITY_HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// The console behind its HTTP port.
pub(super) struct Console {
    origins: Origins,
    /// The port of the console. It is part of the cookie's name, because browsers send cookies to all ports of a host.
    port: u16,
    logins: Mutex<Logins>,
    /// The proxy that logs people in with each request. `None` if people log in with links.
    proxy: Option<Proxy>,
    api: Api,
    /// The name of the server that the page displays.
    server: String,
    /// Notified when a person needs a new link.
    link_needed: Notify,
}

impl Console {
    /// Creates a console.
    pub(super) fn new(
        origins: Origins,
        port: u16,
        logins: Logins,
        proxy: Option<Proxy>,
        api: Api,
        server: String,
    ) -> Self {
        Self {
            origins,
            port,
            logins: Mutex::new(logins),
            proxy,
            api,
            server,
            link_needed: Notify::new(),
        }
    }

    /// Returns the URL of the proxy that logs people in, if there is one.
    pub(super) fn proxy_url(&self) -> Option<String> {
        self.proxy.as_ref().map(|_| self.origins.link().to_string())
    }

    /// Waits until a person needs a new link.
    pub(super) async fn link_needed(&self) {
        self.link_needed.notified().await;
    }

    /// Returns a login link with a new code.
    ///
    /// # Errors
    ///
    /// Fails if the operating system returns no random bytes.
    pub(super) fn new_link(&self) -> crate::error::Result<String> {
        let code = self
            .logins()
            .issue_code(Instant::now())
            .map_err(crate::error::Error::of)?;
        // The code is in the fragment, which browsers do not send and servers do not log.
        Ok(format!("{}/login#{}", self.origins.link(), code.expose()))
    }

    fn logins(&self) -> MutexGuard<'_, Logins> {
        // A poisoned lock is usable, because a panic cannot leave the state inconsistent.
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request.
    pub(super) async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let is_probe = parts.method == Method::GET && parts.uri.path() == HEALTH_PATH;
        let mut response = match self.origins.of(&parts.uri, &parts.headers) {
            _ if is_probe => plain(StatusCode::OK, "ok"),
            Ok(origin) => self.route(origin, &parts, body).await,
            Err(foreign) => plain(StatusCode::FORBIDDEN, &foreign.to_string()),
        };
        for (name, value) in SECURITY_HEADERS {
            response.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        response
    }

    async fn route(&self, origin: &Origin, parts: &Parts, body: Incoming) -> Response<Body> {
        let path = parts.uri.path();
        let is_post = parts.method == Method::POST;
        let checked = match is_post {
            true => origin.check_sender(&parts.headers),
            false if path == "/me" => origin.check_reader(&parts.headers),
            false => Ok(()),
        };
        if let Err(foreign) = checked {
            return plain(StatusCode::FORBIDDEN, &foreign.to_string());
        }
        let login = match self.find_login(origin, &parts.headers) {
            Ok(login) => login,
            Err(unidentified) => return plain(StatusCode::FORBIDDEN, &unidentified.to_string()),
        };
        match (&parts.method, path) {
            (&Method::POST, "/login" | "/logout") if self.proxy.is_some() => {
                plain(StatusCode::NOT_FOUND, "log in and out at the proxy of the console")
            }
            (&Method::POST, "/login") => match read(body, MAX_CODE_BYTES).await {
                Ok(code) => self.log_in(origin, &code),
                Err(refused) => refused,
            },
            (&Method::POST, "/logout") => self.log_out(origin, &parts.headers),
            (&Method::GET, "/me") => self.me(login),
            (&Method::POST, _) => self.call(login, parts, body).await,
            (&Method::GET | &Method::HEAD, _) => assets::respond(&parts.method, path, &parts.headers),
            _ => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET, HEAD and POST are allowed"),
        }
    }

    fn log_in(&self, origin: &Origin, code: &[u8]) -> Response<Body> {
        let Ok(secret) = SecretToken::generate() else {
            return plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the operating system gave no random bytes",
            );
        };
        let code = str::from_utf8(code).unwrap_or_default().trim();
        let logged_in = self.logins().log_in(code, secret.clone(), Instant::now());
        match logged_in {
            Ok(()) => {
                let cookie = format!(
                    "{}; Max-Age={}",
                    self.cookie(origin, secret.expose()),
                    LOGIN_LIFETIME.as_secs()
                );
                no_content(&cookie)
            }
            Err(rejected) => {
                if rejected == Rejected::Expired {
                    self.link_needed.notify_one();
                }
                plain(StatusCode::FORBIDDEN, &rejected.to_string())
            }
        }
    }

    fn log_out(&self, origin: &Origin, headers: &HeaderMap) -> Response<Body> {
        if let Some(secret) = self.secret(origin, headers) {
            self.logins().log_out(secret);
        }
        no_content(&format!("{}; Max-Age=0", self.cookie(origin, "")))
    }

    fn me(&self, login: Option<Login>) -> Response<Body> {
        let Some(login) = login else {
            return plain(
                StatusCode::UNAUTHORIZED,
                "log in with the link that the terminal of `troupe console` shows",
            );
        };
        let me = json!({
            "supervisor": self.server,
            "role": login.access.to_string(),
            "user": login.user,
            "version": env!("CARGO_PKG_VERSION"),
        });
        let mut response = Response::new(Body::new(Full::from(me.to_string())));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn call(&self, login: Option<Login>, parts: &Parts, body: Incoming) -> Response<Body> {
        let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if content_type != Some(api::CONTENT_TYPE.as_bytes()) {
            let text = format!(
                "unsupported content type; calls must have the content type {}",
                api::CONTENT_TYPE
            );
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, &text);
        }
        let Some(login) = login else {
            let message = "log in with the link that the terminal of `troupe console` shows";
            return api::refusal(Fault::new(Code::Unauthenticated, Reason::Unauthenticated, message).into());
        };
        match read(body, MAX_MESSAGE_BYTES + PREFIX_BYTES).await {
            Ok(message) => self.api.call(parts.uri.path(), &parts.headers, message, login).await,
            Err(refused) => refused,
        }
    }

    /// Returns the login of a request, or `None` if the request has no login.
    ///
    /// # Errors
    ///
    /// Fails if a proxy logs people in, and the request does not come from the proxy or names no valid user.
    fn find_login(&self, origin: &Origin, headers: &HeaderMap) -> Result<Option<Login>, Unidentified> {
        let now = Instant::now();
        if let Some(proxy) = &self.proxy {
            let user = proxy.identify(headers)?;
            return Ok(Some(self.logins().of_user(user, now)));
        }
        let secret = self.secret(origin, headers);
        Ok(secret.and_then(|secret| self.logins().find(secret, now)))
    }

    /// Returns the secret in the cookie of a request.
    fn secret<'a>(&self, origin: &Origin, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.cookie_name(origin);
        let cookies = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok());
        cookies
            .flat_map(|value| value.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .find_map(|(cookie, secret)| (cookie == name).then_some(secret))
    }

    fn cookie_name(&self, origin: &Origin) -> String {
        // Browsers accept the prefix `__Host-` only over TLS.
        match origin.is_https() {
            true => "__Host-troupe-console".to_owned(),
            false => format!("troupe-console-{}", self.port),
        }
    }

    fn cookie(&self, origin: &Origin, secret: &str) -> String {
        let secure = if origin.is_https() { "; Secure" } else { "" };
        format!(
            "{}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}",
            self.cookie_name(origin)
        )
    }
}

/// Reads a body of at most `limit` bytes.
async fn read(body: Incoming, limit: usize) -> Result<Bytes, Response<Body>> {
    match timeout(BODY_WITHIN, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => {
            let text = format!("the body is incomplete or has more than {limit} bytes");
            Err(plain(StatusCode::PAYLOAD_TOO_LARGE, &text))
        }
        Err(_) => {
            let text = format!("the body did not arrive within {BODY_WITHIN:?}");
            Err(plain(StatusCode::REQUEST_TIMEOUT, &text))
        }
    }
}

/// Creates an empty response that sets a cookie.
fn no_content(cookie: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
