//! Errors of operations on a data directory. Each error says how to fix the problem where possible.

use std::{io, path::PathBuf};

use supervisor_core::ids::{Sequence, SessionId};
use svc_kit::{paths::PathsError, secret::SecretError};
use thiserror::Error;

use crate::{
    codec::DecodeError,
    store::{MaintainError, OpenError, ReadError},
};

/// The error of an operation on a data directory.
#[derive(Debug, Error)]
pub enum MaintenanceError {
    /// The directory has no log.
    #[error("there is no log at {}; is --data-dir right?", .path.display())]
    NoLog {
        /// The expected path.
        path: PathBuf,
    },
    /// The log can't be opened.
    #[error("cannot read the log {}: {source}", .path.display())]
    Open {
        /// Its file.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// The directory can't be locked, most likely because a service has it.
    #[error(transparent)]
    Locked(#[from] PathsError),
    /// The database can't be packed or copied.
    #[error(transparent)]
    Store(#[from] MaintainError),
    /// The log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log does not contain the session.
    #[error("session with id {0} not found")]
    SessionNotFound(SessionId),
    /// A record has no meaning to this program.
    #[error("record {sequence} of session {session}: {source}")]
    Record {
        /// Its session.
        session: SessionId,
        /// Its number.
        sequence: Sequence,
        /// The cause.
        source: DecodeError,
    },
    /// The directory for a backup holds something.
    #[error("{} is not empty; nothing is overwritten, choose another directory", .path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has no keys of tokens.
    #[error("there are no keys at {}; the next start of the service makes them", .path.display())]
    NoKeys {
        /// The expected path.
        path: PathBuf,
    },
    /// The keys of tokens can't be copied or replaced.
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
