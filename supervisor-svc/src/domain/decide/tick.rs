//! What the passing of time brings about. [`next`] says when to look, `pass` what has happened by then.

use crate::domain::{event::Event, session::Session, time::UnixMillis};

/// The nearest deadline of the session; `None`: nothing is due by itself. Cascades have a deadline of their own.
#[must_use]
pub fn next(session: &Session) -> Option<UnixMillis> {
    let _ = session;
    None
}

/// The events that are due now.
pub(super) fn pass(session: &Session, now: UnixMillis) -> Vec<Event> {
    let _ = (session, now);
    Vec::new()
}
