//! Mail acknowledgement: explicit, or implicit when a turn that contained the mail completes.

use crate::{
    event::{Event, ThreadEvent},
    ids::{Sequence, ThreadId},
    principal::Caller,
    rejection::Rejection,
    rules::authority,
    state::{session::Session, thread::Thread},
};

/// Acknowledges every letter up to the given one. A letter that is already acknowledged causes no event. A letter that
/// was never delivered cannot be acknowledged.
pub(super) fn acknowledge(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    up_to: Sequence,
) -> Result<Vec<Event>, Rejection> {
    let thread = authority::authorize(session, caller, "AcknowledgeMailbox", target)?;
    if session.is_closing(target) {
        return Err(Rejection::ThreadClosing(target));
    }
    let newest = thread.newest_letter();
    if up_to > newest {
        return Err(Rejection::InvalidArgument {
            field: "up_to_sequence",
            message: format!(
                "up_to_sequence {up_to} is ahead of the newest mail, which is {newest}; acknowledge a number that ListMailbox returned"
            ),
        });
    }
    Ok(acknowledged(thread, up_to).into_iter().collect())
}

/// Acknowledges the mail that a completed turn contained. A fenced thread acknowledges no mail, because it records only
/// its end.
pub(super) fn read_by_turn(session: &Session, thread: &Thread) -> Option<Event> {
    if session.is_closing(thread.id) {
        return None;
    }
    acknowledged(thread, thread.mail_shown)
}

fn acknowledged(thread: &Thread, up_to: Sequence) -> Option<Event> {
    let oldest = thread.mail.oldest()?;
    (oldest <= up_to).then_some(Event::Thread(thread.id, ThreadEvent::MailAcknowledged(up_to)))
}
