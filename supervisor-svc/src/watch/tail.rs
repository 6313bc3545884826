//! A session's events from a position on, for whoever reads them all: from the log until it is caught up, then as they are
//! appended. Whoever is slow goes back to the log.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    domain::{
        event::Recorded,
        ids::{Sequence, SessionId},
    },
    session::{Commit, Failure, Handle},
    store::{EventStore, limits::MAX_PAGE},
    wire,
};

/// A reader's place in a session. Invariant: everything up to `position` was answered, everything after it will be.
pub(crate) struct Tail {
    store: Arc<dyn EventStore>,
    handle: Handle,
    feed: broadcast::Receiver<Arc<Commit>>,
    position: Sequence,
    /// Whether the log may hold events that the feed does not bring.
    behind: bool,
}

impl Tail {
    /// Begins after the event of that number.
    pub fn after(store: Arc<dyn EventStore>, handle: Handle, position: Sequence) -> Self {
        // Subscribed before the state is read, so that nothing falls between the two.
        let feed = handle.follow();
        Self {
            store,
            handle,
            feed,
            position,
            behind: true,
        }
    }

    /// The next events, at least one and at most a page. Waits until there are some; nothing is lost if it is dropped
    /// meanwhile.
    ///
    /// # Errors
    /// What reading the log met; [`Failure::Gone`] when the session's actor has ended.
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
        // Only what is published: a record may be durable a moment before anybody may know.
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

/// A page of a session's log after `after` and up to `until`; empty if there is nothing between them.
///
/// # Errors
/// What reading it met.
pub(crate) async fn read_log(
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
        .map(|stored| wire::decode_record(session, &stored.bytes).map_err(Failure::from))
        .collect()
}
