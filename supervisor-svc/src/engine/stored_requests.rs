//! The requests that a session remembers in its store, for the time until the actor has them in memory.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use supervisor_log::store::{EventStore, ReadError, RequestKey, RequestRecord, limits::MAX_PAGE};
use tokio::sync::Semaphore;

use super::{error::Failure, message::Remember};
use crate::domain::ids::SessionId;

/// The requests that a session remembers in its store.
pub(super) struct StoredRequests {
    store: Arc<dyn EventStore>,
    session: SessionId,
    /// Whether the actor has all of them in memory. Set by the actor only.
    are_restored: AtomicBool,
    /// Permits that the sessions of a process share, so that only a few of them read pages in the background.
    permits: Arc<Semaphore>,
}

impl fmt::Debug for StoredRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRequests").finish_non_exhaustive()
    }
}

/// A page of stored requests.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub records: Vec<RequestRecord>,
    /// The key after which the next page begins; `None` after the last page.
    pub next: Option<RequestKey>,
}

impl StoredRequests {
    /// Creates the requests of a session. `restored` says whether the actor begins with all of them; otherwise each
    /// further page needs a permit of `permits`.
    pub fn new(store: Arc<dyn EventStore>, session: SessionId, restored: bool, permits: Arc<Semaphore>) -> Self {
        Self {
            store,
            session,
            are_restored: AtomicBool::new(restored),
            permits,
        }
    }

    /// Returns the stored request with this key, unless the actor has all stored requests.
    ///
    /// # Errors
    /// The store's error.
    pub async fn find(&self, remember: Option<&Remember>) -> Result<Option<Box<RequestRecord>>, Failure> {
        let Some(remember) = remember.filter(|_| !self.are_restored.load(Ordering::Acquire)) else {
            return Ok(None);
        };
        let found = self.store.request(self.session, remember.key.clone()).await?;
        Ok(found.map(Box::new))
    }

    /// Returns the session's id.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Waits for a permit, then reads the page after a key.
    ///
    /// # Errors
    /// See [`EventStore::requests`].
    pub async fn page_after(&self, after: RequestKey) -> Result<Page, ReadError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        page(self.store.as_ref(), self.session, Some(after)).await
    }

    /// Notes that the actor has all stored requests.
    pub fn set_restored(&self) {
        self.are_restored.store(true, Ordering::Release);
    }
}

/// Reads a page of stored requests.
///
/// # Errors
/// See [`EventStore::requests`].
pub(super) async fn page(
    store: &dyn EventStore,
    session: SessionId,
    after: Option<RequestKey>,
) -> Result<Page, ReadError> {
    let records = store.requests(session, after, MAX_PAGE).await?;
    let last = records.last().filter(|_| records.len() == MAX_PAGE);
    let next = last.map(RequestRecord::key);
    Ok(Page { records, next })
}
