//! Automatic orchestration. An orchestrator whose turn completed with nothing pending receives another turn, until it
//! reports that it is done. Whether a turn is due is a function of the state, so a restart does not change the result.

use crate::{
    content::truncate,
    ids::ThreadId,
    rules::{limits, start},
    settings::{Orchestration, WakePolicy},
    state::{completion_mark, session::Session, thread::Thread},
    status::StatusKind,
};

/// The input of an automatic turn.
pub const AUTO_TURN: &str = "\
Auto loop turn: no new inputs. Continue toward the goal or explicitly mark completion/stall.
Mark completion with a line that is exactly TROUPE_COMPLETE, a stall with a line that is exactly TROUPE_STALLED.";

/// Returns the beginning of a message, at most `max` bytes. A mark after that limit becomes the last line of the
/// result, because the state contains only this part of the message.
#[must_use]
pub fn excerpt(message: &str, max: usize) -> String {
    let beginning = truncate(message, max);
    match completion_mark(message) {
        Some(mark) if completion_mark(beginning).is_none() => {
            let room = max.saturating_sub(mark.len() + 1);
            format!("{}\n{mark}", truncate(beginning, room))
        }
        Some(_) | None => beginning.to_owned(),
    }
}

/// Returns the orchestrators whose automatic turn is due.
#[must_use]
pub fn due(session: &Session) -> Vec<ThreadId> {
    if session.settings.orchestration == Orchestration::Interactive {
        return Vec::new();
    }
    session
        .idle_orchestrators()
        .filter(|thread| is_due(session, thread))
        .map(|thread| thread.id)
        .collect()
}

/// Returns whether an idle orchestrator's automatic turn is due: nothing blocks it, nothing pending will start a turn,
/// and no descendant is active or waiting. Mail that does not wake the thread does not delay the turn, because the
/// turn's prompt contains it.
#[must_use]
pub fn is_due(session: &Session, thread: &Thread) -> bool {
    session.settings.orchestration == Orchestration::Auto
        && thread.is_idle_orchestrator()
        && start::may_start_in(session, thread).is_ok()
        && (thread.mail.is_empty() || thread.spawned.wake_policy == WakePolicy::None)
        && (!limits::needs_slot(session, thread) || limits::has_free_slot(session))
        && !is_awaited_below(session, thread.id)
}

/// Returns whether a descendant is active, queued, or waits for an operator.
fn is_awaited_below(session: &Session, id: ThreadId) -> bool {
    let is_below = |other: ThreadId| other != id && session.is_within(other, id);
    let is_active = |other: ThreadId| {
        session
            .thread(other)
            .is_some_and(|thread| thread.status.kind().is_active())
    };
    let awaits_approval = |thread: &Thread| thread.status.kind() == StatusKind::AwaitingApproval;
    session
        .holding()
        .iter()
        .any(|other| is_below(*other) && is_active(*other))
        || session.queued().any(is_below)
        || (session.count(StatusKind::AwaitingApproval) > 0
            && session.subtree(id).into_iter().any(|thread| awaits_approval(thread)))
}
