//! Errors of operations on a data directory. Each error says how to fix the problem where possible.

use std::{io, path::PathBuf};

use supervisor_core::ids::{Sequence, SessionId};
use svc_kit::{paths::PathsError, secret::SecretError};
use thiserror::Error;

use crate::{
    codec::DecodeError,
    store::{ImportError, MaintainError, OpenError, ReadError},
};

/// The error of an operation on a data directory.
#[derive(Debug, Error)]
pub enum MaintenanceError {
    /// The directory has no log.
    #[error("there is no log at {}; check --data-dir", .path.display())]
    NoLog {
        /// The expected path.
        path: PathBuf,
    },
    /// The log can't be opened.
    #[error("cannot read the log {}: {source}", .path.display())]
    Open {
        /// The log's file.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// The directory can't be locked, most likely because a service uses it.
    #[error(transparent)]
    Locked(#[from] PathsError),
    /// The database can't be compacted or copied.
    #[error(transparent)]
    Store(#[from] MaintainError),
    /// The log can't be copied into a database.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log does not contain the session.
    #[error("session with id {0} not found")]
    SessionNotFound(SessionId),
    /// A record can't be decoded by this release.
    #[error("record {sequence} of session {session}: {source}")]
    Record {
        /// The session of the record.
        session: SessionId,
        /// The number of the record.
        sequence: Sequence,
        /// The cause.
        source: DecodeError,
    },
    /// The directory for a backup is not empty.
    #[error("{} is not empty; nothing is overwritten, choose another directory", .path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// The directory of backups cannot be read or written.
    #[error("cannot use the backup directory {}: {cause}", .path.display())]
    BackupDir {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
    /// Another process makes backups in the directory.
    #[error("another supervisor makes backups in {}; choose a different --backup-dir", .path.display())]
    BackupDirInUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory of backups is in the data directory.
    #[error(
        "the backup directory {} is in the data directory {} and would be lost with it; choose a --backup-dir on \
         another disk",
        .path.display(),
        .data_dir.display()
    )]
    BackupDirInside {
        /// The directory of backups.
        path: PathBuf,
        /// The data directory.
        data_dir: PathBuf,
    },
    /// A backup does not fit.
    #[error("a backup needs {needed} free bytes in {}, which has {free}", .path.display())]
    NoSpace {
        /// The directory of backups.
        path: PathBuf,
        /// The bytes that must be free.
        needed: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// The directory of backups has no complete backup.
    #[error("there is no complete backup in {}; pass a backup, or the --backup-dir of a supervisor", .path.display())]
    NoBackup {
        /// The directory.
        path: PathBuf,
    },
    /// The data directory already has a log or keys.
    #[error(
        "the data directory {} has a log or keys; choose an empty directory, or pass --replace, which keeps them in a \
         subdirectory",
        .path.display()
    )]
    DataDirUsed {
        /// The directory.
        path: PathBuf,
    },
    /// A copy of the log has damaged sessions.
    #[error("damaged sessions in {}: {sessions}, first: {first}; \"troupe store verify\" lists them", .path.display())]
    Unsound {
        /// The directory of the copy.
        path: PathBuf,
        /// Number of damaged sessions.
        sessions: usize,
        /// The first problem.
        first: String,
    },
    /// The operation was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The directory has no token keys.
    #[error("there are no keys at {}; the next start of the service creates them", .path.display())]
    NoKeys {
        /// The expected path.
        path: PathBuf,
    },
    /// The token keys can't be copied or replaced.
    #[error(transparent)]
    Keys(#[from] SecretError),
    /// A file or directory cannot be created.
    #[error("cannot write {}: {cause}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
}

impl MaintenanceError {
    /// Returns whether the log has the schema of an older release.
    pub(super) const fn is_outdated(&self) -> bool {
        matches!(
            self,
            Self::Open {
                source: OpenError::Outdated { .. },
                ..
            }
        )
    }
}
