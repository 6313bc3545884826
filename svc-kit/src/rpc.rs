//! Calls as OpenTelemetry's conventions for gRPC have them, in spans and in metrics.

use opentelemetry::{KeyValue, trace::SpanKind};
use tonic::Code;

/// What every call says: that it is one of gRPC.
pub(crate) fn system() -> KeyValue {
    KeyValue::new("rpc.system.name", "grpc")
}

/// How a call was answered, and whether that is a failure for this side of it.
pub(crate) fn outcome(kind: &SpanKind, code: Code) -> impl Iterator<Item = KeyValue> + use<> {
    let name = code_name(code);
    let failure = is_failure(kind, code).then(|| KeyValue::new("error.type", name));
    [KeyValue::new("rpc.response.status_code", name)]
        .into_iter()
        .chain(failure)
}

/// Whether that answer is a failure for this side of the call: to its client every refusal is; a service fails where it is
/// the cause itself, and otherwise the caller's doing was refused.
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

/// The name of a code.
pub(crate) const fn code_name(code: Code) -> &'static str {
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
