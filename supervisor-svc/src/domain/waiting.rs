//! Threads that wait for others at this moment. Volatile: a wait lives as long as the call that waits, so it stands in no log
//! and no snapshot, and after a restart nobody waits until somebody calls again.
//!
//! A thread that waits for a queued descendant lends its slot until the wait is over, so that waiting cannot deadlock the
//! queue: parents would else hold every slot and wait for children that need one.

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;

use super::{
    ids::{Generation, ThreadId, WaitId},
    session::Session,
    status::{Status, StatusKind},
    thread::Thread,
};

/// A thread's call that waits for others.
#[derive(Clone, Debug)]
pub struct Wait {
    thread: ThreadId,
    generation: Generation,
    awaited: Arc<BTreeSet<ThreadId>>,
    /// Somebody whom it awaits was admitted meanwhile: the slot is lent to the end of the wait.
    lent: bool,
}

/// Every wait of a session's threads. States that differ in their waits only are the same state.
#[derive(Clone, Debug, Default)]
pub struct Waits(OrdMap<WaitId, Wait>);

impl PartialEq for Waits {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Wait {
    /// A wait of an attempt at a thread.
    #[must_use]
    pub const fn new(thread: ThreadId, generation: Generation, awaited: Arc<BTreeSet<ThreadId>>) -> Self {
        Self {
            thread,
            generation,
            awaited,
            lent: false,
        }
    }

    /// The thread that waits.
    #[must_use]
    pub const fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Whether the attempt that waits is still the present one, and runs.
    fn lasts(&self, session: &Session) -> bool {
        session
            .thread(self.thread)
            .is_some_and(|thread| thread.generation == self.generation && thread.status == Status::Running)
    }

    fn awaits_queued(&self, session: &Session) -> bool {
        self.awaited.iter().filter(|id| **id != self.thread).any(|id| {
            let is_queued = |thread: &Arc<Thread>| thread.status.kind() == StatusKind::Queued;
            session.thread(*id).is_some_and(is_queued) && session.is_within(*id, self.thread)
        })
    }
}

impl Waits {
    /// A wait begins.
    pub fn begin(&mut self, id: WaitId, wait: Wait) {
        self.0.insert(id, wait);
    }

    /// A wait is over; answers it.
    pub fn end(&mut self, id: WaitId) -> Option<Wait> {
        self.0.remove(&id)
    }

    /// A thread left the queue: whoever waits for it has lent it a slot.
    pub(super) fn lend_to(&mut self, admitted: ThreadId) {
        let waits = self.0.iter().filter(|(_, wait)| wait.awaited.contains(&admitted));
        let lending: Vec<WaitId> = waits.map(|(id, _)| *id).collect();
        for id in lending {
            if let Some(wait) = self.0.get_mut(&id) {
                wait.lent = true;
            }
        }
    }

    /// Whether the thread waits for others.
    #[must_use]
    pub fn any_by(&self, thread: &Thread) -> bool {
        self.0
            .values()
            .any(|wait| wait.thread == thread.id && wait.generation == thread.generation)
    }

    /// The threads whose slots are lent.
    #[must_use]
    pub fn lenders(&self, session: &Session) -> BTreeSet<ThreadId> {
        let somebody_is_queued = session.queued().next().is_some();
        self.0
            .values()
            .filter(|wait| wait.lasts(session) && session.holding().contains(&wait.thread))
            .filter(|wait| wait.lent || (somebody_is_queued && wait.awaits_queued(session)))
            .map(|wait| wait.thread)
            .collect()
    }
}
