//! Deadlines. [`next`] returns the next deadline and `pass` processes the deadlines that have passed. Each kind of
//! deadline has one line in each of the two functions.

use super::{approval, group};
use crate::{event::Event, rules::budget, state::session::Session, time::UnixMillis};

/// Returns the earliest deadline of the session. `None` means that no deadline is set. The deadlines of cascades are
/// not included.
#[must_use]
pub fn next(session: &Session) -> Option<UnixMillis> {
    [
        approval::deadline(session),
        budget::next_deadline(session),
        group::next_deadline(session),
    ]
    .into_iter()
    .flatten()
    .min()
}

/// Returns the events of the deadlines that have passed.
pub(super) fn pass(session: &Session, now: UnixMillis) -> Vec<Event> {
    let mut events = Vec::new();
    events.extend(approval::expired(session, now));
    events.extend(super::budget::pass(session, now));
    events.extend(group::overdue(session, now));
    events
}
