//! Handoffs along edges.

use std::sync::Arc;

use crate::{
    event::{Event, Handoff, ThreadEvent},
    principal::Caller,
    rejection::Rejection,
    rules::{authority, graph, mail::MAX_HANDOFFS, start},
    state::{session::Session, thread::Thread},
};

/// Delivers the handoff to the receiver's mailbox. An edge permits the handoff, so the receiver may be outside the
/// caller's subtree. Handoffs are accepted while the session is paused, because a handoff does not start a turn itself.
pub(super) fn send(session: &Session, caller: &Caller, handoff: &Handoff) -> Result<Vec<Event>, Rejection> {
    let sender = authority::authorize(session, caller, "SendHandoff", handoff.from)?;
    start::takes_part(session, sender)?;
    let receiver = receiver(session, caller, handoff)?;
    start::takes_part(session, receiver)?;
    if let Some(reply_to) = handoff.reply_to
        && !graph::may_be_answered(session, caller, sender.id, reply_to)
    {
        return Err(match caller {
            Caller::Operator { .. } => Rejection::ThreadNotFound(reply_to.to_string()),
            Caller::Thread { .. } => graph::unknown_reply_to(sender.id),
        });
    }
    check_mailbox_limit(receiver)?;
    Ok(vec![Event::Thread(
        sender.id,
        ThreadEvent::HandoffSent(Box::new(handoff.clone())),
    )])
}

fn receiver<'s>(session: &'s Session, caller: &Caller, handoff: &Handoff) -> Result<&'s Arc<Thread>, Rejection> {
    match (session.thread(handoff.to), caller) {
        (Some(receiver), _) if graph::may_hand_off(session, handoff.from, handoff.to) => Ok(receiver),
        (None, Caller::Operator { .. }) => Err(Rejection::ThreadNotFound(handoff.to.to_string())),
        (Some(_), _) | (None, Caller::Thread { .. }) => Err(graph::no_edge(handoff.from)),
    }
}

fn check_mailbox_limit(receiver: &Thread) -> Result<(), Rejection> {
    let waiting = receiver.mail.handoffs();
    if waiting < MAX_HANDOFFS {
        return Ok(());
    }
    Err(Rejection::LimitExceeded {
        limit: "max_handoffs",
        message: format!(
            "agent with id {} has {waiting} handoffs waiting (max {MAX_HANDOFFS}); wait until it has read them",
            receiver.id
        ),
    })
}
