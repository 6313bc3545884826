//! Disk space reserve: a file that is deleted when the disk is full, so that threads can still be closed and the last
//! reports of runners can still be recorded.
//!
//! After it is spent, the reserve is created again as soon as the disk has space for it. The space is checked with
//! each commit group, since a store without writes needs no reserve. While the reserve is spent, writes that start
//! something (a session, a thread) are rejected as if the disk were still full. Otherwise spawns would use up the
//! space, and no space would be left to close threads. This module never retries a rejected write; the caller decides.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::group::Failure;
use crate::store::error::Refusal;

/// Name of the file, in the directory of the database.
const FILE: &str = "reserve";

/// Number of bytes per write.
const BLOCK: usize = 256 * 1024;

/// Number of blocks.
const BLOCKS: u64 = 64;

/// Size of the reserve: 16 MiB, enough to close several hundred threads, each with the pages of its commit.
const BYTES: u64 = BLOCKS * BLOCK as u64;

/// Free space required to create the reserve again, in bytes. It is twice the size of the reserve, so that the reserve
/// is not spent again immediately.
const ROOM: u64 = 2 * BYTES;

/// The reserve file of a database. Only the writer's thread changes it.
pub(super) struct Reserve {
    path: PathBuf,
    spent: AtomicBool,
}

impl Reserve {
    /// Finds or creates the reserve of a database. If there is no space for it, the reserve counts as spent.
    pub(super) fn of_database(database: &Path) -> Self {
        let path = database.with_file_name(FILE);
        let is_kept = fs::metadata(&path).is_ok_and(|found| found.len() == BYTES);
        if !is_kept {
            // Usually the file does not exist. If it exists, it is incomplete or from another release, and it is
            // useless and takes space.
            let _ = fs::remove_file(&path);
        }
        let reserve = Self {
            path,
            spent: AtomicBool::new(!is_kept),
        };
        reserve.restore();
        if reserve.is_spent() {
            tracing::warn!(
                path = %reserve.path.display(), free_bytes_needed = ROOM,
                "the disk is nearly full; new sessions and threads are rejected until there is space"
            );
        }
        reserve
    }

    /// Returns whether the reserve is spent.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// Checks that the reserve exists. Called by writes that start something.
    ///
    /// # Errors
    /// [`Refusal::DiskFull`].
    pub(super) fn admit(&self) -> Result<(), Failure> {
        if self.is_spent() {
            Err(Failure::Rejected(Refusal::DiskFull.into()))
        } else {
            Ok(())
        }
    }

    /// Deletes the reserve file. Idempotent.
    pub(super) fn release(&self) {
        if self.spent.swap(true, Ordering::Relaxed) {
            return;
        }
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!(
                path = %self.path.display(),
                "the disk is full; the reserve was deleted; new sessions and threads are rejected until there is space"
            ),
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "the disk is full and the reserve can't be deleted");
            }
        }
    }

    /// Creates the reserve again if it is spent and the disk has enough space. The check costs one system call, and no
    /// system call while the reserve exists.
    pub(super) fn restore(&self) {
        if !self.is_spent() || !self.has_room() {
            return;
        }
        match write(&self.path) {
            Ok(()) => {
                self.spent.store(false, Ordering::Relaxed);
                tracing::info!(path = %self.path.display(), "the disk space reserve was created");
            }
            Err(error) => {
                tracing::debug!(%error, "the disk space reserve cannot be created yet");
                // A partial file is useless and takes space.
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    fn has_room(&self) -> bool {
        let Some(directory) = self.path.parent() else {
            return false;
        };
        // The parent of a bare file name is empty, and means the current directory.
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        rustix::fs::statvfs(directory).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM)
    }
}

/// Writes the file without a flush. It is sufficient that the file system has allocated the space. A crash loses at
/// most the reserve, which the next start creates again.
fn write(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    let block = random_block();
    (0..BLOCKS).try_for_each(|_| file.write_all(&block))
}

/// Returns bytes without a pattern (xorshift). A compressing file system would allocate no space for zeros.
fn random_block() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; BLOCK];
    for word in block.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    block
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::store::error::WriteError;

    fn is_full(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.len() == BYTES && found.mode() & 0o777 == 0o600)
    }

    #[test]
    fn reserve_is_released_when_needed_and_restored() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::of_database(&directory.path().join("log.db"));
        let path = directory.path().join(FILE);
        assert!(is_full(&path));
        assert!(reserve.admit().is_ok());

        reserve.release();
        assert!(!path.exists());
        assert!(matches!(
            reserve.admit(),
            Err(Failure::Rejected(WriteError::Refused(Refusal::DiskFull)))
        ));

        reserve.restore();
        assert!(is_full(&path));
        assert!(reserve.admit().is_ok());
    }

    #[test]
    fn released_reserve_is_not_released_again() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::of_database(&directory.path().join("log.db"));
        reserve.release();
        let path = directory.path().join(FILE);
        fs::write(&path, "another file").unwrap();
        reserve.release();
        assert!(path.exists());
    }

    #[test]
    fn incomplete_reserve_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, "cut short").unwrap();
        assert!(!Reserve::of_database(&directory.path().join("log.db")).is_spent());
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES);
    }
}
