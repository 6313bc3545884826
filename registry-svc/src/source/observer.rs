//! Observation of the paths that a scan depends on.

use std::path::Path;

/// Receives every path before the sources read it, so that no later change there is missed.
pub(crate) trait PathObserver {
    /// Observes an absolute path whose target determines a project or the home.
    fn observe_path(&mut self, path: &Path);

    /// Observes whether a canonical directory has an entry with that name.
    fn observe_entry(&mut self, directory: &Path, name: &str);

    /// Observes all entries of a directory below a canonical one. The directory may be created later, so the path to it
    /// is observed too.
    fn observe_directory(&mut self, base: &Path, relative: &str);
}

/// A [`PathObserver`] that does nothing, for a single read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoObserver;

impl PathObserver for NoObserver {
    fn observe_path(&mut self, _: &Path) {}

    fn observe_entry(&mut self, _: &Path, _: &str) {}

    fn observe_directory(&mut self, _: &Path, _: &str) {}
}
