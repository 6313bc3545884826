//! What the passing of time brings about. [`next`] says when to look, `pass` what has happened by then. Each kind of deadline
//! has one line in both.

use super::approval;
use crate::domain::{budget, event::Event, session::Session, time::UnixMillis};

/// The nearest deadline of the session; `None`: nothing is due by itself. Cascades have a deadline of their own.
#[must_use]
pub fn next(session: &Session) -> Option<UnixMillis> {
    [approval::deadline(session), budget::next_deadline(session)]
        .into_iter()
        .flatten()
        .min()
}

/// The events that are due now.
pub(super) fn pass(session: &Session, now: UnixMillis) -> Vec<Event> {
    let mut events = Vec::new();
    events.extend(approval::expired(session, now));
    events.extend(super::budget::pass(session, now));
    events
}
