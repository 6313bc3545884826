//! Failures as gRPC statuses: one exhaustive match. Refusals have their own in [`wire::status`].

use std::time::Duration;

use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use crate::{convert, domain::rejection::Refusal, engine::Failure};

/// Retry delay for a call that failed because the store cannot write.
const STORE_RETRY: Duration = Duration::from_secs(5);

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        match &failure {
            Failure::Refused(refusal) => wire::status::fault(refusal),
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
            // The command may have been executed before its session's owner ended.
            Failure::Gone => {
                Fault::new(Code::Unavailable, Reason::OutcomeUnknown, text).retry_after(Duration::from_millis(100))
            }
            Failure::Corrupt(_) => Fault::new(Code::DataLoss, Reason::CorruptRecord, text),
            Failure::UpgradeRequired(_) => Fault::new(Code::FailedPrecondition, Reason::UpgradeRequired, text),
        }
        .into()
    }
}

/// Returns a refusal as a gRPC status. A function because neither type belongs to this crate.
pub(super) fn refused(refusal: Refusal) -> Status {
    wire::status::fault(&refusal).into()
}

#[cfg(test)]
mod tests {
    use troupe_proto::fault::{reason_of, retry_after};

    use super::*;

    #[test]
    fn of_a_session_that_moves_nobody_says_that_nothing_was_done() {
        let status = Status::from(Failure::Gone);
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(reason_of(&status), Some(Reason::OutcomeUnknown));
        assert!(retry_after(&status).is_some());
    }
}
