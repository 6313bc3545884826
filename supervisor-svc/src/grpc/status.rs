//! Failures as gRPC statuses: one exhaustive match.

use std::time::Duration;

use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use crate::{domain::refusal::Refusal, session::Failure, wire};

/// When a call that met a store that cannot write may be tried again.
const STORE_RETRY: Duration = Duration::from_secs(5);

/// The status of a failure.
pub(crate) fn failure_status(failure: &Failure) -> Status {
    let text = failure.to_string();
    match failure {
        // A stale token is what it looks like: the caller learns no more than from a forged one.
        Failure::Refused(Refusal::StaleToken) => return svc_kit::auth::unauthenticated(),
        Failure::Refused(refusal) => return wire::status::fault(refusal).into(),
        Failure::SessionNotFound(id) => Fault::new(Code::NotFound, Reason::SessionNotFound, text)
            .with("session_id", id)
            .resource("session", id.to_string(), "list sessions with ListSessions"),
        Failure::StoreUnavailable(_) => {
            Fault::new(Code::Unavailable, Reason::StoreUnavailable, text).retry_after(STORE_RETRY)
        }
        Failure::TooLarge(_) => Fault::new(Code::ResourceExhausted, Reason::LimitExceeded, text),
        Failure::OutcomeUnknown => {
            Fault::new(Code::Unavailable, Reason::OutcomeUnknown, text).retry_after(Duration::from_secs(1))
        }
        Failure::Gone => {
            Fault::new(Code::Unavailable, Reason::Overloaded, text).retry_after(Duration::from_millis(100))
        }
        Failure::Corrupt(_) => Fault::new(Code::DataLoss, Reason::CorruptRecord, text),
        Failure::UpgradeRequired(_) => Fault::new(Code::FailedPrecondition, Reason::UpgradeRequired, text),
    }
    .into()
}
