//! What a `stat` tells about a file's content.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Writes that are closer together than this may leave the same times: kernels and network file systems count time in
/// ticks.
const TICK: Duration = Duration::from_secs(2);

/// Identity, size and times of a file or directory; that of change tells of who may read it, too. If they differ, the
/// content may: programs replace files or write into them, Kubernetes swaps links. If they do not, it does not, once
/// the stamp [is settled](Self::is_settled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp in this metadata.
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

    /// Whether a change after `read_at` would change the stamp. Otherwise a second write within one tick of the clock
    /// goes unseen, so what was read then must be read again. The time of change decides, as programs cannot set it.
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
    fn a_fresh_file_is_not_settled() {
        let directory = tempfile::tempdir().unwrap();
        let stamp = Stamp::of(&std::fs::metadata(directory.path()).unwrap());
        assert!(!stamp.is_settled(SystemTime::now()));
        assert!(stamp.is_settled(SystemTime::now() + 2 * TICK));
    }
}
