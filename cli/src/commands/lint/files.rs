//! Selects the files to check, determines their dialects and reads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{self, Path, PathBuf},
};

use registry_svc::domain::{
    diagnostic::{Diagnostic, Finding},
    family::NEVER_TEMPLATES,
    finding_kind::FindingKind,
    lint::{LintKind, MAX_BYTES},
    name::AgentType,
};

use crate::{
    error::{Error, Result},
    places,
};

/// Maximum number of directory entries. The registry skips larger directories.
const MAX_ENTRIES: usize = 2_000;
/// Template directories below a project's directories and below a home, in order of precedence.
const PLACES: &[(&str, LintKind)] = &[
    (places::ROLES, LintKind::Role),
    (places::PROFILES, LintKind::CodexAgent),
];
/// The first line of a graph template's preamble.
const GRAPH_OPENER: &[u8] = b"[template]";

/// The files to check, each once, in order of precedence and name.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The files with their dialects. `None` if the content determines the dialect.
    pub(super) files: Vec<(PathBuf, Option<LintKind>)>,
    /// Findings about directories and about files that were not read.
    pub(super) findings: Vec<Diagnostic>,
    /// The directories that were searched, for a result without files.
    pub(super) searched: Vec<PathBuf>,
    seen: BTreeSet<PathBuf>,
}

impl Files {
    /// Collects the templates of the project around a directory, and with `with_user` those below `home`.
    pub(super) fn of_places(start: &Path, home: Option<&Path>, with_user: bool) -> Self {
        let mut files = Self::default();
        let is_user = |directory: &Path| home.is_some_and(|home| same(home, directory));
        let project = places::project(start, home);
        for (folder, kind) in PLACES {
            for directory in project.iter().filter(|directory| !is_user(directory)) {
                files.directory(&directory.join(folder), Some(*kind));
            }
        }
        let repository = project.last().map_or(start, PathBuf::as_path);
        files.directory(&repository.join(places::GRAPHS), Some(LintKind::Graph));
        if let (Some(home), true) = (home, with_user) {
            for (folder, kind) in PLACES {
                files.directory(&home.join(folder), Some(*kind));
            }
        }
        files
    }

    /// Collects the files of the paths on the command line. A directory that contains no template directory is itself
    /// read as a template directory.
    ///
    /// # Errors
    ///
    /// Fails if a path does not exist.
    pub(super) fn named(paths: &[PathBuf], kind: Option<LintKind>) -> Result<Self> {
        let mut files = Self::default();
        for path in paths {
            let metadata = fs::metadata(path)
                .map_err(|error| Error::usage(format!("cannot check {}: {error}", path.display())))?;
            if !metadata.is_dir() {
                files.file(path.clone(), kind.or_else(|| of_place(path)));
                continue;
            }
            let found: Vec<_> = PLACES
                .iter()
                .chain(&[(places::GRAPHS, LintKind::Graph)])
                .map(|(folder, of_folder)| (path.join(folder), *of_folder))
                .filter(|(directory, _)| directory.is_dir())
                .collect();
            if found.is_empty() {
                files.directory(path, kind.or_else(|| of_directory(path)));
            }
            for (directory, of_folder) in found {
                files.directory(&directory, Some(kind.unwrap_or(of_folder)));
            }
        }
        Ok(files)
    }

    fn directory(&mut self, directory: &Path, kind: Option<LintKind>) {
        self.searched.push(directory.to_owned());
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            // The template directory does not exist.
            Err(_) if !directory.exists() => return,
            Err(error) => return self.note(directory, format!("the directory cannot be read: {error}")),
        };
        let mut names = Vec::new();
        for (count, entry) in entries.enumerate() {
            if count >= MAX_ENTRIES {
                let why = format!("the directory has over {MAX_ENTRIES} entries; none of its templates is used");
                return self.note(directory, why);
            }
            match entry {
                Ok(entry) => names.push(entry.file_name()),
                Err(error) => return self.note(directory, format!("the directory cannot be read: {error}")),
            }
        }
        names.sort();
        let paths = names
            .iter()
            .filter(|name| is_candidate(Path::new(name), kind))
            .map(|name| directory.join(name))
            // A directory with a template's name is not a template.
            .filter(|path| !path.is_dir())
            .collect::<Vec<_>>();
        if kind == Some(LintKind::Role) {
            self.names(&paths);
        }
        for path in paths {
            self.file(path, kind);
        }
        for folder in names.iter().map(|name| directory.join(name)) {
            let is_folder = fs::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_dir());
            // Only agent files of other programs may be in subdirectories. The path of a subdirectory identifies the
            // program.
            if is_folder && kind == Some(LintKind::Foreign) && of_directory(&folder) == kind {
                self.directory(&folder, kind);
            }
        }
    }

    /// Reports two files of one directory with the same name: the second one is never used.
    fn names(&mut self, paths: &[PathBuf]) {
        let mut taken: BTreeMap<AgentType, &Path> = BTreeMap::new();
        for path in paths {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let Ok(name) = AgentType::parse(&stem) else { continue };
            match taken.get(&name) {
                Some(first) => {
                    let message = format!("not used: {} has the same name \"{name}\"", first.display());
                    let finding = Finding::warning(FindingKind::DuplicateName, None, message)
                        .suggest("rename one of the two files");
                    self.findings.push(diagnostic(path, finding));
                }
                None => {
                    taken.insert(name, path);
                }
            }
        }
    }

    fn file(&mut self, path: PathBuf, kind: Option<LintKind>) {
        let identity = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if self.seen.insert(identity) {
            self.files.push((path, kind));
        }
    }

    fn note(&mut self, path: &Path, why: String) {
        self.findings
            .push(diagnostic(path, Finding::error(FindingKind::Unreadable, None, why)));
    }
}

/// Creates a diagnostic for a file or directory.
pub(super) fn diagnostic(path: &Path, finding: Finding) -> Diagnostic {
    Diagnostic {
        path: path.display().to_string(),
        dialect: None,
        finding,
    }
}

/// Reads a template, at most one byte more than the maximum size.
///
/// # Errors
///
/// Returns the reason why the file cannot be read. The registry rejects the file for the same reason.
pub(super) fn read(path: &Path) -> std::result::Result<Vec<u8>, Finding> {
    let refused = |why: String| Finding::error(FindingKind::Unreadable, None, why);
    let failed = |error: std::io::Error| refused(format!("cannot be read: {error}"));
    // Checked before opening: opening a pipe blocks until it has a writer.
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(refused("not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    // One byte more than the maximum, so that the content check detects the excess.
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// Replaces the content of a file atomically. A link stays a link.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let permissions = fs::metadata(&path)?.permissions();
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    fs::set_permissions(file.path(), permissions)?;
    file.persist(&path)?;
    Ok(())
}

/// Returns the dialect of a file by its directory, or `None` outside of the template directories.
fn of_place(path: &Path) -> Option<LintKind> {
    LintKind::of_path(&path::absolute(path).ok()?.display().to_string())
}

/// Returns the dialect of the files in a directory.
fn of_directory(directory: &Path) -> Option<LintKind> {
    // Programs use different file names.
    let names = ["x.md", "x.agent.md", "x.toml"];
    names.iter().find_map(|name| of_place(&directory.join(name)))
}

/// Guesses the dialect of a file outside of the template directories.
pub(super) fn guess(bytes: &[u8]) -> LintKind {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if text.trim_ascii_start().starts_with(GRAPH_OPENER) {
        LintKind::Graph
    } else {
        LintKind::Role
    }
}

fn is_candidate(name: &Path, kind: Option<LintKind>) -> bool {
    let is = |part: Option<&OsStr>, text: &str| part.is_some_and(|part| part.eq_ignore_ascii_case(text));
    let extension = name.extension();
    let fits = is(extension, "md") || (kind == Some(LintKind::Foreign) && is(extension, "toml"));
    fits && !NEVER_TEMPLATES.iter().any(|never| is(name.file_stem(), never))
}

/// Returns whether two paths refer to the same directory.
fn same(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(paths: &[&str]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            for path in paths {
                let path = directory.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
            Self(directory)
        }

        fn at(&self, path: &str) -> PathBuf {
            fs::canonicalize(self.0.path()).unwrap().join(path)
        }

        fn shown(&self, files: &Files) -> Vec<(String, Option<LintKind>)> {
            let base = self.at("");
            let name = |path: &Path| path.strip_prefix(&base).unwrap().display().to_string();
            files.files.iter().map(|(path, kind)| (name(path), *kind)).collect()
        }
    }

    #[test]
    fn project_directories_are_nearest_first() {
        let tree = Tree::new(&[
            "repo/.git/HEAD",
            "repo/.codex/.agents/worker.md",
            "repo/.codex/.agents/README.md",
            "repo/.codex/agents/helper.md",
            "repo/docs/templates/planner.md",
            "repo/a/.codex/.agents/worker.md",
            "repo/a/docs/templates/not-at-the-root.md",
            "home/.codex/.agents/mine.md",
            ".codex/.agents/outside.md",
        ]);
        let home = tree.at("home");
        let project = Files::of_places(&tree.at("repo/a"), Some(&home), false);
        let expected = [
            ("repo/a/.codex/.agents/worker.md", LintKind::Role),
            ("repo/.codex/.agents/worker.md", LintKind::Role),
            ("repo/.codex/agents/helper.md", LintKind::CodexAgent),
            ("repo/docs/templates/planner.md", LintKind::Graph),
        ]
        .map(|(path, kind)| (path.to_owned(), Some(kind)));
        assert_eq!(tree.shown(&project), expected);
        let with_user = Files::of_places(&tree.at("repo/a"), Some(&home), true);
        assert_eq!(tree.shown(&with_user).last().unwrap().0, "home/.codex/.agents/mine.md");
    }

    #[test]
    fn home_is_not_a_project() {
        let tree = Tree::new(&["home/.codex/.agents/mine.md", "home/project/file"]);
        let home = tree.at("home");
        assert!(
            tree.shown(&Files::of_places(&tree.at("home/project"), Some(&home), false))
                .is_empty()
        );
    }

    #[test]
    fn lint_accepts_projects_and_directories() {
        let tree = Tree::new(&[
            "repo/.codex/.agents/worker.md",
            "plain/one.md",
            "plain/two.txt",
            "theirs/.claude/agents/x.md",
            "theirs/.claude/agents/deep/no-agent.md",
            "theirs/.github/agents/x.agent.md",
            "theirs/.codex/agents/p.md",
            "theirs/docs/templates/g.md",
            "other/.opencode/agent/x.md",
            "other/.opencode/agent/deep/y.md",
        ]);
        let named = |path: &str| tree.shown(&Files::named(&[tree.at(path)], None).unwrap());
        assert_eq!(
            named("repo"),
            [("repo/.codex/.agents/worker.md".to_owned(), Some(LintKind::Role))]
        );
        assert_eq!(named("repo"), named("repo/.codex/.agents"));
        assert_eq!(named("plain"), [("plain/one.md".to_owned(), None)]);
        for (directory, file, kind) in [
            ("theirs/.claude/agents", "x.md", LintKind::Foreign),
            ("theirs/.github/agents", "x.agent.md", LintKind::Foreign),
            ("theirs/.codex/agents", "p.md", LintKind::CodexAgent),
            ("theirs/docs/templates", "g.md", LintKind::Graph),
        ] {
            assert_eq!(named(directory), [(format!("{directory}/{file}"), Some(kind))]);
        }
        let in_folders =
            ["x.md", "deep/y.md"].map(|name| (format!("other/.opencode/agent/{name}"), Some(LintKind::Foreign)));
        assert_eq!(named("other/.opencode/agent"), in_folders);
        assert!(Files::named(&[tree.at("nowhere")], None).is_err());
    }

    #[test]
    fn second_file_with_same_name_is_reported() {
        let tree = Tree::new(&["r/.codex/.agents/Worker.md", "r/.codex/.agents/worker.md"]);
        let files = Files::named(&[tree.at("r")], None).unwrap();
        // A case-insensitive file system has only one file.
        if files.files.len() == 2 {
            assert!(files.findings[0].finding.message.contains("the same name \"worker\""));
        }
    }

    #[test]
    fn lint_and_registry_reject_the_same_files() {
        let tree = Tree::new(&["a.md"]);
        assert_eq!(read(&tree.at("a.md")).unwrap(), b"x");
        assert!(read(&tree.at("")).is_err() && read(&tree.at("none")).is_err());
        fs::write(tree.at("large.md"), vec![b'x'; 2 * MAX_BYTES]).unwrap();
        assert_eq!(read(&tree.at("large.md")).unwrap().len(), MAX_BYTES + 1);
        assert_eq!(
            (guess(b"[template]\n"), guess(b"---\n")),
            (LintKind::Graph, LintKind::Role)
        );
    }
}
