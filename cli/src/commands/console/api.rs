//! The gRPC-web API of the page: forwards calls with the operator's token, and serves the merged stream.

use std::{convert::Infallible, future::Future, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use svc_kit::{
    audit::{Audit, Begun, Entry},
    identity::Principal,
};
use tokio::{
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tonic::{Code, Status, body::Body};
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, ServiceExt as _, service_fn};
use troupe_proto::{
    console::v1::console_service_server::ConsoleServiceServer, fault::Fault, reason::Reason,
    supervisor::v1::ListSessionsRequest,
};

use super::{
    feed::Feeds,
    logins::Login,
    methods::{self, Service},
};
use troupe_client::{Identified, is_unauthenticated};

use crate::{error::Result, global::Global};

/// The only accepted content type of calls. An HTML form cannot send it.
pub(super) const CONTENT_TYPE: &str = "application/grpc-web+proto";
/// Maximum number of calls and streams in progress.
const MAX_CALLS: usize = 256;
/// The headers of a call that are forwarded.
const REQUEST_HEADERS: &[&str] = &["grpc-timeout", "te"];
/// The headers of a response that are forwarded.
const RESPONSE_HEADERS: &[&str] = &["content-type", "grpc-status", "grpc-message", "grpc-status-details-bin"];

/// The services behind the console.
pub(super) struct Api {
    global: Global,
    supervisor: Identified,
    /// The registry. The connection is opened by the first call, because an operator may have no access to the
    /// registry.
    registry: OnceCell<Identified>,
    feeds: ConsoleServiceServer<Feeds>,
    calls: Arc<Semaphore>,
    audit: Audit,
}

impl Api {
    /// Connects to the supervisor.
    ///
    /// # Errors
    ///
    /// Fails if the supervisor cannot be reached or rejects the token.
    pub(super) async fn connect(global: Global) -> Result<Self> {
        let supervisor = global.settings().channel(troupe_client::Service::Supervisor).await?;
        let first = ListSessionsRequest {
            page_size: 1,
            ..ListSessionsRequest::default()
        };
        supervisor.clone().supervisor().list_sessions(first).await?;
        Ok(Self {
            feeds: ConsoleServiceServer::new(Feeds::new(supervisor.clone().supervisor())),
            global,
            supervisor,
            registry: OnceCell::new(),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            audit: Audit::default(),
        })
    }

    /// Makes a call with the message `body`. The call ends when the response is dropped or the login ends.
    pub(super) async fn call(&self, path: &str, headers: &HeaderMap, body: Bytes, login: Login) -> Response<Body> {
        let mut request = Request::new(Body::new(Full::new(body)));
        *request.method_mut() = Method::POST;
        match path.parse() {
            Ok(uri) => *request.uri_mut() = uri,
            Err(_) => return refusal(Status::unimplemented("the path is not a method")),
        }
        copy(REQUEST_HEADERS, headers, request.headers_mut());
        request
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        let service = service_fn(|request| {
            let login = login.clone();
            async move { Ok::<_, Infallible>(self.answer(request, login).await.unwrap_or_else(Status::into_http)) }
        });
        match GrpcWebLayer::new().layer(service).oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Answers a gRPC call.
    async fn answer(&self, request: Request<Body>, login: Login) -> std::result::Result<Response<Body>, Status> {
        let permit = Arc::clone(&self.calls).try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_CALLS} calls of the console are in progress; close some of its pages");
            Status::from(Fault::new(Code::ResourceExhausted, Reason::Overloaded, message))
        })?;
        let audited = self.begin_audit(request.uri().path(), &login);
        let answered = self.dispatch(request, &login).await;
        if let Some(audited) = audited {
            audited.end(code_of(&answered));
        }
        Ok(answered?.map(|body| end_with(body, login_end(login), permit)))
    }

    async fn dispatch(&self, request: Request<Body>, login: &Login) -> std::result::Result<Response<Body>, Status> {
        match methods::service_of(request.uri().path(), login.access)? {
            Service::Supervisor => forward(self.supervisor.clone(), request).await,
            Service::Registry => forward(self.registry().await?, request).await,
            Service::Console => match self.feeds.clone().oneshot(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            },
        }
    }

    /// Starts the audit record of a call that changes data. Calls of named users are recorded here, because the
    /// services see only the console's own token. Returns `None` for all other calls.
    fn begin_audit(&self, path: &str, login: &Login) -> Option<Begun> {
        let user = Principal::Operator {
            name: login.user.clone()?,
            role: login.access.role(),
        };
        Some(self.audit.begin(Entry::new(methods::changing(path)?, user)?))
    }

    async fn registry(&self) -> std::result::Result<Identified, Status> {
        let settings = self.global.settings();
        let connect = || settings.channel(troupe_client::Service::Registry);
        let connected = self.registry.get_or_try_init(connect).await;
        connected
            .cloned()
            .map_err(|error| Status::unavailable(error.to_string()))
    }
}

/// Returns the response to a call that is rejected.
pub(super) fn refusal(status: Status) -> Response<Body> {
    let mut response: Response<Body> = status.into_http();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// Returns the status code of an answer. If a call fails before its first message, the code is in the headers of the
/// response.
fn code_of(answered: &std::result::Result<Response<Body>, Status>) -> Code {
    match answered {
        Ok(response) => Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code()),
        Err(status) => status.code(),
    }
}

/// Sends a call to a service.
async fn forward(channel: Identified, mut request: Request<Body>) -> std::result::Result<Response<Body>, Status> {
    *request.version_mut() = Version::HTTP_2;
    let response = channel.oneshot(request).await.map_err(Status::from_error)?;
    if is_unauthenticated(&response) {
        // With UNAUTHENTICATED, the page would ask for another login, which would not help.
        let message = "the service rejects the token of the console; start `troupe console` again with a valid token";
        return Err(Status::failed_precondition(message));
    }
    let (parts, body) = response.into_parts();
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    copy(RESPONSE_HEADERS, &parts.headers, response.headers_mut());
    Ok(response)
}

fn copy(names: &[&'static str], from: &HeaderMap, to: &mut HeaderMap) {
    for name in names.iter().copied().map(HeaderName::from_static) {
        if let Some(value) = from.get(&name) {
            to.insert(name, value.clone());
        }
    }
}

/// Waits until a login ends. Returns the status with which the calls of that login end. With a proxy, the status allows
/// a retry, because the next call of the page has a new login.
async fn login_end(login: Login) -> Status {
    tokio::select! {
        () = login.ended.cancelled() => {}
        () = sleep_until(Instant::from_std(login.expires)) => {}
    }
    match login.user {
        Some(_) => Status::unavailable("the stream has to pass the proxy again"),
        None => Fault::new(Code::Unauthenticated, Reason::Unauthenticated, "the login has ended").into(),
    }
}

/// Returns a body that forwards `body`. When `end` completes, the returned body ends with the status that `end`
/// returned. The returned body holds the permit until it ends or is dropped.
fn end_with(body: Body, end: impl Future<Output = Status> + Send + 'static, permit: OwnedSemaphorePermit) -> Body {
    let frames = stream::unfold(Some((body, Box::pin(end), permit)), |state| async {
        let (mut body, mut end, permit) = state?;
        tokio::select! {
            biased;
            status = &mut end => {
                let mut trailers = HeaderMap::new();
                let added = status.add_header(&mut trailers);
                Some((added.map(|()| Frame::trailers(trailers)), None))
            }
            frame = body.frame() => Some((frame?, Some((body, end, permit)))),
        }
    });
    Body::new(StreamBody::new(frames.fuse()))
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::commands::console::methods::Access;

    #[tokio::test]
    async fn page_behind_a_proxy_opens_its_stream_again() {
        for (user, code) in [(None, Code::Unauthenticated), (Some("ann"), Code::Unavailable)] {
            let login = Login {
                access: Access::Viewer,
                user: user.map(str::to_owned),
                expires: Instant::now().into_std(),
                ended: CancellationToken::new(),
            };
            assert_eq!(login_end(login).await.code(), code);
        }
    }
}
