//! Which sessions changed, for those who follow all of them. Every follower has a set of its own: it grows with the sessions,
//! never with their changes, so a slow follower slows nobody and misses none.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::domain::ids::SessionId;

/// Where changes are told. Cheap to clone; every clone is the same.
#[derive(Clone, Debug, Default)]
pub struct News {
    // Held for one change or one round, never across an await. Who begins to follow takes it too, and so either is told of a
    // change or reads what was published before it.
    followers: Arc<Mutex<Vec<Arc<Inbox>>>>,
}

#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<BTreeSet<SessionId>>,
    news: Notify,
}

/// One who follows all sessions, from its beginning until it is dropped.
#[derive(Debug)]
pub struct Follower {
    inbox: Arc<Inbox>,
    news: News,
}

impl News {
    /// Tells every follower that a session is new, changed or gone, after that was published.
    pub(super) fn tell(&self, session: SessionId) {
        for inbox in lock(&self.followers).iter() {
            lock(&inbox.changed).insert(session);
            inbox.news.notify_one();
        }
    }

    /// Begins to follow. What is read after this call is not older than what is told.
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
    /// Waits until a session changed; it is answered by [`Self::take`].
    pub async fn changed(&self) {
        loop {
            if !lock(&self.inbox.changed).is_empty() {
                return;
            }
            self.inbox.news.notified().await;
        }
    }

    /// The sessions that changed since this was called last.
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
    // Every change is one call, so a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
