//! Calls of the Kubernetes API server.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{
    Method, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};
use tokio::{fs, time::timeout};
use troupe_client::tls::ClientFiles;

use super::{PodsError, read};
use crate::http_client;

/// Maximum size of a response, in bytes: a pod has about 10 KiB.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Time limit of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server was not reached, or its response is not usable.
    #[error("the API server at {server}: {problem}")]
    Unavailable {
        /// The URL of the server.
        server: Uri,
        /// The reason.
        problem: String,
    },
    /// The server rejected the call.
    #[error("the API server rejects {call}: {status} {message}")]
    Refused {
        /// The method and the path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The server's explanation.
        message: String,
    },
    /// A claim cannot get a pod.
    #[error("SandboxClaim {claim} gets no pod: {reason}: {message}")]
    NoPod {
        /// The claim's name.
        claim: String,
        /// The reason, as agent-sandbox gives it.
        reason: String,
        /// agent-sandbox's explanation.
        message: String,
    },
}

/// The kind of object that is created for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pod,
    /// A claim of agent-sandbox, which creates the pod.
    SandboxClaim,
}

impl Kind {
    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Pod => "v1",
            Self::SandboxClaim => "extensions.agents.x-k8s.io/v1beta1",
        }
    }
}

/// A client of the API server with an account of one namespace.
pub(super) struct Api {
    server: Uri,
    files: ClientFiles,
    /// The file with the account's token. Kubernetes renews the token.
    token: PathBuf,
    namespace: String,
}

impl Api {
    /// Returns a client with the files of an account: `token`, `ca.crt` and `namespace`.
    pub(super) fn new(server: Uri, account: &Path) -> Result<Self, PodsError> {
        Ok(Self {
            server,
            files: ClientFiles {
                authorities: Some(account.join("ca.crt")),
                identity: None,
            },
            token: account.join("token"),
            namespace: read(&account.join("namespace"))?.trim().to_owned(),
        })
    }

    pub(super) async fn deployment(&self, name: &str) -> Result<Value, ApiError> {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/{name}", self.namespace);
        self.call(Method::GET, &path, None).await
    }

    /// Returns the objects of a kind with a label: `KEY=VALUE`, or `KEY` for any value.
    pub(super) async fn list(&self, kind: Kind, label: &str) -> Result<Vec<Value>, ApiError> {
        let path = format!("{}?labelSelector={label}", self.path(kind));
        let mut list = self.call(Method::GET, &path, None).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err(self.unavailable(format!("its list at {path} has no items"))),
        }
    }

    pub(super) async fn create(&self, kind: Kind, object: &Value) -> Result<(), ApiError> {
        self.call(Method::POST, &self.path(kind), Some(object)).await.map(drop)
    }

    /// Deletes an object, if it exists. A claim continues to exist until its pod has ended.
    pub(super) async fn delete(&self, kind: Kind, name: &str) -> Result<(), ApiError> {
        let path = format!("{}/{name}", self.path(kind));
        let options = match kind {
            Kind::Pod => json!({}),
            Kind::SandboxClaim => json!({"propagationPolicy": "Foreground"}),
        };
        match self.call(Method::DELETE, &path, Some(&options)).await {
            Err(ApiError::Refused { status: 404, .. }) => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    fn path(&self, kind: Kind) -> String {
        let (prefix, plural) = match kind {
            Kind::Pod => ("api", "pods"),
            Kind::SandboxClaim => ("apis", "sandboxclaims"),
        };
        format!(
            "/{prefix}/{}/namespaces/{}/{plural}",
            kind.api_version(),
            self.namespace
        )
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        match timeout(CALL_TIMEOUT, self.exchange(method, path, body)).await {
            Ok(answered) => answered,
            Err(_) => Err(self.unavailable(format!("no response within {CALL_TIMEOUT:?}"))),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let token = fs::read_to_string(&self.token).await;
        let token =
            token.map_err(|error| self.unavailable(format!("cannot read {}: {error}", self.token.display())))?;
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let call = format!("{method} {path}");
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.server.authority().map_or("", |authority| authority.as_str()))
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| self.unavailable(format!("the request cannot be sent: {error}")))?;
        let response = http_client::exchange(&self.server, &self.files, request).await;
        let (head, body) = response
            .map_err(|error| self.unavailable(error.to_string()))?
            .into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|error| self.unavailable(format!("its response cannot be read: {error}")))?;
        let answer: Result<Value, _> = serde_json::from_slice(&body.to_bytes());
        if head.status.is_success() {
            return answer.map_err(|error| self.unavailable(format!("its response is not JSON: {error}")));
        }
        let message = answer
            .ok()
            .and_then(|answer| answer["message"].as_str().map(str::to_owned));
        Err(ApiError::Refused {
            call,
            status: head.status.as_u16(),
            message: message.unwrap_or_default(),
        })
    }

    fn unavailable(&self, problem: String) -> ApiError {
        ApiError::Unavailable {
            server: self.server.clone(),
            problem,
        }
    }
}
