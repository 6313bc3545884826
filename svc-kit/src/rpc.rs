//! Attributes of calls in spans and metrics, by OpenTelemetry's conventions for gRPC.

use http::HeaderMap;
use opentelemetry::{KeyValue, trace::SpanKind};
use tonic::Code;

/// Returns the attribute that marks a call as gRPC.
pub(crate) fn system() -> KeyValue {
    KeyValue::new("rpc.system.name", "grpc")
}

/// Returns the attributes of a call's result.
pub(crate) fn outcome(kind: &SpanKind, code: Code) -> impl Iterator<Item = KeyValue> + use<> {
    let name = code_name(code);
    let failure = is_failure(kind, code).then(|| KeyValue::new("error.type", name));
    [KeyValue::new("rpc.response.status_code", name)]
        .into_iter()
        .chain(failure)
}

/// Returns whether the code is a failure for this side of the call. For a client, all codes but OK are failures. For a
/// server, only the codes that it causes itself are failures.
pub(crate) const fn is_failure(kind: &SpanKind, code: Code) -> bool {
    if matches!(kind, SpanKind::Client) {
        return !matches!(code, Code::Ok);
    }
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// Returns the name of a code.
#[must_use]
pub const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Returns the code in a response's headers: the code of a rejection, or OK for a response that has begun.
pub(crate) fn code(headers: &HeaderMap) -> Code {
    headers
        .get("grpc-status")
        .map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()))
}
