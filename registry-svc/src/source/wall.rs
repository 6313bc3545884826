//! Boundaries for links, and directories that are never read.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Directories that no template and no footer is read from, like the data directory with the tokens of operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Hidden(Arc<[PathBuf]>);

/// The boundary of a scope's files. After links are followed, they must lie inside it and outside hidden directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wall {
    /// Canonical.
    around: PathBuf,
    hidden: Hidden,
}

impl Hidden {
    /// These directories. They need not exist yet.
    #[must_use]
    pub(crate) fn new(directories: Vec<PathBuf>) -> Self {
        Self(directories.into())
    }
}

impl Wall {
    /// Returns the wall around a canonical directory.
    #[must_use]
    pub(crate) fn around(directory: &Path, hidden: &Hidden) -> Self {
        Self {
            around: directory.to_owned(),
            hidden: hidden.clone(),
        }
    }

    /// Returns whether a canonical path lies within the wall.
    #[must_use]
    pub(crate) fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.around) && !self.hidden.0.iter().any(|hidden| self.hides(hidden, path))
    }

    /// Returns whether the hidden directory hides the path. The hidden directory is resolved each time because it may
    /// be created later. A project inside it, such as a thread's worktree, stays readable: its wall separates it from
    /// the rest of the directory.
    fn hides(&self, hidden: &Path, path: &Path) -> bool {
        fs::canonicalize(hidden).is_ok_and(|hidden| {
            let is_deeper = self.around.starts_with(&hidden) && self.around != hidden;
            path.starts_with(&hidden) && !is_deeper
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_hidden_is_behind_every_wall_but_those_in_it() {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        let at = |path: &str| base.join(path);
        symlink("home/data", at("data")).unwrap();
        // By another name, and not there yet.
        let hidden = Hidden::new(vec![at("data")]);
        let holds = |around: &str, path: &str| Wall::around(&at(around), &hidden).holds(&at(path));
        assert!(holds("home", "home/data/token"));
        fs::create_dir_all(at("home/data/worktree")).unwrap();
        for (around, path, expected) in [
            ("home", "home/a", true),
            ("home", "elsewhere/a", false),
            ("home", "home/data/token", false),
            ("home", "home/data", false),
            ("home", "home/database", true),
            ("home/data", "home/data/token", false),
            ("home/data/worktree", "home/data/worktree/a", true),
            ("home/data/worktree", "home/data/token", false),
        ] {
            assert_eq!(holds(around, path), expected, "{around} {path}");
        }
    }
}
