//! A thread's note.

use crate::{
    event::{Event, ThreadEvent},
    ids::ThreadId,
    principal::Caller,
    rejection::Rejection,
    rules::authority,
    state::session::Session,
};

/// Sets the note. A blank note clears it. The notes of closed threads can still be changed because only people read
/// them.
pub(super) fn set(session: &Session, caller: &Caller, target: ThreadId, note: &str) -> Result<Vec<Event>, Rejection> {
    let thread = authority::authorize(session, caller, "SetThreadNote", target)?;
    if session.is_closing(target) {
        return Err(Rejection::ThreadClosing(target));
    }
    let note = note.trim();
    if *thread.note == *note {
        return Ok(Vec::new());
    }
    Ok(vec![Event::Thread(target, ThreadEvent::NoteSet(note.to_owned()))])
}
