//! Handoffs along edges.

use crate::domain::{
    actor::Caller,
    event::{Event, Handoff},
    refusal::Refusal,
    session::Session,
};

pub(super) fn send(session: &Session, caller: &Caller, handoff: &Handoff) -> Result<Vec<Event>, Refusal> {
    let _ = (session, caller, handoff);
    Ok(Vec::new())
}
