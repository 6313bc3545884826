//! Listings of sessions: the state of sessions in memory, and the summaries of the others. A session is loaded only if
//! its summary does not include its last event, for example after a crash.
//!
//! Followers of all sessions are notified of changes. Each follower has a separate set that grows with the number of
//! sessions, not of changes. A slow follower therefore misses no session and does not block others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use prost::Message as _;
use supervisor_log::store::{MemberId, SessionEntry};
use svc_kit::lock::lock;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tonic::{Code, Status};
use troupe_proto::supervisor::v1 as pb;
use uuid::Uuid;

use crate::{
    cluster::Cluster,
    convert,
    domain::{ids::SessionId, state::session::Session},
    engine::{
        Directory, Failure,
        feed::{Change, Subscriber},
    },
};

/// The number of sessions read together. A summary may have 64 KiB.
const PAGE: usize = 128;

/// The maximum number of sessions that are read concurrently from other supervisors.
const READS_AT_ONCE: usize = 16;

/// How long a page of a listing waits for sessions whose supervisor does not answer. Another supervisor takes these
/// sessions over in that time.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(8);

/// The pause between two reads of a session whose supervisor does not answer.
const RETRY_READ: Duration = Duration::from_millis(250);

/// The filter of a listing.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Selects sessions that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Includes closed sessions.
    pub include_closed: bool,
}

impl Filter {
    /// Returns whether the filter selects that session.
    #[must_use]
    pub fn matches(&self, session: &pb::Session) -> bool {
        let has = |(key, value): (&String, &String)| session.labels.get(key) == Some(value);
        (self.include_closed || !session.closed) && self.labels.iter().all(has)
    }
}

/// All sessions, in memory or not, here or at another supervisor. Cheap to clone.
#[derive(Clone)]
pub struct Overview {
    directory: Directory,
    changes: Changes,
    cluster: Option<Cluster>,
}

impl Overview {
    /// Creates an overview of the directory's sessions. `changes` must be one of the directory's subscribers.
    #[must_use]
    pub const fn new(directory: Directory, changes: Changes, cluster: Option<Cluster>) -> Self {
        Self {
            directory,
            changes,
            cluster,
        }
    }

    /// Subscribes to changes. State read after this call is at least as new as the notifications.
    #[must_use]
    pub fn follow(&self) -> Follower {
        self.changes.follow()
    }

    /// Follows the changes of sessions at other supervisors. Without other supervisors, the stream never ends.
    ///
    /// # Errors
    /// The status of a supervisor that does not answer.
    pub async fn changes_elsewhere(&self) -> Result<BoxStream<'static, SessionId>, Status> {
        match &self.cluster {
            Some(cluster) => cluster.changes_elsewhere().await,
            None => Ok(stream::pending().boxed()),
        }
    }

    /// Returns sessions before `before`, newest first, and the position of the next page; `None` at the end. A session
    /// that cannot be read is logged and skipped, so that it does not hide the others.
    ///
    /// # Errors
    /// The store's read error.
    pub async fn sessions_before(
        &self,
        before: Option<SessionId>,
    ) -> Result<(Vec<(SessionId, pb::Session)>, Option<SessionId>), Failure> {
        let entries = self.directory.store().summaries(before, PAGE).await?;
        let next = entries.last().map(|entry| entry.session);
        let mut sessions = Vec::with_capacity(entries.len());
        let end = Instant::now() + TAKEOVER_WITHIN;
        let overviews =
            stream::iter(entries).map(|entry| async move { (entry.session, self.overview(entry, end).await) });
        let mut overviews = overviews.buffered(READS_AT_ONCE);
        while let Some((id, session)) = overviews.next().await {
            match session {
                Ok(session) => sessions.push((id, session)),
                // The session was deleted in the meantime.
                Err(Failure::SessionNotFound(_)) => {}
                Err(failure) => tracing::error!(session = %id, %failure, "a session cannot be listed"),
            }
        }
        Ok((sessions, next))
    }

    /// Returns the present state of one session; `None` if it does not exist.
    ///
    /// # Errors
    /// The error of reading or loading the session.
    pub async fn session_now(&self, id: SessionId) -> Result<Option<pb::Session>, Failure> {
        // The next larger id. The first session before that id is this session, if this session exists.
        let behind = Uuid::from_u128(id.as_uuid().as_u128().saturating_add(1));
        let before = Some(SessionId::from_uuid(behind));
        let mut entries = self.directory.store().summaries(before, 1).await?;
        match entries.pop().filter(|entry| entry.session == id) {
            None => Ok(None),
            Some(entry) => match self.overview(entry, Instant::now() + TAKEOVER_WITHIN).await {
                Ok(session) => Ok(Some(session)),
                Err(Failure::SessionNotFound(_)) => Ok(None),
                Err(failure) => Err(failure),
            },
        }
    }

    async fn overview(&self, entry: SessionEntry, end: Instant) -> Result<pb::Session, Failure> {
        if let Some(state) = self.directory.peek(entry.session) {
            return Ok(convert::thread::session(&state));
        }
        let summary = entry.summary.and_then(|bytes| pb::Session::decode(bytes).ok());
        if let Some(session) = summary {
            return Ok(session);
        }
        let elsewhere = match entry.owner {
            Some(owner) => Some(owner),
            None => match self.directory.session(entry.session).await {
                Ok(handle) => return Ok(convert::thread::session(&handle.state())),
                Err(Failure::Elsewhere { owner, .. }) => owner,
                Err(failure) => return Err(failure),
            },
        };
        self.read_elsewhere(entry.session, elsewhere, end).await
    }

    /// Reads a session from the supervisor that owns it. If the owner does not answer, retries until `end`.
    async fn read_elsewhere(
        &self,
        session: SessionId,
        mut owner: Option<MemberId>,
        end: Instant,
    ) -> Result<pb::Session, Failure> {
        loop {
            if let (Some(cluster), Some(known)) = (&self.cluster, owner) {
                match cluster.read(known, session).await {
                    Ok(session) => return Ok(session),
                    Err(status) if status.code() == Code::NotFound => return Err(Failure::SessionNotFound(session)),
                    Err(status) => tracing::debug!(%session, %status, "the owner of a session does not answer"),
                }
                // The session may be moving, or its owner may have ended.
                self.directory.forget_owner(session, known);
            }
            match self.directory.session(session).await {
                Ok(handle) => return Ok(convert::thread::session(&handle.state())),
                Err(Failure::Elsewhere { owner: next, .. }) if Instant::now() < end => owner = next,
                Err(failure) => return Err(failure),
            }
            sleep(RETRY_READ).await;
        }
    }
}

/// Encodes the summary of a session, which is listed when the session is not in memory.
#[must_use]
pub fn summary(session: &Session) -> Bytes {
    convert::thread::session(session).encode_to_vec().into()
}

/// Publishes changes of sessions. Cheap to clone; all clones share the same followers.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    // Held for one change or one iteration, never across an await. Subscribing takes the lock too: a new follower
    // either receives a change or reads the state that was published before the change was announced.
    followers: Arc<Mutex<Vec<Arc<Inbox>>>>,
}

#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<BTreeSet<SessionId>>,
    notify: Notify,
}

/// A subscription to all sessions, from its creation until it is dropped.
#[derive(Debug)]
pub struct Follower {
    inbox: Arc<Inbox>,
    changes: Changes,
}

impl Changes {
    /// Notifies every follower that a session was created, changed or deleted. Call it after the new state is
    /// published.
    fn publish(&self, session: SessionId) {
        for inbox in lock(&self.followers).iter() {
            lock(&inbox.changed).insert(session);
            inbox.notify.notify_one();
        }
    }

    /// Subscribes to changes. State read after this call is at least as new as the notifications.
    #[must_use]
    pub fn follow(&self) -> Follower {
        let inbox = Arc::new(Inbox::default());
        lock(&self.followers).push(Arc::clone(&inbox));
        Follower {
            inbox,
            changes: self.clone(),
        }
    }
}

impl Subscriber for Changes {
    fn created(&self, session: SessionId) {
        self.publish(session);
    }

    fn committed(&self, change: &Change<'_>) {
        self.publish(change.after.session.id);
    }

    fn deleted(&self, session: SessionId) {
        self.publish(session);
    }
}

impl Follower {
    /// Waits until a session changed; [`Self::take`] returns it.
    pub async fn changed(&self) {
        loop {
            if !lock(&self.inbox.changed).is_empty() {
                return;
            }
            self.inbox.notify.notified().await;
        }
    }

    /// Adds a session that changed elsewhere.
    pub fn put(&self, session: SessionId) {
        lock(&self.inbox.changed).insert(session);
    }

    /// Returns the sessions that changed since the last call.
    #[must_use]
    pub fn take(&self) -> BTreeSet<SessionId> {
        std::mem::take(&mut *lock(&self.inbox.changed))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        lock(&self.changes.followers).retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
    }
}
