//! A git worktree of a thread's own: agents that work on one repository at once do not get into each other's way. It is
//! made of the commit that the repository is at, and removed with the thread unless something in it is new.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// How long one command of git's may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What of a repository's own settings would run something.
const HARMLESS: &[&str] = &["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];

/// A worktree, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worktree {
    /// Its own top.
    top: PathBuf,
    /// The top of what it is a worktree of.
    repository: PathBuf,
    /// The way from the top to where the agent works.
    inside: PathBuf,
    /// The commit that it was made of.
    base: String,
}

/// What became of a worktree whose thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing was new in it.
    Removed,
    /// It has changes or commits that are nowhere else.
    Kept,
}

impl Worktree {
    /// The worktree at `top` for work in a directory, made if it is not there; `None`: the directory lies in no
    /// repository.
    ///
    /// # Errors
    ///
    /// Git's words.
    pub(crate) async fn open(directory: &Path, top: PathBuf) -> Result<Option<Self>, String> {
        let Ok(repository) = git(directory, ["rev-parse", "--show-toplevel"]).await else {
            return Ok(None);
        };
        let repository = PathBuf::from(repository);
        let inside = git(directory, ["rev-parse", "--show-prefix"]).await?;
        if !top.is_dir() {
            // One that somebody took away is not in the way.
            git(&repository, ["worktree", "prune"]).await?;
            let add = ["worktree", "add", "--quiet", "--detach"].map(OsStr::new);
            git(&repository, add.into_iter().chain([top.as_os_str()])).await?;
        }
        let base = git(&top, ["rev-parse", "ORIG_HEAD"]).await;
        let base = match base {
            Ok(base) => base,
            Err(_) => {
                let head = git(&top, ["rev-parse", "HEAD"]).await?;
                // Remembered in the worktree itself, so that a later attempt knows it.
                git(&top, ["update-ref", "ORIG_HEAD", &head]).await?;
                head
            }
        };
        Ok(Some(Self {
            top,
            repository,
            inside: inside.into(),
            base,
        }))
    }

    /// Where the agent works.
    pub(crate) fn directory(&self) -> PathBuf {
        self.top.join(&self.inside)
    }

    /// A path in it as it is in the repository, by which it is judged.
    pub(crate) fn in_repository(&self, path: &str) -> String {
        match Path::new(path).strip_prefix(&self.top) {
            Ok(below) => self.repository.join(below).to_string_lossy().into_owned(),
            Err(_) => path.to_owned(),
        }
    }

    /// Removes it if nothing in it is new.
    ///
    /// # Errors
    ///
    /// Git's words; it is kept then.
    pub(crate) async fn close(&self) -> Result<Left, String> {
        let is_unchanged = git(&self.top, ["status", "--porcelain"]).await?.is_empty();
        let has_no_commits = git(&self.top, ["rev-parse", "HEAD"]).await? == self.base;
        if !(is_unchanged && has_no_commits) {
            return Ok(Left::Kept);
        }
        let remove = ["worktree", "remove"].map(OsStr::new);
        git(&self.repository, remove.into_iter().chain([self.top.as_os_str()])).await?;
        Ok(Left::Removed)
    }

    /// Its top.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }
}

async fn git<A: AsRef<OsStr>>(directory: &Path, args: impl IntoIterator<Item = A>) -> Result<String, String> {
    let mut command = Command::new("git");
    command
        .args(HARMLESS)
        .arg("-C")
        .arg(directory)
        .args(args)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    match timeout(LIMIT, command.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end_matches('\n')
            .to_owned()),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Ok(Err(error)) => Err(format!("git cannot be run: {error}")),
        Err(_) => Err(format!("git took over {LIMIT:?}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    async fn repository() -> (tempfile::TempDir, PathBuf) {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        let repository = base.join("repo");
        fs::create_dir_all(repository.join("a")).unwrap();
        fs::write(repository.join("a/file"), "one\n").unwrap();
        git(&repository, ["init", "--quiet"]).await.unwrap();
        git(&repository, ["add", "."]).await.unwrap();
        commit(&repository).await;
        (guard, repository)
    }

    async fn commit(directory: &Path) {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
        let commit = ["commit", "--quiet", "--all", "--allow-empty", "--message", "m"];
        git(directory, identity.into_iter().chain(commit)).await.unwrap();
    }

    #[tokio::test]
    async fn work_in_it_is_beside_the_repository_and_goes_when_nothing_is_new() {
        let (guard, repository) = repository().await;
        let top = guard.path().join("tree");
        let tree = Worktree::open(&repository.join("a"), top.clone())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(fs::read_to_string(tree.directory().join("file")).unwrap(), "one\n");
        let written = tree.directory().join("new").to_string_lossy().into_owned();
        assert_eq!(Path::new(&tree.in_repository(&written)), repository.join("a/new"));
        assert_eq!(tree.in_repository("/elsewhere"), "/elsewhere");
        // A later attempt finds it.
        assert_eq!(
            Worktree::open(&repository.join("a"), top.clone()).await.unwrap(),
            Some(tree.clone())
        );
        assert_eq!(tree.close().await, Ok(Left::Removed));
        assert!(!top.exists());
    }

    #[tokio::test]
    async fn what_is_new_is_kept() {
        let (guard, repository) = repository().await;
        for (name, is_committed) in [("changed", false), ("committed", true)] {
            let top = guard.path().join(name);
            let tree = Worktree::open(&repository, top.clone()).await.unwrap().unwrap();
            fs::write(top.join("a/file"), "two\n").unwrap();
            if is_committed {
                commit(&top).await;
            }
            assert_eq!(tree.close().await, Ok(Left::Kept));
            let again = Worktree::open(&repository, top.clone()).await.unwrap().unwrap();
            assert_eq!(again.close().await, Ok(Left::Kept), "and by a later attempt");
        }
        assert_eq!(fs::read_to_string(repository.join("a/file")).unwrap(), "one\n");
    }

    #[tokio::test]
    async fn without_a_repository_there_is_none() {
        let guard = tempfile::tempdir().unwrap();
        assert_eq!(Worktree::open(guard.path(), guard.path().join("t")).await, Ok(None));
        let bare = guard.path().join("empty");
        fs::create_dir(&bare).unwrap();
        git(&bare, ["init", "--quiet"]).await.unwrap();
        assert!(
            Worktree::open(&bare, guard.path().join("u")).await.is_err(),
            "no commit to make it of"
        );
    }
}
