//! Locations of template files on this machine. `lint` reads them and `agents new` writes to them without a running
//! service.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use svc_kit::paths;

use crate::error::{Error, Result};

/// The directory of roles in a project and in a home.
pub(crate) const ROLES: &str = ".codex/.agents";
/// The directory of profiles and subagents in a project and in a home.
pub(crate) const PROFILES: &str = ".codex/agents";
/// The directory of graph templates, at a repository's root only.
pub(crate) const GRAPHS: &str = "docs/templates";
/// Maximum number of directories between the working directory and the root. Supported systems have no deeper paths.
const MAX_DEPTH: usize = 256;

/// Returns the directories of the project around a directory, nearest first. The last one is the nearest directory that
/// contains `.git` (a directory or a file) or is the user's home, otherwise the root of the file system.
pub(crate) fn project(start: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for directory in start.ancestors().take(MAX_DEPTH) {
        directories.push(directory.to_owned());
        let is_repository = fs::symlink_metadata(directory.join(".git")).is_ok();
        if is_repository || home == Some(directory) {
            break;
        }
    }
    directories
}

/// Returns the root of the repository around a directory, or the directory itself outside of a repository.
pub(crate) fn repository(start: &Path) -> PathBuf {
    start
        .ancestors()
        .take(MAX_DEPTH)
        .find(|directory| fs::symlink_metadata(directory.join(".git")).is_ok())
        .unwrap_or(start)
        .to_owned()
}

/// Returns the home whose `.codex/` is the user scope: the given one, `TROUPE_HOME`, or the user's home.
pub(crate) fn home(given: Option<PathBuf>) -> Result<PathBuf> {
    let home = match given {
        Some(home) => home,
        None => paths::default_home().map_err(Error::of)?,
    };
    if home.is_absolute() {
        return Ok(home);
    }
    env::current_dir()
        .map(|here| here.join(home))
        .map_err(|error| Error::failure(format!("cannot determine the current directory: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn project_ends_at_git_file_of_worktree() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(base.join("repo/a/b")).unwrap();
        fs::write(base.join("repo/.git"), "gitdir: elsewhere\n").unwrap();
        let start = base.join("repo/a/b");
        assert_eq!(
            project(&start, None),
            [base.join("repo/a/b"), base.join("repo/a"), base.join("repo")]
        );
        assert_eq!(repository(&start), base.join("repo"));
    }

    #[test]
    fn project_without_repository_ends_at_home() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(base.join("a/b")).unwrap();
        assert_eq!(
            project(&base.join("a/b"), Some(&base)),
            [base.join("a/b"), base.join("a"), base.clone()]
        );
        assert_eq!(repository(&base.join("a/b")), base.join("a/b"));
    }
}
