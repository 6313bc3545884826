//! The demo's project: a git repository with one project role.

use std::{fs, path::Path, process::Stdio};

use tokio::process::Command;

use crate::error::{Error, Result};

/// The directory of a project's roles.
const ROLES: &str = ".codex/.agents";

/// The project's explorer. It completely replaces the built-in explorer.
const EXPLORER: &str = "\
---
description: Use `explorer` to find something in the demo project.
model: demo-small
reasoning_effort: low
read_only: true
allow_list:
  - read_file
  - list_files
---
You explore the demo project. Answer with exact `path:line` references, and change nothing.
";

/// The model of the project's explorer. No other role uses it.
pub(super) const EXPLORER_MODEL: &str = "demo-small";

/// Creates the repository in an empty directory.
///
/// # Errors
///
/// Fails if a file cannot be written.
pub(super) async fn create(directory: &Path) -> Result<()> {
    let roles = directory.join(ROLES);
    fs::create_dir_all(&roles)
        .and_then(|()| fs::write(roles.join("explorer.md"), EXPLORER))
        .and_then(|()| {
            fs::write(
                directory.join("README.md"),
                "# A demo project\n\nNothing happens here by itself.\n",
            )
        })
        .map_err(|error| Error::failure(format!("cannot write the demo project: {error}")))?;
    if git_init(directory).await {
        return Ok(());
    }
    // The registry only checks that `.git` exists.
    fs::create_dir(directory.join(".git"))
        .map_err(|error| Error::failure(format!("cannot write the demo project: {error}")))
}

/// Creates a repository with git. Returns whether git is installed and succeeded.
async fn git_init(directory: &Path) -> bool {
    let status = Command::new("git")
        .args(["init", "--quiet", "--initial-branch", "main"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await;
    status.is_ok_and(|status| status.success()) && directory.join(".git").exists()
}
