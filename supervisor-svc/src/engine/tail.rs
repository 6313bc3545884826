//! All events of a session from a position on. Events are read from the log until the reader has caught up, then
//! received as they are appended. A reader that lags reads from the log again.

use std::sync::Arc;

use supervisor_log::{
    codec::decode_record,
    store::{EventStore, limits::MAX_PAGE},
};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{commit::Commit, error::Failure, handle::Handle};
use crate::domain::{
    event::Recorded,
    ids::{Sequence, SessionId},
};

/// A reader's position in a session. Invariant: everything up to `position` was returned, and everything after it will
/// be.
pub struct Tail {
    store: Arc<dyn EventStore>,
    handle: Handle,
    feed: broadcast::Receiver<Arc<Commit>>,
    position: Sequence,
    /// Whether the log may contain events that the feed does not deliver.
    behind: bool,
}

impl Tail {
    /// Creates a reader that begins after the event with the given number.
    pub fn after(store: Arc<dyn EventStore>, handle: Handle, position: Sequence) -> Self {
        // Subscribes before the state is read, so that no event is missed between the two.
        let feed = handle.follow();
        Self {
            store,
            handle,
            feed,
            position,
            behind: true,
        }
    }

    /// Returns the next events, at least one and at most a page. Waits until there are some. Cancel safe: dropping the
    /// future loses no events.
    ///
    /// # Errors
    /// Errors from reading the log. [`Failure::Gone`] when the session's actor has ended.
    pub async fn next(&mut self) -> Result<Vec<Recorded>, Failure> {
        loop {
            let events = if self.behind {
                self.read_behind().await?
            } else {
                self.read_feed().await?
            };
            if let Some(last) = events.last() {
                self.position = last.sequence;
                return Ok(events);
            }
        }
    }

    async fn read_behind(&mut self) -> Result<Vec<Recorded>, Failure> {
        // Read only published records. A record may be durable shortly before it is published.
        let published = self.handle.state().sequence;
        let events = read_log(self.store.as_ref(), self.handle.id(), self.position, published).await?;
        self.behind = !events.is_empty();
        Ok(events)
    }

    async fn read_feed(&mut self) -> Result<Vec<Recorded>, Failure> {
        let commit = tokio::select! {
            biased;
            commit = self.feed.recv() => commit,
            () = self.handle.ended() => return Err(Failure::Gone),
        };
        match commit {
            Ok(commit) => Ok(commit
                .events
                .iter()
                .filter(|recorded| recorded.sequence > self.position)
                .cloned()
                .collect()),
            Err(RecvError::Lagged(_)) => {
                self.behind = true;
                Ok(Vec::new())
            }
            Err(RecvError::Closed) => Err(Failure::Gone),
        }
    }
}

/// Returns a page of a session's log after `after` and up to `until`. The page is empty if there are no events between
/// them.
///
/// # Errors
/// The read error.
pub async fn read_log(
    store: &dyn EventStore,
    session: SessionId,
    after: Sequence,
    until: Sequence,
) -> Result<Vec<Recorded>, Failure> {
    if after >= until {
        return Ok(Vec::new());
    }
    store
        .read(session, after, MAX_PAGE)
        .await?
        .iter()
        .take_while(|stored| stored.sequence <= until)
        .map(|stored| decode_record(session, &stored.bytes).map_err(Failure::from))
        .collect()
}
