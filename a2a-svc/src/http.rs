//! The JSON-RPC and HTTP+JSON bindings, and the agent cards.
//!
//! | path | response |
//! |---|---|
//! | `/.well-known/agent-card.json` | the card of the default agent |
//! | `/a2a/ID/.well-known/agent-card.json` | the card of the agent with this id |
//! | `POST /`, `POST /a2a/ID` | JSON-RPC |
//! | `/message:send`, `/a2a/ID/message:send`, ... | HTTP+JSON |

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::StreamExt as _;
use http::{
    Extensions, HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED, ORIGIN,
        WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::{
    error::{Error, Kind, Result, cut},
    gateway::{Call, Entry, Gateway, Responses},
    grpc::{AFTER_HEADER, VERSION_HEADER, check_version, parse_after},
    json,
    metrics::Binding,
    pb::{
        CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
        GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
        ListTasksRequest, ListTasksResponse, SendMessageRequest, StreamResponse, SubscribeToTaskRequest,
        TaskPushNotificationConfig, TaskState,
    },
    render::SEQUENCE_EXTENSION,
};

/// Maximum size of a body. A message has at most 1 MiB of text, which JSON escapes.
pub(crate) const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;
/// Time limit for the body of a request.
pub(crate) const BODY_WITHIN: Duration = Duration::from_secs(30);
/// Interval of comments on a stream without updates. The comments detect readers that have disconnected.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The media type of JSON.
const JSON: &str = "application/json";
/// The media type of the protocol's JSON.
const A2A_JSON: &str = "application/a2a+json";
/// The header `cache-control` of cards.
const CARD_CACHE: &str = "public, max-age=60";
/// The header with the extensions of the protocol.
const EXTENSIONS_HEADER: &str = "a2a-extensions";

/// Handles a request.
pub(crate) async fn handle(gateway: Arc<Gateway>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let (tenant, rest) = match path.strip_prefix("/a2a/") {
        Some(rest) => match rest.split_once('/') {
            Some((tenant, rest)) => (tenant.to_owned(), rest.to_owned()),
            None => (rest.to_owned(), String::new()),
        },
        None => (String::new(), path.trim_start_matches('/').to_owned()),
    };
    let mut exchange = Exchange {
        gateway,
        method: parts.method,
        headers: parts.headers,
        extensions: parts.extensions,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        tenant,
    };
    let mut response = match rest.as_str() {
        ".well-known/agent-card.json" => exchange.card().await,
        "" => exchange.json_rpc(body).await,
        rest => exchange.rest(rest, body).await,
    };
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A request.
struct Exchange {
    gateway: Arc<Gateway>,
    method: Method,
    headers: HeaderMap,
    extensions: Extensions,
    query: String,
    tenant: String,
}

/// The outcome of an operation.
enum Answer {
    Value(Value),
    Stream(Responses),
}

impl Exchange {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the media type of the request's body.
    fn media_type(&self) -> &str {
        let text = self.header(CONTENT_TYPE.as_str()).unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim()
    }

    /// Authenticates the request.
    fn enter(&self) -> Result<Entry> {
        // A browser sends the header `origin` with requests of other sites. Without this check, other sites could use
        // the agents of a caller that needs no token.
        let authorization = self
            .headers
            .get(AUTHORIZATION)
            .map(|value| value.to_str().unwrap_or_default());
        if authorization.is_none() && self.headers.contains_key(ORIGIN) {
            return Err(Error::new(Kind::PermissionDenied, "requests of browsers need a token"));
        }
        self.gateway.enter(authorization, &self.extensions)
    }

    /// Checks the version and the agent of a request.
    fn admit(&self, entry: Entry, tenant: &str) -> Result<Call> {
        if tenant != self.tenant && !self.tenant.is_empty() && !tenant.is_empty() {
            return Err(Error::invalid_params(
                "tenant",
                format!("the tenant {:?} is not the agent of this URL", cut(tenant)),
            ));
        }
        let query = query_of(&self.query);
        let version = self
            .header(VERSION_HEADER)
            .or_else(|| query.get("A2A-Version").map(String::as_str));
        check_version(version)?;
        let after = self.header(AFTER_HEADER).or_else(|| self.header("last-event-id"));
        let tenant = if self.tenant.is_empty() { tenant } else { &self.tenant };
        self.gateway.admit(entry, tenant, parse_after(after)?)
    }

    /// Authenticates the request, then reads its body.
    async fn open(&self, body: Body) -> Result<(Entry, Value)> {
        let entry = self.enter()?;
        Ok((entry, self.body(body).await?))
    }

    /// Reads the body as JSON. An empty body is an empty object.
    async fn body(&self, body: Body) -> Result<Value> {
        let bytes = match timeout(BODY_WITHIN, to_bytes(body, MAX_BODY_BYTES)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => {
                return Err(Error::new(
                    Kind::TooLarge,
                    format!("the body is incomplete or has more than {MAX_BODY_BYTES} bytes"),
                ));
            }
            Err(_) => return Err(Error::new(Kind::InvalidRequest, "the body did not arrive in time")),
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Object(Map::new()));
        }
        // An HTML form of another site cannot send these types.
        if ![JSON, A2A_JSON].contains(&self.media_type().to_ascii_lowercase().as_str()) {
            return Err(Error::new(
                Kind::ContentTypeNotSupported,
                format!(
                    "the body has the type {:?}; send {JSON} or {A2A_JSON}",
                    cut(self.media_type())
                ),
            ));
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::new(Kind::Parse, format!("the body is not JSON: {error}")))
    }

    /// Returns the agent card.
    async fn card(&self) -> Response {
        if self.method != Method::GET && self.method != Method::HEAD {
            return self.rest_error(&method_not_allowed());
        }
        let Some(agent) = self.gateway.agent(&self.tenant) else {
            let error = Error::new(Kind::NotFound, format!("no agent {:?}", cut(&self.tenant)));
            return self.rest_error(&error);
        };
        let text = match json::to_value(&self.gateway.card(&agent).await) {
            Ok(card) => card.to_string(),
            Err(error) => return self.rest_error(&error),
        };
        let digest = base16ct::lower::encode_string(&Sha256::digest(text.as_bytes()));
        let tag = format!("\"{}\"", digest.get(..32).unwrap_or_default());
        let is_known = self
            .header(IF_NONE_MATCH.as_str())
            .is_some_and(|known| known.split(',').any(|known| known.trim() == tag || known.trim() == "*"));
        let since = self.gateway.cards.first_seen(&agent.id, &tag, SystemTime::now());
        let mut response = match is_known {
            true => status_only(StatusCode::NOT_MODIFIED),
            false => json_response(StatusCode::OK, JSON, text),
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(CARD_CACHE));
        for (name, text) in [(ETAG, tag), (LAST_MODIFIED, httpdate::fmt_http_date(since))] {
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(name, value);
            }
        }
        response
    }

    // JSON-RPC.

    async fn json_rpc(&mut self, body: Body) -> Response {
        if self.method != Method::POST {
            return self.rest_error(&method_not_allowed());
        }
        let (id, answer) = match self.open(body).await {
            Ok((entry, request)) => self.json_rpc_call(entry, request).await,
            Err(error) => (Value::Null, Err(error)),
        };
        self.gateway.metrics.called(Binding::JsonRpc, answer.as_ref().err());
        match answer {
            Ok(Answer::Value(result)) => {
                let response = json!({ "jsonrpc": "2.0", "id": id, "result": result });
                json_response(StatusCode::OK, JSON, response.to_string())
            }
            Ok(Answer::Stream(responses)) => events(responses, move |response| match response {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.to_json_rpc() }),
            }),
            Err(error) => {
                let response = json!({ "jsonrpc": "2.0", "id": id, "error": error.to_json_rpc() });
                // Proxies and clients react to these statuses.
                let status = match error.kind {
                    Kind::Unauthenticated
                    | Kind::PermissionDenied
                    | Kind::RateLimited
                    | Kind::Unavailable
                    | Kind::TooLarge => error.http_status(),
                    _ => StatusCode::OK,
                };
                let mut response = json_response(status, JSON, response.to_string());
                challenge(&error, response.headers_mut());
                response
            }
        }
    }

    async fn json_rpc_call(&self, entry: Entry, request: Value) -> (Value, Result<Answer>) {
        let invalid = |message: &str| Err(Error::new(Kind::InvalidRequest, message));
        let Value::Object(mut request) = request else {
            return (
                Value::Null,
                invalid("a JSON-RPC request must be an object; batches are not part of the protocol"),
            );
        };
        let id = request.remove("id").unwrap_or(Value::Null);
        if !matches!(id, Value::String(_) | Value::Number(_) | Value::Null) {
            return (Value::Null, invalid("the id of a request must be a string or a number"));
        }
        if request.get("jsonrpc") != Some(&Value::from("2.0")) {
            return (id, invalid("`jsonrpc` must be \"2.0\""));
        }
        let Some(Value::String(method)) = request.remove("method") else {
            return (id, invalid("`method` must be a string"));
        };
        let params = request.remove("params").unwrap_or_else(|| json!({}));
        if !params.is_object() {
            let error = Error::invalid_params("params", "`params` must be an object");
            return (id, Err(error));
        }
        let answer = Box::pin(self.call_method(entry, &method, params)).await;
        (id, answer)
    }

    async fn call_method(&self, entry: Entry, method: &str, params: Value) -> Result<Answer> {
        let tenant = params.get("tenant").and_then(Value::as_str).unwrap_or_default();
        let call = self.admit(entry, tenant)?;
        let gateway = &self.gateway;
        match method {
            "SendMessage" => value(&gateway.send(&call, json::parse(params)?).await?),
            "SendStreamingMessage" => {
                let request: SendMessageRequest = json::parse(params)?;
                Ok(Answer::Stream(gateway.send_streaming(call, request).await?))
            }
            "GetTask" => value(&gateway.get(&call, json::parse(params)?).await?),
            "ListTasks" => tasks(&gateway.list(&call, list_request(params)?).await?),
            "CancelTask" => value(&gateway.cancel(&call, json::parse(params)?).await?),
            "SubscribeToTask" => {
                let request: SubscribeToTaskRequest = json::parse(params)?;
                Ok(Answer::Stream(gateway.subscribe(call, &request.id).await?))
            }
            "CreateTaskPushNotificationConfig" => value(&gateway.create_push(&call, json::parse(params)?).await?),
            "GetTaskPushNotificationConfig" => {
                let request: GetTaskPushNotificationConfigRequest = json::parse(params)?;
                value(&gateway.get_push(&call, &request.task_id, &request.id).await?)
            }
            "ListTaskPushNotificationConfigs" => {
                let request: ListTaskPushNotificationConfigsRequest = json::parse(params)?;
                configs(&gateway.list_push(&call, &request.task_id).await?)
            }
            "DeleteTaskPushNotificationConfig" => {
                let request: DeleteTaskPushNotificationConfigRequest = json::parse(params)?;
                gateway.delete_push(&call, &request.task_id, &request.id).await?;
                Ok(Answer::Value(json!({})))
            }
            "GetExtendedAgentCard" => value(&gateway.extended_card(&call).await),
            _ => Err(Error::new(
                Kind::MethodNotFound,
                format!("unknown method {:?}", cut(method)),
            )),
        }
    }

    // HTTP+JSON.

    async fn rest(&mut self, path: &str, body: Body) -> Response {
        let answer = match self.open(body).await {
            Ok((entry, body)) => Box::pin(self.rest_call(entry, path, body)).await,
            Err(error) => Err(error),
        };
        self.gateway.metrics.called(Binding::HttpJson, answer.as_ref().err());
        match answer {
            Ok(Answer::Value(value)) => json_response(StatusCode::OK, self.response_type(), value.to_string()),
            Ok(Answer::Stream(responses)) => events(responses, |response| match response {
                Ok(value) => value,
                Err(error) => error.to_http(),
            }),
            Err(error) => self.rest_error(&error),
        }
    }

    async fn rest_call(&self, entry: Entry, path: &str, mut body: Value) -> Result<Answer> {
        let segments: Vec<String> = path.split('/').map(decode).collect();
        let mut segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let is_operation =
            |first: &str| matches!(first, "message:send" | "message:stream" | "tasks" | "extendedAgentCard");
        let mut tenant = "";
        if segments.len() > 1 && segments.first().is_some_and(|first| !is_operation(first)) {
            tenant = segments.remove(0);
        }
        let from_body = body
            .get("tenant")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let query = query_of(&self.query);
        let call = self.admit(
            entry,
            match (tenant, query.get("tenant")) {
                ("", Some(tenant)) => tenant,
                ("", None) => &from_body,
                (tenant, _) => tenant,
            },
        )?;
        let gateway = &self.gateway;
        let method = self.method.as_str();
        match (method, segments.as_slice()) {
            ("POST", ["message:send"]) => value(&gateway.send(&call, json::parse(body)?).await?),
            ("POST", ["message:stream"]) => {
                let request: SendMessageRequest = json::parse(body)?;
                Ok(Answer::Stream(gateway.send_streaming(call, request).await?))
            }
            ("GET", ["tasks"]) => {
                let request = list_request(typed(
                    &query,
                    &[
                        ("contextId", Type::Text),
                        ("status", Type::Text),
                        ("pageSize", Type::Number),
                        ("pageToken", Type::Text),
                        ("historyLength", Type::Number),
                        ("statusTimestampAfter", Type::Text),
                        ("includeArtifacts", Type::Bool),
                    ],
                )?)?;
                tasks(&gateway.list(&call, request).await?)
            }
            ("POST", ["tasks", task]) if task.ends_with(":cancel") => {
                let id = task.trim_end_matches(":cancel");
                let mut request: CancelTaskRequest = json::parse(body)?;
                request.id = id.to_owned();
                value(&gateway.cancel(&call, request).await?)
            }
            // The proto file says GET, section 11.3 POST.
            ("GET" | "POST", ["tasks", task]) if task.ends_with(":subscribe") => {
                let id = task.trim_end_matches(":subscribe").to_owned();
                Ok(Answer::Stream(gateway.subscribe(call, &id).await?))
            }
            ("GET", ["tasks", id]) => {
                let mut request: GetTaskRequest = json::parse(typed(&query, &[("historyLength", Type::Number)])?)?;
                request.id = (*id).to_owned();
                value(&gateway.get(&call, request).await?)
            }
            ("POST", ["tasks", task, "pushNotificationConfigs"]) => {
                if let Value::Object(fields) = &mut body {
                    fields.insert(String::from("taskId"), Value::from(*task));
                }
                let config: TaskPushNotificationConfig = json::parse(body)?;
                value(&gateway.create_push(&call, config).await?)
            }
            ("GET", ["tasks", task, "pushNotificationConfigs"]) => configs(&gateway.list_push(&call, task).await?),
            ("GET", ["tasks", task, "pushNotificationConfigs", id]) => value(&gateway.get_push(&call, task, id).await?),
            ("DELETE", ["tasks", task, "pushNotificationConfigs", id]) => {
                gateway.delete_push(&call, task, id).await?;
                Ok(Answer::Value(json!({})))
            }
            ("GET", ["extendedAgentCard"]) => value(&gateway.extended_card(&call).await),
            _ => Err(Error::new(
                Kind::MethodNotFound,
                format!("no operation {} {:?}", self.method, cut(path)),
            )),
        }
    }

    /// Returns the media type of a response: plain JSON if the request has or accepts this type and does not accept the
    /// protocol's JSON, otherwise the protocol's JSON.
    fn response_type(&self) -> &'static str {
        let accepts = self.header(ACCEPT.as_str()).unwrap_or_default();
        let is_plain = self.media_type().eq_ignore_ascii_case(JSON) || accepts.contains(JSON);
        match is_plain && !accepts.contains(A2A_JSON) {
            true => JSON,
            false => A2A_JSON,
        }
    }

    fn rest_error(&self, error: &Error) -> Response {
        let mut response = json_response(error.http_status(), JSON, error.to_http().to_string());
        challenge(error, response.headers_mut());
        response
    }
}

fn method_not_allowed() -> Error {
    Error::new(Kind::MethodNotFound, "this path has no such HTTP method")
}

fn value<M: prost::Name>(message: &M) -> Result<Answer> {
    Ok(Answer::Value(json::to_value(message)?))
}

/// Parses a ListTasks request. Rejects an unknown state, which would otherwise list all tasks.
fn list_request(params: Value) -> Result<ListTasksRequest> {
    if let Some(Value::String(state)) = params.get("status")
        && TaskState::from_str_name(state).is_none()
    {
        return Err(Error::invalid_params(
            "status",
            format!("unknown task state {:?}", cut(state)),
        ));
    }
    json::parse(params)
}

/// Returns a ListTasks response with all its fields, because the protocol requires all of them.
fn tasks(response: &ListTasksResponse) -> Result<Answer> {
    let mut value = json::to_value(response)?;
    if let Value::Object(fields) = &mut value {
        fields.entry("tasks").or_insert_with(|| json!([]));
        fields.entry("nextPageToken").or_insert_with(|| json!(""));
        fields.entry("pageSize").or_insert_with(|| json!(0));
        fields.entry("totalSize").or_insert_with(|| json!(0));
    }
    Ok(Answer::Value(value))
}

/// Returns a list of configurations, even if it is empty.
fn configs(response: &ListTaskPushNotificationConfigsResponse) -> Result<Answer> {
    let mut value = json::to_value(response)?;
    if let Value::Object(fields) = &mut value {
        fields.entry("configs").or_insert_with(|| json!([]));
    }
    Ok(Answer::Value(value))
}

fn json_response(status: StatusCode, media_type: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

fn status_only(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn challenge(error: &Error, headers: &mut HeaderMap) {
    if error.kind == Kind::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
}

/// Returns a response with server-sent events. The id of an event is the position after which a subscription continues.
fn events(
    responses: Responses,
    wrap: impl Fn(std::result::Result<Value, &Error>) -> Value + Send + 'static,
) -> Response {
    let events = responses.map(move |response| {
        let (id, value) = match response.and_then(|response| Ok((position(&response), json::to_value(&response)?))) {
            Ok((id, value)) => (id, wrap(Ok(value))),
            Err(error) => (None, wrap(Err(&error))),
        };
        let event = id.map_or_else(Event::default, |id| Event::default().id(id));
        Ok::<_, Infallible>(event.data(value.to_string()))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(EXTENSIONS_HEADER, HeaderValue::from_static(SEQUENCE_EXTENSION));
    response
}

/// Returns the position of a response.
fn position(response: &StreamResponse) -> Option<String> {
    use crate::pb::stream_response::Payload;
    let metadata = match response.payload.as_ref()? {
        Payload::Task(task) => task.metadata.as_ref(),
        Payload::StatusUpdate(update) => update.metadata.as_ref(),
        Payload::ArtifactUpdate(update) => update.metadata.as_ref(),
        Payload::Message(message) => message.metadata.as_ref(),
    };
    match &metadata?.fields.get("troupe/sequence")?.kind {
        Some(prost_types::value::Kind::StringValue(text)) => Some(text.clone()),
        _ => None,
    }
}

/// The type of a query parameter.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Number,
    Bool,
}

/// Returns the known query parameters as an object.
fn typed(query: &HashMap<String, String>, fields: &[(&str, Type)]) -> Result<Value> {
    let mut object = Map::new();
    for (name, of_type) in fields {
        let Some(text) = query.get(*name).filter(|text| !text.is_empty()) else {
            continue;
        };
        let bad = || Error::invalid_params(name, format!("invalid {name} {:?}", cut(text)));
        let value = match of_type {
            Type::Text => Value::from(text.as_str()),
            Type::Number => Value::from(text.parse::<i64>().map_err(|_| bad())?),
            Type::Bool => Value::from(text.parse::<bool>().map_err(|_| bad())?),
        };
        object.insert((*name).to_owned(), value);
    }
    Ok(Value::Object(object))
}

/// Parses a query. The last value of a name counts.
fn query_of(query: &str) -> HashMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}

/// Decodes percent-encoded text. Invalid sequences stay as they are.
fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = query_of("a=1&b=x%20y+z&c&d=%zz&a=2");
        let expected = [("a", "2"), ("b", "x y z"), ("c", ""), ("d", "%zz")];
        assert_eq!(
            query,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        );
    }

    #[test]
    fn query_parameters_have_types() {
        let fields = [("n", Type::Number), ("b", Type::Bool), ("t", Type::Text)];
        let object = typed(&query_of("n=5&b=true&t=7&x=1"), &fields).unwrap();
        assert_eq!(object, json!({"n": 5, "b": true, "t": "7"}));
        assert!(typed(&query_of("n=five"), &fields).is_err());
        assert!(typed(&query_of("b=1"), &fields).is_err());
    }
}
