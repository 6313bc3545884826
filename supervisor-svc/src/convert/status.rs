//! Conversion of rejections to client errors: code and reason follow the table in API.md, and every fact in the text
//! is also included as data.

use std::time::Duration;

use supervisor_log::store::MemberId;
use tonic::{
    Code, Status,
    metadata::{Ascii, MetadataValue},
};
use troupe_proto::{fault::Fault, reason::Reason};

use crate::{
    domain::{
        ids::{SessionId, ThreadId},
        rejection::{GuardedVerb, Rejection},
        rules::limits::MAX_PENDING_INPUTS,
    },
    engine::Failure,
};

const THREAD: &str = "troupe.supervisor.v1.Thread";

/// Returns the error of a rejection.
#[must_use]
pub fn fault(rejection: &Rejection) -> Fault {
    let text = rejection.to_string();
    let new = |code, reason| Fault::new(code, reason, text.clone());
    match rejection {
        Rejection::StaleToken => new(Code::Unauthenticated, Reason::Unauthenticated),
        Rejection::OutsideSubtree(verb) => {
            new(Code::PermissionDenied, Reason::OutsideSubtree).with("verb", verb_name(*verb))
        }
        Rejection::ToolDenied { tool, agent_type } => new(Code::PermissionDenied, Reason::ToolDenied)
            .with("tool", tool)
            .with("agent_type", agent_type),
        Rejection::OperatorsOnly { field } => new(Code::PermissionDenied, Reason::NotPermitted).with("field", field),
        Rejection::ThreadNotFound(id) => new(Code::NotFound, Reason::ThreadNotFound)
            .with("thread_id", id)
            .resource(THREAD, id, &text),
        Rejection::ThreadClosed(id) => about_thread(new(Code::FailedPrecondition, Reason::ThreadClosed), *id)
            .precondition(id.to_string(), "the thread must be open; ResumeAgent opens it again"),
        Rejection::ThreadClosing(id) => about_thread(new(Code::FailedPrecondition, Reason::ThreadClosing), *id)
            .precondition(id.to_string(), "neither the thread nor an ancestor may be closing"),
        Rejection::SessionPaused => new(Code::FailedPrecondition, Reason::SessionPaused).precondition(
            "session",
            "the session must not be paused; UpdateSession with paused = false resumes it",
        ),
        Rejection::SessionClosed => new(Code::FailedPrecondition, Reason::SessionClosed)
            .precondition("session", "the session must be open; a closed one stays closed"),
        Rejection::DepthLimit { depth, max_depth } => new(Code::FailedPrecondition, Reason::DepthLimit)
            .with("depth", depth)
            .with("max_depth", max_depth)
            .precondition(
                "max_depth",
                format!("the child would have depth {depth}; the deepest allowed is {max_depth}"),
            ),
        Rejection::SpawnNotAllowed {
            caller,
            wanted,
            allowed,
        } => new(Code::PermissionDenied, Reason::SpawnNotAllowed)
            .with("caller_agent_type", caller)
            .with("agent_type", wanted)
            .with("spawn_list", allowed.join(",")),
        Rejection::ThreadLimit { max_threads, active } => new(Code::ResourceExhausted, Reason::ThreadLimit)
            .with("max_threads", max_threads)
            .with("active", active)
            .quota(
                "max_threads",
                format!(
                    "{active} of {max_threads} slots are taken. One is free once an active agent settles (with \
                     slot_release = CLOSE: is closed): wait for one with WaitAgents, stop one with InterruptAgent or \
                     CloseAgent, or call with on_limit = QUEUE"
                ),
            ),
        Rejection::OpenLimit { what, max, remedy } => new(Code::ResourceExhausted, Reason::OpenLimit)
            .with("limit", what)
            .with("max", max)
            .quota(*what, *remedy),
        Rejection::InvalidInput(text) => Fault::bad_field(Reason::InvalidInput, "message", *text),
        Rejection::InvalidArgument { field, message } => {
            Fault::bad_field(Reason::InvalidArgument, *field, message).with("field", field)
        }
        Rejection::AliasInUse { alias, by } => {
            let fault = new(Code::AlreadyExists, Reason::AliasInUse).with("alias", alias);
            match by {
                Some(by) => about_thread(fault, *by).resource(THREAD, by.to_string(), "it has the alias"),
                None => fault,
            }
        }
        Rejection::IllegalTransition { thread, status, wanted } => {
            about_thread(new(Code::FailedPrecondition, Reason::IllegalTransition), *thread)
                .with("status", status)
                .with("wanted", wanted)
                .precondition(thread.to_string(), format!("a thread that is {status} cannot {wanted}"))
        }
        Rejection::Policy(detail) => new(Code::InvalidArgument, Reason::InvalidArgument).with("detail", detail),
        Rejection::RequestIdReused(id) => new(Code::AlreadyExists, Reason::RequestIdReused).with("request_id", id),
        Rejection::TooMuchInput {
            thread,
            waiting,
            newest,
        } => about_thread(new(Code::ResourceExhausted, Reason::LimitExceeded), *thread)
            .with("waiting", waiting)
            .with("max_waiting", MAX_PENDING_INPUTS)
            .with("newest", newest)
            .quota(
                thread.to_string(),
                format!("{waiting} inputs wait; at most {MAX_PENDING_INPUTS} may wait, and the next turn reads them"),
            ),
        Rejection::Missing { what, id } => new(Code::NotFound, Reason::NotFound)
            .with("kind", what)
            .with("id", id)
            .resource(what, id, &text),
        Rejection::IllegalState(_) => new(Code::FailedPrecondition, Reason::IllegalTransition),
        Rejection::NotPermitted(_) => new(Code::PermissionDenied, Reason::NotPermitted),
        Rejection::LimitExceeded { limit, message } => new(Code::ResourceExhausted, Reason::LimitExceeded)
            .with("limit", limit)
            .quota(*limit, message),
        Rejection::RateLimited {
            thread,
            per_second,
            retry_after,
        } => {
            let fault = new(Code::ResourceExhausted, Reason::RateLimited)
                .with("per_second", per_second)
                .retry_after(*retry_after);
            match thread {
                Some(id) => about_thread(fault, *id),
                None => fault,
            }
        }
        Rejection::BudgetExhausted { thread, what } => {
            about_thread(new(Code::ResourceExhausted, Reason::BudgetExhausted), *thread)
                .with("budget", what)
                .quota(thread.to_string(), format!("the budget of {what} is spent"))
        }
        Rejection::HistoryCompacted { oldest, head } => new(Code::OutOfRange, Reason::HistoryCompacted)
            .with("oldest", oldest)
            .with("head", head),
        Rejection::OverBudget(shortage) => {
            let field = format!("budget.{}", shortage.resource.as_str());
            about_thread(Fault::bad_field(Reason::LimitExceeded, field, &text), shortage.thread)
                .with("budget", shortage.resource.as_str())
                .with("asked", shortage.asked)
                .with("left", shortage.left)
        }
        Rejection::AheadOfHead { after, oldest, head } => new(Code::OutOfRange, Reason::AheadOfHead)
            .with("after_sequence", after)
            .with("oldest", oldest)
            .with("head", head),
    }
}

fn about_thread(fault: Fault, id: ThreadId) -> Fault {
    fault.with("thread_id", id)
}

const fn verb_name(verb: GuardedVerb) -> &'static str {
    match verb {
        GuardedVerb::Close => "close",
        GuardedVerb::Act => "act",
    }
}

/// Retry delay for a call that failed because the store cannot write.
const STORE_RETRY: Duration = Duration::from_secs(5);

/// The header of a response whose call had no effect because its session is elsewhere: the session, and the id of its
/// owner or `-`. Supervisors read it; clients get the reason SESSION_MOVING.
pub(crate) const ELSEWHERE: &str = "troupe-elsewhere";

/// Returns the value of [`ELSEWHERE`].
fn elsewhere(session: SessionId, owner: Option<MemberId>) -> Option<MetadataValue<Ascii>> {
    let owner = owner.map_or_else(|| String::from("-"), |owner| owner.to_string());
    format!("{}/{owner}", session.as_uuid()).parse().ok()
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        let status = match &failure {
            Failure::Refused(rejection) => fault(rejection),
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
            Failure::Elsewhere { session, .. } => Fault::new(Code::Unavailable, Reason::SessionMoving, text)
                .with("session_id", session)
                .retry_after(Duration::from_millis(100)),
            // The command may have been executed before its session's owner ended.
            Failure::Gone => {
                Fault::new(Code::Unavailable, Reason::OutcomeUnknown, text).retry_after(Duration::from_millis(100))
            }
            Failure::Corrupt(_) => Fault::new(Code::DataLoss, Reason::CorruptRecord, text),
            Failure::UpgradeRequired(_) => Fault::new(Code::FailedPrecondition, Reason::UpgradeRequired, text),
        };
        let mut status = Self::from(status);
        if let Failure::Elsewhere { session, owner } = failure
            && let Some(value) = elsewhere(session, owner)
        {
            status.metadata_mut().insert(ELSEWHERE, value);
        }
        status
    }
}

/// Returns a rejection as a gRPC status. This crate cannot implement `From`, because neither type belongs to it.
pub(crate) fn refused(rejection: Rejection) -> Status {
    fault(&rejection).into()
}

/// The advice for a client whose watch ends.
pub(crate) const RESUME: &str = "watch again from the last sequence";

/// Returns the error of a draining service. `advice` says what the client can do.
pub(crate) fn draining(advice: &str) -> Status {
    Fault::new(
        Code::Unavailable,
        Reason::Draining,
        format!("the supervisor is shutting down; {advice}"),
    )
    .retry_after(Duration::from_secs(1))
    .into()
}

#[cfg(test)]
mod tests {
    use troupe_proto::fault::{reason_of, retry_after};

    use super::*;

    #[test]
    fn moving_session_returns_unknown_outcome() {
        let status = Status::from(Failure::Gone);
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(reason_of(&status), Some(Reason::OutcomeUnknown));
        assert!(retry_after(&status).is_some());
    }
}
