//! Records of tool calls: denied calls and calls that need an approval. Allowed calls are not recorded.

use super::condition;
use crate::{
    event::{ApprovalKind, CallDetails, ConditionKind, Event, ThreadEvent},
    ids::{ApprovalId, ThreadId},
    rejection::Rejection,
    rules::approval::{MAX_WAITING_CALLS, MAX_WAITING_CALLS_OF_SESSION},
    state::session::Session,
    time::UnixMillis,
};

/// Requests an approval for a tool call. Returns no events if an approval for this call was requested before, or if the
/// thread is closing.
///
/// # Errors
/// [`Rejection::LimitExceeded`] if too many calls are waiting for an approval.
pub(super) fn request_approval(
    session: &Session,
    id: ThreadId,
    approval: ApprovalId,
    subject: &str,
    call: &CallDetails,
    now: UnixMillis,
) -> Result<Vec<Event>, Rejection> {
    let Some(thread) = session.thread(id) else {
        return Ok(Vec::new());
    };
    if !thread.status.kind().is_active() || session.is_closing(id) || session.approvals.contains_key(&approval) {
        return Ok(Vec::new());
    }
    check_pending_calls(session, id)?;
    let mut events = vec![Event::Thread(
        id,
        ThreadEvent::ApprovalRequested {
            approval,
            kind: ApprovalKind::Tool,
            subject: subject.to_owned(),
            deadline: session.settings.approval_deadline(now),
            edge: None,
            call: Some(Box::new(call.clone())),
        },
    )];
    let kind = ConditionKind::AwaitingToolApproval;
    if !thread.conditions.contains_key(&kind) {
        events.push(condition::changed(id, kind, true, subject.to_owned()));
    }
    Ok(events)
}

fn check_pending_calls(session: &Session, id: ThreadId) -> Result<(), Rejection> {
    let calls = || {
        session
            .pending_approvals()
            .filter(|approval| approval.kind == ApprovalKind::Tool)
    };
    let (of_thread, of_session) = (calls().filter(|call| call.thread == id).count(), calls().count());
    let (whose, waiting) = if of_thread >= MAX_WAITING_CALLS {
        (format!("agent with id {id}"), of_thread)
    } else if of_session >= MAX_WAITING_CALLS_OF_SESSION {
        (String::from("the session"), of_session)
    } else {
        return Ok(());
    };
    Err(Rejection::LimitExceeded {
        limit: "waiting tool calls",
        message: format!("{whose} has {waiting} tool calls that wait for an operator; wait until some are decided"),
    })
}

/// Records denied calls, unless the thread is closed or closing.
pub(super) fn deny(session: &Session, id: ThreadId, tool: &str, reason: &str, count: u32) -> Vec<Event> {
    let is_open = session.thread(id).is_some_and(|thread| thread.status.kind().is_open());
    if !is_open || session.is_closing(id) || count == 0 {
        return Vec::new();
    }
    vec![Event::Thread(
        id,
        ThreadEvent::ToolDenied {
            tool: tool.to_owned(),
            reason: reason.to_owned(),
            count,
        },
    )]
}
