//! Automatic orchestration. An orchestrator whose turn completed with nothing pending receives another turn, until it
//! reports that it is done. Whether a turn is due is a function of the state, so a restart does not change it.

use super::{
    content::truncate,
    event::ConditionKind,
    ids::ThreadId,
    limits,
    session::Session,
    settings::{EdgeManagement, Orchestration, WakePolicy},
    status::{Status, StatusKind},
    thread::Thread,
};

/// The input of an automatic turn.
pub const AUTO_TURN: &str = "\
Auto loop turn: no new inputs. Continue toward the goal or explicitly mark completion/stall.
Mark completion with a line that is exactly TROUPE_COMPLETE, a stall with a line that is exactly TROUPE_STALLED.";

/// The lines with which an orchestrator ends the loop: the goal is reached, or no progress is possible.
const MARKS: [&str; 2] = ["TROUPE_COMPLETE", "TROUPE_STALLED"];

/// Returns the mark in the first line of a message that ends the loop. Surrounding blanks are ignored.
fn mark(message: &str) -> Option<&str> {
    message.lines().map(str::trim).find(|line| MARKS.contains(line))
}

/// Returns the beginning of a message, at most `max` bytes. A mark after that limit becomes the last line of the
/// result, because the state contains only this part of the message.
#[must_use]
pub fn excerpt(message: &str, max: usize) -> String {
    let beginning = truncate(message, max);
    match mark(message) {
        Some(mark) if self::mark(beginning).is_none() => {
            let room = max.saturating_sub(mark.len() + 1);
            format!("{}\n{mark}", truncate(beginning, room))
        }
        Some(_) | None => beginning.to_owned(),
    }
}

/// Returns whether the thread is an orchestrator that completed its turn without a mark. It waits for input or for the
/// loop. Depends on this thread only, and the session maintains an index of the result.
#[must_use]
pub fn is_idle(thread: &Thread) -> bool {
    is_orchestrator(thread)
        && thread.status.kind() == StatusKind::Completed
        && thread.pending_inputs.is_empty()
        && !thread.conditions.contains_key(&ConditionKind::Stalled)
        && matches!(&thread.status, Status::Settled(settled) if mark(settled.last_word()).is_none())
}

/// Returns whether the thread has a graph template that may manage all edges, or the role of that name.
fn is_orchestrator(thread: &Thread) -> bool {
    let spawned = &thread.spawned;
    (spawned.role.is_graph() && spawned.edge_management == EdgeManagement::All)
        || spawned.role.agent_type == "orchestrator"
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
        && is_idle(thread)
        && super::decide::may_start_in(session, thread).is_ok()
        && (thread.mail.is_empty() || thread.spawned.wake_policy == WakePolicy::None)
        && (!limits::needs_slot(session, thread) || limits::slot_for_newcomer(session))
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
