//! The store's input and output types, and the checks on them that need no database access.

use bytes::Bytes;
use supervisor_core::{
    content::ContentRef,
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
};

use super::{
    error::Invalid,
    limits::{
        MAX_BATCH_BYTES, MAX_BATCH_ITEMS, MAX_CONTENT_BYTES, MAX_CURSOR_BYTES, MAX_KEY_BYTES, MAX_OUTCOME_BYTES,
        MAX_RECORD_BYTES, MAX_SNAPSHOT_BYTES, MAX_SUMMARY_BYTES,
    },
    member::MemberId,
    transcript::NewEntry,
};

/// The hash of a request's canonical encoding: the same request id with another hash is a different request.
pub type RequestHash = [u8; 32];

/// A record to append: at most [`MAX_RECORD_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// Its number: the previous record's number + 1. The first record has the expected head + 1.
    pub sequence: Sequence,
    /// Encoded content, opaque to the store.
    pub bytes: Bytes,
}

/// A content to store, keyed by session and digest. At most [`MAX_CONTENT_BYTES`]. Storing the same content again has
/// no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The digest of the bytes; the store does not check it.
    pub digest: Digest,
    /// The content.
    pub bytes: Bytes,
}

impl Content {
    /// Creates a content with the digest of these bytes.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self {
            digest: Digest::of(&bytes),
            bytes,
        }
    }

    /// Returns an event's reference to the content. The preview is the beginning of a text, or empty.
    #[must_use]
    pub fn reference(&self, preview: String) -> ContentRef {
        ContentRef {
            digest: self.digest,
            size: self.bytes.len() as u64,
            preview,
        }
    }
}

/// Marks a record of the same batch with a kind, so that the record can be found by kind and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The kind of the mark.
    pub kind: MarkKind,
    /// The record.
    pub sequence: Sequence,
    /// The thread that the record concerns.
    pub thread: ThreadId,
}

/// The kind of a marked record. The numbers are stored: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// A prompt that was sent to the thread.
    Prompt = 1,
    /// An artifact of the thread.
    Artifact = 2,
    /// A letter to the thread.
    Mail = 3,
    /// An event that matters to an investigation. Compaction adds the mark, and removes it when the event is old.
    Evidence = 4,
}

/// Tells a compaction which marked records to keep and which to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The last record that earlier compactions examined. This compaction starts after it, so retained evidence is not
    /// scanned again.
    pub after: Sequence,
    /// Marks that the compaction adds first. The marked records stay.
    pub keep: Vec<Mark>,
    /// Marks of the kind [`MarkKind::Evidence`] are removed up to this record. Their records are removed too, unless
    /// they have another mark.
    pub expired: Sequence,
}

/// The key that identifies a request within its session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    /// Principal and method.
    pub scope: String,
    /// The client's id of the request.
    pub request_id: String,
}

/// A successful request, stored in the same transaction as its effects. A later request with the same key replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Principal and method.
    pub scope: String,
    /// The client's id of the request.
    pub request_id: String,
    /// The request's hash.
    pub hash: RequestHash,
    /// The response, opaque to the store. At most [`MAX_OUTCOME_BYTES`].
    pub outcome: Bytes,
    /// The time after which the request may be deleted.
    pub expires: UnixMillis,
}

impl RequestRecord {
    /// Returns the request's key.
    #[must_use]
    pub fn key(&self) -> RequestKey {
        RequestKey {
            scope: self.scope.clone(),
            request_id: self.request_id.clone(),
        }
    }
}

/// The data that one append writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The session to which the batch is appended.
    pub session: SessionId,
    /// The head that the writer expects.
    pub expected: Sequence,
    /// The epoch that the writer holds.
    pub epoch: Epoch,
    /// The records, numbered from `expected` + 1. May be empty, because a request can succeed without an event.
    pub records: Vec<NewRecord>,
    /// Contents that the records refer to and that may not be stored yet.
    pub contents: Vec<Content>,
    /// Marks of records. Marked records can be found without reading the log and are retained by compaction.
    pub marks: Vec<Mark>,
    /// Entries that the records add to the transcripts of threads.
    pub entries: Vec<(ThreadId, NewEntry)>,
    /// Threads that the records spawn.
    pub new_threads: Vec<ThreadId>,
    /// The requests that caused these records, with their outcomes.
    pub requests: Vec<RequestRecord>,
    /// The time at which the session must be active next. Replaces the previous value. `None` = no scheduled time.
    pub due: Option<UnixMillis>,
}

impl Batch {
    /// Returns the head after the batch is appended.
    pub(super) fn head_after(&self) -> Sequence {
        self.records.last().map_or(self.expected, |record| record.sequence)
    }

    /// Returns the size of the batch in bytes.
    fn weight(&self) -> usize {
        let records = self.records.iter().map(|record| record.bytes.len());
        let contents = self.contents.iter().map(|content| content.bytes.len());
        let requests = self
            .requests
            .iter()
            .map(|request| request.outcome.len() + request.scope.len() + request.request_id.len());
        let entries = self.entries.iter().map(|(_, entry)| entry.bytes());
        let all = records.chain(contents).chain(requests).chain(entries);
        all.fold(0, usize::saturating_add)
    }

    /// Checks sizes, counts and the numbering. Returns the size of the batch in bytes.
    ///
    /// # Errors
    /// The first rule that the batch violates.
    pub(super) fn check(&self) -> Result<usize, Invalid> {
        at_most_items("records", self.records.len())?;
        at_most_items("contents", self.contents.len())?;
        at_most_items("marks", self.marks.len())?;
        at_most_items("entries", self.entries.len())?;
        at_most_items("new_threads", self.new_threads.len())?;
        at_most_items("requests", self.requests.len())?;
        let mut before = self.expected;
        for record in &self.records {
            let expected = before.next();
            if record.sequence != expected {
                return Err(Invalid::Gap {
                    expected,
                    found: record.sequence,
                });
            }
            at_most_bytes("record", record.bytes.len(), MAX_RECORD_BYTES)?;
            before = record.sequence;
        }
        if i64::try_from(before.get()).is_err() {
            return Err(Invalid::OutOfNumbers);
        }
        for content in &self.contents {
            at_most_bytes("content", content.bytes.len(), MAX_CONTENT_BYTES)?;
        }
        for request in &self.requests {
            at_most_bytes("scope", request.scope.len(), MAX_KEY_BYTES)?;
            at_most_bytes("request_id", request.request_id.len(), MAX_KEY_BYTES)?;
            at_most_bytes("outcome", request.outcome.len(), MAX_OUTCOME_BYTES)?;
        }
        at_most_bytes("batch", self.weight(), MAX_BATCH_BYTES)
    }

    /// Checks the batch as the first of a session.
    ///
    /// # Errors
    /// As for [`check`](Self::check), and [`Invalid::NotFirst`] if it expects a head other than zero.
    pub(super) fn check_first(&self, key: Option<&CreationKey>) -> Result<usize, Invalid> {
        if self.expected != Sequence::ZERO {
            return Err(Invalid::NotFirst {
                expected: self.expected,
            });
        }
        if let Some(key) = key {
            at_most_bytes("creator", key.creator.len(), MAX_KEY_BYTES)?;
            at_most_bytes("request_id", key.request_id.len(), MAX_KEY_BYTES)?;
        }
        self.check()
    }
}

/// Checks a snapshot's size, and returns it in bytes.
///
/// # Errors
/// [`Invalid::TooLarge`].
pub(super) fn check_snapshot(snapshot: &Snapshot) -> Result<usize, Invalid> {
    at_most_bytes("snapshot", snapshot.bytes.len(), MAX_SNAPSHOT_BYTES)
}

/// Checks a summary's size, and returns it in bytes.
///
/// # Errors
/// [`Invalid::TooLarge`].
pub(super) fn check_summary(bytes: &Bytes) -> Result<usize, Invalid> {
    at_most_bytes("summary", bytes.len(), MAX_SUMMARY_BYTES)
}

/// Checks a cursor's size, and returns it in bytes.
///
/// # Errors
/// [`Invalid::TooLarge`].
pub(super) fn check_cursor(key: &CursorKey, value: Option<&Bytes>) -> Result<usize, Invalid> {
    let name = at_most_bytes("cursor's name", key.name.len(), MAX_KEY_BYTES)?;
    let value = at_most_bytes("cursor", value.map_or(0, Bytes::len), MAX_CURSOR_BYTES)?;
    Ok(name + value)
}

fn at_most_items(what: &'static str, count: usize) -> Result<(), Invalid> {
    if count > MAX_BATCH_ITEMS {
        Err(Invalid::TooMany {
            what,
            count,
            max: MAX_BATCH_ITEMS,
        })
    } else {
        Ok(())
    }
}

fn at_most_bytes(what: &'static str, bytes: usize, max: usize) -> Result<usize, Invalid> {
    if bytes > max {
        Err(Invalid::TooLarge { what, bytes, max })
    } else {
        Ok(bytes)
    }
}

/// The request id of a session's creation, scoped by its creator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreationKey {
    /// The principal that creates the session.
    pub creator: String,
    /// The client's id of the request.
    pub request_id: String,
    /// The request's hash.
    pub hash: RequestHash,
    /// The current time. A stored key that expires at this time or earlier is ignored.
    pub now: UnixMillis,
    /// The time at which this key expires.
    pub expires: UnixMillis,
}

/// The result of a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The session is new and its first batch is durable.
    New,
    /// An earlier request with this creator and request id created a session. The call wrote nothing.
    Existing {
        /// The session that was created.
        session: SessionId,
        /// The hash of the earlier request. If it differs from the hash in the key, the id was used for two different
        /// requests.
        hash: RequestHash,
    },
}

/// A stored creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    /// The session that was created.
    pub session: SessionId,
    /// The request's hash.
    pub hash: RequestHash,
    /// The time at which the creation key expires.
    pub expires: UnixMillis,
}

/// A record as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its number in the session.
    pub sequence: Sequence,
    /// Encoded content, opaque to the store.
    pub bytes: Bytes,
}

/// The end of a session's log, and the epoch of its current owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The sequence number of the last record. [`Sequence::ZERO`] if the log is empty.
    pub sequence: Sequence,
    /// The current epoch.
    pub epoch: Epoch,
    /// The last compacted record. A read with a smaller `after` fails. [`Sequence::ZERO`] if the log is not compacted.
    pub oldest: Sequence,
    /// The bytes of the session's contents, each counted once.
    pub content_bytes: u64,
}

/// A session in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEntry {
    /// The session's id.
    pub session: SessionId,
    /// The number of its last record.
    pub head: Sequence,
    /// The stored summary as of exactly that record, if any.
    pub summary: Option<Bytes>,
    /// The other member that owns the session, if any.
    pub owner: Option<MemberId>,
}

/// A session's state after a record, opaque to the store. It is derived data and can always be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that the state includes.
    pub sequence: Sequence,
    /// The state.
    pub bytes: Bytes,
}

/// A session and the time at which it must be active. Ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// The time.
    pub at: UnixMillis,
    /// The session's id.
    pub session: SessionId,
}

/// The key of a cursor: the stored progress of, for example, a client or a webhook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CursorKey {
    /// The session that the cursor is deleted with, if it belongs to one.
    pub session: Option<SessionId>,
    /// Its name, unique within the session.
    pub name: String,
}
