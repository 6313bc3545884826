//! Reading of a session's events from the file, in the form that watchers receive.

use std::{collections::VecDeque, path::Path};

use supervisor_core::ids::{Sequence, SessionId};
use troupe_proto::supervisor::v1::Event;

use super::{error::MaintenanceError, open};
use crate::{
    codec::{decode_record, event_to_pb},
    store::{LogReader, ReadError, StoredRecord, limits::MAX_PAGE},
};

/// An iterator over a session's events in order. It ends after the first error.
pub struct Events {
    log: LogReader,
    session: SessionId,
    after: Sequence,
    page: VecDeque<StoredRecord>,
    has_ended: bool,
}

/// Returns the events of a session after `after`, including those appended during the read. From the compacted part of
/// the log, only the events that compaction retained are returned.
///
/// # Errors
/// See [`MaintenanceError`].
pub fn events(data_dir: &Path, session: SessionId, after: Sequence) -> Result<Events, MaintenanceError> {
    let log = open(data_dir)?;
    if log.head(session)?.is_none() {
        return Err(MaintenanceError::SessionNotFound(session));
    }
    Ok(Events {
        log,
        session,
        after,
        page: VecDeque::new(),
        has_ended: false,
    })
}

impl Events {
    /// Reads the next page of records. Returns the records before a corrupt record first, and the error in the next
    /// call.
    fn read(&mut self) -> Result<VecDeque<StoredRecord>, MaintenanceError> {
        let page = match self.log.records(self.session, self.after, MAX_PAGE) {
            Err(ReadError::Compacted { oldest, .. }) => {
                let left = self.log.left(self.session, self.after, oldest)?;
                if left.is_empty() {
                    self.after = oldest;
                    return self.read();
                }
                left
            }
            Err(ReadError::Corrupt { sequence, .. }) if sequence > self.after.next() => {
                let good = sequence.get() - self.after.next().get();
                let good = usize::try_from(good).unwrap_or(MAX_PAGE);
                self.log.records(self.session, self.after, good)?
            }
            page => page?,
        };
        Ok(page.into())
    }

    fn advance(&mut self) -> Result<Option<Event>, MaintenanceError> {
        if self.page.is_empty() {
            self.page = self.read()?;
        }
        let Some(stored) = self.page.pop_front() else {
            return Ok(None);
        };
        self.after = stored.sequence;
        let recorded = decode_record(self.session, &stored.bytes).map_err(|source| MaintenanceError::Record {
            session: self.session,
            sequence: stored.sequence,
            source,
        })?;
        Ok(Some(event_to_pb(self.session, &recorded)))
    }
}

impl Iterator for Events {
    type Item = Result<Event, MaintenanceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.advance().transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}
