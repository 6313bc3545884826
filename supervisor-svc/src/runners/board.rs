//! Volatile per-thread values, grouped by session, for watchers. They are held in memory and are not part of the log.
//! Watchers read the values that changed since their last read. A change in one session does not wake the watchers of
//! another one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use svc_kit::lock::lock;
use tokio::sync::watch;

use crate::domain::ids::{SessionId, ThreadId};

/// A value for each thread. Cheap to clone; all clones share the values.
#[derive(Clone, Debug, Default)]
pub struct Board<V> {
    // Locked for one look-up or one change, never across an await. A panic leaves at most one thread's value
    // incomplete, and the next update replaces it.
    sessions: Arc<Mutex<Sessions<V>>>,
}

/// The values of all sessions.
#[derive(Debug, Default)]
struct Sessions<V> {
    /// Incremented with each change in any session.
    version: u64,
    /// Number of threads with values.
    count: usize,
    all: HashMap<SessionId, Threads<V>>,
}

/// The values of one session's threads.
#[derive(Debug, Default)]
struct Threads<V> {
    values: HashMap<ThreadId, V>,
    changed: watch::Sender<()>,
}

impl<V> Sessions<V> {
    fn remove(&mut self, session: SessionId, thread: ThreadId) {
        let Some(threads) = self.all.get_mut(&session) else {
            return;
        };
        if threads.values.remove(&thread).is_some() {
            self.count -= 1;
        }
        if threads.values.is_empty() && threads.changed.receiver_count() == 0 {
            self.all.remove(&session);
        }
    }
}

impl<V: Default> Board<V> {
    /// Changes the values of a session's threads. `change` receives the number of this change. Returns the number of
    /// threads with values, in all sessions.
    pub(super) fn change(&self, session: SessionId, change: impl FnOnce(&mut HashMap<ThreadId, V>, u64)) -> usize {
        let mut sessions = lock(&self.sessions);
        let Sessions { version, count, all } = &mut *sessions;
        *version += 1;
        let threads = all.entry(session).or_default();
        let before = threads.values.len();
        change(&mut threads.values, *version);
        *count = *count + threads.values.len() - before;
        threads.changed.send_replace(());
        *count
    }

    /// Reads the values of a session's threads.
    pub(super) fn read<R>(&self, session: SessionId, read: impl FnOnce(&HashMap<ThreadId, V>) -> R) -> Option<R> {
        lock(&self.sessions)
            .all
            .get(&session)
            .map(|threads| read(&threads.values))
    }

    /// Returns a receiver that changes with every change in the session.
    #[must_use]
    pub fn changes(&self, session: SessionId) -> watch::Receiver<()> {
        lock(&self.sessions).all.entry(session).or_default().changed.subscribe()
    }

    /// Forgets a thread that is closed.
    pub fn forget(&self, session: SessionId, thread: ThreadId) {
        lock(&self.sessions).remove(session, thread);
    }

    /// Forgets a session.
    pub fn forget_session(&self, session: SessionId) {
        let mut sessions = lock(&self.sessions);
        let forgotten = sessions.all.remove(&session);
        sessions.count -= forgotten.map_or(0, |threads| threads.values.len());
    }

    /// Removes a passivated session if none of its threads has a value. Otherwise the values remain available for later
    /// watchers.
    pub fn tidy(&self, session: SessionId) {
        let mut sessions = lock(&self.sessions);
        if sessions
            .all
            .get(&session)
            .is_some_and(|threads| threads.values.is_empty())
        {
            sessions.all.remove(&session);
        }
    }

    /// Forgets the thread, in any session, whose value has the least number.
    pub(super) fn forget_least(&self, number: impl Fn(&V) -> u64) {
        let mut sessions = lock(&self.sessions);
        let numbers = sessions.all.iter().flat_map(|(session, threads)| {
            let values = threads.values.iter();
            values.map(|(thread, value)| (number(value), *session, *thread))
        });
        if let Some((_, session, thread)) = numbers.min() {
            sessions.remove(session, thread);
        }
    }
}
