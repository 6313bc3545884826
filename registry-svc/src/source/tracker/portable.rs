//! The tracker for systems without inotify. It never gives a guard, so every call scans the disk.

use std::path::Path;

/// A tracker that observes nothing.
#[derive(Debug, Default)]
pub(crate) struct ChangeTracker;

/// A scan that never gives a guard.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    tracker: &'a ChangeTracker,
}

/// A guard that is never created.
#[derive(Debug)]
pub(crate) enum CacheGuard {}

impl ChangeTracker {
    /// Starts a scan.
    #[must_use]
    pub(crate) const fn scan(&self) -> Scan<'_> {
        Scan { tracker: self }
    }

    /// Returns whether values read under the guard are current.
    #[must_use]
    pub(crate) const fn is_current(&self, guard: &CacheGuard) -> bool {
        match *guard {}
    }

    /// Waits until values read under the guard may have changed.
    pub(crate) async fn changed(&self, guard: &CacheGuard) {
        match *guard {}
    }
}

impl Scan<'_> {
    /// Starts a scan of a part of the locations of this scan.
    #[must_use]
    pub(crate) const fn part(&self) -> Self {
        self.tracker.scan()
    }

    /// Observes the target of an absolute path.
    pub(crate) const fn observe_path(&mut self, _: &Path) {}

    /// Observes whether a directory has an entry with that name.
    pub(crate) const fn observe_entry(&mut self, _: &Path, _: &str) {}

    /// Observes all entries of a directory below another one.
    pub(crate) const fn observe_directory(&mut self, _: &Path, _: &str) {}

    /// Observes all entries of the directory at this path.
    pub(crate) const fn observe_entries(&mut self, _: &Path) {}

    /// Observes the target of the link at this path.
    pub(crate) const fn observe_link(&mut self, _: &Path) {}

    /// Marks the scan as unreliable.
    pub(crate) const fn mark_unreliable(&mut self) {}

    /// Returns whether this scan can use values that were read under the guard.
    #[must_use]
    pub(crate) const fn reuse(&mut self, guard: &CacheGuard) -> bool {
        match *guard {}
    }

    /// Adds the locations of a guard.
    pub(crate) const fn include(&mut self, guard: &CacheGuard) {
        match *guard {}
    }

    /// Returns no guard.
    #[must_use]
    pub(crate) const fn finish(self) -> Option<CacheGuard> {
        None
    }
}
