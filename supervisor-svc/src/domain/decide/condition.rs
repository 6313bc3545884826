//! What holds beside a thread's status.

use crate::domain::{
    event::{ConditionKind, Event, ThreadEvent},
    ids::{Generation, ThreadId},
    session::Session,
    stall,
    thread::Thread,
};

/// Records that something begins or ceases to hold, if it can and is news.
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
    vec![Event::Thread(
        id,
        ThreadEvent::ConditionChanged {
            kind,
            active,
            reason: reason.to_owned(),
        },
    )]
}

fn may_change(session: &Session, thread: &Thread, kind: ConditionKind, active: bool) -> bool {
    match kind {
        // Functions of fences and runners; never recorded.
        ConditionKind::Closing | ConditionKind::NoRunner => false,
        // From outside only silence is known, and its end. Repetition begins and ends with the turns' outputs.
        ConditionKind::Stalled if active => stall::ought_to_be_heard(session, thread),
        ConditionKind::Stalled => stall::is_by_silence(thread, &session.settings.stall),
        // Only a turn that somebody was handed can be out of reach.
        ConditionKind::Unreachable => !active || (thread.status.kind().is_active() && !thread.turn.is_undispatched()),
        ConditionKind::AwaitingToolApproval
        | ConditionKind::BudgetExhausted
        | ConditionKind::PolicyGap
        | ConditionKind::ContextLost => thread.status.kind().is_open(),
    }
}
