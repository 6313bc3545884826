//! A directory of backups, each in a subdirectory that is named after its time in UTC.
//!
//! | name | content |
//! |---|---|
//! | `20261127T041638Z` | a complete backup, verified |
//! | `20261127T041638Z.unfinished` | a backup that is being made, or that was interrupted |
//! | `20261127T041638Z.faulty` | a copy of a log with damaged sessions |
//!
//! Only these directories are listed or removed, and only if they contain nothing but a backup's files.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use prost_types::Timestamp;
use supervisor_core::time::UnixMillis;
use svc_kit::thread_token::KEYS_FILE;
use tokio_util::sync::CancellationToken;

use super::{
    Backup, backup, database_of,
    error::MaintenanceError,
    verify::{Report, verify_copy},
};
use crate::store::{self, DATABASE};

/// Free space that must remain after a backup, in bytes. It is the space that a store needs to continue normally.
const SPARE_BYTES: u64 = 32 * 1024 * 1024;

/// A directory whose backups this process makes and removes. The lock on the directory lasts as long as this value.
#[derive(Debug)]
pub struct BackupDir {
    path: PathBuf,
    _lock: File,
}

/// The state of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupState {
    /// The backup can be restored.
    Complete,
    /// The backup is being made, or was interrupted.
    Unfinished,
    /// The backup contains damaged sessions, because the copied log has them.
    Faulty,
}

impl BackupState {
    const ALL: [Self; 3] = [Self::Unfinished, Self::Faulty, Self::Complete];

    /// Returns the state in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Unfinished => "unfinished",
            Self::Faulty => "faulty",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Complete => "",
            Self::Unfinished => ".unfinished",
            Self::Faulty => ".faulty",
        }
    }
}

/// A backup in a directory of backups.
#[derive(Clone, Debug)]
pub struct StoredBackup {
    /// When the backup was started.
    pub time: UnixMillis,
    /// Its state.
    pub state: BackupState,
    /// Its directory.
    pub path: PathBuf,
    /// The size of its files, in bytes.
    pub bytes: u64,
}

impl BackupDir {
    /// Opens an existing directory and locks it against other supervisors.
    ///
    /// # Errors
    /// [`MaintenanceError::BackupDir`] if the directory is missing or cannot be read,
    /// [`MaintenanceError::BackupDirInUse`], and [`MaintenanceError::BackupDirInside`] if the directory of backups is
    /// in the data directory.
    pub fn open(path: &Path, data_dir: &Path) -> Result<Self, MaintenanceError> {
        let unusable = |cause| unusable(path, cause);
        let resolved = path.canonicalize().map_err(unusable)?;
        if resolved.starts_with(data_dir.canonicalize().map_err(unusable)?) {
            return Err(MaintenanceError::BackupDirInside {
                path: path.to_owned(),
                data_dir: data_dir.to_owned(),
            });
        }
        fs::read_dir(path).map_err(unusable)?;
        let lock = File::open(path).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(MaintenanceError::BackupDirInUse { path: path.to_owned() }),
            Err(TryLockError::Error(cause)) => Err(unusable(cause)),
        }
    }

    /// Returns the time of the newest complete backup that is not newer than `now`.
    ///
    /// # Errors
    /// [`MaintenanceError::BackupDir`].
    pub fn newest(&self, now: UnixMillis) -> Result<Option<UnixMillis>, MaintenanceError> {
        let complete = self.in_state(BackupState::Complete)?;
        Ok(complete.iter().map(|stored| stored.time).rfind(|time| *time <= now))
    }

    /// Returns whether the log of a data directory is unchanged since the newest complete backup.
    ///
    /// # Errors
    /// [`MaintenanceError::BackupDir`].
    pub fn is_current(&self, data_dir: &Path) -> Result<bool, MaintenanceError> {
        let complete = self.in_state(BackupState::Complete)?;
        let changed = store::changed_at(&data_dir.join(DATABASE));
        Ok(complete.last().is_some_and(|stored| {
            changed.is_some_and(|changed| changed <= UNIX_EPOCH + Duration::from_millis(stored.time.get()))
        }))
    }

    /// Makes a backup of a data directory under the name of `now`, and verifies every session in it. The service may
    /// be running. An interrupted backup is removed by the next call.
    ///
    /// # Errors
    /// See [`MaintenanceError`]. [`MaintenanceError::Unsound`] if sessions are damaged. In this case, the copy remains
    /// as `.faulty` until the next successful backup.
    pub fn create(
        &self,
        data_dir: &Path,
        now: UnixMillis,
        cancel: &CancellationToken,
    ) -> Result<Backup, MaintenanceError> {
        self.remove_all(BackupState::Unfinished)?;
        let unfinished = self.path_of(now, BackupState::Unfinished);
        self.fill(&unfinished, data_dir, now, cancel).map_err(|error| {
            // The first error is the one to report. The next call removes a directory that remains.
            let _ = remove_backup(&unfinished);
            match cancel.is_cancelled() {
                true => MaintenanceError::Cancelled,
                false => error,
            }
        })
    }

    fn fill(
        &self,
        unfinished: &Path,
        data_dir: &Path,
        now: UnixMillis,
        cancel: &CancellationToken,
    ) -> Result<Backup, MaintenanceError> {
        self.check_space(&database_of(data_dir)?)?;
        let made = backup(data_dir, unfinished, cancel)?;
        let report = match verify_copy(unfinished, cancel) {
            // Only the release that wrote a log with an older schema can read its sessions, so they are not verified.
            // The pages of the copy were checked when the copy was made.
            Err(error) if error.is_outdated() => Report::default(),
            checked => checked?,
        };
        self.remove_all(BackupState::Faulty)?;
        if !report.is_sound() {
            let faulty = self.path_of(now, BackupState::Faulty);
            self.rename(unfinished, &faulty)?;
            return Err(report.into_error(faulty));
        }
        self.rename(unfinished, &self.path_of(now, BackupState::Complete))?;
        Ok(made)
    }

    /// Rejects a backup that would fill the disk, which may also be the disk of the log.
    fn check_space(&self, database: &Path) -> Result<(), MaintenanceError> {
        let found = rustix::fs::statvfs(&self.path).map_err(|cause| unusable(&self.path, cause.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let needed = store::bytes_of(database).saturating_add(SPARE_BYTES);
        if free < needed {
            return Err(MaintenanceError::NoSpace {
                path: self.path.clone(),
                needed,
                free,
            });
        }
        Ok(())
    }

    /// Removes the oldest complete backups until `keep` remain. Backups that are newer than `now` are ignored, so a
    /// clock that was set back does not make the newest backup the oldest.
    ///
    /// # Errors
    /// [`MaintenanceError::BackupDir`].
    pub fn prune(&self, keep: usize, now: UnixMillis) -> Result<(), MaintenanceError> {
        let mut complete = self.in_state(BackupState::Complete)?;
        complete.retain(|stored| stored.time <= now);
        let old = complete.len().saturating_sub(keep);
        complete.iter().take(old).try_for_each(|stored| self.remove(stored))
    }

    fn in_state(&self, state: BackupState) -> Result<Vec<StoredBackup>, MaintenanceError> {
        let mut found = backups(&self.path)?;
        found.retain(|stored| stored.state == state);
        Ok(found)
    }

    fn remove_all(&self, state: BackupState) -> Result<(), MaintenanceError> {
        self.in_state(state)?.iter().try_for_each(|stored| self.remove(stored))
    }

    /// Removes a backup. Renames it first, so that a half-removed backup never counts as complete.
    fn remove(&self, stored: &StoredBackup) -> Result<(), MaintenanceError> {
        let unfinished = self.path_of(stored.time, BackupState::Unfinished);
        if unfinished != stored.path {
            self.rename(&stored.path, &unfinished)?;
        }
        remove_backup(&unfinished).map_err(|cause| unusable(&self.path, cause))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), MaintenanceError> {
        fs::rename(from, to)
            .and_then(|()| File::open(&self.path)?.sync_all())
            .map_err(|cause| MaintenanceError::Write {
                path: to.to_owned(),
                cause,
            })
    }

    fn path_of(&self, time: UnixMillis, state: BackupState) -> PathBuf {
        self.path.join(format!("{}{}", name_of(time), state.suffix()))
    }
}

fn unusable(path: &Path, cause: io::Error) -> MaintenanceError {
    MaintenanceError::BackupDir {
        path: path.to_owned(),
        cause,
    }
}

/// Returns the backups in a directory, oldest first.
///
/// # Errors
/// [`MaintenanceError::BackupDir`] if the directory cannot be read.
pub fn backups(directory: &Path) -> Result<Vec<StoredBackup>, MaintenanceError> {
    let read = || {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let named = entry.file_name().to_str().and_then(parse_name);
            // `file_type` does not follow links, so a link to a directory is not a backup.
            if let Some((time, state)) = named
                && entry.file_type()?.is_dir()
                && let Some(bytes) = size_of_backup(&entry.path())?
            {
                found.push(StoredBackup {
                    time,
                    state,
                    path: entry.path(),
                    bytes,
                });
            }
        }
        found.sort_by_key(|stored| stored.time);
        Ok(found)
    };
    read().map_err(|cause| unusable(directory, cause))
}

/// Returns the directory of a backup: `path` itself, or the newest complete backup in it.
///
/// # Errors
/// [`MaintenanceError::BackupDir`] if the directory cannot be read, [`MaintenanceError::NoBackup`] if no backup in it
/// is complete.
pub(super) fn find_backup(path: &Path) -> Result<PathBuf, MaintenanceError> {
    if database_of(path).is_ok() {
        return Ok(path.to_owned());
    }
    let newest = backups(path)?
        .into_iter()
        .rfind(|stored| stored.state == BackupState::Complete);
    let newest = newest.ok_or_else(|| MaintenanceError::NoBackup { path: path.to_owned() })?;
    Ok(newest.path)
}

/// Returns the size of a directory that holds a backup, or `None` if it holds anything else. Files may be removed at
/// the same time.
fn size_of_backup(directory: &Path) -> io::Result<Option<u64>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Names with a suffix are temporary files of the engine, or of the writer of the keys.
        let is_known = [DATABASE, KEYS_FILE]
            .iter()
            .any(|known| name.trim_start_matches('.').starts_with(known));
        match entry.metadata() {
            Ok(metadata) if is_known && metadata.is_file() => bytes += metadata.len(),
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(bytes))
}

/// Removes a directory that holds a backup and nothing else.
pub(super) fn remove_backup(directory: &Path) -> io::Result<()> {
    if size_of_backup(directory)?.is_none() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    for entry in fs::read_dir(directory)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(directory)
}

/// Creates a directory with mode 0700.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Returns a time as a name, such as `20261127T041638Z`. The order of the names is the order of the times.
pub(super) fn name_of(time: UnixMillis) -> String {
    let timestamp = Timestamp {
        seconds: i64::try_from(time.get() / 1_000).unwrap_or(i64::MAX),
        nanos: 0,
    };
    let mut name = timestamp.to_string();
    name.retain(|letter| !matches!(letter, '-' | ':'));
    name
}

/// Returns the time and the state of a backup of that name.
fn parse_name(name: &str) -> Option<(UnixMillis, BackupState)> {
    BackupState::ALL
        .into_iter()
        .find_map(|state| Some((time_of(name.strip_suffix(state.suffix())?)?, state)))
}

fn time_of(name: &str) -> Option<UnixMillis> {
    let part = |range| name.get(range);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(9..11)?, part(11..13)?, part(13..15)?);
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let timestamp: Timestamp = text.parse().ok()?;
    let time = UnixMillis::new(u64::try_from(timestamp.seconds).ok()?.checked_mul(1_000)?);
    (name_of(time) == name).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_contains_time_and_state_only() {
        let time = UnixMillis::new(1_795_753_000_000);
        assert_eq!(name_of(time), "20261127T041640Z");
        for state in BackupState::ALL {
            let name = format!("20261127T041640Z{}", state.suffix());
            assert_eq!(parse_name(&name), Some((time, state)), "{name}");
        }
        for name in [
            "",
            "monday",
            "20261127",
            "20261127T041640",
            "20261127T041640Zx",
            "20261127 041640Z",
            "20261327T041640Z",
            "2026é127T041640",
            "+0261127T041640Z",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
