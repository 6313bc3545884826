//! Mail: messages from other threads. A letter is derived from the event that sent it and identified by that event's
//! sequence. It is stored until it is acknowledged.

use std::sync::Arc;

use crate::{
    event::{ConditionKind, Event, Recorded, ThreadEvent},
    ids::ThreadId,
    rules::limits,
    state::{
        mailbox::{Body, Letter},
        session::Session,
    },
    status::Status,
};

/// Maximum number of handoffs in one mailbox. Letters about children need no limit, because only the latest ones are
/// stored.
pub const MAX_HANDOFFS: usize = 1_000;

/// Returns the letter that a log event sent to the thread, read or unread. `session` may be the session at any
/// later time.
#[must_use]
pub fn letter_in_log(session: &Session, receiver: ThreadId, recorded: &Recorded) -> Option<Letter> {
    let Event::Thread(id, event) = &recorded.event else {
        return None;
    };
    let is_child = || {
        session
            .thread(*id)
            .is_some_and(|thread| thread.spawned.parent == Some(receiver) && thread.spawned.item.is_none())
    };
    let settled = |status| Body::Settled { child: *id, status };
    let (fence_counts_for, body) = if let ThreadEvent::HandoffSent(handoff) = event
        && handoff.to == receiver
    {
        (receiver, Body::Handoff(Arc::new((**handoff).clone())))
    } else if let ThreadEvent::GroupEnded {
        group,
        outcome,
        reason,
        table,
    } = event
        && *id == receiver
    {
        let ended = Body::GroupEnded {
            group: *group,
            outcome: *outcome,
            reason: reason.clone(),
            table: table.id,
        };
        (receiver, ended)
    } else if let ThreadEvent::TurnEnded {
        outcome,
        result_repair: false,
        ..
    } = event
        && is_child()
    {
        (*id, settled(Status::Settled(Arc::new(outcome.clone()))))
    } else if let ThreadEvent::Closed { reason, .. } = event
        && is_child()
    {
        let reason = reason.clone();
        (*id, settled(Status::Shutdown { reason, before: None }))
    } else {
        return None;
    };
    let delivered = !session.was_closing(fence_counts_for, recorded.sequence);
    delivered.then_some(Letter {
        sequence: recorded.sequence,
        time: recorded.time,
        body,
    })
}

/// Returns the threads that mail wakes now, ordered by the letters that wake them. These threads take only free slots
/// that no queued thread needs.
#[must_use]
pub fn woken(session: &Session) -> Vec<ThreadId> {
    if session.paused {
        return Vec::new();
    }
    let mut free = if limits::has_free_slot(session) {
        session
            .settings
            .limits
            .max_threads
            .saturating_sub(limits::active(session))
    } else {
        0
    };
    let mut woken = Vec::new();
    for id in session.waking() {
        let Some(thread) = session.thread(id) else { continue };
        let needs_slot = limits::needs_slot(session, thread);
        if (!needs_slot || free > 0) && may_begin(session, id) {
            free -= u32::from(needs_slot);
            woken.push(id);
        }
    }
    woken
}

fn may_begin(session: &Session, id: ThreadId) -> bool {
    let is_spent = || {
        session
            .lineage(id)
            .any(|thread| thread.conditions.contains_key(&ConditionKind::BudgetExhausted))
    };
    !session.is_closing(id) && !is_spent()
}
