//! The log: records, content and what stands beside them, durable before they are acknowledged.
//!
//! The store knows nothing of what an event means: a record is opaque bytes with a number. What it promises, whichever
//! engine is behind it and as the conformance suite (`tests/store_conformance.rs`) checks:
//!
//! - A session's records are numbered 1, 2, 3, ... without a gap.
//! - A [`Batch`] happens whole or not at all, with its contents, threads and requests.
//! - What an answer says, success or refusal, can't be undone by a crash.
//! - One session's refusal never makes another session's write fail.
//! - Who doesn't hold the present [`Epoch`] of a session appends nothing to it.
//!
//! A write whose future is dropped before it is answered may or may not happen; await it in a task of its own.

mod apply;
mod backfill;
mod batch;
mod checkpointer;
mod checksum;
mod error;
mod group;
pub mod limits;
mod maintain;
mod memory;
mod query;
mod readers;
mod reserve;
mod schema;
mod sqlite;
mod writer;

use bytes::Bytes;
use futures::future::BoxFuture;
use uuid::Uuid;

pub use self::{
    batch::{
        Batch, Content, Created, Creation, CreationKey, CursorKey, Due, Evidence, Head, Mark, MarkKind, NewRecord,
        RequestHash, RequestKey, RequestRecord, SessionEntry, Snapshot, StoredRecord,
    },
    error::{AppendError, Invalid, OpenError, ReadError, Refusal, Side, WriteError},
    maintain::{Compacted, LogReader, MaintainError, RawContent, RawRecord, SessionLog, compact, copy},
    memory::MemoryStore,
    sqlite::SqliteStore,
};
use crate::domain::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
};

/// The database's file in a data directory.
pub const DATABASE: &str = "troupe.db";

/// A log of many sessions. Every list is a page: a `limit` above [`limits::MAX_PAGE`] means that much.
///
/// Reads see every write that was acknowledged before they began, and never wait for a writer.
pub trait EventStore: Send + Sync + 'static {
    /// The identity of the log, given when it is first opened. A copy has none until then, so the identity tells a
    /// restored backup from the present, and two restored ones from each other.
    fn log_id(&self) -> Uuid;

    /// Begins a session with its first batch, which must expect [`Sequence::ZERO`]; its epoch becomes the session's.
    ///
    /// With a key that is remembered and not expired at `key.now`, nothing is written and the answer is
    /// [`Created::Existing`]; the caller compares the hashes.
    ///
    /// # Errors
    /// [`AppendError::Mismatch`] if the session already exists under another key or none; else as for
    /// [`append`](Self::append).
    fn create(&self, key: Option<CreationKey>, batch: Batch) -> BoxFuture<'_, Result<Created, AppendError>>;

    /// Appends a batch. The epoch is checked before the head, both in the transaction that writes.
    ///
    /// # Errors
    /// See [`AppendError`]: with all but [`AppendError::Unknown`] the batch surely did not happen.
    fn append(&self, batch: Batch) -> BoxFuture<'_, Result<(), AppendError>>;

    /// Takes ownership of a session: raises its epoch by one and returns it, so that the owner before is fenced.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session.
    fn claim(&self, session: SessionId) -> BoxFuture<'_, Result<Epoch, WriteError>>;

    /// Keeps a session's snapshot in the place of an older one. One that is older than what is kept changes nothing.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session, [`WriteError::Invalid`] if the snapshot is too large or
    /// ahead of the head.
    fn put_snapshot(&self, session: SessionId, snapshot: Snapshot) -> BoxFuture<'_, Result<(), WriteError>>;

    /// Changes the marks as `evidence` says, then removes records up to and including `until`, at most
    /// [`limits::MAX_COMPACTED`]; marked ones stay. Answers how many; call again while it isn't zero. Reading after an earlier position answers [`ReadError::Compacted`] from the first
    /// call on.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session, [`WriteError::Invalid`] if its snapshot doesn't include `until`.
    fn compact(
        &self,
        session: SessionId,
        until: Sequence,
        evidence: Evidence,
    ) -> BoxFuture<'_, Result<u64, WriteError>>;

    /// Keeps a session's summary, as of that record, in the place of the one before.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session, [`WriteError::Invalid`] if the summary is too large.
    fn put_summary(
        &self,
        session: SessionId,
        sequence: Sequence,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<(), WriteError>>;

    /// Sets a cursor, or removes it with `None`.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if the key names a session that doesn't exist, [`WriteError::Invalid`] if the key or
    /// the value is too large.
    fn put_cursor(&self, key: CursorKey, value: Option<Bytes>) -> BoxFuture<'_, Result<(), WriteError>>;

    /// Removes a session with everything that is its own: records, contents, requests, snapshot, cursors and the key of its
    /// creation; and of `threads`, which should be all that its records began, those that are its own. Answers whether there
    /// was one.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn delete_session(&self, session: SessionId, threads: Vec<ThreadId>) -> BoxFuture<'_, Result<bool, WriteError>>;

    /// Forgets requests and keys of creation that expired at or before `now`, at most [`limits::MAX_FORGOTTEN`] of each
    /// kind. Answers how many; call again while it isn't zero.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn forget_requests(&self, now: UnixMillis) -> BoxFuture<'_, Result<u64, WriteError>>;

    /// Ends the store: what was accepted is made durable, later writes get [`Refusal::Closed`]. Answers when that is
    /// done; a second call does no harm. Dropping the store does the same, but blocks the dropping thread meanwhile.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Where a session's log ends and who owns it, or `None` if there is no such session.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn head(&self, session: SessionId) -> BoxFuture<'_, Result<Option<Head>, ReadError>>;

    /// The records after `after`, in order and without a gap, fewer than a page only at the end of the log. Empty if there
    /// are none or no such session.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] names the first record that is missing or doesn't match its checksum; nothing of the page
    /// is returned then. [`ReadError::Compacted`] if records after `after` are gone for good.
    fn read(
        &self,
        session: SessionId,
        after: Sequence,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredRecord>, ReadError>>;

    /// The marked records of a session, of one thread if it is given, in order after `after`.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] names the first that doesn't match its checksum.
    fn marked(
        &self,
        session: SessionId,
        kind: MarkKind,
        thread: Option<ThreadId>,
        after: Sequence,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredRecord>, ReadError>>;

    /// A content of a session.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if it doesn't match its checksum.
    fn content(&self, session: SessionId, digest: Digest) -> BoxFuture<'_, Result<Option<Bytes>, ReadError>>;

    /// A session's snapshot.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if it doesn't match its checksum; the log can be replayed without it.
    fn snapshot(&self, session: SessionId) -> BoxFuture<'_, Result<Option<Snapshot>, ReadError>>;

    /// One remembered request, even if it has expired and isn't forgotten yet.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if it doesn't match its checksum.
    fn request(&self, session: SessionId, key: RequestKey) -> BoxFuture<'_, Result<Option<RequestRecord>, ReadError>>;

    /// A session's remembered requests in the order of their keys, after `after`.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if one doesn't match its checksum.
    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RequestRecord>, ReadError>>;

    /// What a creator's request id created, even if it has expired and isn't forgotten yet.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn creation(&self, creator: String, request_id: String) -> BoxFuture<'_, Result<Option<Creation>, ReadError>>;

    /// The session that a thread belongs to.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn session_of(&self, thread: ThreadId) -> BoxFuture<'_, Result<Option<SessionId>, ReadError>>;

    /// The sessions in the order of their ids, after `after`.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn sessions(&self, after: Option<SessionId>, limit: usize) -> BoxFuture<'_, Result<Vec<SessionId>, ReadError>>;

    /// The sessions, newest id first, before `before`.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn summaries(&self, before: Option<SessionId>, limit: usize)
    -> BoxFuture<'_, Result<Vec<SessionEntry>, ReadError>>;

    /// The sessions that must be awake at `time`: those due at it or before, in the order of [`Due`], after `after`.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn due_before(
        &self,
        time: UnixMillis,
        after: Option<Due>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Due>, ReadError>>;

    /// A cursor's value.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn cursor(&self, key: CursorKey) -> BoxFuture<'_, Result<Option<Bytes>, ReadError>>;
}
