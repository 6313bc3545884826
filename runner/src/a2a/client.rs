//! Requests to a remote agent over JSON-RPC or HTTP+JSON, and the agent's server-sent events. Responses are bounded,
//! redirects are not followed, and the token is sent only to the server of the configured URL.

use std::{collections::VecDeque, time::Duration};

use a2a_proto::{AgentCard, SendMessageRequest, StreamResponse, Task, json, stream_response::Payload};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use svc_kit::shown_token::ShownToken;
use tokio::{task::spawn_blocking, time::timeout};
use troupe_client::tls::ClientFiles;

use crate::{
    http_client::{ExchangeError, exchange},
    programs::{A2aBinding, A2aProgram},
    redact,
    text::{one_line, percent_encoded},
};

/// Maximum size of a response and of an event, in bytes.
pub(crate) const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum size of an agent card, in bytes.
pub(crate) const MAX_CARD_BYTES: usize = 256 * 1024;
/// Time limit of a request.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Time limit of the response to a message. It is longer than [`ANSWER_WITHIN`], because some agents respond only when
/// they have finished.
const SEND_WITHIN: Duration = Duration::from_secs(15 * 60);
/// Maximum silence of a stream. Servers send comments more often.
const SILENT_WITHIN: Duration = Duration::from_secs(60);
/// Maximum length of an error of the remote agent, in characters.
const MAX_ERROR_CHARS: usize = 500;
/// The path of the card below the URL of an agent.
const CARD: &str = "/.well-known/agent-card.json";
/// Maximum number of messages of a task's history that are requested.
const HISTORY: u32 = 100;

/// The reason why a request has no result. Each text is displayed to people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The agent did not process the request.
    #[error("{0}")]
    Unsent(String),
    /// The agent may have processed the request.
    #[error("{0}")]
    Lost(String),
    /// The agent does not know the task or the context.
    #[error("{0}")]
    NotFound(String),
    /// The agent does not accept the token, or needs one.
    #[error("{0}")]
    Unauthenticated(String),
    /// The agent rejected the request.
    #[error("{0}")]
    Refused(String),
}

impl Fault {
    /// Returns whether a request that only reads may succeed when it is sent again.
    pub(super) const fn is_transient(&self) -> bool {
        matches!(self, Self::Unsent(_) | Self::Lost(_))
    }
}

/// How to send requests to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    binding: A2aBinding,
    path: String,
    tenant: String,
    pub(super) streams: bool,
}

/// A request.
#[derive(Clone, Copy)]
pub(super) enum Operation<'a> {
    Send(&'a SendMessageRequest),
    Stream(&'a SendMessageRequest),
    Get(&'a str),
    Cancel(&'a str),
    Subscribe(&'a str),
}

/// The response to a request.
pub(super) enum Reply {
    Value(Box<Payload>),
    Events(Events),
}

/// A client of one remote agent.
#[derive(Clone, Debug)]
pub(super) struct Client {
    url: Uri,
    token: Option<ShownToken>,
    files: ClientFiles,
}

impl Client {
    pub(super) fn new(program: &A2aProgram) -> Self {
        Self {
            url: program.url.clone(),
            token: program.token.clone(),
            files: ClientFiles {
                authorities: program.authorities.clone(),
                identity: None,
            },
        }
    }

    /// Returns the agent's host and port for display.
    pub(super) fn authority(&self) -> &str {
        self.url.authority().map_or("", |authority| authority.as_str())
    }

    /// Reads the agent's card and selects the interface.
    pub(super) async fn interface(&self, wanted: Option<A2aBinding>) -> Result<Interface, Fault> {
        let path = format!("{}{CARD}", self.url.path().trim_end_matches('/'));
        let response = self.exchange(Method::GET, &path, None, false, ANSWER_WITHIN).await?;
        let value = read(response, MAX_CARD_BYTES, ANSWER_WITHIN).await?;
        let card = json::parse(value).map_err(|error| Fault::Refused(format!("its card is malformed: {error}")))?;
        select(&card, &self.url, wanted).map_err(Fault::Refused)
    }

    /// Executes an operation.
    pub(super) async fn call(&self, interface: &Interface, operation: Operation<'_>) -> Result<Reply, Fault> {
        let (method, path, body) = encode(interface, operation).map_err(Fault::Refused)?;
        let streams = matches!(operation, Operation::Stream(_) | Operation::Subscribe(_));
        let within = match operation {
            Operation::Send(_) | Operation::Stream(_) => SEND_WITHIN,
            Operation::Get(_) | Operation::Cancel(_) | Operation::Subscribe(_) => ANSWER_WITHIN,
        };
        let response = self.exchange(method, &path, body, streams, within).await?;
        let media_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        if streams && media_type.is_some_and(|media_type| media_type.starts_with("text/event-stream")) {
            return Ok(Reply::Events(Events {
                binding: interface.binding,
                body: response.into_body(),
                parser: SseParser::default(),
                ready: VecDeque::new(),
            }));
        }
        let value = result(interface.binding, read(response, MAX_RESPONSE_BYTES, within).await?)?;
        let payload = match operation {
            Operation::Get(_) | Operation::Cancel(_) => json::parse::<Task>(value).ok().map(Payload::Task),
            Operation::Send(_) | Operation::Stream(_) | Operation::Subscribe(_) => payload(value),
        };
        payload
            .map(|payload| Reply::Value(Box::new(payload)))
            .ok_or_else(|| Fault::Refused("it sent a response that is not one of A2A 1.0".to_owned()))
    }

    /// Sends a request and returns its response, of which only the head has been read. Every status other than a
    /// success is an error.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        streams: bool,
        within: Duration,
    ) -> Result<Response<Incoming>, Fault> {
        let mut request = Request::new(Full::new(match &body {
            Some(body) => Bytes::from(body.to_string()),
            None => Bytes::new(),
        }));
        *request.method_mut() = method;
        *request.uri_mut() = path
            .parse()
            .map_err(|_| Fault::Refused(format!("its path {path:?} is invalid")))?;
        *request.headers_mut() = self.headers(body.is_some(), streams).await;
        let exchanged = timeout(within, exchange(&self.url, &self.files, request)).await;
        let response = match exchanged {
            Ok(Ok(response)) => response,
            Ok(Err(ExchangeError::Unconnected(why))) => return Err(Fault::Unsent(why)),
            Ok(Err(ExchangeError::Lost(why))) => return Err(Fault::Lost(why)),
            Err(_) => return Err(Fault::Lost(format!("it did not respond within {within:?}"))),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        if let (true, Some(location)) = (status.is_redirection(), location) {
            return Err(Fault::Refused(format!(
                "it redirects to {:?}, which is not followed; set that as its url if you trust it",
                one_line(location, MAX_ERROR_CHARS)
            )));
        }
        let value = read(response, MAX_CARD_BYTES, ANSWER_WITHIN).await.unwrap_or_default();
        Err(self.fault_of(status, &error_text(&value)))
    }

    /// Returns the headers of a request. A header that cannot be formed is left out.
    async fn headers(&self, has_body: bool, streams: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let accepted = if streams {
            "text/event-stream"
        } else {
            "application/json"
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accepted));
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("troupe/", env!("CARGO_PKG_VERSION"))),
        );
        if let Ok(host) = HeaderValue::from_str(self.authority()) {
            headers.insert(HOST, host);
        }
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for token in self.secrets().await {
            if let Ok(mut value) = HeaderValue::try_from(format!("Bearer {token}")) {
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
        }
        headers
    }

    /// Returns the token, if one is configured.
    pub(super) async fn secrets(&self) -> Vec<String> {
        let Some(token) = self.token.clone() else {
            return Vec::new();
        };
        let read = spawn_blocking(move || token.present().expose().to_owned()).await;
        read.into_iter().collect()
    }

    fn fault_of(&self, status: StatusCode, text: &str) -> Fault {
        let text = format!("it answered {status} {text}").trim_end().to_owned();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Fault::Unauthenticated(match self.token {
                Some(_) => format!("it does not accept the token in token_file: {text}"),
                None => format!("it asks for authentication; set its token_file: {text}"),
            }),
            StatusCode::NOT_FOUND => Fault::NotFound(text),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Fault::Unsent(text),
            _ if status.is_server_error() => Fault::Lost(text),
            _ => Fault::Refused(text),
        }
    }
}

/// Reads the body of a response as JSON.
async fn read(response: Response<Incoming>, most: usize, within: Duration) -> Result<Value, Fault> {
    let body = match timeout(within, Limited::new(response.into_body(), most).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(Fault::Refused(format!("its response has over {most} bytes")));
        }
        Ok(Err(error)) => return Err(Fault::Lost(format!("its response is incomplete: {error}"))),
        Err(_) => return Err(Fault::Lost(format!("it did not respond within {within:?}"))),
    };
    serde_json::from_slice(&body).map_err(|error| Fault::Refused(format!("its response is not JSON: {error}")))
}

/// Removes the token from a text.
pub(super) fn redacted(text: &str, secrets: &[String]) -> String {
    redact::text(&one_line(text, 2 * MAX_ERROR_CHARS), secrets)
}

/// Returns the scheme, host and port of a URL.
fn origin(url: &Uri) -> Option<(String, String, u16)> {
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let port = url.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, url.host()?.to_ascii_lowercase(), port))
}

/// Selects an interface of a card, JSON-RPC first. Interfaces on other servers are not used, because they must not
/// receive the token.
fn select(card: &AgentCard, url: &Uri, wanted: Option<A2aBinding>) -> Result<Interface, String> {
    let streams = card
        .capabilities
        .as_ref()
        .is_some_and(|capabilities| capabilities.streaming());
    let bindings = match wanted {
        Some(binding) => vec![binding],
        None => vec![A2aBinding::JsonRpc, A2aBinding::HttpJson],
    };
    for binding in &bindings {
        for offered in &card.supported_interfaces {
            let Ok(at) = offered.url.parse::<Uri>() else { continue };
            let version = offered.protocol_version.as_str();
            let is_known = version.is_empty() || version == "1" || version.starts_with("1.");
            if offered.protocol_binding == binding.name() && is_known && origin(&at) == origin(url) {
                return Ok(Interface {
                    binding: *binding,
                    path: at.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
                    tenant: offered.tenant.clone(),
                    streams,
                });
            }
        }
    }
    let names: Vec<&str> = bindings.iter().map(|binding| binding.name()).collect();
    let offers = card.supported_interfaces.iter().take(8);
    let offers: Vec<String> = offers
        .map(|offered| {
            format!(
                "{} {} at {}",
                offered.protocol_binding, offered.protocol_version, offered.url
            )
        })
        .collect();
    Err(format!(
        "its card has no interface of A2A 1.0 by {} at {}://{}, but: {}",
        names.join(" or "),
        url.scheme_str().unwrap_or_default(),
        url.authority().map_or("", |authority| authority.as_str()),
        if offers.is_empty() {
            "none".to_owned()
        } else {
            one_line(&offers.join(", "), MAX_ERROR_CHARS)
        }
    ))
}

/// Returns the method, the path and the body of a request.
fn encode(interface: &Interface, operation: Operation<'_>) -> Result<(Method, String, Option<Value>), String> {
    let message = |request: &SendMessageRequest| json::to_value(request).map_err(|error| error.to_string());
    if interface.binding == A2aBinding::JsonRpc {
        let (method, mut params) = match operation {
            Operation::Send(request) => ("SendMessage", message(request)?),
            Operation::Stream(request) => ("SendStreamingMessage", message(request)?),
            Operation::Get(id) => ("GetTask", json!({"id": id, "historyLength": HISTORY})),
            Operation::Cancel(id) => ("CancelTask", json!({"id": id})),
            Operation::Subscribe(id) => ("SubscribeToTask", json!({"id": id})),
        };
        if !interface.tenant.is_empty() {
            params["tenant"] = interface.tenant.as_str().into();
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        return Ok((Method::POST, interface.path.clone(), Some(body)));
    }
    let mut base = interface.path.trim_end_matches('/').to_owned();
    if !interface.tenant.is_empty() {
        base = format!("{base}/{}", escaped(&interface.tenant));
    }
    Ok(match operation {
        Operation::Send(request) => (Method::POST, format!("{base}/message:send"), Some(message(request)?)),
        Operation::Stream(request) => (Method::POST, format!("{base}/message:stream"), Some(message(request)?)),
        Operation::Get(id) => {
            let path = format!("{base}/tasks/{}?historyLength={HISTORY}", escaped(id));
            (Method::GET, path, None)
        }
        Operation::Cancel(id) => (
            Method::POST,
            format!("{base}/tasks/{}:cancel", escaped(id)),
            Some(json!({})),
        ),
        Operation::Subscribe(id) => (Method::GET, format!("{base}/tasks/{}:subscribe", escaped(id)), None),
    })
}

/// Returns a text, escaped as a segment of a path.
fn escaped(text: &str) -> String {
    percent_encoded(text.as_bytes(), b"-_~")
}

/// Returns the result of a response, or its error.
fn result(binding: A2aBinding, mut value: Value) -> Result<Value, Fault> {
    if value.get("error").is_some_and(|error| !error.is_null()) {
        let text = format!("it answered with an error: {}", error_text(&value));
        let is_not_found = value["error"]["code"] == -32001 || value["error"]["code"] == 404;
        return Err(if is_not_found {
            Fault::NotFound(text)
        } else {
            Fault::Refused(text)
        });
    }
    Ok(match binding {
        A2aBinding::JsonRpc => value["result"].take(),
        A2aBinding::HttpJson => value,
    })
}

/// Returns the text of an error object.
fn error_text(value: &Value) -> String {
    let text = value["error"]["message"].as_str().unwrap_or_default();
    one_line(text, MAX_ERROR_CHARS)
}

fn payload(value: Value) -> Option<Payload> {
    json::parse::<StreamResponse>(value).ok()?.payload
}

/// Returns the update of an event. `None`: a newer release defined this kind of event.
fn decode(binding: A2aBinding, event: &[u8]) -> Result<Option<Payload>, Fault> {
    let value = serde_json::from_slice(event)
        .map_err(|error| Fault::Refused(format!("it sent an event that is not JSON: {error}")))?;
    Ok(payload(result(binding, value)?))
}

/// Returns the updates in the bytes of a stream, up to the first invalid event.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn updates(bytes: &[u8]) -> Vec<Payload> {
    let (mut parser, mut ready) = (SseParser::default(), VecDeque::new());
    parser.push(bytes, &mut ready);
    let decoded = ready.iter().map_while(|event| decode(A2aBinding::JsonRpc, event).ok());
    decoded.flatten().collect()
}

/// The server-sent events of a response.
pub(super) struct Events {
    binding: A2aBinding,
    body: Incoming,
    parser: SseParser,
    ready: VecDeque<Vec<u8>>,
}

impl Events {
    /// Returns the next event. `None`: the stream has ended. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Payload>, Fault> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if let Some(payload) = decode(self.binding, &event)? {
                    return Ok(Some(payload));
                }
            }
            let frame = match timeout(SILENT_WITHIN, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(Fault::Lost(format!("its stream broke: {error}"))),
                Ok(None) => return Ok(None),
                Err(_) => return Err(Fault::Lost(format!("its stream was silent for {SILENT_WITHIN:?}"))),
            };
            if let Ok(bytes) = frame.into_data()
                && !self.parser.push(&bytes, &mut self.ready)
            {
                return Err(Fault::Refused(format!(
                    "it sent an event of over {MAX_RESPONSE_BYTES} bytes"
                )));
            }
        }
    }
}

/// Splits a stream into the data of its events.
#[derive(Debug, Default)]
struct SseParser {
    line: Vec<u8>,
    data: Vec<u8>,
}

impl SseParser {
    /// Adds bytes. Returns false if an event is too long.
    fn push(&mut self, bytes: &[u8], ready: &mut VecDeque<Vec<u8>>) -> bool {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() + self.data.len() > MAX_RESPONSE_BYTES {
                return false;
            }
            if !piece.ends_with(b"\n") {
                return true;
            }
            let line = std::mem::take(&mut self.line);
            let line = line.trim_ascii_end();
            if line.is_empty() {
                if !self.data.is_empty() {
                    ready.push_back(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                self.data.extend_from_slice(data);
                self.data.push(b'\n');
            }
        }
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use a2a_proto::{AgentCapabilities, AgentInterface};

    use super::*;

    fn card(interfaces: &[(&str, &str, &str)]) -> AgentCard {
        let interface = |(binding, version, url): &(&str, &str, &str)| AgentInterface {
            url: (*url).to_owned(),
            protocol_binding: (*binding).to_owned(),
            protocol_version: (*version).to_owned(),
            tenant: String::new(),
        };
        AgentCard {
            supported_interfaces: interfaces.iter().map(interface).collect(),
            capabilities: Some(AgentCapabilities {
                streaming: Some(true),
                ..AgentCapabilities::default()
            }),
            ..AgentCard::default()
        }
    }

    #[test]
    fn only_interfaces_of_configured_server_are_selected() {
        let url: Uri = "https://Agents.example/a".parse().unwrap();
        let offered = card(&[
            ("GRPC", "1.0", "agents.example:443"),
            ("JSONRPC", "1.0", "https://elsewhere.example/rpc"),
            ("JSONRPC", "0.3", "https://agents.example/old"),
            ("HTTP+JSON", "1.0", "https://agents.example:443/rest/"),
            ("JSONRPC", "1.0", "https://agents.example/rpc"),
        ]);
        assert_eq!(select(&offered, &url, None).unwrap().path, "/rpc");
        let rest = select(&offered, &url, Some(A2aBinding::HttpJson)).unwrap();
        assert_eq!((rest.path.as_str(), rest.streams), ("/rest/", true));
        let why = select(&card(&[("JSONRPC", "1.0", "https://elsewhere.example/")]), &url, None).unwrap_err();
        assert!(
            why.contains("at https://Agents.example") && why.contains("elsewhere.example"),
            "{why}"
        );
        assert!(
            select(&AgentCard::default(), &url, None)
                .unwrap_err()
                .ends_with("but: none")
        );
    }

    #[test]
    fn requests_are_encoded_for_each_binding() {
        let mut interface = Interface {
            binding: A2aBinding::JsonRpc,
            path: "/rpc?x=1".to_owned(),
            tenant: "t/1".to_owned(),
            streams: true,
        };
        let (method, path, body) = encode(&interface, Operation::Get("a/../b")).unwrap();
        assert_eq!((method, path.as_str()), (Method::POST, "/rpc?x=1"));
        let expected = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask",
                              "params": {"id": "a/../b", "historyLength": HISTORY, "tenant": "t/1"}});
        assert_eq!(body, Some(expected));
        interface.binding = A2aBinding::HttpJson;
        interface.path = "/rest/".to_owned();
        let path = |operation| encode(&interface, operation).unwrap().1;
        assert_eq!(
            path(Operation::Get("a/../b")),
            "/rest/t%2F1/tasks/a%2F%2E%2E%2Fb?historyLength=100"
        );
        assert_eq!(path(Operation::Cancel("a")), "/rest/t%2F1/tasks/a:cancel");
        assert_eq!(
            path(Operation::Stream(&SendMessageRequest::default())),
            "/rest/t%2F1/message:stream"
        );
    }

    #[test]
    fn events_are_split_and_bounded() {
        let mut parser = SseParser::default();
        let mut ready = VecDeque::new();
        for piece in ["id: 1\r\nda", "ta: {\"a\":\r\ndata: 1}\r\n\r", "\n: ping\n\ndata:2\n\n"] {
            assert!(parser.push(piece.as_bytes(), &mut ready));
        }
        let values: Vec<Value> = ready.iter().map(|data| serde_json::from_slice(data).unwrap()).collect();
        assert_eq!(values, [json!({"a": 1}), json!(2)]);
        let endless = vec![b'x'; MAX_RESPONSE_BYTES];
        assert!(parser.push(&endless, &mut ready));
        assert!(!parser.push(b"x", &mut ready));
    }

    #[test]
    fn errors_of_both_bindings_are_classified() {
        let rpc = |code: i64| json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no\nsuch"}});
        let text = "it answered with an error: no such".to_owned();
        assert_eq!(
            result(A2aBinding::JsonRpc, rpc(-32001)),
            Err(Fault::NotFound(text.clone()))
        );
        assert_eq!(result(A2aBinding::JsonRpc, rpc(-32004)), Err(Fault::Refused(text)));
        assert_eq!(
            result(A2aBinding::JsonRpc, json!({"result": {"id": 1}})),
            Ok(json!({"id": 1}))
        );
        assert_eq!(result(A2aBinding::HttpJson, json!({"id": 1})), Ok(json!({"id": 1})));
    }
}
