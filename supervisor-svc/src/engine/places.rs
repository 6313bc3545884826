//! The known owners of sessions that other supervisors own. An entry may be out of date: the supervisor that it names
//! checks the ownership itself.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use supervisor_log::store::MemberId;
use svc_kit::lock::lock;

use crate::domain::ids::SessionId;

/// The maximum number of entries. Beyond it, all of them are forgotten: a miss costs one statement of the database.
const MAX_OWNERS: usize = 100_000;

/// The known owners of sessions.
#[derive(Debug, Default)]
pub(super) struct Places {
    // Held for look-ups only, never across an await.
    owners: Mutex<HashMap<SessionId, MemberId>>,
    /// Whether this supervisor takes over no more sessions.
    is_leaving: AtomicBool,
}

impl Places {
    /// Returns the supervisor that owns a session, if it is known.
    pub fn owner(&self, session: SessionId) -> Option<MemberId> {
        lock(&self.owners).get(&session).copied()
    }

    /// Remembers the owner of a session.
    pub fn put(&self, session: SessionId, owner: MemberId) {
        let mut owners = lock(&self.owners);
        if owners.len() >= MAX_OWNERS {
            owners.clear();
        }
        owners.insert(session, owner);
    }

    /// Forgets this owner of a session. Keeps the entry if it names another owner.
    pub fn forget(&self, session: SessionId, owner: MemberId) {
        let mut owners = lock(&self.owners);
        if owners.get(&session) == Some(&owner) {
            owners.remove(&session);
        }
    }

    /// Forgets the sessions of these supervisors.
    pub fn forget_members(&self, gone: &[MemberId]) {
        lock(&self.owners).retain(|_, owner| !gone.contains(owner));
    }

    /// Records that this supervisor takes over no more sessions.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }
}
