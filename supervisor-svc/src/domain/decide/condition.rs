//! What holds beside a thread's status.

use crate::domain::{
    event::{ConditionKind, Event},
    ids::{Generation, ThreadId},
    session::Session,
};

pub(super) fn set(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    kind: ConditionKind,
    active: bool,
    reason: &str,
) -> Vec<Event> {
    let _ = (session, id, generation, kind, active, reason);
    Vec::new()
}
