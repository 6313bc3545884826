//! The commit feed: the only way out of a session.
//!
//! A session's actor calls the process's [`Subscriber`]s and its own [`Subscription`]s after each durable append, in
//! the order of the log and before it takes the next command. Both run in the actor's task, so they must return
//! quickly: slow work belongs in a separate task, which reports its end with [`Waker::wake`]. Followers with their own
//! pace, such as watches, receive the same commits from [`Handle::follow`].

use std::{collections::VecDeque, sync::Arc, time::Duration};

use supervisor_log::store::Content;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::handle::{Handle, Message};
use crate::domain::{command::Command, event::Recorded, ids::SessionId, state::session::Session};

/// A session in memory, as its subscriptions see it.
#[derive(Clone, Copy, Debug)]
pub struct Active<'a> {
    /// The handle of the session's actor. A subscription must not keep a clone: each clone keeps the session in memory.
    /// The subscription's tasks may keep a clone.
    pub handle: &'a Handle,
    /// The durable state.
    pub session: &'a Arc<Session>,
}

/// A durable append.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The session after the append.
    pub after: Active<'a>,
    /// The state before the append.
    pub before: &'a Session,
    /// The events of the append.
    pub events: &'a [Recorded],
}

/// Reacts to the commits of all sessions of the process.
pub trait Subscriber: Send + Sync {
    /// Begins to follow a session that was activated. Returns `None` if the subscriber needs no state per session.
    fn subscribe(&self, _session: &Active<'_>, _commands: &mut Commands) -> Option<Box<dyn Subscription>> {
        None
    }

    /// Called when a session was created.
    fn created(&self, _session: SessionId) {}

    /// Called after each durable append, before the session's subscriptions.
    fn committed(&self, _change: &Change<'_>) {}

    /// Called with the duration of each append that succeeded or failed.
    fn append_ended(&self, _elapsed: Duration) {}

    /// Called when a session left memory.
    fn passivated(&self, _session: SessionId) {}

    /// Called when a session was deleted.
    fn deleted(&self, _session: SessionId) {}
}

/// Follows one session in memory. Lives as long as the session's actor.
pub trait Subscription: Send {
    /// Reacts to a durable append.
    fn committed(&mut self, change: &Change<'_>, commands: &mut Commands);

    /// Recomputes pending work from the state alone. Called when [`Feed`]'s signal changes, when [`Self::wake_at`] has
    /// passed, and after a failed append.
    fn reconcile(&mut self, _session: &Active<'_>, _commands: &mut Commands) {}

    /// Takes the results of tasks that called [`Waker::wake`].
    fn woken(&mut self, _session: &Active<'_>, _commands: &mut Commands) {}

    /// Returns when to call [`Self::reconcile`].
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// Returns whether tasks are running that need the session in memory.
    fn is_busy(&self) -> bool {
        false
    }

    /// Ends tasks that hold the session in memory and have nothing left to do. Returns whether there were any. The next
    /// commit may start them again.
    fn release(&mut self, _session: &Session) -> bool {
        false
    }
}

/// Commands from a session's actor and its subscriptions. They run before any request of a client.
#[derive(Debug, Default)]
pub struct Commands(VecDeque<(Command, Vec<Content>)>);

impl Commands {
    /// Adds a command.
    pub fn push(&mut self, command: Command) {
        self.push_with(command, Vec::new());
    }

    /// Adds a command whose events refer to these contents.
    pub fn push_with(&mut self, command: Command, contents: Vec<Content>) {
        self.0.push_back((command, contents));
    }

    pub(super) fn pop(&mut self) -> Option<(Command, Vec<Content>)> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Wakes the subscriptions of a session. Does not keep the session in memory.
#[derive(Clone, Debug)]
pub struct Waker(mpsc::Sender<Message>);

impl Waker {
    /// Returns a waker of the session's subscriptions.
    #[must_use]
    pub fn of(handle: &Handle) -> Self {
        Self(handle.control())
    }

    /// Makes the actor call [`Subscription::woken`]. Has no effect if the actor has ended.
    pub async fn wake(&self) {
        let _ = self.0.send(Message::Wake).await;
    }
}

/// The subscribers of all sessions, and the signal at which sessions recompute their pending work.
pub struct Feed {
    subscribers: Vec<Arc<dyn Subscriber>>,
    signal: watch::Receiver<u64>,
}

impl Feed {
    /// Creates a feed. Subscribers are called in this order.
    #[must_use]
    pub fn new(subscribers: Vec<Arc<dyn Subscriber>>, signal: watch::Receiver<u64>) -> Self {
        Self { subscribers, signal }
    }

    pub(super) fn subscribers(&self) -> impl Iterator<Item = &dyn Subscriber> {
        self.subscribers.iter().map(|subscriber| &**subscriber)
    }

    /// Returns the signal. Only changes from now on count.
    pub(super) fn signal(&self) -> watch::Receiver<u64> {
        let mut signal = self.signal.clone();
        signal.mark_unchanged();
        signal
    }
}
