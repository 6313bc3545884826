//! Closing: a fence stops new work in the subtree, then the threads close leaf first.

use crate::{
    event::{CloseCause, Event, Fence, ThreadEvent},
    ids::ThreadId,
    principal::Caller,
    rejection::Rejection,
    rules::authority,
    settings::ClosePolicy,
    state::{session::Session, thread::Thread},
    status::Step,
    time::UnixMillis,
};

/// The fence of a close request.
pub(super) struct NewFence<'a> {
    pub(super) reason: &'a str,
    pub(super) cause: CloseCause,
    pub(super) deadline: UnixMillis,
    pub(super) policy: Option<ClosePolicy>,
}

/// Fences the subtree. Idempotent: a closed or closing thread is not fenced again. For a thread below a fenced
/// ancestor, the ancestor's fence is sufficient.
pub(super) fn request(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    fence: NewFence<'_>,
) -> Result<Vec<Event>, Rejection> {
    let thread = authority::authorize(session, caller, "CloseAgent", target)?;
    if !thread.status.kind().is_open() || session.is_closing(target) {
        return Ok(Vec::new());
    }
    Ok(vec![fenced(thread, &fence)])
}

/// Returns the event that fences a thread and all its descendants.
pub(super) fn fenced(thread: &Thread, fence: &NewFence<'_>) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::CloseRequested(Fence {
            reason: fence.reason.to_owned(),
            cause: fence.cause,
            status_before: thread.status.kind(),
            deadline: fence.deadline,
            close_policy: fence.policy,
        }),
    )
}

/// Closes a fenced thread that has no open child and that no runner executes.
pub(super) fn finish(session: &Session, id: ThreadId, forced: bool) -> Vec<Event> {
    let (Some(thread), Some(fence)) = (session.thread(id), session.fence_over(id)) else {
        return Vec::new();
    };
    if thread.open_children > 0 || super::step(thread, Step::Closed, "close").is_err() {
        return Vec::new();
    }
    vec![Event::Thread(
        id,
        ThreadEvent::Closed {
            forced,
            reason: fence.reason.clone(),
        },
    )]
}
