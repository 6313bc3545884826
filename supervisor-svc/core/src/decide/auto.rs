//! Automatic turns of orchestrators.

use crate::{
    content::ContentRef,
    event::{Event, ThreadEvent},
    ids::ThreadId,
    principal::Actor,
    rules::orchestration,
    state::session::Session,
};

/// Starts the orchestrator's next turn. Returns no events if the turn is no longer due.
pub(super) fn next_turn(session: &Session, id: ThreadId, input: &ContentRef) -> Vec<Event> {
    let Some(thread) = session
        .thread(id)
        .filter(|thread| orchestration::is_due(session, thread))
    else {
        return Vec::new();
    };
    let queued = ThreadEvent::InputQueued {
        number: thread.last_input.next(),
        input: input.clone(),
        from: Actor::Service,
        steers: false,
        result_repairs: None,
    };
    vec![Event::Thread(id, queued), Event::Thread(id, ThreadEvent::Admitted)]
}
