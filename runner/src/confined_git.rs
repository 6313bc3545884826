//! Runs git in the worktrees of agents.
//!
//! Agents may write to the repository, and its settings name programs that git runs, such as file filters and programs
//! that fetch missing objects. A complete list of such settings is not possible, and some of the programs are needed.
//! Therefore git is confined like the programs of agents, where that is possible.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use troupe_proto::common::v1::Sandbox;

use crate::{confinement, git};

/// Runs git commands in one worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Git {
    /// The paths that git may write.
    own: Vec<PathBuf>,
    /// Directories that are hidden from git, except for the paths in `own`.
    hidden: Vec<PathBuf>,
}

impl Git {
    pub(crate) const fn new(own: Vec<PathBuf>, hidden: Vec<PathBuf>) -> Self {
        Self { own, hidden }
    }

    /// Runs a git command, confined where that is possible.
    pub(crate) async fn run<A: AsRef<OsStr>>(
        &self,
        directory: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, String> {
        let process = git::process(directory, args);
        if !confinement::is_possible().await {
            return git::run(process).await;
        }
        // Only existing paths can be mounted.
        let own: Vec<&Path> = self
            .own
            .iter()
            .map(PathBuf::as_path)
            .filter(|path| path.exists())
            .collect();
        git::run(confinement::confined(process, Sandbox::ReadOnly, &own, &self.hidden)).await
    }
}
