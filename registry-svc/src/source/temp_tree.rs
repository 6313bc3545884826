//! A temporary directory for the tests of modules that read files.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// A directory that is removed when the value is dropped. Its parent is removed too, so tests may use `..`.
pub(super) struct TempTree {
    _guard: tempfile::TempDir,
    /// The canonical path.
    pub(super) base: PathBuf,
}

impl TempTree {
    /// Creates the directory, with these directories in it.
    pub(super) fn new(directories: &[&str]) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap().join("root");
        fs::create_dir(&base).unwrap();
        let tree = Self { _guard: guard, base };
        for directory in directories {
            fs::create_dir_all(tree.at(directory)).unwrap();
        }
        tree
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    /// Writes a file. Creates its directory if necessary.
    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Creates a symbolic link. Creates its directory if necessary.
    pub(super) fn link(&self, target: impl AsRef<Path>, link: &str) {
        let link = self.at(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, link).unwrap();
    }
}
