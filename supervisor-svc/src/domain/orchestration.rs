//! Automatic orchestration: an orchestrator whose turn completed with nothing pending gets another one, until it says that
//! it is done. Being due a turn is a level, a function of the state: a restart finds it as the last append left it.

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

/// What an orchestrator is told in a turn that nobody else asked for.
pub const AUTO_TURN: &str = "\
Auto loop turn: no new inputs. Continue toward the goal or explicitly mark completion/stall.
Mark completion with a line that is exactly TROUPE_COMPLETE, a stall with a line that is exactly TROUPE_STALLED.";

/// The lines by which an orchestrator ends the loop: it reached the goal, or it knows no way on.
const MARKS: [&str; 2] = ["TROUPE_COMPLETE", "TROUPE_STALLED"];

/// The first line of a message that ends the loop; blanks around it do not count.
fn mark(message: &str) -> Option<&str> {
    message.lines().map(str::trim).find(|line| MARKS.contains(line))
}

/// The beginning of a message, at most `max` bytes. A mark that stands behind them becomes its last line, since the state
/// knows no more of the message than this.
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

/// Whether the thread is an orchestrator that completed its turn and did not say that it is done: it waits for input, or
/// for the loop. A function of the one thread; the session has an index of it.
#[must_use]
pub fn is_idle(thread: &Thread) -> bool {
    is_orchestrator(thread)
        && thread.status.kind() == StatusKind::Completed
        && thread.pending_inputs.is_empty()
        && !thread.conditions.contains_key(&ConditionKind::Stalled)
        && matches!(&thread.status, Status::Settled(settled) if mark(settled.last_word()).is_none())
}

/// A graph template that may manage all edges, or the role of that name.
fn is_orchestrator(thread: &Thread) -> bool {
    let spawned = &thread.spawned;
    (spawned.role.is_graph() && spawned.edge_management == EdgeManagement::All)
        || spawned.role.agent_type == "orchestrator"
}

/// The orchestrators that are due a turn now.
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

/// Whether an idle orchestrator is due a turn: nothing holds it back, nothing is pending that will start one by itself, and
/// nobody below it is at work or waits. Mail that does not wake it is no reason to wait: the turn shows it.
#[must_use]
pub fn is_due(session: &Session, thread: &Thread) -> bool {
    session.settings.orchestration == Orchestration::Auto
        && is_idle(thread)
        && super::decide::may_start_in(session, thread).is_ok()
        && (thread.mail.is_empty() || thread.spawned.wake_policy == WakePolicy::None)
        && (!limits::needs_slot(session, thread) || limits::slot_for_newcomer(session))
        && !is_awaited_below(session, thread.id)
}

/// Whether a descendant is active, queued, or waits for an operator.
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
