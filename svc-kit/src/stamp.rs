//! File metadata that changes with the content.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Two writes within this time may leave the same timestamps, because kernels and network file systems count time in
/// ticks.
const TICK: Duration = Duration::from_secs(2);

/// Identity, size and times of a file or directory. The change time also covers permissions. A different stamp means
/// that the content may have changed: programs replace or overwrite files, and Kubernetes swaps links. An equal stamp
/// means that the content is the same if the stamp [is settled](Self::is_settled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether a change after `read_at` is certain to change the stamp. Otherwise a second write within one
    /// clock tick could be missed, so content that was read at `read_at` must be read again. The change time decides
    /// because programs cannot set it.
    #[must_use]
    pub fn is_settled(&self, read_at: SystemTime) -> bool {
        let Ok(seconds) = u64::try_from(self.changed.0) else {
            return true;
        };
        let changed = UNIX_EPOCH + Duration::from_secs(seconds.saturating_add(1).min(u64::from(u32::MAX)));
        changed + TICK <= read_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_written_file_is_not_settled() {
        let directory = tempfile::tempdir().unwrap();
        let stamp = Stamp::of(&std::fs::metadata(directory.path()).unwrap());
        assert!(!stamp.is_settled(SystemTime::now()));
        assert!(stamp.is_settled(SystemTime::now() + 2 * TICK));
    }
}
