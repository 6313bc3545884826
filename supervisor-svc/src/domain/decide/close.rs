//! The one way to stop anything: a fence first, then the subtree leaf first.

use crate::domain::{
    actor::Caller,
    authority,
    event::{CloseCause, Event, Fence, ThreadEvent},
    ids::ThreadId,
    refusal::Refusal,
    session::Session,
    settings::ClosePolicy,
    status::Step,
    thread::Thread,
    time::UnixMillis,
};

/// The fence that a close asks for.
pub(super) struct NewFence<'a> {
    pub(super) reason: &'a str,
    pub(super) cause: CloseCause,
    pub(super) deadline: UnixMillis,
    pub(super) policy: Option<ClosePolicy>,
}

/// Fences the subtree. Idempotent: closed and closing threads need no second fence, but for one that is fenced only by an
/// ancestor the ancestor's fence suffices as well.
pub(super) fn request(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    fence: NewFence<'_>,
) -> Result<Vec<Event>, Refusal> {
    let thread = authority::authorize(session, caller, "CloseAgent", target)?;
    if !thread.status.kind().is_open() || session.is_closing(target) {
        return Ok(Vec::new());
    }
    Ok(vec![fenced(thread, &fence)])
}

/// The one record that fences a thread and everything below it.
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

/// Closes a fenced thread that has no open child and that nobody executes any more.
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
