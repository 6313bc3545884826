//! Acknowledging mail.

use crate::domain::{
    actor::Caller,
    event::Event,
    ids::{Sequence, ThreadId},
    refusal::Refusal,
    session::Session,
};

pub(super) fn acknowledge(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    up_to: Sequence,
) -> Result<Vec<Event>, Refusal> {
    let _ = (session, caller, target, up_to);
    Ok(Vec::new())
}
