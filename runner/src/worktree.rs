//! A thread's own git worktree, so that agents that work on one repository at the same time do not interfere with each
//! other. The worktree is created from the repository's current commit. When the thread ends, the runner removes the
//! worktree as the operator configured.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::{confined_git::Git, env::UNFINISHED, git::run_unconfined, home};

/// The prefix of a submodule in the index.
const SUBMODULE: &str = "160000 ";

/// When a thread's worktree is removed with the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorktreeCleanup {
    /// If the worktree contains no changes.
    Unchanged,
    /// Regardless of the worktree's content.
    Always,
    /// The runner never removes it.
    Never,
}

impl FromStr for WorktreeCleanup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unchanged" => Ok(Self::Unchanged),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err("expected unchanged, always or never".to_owned()),
        }
    }
}

/// A worktree and its repository.
///
/// The agent may write to the whole worktree, including the file by which git would find the repository. Therefore the
/// runner determines the repository's path before the agent starts and passes it to git, and git never searches for the
/// repository in the worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worktree {
    /// The root of the worktree.
    top: PathBuf,
    /// The root of the repository's own working tree.
    repository: PathBuf,
    /// The path of the agent's directory relative to the worktree's root.
    inside: PathBuf,
    origin: Origin,
    git: Git,
}

/// The state of a worktree before an agent worked in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    /// The directory with git's data about the worktree.
    git_dir: PathBuf,
    /// The commit from which the worktree was created.
    base: String,
}

/// The state of a worktree after its thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CleanupOutcome {
    /// The worktree was removed.
    Removed,
    /// The worktree was kept.
    Kept,
}

impl Worktree {
    /// Opens the worktree at `top` for work in a directory, and creates it if it does not exist. `None`: the directory
    /// is not in a repository. A file next to `top` contains the data for later attempts. The paths in `hidden` are
    /// hidden from programs that the repository makes git run.
    ///
    /// # Errors
    ///
    /// Git's error text, or an error from reading or writing.
    pub(crate) async fn open(directory: &Path, top: PathBuf, hidden: &[PathBuf]) -> Result<Option<Self>, String> {
        let directory = fs::canonicalize(directory).map_err(|error| error.to_string())?;
        if !is_in_repository(&directory)? {
            return Ok(None);
        }
        let repository = PathBuf::from(run_unconfined(&directory, ["rev-parse", "--show-toplevel"]).await?);
        let inside = run_unconfined(&directory, ["rev-parse", "--show-prefix"]).await?;
        // The repository's data directory may belong to another worktree.
        let common = directory.join(run_unconfined(&directory, ["rev-parse", "--git-common-dir"]).await?);
        let common = fs::canonicalize(&common).map_err(|error| format!("{}: {error}", common.display()))?;
        let git = Git::new(vec![top.clone(), common], hidden.to_owned());
        let record = top.with_extension("json");
        let making = top.with_extension(UNFINISHED);
        let known = read(&record).map_err(|why| format!("cannot read {}: {why}", record.display()))?;
        let origin = match (known, top.is_dir() && !making.exists()) {
            (Some(origin), true) => origin,
            // The origin and the owner of such a directory are unknown.
            (None, true) => return Err(format!("{} exists, but {} does not", top.display(), record.display())),
            (_, false) => {
                let made = fs::write(&making, "");
                made.map_err(|error| format!("cannot write {}: {error}", making.display()))?;
                let origin = Self::make(&git, &repository, &top, &record).await?;
                let done = fs::remove_file(&making);
                done.map_err(|error| format!("cannot remove {}: {error}", making.display()))?;
                origin
            }
        };
        Ok(Some(Self {
            top,
            repository,
            inside: inside.into(),
            origin,
            git,
        }))
    }

    /// Creates a worktree and its record. An unfinished worktree was never used, and is created again.
    async fn make(git: &Git, repository: &Path, top: &Path, record: &Path) -> Result<Origin, String> {
        if top.exists() {
            remove(top).await?;
        }
        // Created before git runs, because only an existing directory can be mounted for git.
        fs::create_dir(top).map_err(|error| format!("cannot create {}: {error}", top.display()))?;
        // The first `--force` is for a worktree that was deleted but is still registered. The second one is for a
        // worktree that is still locked because its creation was interrupted. `prune` would also remove the worktrees
        // of other threads, which are hidden here.
        let add = ["worktree", "add", "--force", "--force", "--quiet", "--detach"].map(OsStr::new);
        git.run(repository, add.into_iter().chain([top.as_os_str()])).await?;
        let origin = Origin {
            git_dir: git.run(top, ["rev-parse", "--absolute-git-dir"]).await?.into(),
            base: git.run(top, ["rev-parse", "HEAD"]).await?,
        };
        write(record, &origin).map_err(|error| format!("cannot write {}: {error}", record.display()))?;
        Ok(origin)
    }

    /// Returns the directory in which the agent works.
    pub(crate) fn directory(&self) -> PathBuf {
        self.top.join(&self.inside)
    }

    /// Returns a path in the worktree as a path in the repository, because policies refer to paths in the repository.
    pub(crate) fn in_repository(&self, path: &str) -> String {
        match Path::new(path).strip_prefix(&self.top) {
            Ok(below) => self.repository.join(below).to_string_lossy().into_owned(),
            Err(_) => path.to_owned(),
        }
    }

    /// Returns a path in the repository as a path in the worktree. A path outside of the repository is returned
    /// unchanged.
    pub(crate) fn in_worktree(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix(&self.repository) {
            Ok(below) => self.top.join(below),
            Err(_) => path,
        }
    }

    /// Removes the worktree as configured.
    ///
    /// # Errors
    ///
    /// Git's error text. The worktree is kept.
    pub(crate) async fn close(&self, cleanup: WorktreeCleanup) -> Result<CleanupOutcome, String> {
        let goes = match cleanup {
            WorktreeCleanup::Unchanged => self.is_unchanged().await?,
            WorktreeCleanup::Always => true,
            WorktreeCleanup::Never => false,
        };
        if !goes {
            return Ok(CleanupOutcome::Kept);
        }
        // Git is not used for this: it would search for repositories and run programs that submodules configure.
        remove(&self.top).await?;
        let forget = ["worktree", "remove", "--force", "--force"].map(OsStr::new);
        let forget = forget.into_iter().chain([self.top.as_os_str()]);
        if let Err(why) = self.git.run(&self.repository, forget).await {
            debug!(why, "git may still list a removed worktree");
        }
        Ok(CleanupOutcome::Removed)
    }

    async fn is_unchanged(&self) -> Result<bool, String> {
        let status = [
            "status",
            "--porcelain",
            "--untracked-files=normal",
            "--ignore-submodules=all",
        ];
        let is_as_checked_out = self.ask(status).await?.is_empty();
        let has_no_commits = self.ask(["rev-parse", "HEAD"]).await? == self.origin.base;
        Ok(is_as_checked_out && has_no_commits && self.is_linked() && !self.has_submodules().await?)
    }

    /// Returns whether the `.git` file of the worktree still refers to the repository. Otherwise the worktree may be a
    /// separate repository with commits.
    fn is_linked(&self) -> bool {
        let link = fs::read_to_string(self.top.join(".git")).unwrap_or_default();
        link.strip_prefix("gitdir: ").map(str::trim) == self.origin.git_dir.to_str()
    }

    /// Returns whether a submodule was checked out. Git cannot determine a submodule's changes without running programs
    /// that the submodule configures.
    async fn has_submodules(&self) -> Result<bool, String> {
        let tracked = self.ask(["ls-files", "--stage", "-z"]).await?;
        let mut submodules = tracked
            .split('\0')
            .filter(|entry| entry.starts_with(SUBMODULE))
            .filter_map(|entry| entry.split_once('\t'));
        Ok(submodules.any(|(_, path)| match fs::read_dir(self.top.join(path)) {
            Ok(mut inside) => inside.next().is_some(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }))
    }

    /// Returns the root of the worktree.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    async fn ask<const N: usize>(&self, args: [&str; N]) -> Result<String, String> {
        let place = [
            OsStr::new("--git-dir"),
            self.origin.git_dir.as_os_str(),
            OsStr::new("--work-tree"),
            self.top.as_os_str(),
        ];
        self.git
            .run(&self.top, place.into_iter().chain(args.map(OsStr::new)))
            .await
    }
}

/// Reads the record. `None`: it does not exist.
fn read(record: &Path) -> Result<Option<Origin>, String> {
    match home::read(record) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

async fn remove(top: &Path) -> Result<(), String> {
    let removed = tokio::fs::remove_dir_all(top).await;
    removed.map_err(|error| format!("cannot remove {}: {error}", top.display()))
}

fn write(record: &Path, origin: &Origin) -> io::Result<()> {
    home::replace(record, &serde_json::to_string(origin)?)
}

/// Returns whether a `.git` exists in the directory or above it. Git is not asked: if git then rejects the repository,
/// opening the worktree fails, and the agent does not work in the repository itself instead of in a worktree.
fn is_in_repository(directory: &Path) -> Result<bool, String> {
    for place in directory.ancestors() {
        let mark = place.join(".git");
        match fs::symlink_metadata(&mark) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot look at {}: {error}", mark.display())),
        }
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::confinement;

    async fn repository() -> (tempfile::TempDir, PathBuf) {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        let repository = base.join("repo");
        fs::create_dir_all(repository.join("a")).unwrap();
        fs::write(repository.join("a/file"), "one\n").unwrap();
        run_unconfined(&repository, ["init", "--quiet"]).await.unwrap();
        run_unconfined(&repository, ["add", "."]).await.unwrap();
        commit(&repository).await;
        (guard, repository)
    }

    async fn commit(directory: &Path) {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
        let commit = ["commit", "--quiet", "--all", "--allow-empty", "--message", "m"];
        run_unconfined(directory, identity.into_iter().chain(commit))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn unchanged_worktree_is_removed() {
        let (guard, repository) = repository().await;
        let top = guard.path().join("tree");
        let tree = Worktree::open(&repository.join("a"), top.clone(), &[])
            .await
            .unwrap()
            .unwrap();
        assert_eq!(fs::read_to_string(tree.directory().join("file")).unwrap(), "one\n");
        let written = tree.directory().join("new").to_string_lossy().into_owned();
        assert_eq!(Path::new(&tree.in_repository(&written)), repository.join("a/new"));
        assert_eq!(tree.in_repository("/elsewhere"), "/elsewhere");
        // A later attempt uses the same worktree.
        assert_eq!(
            Worktree::open(&repository.join("a"), top.clone(), &[]).await.unwrap(),
            Some(tree.clone())
        );
        assert_eq!(
            tree.close(WorktreeCleanup::Unchanged).await,
            Ok(CleanupOutcome::Removed)
        );
        assert!(!top.exists());
    }

    #[tokio::test]
    async fn changed_worktree_is_kept() {
        let (guard, repository) = repository().await;
        for (name, is_committed) in [("changed", false), ("committed", true)] {
            let top = guard.path().join(name);
            let tree = Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
            fs::write(top.join("a/file"), "two\n").unwrap();
            if is_committed {
                commit(&top).await;
            }
            if is_committed {
                // Git's own record of the earlier commit is not evidence of work.
                run_unconfined(&top, ["update-ref", "ORIG_HEAD", "HEAD"]).await.unwrap();
            }
            assert_eq!(tree.close(WorktreeCleanup::Unchanged).await, Ok(CleanupOutcome::Kept));
            let again = Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
            let left = again.close(WorktreeCleanup::Unchanged).await;
            assert_eq!(left, Ok(CleanupOutcome::Kept), "a later attempt keeps it as well");
        }
        assert_eq!(fs::read_to_string(repository.join("a/file")).unwrap(), "one\n");
    }

    #[tokio::test]
    async fn cleanup_follows_operator_setting() {
        let (guard, repository) = repository().await;
        let top = guard.path().join("tree");
        let tree = Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        assert_eq!(tree.close(WorktreeCleanup::Never).await, Ok(CleanupOutcome::Kept));
        assert!(top.exists());
        fs::write(top.join("a/file"), "two\n").unwrap();
        assert_eq!(tree.close(WorktreeCleanup::Always).await, Ok(CleanupOutcome::Removed));
        assert!(!top.exists());
        assert_eq!("unchanged".parse::<WorktreeCleanup>(), Ok(WorktreeCleanup::Unchanged));
        assert_eq!("always".parse::<WorktreeCleanup>(), Ok(WorktreeCleanup::Always));
        assert_eq!("never".parse::<WorktreeCleanup>(), Ok(WorktreeCleanup::Never));
        assert!("sometimes".parse::<WorktreeCleanup>().is_err());
    }

    #[tokio::test]
    async fn unfinished_worktree_is_recreated() {
        let (guard, repository) = repository().await;
        let top = guard.path().join("tree");
        Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        fs::write(top.with_extension("making"), "").unwrap();
        fs::remove_file(top.join("a/file")).unwrap();
        let tree = Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        assert!(top.join("a/file").exists() && !top.with_extension("making").exists());
        assert_eq!(
            tree.close(WorktreeCleanup::Unchanged).await,
            Ok(CleanupOutcome::Removed)
        );

        // Without a record, the content of a worktree is unknown.
        Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        for broken in ["half a rec", ""] {
            fs::write(top.with_extension("json"), broken).unwrap();
            assert!(Worktree::open(&repository, top.clone(), &[]).await.is_err());
        }
        fs::remove_file(top.with_extension("json")).unwrap();
        assert!(Worktree::open(&repository, top.clone(), &[]).await.is_err());
        assert!(top.join("a/file").exists());
    }

    #[tokio::test]
    async fn git_settings_planted_by_agent_are_ignored() {
        let (guard, repository) = repository().await;
        let (top, ran) = (guard.path().join("tree"), guard.path().join("ran"));
        let tree = Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        // A separate repository whose settings make git run a program.
        fs::remove_file(top.join(".git")).unwrap();
        run_unconfined(&top, ["init", "--quiet"]).await.unwrap();
        let filter = format!("touch {}; cat", ran.display());
        run_unconfined(&top, ["config", "filter.planted.clean", &filter])
            .await
            .unwrap();
        fs::write(top.join(".gitattributes"), "* filter=planted\n").unwrap();
        fs::write(top.join("a/file"), "two\n").unwrap();
        assert_eq!(tree.close(WorktreeCleanup::Unchanged).await, Ok(CleanupOutcome::Kept));
        let again = Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        assert_eq!(again.close(WorktreeCleanup::Unchanged).await, Ok(CleanupOutcome::Kept));
        assert_eq!(again.close(WorktreeCleanup::Always).await, Ok(CleanupOutcome::Removed));
        assert!(!ran.exists() && !top.exists());
    }

    #[tokio::test]
    async fn git_filter_of_repository_is_confined_without_secrets() {
        let (guard, repository) = repository().await;
        let (top, ran) = (guard.path().join("tree"), guard.path().join("ran"));
        let filter = format!("touch {}; env", ran.display());
        run_unconfined(&repository, ["config", "filter.planted.smudge", &filter])
            .await
            .unwrap();
        fs::create_dir_all(repository.join(".git/info")).unwrap();
        fs::write(repository.join(".git/info/attributes"), "* filter=planted\n").unwrap();
        Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        let environment = fs::read_to_string(top.join("a/file")).unwrap();
        assert!(environment.contains("PATH="), "the filter ran: {environment}");
        // Cargo sets these variables in tests.
        assert!(!environment.contains("CARGO_"), "{environment}");
        assert!(
            !ran.exists() || !confinement::is_possible().await,
            "the filter wrote outside of the worktree"
        );
    }

    #[tokio::test]
    async fn worktrees_of_other_threads_are_kept() {
        let (guard, repository) = repository().await;
        let others = guard.path().join("others");
        fs::create_dir(&others).unwrap();
        let hidden = [others.clone()];
        let open = async |top: &str| {
            let tree = Worktree::open(&repository, others.join(top), &hidden).await;
            tree.unwrap().unwrap()
        };
        let (one, two) = (open("one").await, open("two").await);
        assert_eq!(one.close(WorktreeCleanup::Always).await, Ok(CleanupOutcome::Removed));
        run_unconfined(&two.top, ["rev-parse", "HEAD"]).await.unwrap();
        assert_eq!(two.close(WorktreeCleanup::Unchanged).await, Ok(CleanupOutcome::Removed));
        let known = run_unconfined(&repository, ["worktree", "list", "--porcelain"])
            .await
            .unwrap();
        assert_eq!(
            known.matches("worktree ").count(),
            1,
            "git still lists a worktree: {known}"
        );
    }

    #[tokio::test]
    async fn checked_out_submodule_is_kept() {
        let (guard, repository) = repository().await;
        let head = run_unconfined(&repository, ["rev-parse", "HEAD"]).await.unwrap();
        let submodule = format!("160000,{head},module");
        let add = ["update-index", "--add", "--cacheinfo", &submodule];
        run_unconfined(&repository, add).await.unwrap();
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
        let commit = ["commit", "--quiet", "--message", "m"];
        run_unconfined(&repository, identity.into_iter().chain(commit))
            .await
            .unwrap();
        let top = guard.path().join("tree");
        let tree = Worktree::open(&repository, top.clone(), &[]).await.unwrap().unwrap();
        fs::write(top.join("module/new"), "work").unwrap();
        assert_eq!(tree.close(WorktreeCleanup::Unchanged).await, Ok(CleanupOutcome::Kept));
        fs::remove_file(top.join("module/new")).unwrap();
        assert_eq!(
            tree.close(WorktreeCleanup::Unchanged).await,
            Ok(CleanupOutcome::Removed)
        );
    }

    #[tokio::test]
    async fn directory_without_repository_gets_no_worktree() {
        let guard = tempfile::tempdir().unwrap();
        assert_eq!(
            Worktree::open(guard.path(), guard.path().join("t"), &[]).await,
            Ok(None)
        );
        let bare = guard.path().join("empty");
        fs::create_dir(&bare).unwrap();
        run_unconfined(&bare, ["init", "--quiet"]).await.unwrap();
        assert!(
            Worktree::open(&bare, guard.path().join("u"), &[]).await.is_err(),
            "the repository has no commit"
        );
        let broken = guard.path().join("broken/inside");
        fs::create_dir_all(&broken).unwrap();
        fs::write(guard.path().join("broken/.git"), "gitdir: /nowhere\n").unwrap();
        let why = Worktree::open(&broken, guard.path().join("v"), &[]).await.unwrap_err();
        assert!(why.contains("/nowhere"), "git's error text: {why}");
    }
}
