//! The errors of the protocol, in the forms of its three bindings.
//!
//! The codes are those of section 5.4 of the specification at v1.0.1, which changed some codes of v1.0.0.

use std::collections::{BTreeMap, HashMap};

use http::StatusCode;
use serde_json::{Value, json};
use svc_kit::rpc::code_name;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use troupe_proto::fault;

/// `ErrorInfo.domain` of the protocol's own errors.
const A2A_DOMAIN: &str = "a2a-protocol.org";
/// `ErrorInfo.domain` of all other errors.
const TROUPE_DOMAIN: &str = troupe_proto::reason::DOMAIN;

/// A result of an operation.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The task does not exist, or belongs to another caller.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// The operation does not fit the state of the task.
    UnsupportedOperation,
    /// A part of the message has a media type that the agent does not accept.
    ContentTypeNotSupported,
    /// The version of the protocol is not 1.0.
    VersionNotSupported,
    /// A field of the request is invalid.
    InvalidParams,
    /// The body is not JSON.
    Parse,
    /// The body is not a JSON-RPC request.
    InvalidRequest,
    /// No such method or path.
    MethodNotFound,
    /// No such agent or push notification configuration.
    NotFound,
    /// The token is missing or wrong.
    Unauthenticated,
    /// The caller may not use the agent.
    PermissionDenied,
    /// The caller sends too many requests.
    RateLimited,
    /// A budget is spent.
    BudgetExhausted,
    /// A limit of the service or the caller is reached.
    Overloaded,
    /// The request is too large.
    TooLarge,
    /// The supervisor cannot be reached, this service stops, or the reader has disconnected.
    Unavailable,
    /// A defect.
    Internal,
}

/// The codes of a kind: the reason, whether the protocol defines it, the JSON-RPC code and the gRPC code.
struct Codes(&'static str, bool, i64, Code);

impl Kind {
    /// Returns the name of the kind in errors.
    pub(crate) const fn reason(self) -> &'static str {
        self.codes().0
    }

    const fn codes(self) -> Codes {
        use Kind as K;
        match self {
            K::TaskNotFound => Codes("TASK_NOT_FOUND", true, -32001, Code::NotFound),
            K::TaskNotCancelable => Codes("TASK_NOT_CANCELABLE", true, -32002, Code::FailedPrecondition),
            K::UnsupportedOperation => Codes("UNSUPPORTED_OPERATION", true, -32004, Code::FailedPrecondition),
            K::ContentTypeNotSupported => Codes("CONTENT_TYPE_NOT_SUPPORTED", true, -32005, Code::InvalidArgument),
            K::VersionNotSupported => Codes("VERSION_NOT_SUPPORTED", true, -32009, Code::FailedPrecondition),
            K::InvalidParams => Codes("INVALID_ARGUMENT", false, -32602, Code::InvalidArgument),
            K::Parse => Codes("PARSE_ERROR", false, -32700, Code::InvalidArgument),
            K::InvalidRequest => Codes("INVALID_REQUEST", false, -32600, Code::InvalidArgument),
            K::MethodNotFound => Codes("METHOD_NOT_FOUND", false, -32601, Code::Unimplemented),
            K::NotFound => Codes("NOT_FOUND", false, -32000, Code::NotFound),
            K::Unauthenticated => Codes("UNAUTHENTICATED", false, -32000, Code::Unauthenticated),
            K::PermissionDenied => Codes("PERMISSION_DENIED", false, -32000, Code::PermissionDenied),
            K::RateLimited => Codes("RATE_LIMITED", false, -32000, Code::ResourceExhausted),
            K::BudgetExhausted => Codes("BUDGET_EXHAUSTED", false, -32000, Code::ResourceExhausted),
            K::Overloaded => Codes("OVERLOADED", false, -32000, Code::ResourceExhausted),
            K::TooLarge => Codes("TOO_LARGE", false, -32602, Code::InvalidArgument),
            K::Unavailable => Codes("UNAVAILABLE", false, -32000, Code::Unavailable),
            K::Internal => Codes("INTERNAL", false, -32603, Code::Internal),
        }
    }
}

/// An error of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    metadata: BTreeMap<String, String>,
    /// The invalid field.
    field: Option<String>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            metadata: BTreeMap::new(),
            field: None,
        }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    pub(crate) fn invalid_params(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::new(Kind::InvalidParams, message)
        }
    }

    /// Returns the error for a task that does not exist, which is the same as for a task of another caller.
    pub(crate) fn task_not_found(id: &str) -> Self {
        Self::new(Kind::TaskNotFound, format!("no task with id {:?}", cut(id))).with("taskId", cut(id))
    }

    pub(crate) fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    fn domain(&self) -> &'static str {
        match self.kind.codes().1 {
            true => A2A_DOMAIN,
            false => TROUPE_DOMAIN,
        }
    }

    /// Returns the details as `google.protobuf.Any` in JSON.
    fn details(&self) -> Value {
        let mut details = vec![json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.kind.codes().0,
            "domain": self.domain(),
            "metadata": self.metadata,
        })];
        if let Some(field) = &self.field {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{ "field": field, "description": self.message }],
            }));
        }
        Value::Array(details)
    }

    /// Returns the HTTP status, which is derived from the gRPC code.
    pub(crate) fn http_status(&self) -> StatusCode {
        match self.kind.codes().3 {
            _ if self.kind == Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            Code::NotFound | Code::Unimplemented => StatusCode::NOT_FOUND,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the body of a response over HTTP (AIP-193).
    pub(crate) fn to_http(&self) -> Value {
        json!({ "error": {
            "code": self.http_status().as_u16(),
            "status": code_name(self.kind.codes().3),
            "message": self.message,
            "details": self.details(),
        }})
    }

    /// Returns the error object of JSON-RPC.
    pub(crate) fn to_json_rpc(&self) -> Value {
        json!({ "code": self.kind.codes().2, "message": self.message, "data": self.details() })
    }

    /// Returns the status of gRPC.
    pub(crate) fn to_status(&self) -> Status {
        let Codes(reason, _, _, code) = self.kind.codes();
        let metadata: HashMap<_, _> = self.metadata.clone().into_iter().collect();
        let mut details = ErrorDetails::with_error_info(reason, self.domain(), metadata);
        if let Some(field) = &self.field {
            details.add_bad_request_violation(field, &self.message);
        }
        Status::with_error_details(code, &self.message, details)
    }

    /// Translates an error of the supervisor about a context.
    pub(crate) fn of_supervisor(status: &Status) -> Self {
        let reason = fault::reason_of(status).map(troupe_proto::reason::Reason::as_str);
        let kind = match (status.code(), reason) {
            (_, Some("BUDGET_EXHAUSTED")) => Kind::BudgetExhausted,
            (Code::NotFound, Some("SESSION_NOT_FOUND" | "THREAD_NOT_FOUND")) => Kind::TaskNotFound,
            (Code::InvalidArgument, Some("INVALID_INPUT" | "INVALID_ARGUMENT" | "REQUEST_ID_REUSED"))
            | (Code::AlreadyExists, _) => Kind::InvalidParams,
            (
                Code::FailedPrecondition,
                Some("THREAD_CLOSED" | "THREAD_CLOSING" | "SESSION_PAUSED" | "ILLEGAL_TRANSITION"),
            ) => Kind::UnsupportedOperation,
            (Code::ResourceExhausted, _) => Kind::Overloaded,
            (Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled, _) => Kind::Unavailable,
            _ => Kind::Internal,
        };
        if kind == Kind::Internal {
            // The text may describe the operator's configuration, which callers must not see.
            tracing::warn!(code = ?status.code(), message = status.message(), "the supervisor rejected a call");
            return Self::internal("the agent is not available; its operator has the reason in the log");
        }
        let message = match status.code() {
            Code::AlreadyExists => String::from("another message of yours had this messageId; ids must be unique"),
            _ => status.message().to_owned(),
        };
        Self::new(kind, message)
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::of_supervisor(&status)
    }
}

/// Truncates a caller's text for an error.
pub(crate) fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(128).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_error_has_codes_of_every_binding() {
        let error = Error::task_not_found("t");
        assert_eq!(error.to_json_rpc()["code"], -32001);
        assert_eq!(error.to_http()["error"]["code"], 404);
        assert_eq!(error.to_http()["error"]["status"], "NOT_FOUND");
        assert_eq!(error.to_http()["error"]["details"][0]["domain"], A2A_DOMAIN);
        let status = error.to_status();
        assert_eq!(status.code(), Code::NotFound);
        let info = status.get_details_error_info();
        assert_eq!(info.map(|info| info.reason).as_deref(), Some("TASK_NOT_FOUND"));
    }
}
