//! The table of the actors in this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OnceCell;

use super::handle::Handle;
use crate::domain::{ids::SessionId, state::session::Session};

/// The place of the handle to a session's actor, shared by the callers that wait for the actor to start.
type Place = Arc<OnceCell<Handle>>;

/// A caller's share of the place of a session's actor.
///
/// Invariant: a place in which an actor may yet start is in the table, otherwise another caller would start a second
/// actor. So a failed start does not remove the place. The last share removes it if it is empty.
pub(super) struct Slot {
    table: ActorTable,
    id: SessionId,
    /// `None` while it is dropped.
    place: Option<Place>,
}

impl Slot {
    /// Returns the handle, after `start` has started the actor if necessary. One caller starts it at a time.
    pub async fn get_or_start<E, F>(&self, start: impl FnOnce() -> F) -> Result<Handle, E>
    where
        F: Future<Output = Result<Handle, E>>,
    {
        match &self.place {
            Some(place) => place.get_or_try_init(start).await.cloned(),
            None => start().await,
        }
    }

    /// Removes the place from the table, because the actor in it has ended.
    pub fn forget(self) {
        let mut places = self.table.lock();
        if let (Some(present), Some(own)) = (places.get(&self.id), &self.place)
            && Arc::ptr_eq(present, own)
        {
            places.remove(&self.id);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut places = self.table.lock();
        self.place = None;
        let is_unused = |place: &Place| Arc::strong_count(place) == 1 && !place.initialized();
        if places.get(&self.id).is_some_and(is_unused) {
            places.remove(&self.id);
        }
    }
}

/// The actors by session. Cheap to clone; all clones share the same table.
#[derive(Clone, Default)]
pub(super) struct ActorTable {
    // Held for look-ups only, never across an await.
    places: Arc<Mutex<HashMap<SessionId, Place>>>,
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
        let places = self.lock();
        let handles = places.values().filter_map(|place| place.get());
        handles.map(Handle::state).collect()
    }

    /// Returns the present state of a session in memory, without keeping it there.
    pub fn peek(&self, id: SessionId) -> Option<Arc<Session>> {
        let places = self.lock();
        let handle = places.get(&id)?.get()?;
        (!handle.has_ended() && !handle.is_leaving()).then(|| handle.state())
    }

    /// Returns a share of a session's place, which is created if necessary.
    pub fn slot(&self, id: SessionId) -> Slot {
        let place = Arc::clone(self.lock().entry(id).or_default());
        Slot {
            table: self.clone(),
            id,
            place: Some(place),
        }
    }

    /// Removes an actor's place if `is_idle` and there are no other handles, existing or in the making. The check and the
    /// removal happen under one lock, so no caller can look the session up in between.
    pub fn release(&self, handle: &mut Handle, is_idle: impl FnOnce() -> bool) -> bool {
        let mut places = self.lock();
        if !is_place_of(places.get(&handle.id()), handle) {
            return handle.is_alone() && is_idle();
        }
        let Some(place) = places.remove(&handle.id()) else {
            return false;
        };
        match Arc::try_unwrap(place) {
            // A caller is about to take the handle from the place.
            Err(place) => {
                places.insert(handle.id(), place);
                false
            }
            Ok(place) => {
                drop(place);
                let is_free = handle.is_alone() && is_idle();
                if !is_free {
                    places.insert(handle.id(), Arc::new(OnceCell::new_with(Some(handle.clone()))));
                }
                is_free
            }
        }
    }

    /// Removes an actor's place even if there are other handles.
    pub fn remove(&self, handle: &Handle) {
        let mut places = self.lock();
        if is_place_of(places.get(&handle.id()), handle) {
            places.remove(&handle.id());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Place>> {
        // Each change to the map is a single call, so the map stays consistent after a panic.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether this is the place of that handle's actor.
fn is_place_of(place: Option<&Place>, handle: &Handle) -> bool {
    place
        .and_then(|place| place.get())
        .is_some_and(|present| present.is_same(handle))
}
