//! Boundaries for links, and directories that are never read.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Directories from which no template and no footer is read, such as the data directory with the operators' tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct HiddenDirectories(Arc<[PathBuf]>);

/// The boundary of a scope's files. After links are followed, the files must lie inside the boundary and outside hidden
/// directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Boundary {
    /// The canonical directory.
    around: PathBuf,
    hidden: HiddenDirectories,
}

impl HiddenDirectories {
    /// Creates the list. The directories need not exist yet.
    #[must_use]
    pub(crate) fn new(directories: Vec<PathBuf>) -> Self {
        Self(directories.into())
    }
}

impl Boundary {
    /// Returns the boundary around a canonical directory.
    #[must_use]
    pub(crate) fn around(directory: &Path, hidden: &HiddenDirectories) -> Self {
        Self {
            around: directory.to_owned(),
            hidden: hidden.clone(),
        }
    }

    /// Returns whether a canonical path lies within the boundary.
    #[must_use]
    pub(crate) fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.around) && !self.hidden.0.iter().any(|hidden| self.hides(hidden, path))
    }

    /// Returns whether the hidden directory hides the path. The hidden directory is resolved each time because it may
    /// be created later. A project inside the hidden directory, such as a thread's worktree, stays readable: the
    /// boundary of the project separates the project from the rest of the hidden directory.
    fn hides(&self, hidden: &Path, path: &Path) -> bool {
        fs::canonicalize(hidden).is_ok_and(|hidden| {
            let is_deeper = self.around.starts_with(&hidden) && self.around != hidden;
            path.starts_with(&hidden) && !is_deeper
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::temp_tree::TempTree;

    #[test]
    fn hidden_directory_is_outside_all_boundaries_around_it() {
        let tree = TempTree::new(&[]);
        tree.link("home/data", "data");
        // The hidden directory is given by a link whose target does not exist yet.
        let hidden = HiddenDirectories::new(vec![tree.at("data")]);
        let contains = |around: &str, path: &str| Boundary::around(&tree.at(around), &hidden).contains(&tree.at(path));
        assert!(contains("home", "home/data/token"));
        fs::create_dir_all(tree.at("home/data/worktree")).unwrap();
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
            assert_eq!(contains(around, path), expected, "{around} {path}");
        }
    }
}
