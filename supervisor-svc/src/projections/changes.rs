//! Notifications of changed sessions for followers of all sessions. Each follower has a separate set that grows with
//! the number of sessions, not of changes. A slow follower therefore misses no session and does not block others.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::domain::ids::SessionId;

/// Publishes changes of sessions. Cheap to clone; all clones share the same followers.
#[derive(Clone, Debug, Default)]
pub struct News {
    // Held for one change or one iteration, never across an await. A new follower takes it too, so that it either
    // receives a change or reads the state published before it.
    followers: Arc<Mutex<Vec<Arc<Inbox>>>>,
}

#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<BTreeSet<SessionId>>,
    news: Notify,
}

/// A subscription to all sessions, from its creation until it is dropped.
#[derive(Debug)]
pub struct Follower {
    inbox: Arc<Inbox>,
    news: News,
}

impl News {
    /// Notifies every follower that a session was created, changed or deleted. Call it after that was published.
    pub(super) fn tell(&self, session: SessionId) {
        for inbox in lock(&self.followers).iter() {
            lock(&inbox.changed).insert(session);
            inbox.news.notify_one();
        }
    }

    /// Subscribes to changes. State read after this call is at least as new as the notifications.
    #[must_use]
    pub fn follow(&self) -> Follower {
        let inbox = Arc::new(Inbox::default());
        lock(&self.followers).push(Arc::clone(&inbox));
        Follower {
            inbox,
            news: self.clone(),
        }
    }
}

impl Follower {
    /// Waits until a session changed; [`Self::take`] returns it.
    pub async fn changed(&self) {
        loop {
            if !lock(&self.inbox.changed).is_empty() {
                return;
            }
            self.inbox.news.notified().await;
        }
    }

    /// Returns the sessions that changed since the last call.
    #[must_use]
    pub fn take(&self) -> BTreeSet<SessionId> {
        std::mem::take(&mut *lock(&self.inbox.changed))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        lock(&self.news.followers).retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is a single call, so the value stays consistent after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
