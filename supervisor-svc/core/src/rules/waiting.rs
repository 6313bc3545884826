//! The threads that lend their slots while they wait for queued descendants.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    ids::ThreadId,
    state::{session::Session, thread::Thread, wait::Wait},
    status::{Status, StatusKind},
};

/// Returns the threads that lend their slot.
#[must_use]
pub fn lenders(session: &Session) -> BTreeSet<ThreadId> {
    let has_queued = session.queued().next().is_some();
    session
        .waits
        .0
        .values()
        .filter(|wait| is_current(wait, session) && session.holding().contains(&wait.thread))
        .filter(|wait| wait.lent || (has_queued && awaits_queued(wait, session)))
        .map(|wait| wait.thread)
        .collect()
}

/// Returns whether the waiting attempt is still current and running.
fn is_current(wait: &Wait, session: &Session) -> bool {
    session
        .thread(wait.thread)
        .is_some_and(|thread| thread.generation == wait.generation && thread.status == Status::Running)
}

fn awaits_queued(wait: &Wait, session: &Session) -> bool {
    wait.awaited.iter().filter(|id| **id != wait.thread).any(|id| {
        let is_queued = |thread: &Arc<Thread>| thread.status.kind() == StatusKind::Queued;
        session.thread(*id).is_some_and(is_queued) && session.is_within(*id, wait.thread)
    })
}
