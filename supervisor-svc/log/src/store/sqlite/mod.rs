//! The default engine: one SQLite file, one writing thread, a few reading connections. The module `memory` runs the
//! same statements on a database in memory, for tests.

mod apply;
mod checkpointer;
mod group;
mod maintain;
mod memory;
mod query;
mod readers;
mod reserve;
mod schema;
mod transcript;
mod writer;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use rusqlite::Connection;
use supervisor_core::{
    ids::{Digest, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::TranscriptSource,
};
use uuid::Uuid;

use self::{checkpointer::Checkpointer, group::Failure, readers::Readers, reserve::Reserve, writer::Writer};
pub use self::{
    maintain::{
        Compacted, LogReader, MaintainError, RawContent, RawRecord, SessionLog, bytes_of, changed_at, compact, copy,
    },
    memory::MemoryStore,
};
use crate::store::{
    EventStore, ReadFuture, WriteFuture,
    batch::{
        Batch, Created, Creation, CreationKey, CursorKey, Due, Evidence, Head, MarkKind, RequestKey, RequestRecord,
        SessionEntry, Snapshot, StoredRecord, check_cursor, check_snapshot, check_summary,
    },
    error::{Invalid, OpenError, ReadError},
    member::{Claim, DatabaseInfo},
    queue::outcome,
    transcript::{LongText, NewEntry, PendingEntries, StoredEntry, TranscriptQuery, check_entries},
};

/// A log in one SQLite file. Only the process that holds the data directory's lock may open it.
///
/// A write is acknowledged when its commit group is flushed to the disk. Dropping the store flushes accepted writes
/// and joins the writer thread, which blocks. [`close`](EventStore::close) does the same without blocking.
///
/// A reserve file is stored next to the database. When the disk is full, the reserve is deleted, so that threads can
/// still be closed. Until there is space for it again, new sessions and threads are rejected with
/// [`Refusal::DiskFull`](crate::store::Refusal::DiskFull).
pub struct SqliteStore {
    readers: Arc<Readers>,
    writer: Writer,
    reserve: Arc<Reserve>,
    log_id: Uuid,
}

impl SqliteStore {
    /// Opens or creates the file, and checks that it is intact and that commits to it are durable. The file must have
    /// the schema version of this program.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::open_used(path, None).await
    }

    /// Does the same as [`open`](Self::open), but does not create the log if `evidence` is given. `evidence` is the
    /// name of a file that exists only if the log was opened before.
    ///
    /// # Errors
    /// See [`OpenError`]; [`OpenError::Lost`] if the log is missing or empty.
    pub async fn open_used(path: impl Into<PathBuf>, evidence: Option<&'static str>) -> Result<Self, OpenError> {
        let path = path.into();
        tokio::task::spawn_blocking(move || -> Result<Self, OpenError> {
            let (connection, log_id) = schema::open_writer(&path, evidence)?;
            let checkpointer = Checkpointer::start(schema::open_checkpointer(&path)?)?;
            let reserve = Arc::new(Reserve::of_database(&path));
            Ok(Self {
                readers: Arc::new(Readers::open(path)?),
                writer: Writer::start(connection, checkpointer, Arc::clone(&reserve))?,
                reserve,
                log_id,
            })
        })
        .await?
    }

    /// Runs a query. See [`Readers::run`].
    fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, ReadError> + Send + 'static,
    ) -> ReadFuture<'_, T> {
        Box::pin(self.readers.run(query))
    }

    /// Performs a write. See [`Writer::submit`].
    fn write<T: Send + 'static>(
        &self,
        weight: Result<usize, Invalid>,
        work: impl Fn(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> WriteFuture<'_, T> {
        Box::pin(self.writer.submit(weight, work))
    }
}

impl EventStore for SqliteStore {
    fn log_id(&self) -> Uuid {
        self.log_id
    }

    fn create(&self, key: Option<CreationKey>, batch: Batch) -> WriteFuture<'_, Created> {
        let reserve = Arc::clone(&self.reserve);
        self.write(batch.check_first(key.as_ref()), move |connection| {
            let created = apply::create(connection, key.as_ref(), &batch)?;
            if created == Created::New {
                reserve.admit()?;
            }
            Ok(created)
        })
    }

    fn append(&self, batch: Batch) -> WriteFuture<'_, ()> {
        let reserve = Arc::clone(&self.reserve);
        self.write(batch.check(), move |connection| {
            if !batch.new_threads.is_empty() {
                reserve.admit()?;
            }
            apply::append(connection, &batch)
        })
    }

    fn database(&self) -> ReadFuture<'_, DatabaseInfo> {
        Box::pin(ready(Ok(DatabaseInfo {
            engine: format!("SQLite {}", rusqlite::version()),
            synchronous_standbys: String::new(),
        })))
    }

    fn claim(&self, session: SessionId) -> WriteFuture<'_, Claim> {
        self.write(Ok(0), move |connection| apply::claim(connection, session))
    }

    fn put_snapshot(&self, session: SessionId, snapshot: Snapshot) -> WriteFuture<'_, ()> {
        self.write(check_snapshot(&snapshot), move |connection| {
            apply::put_snapshot(connection, session, &snapshot)
        })
    }

    fn compact(&self, session: SessionId, until: Sequence, evidence: Evidence) -> WriteFuture<'_, u64> {
        self.write(Ok(0), move |connection| {
            apply::compact(connection, session, until, &evidence)
        })
    }

    fn put_summary(&self, session: SessionId, sequence: Sequence, bytes: Bytes) -> WriteFuture<'_, ()> {
        self.write(check_summary(&bytes), move |connection| {
            apply::put_summary(connection, session, sequence, &bytes)
        })
    }

    fn put_cursor(&self, key: CursorKey, value: Option<Bytes>) -> WriteFuture<'_, ()> {
        self.write(check_cursor(&key, value.as_ref()), move |connection| {
            apply::put_cursor(connection, &key, value.as_ref())
        })
    }

    fn delete_session(&self, session: SessionId, threads: Vec<ThreadId>) -> WriteFuture<'_, bool> {
        self.write(Ok(0), move |connection| {
            apply::delete_session(connection, session, &threads)
        })
    }

    fn forget_requests(&self, now: UnixMillis) -> WriteFuture<'_, u64> {
        self.write(Ok(0), move |connection| apply::forget_requests(connection, now))
    }

    fn append_transcript(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
        session_bytes: u64,
    ) -> BoxFuture<'_, PendingEntries> {
        Box::pin(async move {
            let weight = check_entries(&entries);
            let reserve = Arc::clone(&self.reserve);
            let work = move |connection: &Connection| {
                reserve.admit()?;
                transcript::append(connection, source, &entries, session_bytes)
            };
            let queued = self.writer.enqueue(weight, work).await;
            PendingEntries::new(async { outcome(queued?).await })
        })
    }

    fn transcript(&self, query: TranscriptQuery) -> ReadFuture<'_, Vec<StoredEntry>> {
        self.query(move |connection| transcript::entries(connection, query))
    }

    fn transcript_tail(&self, query: TranscriptQuery, count: usize) -> ReadFuture<'_, u64> {
        self.query(move |connection| Ok(transcript::tail(connection, query, count)?))
    }

    fn transcript_text(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<LongText>> {
        self.query(move |connection| transcript::text(connection, session, digest))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }

    fn head(&self, session: SessionId) -> ReadFuture<'_, Option<Head>> {
        self.query(move |connection| Ok(query::head(connection, session)?))
    }

    fn read(&self, session: SessionId, after: Sequence, limit: usize) -> ReadFuture<'_, Vec<StoredRecord>> {
        self.query(move |connection| query::records(connection, session, after, limit))
    }

    fn marked(
        &self,
        session: SessionId,
        kind: MarkKind,
        thread: Option<ThreadId>,
        after: Sequence,
        limit: usize,
    ) -> ReadFuture<'_, Vec<StoredRecord>> {
        self.query(move |connection| query::marked(connection, session, kind, thread, after, limit))
    }

    fn content(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<Bytes>> {
        self.query(move |connection| query::content(connection, session, digest))
    }

    fn snapshot(&self, session: SessionId) -> ReadFuture<'_, Option<Snapshot>> {
        self.query(move |connection| query::snapshot(connection, session))
    }

    fn request(&self, session: SessionId, key: RequestKey) -> ReadFuture<'_, Option<RequestRecord>> {
        self.query(move |connection| query::request(connection, session, &key))
    }

    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> ReadFuture<'_, Vec<RequestRecord>> {
        self.query(move |connection| query::requests(connection, session, after.as_ref(), limit))
    }

    fn creation(&self, creator: String, request_id: String) -> ReadFuture<'_, Option<Creation>> {
        self.query(move |connection| Ok(query::creation(connection, &creator, &request_id)?))
    }

    fn session_of(&self, thread: ThreadId) -> ReadFuture<'_, Option<SessionId>> {
        self.query(move |connection| Ok(query::session_of(connection, thread)?))
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionId>> {
        self.query(move |connection| query::sessions(connection, after, limit))
    }

    fn summaries(&self, before: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionEntry>> {
        self.query(move |connection| query::summaries(connection, before, limit))
    }

    fn due_before(&self, time: UnixMillis, after: Option<Due>, limit: usize) -> ReadFuture<'_, Vec<Due>> {
        self.query(move |connection| query::due_before(connection, time, after, limit))
    }

    fn cursor(&self, key: CursorKey) -> ReadFuture<'_, Option<Bytes>> {
        self.query(move |connection| query::cursor(connection, &key))
    }
}
