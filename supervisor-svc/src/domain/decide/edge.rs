//! Edges between threads.

use crate::domain::{
    actor::Caller,
    event::{Edge, Event},
    ids::{ApprovalId, EdgeId},
    refusal::Refusal,
    session::Session,
    time::UnixMillis,
};

pub(super) fn create(
    session: &Session,
    caller: &Caller,
    edge: &Edge,
    approval: ApprovalId,
    now: UnixMillis,
) -> Result<Vec<Event>, Refusal> {
    let _ = (session, caller, edge, approval, now);
    Ok(Vec::new())
}

pub(super) fn delete(session: &Session, caller: &Caller, edge: EdgeId) -> Result<Vec<Event>, Refusal> {
    let _ = (session, caller, edge);
    Ok(Vec::new())
}
