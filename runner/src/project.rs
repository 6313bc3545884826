//! Paths of a project that agents must not change, and paths that agent programs must not load.
//!
//! A project can contain files that start programs: settings of agent programs, roles, and hooks of git. An agent that
//! may write them could run commands outside of its sandbox later. Two rules apply to every program:
//!
//! - The directories of roles, hooks and program settings are read-only to agents ([`Protection`]).
//! - The settings of a project that would start something in a program's own process are hidden from that program
//!   ([`existing_settings`]).

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _},
    path::{Component, Path, PathBuf},
};

use crate::{env::Environment, git, placeholders::Placeholders};

/// Directories with roles or settings of agent programs. They are read-only. Where they do not exist, an empty
/// directory takes their place.
pub(crate) const DIRECTORIES: &[&str] = &[
    ".codex",
    ".claude",
    ".opencode",
    ".gemini",
    ".github/agents",
    "docs/templates",
];
/// Other files and directories that start programs. They are read-only where they exist.
pub(crate) const EXISTING: &[&str] = &[
    ".agents",
    ".mcp.json",
    "opencode.json",
    "opencode.jsonc",
    ".vscode",
    ".devcontainer",
    ".husky",
    ".envrc",
];
/// Maximum size of a `.git` file that is read, in bytes.
const MAX_GIT_FILE_BYTES: u64 = 8 * 1024;

/// Returns the settings of a project that a program of that kind would load into its own process. The paths are
/// relative to the thread's directory and to each directory above it up to the repository's root.
pub(crate) fn settings_files(kind: &str) -> &'static [&'static str] {
    match kind {
        "codex" => &[
            ".codex/config.toml",
            ".codex/hooks.json",
            ".codex/hooks",
            ".codex/rules",
            ".codex/plugins",
            ".agents/plugins",
        ],
        "claude" => &[
            ".claude/settings.json",
            ".claude/settings.local.json",
            ".claude/hooks",
            ".claude/plugins",
            ".mcp.json",
        ],
        "opencode" => &[".opencode", "opencode.json", "opencode.jsonc"],
        "gemini" => &[".gemini"],
        _ => &[],
    }
}

/// Returns the option by which a program of that kind ignores these settings. [`existing_settings`] protects the
/// program even if the option fails.
pub(crate) fn ignore_option(kind: &str) -> &'static str {
    match kind {
        "codex" => "`trust_level = \"untrusted\"`",
        "claude" => "`--setting-sources ''`, `--strict-mcp-config`",
        "opencode" => "`OPENCODE_DISABLE_PROJECT_CONFIG`",
        "gemini" => "`ignoreLocalEnv` for `.env`; no switch for the rest",
        _ => "",
    }
}

/// Returns the directories in which programs look for settings of a project: the thread's own directory, and the
/// directories above it up to the root of the repository.
pub(crate) fn levels(directory: &Path) -> Vec<&Path> {
    let root = directory
        .ancestors()
        .position(|level| level.join(".git").symlink_metadata().is_ok());
    let levels = directory.ancestors();
    match root {
        Some(root) => levels.take(root + 1).collect(),
        None => levels.collect(),
    }
}

/// Returns the existing settings that a program of that kind would load.
pub(crate) fn existing_settings(kind: &str, directory: &Path) -> Vec<PathBuf> {
    let paths = levels(directory)
        .into_iter()
        .flat_map(|level| settings_files(kind).iter().map(move |name| level.join(name)));
    // A mount on a link does not cover the target of the link.
    paths.filter_map(|path| fs::canonicalize(path).ok()).collect()
}

/// Paths of a writable workspace that are read-only to its agent.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    /// Mounts in their order. A later mount may be below an earlier one.
    pub(crate) layers: Vec<Layer>,
    /// The directories of git that a commit writes.
    pub(crate) git: Vec<PathBuf>,
    /// Directories that exist only as mount points. They are removed with the last thread that needs them.
    pub(crate) placeholders: Placeholders,
    /// Paths that cannot be protected, and why.
    pub(crate) gaps: Vec<String>,
}

/// A mount over the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Bind(PathBuf),
    ReadOnly(PathBuf),
    /// An empty read-only directory.
    Nothing(PathBuf),
    /// Another file that replaces this one.
    Instead {
        path: PathBuf,
        shown: PathBuf,
    },
}

impl Layer {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Bind(path) | Self::ReadOnly(path) | Self::Nothing(path) | Self::Instead { path, .. } => path,
        }
    }
}

impl Protection {
    /// Returns the protection of a directory in which an agent may write. Creates the placeholders of directories that
    /// do not exist.
    pub(crate) async fn of(directory: &Path) -> Self {
        let mut protection = Self::default();
        for name in DIRECTORIES {
            protection.add(directory, Path::new(name), Absent::Create);
        }
        for name in EXISTING {
            protection.add(directory, Path::new(name), Absent::Skip);
        }
        let root = directory
            .ancestors()
            .find(|level| level.join(".git").symlink_metadata().is_ok());
        if let Some(root) = root {
            protection.add_repository(root, directory).await;
        }
        protection
    }

    /// Returns the protection of a docs directory in a project that is otherwise read-only. Roles in it stay read-only.
    pub(crate) fn of_docs(docs: &Path) -> Self {
        let mut protection = Self::default();
        if let (Some(root), Some(name)) = (docs.parent(), docs.file_name()) {
            protection.add(root, &Path::new(name).join("templates"), Absent::Create);
        }
        protection
    }

    /// Makes one path read-only. The directories between `root` and the path are mounted too: an agent could otherwise
    /// rename them and create others in their place.
    fn add(&mut self, root: &Path, name: &Path, absent: Absent) {
        let mut path = root.to_owned();
        let mut parts = name.components().peekable();
        while let Some(Component::Normal(part)) = parts.next() {
            path.push(part);
            let is_last = parts.peek().is_none();
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_symlink() => {
                    self.gaps
                        .push(format!("{} is a link, which its agent can replace", path.display()));
                    return;
                }
                Ok(found) if !is_last && !found.is_dir() => return,
                Ok(_) => {}
                Err(_) if absent == Absent::Skip => return,
                Err(_) => {}
            }
            let next = parts.peek().map(|part| part.as_os_str());
            if absent == Absent::Create
                && holds_nothing_but(&path, next)
                && let Err(error) = self.placeholders.hold(&path)
            {
                self.gaps
                    .push(format!("its agent can create {}: {error}", path.display()));
                return;
            }
            if !self.layers.iter().any(|known| known.path() == path) {
                let layer = if is_last { Layer::ReadOnly } else { Layer::Bind };
                self.layers.push(layer(path.clone()));
            }
        }
    }

    /// Lets the agent commit, without write access to the hooks and the settings of the repository, which start
    /// programs.
    async fn add_repository(&mut self, root: &Path, directory: &Path) {
        let dot_git = root.join(".git");
        let Some(repository) = Repository::of(&dot_git) else {
            // The repository is not usable. The agent must not turn it into a usable one.
            if root == directory {
                self.add(root, Path::new(".git"), Absent::Skip);
            }
            return;
        };
        let common = &repository.common;
        let own = common.join("hooks");
        if own.symlink_metadata().is_err() && fs::create_dir(&own).is_err() {
            return;
        }
        let is_linked = ["hooks", "config"].iter().any(|name| common.join(name).is_symlink());
        if is_linked {
            self.gaps.push(format!(
                "{} is read-only: its hooks or its settings are a link",
                common.display()
            ));
            self.layers.push(Layer::ReadOnly(common.clone()));
            return;
        }
        self.layers.push(Layer::Bind(common.clone()));
        for name in ["hooks", "config", "config.worktree", "modules", "worktrees"] {
            let path = common.join(name);
            if path.exists() {
                self.layers.push(Layer::ReadOnly(path));
            }
        }
        self.git.push(common.clone());
        if let Some(own) = &repository.worktree {
            self.layers.push(Layer::Bind(own.clone()));
            for name in ["commondir", "gitdir", "config.worktree"] {
                let path = own.join(name);
                if path.exists() {
                    self.layers.push(Layer::ReadOnly(path));
                }
            }
            self.git.push(own.clone());
            if root == directory {
                self.layers.push(Layer::ReadOnly(dot_git));
            }
        }
        // Tools such as Husky keep hooks in the workspace.
        if let Some(hooks) = hooks_path(common).await {
            let hooks = hooks.strip_prefix(root).map_or(hooks.clone(), Path::to_owned);
            if hooks.is_relative() && root == directory {
                self.add(root, &hooks, Absent::Create);
            }
        }
    }
}

/// Returns the directories of git that a commit writes, without the hooks and settings of the repository. If the
/// repository's data directory is in the workspace itself, returns this directory with its hooks and settings, which
/// are not protected from the agent.
pub(crate) fn written_by_commits(directory: &Path) -> Vec<PathBuf> {
    let mut levels = directory.ancestors();
    let repository = levels.find_map(|level| Repository::of(&level.join(".git")));
    let Some(Repository { common, worktree }) = repository else {
        return Vec::new();
    };
    if common.starts_with(directory) {
        return vec![common];
    }
    let shared = ["objects", "refs", "logs"].map(|name| common.join(name));
    shared.into_iter().chain(worktree).collect()
}

/// The handling of a path that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Create,
    Skip,
}

/// The directories of a git repository.
#[derive(Debug, PartialEq, Eq)]
struct Repository {
    common: PathBuf,
    /// The data directory of a linked worktree.
    worktree: Option<PathBuf>,
}

impl Repository {
    /// Returns the repository of a `.git`. An agent may have written a `.git` file that refers to any directory, so a
    /// worktree counts only if the repository itself lists it.
    fn of(dot_git: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(dot_git).ok()?;
        let repository = if found.is_dir() {
            Self {
                common: dot_git.to_owned(),
                worktree: None,
            }
        } else if found.is_file() {
            let text = short_text(dot_git)?;
            let named = dot_git.parent()?.join(text.trim().strip_prefix("gitdir:")?.trim());
            let own = fs::canonicalize(named).ok()?;
            let back = fs::canonicalize(short_text(&own.join("gitdir"))?.trim()).ok()?;
            let worktrees = own.parent()?;
            if back != fs::canonicalize(dot_git).ok()? || worktrees.file_name()? != "worktrees" {
                return None;
            }
            Self {
                common: worktrees.parent()?.to_owned(),
                worktree: Some(own),
            }
        } else {
            return None;
        };
        let is_there = |name: &str| repository.common.join(name).exists();
        ["HEAD", "config", "objects", "refs"]
            .into_iter()
            .all(is_there)
            .then_some(repository)
    }
}

/// Returns the directory of hooks that the settings of a repository name.
async fn hooks_path(common: &Path) -> Option<PathBuf> {
    let config = common.join("config");
    let args = ["config", "--file", config.to_str()?, "--get", "core.hooksPath"];
    let named = git::run_unconfined(common, args).await.ok()?;
    (!named.is_empty()).then(|| named.into())
}

/// Returns the variables with the author of a commit for git. Programs have their own home, without the settings of the
/// runner's user.
pub(crate) async fn identity(directory: &Path) -> Environment {
    let known = git::run_unconfined(directory, ["config", "--get-regexp", r"^user\.(name|email)$"]).await;
    let known = known.unwrap_or_default();
    let value = |key: &str, default: &str| {
        let mut lines = known.lines().filter_map(|line| line.split_once(' '));
        let found = lines.rfind(|(name, _)| *name == key).map(|(_, value)| value);
        found.filter(|value| !value.is_empty()).unwrap_or(default).to_owned()
    };
    let (name, email) = (
        value("user.name", "Troupe agent"),
        value("user.email", "agent@troupe.invalid"),
    );
    [
        ("GIT_AUTHOR_NAME", &name),
        ("GIT_AUTHOR_EMAIL", &email),
        ("GIT_COMMITTER_NAME", &name),
        ("GIT_COMMITTER_EMAIL", &email),
    ]
    .map(|(variable, value)| (variable.to_owned(), value.into()))
    .into()
}

fn short_text(path: &Path) -> Option<String> {
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(MAX_GIT_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns whether a directory does not exist, or contains nothing but the next part of a protected path.
fn holds_nothing_but(path: &Path, next: Option<&OsStr>) -> bool {
    match fs::read_dir(path) {
        Ok(entries) => entries
            .flatten()
            .all(|entry| Some(entry.file_name().as_os_str()) == next),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn protected_directories_are_removed_with_their_last_user() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join(".codex")).unwrap();
        fs::write(root.join(".codex/config.toml"), "").unwrap();
        let (first, second) = (Protection::of(root).await, Protection::of(root).await);
        for name in DIRECTORIES {
            assert!(root.join(name).is_dir(), "{name}");
            assert!(first.layers.contains(&Layer::ReadOnly(root.join(name))), "{name}");
        }
        assert!(
            first.layers.contains(&Layer::Bind(root.join("docs"))),
            "its parent cannot be renamed: {:?}",
            first.layers
        );
        drop(first);
        assert!(root.join("docs/templates").is_dir(), "the second thread needs it");
        drop(second);
        let left: Vec<_> = fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, [".codex"]);
        assert!(root.join(".codex/config.toml").exists());
    }

    #[tokio::test]
    async fn link_in_place_of_a_protected_directory_is_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        symlink("/etc", directory.path().join(".codex")).unwrap();
        let protection = Protection::of(directory.path()).await;
        assert!(protection.gaps[0].contains(".codex is a link"), "{:?}", protection.gaps);
        assert!(!protection.layers.iter().any(|layer| layer.path().ends_with(".codex")));
    }

    #[test]
    fn forged_git_file_opens_no_other_directory() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        let (victim, work) = (root.join("victim"), root.join("work"));
        for name in ["objects", "refs", "worktrees/w"] {
            fs::create_dir_all(victim.join(name)).unwrap();
        }
        fs::create_dir(&work).unwrap();
        for name in ["HEAD", "config"] {
            fs::write(victim.join(name), "").unwrap();
        }
        let dot_git = work.join(".git");
        fs::write(&dot_git, format!("gitdir: {}\n", victim.display())).unwrap();
        assert_eq!(Repository::of(&dot_git), None);
        let own = victim.join("worktrees/w");
        fs::write(&dot_git, format!("gitdir: {}\n", own.display())).unwrap();
        assert_eq!(Repository::of(&dot_git), None, "the repository does not name it");
        fs::write(own.join("gitdir"), format!("{}\n", dot_git.display())).unwrap();
        let known = Repository {
            common: victim,
            worktree: Some(own),
        };
        assert_eq!(Repository::of(&dot_git), Some(known));
    }

    #[test]
    fn settings_are_found_up_to_the_repository_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        let inner = root.join("repository/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir_all(root.join(".opencode")).unwrap();
        assert!(!existing_settings("opencode", &inner).is_empty());
        fs::create_dir_all(root.join("repository/.git")).unwrap();
        assert_eq!(
            existing_settings("opencode", &inner),
            [""; 0].map(PathBuf::from),
            "settings above the repository are not found"
        );
        let settings = root.join("repository/opencode.json");
        fs::write(&settings, "{}").unwrap();
        assert_eq!(existing_settings("opencode", &inner), [settings]);
        assert!(existing_settings("gemini", &inner).is_empty());
    }
}
