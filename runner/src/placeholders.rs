//! Empty directories that exist only as mount points.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Maximum number of attempts to create a placeholder while another runner removes it.
const PLACEHOLDER_ATTEMPTS: usize = 8;

/// The placeholders of one thread.
#[derive(Debug, Default)]
pub(crate) struct Placeholders(Vec<Placeholder>);

impl Placeholders {
    /// Creates the placeholder at a path, or shares an existing placeholder.
    pub(crate) fn hold(&mut self, path: &Path) -> io::Result<()> {
        self.0.push(Placeholder::hold(path)?);
        Ok(())
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        // Children are removed before their parents.
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}

/// An empty directory that exists only as a mount point. Every runner that needs the directory holds a shared lock on
/// it, and the last of these runners removes the directory. An earlier removal would remove the mounts of the other
/// runners.
#[derive(Debug)]
struct Placeholder {
    path: PathBuf,
    lock: File,
}

impl Placeholder {
    fn hold(path: &Path) -> io::Result<Self> {
        for _ in 0..PLACEHOLDER_ATTEMPTS {
            match fs::create_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let Ok(lock) = File::open(path) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockShared).is_err() {
                // Its last user is about to remove it.
                std::thread::yield_now();
                continue;
            }
            let (ours, present) = (lock.metadata()?, fs::symlink_metadata(path));
            if present.is_ok_and(|present| (present.dev(), present.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Self {
                    path: path.to_owned(),
                    lock,
                });
            }
        }
        Err(io::Error::other("another program repeatedly removes it"))
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // A placeholder that is not empty is kept.
            let _ = fs::remove_dir(&self.path);
        }
    }
}
