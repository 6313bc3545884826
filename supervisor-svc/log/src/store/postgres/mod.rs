//! The engine for PostgreSQL: a few writing lanes and a few reading connections.
//!
//! All writes and reads go to the primary. The fence of an append is the owner and the epoch in the session's row, which
//! the transaction of the append compares and locks. Members beat on the reading connections, so that a large write does
//! not delay a beat.

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
use futures::future::{BoxFuture, ready};
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
    EventStore,
    batch::{
        Batch, Created, Creation, CreationKey, CursorKey, Due, Evidence, Head, MarkKind, RequestKey, RequestRecord,
        SessionEntry, Snapshot, StoredRecord, check_cursor, check_snapshot, check_summary,
    },
    error::{OpenError, ReadError, RotateError, WriteError},
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
        let member = MemberId::new_random();
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
    /// keys. Takes 4 s if members are in the table, to see whether they run.
    ///
    /// # Errors
    /// See [`RotateError`]. In particular, [`RotateError::InUse`] names a supervisor that runs.
    pub async fn rotate_keys(options: &PostgresOptions, keep: RetiredKeys) -> Result<usize, RotateError> {
        keys::rotate_keys(options, keep).await
    }

    /// Runs a query as [`Readers::run`].
    fn query<'a, T: Send + 'a>(
        &'a self,
        query: impl for<'c> Fn(&'c Connection) -> BoxFuture<'c, Result<T, QueryError>> + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T, ReadError>> {
        Box::pin(self.readers.run(query))
    }

    /// Makes a change and returns the number of rows that are gone.
    async fn change(&self, weight: usize, work: Change) -> Result<u64, WriteError> {
        match self.writer.change(weight, work).await? {
            Changed::Rows(rows) => Ok(rows),
            Changed::Claim(_) => Ok(0),
        }
    }

    fn write_batch(&self, kind: BatchKind, batch: Batch) -> BoxFuture<'_, Result<Created, WriteError>> {
        Box::pin(async move {
            let weight = batch.weight();
            outcome(self.writer.batch(weight, BatchWrite { kind, batch }).await?).await
        })
    }
}

impl EventStore for PostgresStore {
    fn log_id(&self) -> Uuid {
        self.log_id
    }

    fn create(&self, key: Option<CreationKey>, batch: Batch) -> BoxFuture<'_, Result<Created, WriteError>> {
        match batch.check_first(key.as_ref()) {
            Ok(()) => self.write_batch(BatchKind::Create(key), batch),
            Err(invalid) => Box::pin(ready(Err(invalid.into()))),
        }
    }

    fn append(&self, batch: Batch) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            batch.check()?;
            self.write_batch(BatchKind::Append, batch).await.map(drop)
        })
    }

    fn database(&self) -> BoxFuture<'_, Result<DatabaseInfo, ReadError>> {
        self.query(|connection| Box::pin(query::database(connection)))
    }

    fn claim(&self, session: SessionId) -> BoxFuture<'_, Result<Claim, WriteError>> {
        Box::pin(async move {
            match self.writer.change(0, Change::Claim(session)).await? {
                Changed::Claim(claim) => Ok(claim),
                Changed::Rows(_) => Err(WriteError::NotFound { session }),
            }
        })
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move { self.change(0, Change::Release(session, epoch)).await.map(drop) })
    }

    fn hand_over(&self, session: SessionId, epoch: Epoch, to: MemberId) -> BoxFuture<'_, Result<bool, WriteError>> {
        Box::pin(async move { Ok(self.change(0, Change::HandOver(session, epoch, to)).await? > 0) })
    }

    fn member(&self) -> MemberId {
        self.member
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn join(&self, member: NewMember) -> BoxFuture<'_, Result<(), ReadError>> {
        let id = self.member;
        self.query(move |connection| {
            let member = member.clone();
            Box::pin(async move { query::join(connection, id, &member).await })
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<Option<Vec<Member>>, ReadError>> {
        let id = self.member;
        self.query(move |connection| Box::pin(query::beat(connection, id, beat)))
    }

    fn agree(&self, key: &'static str, proposal: String) -> BoxFuture<'_, Result<String, ReadError>> {
        self.query(move |connection| {
            let proposal = proposal.clone();
            Box::pin(async move { query::agree(connection, key, &proposal).await })
        })
    }

    fn remove_member(&self, member: MemberId, beats: u64) -> BoxFuture<'_, Result<bool, ReadError>> {
        self.query(move |connection| Box::pin(query::remove_member(connection, member, beats)))
    }

    fn put_snapshot(&self, session: SessionId, snapshot: Snapshot) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            check_snapshot(&snapshot)?;
            let weight = snapshot.bytes.len();
            self.change(weight, Change::PutSnapshot(session, snapshot))
                .await
                .map(drop)
        })
    }

    fn compact(
        &self,
        session: SessionId,
        until: Sequence,
        evidence: Evidence,
    ) -> BoxFuture<'_, Result<u64, WriteError>> {
        Box::pin(self.change(0, Change::Compact(session, until, evidence)))
    }

    fn put_summary(
        &self,
        session: SessionId,
        sequence: Sequence,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            check_summary(&bytes)?;
            let weight = bytes.len();
            self.change(weight, Change::PutSummary(session, sequence, bytes))
                .await
                .map(drop)
        })
    }

    fn put_cursor(&self, key: CursorKey, value: Option<Bytes>) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            check_cursor(&key, value.as_ref())?;
            let weight = key.name.len() + value.as_ref().map_or(0, Bytes::len);
            self.change(weight, Change::PutCursor(key, value)).await.map(drop)
        })
    }

    fn delete_session(&self, session: SessionId, threads: Vec<ThreadId>) -> BoxFuture<'_, Result<bool, WriteError>> {
        Box::pin(async move {
            let found = self.change(0, Change::DeleteSession(session, threads)).await?;
            Ok(found > 0)
        })
    }

    fn forget_requests(&self, now: UnixMillis) -> BoxFuture<'_, Result<u64, WriteError>> {
        Box::pin(self.change(0, Change::ForgetRequests(now)))
    }

    fn append_transcript(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
        session_bytes: u64,
    ) -> BoxFuture<'_, PendingEntries> {
        Box::pin(async move {
            let weight = match check_entries(&entries) {
                Ok(weight) => weight,
                Err(invalid) => return PendingEntries::new(ready(Err(invalid.into()))),
            };
            let write = EntriesWrite {
                source,
                entries,
                session_bytes,
            };
            let queued = self.writer.entries(weight, write).await;
            PendingEntries::new(async { outcome(queued?).await })
        })
    }

    fn transcript(&self, query: TranscriptQuery) -> BoxFuture<'_, Result<Vec<StoredEntry>, ReadError>> {
        self.query(move |connection| Box::pin(transcript::entries(connection, query)))
    }

    fn transcript_tail(&self, query: TranscriptQuery, count: usize) -> BoxFuture<'_, Result<u64, ReadError>> {
        self.query(move |connection| Box::pin(transcript::tail(connection, query, count)))
    }

    fn transcript_text(
        &self,
        session: SessionId,
        digest: Digest,
    ) -> BoxFuture<'_, Result<Option<LongText>, ReadError>> {
        self.query(move |connection| Box::pin(transcript::text(connection, session, digest)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }

    fn head(&self, session: SessionId) -> BoxFuture<'_, Result<Option<Head>, ReadError>> {
        self.query(move |connection| Box::pin(query::head(connection, session)))
    }

    fn read(
        &self,
        session: SessionId,
        after: Sequence,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredRecord>, ReadError>> {
        self.query(move |connection| Box::pin(query::records(connection, session, after, limit)))
    }

    fn marked(
        &self,
        session: SessionId,
        kind: MarkKind,
        thread: Option<ThreadId>,
        after: Sequence,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredRecord>, ReadError>> {
        self.query(move |connection| Box::pin(query::marked(connection, session, kind, thread, after, limit)))
    }

    fn content(&self, session: SessionId, digest: Digest) -> BoxFuture<'_, Result<Option<Bytes>, ReadError>> {
        self.query(move |connection| Box::pin(query::content(connection, session, digest)))
    }

    fn snapshot(&self, session: SessionId) -> BoxFuture<'_, Result<Option<Snapshot>, ReadError>> {
        self.query(move |connection| Box::pin(query::snapshot(connection, session)))
    }

    fn request(&self, session: SessionId, key: RequestKey) -> BoxFuture<'_, Result<Option<RequestRecord>, ReadError>> {
        self.query(move |connection| {
            let key = key.clone();
            Box::pin(async move { query::request(connection, session, &key).await })
        })
    }

    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RequestRecord>, ReadError>> {
        self.query(move |connection| {
            let after = after.clone();
            Box::pin(async move { query::requests(connection, session, after.as_ref(), limit).await })
        })
    }

    fn creation(&self, creator: String, request_id: String) -> BoxFuture<'_, Result<Option<Creation>, ReadError>> {
        self.query(move |connection| {
            let (creator, request_id) = (creator.clone(), request_id.clone());
            Box::pin(async move { Ok(query::creation(connection, &creator, &request_id).await?) })
        })
    }

    fn session_of(&self, thread: ThreadId) -> BoxFuture<'_, Result<Option<SessionId>, ReadError>> {
        self.query(move |connection| Box::pin(query::session_of(connection, thread)))
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> BoxFuture<'_, Result<Vec<SessionId>, ReadError>> {
        self.query(move |connection| Box::pin(query::sessions(connection, after, limit)))
    }

    fn summaries(
        &self,
        before: Option<SessionId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SessionEntry>, ReadError>> {
        self.query(move |connection| Box::pin(query::summaries(connection, self.member, before, limit)))
    }

    fn due_before(
        &self,
        time: UnixMillis,
        after: Option<Due>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Due>, ReadError>> {
        self.query(move |connection| Box::pin(query::due_before(connection, self.member, time, after, limit)))
    }

    fn cursor(&self, key: CursorKey) -> BoxFuture<'_, Result<Option<Bytes>, ReadError>> {
        self.query(move |connection| {
            let key = key.clone();
            Box::pin(async move { query::cursor(connection, &key).await })
        })
    }
}
