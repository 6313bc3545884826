//! The closing order: leaf first, reverse spawn order among the ready. A thread is ready once it has no open child.

use std::{sync::Arc, time::Duration};

use crate::{
    ids::ThreadId,
    state::{session::Session, thread::Thread},
};

/// Maximum duration of a cascade before the remaining threads are closed by force.
pub const CASCADE_DEADLINE: Duration = Duration::from_secs(30);

/// Returns the fenced threads that are ready to be stopped, newest spawn first. Walks the fenced subtree. Used once
/// after a fence and once after a restart. After that, [`next_ready`] follows each close upwards.
#[must_use]
pub fn ready_leaves(session: &Session, fenced: ThreadId) -> Vec<ThreadId> {
    let mut ready: Vec<&Arc<Thread>> = session
        .subtree(fenced)
        .into_iter()
        .filter(|thread| is_ready(thread))
        .collect();
    ready.sort_by_key(|thread| std::cmp::Reverse(thread.spawn_sequence));
    ready.into_iter().map(|thread| thread.id).collect()
}

/// Returns the parent of the closed thread if the parent is fenced and has no open child left.
#[must_use]
pub fn next_ready(session: &Session, closed: ThreadId) -> Option<ThreadId> {
    let parent = session.thread(closed)?.spawned.parent?;
    let thread = session.thread(parent)?;
    (is_ready(thread) && session.is_closing(parent)).then_some(parent)
}

fn is_ready(thread: &Thread) -> bool {
    thread.open_children == 0 && thread.status.kind().is_open()
}
