//! Sessions as listings show them: the state of those that are in memory, the summary of the others. Only a session without a
//! summary of its last event, as after a crash, is loaded for it.

use std::collections::BTreeMap;

use prost::Message as _;
use troupe_proto::supervisor::v1 as pb;
use uuid::Uuid;

use super::{directory::Directory, failure::Failure};
use crate::{domain::ids::SessionId, store::SessionEntry, wire};

/// How many sessions are looked at together. A summary may have 64 KiB.
const PAGE: usize = 128;

/// Which sessions a listing shows.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only those that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Closed ones too.
    pub include_closed: bool,
}

impl Filter {
    /// Whether it shows that session.
    #[must_use]
    pub fn shows(&self, session: &pb::Session) -> bool {
        let has = |(key, value): (&String, &String)| session.labels.get(key) == Some(value);
        (self.include_closed || !session.closed) && self.labels.iter().all(has)
    }
}

impl Directory {
    /// Some sessions before `before`, newest first, and where to go on; `None` at the end. One that cannot be read is logged
    /// and passed over: it must not hide the others.
    ///
    /// # Errors
    /// If the store cannot be read.
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
                // It was deleted meanwhile.
                Err(Failure::SessionNotFound(_)) => {}
                Err(failure) => tracing::error!(session = %id, %failure, "a session cannot be listed"),
            }
        }
        Ok((sessions, next))
    }

    /// One session as it is now; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn session_now(&self, id: SessionId) -> Result<Option<pb::Session>, Failure> {
        // The least id behind it: the first before that is the session, if there is one.
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
