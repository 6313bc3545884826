//! Eviction: at the limit of open threads, the oldest dispensable thread is closed to make room for a new one.

use std::sync::Arc;

use crate::{
    event::{CloseCause, Event},
    ids::ThreadId,
    rejection::Rejection,
    rules::{cascade::CASCADE_DEADLINE, limits},
    settings::WakePolicy,
    state::{session::Session, thread::Thread},
    time::UnixMillis,
};

use super::close::{self, NewFence};

/// Returns the fences that evict enough threads for one more child of `parent`. Empty below the limit. Scans all
/// threads, but only at the limit.
///
/// # Errors
/// [`Rejection::OpenLimit`] if too few threads can be closed.
pub(super) fn evict_for_child(session: &Session, parent: ThreadId, now: UnixMillis) -> Result<Vec<Event>, Rejection> {
    let excess = limits::open_excess(session);
    if excess == 0 {
        return Ok(Vec::new());
    }
    let mut dispensable: Vec<&Arc<Thread>> = session
        .in_spawn_order()
        .filter(|thread| thread.id != parent && is_dispensable(session, thread))
        .collect();
    if dispensable.len() < excess {
        return Err(limits::open_limit_reached(session));
    }
    dispensable.sort_by_key(|thread| thread.status_sequence);
    let reason = format!(
        "EVICTED: it was settled, and the session has reached its limit of {} open agents; ResumeAgent opens it again",
        session.settings.limits.max_open_threads
    );
    let fence = NewFence {
        reason: &reason,
        cause: CloseCause::Eviction,
        deadline: now.plus(CASCADE_DEADLINE),
        policy: None,
    };
    Ok(dispensable
        .into_iter()
        .take(excess)
        .map(|thread| close::fenced(thread, &fence))
        .collect())
}

/// Returns whether a thread can be evicted: it is settled, has no open children, nothing will wake it, and its parent
/// has acknowledged the outcome. The root can never be evicted.
fn is_dispensable(session: &Session, thread: &Thread) -> bool {
    let Some(parent) = thread.spawned.parent.and_then(|parent| session.thread(parent)) else {
        return false;
    };
    let kind = thread.status.kind();
    let is_woken_by_mail = !thread.mail.is_empty() && thread.spawned.wake_policy != WakePolicy::None;
    kind.is_settled()
        && kind.is_open()
        && thread.open_children == 0
        && thread.pending_inputs.is_empty()
        && !is_woken_by_mail
        && !session.is_closing(thread.id)
        && is_delivered(parent, thread.id)
}

/// Returns whether the parent has acknowledged the child's outcome. A client that executes its root itself reads
/// outcomes from the log.
fn is_delivered(parent: &Thread, child: ThreadId) -> bool {
    parent.spawned.client_owned || !parent.mail.has_outcome_of(child)
}
