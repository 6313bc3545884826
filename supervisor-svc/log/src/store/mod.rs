//! The log: records, contents and related data, durable before they are acknowledged.
//!
//! The store does not interpret events: a record is opaque bytes with a sequence number. Every engine guarantees the
//! following, and the conformance suite (`tests/store_conformance`) checks it:
//!
//! - A session's records are numbered 1, 2, 3, ... without a gap.
//! - A [`Batch`] is atomic, including its contents, threads and requests.
//! - A crash does not undo the result of a completed call, success or rejection.
//! - A rejected write of one session never makes another session's write fail.
//! - Only the process that owns a session, in the session's current [`Epoch`], can write to it.
//!
//! If the future of a write is dropped before it completes, the write may or may not happen. To prevent this, await
//! the future in its own task.

mod batch;
mod checksum;
mod columns;
mod error;
pub mod limits;
mod member;
mod postgres;
mod queue;
mod sqlite;
mod transcript;
mod transcript_head;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use supervisor_core::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::TranscriptSource,
};
use uuid::Uuid;

pub use self::{
    batch::{
        Batch, Content, Created, Creation, CreationKey, CursorKey, Due, Evidence, Head, Mark, MarkKind, NewRecord,
        RequestHash, RequestKey, RequestRecord, SessionEntry, Snapshot, StoredRecord,
    },
    error::{
        ImportError, Invalid, InvalidUrl, OpenError, PostgresError, ReadError, Refusal, RotateError, Side, WriteError,
    },
    member::{Beat, Claim, DatabaseInfo, Member, MemberId, MemberState, NewMember},
    postgres::{PostgresOptions, PostgresStore},
    sqlite::{
        Compacted, LogReader, MaintainError, MemoryStore, RawContent, RawRecord, SessionLog, SqliteStore, bytes_of,
        changed_at, compact, copy,
    },
    transcript::{LongText, NewEntry, PendingEntries, StoredEntry, TranscriptQuery},
};

/// The release of this program, which a log records when it is opened for writing.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The database's file in a data directory.
pub const DATABASE: &str = "troupe.db";

/// The key of the shared value with the keys of threads' tokens. See [`EventStore::agree`].
pub const TOKEN_KEYS: &str = "token_keys";

/// The future of a read.
pub type ReadFuture<'a, T> = BoxFuture<'a, Result<T, ReadError>>;

/// The future of a write.
pub type WriteFuture<'a, T> = BoxFuture<'a, Result<T, WriteError>>;

/// A log of many sessions. Every list is a page: a `limit` above [`limits::MAX_PAGE`] means [`limits::MAX_PAGE`].
///
/// Reads see every write that was acknowledged before they began, and never wait for a writer.
pub trait EventStore: Send + Sync + 'static {
    /// Returns the identity of the log, which is assigned when the log is first opened. A copy has no identity until
    /// it is opened. A restored backup therefore differs from the current log, and two restored backups differ from
    /// each other.
    fn log_id(&self) -> Uuid;

    /// Creates a session with its first batch, which must expect [`Sequence::ZERO`]. The batch's epoch becomes the
    /// session's epoch.
    ///
    /// If the key is stored and not expired at `key.now`, the call writes nothing and returns [`Created::Existing`].
    /// The caller compares the hashes.
    ///
    /// # Errors
    /// [`WriteError::Mismatch`] if the session already exists under another key or without one. Otherwise the errors
    /// of [`append`](Self::append).
    fn create(&self, key: Option<CreationKey>, batch: Batch) -> WriteFuture<'_, Created>;

    /// Appends a batch. The epoch is checked before the head. Both checks happen in the transaction that writes.
    ///
    /// # Errors
    /// See [`WriteError`]. The batch had no effect, except that its outcome is unknown after [`WriteError::Unknown`].
    fn append(&self, batch: Batch) -> WriteFuture<'_, ()>;

    /// Takes ownership of a session: increments its epoch, so that the previous owner is fenced, and returns the new
    /// epoch. A session that another member owns is not claimed.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session. [`Refusal::NotMember`] if this process is not an active
    /// member.
    fn claim(&self, session: SessionId) -> WriteFuture<'_, Claim>;

    /// Ends the ownership of a session in this epoch, so that any member can claim it. Has no effect on a session that
    /// this process does not own.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn release(&self, _session: SessionId, _epoch: Epoch) -> WriteFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Gives a session to an active member. Returns false and does nothing if that member is not active, or if this
    /// process does not own the session in this epoch.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn hand_over(&self, _session: SessionId, _epoch: Epoch, _to: MemberId) -> WriteFuture<'_, bool> {
        Box::pin(ready(Ok(false)))
    }

    /// Returns the identity of this process among the members. A log for one process has one member.
    fn member(&self) -> MemberId {
        MemberId::from_uuid(self.log_id())
    }

    /// Returns whether other processes can be members too. If not, the methods about members have no effect, and every
    /// claim is granted.
    fn is_shared(&self) -> bool {
        false
    }

    /// Stores a value that all members share, unless one is stored. Returns the stored value.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn agree(&self, _key: &'static str, proposal: String) -> ReadFuture<'_, String> {
        Box::pin(ready(Ok(proposal)))
    }

    /// Describes the database.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn database(&self) -> ReadFuture<'_, DatabaseInfo>;

    /// Makes this process a member, which can then claim and create sessions. Removes an older member with the same
    /// name.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn join(&self, _member: NewMember) -> ReadFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Shows the other members that this process is alive. Returns all members, or `None` if this process was removed.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn beat(&self, _beat: Beat) -> ReadFuture<'_, Option<Vec<Member>>> {
        Box::pin(ready(Ok(Some(Vec::new()))))
    }

    /// Removes a member if the number of its beats is still `beats`, which means that it has not beaten in the
    /// meantime. Its sessions can then be claimed. Returns whether it was removed.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn remove_member(&self, _member: MemberId, _beats: u64) -> ReadFuture<'_, bool> {
        Box::pin(ready(Ok(false)))
    }

    /// Stores a session's snapshot in place of an older one. A snapshot that is older than the stored one is ignored.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session, [`WriteError::Invalid`] if the snapshot is too large or
    /// ahead of the head.
    fn put_snapshot(&self, session: SessionId, snapshot: Snapshot) -> WriteFuture<'_, ()>;

    /// Updates the marks according to `evidence`, then removes records up to and including `until`, at most
    /// [`limits::MAX_COMPACTED`]. Marked records are retained. Returns the number of removed records. Repeat the call
    /// until it returns zero. From the first call on, reading after an earlier position returns
    /// [`ReadError::Compacted`].
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session, [`WriteError::Invalid`] if its snapshot doesn't include
    /// `until`.
    fn compact(&self, session: SessionId, until: Sequence, evidence: Evidence) -> WriteFuture<'_, u64>;

    /// Stores a session's summary as of a record, in place of the previous one.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if there is no such session, [`WriteError::Invalid`] if the summary is too large.
    fn put_summary(&self, session: SessionId, sequence: Sequence, bytes: Bytes) -> WriteFuture<'_, ()>;

    /// Sets a cursor, or removes it with `None`.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if the key names a session that doesn't exist, [`WriteError::Invalid`] if the key or
    /// the value is too large.
    fn put_cursor(&self, key: CursorKey, value: Option<Bytes>) -> WriteFuture<'_, ()>;

    /// Deletes a session with all of its data: records, contents, transcripts, requests, snapshot, cursors and its
    /// creation key. The threads in `threads` are deleted too, except threads of other sessions. The list should
    /// contain all threads that the session's records spawned. Returns whether the session existed.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn delete_session(&self, session: SessionId, threads: Vec<ThreadId>) -> WriteFuture<'_, bool>;

    /// Deletes requests and creation keys that expired at or before `now`, at most [`limits::MAX_FORGOTTEN`] of each
    /// kind. Returns the number of deleted items. Repeat the call until it returns zero.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn forget_requests(&self, now: UnixMillis) -> WriteFuture<'_, u64>;

    /// Appends entries to a thread's transcript and numbers them. Texts are omitted if the transcripts of the session
    /// would exceed `session_bytes`.
    ///
    /// Completes when the write is queued. A later append becomes durable together with this write or after it. See
    /// [`PendingEntries::durable`].
    fn append_transcript(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
        session_bytes: u64,
    ) -> BoxFuture<'_, PendingEntries>;

    /// Returns entries of a thread's transcript, in order.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if an entry does not match its checksum.
    fn transcript(&self, query: TranscriptQuery) -> ReadFuture<'_, Vec<StoredEntry>>;

    /// Returns the number of the entry before the last `count` entries that the query selects; 0 if the query selects
    /// at most `count` entries.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn transcript_tail(&self, query: TranscriptQuery, count: usize) -> ReadFuture<'_, u64>;

    /// Returns a text that is too long for a listing, with the threads that have it, at most [`limits::MAX_PAGE`].
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if the text does not match its digest.
    fn transcript_text(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<LongText>>;

    /// Closes the store. Completes when all accepted writes are durable. Later writes get [`Refusal::Closed`]. A second
    /// call has no effect. Dropping the store has the same effect, but blocks the thread until it is done.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Returns the end of a session's log and its owner's epoch, or `None` if there is no such session.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn head(&self, session: SessionId) -> ReadFuture<'_, Option<Head>>;

    /// Returns the records after `after`, in order and without a gap. A page is shorter than the maximum only at the
    /// end of the log. The page is empty if there are no more records or no such session.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] names the first record that is missing or does not match its checksum. In this case, no
    /// records of the page are returned. [`ReadError::Compacted`] if records after `after` were compacted.
    fn read(&self, session: SessionId, after: Sequence, limit: usize) -> ReadFuture<'_, Vec<StoredRecord>>;

    /// Returns the marked records of a session after `after`, in order. If a thread is given, returns only its
    /// records.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] names the first record that doesn't match its checksum.
    fn marked(
        &self,
        session: SessionId,
        kind: MarkKind,
        thread: Option<ThreadId>,
        after: Sequence,
        limit: usize,
    ) -> ReadFuture<'_, Vec<StoredRecord>>;

    /// Returns a content of a session.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if the content doesn't match its checksum.
    fn content(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<Bytes>>;

    /// Returns a session's snapshot.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if the snapshot doesn't match its checksum. The log can be replayed without it.
    fn snapshot(&self, session: SessionId) -> ReadFuture<'_, Option<Snapshot>>;

    /// Returns a stored request, even if it has expired but is not deleted yet.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if the request doesn't match its checksum.
    fn request(&self, session: SessionId, key: RequestKey) -> ReadFuture<'_, Option<RequestRecord>>;

    /// Returns a session's stored requests in the order of their keys, after `after`.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] if a request doesn't match its checksum.
    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> ReadFuture<'_, Vec<RequestRecord>>;

    /// Returns the session that a creator's request created, even if the key has expired but is not deleted yet.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn creation(&self, creator: String, request_id: String) -> ReadFuture<'_, Option<Creation>>;

    /// Returns the session that a thread belongs to.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn session_of(&self, thread: ThreadId) -> ReadFuture<'_, Option<SessionId>>;

    /// Returns the sessions in the order of their ids, after `after`.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn sessions(&self, after: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionId>>;

    /// Returns the sessions with their summaries, newest id first, before `before`.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn summaries(&self, before: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionEntry>>;

    /// Returns the sessions that must be active at `time`: those due at or before `time`, in the order of [`Due`],
    /// after `after`. Sessions of other members are omitted.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn due_before(&self, time: UnixMillis, after: Option<Due>, limit: usize) -> ReadFuture<'_, Vec<Due>>;

    /// Returns a cursor's value.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    fn cursor(&self, key: CursorKey) -> ReadFuture<'_, Option<Bytes>>;
}
