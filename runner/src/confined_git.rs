//! Runs git in the worktrees of agents.
//!
//! Agents may write to the repository, and its settings name programs that git runs: file filters, and programs that
//! fetch missing objects. They cannot be listed, and some are needed. Therefore git is confined like the programs of
//! agents, where that is possible.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use troupe_proto::common::v1::Sandbox;

use crate::{confinement, git};

/// Runs commands in one worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Git {
    /// The paths that it may write.
    own: Vec<PathBuf>,
    /// Directories that are hidden from it, except for its own paths.
    hidden: Vec<PathBuf>,
}

impl Git {
    pub(crate) const fn new(own: Vec<PathBuf>, hidden: Vec<PathBuf>) -> Self {
        Self { own, hidden }
    }

    /// Runs a command, confined where that is possible.
    pub(crate) async fn run<A: AsRef<OsStr>>(
        &self,
        directory: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, String> {
        let process = git::process(directory, args);
        if !confinement::is_possible().await {
            return git::run(process).await;
        }
        // Paths that do not exist cannot be mounted.
        let own: Vec<&Path> = self
            .own
            .iter()
            .map(PathBuf::as_path)
            .filter(|path| path.exists())
            .collect();
        git::run(confinement::confined(process, Sandbox::ReadOnly, &own, &self.hidden)).await
    }
}
