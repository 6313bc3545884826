//! Waits of threads for other threads. Waits are volatile: a wait lives as long as its call and is not part of the log
//! or of snapshots. After a restart, no waits exist until callers repeat their calls.
//!
//! A thread that waits for a queued descendant lends its slot until the wait ends. Otherwise parents could hold every
//! slot while they wait for children that need one, and the queue would deadlock.

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;

use crate::{
    ids::{Generation, ThreadId, WaitId},
    state::thread::Thread,
};

/// A call of a thread that waits for other threads.
#[derive(Clone, Debug)]
pub struct Wait {
    pub(crate) thread: ThreadId,
    pub(crate) generation: Generation,
    pub(crate) awaited: Arc<BTreeSet<ThreadId>>,
    /// Whether a thread that this call waits for was admitted. If so, the slot is lent until the wait ends.
    pub(crate) lent: bool,
}

/// All waits of a session's threads. Waits do not affect the equality of states.
#[derive(Clone, Debug, Default)]
pub struct Waits(pub(crate) OrdMap<WaitId, Wait>);

impl PartialEq for Waits {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Wait {
    /// Creates a wait of an attempt.
    #[must_use]
    pub const fn new(thread: ThreadId, generation: Generation, awaited: Arc<BTreeSet<ThreadId>>) -> Self {
        Self {
            thread,
            generation,
            awaited,
            lent: false,
        }
    }

    /// Returns the waiting thread.
    #[must_use]
    pub const fn thread(&self) -> ThreadId {
        self.thread
    }
}

impl Waits {
    /// Starts a wait.
    pub fn begin(&mut self, id: WaitId, wait: Wait) {
        self.0.insert(id, wait);
    }

    /// Ends a wait and returns it.
    pub fn end(&mut self, id: WaitId) -> Option<Wait> {
        self.0.remove(&id)
    }

    /// Marks the slots of the threads that wait for `admitted` as lent, because `admitted` left the queue.
    pub(crate) fn lend_to(&mut self, admitted: ThreadId) {
        let waits = self.0.iter().filter(|(_, wait)| wait.awaited.contains(&admitted));
        let lending: Vec<WaitId> = waits.map(|(id, _)| *id).collect();
        for id in lending {
            if let Some(wait) = self.0.get_mut(&id) {
                wait.lent = true;
            }
        }
    }

    /// Returns whether the thread waits for other threads.
    #[must_use]
    pub fn any_by(&self, thread: &Thread) -> bool {
        self.0
            .values()
            .any(|wait| wait.thread == thread.id && wait.generation == thread.generation)
    }
}
