//! Errors of store calls, and what a caller can conclude from them.

use std::fmt;

use supervisor_core::ids::{Digest, Epoch, Sequence, SessionId, ThreadId};
use svc_kit::secret::SecretError;
use thiserror::Error;

/// The reason why a write was rejected. The write had no effect. The store continues to work unless the reason is
/// [`Refusal::Closed`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The disk is full, or only the reserve is left and the write would start a session or a thread.
    #[error("the disk is full")]
    DiskFull,
    /// The file or its file system can't be written.
    #[error("the database is read-only")]
    ReadOnly,
    /// A foreign program holds the lock.
    #[error("the database is locked by another program")]
    Busy,
    /// The disk failed before anything was committed.
    #[error("the disk failed before the commit: {0}")]
    Io(String),
    /// No connection to the database can be opened, or the connection was lost.
    #[error("the database can't be reached: {0}")]
    Unreachable(String),
    /// This process is not an active member.
    #[error("this process is not an active member")]
    NotMember,
    /// The store was closed before it processed this write.
    #[error("the store is closed")]
    Closed,
    /// The engine failed in another way.
    #[error("the database refused the write: {0}")]
    Engine(String),
}

/// The error of an invalid write. A retry of the same write fails again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// An item is larger than its maximum size.
    #[error("{what} of {bytes} bytes: at most {max} are allowed")]
    TooLarge {
        /// The kind of item that is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The maximum size.
        max: usize,
    },
    /// A batch has too many items of one kind.
    #[error("{count} {what} in a batch: at most {max} are allowed")]
    TooMany {
        /// The kind of item.
        what: &'static str,
        /// The number of items.
        count: usize,
        /// The maximum number, [`MAX_BATCH_ITEMS`](super::limits::MAX_BATCH_ITEMS).
        max: usize,
    },
    /// The records of a batch aren't numbered consecutively from the expected head.
    #[error("record {found} where {expected} was expected")]
    Gap {
        /// The expected sequence number.
        expected: Sequence,
        /// The actual sequence number.
        found: Sequence,
    },
    /// A sequence number exceeds the maximum that the engines can store.
    #[error("the sequence number is out of range")]
    OutOfNumbers,
    /// The first batch of a session expects records before it.
    #[error("a session's first batch can't expect head {expected}")]
    NotFirst {
        /// The head that it expects.
        expected: Sequence,
    },
    /// A new thread already belongs to another session.
    #[error("thread {thread} belongs to another session")]
    ThreadTaken {
        /// The thread.
        thread: ThreadId,
    },
    /// The requested compaction goes beyond the snapshot.
    #[error("the log can't be compacted up to {until}: its snapshot includes records up to {snapshot}")]
    CompactedTooFar {
        /// The requested last record to compact.
        until: Sequence,
        /// The last record that the snapshot includes. Zero if there is no snapshot.
        snapshot: Sequence,
    },
    /// A snapshot includes records that the log doesn't have.
    #[error("a snapshot of record {sequence} is ahead of the head {head}")]
    SnapshotAhead {
        /// The snapshot's last record.
        sequence: Sequence,
        /// The log's last record.
        head: Sequence,
    },
}

/// The error of a write that was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The session does not exist. It may have been deleted.
    #[error("session {session} not found")]
    NotFound {
        /// The requested session.
        session: SessionId,
    },
    /// Another member owns the session. The write had no effect. The writer of an append must drop its state and not
    /// retry.
    #[error("fenced: the session's epoch is {current}")]
    Fenced {
        /// The current epoch.
        current: Epoch,
    },
    /// The log doesn't end at the head that the batch expects.
    #[error("the session's head is {actual}")]
    Mismatch {
        /// The actual end of the log.
        actual: Sequence,
    },
    /// The write is invalid and had no effect.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The write had no effect. It may succeed later.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The write had no effect. The outcome of an earlier write is unknown and the store has stopped writing: the
    /// process must exit and replay.
    #[error("the store stopped after a write whose outcome is unknown")]
    Stopped,
    /// The write may or may not be durable, and the store has stopped writing: the process must exit and replay.
    #[error("the outcome of the write is unknown: {0}")]
    Unknown(String),
}

/// Data that is stored in addition to a session's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A content.
    Content(Digest),
    /// The snapshot.
    Snapshot,
    /// A stored request.
    Request,
    /// An entry of a thread's transcript.
    Transcript {
        /// The thread.
        thread: ThreadId,
        /// The entry.
        number: u64,
    },
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(digest) => write!(f, "content {digest}"),
            Self::Snapshot => f.write_str("snapshot"),
            Self::Request => f.write_str("stored request"),
            Self::Transcript { thread, number } => write!(f, "entry {number} of the transcript of {thread}"),
        }
    }
}

/// The error of a read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// A record is missing or doesn't match its checksum. The session can't be replayed past it.
    #[error("record {sequence} of session {session} is corrupt")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// The record.
        sequence: Sequence,
    },
    /// The records that follow the position were compacted away.
    #[error("session {session} is compacted up to record {oldest}")]
    Compacted {
        /// The session.
        session: SessionId,
        /// The last compacted record. Reads after this or a later record succeed.
        oldest: Sequence,
        /// The newest record.
        head: Sequence,
    },
    /// Data stored in addition to the records does not match its checksum.
    #[error("session {session}: its {side} is corrupt")]
    CorruptSide {
        /// The session.
        session: SessionId,
        /// The kind of the data.
        side: Side,
    },
    /// The engine couldn't read.
    #[error("the database can't be read: {0}")]
    Engine(String),
}

/// The error for an invalid PostgreSQL URL. The text does not show the URL, because it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the PostgreSQL URL is invalid: {0}; an example is postgres://user@host:5432/database?sslmode=verify-full")]
pub struct InvalidUrl(pub(super) String);

/// The error for a PostgreSQL database that cannot be used.
#[derive(Debug, Error)]
pub enum PostgresError {
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The password file or the CA certificate file cannot be used.
    #[error("{cause}")]
    File {
        /// The file and the defect.
        cause: String,
    },
    /// No server answers, or the connection ends before the login.
    #[error("cannot connect to {server}: {cause}")]
    Unreachable {
        /// The server.
        server: String,
        /// The cause.
        cause: String,
    },
    /// The TLS handshake failed.
    #[error(
        "cannot connect to {server} over TLS: {cause}; name the server's authority in the URL with sslrootcert=FILE"
    )]
    Tls {
        /// The server.
        server: String,
        /// The cause.
        cause: String,
    },
    /// The server rejects the login.
    #[error("{server} rejects the login: {cause}; check the user, and the password and its expiry")]
    Login {
        /// The server.
        server: String,
        /// The server's reason.
        cause: String,
    },
    /// The role lacks a permission.
    #[error(
        "the role lacks a permission ({cause}); start once with a role that can create tables, or grant the role CREATE \
         on the schema"
    )]
    Permission {
        /// The server's reason.
        cause: String,
    },
    /// The server is too old.
    #[error("PostgreSQL {found} is too old; version {needed} or later is needed")]
    Version {
        /// The server's version.
        found: i64,
        /// The oldest supported version.
        needed: i64,
    },
    /// The server is configured so that it can lose or damage acknowledged writes.
    #[error("the server has {setting} = \"{found}\", with which acknowledged writes can be lost; set it to \"on\"")]
    NotDurable {
        /// The setting.
        setting: &'static str,
        /// The value found.
        found: String,
    },
    /// The server has no synchronous standby, but one is required.
    #[error(
        "the server has no synchronous standby, which --require-standby asks for; set synchronous_standby_names, or start \
         without --require-standby"
    )]
    NoStandby,
    /// Stored data that the store itself manages is invalid.
    #[error("the table \"meta\" has an invalid {key}: \"{value}\"")]
    Meta {
        /// The key.
        key: &'static str,
        /// The stored value.
        value: String,
    },
    /// Another error of the database.
    #[error("the database cannot be opened: {0}")]
    Engine(String),
}

/// The error for a store that cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The data was written by a newer version of the program.
    #[error(
        "UPGRADE_REQUIRED: the database has schema version {found}, this program knows up to {supported}; \
         start a newer version"
    )]
    UpgradeRequired {
        /// The version of the data.
        found: i64,
        /// The newest version that this program knows.
        supported: i64,
    },
    /// The data was written by an older version of the program.
    #[error(
        "the database has schema version {found}, this program reads {needed}; use the program that wrote it, or start \
         with an empty database"
    )]
    Outdated {
        /// The version of the data.
        found: i64,
        /// The version that this program reads.
        needed: i64,
    },
    /// The file is missing or empty, although the data directory has been used.
    #[error(
        "it is missing or empty, but \"{evidence}\" shows that the data directory has been used; restore a backup, or \
         move \"{evidence}\" away to start with an empty log"
    )]
    Lost {
        /// The name of the file that proves that a log existed.
        evidence: String,
    },
    /// The file or its file system can't be written.
    #[error("the database is read-only; make its file, its directory and the file system writable")]
    ReadOnly,
    /// The engine's own check found the file damaged.
    #[error("the database is damaged ({0}); restore a backup")]
    Damaged(String),
    /// The engine didn't apply a setting that durability requires.
    #[error("the database has {setting} = {found} instead of {wanted}; is it on a network file system?")]
    NotDurable {
        /// The setting.
        setting: &'static str,
        /// The value found.
        found: String,
        /// The value required.
        wanted: &'static str,
    },
    /// The engine couldn't open or prepare the file.
    #[error("the database can't be opened: {0}")]
    Engine(#[from] rusqlite::Error),
    /// The PostgreSQL database can't be used.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The writer's thread couldn't be started.
    #[error("the writer can't be started: {0}")]
    Thread(#[from] std::io::Error),
    /// Opening was interrupted, for example by the end of the runtime.
    #[error("opening the database was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// The error of a failed rotation of the keys in a database.
#[derive(Debug, Error)]
pub enum RotateError {
    /// The database has no keys.
    #[error("the database {database} has no keys; the first supervisor that uses it creates them")]
    NoKeys {
        /// The server and the name of the database.
        database: String,
    },
    /// A supervisor uses the keys.
    #[error("the supervisor \"{name}\" uses the database; stop all supervisors of it first")]
    InUse {
        /// The name of the supervisor.
        name: String,
    },
    /// Another process changed the keys.
    #[error("another process changed the keys at the same time; repeat the command if this was not intended")]
    Changed,
    /// The keys in the database are not valid.
    #[error("the keys in the database are invalid: {0}")]
    Malformed(&'static str),
    /// A new key cannot be generated.
    #[error(transparent)]
    New(#[from] SecretError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] OpenError),
}

impl From<PostgresError> for RotateError {
    fn from(error: PostgresError) -> Self {
        Self::Database(error.into())
    }
}

/// The error for a log that cannot be copied into a database.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The database has sessions.
    #[error("the database {database} has sessions; nothing is overwritten, choose an empty database")]
    Occupied {
        /// The server and the name of the database.
        database: String,
    },
    /// A value of the file cannot be stored in the database.
    #[error(
        "a value of the column \"{column}\" of the table \"{table}\" is invalid; \"troupe store verify\" checks the log"
    )]
    Value {
        /// The table.
        table: &'static str,
        /// The column.
        column: String,
    },
    /// The file cannot be read.
    #[error("cannot read the log: {0}")]
    File(#[from] rusqlite::Error),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] OpenError),
}

impl From<PostgresError> for ImportError {
    fn from(error: PostgresError) -> Self {
        Self::Database(error.into())
    }
}
