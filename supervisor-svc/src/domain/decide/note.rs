//! A thread's note.

use crate::domain::{
    actor::Caller,
    authority,
    event::{Event, ThreadEvent},
    ids::ThreadId,
    refusal::Refusal,
    session::Session,
};

/// Sets the note; a blank one clears it. Notes of closed threads may still be changed: they are for people.
pub(super) fn set(session: &Session, caller: &Caller, target: ThreadId, note: &str) -> Result<Vec<Event>, Refusal> {
    let thread = authority::authorize(session, caller, "SetThreadNote", target)?;
    if session.is_closing(target) {
        return Err(Refusal::ThreadClosing(target));
    }
    let note = note.trim();
    if *thread.note == *note {
        return Ok(Vec::new());
    }
    Ok(vec![Event::Thread(target, ThreadEvent::NoteSet(note.to_owned()))])
}
