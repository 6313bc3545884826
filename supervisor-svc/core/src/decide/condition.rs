//! Thread conditions, which exist in addition to the status.

use crate::{
    event::{ConditionKind, Event, ThreadEvent},
    ids::{Generation, ThreadId},
    rules::stall,
    state::{session::Session, thread::Thread},
};

/// Sets or clears a condition, if the transition is legal and changes the state.
pub(super) fn set(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    kind: ConditionKind,
    active: bool,
    reason: &str,
) -> Vec<Event> {
    let Some(thread) = session.thread(id).filter(|thread| thread.generation == generation) else {
        return Vec::new();
    };
    let is_news = thread.conditions.contains_key(&kind) != active;
    if !is_news || !may_change(session, thread, kind, active) {
        return Vec::new();
    }
    vec![changed(id, kind, active, reason.to_owned())]
}

/// Returns the event that sets or clears a condition.
pub(super) fn changed(thread: ThreadId, kind: ConditionKind, active: bool, reason: String) -> Event {
    Event::Thread(thread, ThreadEvent::ConditionChanged { kind, active, reason })
}

fn may_change(session: &Session, thread: &Thread, kind: ConditionKind, active: bool) -> bool {
    match kind {
        // Derived from fences and runners, never recorded.
        ConditionKind::Closing | ConditionKind::NoRunner => false,
        // Only silence and its end are detected outside the domain. Repetition starts and ends with the outputs of
        // turns.
        ConditionKind::Stalled if active => stall::is_report_expected(session, thread),
        ConditionKind::Stalled => stall::is_by_silence(thread, &session.settings.stall),
        // Only a thread with a dispatched turn can be unreachable.
        ConditionKind::Unreachable => !active || (thread.status.kind().is_active() && !thread.turn.awaits_dispatch()),
        ConditionKind::AwaitingToolApproval
        | ConditionKind::BudgetExhausted
        | ConditionKind::PolicyGap
        | ConditionKind::ContextLost
        | ConditionKind::AwaitingInput => thread.status.kind().is_open(),
    }
}
