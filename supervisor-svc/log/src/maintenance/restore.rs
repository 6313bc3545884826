//! Restores a backup into a data directory.
//!
//! No file is replaced until the copy of the backup is complete and verified. If the replacement is interrupted, the
//! directory has keys but no log, so a supervisor does not start on it. Another call completes the replacement.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use supervisor_core::time::UnixMillis;
use svc_kit::{paths::DataDir, thread_token::KEYS_FILE};
use tokio_util::sync::CancellationToken;

use super::{
    backup::backup,
    backup_dir::{find_backup, make_private, name_of, remove_backup},
    error::MaintenanceError,
    verify::verify_copy,
};
use crate::store::DATABASE;

/// The copy of the backup, in the data directory.
const RESTORING: &str = "restoring";

/// A log that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The directory of the backup.
    pub backup: PathBuf,
    /// Size of the log in bytes.
    pub bytes: u64,
    /// Number of its sessions.
    pub sessions: u64,
    /// The directory with the previous log and keys. `None` if the data directory had none.
    pub replaced: Option<PathBuf>,
}

/// Restores a backup, or the newest complete backup in a directory of backups, into a data directory. The data
/// directory must not be in use, and is created if it is missing. With `replace`, an existing log and its keys are
/// moved into a subdirectory named after `now`.
///
/// # Errors
/// See [`MaintenanceError`]. [`MaintenanceError::DataDirUsed`] if there is a log or keys to replace, and
/// [`MaintenanceError::Unsound`] if the backup is damaged. After these errors, no file is replaced.
pub fn restore(source: &Path, data_dir: &Path, replace: bool, now: UnixMillis) -> Result<Restored, MaintenanceError> {
    // Runs before the lock is taken, because locking would create a missing directory.
    let source = find_backup(source)?;
    let _locked = DataDir::open(data_dir)?;
    let used = used_files(data_dir);
    if !replace && !used.is_empty() {
        return Err(MaintenanceError::DataDirUsed {
            path: data_dir.to_owned(),
        });
    }
    let written = |cause| MaintenanceError::Write {
        path: data_dir.to_owned(),
        cause,
    };
    let fresh = data_dir.join(RESTORING);
    if fresh.exists() {
        remove_backup(&fresh).map_err(written)?;
    }
    let copied = copy_verified(&source, &fresh);
    if copied.is_err() {
        // The first error is the one to report.
        let _ = remove_backup(&fresh);
    }
    let (bytes, sessions) = copied?;
    let replaced = set_aside(data_dir, &used, &format!("replaced-{}", name_of(now))).map_err(written)?;
    move_into_place(&fresh, data_dir).map_err(written)?;
    Ok(Restored {
        backup: source,
        bytes,
        sessions,
        replaced,
    })
}

/// Copies a backup, and returns the size of its log and the number of its sessions.
fn copy_verified(source: &Path, fresh: &Path) -> Result<(u64, u64), MaintenanceError> {
    let cancel = CancellationToken::new();
    let made = backup(source, fresh, &cancel)?;
    let report = verify_copy(fresh, &cancel)?;
    if report.is_sound() {
        Ok((made.bytes, report.sessions))
    } else {
        Err(report.into_error(source.to_owned()))
    }
}

/// Returns the names of the files of a log and its keys. The keys are last, because keys without a log prevent a start
/// with an empty log.
fn used_files(data_dir: &Path) -> Vec<String> {
    ["", "-wal", "-shm"]
        .map(|suffix| format!("{DATABASE}{suffix}"))
        .into_iter()
        .chain([KEYS_FILE.to_owned()])
        .filter(|name| data_dir.join(name).exists())
        .collect()
}

/// Moves the present log into a subdirectory. Keys are linked instead of moved, so that the data directory has keys
/// until the new keys replace them.
fn set_aside(data_dir: &Path, used: &[String], name: &str) -> io::Result<Option<PathBuf>> {
    if used.is_empty() {
        return Ok(None);
    }
    let aside = data_dir.join(name);
    make_private(&aside)?;
    for file in used {
        let (from, to) = (data_dir.join(file), aside.join(file));
        if file == KEYS_FILE {
            fs::hard_link(from, to)?;
        } else {
            fs::rename(from, to)?;
        }
    }
    File::open(&aside)?.sync_all()?;
    File::open(data_dir)?.sync_all()?;
    Ok(Some(aside))
}

/// Moves the copy into the data directory, the log last.
fn move_into_place(fresh: &Path, data_dir: &Path) -> io::Result<()> {
    let keys = fresh.join(KEYS_FILE);
    if keys.exists() {
        fs::rename(keys, data_dir.join(KEYS_FILE))?;
        File::open(data_dir)?.sync_all()?;
        fs::rename(fresh.join(DATABASE), data_dir.join(DATABASE))?;
    } else {
        fs::rename(fresh.join(DATABASE), data_dir.join(DATABASE))?;
        if data_dir.join(KEYS_FILE).exists() {
            fs::remove_file(data_dir.join(KEYS_FILE))?;
        }
    }
    fs::remove_dir(fresh)?;
    File::open(data_dir)?.sync_all()
}
