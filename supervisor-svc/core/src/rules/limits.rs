//! Limits of depth, slots and thread counts. All counts are functions of the state, without separate counters.

use std::time::Duration;

use crate::{
    event::CloseCause,
    ids::ThreadId,
    rejection::Rejection,
    rules::{budget, waiting},
    state::{session::Session, thread::Thread},
    time::UnixMillis,
};

/// Maximum number of queued inputs of one thread.
pub const MAX_PENDING_INPUTS: usize = 64;

/// Maximum total size of a thread's queued inputs, in bytes. A single input may be larger. The message of a turn can
/// be larger: it contains all queued inputs, each in its original form and as text, and repeats the inputs that a lost
/// attempt had received.
pub const MAX_PENDING_INPUT_BYTES: u64 = 512 * 1024;

/// Maximum number of restarts of a thread within [`RESTART_WINDOW`]. The next restart closes its subtree instead.
pub const MAX_RESTARTS_IN_WINDOW: usize = 3;

/// The time window in which restarts are counted. A thread that repeatedly crashes its runners is closed, while a
/// thread that loses a runner occasionally is restarted.
pub const RESTART_WINDOW: Duration = Duration::from_secs(10 * 60);

/// Checks that a child of `parent` does not exceed the maximum depth, and returns its depth.
///
/// # Errors
/// [`Rejection::DepthLimit`].
pub fn child_depth(session: &Session, parent: &Thread) -> Result<u32, Rejection> {
    let depth = parent.spawned.depth + 1;
    let max_depth = session.settings.limits.max_depth;
    if depth > max_depth {
        return Err(Rejection::DepthLimit { depth, max_depth });
    }
    Ok(depth)
}

/// Returns whether a thread may be offered spawn tools: a child would not exceed the maximum depth.
#[must_use]
pub fn may_spawn(session: &Session, thread: &Thread) -> bool {
    child_depth(session, thread).is_ok()
}

/// Returns the number of threads that count against the limit: threads that hold a slot, except threads that lend their
/// slot. A thread that waits for a queued descendant lends its slot until the wait ends, even if the descendant leaves
/// the queue earlier. After such a wait ends, the number can temporarily exceed the limit. No other thread is admitted
/// during that time.
#[must_use]
pub fn active(session: &Session) -> u32 {
    let lent = waiting::lenders(session).len();
    u32::try_from(session.holding().len().saturating_sub(lent)).unwrap_or(u32::MAX)
}

/// Returns whether a slot is free for a thread that is not in the queue. Such a thread never overtakes the queue.
/// Threads that are queued below a fence are never admitted and do not block others.
#[must_use]
pub fn has_free_slot(session: &Session) -> bool {
    let has_queued = session.queued().any(|id| !session.is_closing(id));
    !has_queued && active(session) < session.settings.limits.max_threads
}

/// Returns the threads to admit. Threads whose turn ended with queued input come first, because the slot that the turn
/// frees belongs to their next turn. The queue follows in order of arrival.
#[must_use]
pub fn admissible(session: &Session) -> Vec<ThreadId> {
    if session.paused {
        return Vec::new();
    }
    let mut free = session.settings.limits.max_threads.saturating_sub(active(session));
    let mut admitted = Vec::new();
    for thread in session.continuing() {
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

/// Returns whether the thread's next turn needs a slot that the thread does not hold. The root needs none.
#[must_use]
pub fn needs_slot(session: &Session, thread: &Thread) -> bool {
    thread.spawned.parent.is_some() && !session.holding().contains(&thread.id)
}

/// Returns the rejection of a new thread when no slot is free.
#[must_use]
pub fn no_slot(session: &Session) -> Rejection {
    Rejection::ThreadLimit {
        max_threads: session.settings.limits.max_threads,
        active: active(session),
    }
}

/// Checks that the session's total number of threads permits another one. The threads of groups do not count, because
/// the size of a group is limited.
///
/// # Errors
/// [`Rejection::OpenLimit`].
pub fn total(session: &Session) -> Result<(), Rejection> {
    let limits = &session.settings.limits;
    if session.total() - session.item_threads() >= limits.max_total_threads as usize {
        return Err(Rejection::OpenLimit {
            what: "total agent thread",
            max: limits.max_total_threads,
            remedy: "open a new session",
        });
    }
    Ok(())
}

/// Returns how many threads must close before another one can open. Evicted threads that are closing do not count as
/// open.
#[must_use]
pub fn open_excess(session: &Session) -> usize {
    let evicted = session
        .fenced()
        .filter(|(_, fence)| fence.cause == CloseCause::Eviction)
        .count();
    let open = session.open_count().saturating_sub(evicted);
    (open + 1).saturating_sub(session.settings.limits.max_open_threads as usize)
}

/// Returns the rejection at the limit of open threads when no thread can be evicted.
#[must_use]
pub fn open_limit_reached(session: &Session) -> Rejection {
    Rejection::OpenLimit {
        what: "open agent thread",
        max: session.settings.limits.max_open_threads,
        remedy: "close agents that are done",
    }
}

/// Returns whether a thread has used all its restarts. The next loss of its runner closes the thread.
#[must_use]
pub fn restarts_are_spent(thread: &Thread, now: UnixMillis) -> bool {
    let recent = thread.restarts.iter().filter(|at| now.since(**at) < RESTART_WINDOW);
    recent.count() >= MAX_RESTARTS_IN_WINDOW
}
