//! Work on a data directory without asking a service: verify its log, read it, pack it, back it up; and rotate the keys of
//! its threads' tokens.
//!
//! Everything but [`compact`] and [`rotate_keys`] works beside a running service: it reads without a lock and never holds the service up.

mod backup;
mod error;
mod events;
mod references;
mod verify;

use std::path::{Path, PathBuf};

use svc_kit::{
    paths::DataDir,
    thread_token::{KEYS_FILE, Kept, TokenKeys},
};

pub use self::{
    backup::{Backup, backup},
    error::MaintenanceError,
    events::{Events, events},
    verify::{Fault, Problem, Progress, Report, verify},
};
pub use crate::store::Compacted;
use crate::store::{self, DATABASE, LogReader};

/// Packs the log of a data directory, which must not be in use: what was deleted gives its space back.
///
/// # Errors
/// See [`MaintenanceError`]; above all [`MaintenanceError::Locked`], which names the process that has the directory.
pub fn compact(data_dir: &Path) -> Result<Compacted, MaintenanceError> {
    // Before the lock, which would make the directory.
    let database = database_of(data_dir)?;
    let _locked = DataDir::open(data_dir)?;
    Ok(store::compact(&database)?)
}

/// Puts a new key on top of those of a data directory, which must not be in use: it makes threads' tokens from the next
/// start on, and so many of those before go on to be accepted. Answers how many keys there are then.
///
/// # Errors
/// As of [`compact`], and [`MaintenanceError::NoKeys`].
pub fn rotate_keys(data_dir: &Path, keep: Kept) -> Result<usize, MaintenanceError> {
    // Before the lock, which would make the directory.
    database_of(data_dir)?;
    let _locked = DataDir::open(data_dir)?;
    TokenKeys::rotate(data_dir, keep)?.ok_or_else(|| MaintenanceError::NoKeys {
        path: data_dir.join(KEYS_FILE),
    })
}

/// The database of a data directory.
fn database_of(data_dir: &Path) -> Result<PathBuf, MaintenanceError> {
    let path = data_dir.join(DATABASE);
    if path.is_file() {
        Ok(path)
    } else {
        Err(MaintenanceError::NoLog { path })
    }
}

fn open(data_dir: &Path) -> Result<LogReader, MaintenanceError> {
    let path = database_of(data_dir)?;
    LogReader::open(&path).map_err(|source| MaintenanceError::Open { path, source })
}
