//! Reads the marked records of a session's log (prompts, artifacts and mail) without the events between them.

use std::{convert::identity, sync::Arc};

use prost::Message;
use supervisor_log::{
    codec::record::decode_record,
    store::{EventStore, MarkKind},
};

use super::{page::Page, service::SupervisorService};
use crate::{
    domain::{
        event::Recorded,
        ids::{Sequence, SessionId, ThreadId},
        rejection::Rejection,
    },
    engine::Failure,
};

/// Maximum number of records in memory.
const CHUNK: usize = 256;
/// Maximum number of records that one page scans. The page may contain fewer entries than requested.
const MAX_SCANNED: usize = 16 * CHUNK;
/// Maximum number of records of one kind in which a content is searched.
pub(crate) const SEARCHED: usize = 256 * CHUNK;

/// The marked records of one kind, of a thread or of a whole session.
pub(super) struct Marks {
    store: Arc<dyn EventStore>,
    session: SessionId,
    kind: MarkKind,
    /// The thread of the records; `None` selects all threads.
    thread: Option<ThreadId>,
}

impl SupervisorService {
    pub(super) fn marks(&self, session: SessionId, kind: MarkKind, thread: Option<ThreadId>) -> Marks {
        Marks {
            store: Arc::clone(self.directory.store()),
            session,
            kind,
            thread,
        }
    }
}

impl Marks {
    /// Returns a page of the messages that `show` builds from the records. Records for which `show` returns nothing
    /// are skipped.
    pub async fn page<M: Message>(
        &self,
        page: &Page<Sequence>,
        show: impl Fn(&Recorded) -> Option<M>,
    ) -> Result<(Vec<M>, String), Failure> {
        let mut after = page.after().copied().unwrap_or_default();
        let mut shown = Vec::new();
        let mut rest = None;
        for _ in 0..MAX_SCANNED / CHUNK {
            let records = self.after(after, CHUNK).await?;
            let entries = records
                .iter()
                .filter_map(|record| Some((record.sequence, show(record)?)));
            shown.extend(entries);
            rest = records
                .last()
                .filter(|_| records.len() == CHUNK)
                .map(|last| last.sequence);
            match rest {
                Some(last) if shown.len() <= page.size() => after = last,
                Some(_) | None => break,
            }
        }
        Ok(page.cut(shown, identity, rest))
    }

    /// Returns whether any of the records matches.
    ///
    /// # Errors
    /// [`Rejection::LimitExceeded`] if no match is among the oldest [`SEARCHED`] records and there are more.
    pub async fn any(&self, is_it: impl Fn(&Recorded) -> bool) -> Result<bool, Failure> {
        let mut after = Sequence::ZERO;
        for _ in 0..SEARCHED / CHUNK {
            let records = self.after(after, CHUNK).await?;
            if records.iter().any(&is_it) {
                return Ok(true);
            }
            match records.last() {
                Some(last) if records.len() == CHUNK => after = last.sequence,
                Some(_) | None => return Ok(false),
            }
        }
        Err(Failure::Refused(Rejection::LimitExceeded {
            limit: "searched_records",
            message: format!("the content is not among the oldest {SEARCHED} of its kind; ask an operator to read it"),
        }))
    }

    /// Returns the last record for which `is_later` is false. The predicate must be true for all records after it.
    /// This is a binary search: it reads a logarithmic number of records.
    pub async fn last_before(&self, is_later: impl Fn(&Recorded) -> bool) -> Result<Option<Recorded>, Failure> {
        let head = self.store.head(self.session).await?;
        // Unless already found, the target lies after `low`. No record after `high` matches.
        let (mut low, mut high) = (0, head.map_or(0, |head| head.sequence.get()));
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.after(Sequence::new(middle), 1).await?.pop() {
                Some(record) if !is_later(&record) => {
                    low = record.sequence.get();
                    found = Some(record);
                }
                Some(_) | None => high = middle,
            }
        }
        Ok(found)
    }

    async fn after(&self, after: Sequence, limit: usize) -> Result<Vec<Recorded>, Failure> {
        let records = self
            .store
            .marked(self.session, self.kind, self.thread, after, limit)
            .await?;
        let decoded: Result<Vec<Recorded>, _> = records
            .iter()
            .map(|record| decode_record(self.session, &record.bytes))
            .collect();
        Ok(decoded?)
    }
}
