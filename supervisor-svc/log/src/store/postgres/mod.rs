//! The engine for PostgreSQL: a few writing lanes and a few reading connections.
//!
//! All writes and reads go to the primary. The fence of an append is the owner and the epoch in the session's row,
//! which the transaction of the append compares and locks. Members beat on the reading connections, so that a large
//! write does not delay a beat.

mod batches;
mod change;
mod connection;
mod error;
mod group;
mod import;
mod job;
mod keys;
mod lane;
mod options;
mod query;
mod readers;
mod schema;
mod sql;
mod transcript;
mod writer;

use std::sync::Arc;

use bytes::Bytes;
use futures::{TryFutureExt as _, future::BoxFuture};
use supervisor_core::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::TranscriptSource,
};
use svc_kit::thread_token::RetiredKeys;
use uuid::Uuid;

pub(crate) use self::import::import;
pub use self::options::PostgresOptions;
use self::{
    change::{Change, Changed},
    connection::Connection,
    job::{BatchKind, BatchWrite, EntriesWrite},
    query::QueryError,
    readers::Readers,
    writer::Writer,
};
use crate::store::{
    EventStore, ReadFuture, WriteFuture,
    batch::{
        Batch, Created, Creation, CreationKey, CursorKey, Due, Evidence, Head, MarkKind, RequestKey, RequestRecord,
        SessionEntry, Snapshot, StoredRecord, check_cursor, check_snapshot, check_summary,
    },
    error::{Invalid, OpenError, RotateError, WriteError},
    member::{Beat, Claim, DatabaseInfo, Member, MemberId, NewMember},
    queue::outcome,
    transcript::{LongText, NewEntry, PendingEntries, StoredEntry, TranscriptQuery, check_entries},
};

/// A log in a PostgreSQL database.
///
/// A write is acknowledged when its commit group is flushed to the disk of the primary and of its synchronous standbys.
/// While the database cannot be reached, writes and reads are rejected. If the connection is lost during a commit, the
/// store asks the database for the outcome. It stops with [`WriteError::Unknown`] only if the database has lost
/// acknowledged commits, or if the store is closed before the database answers.
///
/// Dropping the store commits accepted writes and joins the writer thread, which blocks. [`close`](EventStore::close)
/// does the same without blocking.
pub struct PostgresStore {
    readers: Readers,
    writer: Writer,
    log_id: Uuid,
    member: MemberId,
}

impl PostgresStore {
    /// Connects to the database, creates the tables if they are missing, and checks that commits are durable.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(options: PostgresOptions) -> Result<Self, OpenError> {
        let options = Arc::new(options);
        let log_id = schema::prepare(&options).await?;
        let member = MemberId::from_uuid(Uuid::new_v4());
        let writer = Writer::start(Arc::clone(&options), member).await?;
        Ok(Self {
            readers: Readers::open(options).await?,
            writer,
            log_id,
            member,
        })
    }

    /// Connects to the database and creates the tables if they are missing, without opening the log.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn migrate(options: &PostgresOptions) -> Result<(), OpenError> {
        schema::prepare(options).await.map(drop)
    }

    /// Adds a new signing key to the keys in the database, keeps `keep` of the earlier ones, and returns the number of
    /// keys. Takes 4 s if the table contains members, to determine whether they run.
    ///
    /// # Errors
    /// See [`RotateError`]. In particular, [`RotateError::InUse`] names a supervisor that runs.
    pub async fn rotate_keys(options: &PostgresOptions, keep: RetiredKeys) -> Result<usize, RotateError> {
        keys::rotate_keys(options, keep).await
    }

    /// Runs a query. See [`Readers::run`].
    fn query<'a, T: Send + 'a>(
        &'a self,
        query: impl for<'c> Fn(&'c Connection) -> BoxFuture<'c, Result<T, QueryError>> + Send + Sync + 'a,
    ) -> ReadFuture<'a, T> {
        Box::pin(self.readers.run(query))
    }

    /// Applies a change and returns the number of affected rows.
    async fn change(&self, weight: Result<usize, Invalid>, work: Change) -> Result<u64, WriteError> {
        match self.writer.change(weight?, work).await? {
            Changed::Rows(rows) => Ok(rows),
            Changed::Claim(_) => Ok(0),
        }
    }

    async fn write_batch(
        &self,
        weight: Result<usize, Invalid>,
        kind: BatchKind,
        batch: Batch,
    ) -> Result<Created, WriteError> {
        outcome(self.writer.batch(weight?, BatchWrite { kind, batch }).await?).await
    }
}

impl EventStore for PostgresStore {
    fn log_id(&self) -> Uuid {
        self.log_id
    }

    fn create(&self, key: Option<CreationKey>, batch: Batch) -> WriteFuture<'_, Created> {
        let weight = batch.check_first(key.as_ref());
        Box::pin(self.write_batch(weight, BatchKind::Create(key), batch))
    }

    fn append(&self, batch: Batch) -> WriteFuture<'_, ()> {
        let weight = batch.check();
        Box::pin(self.write_batch(weight, BatchKind::Append, batch).map_ok(drop))
    }

    fn database(&self) -> ReadFuture<'_, DatabaseInfo> {
        self.query(|connection| Box::pin(query::database(connection)))
    }

    fn claim(&self, session: SessionId) -> WriteFuture<'_, Claim> {
        Box::pin(async move {
            match self.writer.change(0, Change::Claim(session)).await? {
                Changed::Claim(claim) => Ok(claim),
                Changed::Rows(_) => Err(WriteError::NotFound { session }),
            }
        })
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> WriteFuture<'_, ()> {
        Box::pin(self.change(Ok(0), Change::Release(session, epoch)).map_ok(drop))
    }

    fn hand_over(&self, session: SessionId, epoch: Epoch, to: MemberId) -> WriteFuture<'_, bool> {
        let changed = self.change(Ok(0), Change::HandOver(session, epoch, to));
        Box::pin(changed.map_ok(|rows| rows > 0))
    }

    fn member(&self) -> MemberId {
        self.member
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn join(&self, member: NewMember) -> ReadFuture<'_, ()> {
        let id = self.member;
        self.query(move |connection| Box::pin(query::join(connection, id, member.clone())))
    }

    fn beat(&self, beat: Beat) -> ReadFuture<'_, Option<Vec<Member>>> {
        let id = self.member;
        self.query(move |connection| Box::pin(query::beat(connection, id, beat)))
    }

    fn agree(&self, key: &'static str, proposal: String) -> ReadFuture<'_, String> {
        self.query(move |connection| Box::pin(query::agree(connection, key, proposal.clone())))
    }

    fn remove_member(&self, member: MemberId, beats: u64) -> ReadFuture<'_, bool> {
        self.query(move |connection| Box::pin(query::remove_member(connection, member, beats)))
    }

    fn put_snapshot(&self, session: SessionId, snapshot: Snapshot) -> WriteFuture<'_, ()> {
        let changed = self.change(check_snapshot(&snapshot), Change::PutSnapshot(session, snapshot));
        Box::pin(changed.map_ok(drop))
    }

    fn compact(&self, session: SessionId, until: Sequence, evidence: Evidence) -> WriteFuture<'_, u64> {
        Box::pin(self.change(Ok(0), Change::Compact(session, until, evidence)))
    }

    fn put_summary(&self, session: SessionId, sequence: Sequence, bytes: Bytes) -> WriteFuture<'_, ()> {
        let changed = self.change(check_summary(&bytes), Change::PutSummary(session, sequence, bytes));
        Box::pin(changed.map_ok(drop))
    }

    fn put_cursor(&self, key: CursorKey, value: Option<Bytes>) -> WriteFuture<'_, ()> {
        let changed = self.change(check_cursor(&key, value.as_ref()), Change::PutCursor(key, value));
        Box::pin(changed.map_ok(drop))
    }

    fn delete_session(&self, session: SessionId, threads: Vec<ThreadId>) -> WriteFuture<'_, bool> {
        let changed = self.change(Ok(0), Change::DeleteSession(session, threads));
        Box::pin(changed.map_ok(|rows| rows > 0))
    }

    fn forget_requests(&self, now: UnixMillis) -> WriteFuture<'_, u64> {
        Box::pin(self.change(Ok(0), Change::ForgetRequests(now)))
    }

    fn append_transcript(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
        session_bytes: u64,
    ) -> BoxFuture<'_, PendingEntries> {
        Box::pin(async move {
            let weight = check_entries(&entries);
            let write = EntriesWrite {
                source,
                entries,
                session_bytes,
            };
            let queued = self.writer.entries(weight, write).await;
            PendingEntries::new(async { outcome(queued?).await })
        })
    }

    fn transcript(&self, query: TranscriptQuery) -> ReadFuture<'_, Vec<StoredEntry>> {
        self.query(move |connection| Box::pin(transcript::entries(connection, query)))
    }

    fn transcript_tail(&self, query: TranscriptQuery, count: usize) -> ReadFuture<'_, u64> {
        self.query(move |connection| Box::pin(transcript::tail(connection, query, count)))
    }

    fn transcript_text(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<LongText>> {
        self.query(move |connection| Box::pin(transcript::text(connection, session, digest)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }

    fn head(&self, session: SessionId) -> ReadFuture<'_, Option<Head>> {
        self.query(move |connection| Box::pin(query::head(connection, session)))
    }

    fn read(&self, session: SessionId, after: Sequence, limit: usize) -> ReadFuture<'_, Vec<StoredRecord>> {
        self.query(move |connection| Box::pin(query::records(connection, session, after, limit)))
    }

    fn marked(
        &self,
        session: SessionId,
        kind: MarkKind,
        thread: Option<ThreadId>,
        after: Sequence,
        limit: usize,
    ) -> ReadFuture<'_, Vec<StoredRecord>> {
        self.query(move |connection| Box::pin(query::marked(connection, session, kind, thread, after, limit)))
    }

    fn content(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<Bytes>> {
        self.query(move |connection| Box::pin(query::content(connection, session, digest)))
    }

    fn snapshot(&self, session: SessionId) -> ReadFuture<'_, Option<Snapshot>> {
        self.query(move |connection| Box::pin(query::snapshot(connection, session)))
    }

    fn request(&self, session: SessionId, key: RequestKey) -> ReadFuture<'_, Option<RequestRecord>> {
        self.query(move |connection| Box::pin(query::request(connection, session, key.clone())))
    }

    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> ReadFuture<'_, Vec<RequestRecord>> {
        self.query(move |connection| Box::pin(query::requests(connection, session, after.clone(), limit)))
    }

    fn creation(&self, creator: String, request_id: String) -> ReadFuture<'_, Option<Creation>> {
        self.query(move |connection| {
            let (creator, request_id) = (creator.clone(), request_id.clone());
            Box::pin(async move { Ok(query::creation(connection, &creator, &request_id).await?) })
        })
    }

    fn session_of(&self, thread: ThreadId) -> ReadFuture<'_, Option<SessionId>> {
        self.query(move |connection| Box::pin(query::session_of(connection, thread)))
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionId>> {
        self.query(move |connection| Box::pin(query::sessions(connection, after, limit)))
    }

    fn summaries(&self, before: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionEntry>> {
        self.query(move |connection| Box::pin(query::summaries(connection, self.member, before, limit)))
    }

    fn due_before(&self, time: UnixMillis, after: Option<Due>, limit: usize) -> ReadFuture<'_, Vec<Due>> {
        self.query(move |connection| Box::pin(query::due_before(connection, self.member, time, after, limit)))
    }

    fn cursor(&self, key: CursorKey) -> ReadFuture<'_, Option<Bytes>> {
        self.query(move |connection| Box::pin(query::cursor(connection, key.clone())))
    }
}
