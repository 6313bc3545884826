//! Operations on the database file: reading it while the service runs, compacting it, copying it. This module does not
//! interpret records.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use rusqlite::{Connection, Transaction, params};
use supervisor_core::ids::{Digest, Sequence, SessionId};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{
    query::{self, blob, bytes_at, number_at, sequence_at},
    schema, transcript,
};
use crate::store::{
    batch::{Head, Snapshot, StoredRecord},
    checksum,
    error::{ImportError, OpenError, ReadError},
    limits::MAX_PAGE,
    postgres::{PostgresOptions, import},
};

/// Number of the engine's instructions between two checks for cancellation.
const CANCEL_CHECK_INTERVAL: i32 = 1_000;

/// Maximum number of page faults that the engine lists.
const MAX_PAGE_FAULTS: u32 = 10;

/// The error of an operation on the database file.
#[derive(Debug, Error)]
pub enum MaintainError {
    /// The database, or the copy of it, can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine couldn't compact the database, which is unchanged.
    #[error(
        "the database can't be compacted: {0}; compaction needs about as much free space as the size of the database"
    )]
    Compact(#[source] rusqlite::Error),
    /// Another program reads the database.
    #[error("another program reads the database; nothing is lost, try again when it is done")]
    InUse,
    /// The engine couldn't write the copy.
    #[error("the database can't be copied to {}: {cause}", .path.display())]
    Copy {
        /// The destination of the copy.
        path: PathBuf,
        /// The engine's error.
        cause: rusqlite::Error,
    },
    /// The copy's file cannot be created or made durable.
    #[error("cannot write {}: {cause}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
}

/// A stored record, intact or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// The number under which it is stored.
    pub sequence: Sequence,
    /// Stored bytes, opaque to the store.
    pub bytes: Bytes,
    /// Whether it matches its checksum.
    pub is_intact: bool,
}

/// A stored content, intact or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawContent {
    /// The digest under which it is stored.
    pub digest: Digest,
    /// The content.
    pub bytes: Bytes,
    /// Whether it matches its checksum.
    pub is_intact: bool,
}

/// A read-only view of a database, without a lock. The database may have an active writer.
pub struct LogReader {
    connection: Connection,
}

impl LogReader {
    /// Opens the database.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(database: &Path) -> Result<Self, OpenError> {
        let connection = schema::open_for_reading(database)?;
        Ok(Self { connection })
    }

    /// Returns the release that last opened the database for writing. `None` if it is not recorded.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn release(&self) -> Result<Option<String>, ReadError> {
        Ok(schema::release(&self.connection)?)
    }

    /// Copies the log into an empty PostgreSQL database, and reports the number of copied rows. Returns the number of
    /// all rows.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub async fn copy_to(&self, options: &PostgresOptions, copied: &mut dyn FnMut(u64)) -> Result<u64, ImportError> {
        import(&self.connection, options, copied).await
    }

    /// Makes every read fail once the token is cancelled.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn interrupt_on(&mut self, cancel: &CancellationToken) -> Result<(), ReadError> {
        Ok(interrupt_on(&mut self.connection, cancel)?)
    }

    /// Runs the engine's integrity check and returns the faults of the file's pages, or nothing if they are sound.
    /// Reads the entire file.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn page_faults(&self) -> Result<Vec<String>, ReadError> {
        let mut statement = self
            .connection
            .prepare(&format!("PRAGMA quick_check({MAX_PAGE_FAULTS})"))?;
        let mut rows = statement.query([])?;
        let mut faults = Vec::new();
        while let Some(row) = rows.next()? {
            let line: String = row.get(0)?;
            if line != "ok" {
                faults.push(line);
            }
        }
        Ok(faults)
    }

    /// Returns the number of sessions.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn session_count(&self) -> Result<u64, ReadError> {
        let mut statement = self.connection.prepare_cached("SELECT count(*) FROM sessions")?;
        Ok(statement.query_row([], |row| number_at(row, 0))?)
    }

    /// Returns the sessions in the order of their ids, after `after`, at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn sessions(&self, after: Option<SessionId>) -> Result<Vec<SessionId>, ReadError> {
        query::sessions(&self.connection, after, MAX_PAGE)
    }

    /// Returns the end of a session's log, or `None` if there is no such session.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn head(&self, session: SessionId) -> Result<Option<Head>, ReadError> {
        Ok(query::head(&self.connection, session)?)
    }

    /// Returns the records after `after`, in order and without a gap, at most `limit` and [`MAX_PAGE`].
    ///
    /// # Errors
    /// As for [`EventStore::read`](crate::store::EventStore::read).
    pub fn records(&self, session: SessionId, after: Sequence, limit: usize) -> Result<Vec<StoredRecord>, ReadError> {
        query::records(&self.connection, session, after, limit)
    }

    /// Returns the records after `after` up to `until` that compaction retained, in order, at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] names the first record that doesn't match its checksum.
    pub fn left(&self, session: SessionId, after: Sequence, until: Sequence) -> Result<Vec<StoredRecord>, ReadError> {
        query::left(&self.connection, session, after, until)
    }

    /// Returns a consistent view of a session as of this moment, or `None` if there is no such session.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn session(&self, session: SessionId) -> Result<Option<SessionLog<'_>>, ReadError> {
        let transaction = self.connection.unchecked_transaction()?;
        let head = query::head(&transaction, session)?;
        Ok(head.map(|head| SessionLog {
            transaction,
            session,
            head,
        }))
    }
}

/// Makes statements of a connection fail once the token is cancelled.
fn interrupt_on(connection: &mut Connection, cancel: &CancellationToken) -> Result<(), rusqlite::Error> {
    let cancel = cancel.clone();
    connection.progress_handler(CANCEL_CHECK_INTERVAL, Some(move || cancel.is_cancelled()))
}

/// A consistent view of a session's stored log and related data. The view lasts as long as this value.
pub struct SessionLog<'a> {
    transaction: Transaction<'a>,
    session: SessionId,
    head: Head,
}

impl SessionLog<'_> {
    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.session
    }

    /// Returns the end of the session's log.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Passes every stored record to `visit`, in order.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn each_record(&self, mut visit: impl FnMut(RawRecord)) -> Result<(), ReadError> {
        let mut statement = self
            .transaction
            .prepare_cached("SELECT sequence, crc, bytes FROM records WHERE session = ?1 ORDER BY sequence")?;
        let mut rows = statement.query(params![blob(self.session.as_uuid())])?;
        while let Some(row) = rows.next()? {
            let sequence = sequence_at(row, 0)?;
            let crc: u32 = row.get(1)?;
            let bytes = bytes_at(row, 2)?;
            visit(RawRecord {
                sequence,
                is_intact: crc == checksum::numbered(self.session, sequence, &bytes),
                bytes,
            });
        }
        Ok(())
    }

    /// Passes every stored content to `visit`.
    ///
    /// # Errors
    /// [`ReadError::Engine`].
    pub fn each_content(&self, mut visit: impl FnMut(RawContent)) -> Result<(), ReadError> {
        let mut statement = self
            .transaction
            .prepare_cached("SELECT digest, crc, bytes FROM contents WHERE session = ?1 ORDER BY digest")?;
        let mut rows = statement.query(params![blob(self.session.as_uuid())])?;
        while let Some(row) = rows.next()? {
            let digest = Digest::from_bytes(row.get(0)?);
            let crc: u32 = row.get(1)?;
            let bytes = bytes_at(row, 2)?;
            visit(RawContent {
                digest,
                is_intact: crc == checksum::content(self.session, digest, &bytes),
                bytes,
            });
        }
        Ok(())
    }

    /// Checks every entry of the session's transcripts, and returns their number and size in bytes.
    ///
    /// # Errors
    /// [`ReadError::CorruptSide`] names the first entry that does not match its checksum.
    pub fn check_transcripts(&self) -> Result<(u64, u64), ReadError> {
        transcript::check(&self.transaction, self.session)
    }

    /// Returns the session's snapshot.
    ///
    /// # Errors
    /// As for [`EventStore::snapshot`](crate::store::EventStore::snapshot).
    pub fn snapshot(&self) -> Result<Option<Snapshot>, ReadError> {
        query::snapshot(&self.transaction, self.session)
    }

    /// Checks every stored request of the session.
    ///
    /// # Errors
    /// As for [`EventStore::requests`](crate::store::EventStore::requests).
    pub fn check_requests(&self) -> Result<(), ReadError> {
        let mut after = None;
        loop {
            let page = query::requests(&self.transaction, self.session, after.as_ref(), MAX_PAGE)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.key());
        }
    }
}

/// The result of a compaction: total size of the database and its write-ahead log, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Size before the compaction.
    pub before: u64,
    /// Size after the compaction.
    pub after: u64,
}

/// Compacts a database and frees the space of deleted data. No service may have the database open.
///
/// # Errors
/// See [`MaintainError`]. No data is lost after an error.
pub fn compact(database: &Path) -> Result<Compacted, MaintainError> {
    let before = bytes_of(database);
    let connection = schema::open_alone(database)?;
    empty_log(&connection)?;
    connection.execute_batch("VACUUM").map_err(MaintainError::Compact)?;
    // The compacted database is now entirely in the write-ahead log.
    empty_log(&connection)?;
    drop(connection);
    Ok(Compacted {
        before,
        after: bytes_of(database),
    })
}

/// Moves the write-ahead log into the database and truncates it.
fn empty_log(connection: &Connection) -> Result<(), MaintainError> {
    let was_busy: bool = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .map_err(MaintainError::Compact)?;
    if was_busy { Err(MaintainError::InUse) } else { Ok(()) }
}

/// Returns the size of a database with its write-ahead log. The log is missing after an orderly shutdown.
#[must_use]
pub fn bytes_of(database: &Path) -> u64 {
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    size(database).saturating_add(size(&log_of(database)))
}

/// Returns the path of a database's write-ahead log.
fn log_of(database: &Path) -> PathBuf {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Returns when a database or its write-ahead log was last written. `None` if the file system does not record that
/// time.
#[must_use]
pub fn changed_at(database: &Path) -> Option<SystemTime> {
    // An empty write-ahead log is ignored, because a reader can have created it.
    let log = fs::metadata(log_of(database)).ok().filter(|found| found.len() > 0);
    let written = fs::metadata(database).ok()?.modified().ok()?;
    match log {
        Some(log) => Some(written.max(log.modified().ok()?)),
        None => Some(written),
    }
}

/// Copies a database as of one moment into a new file and returns the copy's size in bytes. The database may have an
/// active writer, and may have the schema of an older release. Only the owner can access the copy. The copy is checked,
/// durable and compacted, and it has no log id: see [`EventStore::log_id`].
///
/// [`EventStore::log_id`]: crate::store::EventStore::log_id
///
/// # Errors
/// See [`MaintainError`]. No copy is left behind after an error or a cancellation. An existing file is not changed.
pub fn copy(database: &Path, into: &Path, cancel: &CancellationToken) -> Result<u64, MaintainError> {
    let write = |cause| MaintainError::Write {
        path: into.to_owned(),
        cause,
    };
    // The engine accepts an empty file as the target, and creates its auxiliary files with the same permissions.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(into)
        .map_err(write)?;
    let copied = fill(database, into, cancel).and_then(|()| make_durable(into).map_err(write));
    if copied.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(into);
    }
    copied
}

fn fill(database: &Path, into: &Path, cancel: &CancellationToken) -> Result<(), MaintainError> {
    let Some(target) = into.to_str() else {
        return Err(MaintainError::Write {
            path: into.to_owned(),
            cause: io::Error::new(io::ErrorKind::InvalidInput, "the path is not valid UTF-8"),
        });
    };
    let mut source = schema::open_for_copying(database)?;
    interrupt_on(&mut source, cancel)
        .and_then(|()| source.execute("VACUUM INTO ?1", params![target]))
        .map_err(|cause| MaintainError::Copy {
            path: into.to_owned(),
            cause,
        })?;
    drop(source);
    Ok(schema::finish_copy(into)?)
}

fn make_durable(copy: &Path) -> io::Result<u64> {
    let file = File::open(copy)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}
