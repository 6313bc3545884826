//! Determines the changes of a turn in its workspace, by commands and by tools, from the files before and after the
//! turn.
//!
//! Git stores and compares the files in the runner's own repository outside the workspace. The index and the objects of
//! the workspace's repository are not changed, and its settings, which could start programs, do not apply. Files that
//! `.gitignore` excludes, large files and repositories within the workspace are omitted.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::timeout};
use troupe_proto::common::v1::Sandbox;

use super::changes::MAX_DIFF_BYTES;
use crate::{
    agent::LaunchSpec,
    env::{Environment, plain},
    process_spec::ProcessSpec,
    subprocess::{self, Limits},
};

/// Time limit of a snapshot or a comparison.
const TIME: Duration = Duration::from_secs(10);
/// Maximum number of files that one snapshot adds.
const MAX_FILES: usize = 20_000;
/// Maximum size of the files that one snapshot adds, in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum size of all snapshots before an empty repository replaces the current one, in bytes.
const MAX_TOTAL_BYTES: u64 = 2 * MAX_BYTES;
/// Maximum size of a file that is compared, in bytes.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Maximum size of Git's file lists, in bytes.
const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of file names in a diff that is too large to be shown.
const MAX_NAMED: usize = 64;
/// The file with the list of paths for Git.
const PATHS: &str = "troupe-paths";
/// The variable with the path of that file.
const PATHS_VARIABLE: &str = "TROUPE_PATHS";
/// Settings that override all others.
const SETTINGS: [&str; 5] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.autocrlf=false",
    "core.looseCompression=1",
];

/// The snapshots of one attempt's workspace.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// The repository. It exists after the first snapshot.
    store: PathBuf,
    root: PathBuf,
    /// Directories and files that snapshots must not read.
    hidden: Vec<PathBuf>,
    latest: Option<Snapshot>,
    added_bytes: u64,
    /// The reason why snapshots are disabled after a failure: the next one would fail for the same reason.
    failed: Option<String>,
}

/// All files of a workspace at one time, as the id of a Git tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(String);

/// The difference between two snapshots.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The changed files, relative to the workspace.
    pub(crate) names: BTreeSet<String>,
    pub(crate) diff: String,
}

impl Snapshots {
    /// Returns the snapshots of a thread that may write in a directory. `None`: the thread may not write, or has only
    /// its scratch directory.
    pub(crate) fn of(launch: &LaunchSpec) -> Option<Self> {
        let root = launch.working_directory.as_ref()?;
        match launch.resolved.sandbox() {
            Sandbox::WorkspaceWrite | Sandbox::FullAccess | Sandbox::Unspecified => {}
            Sandbox::ReadOnly => return None,
        }
        // The repository is next to the scratch directory and not in it, because the agent may write to the scratch
        // directory.
        let mut store = launch.scratch.clone().into_os_string();
        store.push(".snapshots");
        Some(Self {
            store: store.into(),
            root: root.clone(),
            hidden: launch.hidden.clone(),
            latest: None,
            added_bytes: 0,
            failed: None,
        })
    }

    /// Returns the directory to remove after the attempt.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Takes a snapshot of the workspace before a turn. `None`: snapshots are disabled.
    pub(crate) async fn before(&mut self) -> Option<Snapshot> {
        if self.added_bytes > MAX_TOTAL_BYTES {
            self.latest = None;
            self.added_bytes = 0;
            // Files that could not be removed are reused.
            let _ = tokio::fs::remove_dir_all(&self.store).await;
        }
        self.take().await.ok()
    }

    /// Returns the difference between a snapshot and the current workspace.
    ///
    /// # Errors
    ///
    /// The reason why the difference is not known.
    pub(crate) async fn since(&mut self, before: Option<Snapshot>) -> Result<Difference, String> {
        let now = self.take().await?;
        let Some(before) = before else {
            return Err("the workspace was not compared when the turn began".to_owned());
        };
        timeout(TIME, self.compare(&before, &now))
            .await
            .unwrap_or_else(|_| Err(format!("comparing the workspace took over {TIME:?}")))
    }

    async fn take(&mut self) -> Result<Snapshot, String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let taken = timeout(TIME, self.take_now())
            .await
            .unwrap_or_else(|_| Err(format!("reading the workspace took over {TIME:?}")));
        match &taken {
            Ok(snapshot) => self.latest = Some(snapshot.clone()),
            Err(why) => {
                tracing::info!(root = %self.root.display(), why, "diffs of turns lack changes made by commands");
                self.failed = Some(why.clone());
            }
        }
        taken
    }

    async fn take_now(&mut self) -> Result<Snapshot, String> {
        if self.latest.is_none() {
            tokio::fs::create_dir_all(&self.store)
                .await
                .map_err(|error| format!("cannot create {}: {error}", self.store.display()))?;
            let init = ["init", "--quiet", "--bare", "--template="].map(OsStr::new);
            let init = init.into_iter().chain([self.store.as_os_str()]);
            run(
                "git".into(),
                init.map(OsStr::to_owned).collect(),
                &self.store,
                plain_environment(),
            )
            .await?;
        }
        let list = [
            "ls-files",
            "-z",
            "--others",
            "--modified",
            "--deleted",
            "--exclude-standard",
        ];
        let listed = self.git(list).await?;
        let (root, hidden, file) = (self.root.clone(), self.hidden.clone(), self.store.join(PATHS));
        let changed = spawn_blocking(move || write_changed_paths(&root, &hidden, &listed, &file)).await;
        let changed = changed.map_err(|defect| defect.to_string())??;
        match (&self.latest, changed.files) {
            (Some(latest), 0) => return Ok(latest.clone()),
            (_, 0) => {}
            (_, _) => {
                self.added_bytes += changed.bytes;
                self.update_index().await?;
            }
        }
        let tree = self.git(["write-tree"]).await?;
        Ok(Snapshot(String::from_utf8_lossy(&tree).trim().to_owned()))
    }

    async fn compare(&self, before: &Snapshot, now: &Snapshot) -> Result<Difference, String> {
        if before == now {
            return Ok(Difference::default());
        }
        let trees = [before.0.as_str(), now.0.as_str()];
        let names = ["diff-tree", "-r", "-z", "--name-only", "--no-renames"];
        let names = self.git(names.into_iter().chain(trees)).await?;
        let names: BTreeSet<String> = names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        let patch = [
            "diff-tree",
            "-r",
            "-p",
            "--no-renames",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
        ];
        let diff = match self.git(patch.into_iter().chain(trees)).await {
            Ok(diff) if diff.len() <= MAX_DIFF_BYTES => String::from_utf8_lossy(&diff).into_owned(),
            Ok(_) | Err(_) => {
                let some: Vec<&str> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
                format!(
                    "[the changes of {} files are too large to be shown: {}]\n",
                    names.len(),
                    some.join(", ")
                )
            }
        };
        Ok(Difference { names, diff })
    }

    /// Makes Git read the files that are listed in [`PATHS`].
    async fn update_index(&self) -> Result<(), String> {
        let shell = format!("exec git \"$@\" < \"${PATHS_VARIABLE}\"");
        let mut args: Vec<OsString> = ["-c", &shell, "sh"].map(OsString::from).into();
        args.extend(settings());
        args.extend(["update-index", "-z", "--add", "--remove", "--replace", "--stdin"].map(OsString::from));
        let mut environment = self.environment();
        environment.insert(PATHS_VARIABLE.to_owned(), self.store.join(PATHS).into());
        run("/bin/sh".into(), args, &self.root, environment).await?;
        Ok(())
    }

    async fn git(&self, args: impl IntoIterator<Item = &str>) -> Result<Vec<u8>, String> {
        let args = settings().into_iter().chain(args.into_iter().map(OsString::from));
        run("git".into(), args.collect(), &self.root, self.environment()).await
    }

    fn environment(&self) -> Environment {
        let mut environment = plain_environment();
        environment.insert("GIT_DIR".to_owned(), self.store.clone().into());
        environment.insert("GIT_WORK_TREE".to_owned(), self.root.clone().into());
        environment
    }
}

/// The number and size of the files that Git must read again.
struct Changed {
    files: usize,
    bytes: u64,
}

/// Writes the listed files that Git must read to a file.
fn write_changed_paths(root: &Path, hidden: &[PathBuf], listed: &[u8], file: &Path) -> Result<Changed, String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let real_root = real(root);
    let hidden: Vec<PathBuf> = hidden
        .iter()
        .filter_map(|path| real(path).strip_prefix(&real_root).map(Path::to_owned).ok())
        .filter(|inside| !inside.as_os_str().is_empty())
        .collect();
    let mut names: BTreeSet<&[u8]> = BTreeSet::new();
    let mut bytes = 0;
    // A repository within the workspace is listed as a directory.
    let listed = listed.split(|byte| *byte == 0);
    for name in listed.filter(|name| !name.is_empty() && !name.ends_with(b"/")) {
        let path = Path::new(OsStr::from_bytes(name));
        if hidden.iter().any(|hidden| path.starts_with(hidden)) {
            continue;
        }
        let size = match fs::symlink_metadata(root.join(path)) {
            Ok(metadata) if metadata.is_dir() || metadata.len() > MAX_FILE_BYTES => continue,
            Ok(metadata) => metadata.len(),
            // The file no longer exists, or a directory has replaced a file, or a file has replaced a directory.
            Err(_) => 0,
        };
        if names.insert(name) {
            bytes += size;
        }
    }
    if names.len() > MAX_FILES {
        return Err(format!(
            "the workspace has {} files to compare; at most {MAX_FILES} are",
            names.len()
        ));
    }
    if bytes > MAX_BYTES {
        return Err(format!(
            "the workspace has {bytes} bytes to compare; at most {MAX_BYTES} are"
        ));
    }
    let files = names.len();
    let mut paths = Vec::new();
    for name in names {
        paths.extend_from_slice(name);
        paths.push(0);
    }
    fs::write(file, paths).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(Changed { files, bytes })
}

fn settings() -> Vec<OsString> {
    let settings = SETTINGS.iter().flat_map(|setting| ["-c", *setting]);
    settings.map(OsString::from).collect()
}

/// Returns an environment without the settings of a user or of the machine.
fn plain_environment() -> Environment {
    let mut environment = plain(|name| std::env::var_os(name));
    let rules = [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ];
    environment.extend(rules.map(|(name, value)| (name.to_owned(), OsString::from(value))));
    environment
}

async fn run(
    command: PathBuf,
    args: Vec<OsString>,
    directory: &Path,
    environment: Environment,
) -> Result<Vec<u8>, String> {
    let process = ProcessSpec::new(command, args, directory, environment);
    let limits = Limits {
        time: TIME,
        output: MAX_LIST_BYTES,
    };
    subprocess::output_of("git", process, limits).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    fn snapshots(outer: &Path) -> Snapshots {
        let root = outer.join("ws");
        fs::create_dir_all(&root).unwrap();
        Snapshots {
            store: outer.join("store"),
            root,
            hidden: vec![outer.join("ws/hidden")],
            latest: None,
            added_bytes: 0,
            failed: None,
        }
    }

    fn shell(root: &Path, script: &str) {
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(root)
            .status()
            .unwrap();
        assert!(done.success(), "{script}");
    }

    #[tokio::test]
    async fn changes_by_commands_are_in_the_difference() {
        let outer = tempfile::tempdir().unwrap();
        let mut snapshots = snapshots(outer.path());
        let root = snapshots.root.clone();
        shell(
            &root,
            "mkdir hidden; echo ignored > .gitignore; echo one > kept; echo one > changed; echo one > deleted",
        );
        for _turn in 0..2 {
            let before = snapshots.before().await;
            assert_eq!(
                snapshots.since(before).await,
                Ok(Difference::default()),
                "nothing has changed"
            );
        }
        let before = snapshots.before().await;
        shell(
            &root,
            "echo two > changed; rm deleted; mkdir d; echo x > 'd/new é.txt'; echo x > ignored; echo x > hidden/token",
        );
        let found = snapshots.since(before).await.unwrap();
        assert_eq!(
            found.names,
            ["changed", "deleted", "d/new é.txt"].map(str::to_owned).into()
        );
        for line in ["-one", "+two", "+++ b/d/new é.txt\t", "+x", "deleted file mode 100644"] {
            assert!(
                found.diff.lines().any(|shown| shown == line),
                "{line:?} in {}",
                found.diff
            );
        }
        assert!(
            !found.diff.contains("token") && !found.diff.contains("ignored"),
            "{}",
            found.diff
        );
    }

    /// The workspace's settings may name programs, and its owner's index may contain work.
    #[tokio::test]
    async fn repository_of_the_workspace_is_not_used() {
        let outer = tempfile::tempdir().unwrap();
        let mut snapshots = snapshots(outer.path());
        let root = snapshots.root.clone();
        shell(
            &root,
            "git init -q .; echo one > a; echo '* filter=evil diff=evil' > .gitattributes; git add a; \
             git config filter.evil.clean 'touch ../ran; cat'; git config diff.evil.textconv 'touch ../ran; cat'; \
             git config core.fsmonitor 'touch ../ran'; mkdir inner; cd inner; git init -q .; echo x > file",
        );
        let index = fs::read(root.join(".git/index")).unwrap();
        let before = snapshots.before().await;
        shell(&root, "echo two > a; echo y > inner/file");
        let found = snapshots.since(before).await.unwrap();
        assert_eq!(found.names, ["a"].map(str::to_owned).into());
        assert!(found.diff.contains("+two"), "{}", found.diff);
        assert_eq!(fs::read(root.join(".git/index")).unwrap(), index);
        assert!(!outer.path().join("ran").exists(), "a program of the repository ran");
    }

    #[tokio::test]
    async fn workspace_with_too_many_files_is_not_compared() {
        let outer = tempfile::tempdir().unwrap();
        let mut snapshots = snapshots(outer.path());
        for number in 0..=MAX_FILES {
            fs::File::create(snapshots.root.join(number.to_string())).unwrap();
        }
        assert_eq!(snapshots.before().await, None);
        let why = snapshots.since(None).await.unwrap_err();
        assert_eq!(why, "the workspace has 20001 files to compare; at most 20000 are");
    }
}
