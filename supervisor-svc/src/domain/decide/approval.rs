//! Deciding what waits for an operator.

use crate::domain::{actor::Actor, event::Event, ids::ApprovalId, refusal::Refusal, session::Session};

pub(super) fn resolve(
    session: &Session,
    approval: ApprovalId,
    grant: bool,
    by: &Actor,
    reason: &str,
) -> Result<Vec<Event>, Refusal> {
    let _ = (session, approval, grant, by, reason);
    Ok(Vec::new())
}
