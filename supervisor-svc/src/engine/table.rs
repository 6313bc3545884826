//! The table of the actors in this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OnceCell;

use super::handle::Handle;
use crate::domain::{ids::SessionId, state::session::Session};

/// The slot for the handle to a session's actor, shared by the callers that wait for the actor to start.
pub(super) type Slot = Arc<OnceCell<Handle>>;

/// The actors by session. Cheap to clone; all clones share the same table.
#[derive(Clone, Default)]
pub(super) struct ActorTable {
    // Held for look-ups only, never across an await.
    slots: Arc<Mutex<HashMap<SessionId, Slot>>>,
}

impl ActorTable {
    /// Returns the number of sessions in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns the sessions in memory.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.lock().keys().copied().collect()
    }

    /// Returns the present states of all sessions in memory.
    pub fn states(&self) -> Vec<Arc<Session>> {
        let slots = self.lock();
        let handles = slots.values().filter_map(|slot| slot.get());
        handles.map(Handle::state).collect()
    }

    /// Returns the present state of a session in memory, without keeping it there.
    pub fn peek(&self, id: SessionId) -> Option<Arc<Session>> {
        let slots = self.lock();
        let handle = slots.get(&id)?.get()?;
        (!handle.has_ended()).then(|| handle.state())
    }

    /// Returns a session's slot. Creates it if necessary.
    pub fn slot(&self, id: SessionId) -> Slot {
        Arc::clone(self.lock().entry(id).or_default())
    }

    /// Removes a slot, unless another one replaced it.
    pub fn forget(&self, id: SessionId, slot: &Slot) {
        let mut slots = self.lock();
        if slots.get(&id).is_some_and(|present| Arc::ptr_eq(present, slot)) {
            slots.remove(&id);
        }
    }

    /// Removes an actor's slot if `is_idle` and there are no other handles, existing or in the making. The check and the
    /// removal happen under one lock, so no caller can look the session up in between.
    pub fn release(&self, handle: &mut Handle, is_idle: impl FnOnce() -> bool) -> bool {
        let mut slots = self.lock();
        if !is_slot_of(slots.get(&handle.id()), handle) {
            return handle.is_alone() && is_idle();
        }
        let Some(slot) = slots.remove(&handle.id()) else {
            return false;
        };
        match Arc::try_unwrap(slot) {
            // A caller is about to take the handle from the slot.
            Err(slot) => {
                slots.insert(handle.id(), slot);
                false
            }
            Ok(slot) => {
                drop(slot);
                let is_free = handle.is_alone() && is_idle();
                if !is_free {
                    slots.insert(handle.id(), Arc::new(OnceCell::new_with(Some(handle.clone()))));
                }
                is_free
            }
        }
    }

    /// Removes an actor's slot even if there are other handles.
    pub fn remove(&self, handle: &Handle) {
        let mut slots = self.lock();
        if is_slot_of(slots.get(&handle.id()), handle) {
            slots.remove(&handle.id());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Slot>> {
        // Each change to the map is a single call, so the map stays consistent after a panic.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether this is the slot of that handle's actor.
fn is_slot_of(slot: Option<&Slot>, handle: &Handle) -> bool {
    slot.and_then(|slot| slot.get())
        .is_some_and(|present| present.is_same(handle))
}
