//! A backup: the log as of one moment and the keys of its threads' tokens, in a directory of their own.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

use svc_kit::thread_token::{KEYS_FILE, TokenKeys};

use super::{database_of, error::MaintenanceError};
use crate::store::{self, DATABASE};

/// The log of a backup that is not whole yet.
const UNFINISHED: &str = "troupe.db.unfinished";

/// A backup that is whole and durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The size of its log.
    pub bytes: u64,
    /// Whether the keys of tokens are in it: a directory whose service never got as far as to make them has none.
    pub has_keys: bool,
}

/// Copies the log and the keys of a data directory into another directory, which must be empty or absent, beside a
/// running service. The files are their owner's alone.
///
/// `troupe.db` is there only once everything is: a backup that was cut short has none. What is restored from it is a
/// log with an id of its own, so no position in the present log is taken for one in it.
///
/// # Errors
/// See [`MaintenanceError`]; nothing is left in the destination then but the directory itself.
pub fn backup(data_dir: &Path, destination: &Path) -> Result<Backup, MaintenanceError> {
    let database = database_of(data_dir)?;
    claim(destination)?;
    let made = fill(&database, data_dir, destination);
    if made.is_err() {
        // They are ours, the directory was empty. The first error is the one to report.
        for name in [UNFINISHED, KEYS_FILE] {
            let _ = fs::remove_file(destination.join(name));
        }
    }
    made
}

/// Makes the directory (0700) if it is missing, and refuses one that holds anything.
fn claim(destination: &Path) -> Result<(), MaintenanceError> {
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

fn fill(database: &Path, data_dir: &Path, destination: &Path) -> Result<Backup, MaintenanceError> {
    let unfinished = destination.join(UNFINISHED);
    let bytes = store::copy(database, &unfinished)?;
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
