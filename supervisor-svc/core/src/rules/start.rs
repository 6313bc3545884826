//! Checks that a thread is open, and that work may start in it.

use super::budget;
use crate::{
    rejection::Rejection,
    state::{session::Session, thread::Thread},
};

/// Checks that a thread is open and not closing.
///
/// # Errors
/// [`Rejection::ThreadClosed`] or [`Rejection::ThreadClosing`].
pub fn takes_part(session: &Session, thread: &Thread) -> Result<(), Rejection> {
    if !thread.status.kind().is_open() {
        return Err(Rejection::ThreadClosed(thread.id));
    }
    if session.is_closing(thread.id) {
        return Err(Rejection::ThreadClosing(thread.id));
    }
    Ok(())
}

/// Checks that work may start in a thread: it is open and not closing, the session is not paused, and no budget of the
/// thread or its ancestors is exhausted.
///
/// # Errors
/// The errors of [`takes_part`], [`Rejection::SessionPaused`] or [`Rejection::BudgetExhausted`].
pub fn may_start_in(session: &Session, thread: &Thread) -> Result<(), Rejection> {
    takes_part(session, thread)?;
    if session.paused {
        return Err(Rejection::SessionPaused);
    }
    if let Some((over, resource)) = budget::exhausted_over(session, thread.id) {
        return Err(Rejection::BudgetExhausted {
            thread: over.id,
            what: resource.as_str(),
        });
    }
    Ok(())
}
