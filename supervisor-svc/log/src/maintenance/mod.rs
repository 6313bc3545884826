//! Operations on a data directory that do not open its store: verify, read, compact, back up and restore the log, and
//! rotate the keys of thread tokens.
//!
//! All operations except [`compact`], [`copy()`], [`restore`] and [`rotate_keys`] work while a service is running. They
//! read without a lock and never block the service.

mod backup;
mod backup_dir;
mod copy;
mod error;
mod events;
mod references;
mod restore;
mod verify;

use std::path::{Path, PathBuf};

use svc_kit::{
    paths::DataDir,
    thread_token::{KEYS_FILE, RetiredKeys, TokenKeys},
};

pub use self::{
    backup::{Backup, backup},
    backup_dir::{BackupDir, BackupState, StoredBackup, backups},
    copy::{Copied, copy},
    error::MaintenanceError,
    events::{Events, events},
    restore::{Restored, restore},
    verify::{Fault, Problem, Progress, Report, verify},
};
pub use crate::store::Compacted;
use crate::store::{self, DATABASE, LogReader, RELEASE};

/// Compacts the log of a data directory and frees the space of deleted data. The directory must not be in use.
///
/// # Errors
/// See [`MaintenanceError`]. In particular, [`MaintenanceError::Locked`] names the process that uses the directory.
pub fn compact(data_dir: &Path) -> Result<Compacted, MaintenanceError> {
    // Runs before the lock is taken, because locking would create a missing directory.
    let database = database_of(data_dir)?;
    let _locked = DataDir::open(data_dir)?;
    Ok(store::compact(&database)?)
}

/// Adds a new signing key to a data directory and returns the resulting number of keys. The directory must not be in
/// use. From the next start on, the new key signs threads' tokens. `keep` sets how many older keys remain valid for
/// verification.
///
/// # Errors
/// The errors of [`compact`], and [`MaintenanceError::NoKeys`].
pub fn rotate_keys(data_dir: &Path, keep: RetiredKeys) -> Result<usize, MaintenanceError> {
    // Runs before the lock is taken, because locking would create a missing directory.
    database_of(data_dir)?;
    let _locked = DataDir::open(data_dir)?;
    TokenKeys::rotate(data_dir, keep)?.ok_or_else(|| MaintenanceError::NoKeys {
        path: data_dir.join(KEYS_FILE),
    })
}

/// Returns whether the log of a data directory has an older schema or was last opened for writing by another release.
///
/// # Errors
/// See [`MaintenanceError`].
pub fn is_of_other_release(data_dir: &Path) -> Result<bool, MaintenanceError> {
    match open(data_dir) {
        Ok(log) => Ok(log.release()?.as_deref() != Some(RELEASE)),
        Err(error) if error.is_outdated() => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns the path of a data directory's database.
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
