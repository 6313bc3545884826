//! Room for the end: a file that is there only to be deleted when the disk is full, so that threads can still be closed
//! and what runners report last can still be recorded.
//!
//! It is kept, then spent once, then kept again as soon as the disk has room for it: that is looked at with each commit
//! group, since a store that writes nothing needs no reserve. While it is spent, what would begin something (a session,
//! a thread) is refused as if the disk were still full: otherwise spawns would use the room up, and the closings would
//! find none. A write that was refused is never tried again from here; its caller knows best.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    error::{AppendError, Refusal},
    group::Failure,
};

/// The file's name, in the directory of the database.
const FILE: &str = "reserve";

/// What is written at a time.
const BLOCK: usize = 256 * 1024;

/// How many blocks it has.
const BLOCKS: u64 = 64;

/// How much it keeps, 16 MiB: several hundred closings, each with the pages of its commit.
const BYTES: u64 = BLOCKS * BLOCK as u64;

/// The room that must be free before it is kept again: as much stays free beside it, so that it isn't spent at once.
const ROOM: u64 = 2 * BYTES;

/// The reserve beside a database. Only the writer's thread changes it.
pub(super) struct Reserve {
    path: PathBuf,
    spent: AtomicBool,
}

impl Reserve {
    /// Finds the reserve of a database or makes it. Where there is no room for one, it counts as spent.
    pub(super) fn beside(database: &Path) -> Self {
        let path = database.with_file_name(FILE);
        let is_kept = fs::metadata(&path).is_ok_and(|found| found.len() == BYTES);
        if !is_kept {
            // Cut short, or that of another release: of no use, and it takes room. Mostly there is none.
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
                "the disk is nearly full: no new sessions and threads until there is room"
            );
        }
        reserve
    }

    /// Whether only the room of the reserve is left.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// Lets pass what begins something, unless the reserve is spent.
    ///
    /// # Errors
    /// [`Refusal::DiskFull`].
    pub(super) fn admit(&self) -> Result<(), Failure<AppendError>> {
        if self.is_spent() {
            Err(Failure::Rejected(AppendError::Refused(Refusal::DiskFull)))
        } else {
            Ok(())
        }
    }

    /// Gives the room up. Does nothing the second time.
    pub(super) fn release(&self) {
        if self.spent.swap(true, Ordering::Relaxed) {
            return;
        }
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!(
                path = %self.path.display(),
                "the disk is full: the reserve is given up for closing; no new sessions and threads until there is room"
            ),
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "the disk is full and the reserve stays");
            }
        }
    }

    /// Keeps the reserve again if it is spent and the disk has room. Asking costs one system call, and none while it is
    /// kept.
    pub(super) fn restore(&self) {
        if !self.is_spent() || !self.has_room() {
            return;
        }
        match write(&self.path) {
            Ok(()) => {
                self.spent.store(false, Ordering::Relaxed);
                tracing::info!(path = %self.path.display(), "the reserve for a full disk is kept");
            }
            Err(error) => {
                tracing::debug!(%error, "the reserve can't be written yet");
                // A part of it is of no use and takes room.
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    fn has_room(&self) -> bool {
        let Some(directory) = self.path.parent() else {
            return false;
        };
        // The directory of a bare file name.
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        rustix::fs::statvfs(directory).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM)
    }
}

/// Writes the file. It isn't flushed: what counts is that the file system has set the room aside, and a crash loses no
/// more than the reserve, which the next start makes anew.
fn write(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    let block = noise();
    (0..BLOCKS).try_for_each(|_| file.write_all(&block))
}

/// Bytes without a pattern (xorshift): zeros would take no room on a file system that compresses.
fn noise() -> Vec<u8> {
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

    fn is_full(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.len() == BYTES && found.mode() & 0o777 == 0o600)
    }

    #[test]
    fn it_is_kept_spent_once_and_kept_again() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&directory.path().join("log.db"));
        let path = directory.path().join(FILE);
        assert!(is_full(&path));
        assert!(reserve.admit().is_ok());

        reserve.release();
        assert!(!path.exists());
        assert!(matches!(
            reserve.admit(),
            Err(Failure::Rejected(AppendError::Refused(Refusal::DiskFull)))
        ));

        reserve.restore();
        assert!(is_full(&path));
        assert!(reserve.admit().is_ok());
    }

    #[test]
    fn what_is_given_up_already_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&directory.path().join("log.db"));
        reserve.release();
        let path = directory.path().join(FILE);
        fs::write(&path, "somebody else's").unwrap();
        reserve.release();
        assert!(path.exists());
    }

    #[test]
    fn a_part_of_a_reserve_is_made_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, "cut short").unwrap();
        assert!(!Reserve::beside(&directory.path().join("log.db")).is_spent());
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES);
    }
}
