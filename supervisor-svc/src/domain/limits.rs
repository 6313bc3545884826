//! Depth, slots and totals: how large a session's tree may grow. All are functions of the state, never counters beside it.

use std::time::Duration;

use super::{
    budget, event::CloseCause, ids::ThreadId, refusal::Refusal, session::Session, thread::Thread, time::UnixMillis,
};

/// How much input may wait for one thread.
pub const MAX_PENDING_INPUTS: usize = 64;

/// How many bytes of input may wait for one thread, unless it is a single one: a turn is given all of it in one message,
/// as it came and as text, and once more what a lost attempt was given.
pub const MAX_PENDING_INPUT_BYTES: u64 = 512 * 1024;

/// How often a thread is restarted within [`RESTART_WINDOW`]; one restart more closes its subtree instead.
pub const MAX_RESTARTS_IN_WINDOW: usize = 3;

/// The time in which restarts are counted together: a thread that kills its runners is not tried for ever, one that lost
/// a runner now and then is.
pub const RESTART_WINDOW: Duration = Duration::from_secs(10 * 60);

/// Checks that a child of `parent` would not be too deep, and answers its depth.
///
/// # Errors
/// [`Refusal::DepthLimit`].
pub fn child_depth(session: &Session, parent: &Thread) -> Result<u32, Refusal> {
    let depth = parent.spawned.depth + 1;
    let max_depth = session.settings.limits.max_depth;
    if depth > max_depth {
        return Err(Refusal::DepthLimit { depth, max_depth });
    }
    Ok(depth)
}

/// Whether a thread may be offered spawn tools: by depth, a child of it would be legal.
#[must_use]
pub fn may_spawn(session: &Session, thread: &Thread) -> bool {
    child_depth(session, thread).is_ok()
}

/// How many threads count against the limit: those that hold a slot, but for those that lent theirs to a queued descendant
/// and wait for it. When such a wait is over more than the limit may count for a while; nobody new is admitted meanwhile.
#[must_use]
pub fn active(session: &Session) -> u32 {
    let lent = session.waits.lenders(session).len();
    u32::try_from(session.holding().len().saturating_sub(lent)).unwrap_or(u32::MAX)
}

/// Whether a slot is free for somebody who is not in the queue: a newcomer never overtakes it. Who is queued under a fence
/// will never be admitted and holds nobody up.
#[must_use]
pub fn slot_for_newcomer(session: &Session) -> bool {
    let somebody_waits = session.queued().any(|id| !session.is_closing(id));
    !somebody_waits && active(session) < session.settings.limits.max_threads
}

/// The threads that are admitted now: first those whose turn ended with input waiting, since the slot that the one turn
/// frees is the next one's, then the queue, first come, first served.
#[must_use]
pub fn admissible(session: &Session) -> Vec<ThreadId> {
    if session.paused {
        return Vec::new();
    }
    let mut free = session.settings.limits.max_threads.saturating_sub(active(session));
    let mut admitted = Vec::new();
    for thread in session.going_on() {
        let held_back = session.is_closing(thread.id) || budget::exhausted_over(session, thread.id).is_some();
        if held_back || (free == 0 && needs_slot(session, thread)) {
            continue;
        }
        if needs_slot(session, thread) {
            free -= 1;
        }
        admitted.push(thread.id);
    }
    admitted.extend(
        session
            .queued()
            .filter(|id| !session.is_closing(*id))
            .take(free as usize),
    );
    admitted
}

/// Whether the thread's next turn takes a slot that it does not hold yet. The root needs none.
#[must_use]
pub fn needs_slot(session: &Session, thread: &Thread) -> bool {
    thread.spawned.parent.is_some() && !session.holding().contains(&thread.id)
}

/// The refusal of a newcomer when no slot is free.
#[must_use]
pub fn no_slot(session: &Session) -> Refusal {
    Refusal::ThreadLimit {
        max_threads: session.settings.limits.max_threads,
        active: active(session),
    }
}

/// Checks that the session may ever have one thread more.
///
/// # Errors
/// [`Refusal::OpenLimit`].
pub fn total(session: &Session) -> Result<(), Refusal> {
    let limits = &session.settings.limits;
    if session.total() >= limits.max_total_threads as usize {
        return Err(Refusal::OpenLimit {
            what: "total agent thread",
            max: limits.max_total_threads,
            remedy: "open a new session",
        });
    }
    Ok(())
}

/// How many threads have to be closed so that one more may be open. Those that are leaving already, because they were
/// evicted, do not count as open.
#[must_use]
pub fn open_excess(session: &Session) -> usize {
    let evicted = session
        .fenced()
        .filter(|(_, fence)| fence.cause == CloseCause::Eviction)
        .count();
    let open = session.open_count().saturating_sub(evicted);
    (open + 1).saturating_sub(session.settings.limits.max_open_threads as usize)
}

/// The refusal where as many threads are open as may be, and none can make room.
#[must_use]
pub fn no_room(session: &Session) -> Refusal {
    Refusal::OpenLimit {
        what: "open agent thread",
        max: session.settings.limits.max_open_threads,
        remedy: "close agents that are done",
    }
}

/// Whether a thread was restarted as often as it may be: the next loss of its runner is its end.
#[must_use]
pub fn restarts_are_spent(thread: &Thread, now: UnixMillis) -> bool {
    let recent = thread.restarts.iter().filter(|at| now.since(**at) < RESTART_WINDOW);
    recent.count() >= MAX_RESTARTS_IN_WINDOW
}
