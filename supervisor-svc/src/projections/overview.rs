//! Listings of sessions: the state of sessions in memory, and the summary of the others. A session is loaded only if it
//! has no summary of its last event, as after a crash.

use std::collections::BTreeMap;

use prost::Message as _;
use supervisor_log::store::SessionEntry;
use troupe_proto::supervisor::v1 as pb;
use uuid::Uuid;

use crate::{convert, domain::ids::SessionId, engine::{directory::Directory, error::Failure}};

/// The number of sessions read together. A summary may have 64 KiB.
const PAGE: usize = 128;

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
    pub fn shows(&self, session: &pb::Session) -> bool {
        let has = |(key, value): (&String, &String)| session.labels.get(key) == Some(value);
        (self.include_closed || !session.closed) && self.labels.iter().all(has)
    }
}

impl Directory {
    /// Returns sessions before `before`, newest first, and the position of the next page; `None` at the end. A session
    /// that cannot be read is logged and skipped, so that it does not hide the others.
    ///
    /// # Errors
    /// The store's read error.
    pub async fn sessions_before(
        &self,
        before: Option<SessionId>,
    ) -> Result<(Vec<(SessionId, pb::Session)>, Option<SessionId>), Failure> {
        let entries = self.context().store.summaries(before, PAGE).await?;
        let next = entries.last().map(|entry| entry.session);
        let mut sessions = Vec::with_capacity(entries.len());
        for entry in entries {
            let id = entry.session;
            match self.overview(entry).await {
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
        // The next larger id: the first session before it is this session, if it exists.
        let behind = Uuid::from_u128(id.as_uuid().as_u128().saturating_add(1));
        let before = Some(SessionId::from_uuid(behind));
        let mut entries = self.context().store.summaries(before, 1).await?;
        match entries.pop().filter(|entry| entry.session == id) {
            None => Ok(None),
            Some(entry) => match self.overview(entry).await {
                Ok(session) => Ok(Some(session)),
                Err(Failure::SessionNotFound(_)) => Ok(None),
                Err(failure) => Err(failure),
            },
        }
    }

    async fn overview(&self, entry: SessionEntry) -> Result<pb::Session, Failure> {
        if let Some(state) = self.peek(entry.session) {
            return Ok(wire::thread::session(&state));
        }
        let summary = entry.summary.and_then(|bytes| pb::Session::decode(bytes).ok());
        if let Some(session) = summary {
            return Ok(session);
        }
        let handle = self.session(entry.session).await?;
        Ok(wire::thread::session(&handle.state()))
    }
}
