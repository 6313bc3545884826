//! The table of the actors in this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use svc_kit::lock::lock;
use tokio::sync::OnceCell;

use super::handle::Handle;
use crate::domain::{ids::SessionId, state::session::Session};

/// The handle to a session's actor, shared by the callers that wait for the actor to start.
type Entry = Arc<OnceCell<Handle>>;

/// A caller's look-up of a session's actor.
///
/// Invariant: an entry in which an actor may yet start is in the table, otherwise another caller would start a second
/// actor. So a failed start does not remove the entry. The last look-up removes an entry without a handle.
pub(super) struct LookUp {
    table: ActorTable,
    id: SessionId,
    entry: Entry,
}

impl LookUp {
    /// Returns the handle if the actor has started.
    pub fn started(&self) -> Option<Handle> {
        self.entry.get().cloned()
    }

    /// Returns the handle, after `start` has started the actor if necessary. One caller starts it at a time.
    pub async fn get_or_start<E, F>(&self, start: impl FnOnce() -> F) -> Result<Handle, E>
    where
        F: Future<Output = Result<Handle, E>>,
    {
        self.entry.get_or_try_init(start).await.cloned()
    }

    /// Removes the entry from the table, because its actor has ended.
    pub fn forget(self) {
        let mut entries = lock(&self.table.entries);
        if entries
            .get(&self.id)
            .is_some_and(|present| Arc::ptr_eq(present, &self.entry))
        {
            entries.remove(&self.id);
        }
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        if self.entry.initialized() {
            return;
        }
        let mut entries = lock(&self.table.entries);
        // The entry is dropped under the lock, so that exactly one of several ending look-ups is the last one.
        drop(std::mem::take(&mut self.entry));
        let is_unused = |entry: &Entry| Arc::strong_count(entry) == 1 && !entry.initialized();
        if entries.get(&self.id).is_some_and(is_unused) {
            entries.remove(&self.id);
        }
    }
}

/// The actors by session. Cheap to clone; all clones share the same table.
#[derive(Clone, Default)]
pub(super) struct ActorTable {
    // Held for look-ups only, never across an await.
    entries: Arc<Mutex<HashMap<SessionId, Entry>>>,
}

impl ActorTable {
    /// Returns the number of sessions in memory.
    pub fn len(&self) -> usize {
        lock(&self.entries).len()
    }

    /// Returns the sessions in memory.
    pub fn sessions(&self) -> Vec<SessionId> {
        lock(&self.entries).keys().copied().collect()
    }

    /// Returns the present states of all sessions in memory.
    pub fn states(&self) -> Vec<Arc<Session>> {
        let entries = lock(&self.entries);
        let handles = entries.values().filter_map(|entry| entry.get());
        handles.map(Handle::state).collect()
    }

    /// Returns the present state of a session in memory, without keeping it there.
    pub fn peek(&self, id: SessionId) -> Option<Arc<Session>> {
        let entries = lock(&self.entries);
        let handle = entries.get(&id)?.get()?;
        (!handle.has_ended() && !handle.is_leaving()).then(|| handle.state())
    }

    /// Looks a session's actor up. Creates an entry if necessary.
    pub fn look_up(&self, id: SessionId) -> LookUp {
        let entry = Arc::clone(lock(&self.entries).entry(id).or_default());
        LookUp {
            table: self.clone(),
            id,
            entry,
        }
    }

    /// Removes an actor's entry if `is_idle` returns true and no other handle exists or is being created. The check and
    /// the removal happen under one lock, so no caller can look the session up in between.
    pub fn release(&self, handle: &mut Handle, is_idle: impl FnOnce() -> bool) -> bool {
        let mut entries = lock(&self.entries);
        if !is_entry_of(entries.get(&handle.id()), handle) {
            return handle.is_alone() && is_idle();
        }
        let Some(entry) = entries.remove(&handle.id()) else {
            return false;
        };
        match Arc::try_unwrap(entry) {
            // A caller is about to take the handle from the entry.
            Err(entry) => {
                entries.insert(handle.id(), entry);
                false
            }
            Ok(entry) => {
                drop(entry);
                let is_free = handle.is_alone() && is_idle();
                if !is_free {
                    entries.insert(handle.id(), Arc::new(OnceCell::new_with(Some(handle.clone()))));
                }
                is_free
            }
        }
    }

    /// Removes an actor's entry even if there are other handles.
    pub fn remove(&self, handle: &Handle) {
        let mut entries = lock(&self.entries);
        if is_entry_of(entries.get(&handle.id()), handle) {
            entries.remove(&handle.id());
        }
    }
}

/// Returns whether this is the entry of that handle's actor.
fn is_entry_of(entry: Option<&Entry>, handle: &Handle) -> bool {
    entry
        .and_then(|entry| entry.get())
        .is_some_and(|present| present.is_same(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failed_start_leaves_the_entry_to_other_callers() {
        let (table, id) = (ActorTable::default(), SessionId::from_uuid(uuid::Uuid::nil()));
        let (first, second) = (table.look_up(id), table.look_up(id));
        assert!(first.get_or_start(|| async { Err(()) }).await.is_err());
        drop(first);
        assert_eq!(table.len(), 1, "the actor may yet start in it");
        drop(second);
        assert_eq!(table.len(), 0);
    }
}
