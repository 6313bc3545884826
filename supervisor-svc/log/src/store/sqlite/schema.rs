//! The database file: its tables, and the settings that durability requires.

use std::{cmp::Ordering, fs, io, path::Path};

use rusqlite::{Connection, MAIN_DB, OpenFlags, OptionalExtension as _, TransactionBehavior, config::DbConfig, params};
use uuid::Uuid;

use crate::store::{
    RELEASE,
    error::OpenError,
    limits::{BUSY_TIMEOUT, READER_CACHE_KIB, STATEMENT_CACHE},
};

/// The version of the schema, stored in the file as `user_version`. Each change of the tables increments it. With
/// scheduled backups, a supervisor of another release or version backs the file up before it opens the file, and
/// therefore before any migration.
const VERSION: i64 = 5;

/// The tables of an empty log.
///
/// `records` and `entries` have a rowid, so their rows are in write order and concurrent appends of many sessions fill
/// few pages. `transcripts` has a row for each thread with entries. `threads` has no index by session, because every
/// spawn would write to the index. Instead, callers that delete a session list its threads.
const TABLES: &str = "
    CREATE TABLE meta (
        key TEXT NOT NULL PRIMARY KEY,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE sessions (
        session BLOB NOT NULL PRIMARY KEY,
        head INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        due INTEGER,
        oldest INTEGER NOT NULL DEFAULT 0,
        content_bytes INTEGER NOT NULL DEFAULT 0,
        transcript_bytes INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX sessions_due ON sessions (due, session) WHERE due IS NOT NULL;

    CREATE TABLE creations (
        creator TEXT NOT NULL,
        request_id TEXT NOT NULL,
        hash BLOB NOT NULL,
        session BLOB NOT NULL,
        expires INTEGER NOT NULL,
        PRIMARY KEY (creator, request_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX creations_session ON creations (session);
    CREATE INDEX creations_expires ON creations (expires);

    CREATE TABLE records (
        session BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (session, sequence)
    ) STRICT;

    CREATE TABLE contents (
        session BLOB NOT NULL,
        digest BLOB NOT NULL,
        crc INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (session, digest)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE threads (
        thread BLOB NOT NULL PRIMARY KEY,
        session BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE requests (
        session BLOB NOT NULL,
        scope TEXT NOT NULL,
        request_id TEXT NOT NULL,
        hash BLOB NOT NULL,
        outcome BLOB NOT NULL,
        expires INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        PRIMARY KEY (session, scope, request_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX requests_expires ON requests (expires);

    CREATE TABLE snapshots (
        session BLOB NOT NULL PRIMARY KEY,
        sequence INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE cursors (
        session BLOB NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (session, name)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE marks (
        session BLOB NOT NULL,
        kind INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        thread BLOB NOT NULL,
        PRIMARY KEY (session, kind, sequence)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX marks_thread ON marks (session, kind, thread, sequence);
    CREATE INDEX marks_record ON marks (session, sequence);

    CREATE TABLE transcripts (
        session BLOB NOT NULL,
        thread BLOB NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        results_dropped INTEGER NOT NULL,
        texts_dropped INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        PRIMARY KEY (session, thread)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE entries (
        session BLOB NOT NULL,
        thread BLOB NOT NULL,
        number INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        size INTEGER NOT NULL,
        header BLOB NOT NULL,
        text BLOB,
        digest BLOB,
        PRIMARY KEY (session, thread, number)
    ) STRICT;
    CREATE INDEX entries_digest ON entries (session, digest) WHERE digest IS NOT NULL;

    CREATE TABLE summaries (
        session BLOB NOT NULL PRIMARY KEY,
        sequence INTEGER NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// The `synchronous` level that flushes the log at every commit.
const SYNCHRONOUS_FULL: i64 = 2;

/// Opens or creates the file for writing and returns the log's id. Does not create the file if a write-ahead log or
/// the file named `evidence` shows that a log existed.
///
/// # Errors
/// See [`OpenError`]. A file of another version is not changed.
pub(super) fn open_writer(path: &Path, evidence: Option<&str>) -> Result<(Connection, Uuid), OpenError> {
    let evidence = evidence.map(str::to_owned).or_else(|| write_ahead_log(path));
    let lost = || evidence.clone().map(|evidence| OpenError::Lost { evidence });
    // Checked before the engine opens the file, because the engine deletes the write-ahead log of an empty database.
    if is_empty(path)
        && let Some(lost) = lost()
    {
        return Err(lost);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = open(path, flags)?;
    refuse_read_only(&connection)?;
    let version = version_of(&connection)?;
    if version == 0 {
        if let Some(lost) = lost() {
            return Err(lost);
        }
    } else {
        check_version(version)?;
    }
    make_durable(&connection)?;
    check_pages(&connection)?;
    if version == 0 {
        create_tables(&mut connection)?;
    }
    let log_id = log_id(&connection)?;
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('release', ?1) \
         ON CONFLICT DO UPDATE SET value = excluded.value WHERE value <> excluded.value",
        params![RELEASE.as_bytes()],
    )?;
    Ok((connection, log_id))
}

/// Returns whether the file is missing or empty. If its metadata cannot be read, the engine reports the error later.
fn is_empty(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns the name of the file's write-ahead log if the log is not empty.
fn write_ahead_log(path: &Path) -> Option<String> {
    let mut name = path.file_name()?.to_owned();
    name.push("-wal");
    let found = fs::metadata(path.with_file_name(&name)).ok()?;
    (found.len() > 0).then(|| name.to_string_lossy().into_owned())
}

/// Opens the file, which a writer has opened before, for reading.
///
/// # Errors
/// Errors of the database engine.
pub(super) fn open_reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // SQLite interprets a negative number as KiB, and a positive number as pages.
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(connection)
}

/// Opens a second connection to the file, for the checkpoints of the writer.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let connection = open_existing(path)?;
    make_durable(&connection)?;
    Ok(connection)
}

/// Opens the file for reading. The file may have an active writer.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open_for_reading(path: &Path) -> Result<Connection, OpenError> {
    refuse_empty(path)?;
    let connection = open_reader(path)?;
    check_version(version_of(&connection)?)?;
    Ok(connection)
}

/// Opens the file for a copy of it. The file may have an active writer, and may be of an older version.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open_for_copying(path: &Path) -> Result<Connection, OpenError> {
    refuse_empty(path)?;
    let connection = open_reader(path)?;
    match check_version(version_of(&connection)?) {
        Ok(()) | Err(OpenError::Outdated { .. }) => Ok(connection),
        Err(error) => Err(error),
    }
}

/// Opens an empty database in memory.
///
/// # Errors
/// Errors of the database engine.
pub(super) fn open_in_memory() -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = open(Path::new(":memory:"), flags)?;
    create_tables(&mut connection)?;
    Ok(connection)
}

/// Opens an existing file for maintenance of the whole file. There must be no other writer.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open_alone(path: &Path) -> Result<Connection, OpenError> {
    refuse_empty(path)?;
    let connection = open_existing(path)?;
    refuse_read_only(&connection)?;
    check_version(version_of(&connection)?)?;
    make_durable(&connection)?;
    check_pages(&connection)?;
    Ok(connection)
}

/// Finishes a copy of the file: checks it and removes its log id. The first process that opens the copy assigns a new
/// id. The opened copy can therefore not be mistaken for the original log or for another log restored from the same
/// copy.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn finish_copy(path: &Path) -> Result<(), OpenError> {
    let connection = open_existing(path)?;
    connection.execute("DELETE FROM meta WHERE key = 'log_id'", [])?;
    check_pages(&connection)
}

/// Opens an existing file for reading and writing.
fn open_existing(path: &Path) -> Result<Connection, rusqlite::Error> {
    open(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // A statement is planned once. Otherwise each new value of a LIMIT would cause a new plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // After a failed fsync, a checkpoint when the connection closes would remove the log that a replay needs.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Returns the schema version of the file. Zero if it has no tables.
fn version_of(connection: &Connection) -> Result<i64, OpenError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

fn check_version(found: i64) -> Result<(), OpenError> {
    match found.cmp(&VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(OpenError::UpgradeRequired {
            found,
            supported: VERSION,
        }),
        Ordering::Less => Err(OpenError::Outdated { found, needed: VERSION }),
    }
}

/// Rejects a read-only database. The engine silently opens a file for reading if it may not write it.
fn refuse_read_only(connection: &Connection) -> Result<(), OpenError> {
    if connection.is_readonly(MAIN_DB)? {
        Err(OpenError::ReadOnly)
    } else {
        Ok(())
    }
}

fn refuse_empty(path: &Path) -> Result<(), OpenError> {
    if is_empty(path) {
        Err(OpenError::Damaged(String::from("the file is empty")))
    } else {
        Ok(())
    }
}

fn make_durable(connection: &Connection) -> Result<(), OpenError> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::NotDurable {
            setting: "journal_mode",
            found: mode,
            wanted: "wal",
        });
    }
    // The store makes checkpoints itself, so that it sees their errors. Deleted content is overwritten because it may
    // be secret.
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA secure_delete = ON;",
    )?;
    let level: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if level == SYNCHRONOUS_FULL {
        Ok(())
    } else {
        Err(OpenError::NotDurable {
            setting: "synchronous",
            found: level.to_string(),
            wanted: "2 (FULL)",
        })
    }
}

fn check_pages(connection: &Connection) -> Result<(), OpenError> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(OpenError::Damaged(verdict))
    }
}

/// Creates the tables and records their version in one transaction.
fn create_tables(connection: &mut Connection) -> Result<(), OpenError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// Returns the log's id, which is assigned when the log is first opened.
fn log_id(connection: &Connection) -> Result<Uuid, OpenError> {
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('log_id', ?1) ON CONFLICT DO NOTHING",
        params![Uuid::new_v4().into_bytes()],
    )?;
    let bytes = connection.query_row("SELECT value FROM meta WHERE key = 'log_id'", [], |row| row.get(0))?;
    Ok(Uuid::from_bytes(bytes))
}

/// Returns the release that last opened the file for writing.
///
/// # Errors
/// Errors of the database engine.
pub(super) fn release(connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
    let select = "SELECT CAST(value AS TEXT) FROM meta WHERE key = 'release'";
    connection.query_row(select, [], |row| row.get(0)).optional()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn statement_is_planned_once_for_all_limits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("troupe.db");
        let (writer, _) = open_writer(&path, None).unwrap();
        for connection in [writer, open_reader(&path).unwrap()] {
            let mut statement = connection.prepare("SELECT key FROM meta LIMIT ?1").unwrap();
            for limit in 0..4 {
                let mut rows = statement.query(params![limit]).unwrap();
                while rows.next().unwrap().is_some() {}
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
        }
    }
}
