//! What threads may spend.

use crate::domain::{
    actor::Caller,
    event::Event,
    ids::{Generation, ThreadId},
    refusal::Refusal,
    session::Session,
    settings::{Budget, Usage},
};

pub(super) fn update(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    budget: Budget,
) -> Result<Vec<Event>, Refusal> {
    let _ = (session, caller, target, budget);
    Ok(Vec::new())
}

pub(super) fn record_usage(session: &Session, id: ThreadId, generation: Generation, usage: Usage) -> Vec<Event> {
    let _ = (session, id, generation, usage);
    Vec::new()
}
