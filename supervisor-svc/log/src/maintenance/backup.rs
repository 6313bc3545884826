//! Backups: a consistent copy of the log and the keys of its threads' tokens, in a separate directory.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

use svc_kit::thread_token::{KEYS_FILE, TokenKeys};
use tokio_util::sync::CancellationToken;

use super::{database_of, error::MaintenanceError};
use crate::store::{self, DATABASE};

/// Name of the log in an incomplete backup.
const UNFINISHED: &str = "troupe.db.unfinished";

/// A complete and durable backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The size of the copied log, in bytes.
    pub bytes: u64,
    /// Whether the backup contains the token keys. False if the service never started far enough to create them.
    pub has_keys: bool,
}

/// Copies the log and the keys of a data directory into another directory, which must be empty or absent. The service
/// may be running. Only the owner can access the files.
///
/// `troupe.db` is created last, so an interrupted backup does not contain it. A log restored from the backup has its
/// own log id, so positions in the current log are not valid in the restored log.
///
/// # Errors
/// See [`MaintenanceError`]. After an error or a cancellation, the destination contains nothing except the directory
/// itself.
pub fn backup(data_dir: &Path, destination: &Path, cancel: &CancellationToken) -> Result<Backup, MaintenanceError> {
    let database = database_of(data_dir)?;
    create_empty_dir(destination)?;
    let made = fill(&database, data_dir, destination, cancel);
    if made.is_err() {
        // This call created the files, because the directory was empty. The first error is the one to report.
        for name in [UNFINISHED, KEYS_FILE] {
            let _ = fs::remove_file(destination.join(name));
        }
    }
    made
}

/// Creates the directory with mode 0700 if it is missing. Rejects a directory that is not empty.
fn create_empty_dir(destination: &Path) -> Result<(), MaintenanceError> {
    let found = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(destination)
        .and_then(|()| fs::read_dir(destination)?.next().transpose())
        .map_err(|cause| failed(destination, cause))?;
    match found {
        None => Ok(()),
        Some(_) => Err(MaintenanceError::Occupied {
            path: destination.to_owned(),
        }),
    }
}

fn fill(
    database: &Path,
    data_dir: &Path,
    destination: &Path,
    cancel: &CancellationToken,
) -> Result<Backup, MaintenanceError> {
    let unfinished = destination.join(UNFINISHED);
    let bytes = store::copy(database, &unfinished, cancel)?;
    let has_keys = TokenKeys::copy(data_dir, destination)?;
    fs::rename(&unfinished, destination.join(DATABASE))
        .and_then(|()| File::open(destination)?.sync_all())
        .map_err(|cause| failed(destination, cause))?;
    Ok(Backup { bytes, has_keys })
}

fn failed(path: &Path, cause: io::Error) -> MaintenanceError {
    MaintenanceError::Write {
        path: path.to_owned(),
        cause,
    }
}
