//! Resolves an agent's paths to paths in the workspace, or rejects them.
//!
//! First, all links are followed, and the result must be in the workspace. Then the path is opened component by
//! component from the workspace's root, and no component may be a link. A link that is created in between causes an
//! error. Therefore the opened file is the file for which the supervisor decided.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, mkdirat, open, openat},
    io::Errno,
};
use troupe_proto::reason::Reason;

use crate::tools::ToolFailure;

/// Flags for opening a directory on the path.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Flags for opening a file, in addition to the requested ones. A pipe must not block the runner.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// The mode of new directories. The umask applies.
const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o777);
/// The mode of new files. The umask applies.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);
/// The directory in which a thread in PLANNING mode may write.
const DOCS: &str = "docs";

/// How to handle a path that ends in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalLink {
    /// Use the target of the link.
    Followed,
    /// Use the link itself.
    Itself,
}

/// How to handle missing directories on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Fail,
    Make,
}

/// A path in a workspace. The file or directory may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The absolute path of the workspace, without links.
    root: PathBuf,
    /// The path relative to the root. It consists only of names, and none of them was a link when the path was
    /// resolved. Empty: the root itself.
    inside: PathBuf,
}

impl Place {
    /// Resolves a path, relative to the workspace's root or absolute.
    pub(super) fn find(workspace: &Path, asked: &str, ending: FinalLink) -> Result<Self, ToolFailure> {
        let root = workspace.canonicalize().map_err(|error| failure(".", &error))?;
        let path = root.join(asked);
        let real = match (ending, path.parent(), path.file_name()) {
            (FinalLink::Itself, Some(parent), Some(name)) => follow(parent).map(|parent| parent.join(name)),
            (FinalLink::Itself | FinalLink::Followed, _, _) => follow(&path),
        };
        let real = real.map_err(|error| failure(asked, &error))?;
        match real.strip_prefix(&root) {
            Ok(inside) => Ok(Self {
                inside: inside.to_owned(),
                root,
            }),
            Err(_) => Err(escapes(asked)),
        }
    }

    /// Returns the path relative to the root, for display and for the supervisor. `.`: the root itself.
    pub(super) fn inside(&self) -> String {
        if self.inside.as_os_str().is_empty() {
            ".".to_owned()
        } else {
            self.inside.to_string_lossy().into_owned()
        }
    }

    pub(super) fn is_in_docs(&self) -> bool {
        self.inside.starts_with(DOCS)
    }

    /// Returns the absolute path, for APIs that need one.
    pub(super) fn path(&self) -> PathBuf {
        self.root.join(&self.inside)
    }

    pub(super) fn open_directory(&self) -> io::Result<OwnedFd> {
        self.walk(&self.inside, Missing::Fail)
    }

    /// Opens a regular file. Any other kind of file is an error.
    pub(super) fn open_file(&self, wanted: OFlags, missing: Missing) -> io::Result<File> {
        let (directory, name) = self.entry(missing)?;
        let file = File::from(openat(&directory, name, wanted | FILE, NEW_FILE)?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::other("it is not a regular file"))
        }
    }

    /// Opens the parent directory, and returns it with the name of the entry.
    pub(super) fn entry(&self, missing: Missing) -> io::Result<(OwnedFd, &Path)> {
        match (self.inside.parent(), self.inside.file_name()) {
            (Some(parent), Some(name)) => Ok((self.walk(parent, missing)?, Path::new(name))),
            (_, None) | (None, _) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn walk(&self, way: &Path, missing: Missing) -> io::Result<OwnedFd> {
        let mut directory = open(&self.root, DIRECTORY, Mode::empty())?;
        for name in way {
            let next = match openat(&directory, name, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) if missing == Missing::Make => {
                    match mkdirat(&directory, name, NEW_DIRECTORY) {
                        // Another process may have created it.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    openat(&directory, name, DIRECTORY, Mode::empty())
                }
                opened => opened,
            };
            directory = next?;
        }
        Ok(directory)
    }
}

/// Returns the target of a path. Components at its end that do not exist are kept unchanged.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut known = path;
    let mut missing = Vec::new();
    loop {
        match known.canonicalize() {
            Ok(real) => return Ok(missing.iter().rev().fold(real, |real, name| real.join(name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match (known.parent(), known.file_name()) {
                (Some(parent), Some(name)) => {
                    missing.push(name);
                    known = parent;
                }
                // `..` after a missing directory is invalid.
                (_, None) | (None, _) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

/// Returns the target of an absolute path, relative to the workspace if it is in the workspace. Returns the path itself
/// if it cannot be resolved.
pub(super) fn followed(workspace: &Path, asked: &str) -> String {
    let path = Path::new(asked);
    if !path.is_absolute() {
        return asked.to_owned();
    }
    let (Ok(root), Ok(real)) = (workspace.canonicalize(), follow(path)) else {
        return asked.to_owned();
    };
    let place = match real.strip_prefix(&root) {
        Ok(inside) => workspace.join(inside),
        Err(_) => real,
    };
    place.to_string_lossy().into_owned()
}

fn escapes(asked: &str) -> ToolFailure {
    ToolFailure::new(Reason::ToolDenied, format!("Path escapes repo root: {asked}"))
}

/// Returns the failure for a path. If a link is found while the path is opened, it was created after the check, or its
/// target does not exist.
pub(super) fn failure(asked: &str, error: &io::Error) -> ToolFailure {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return escapes(asked);
    }
    let text = format!("{asked}: {error}");
    if error.kind() == io::ErrorKind::NotFound {
        ToolFailure::new(Reason::NotFound, text)
    } else {
        ToolFailure::local(text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process::Command};

    use serde_json::json;

    use super::*;

    /// Creates a directory with a workspace `ws` (`a`, `docs/b`), a private directory next to it, and links.
    fn fixture() -> tempfile::TempDir {
        let outer = tempfile::tempdir().unwrap();
        let at = |name: &str| outer.path().join(name);
        fs::create_dir_all(at("ws/docs")).unwrap();
        fs::create_dir(at("ws-secret")).unwrap();
        for file in ["ws/a", "ws/docs/b", "ws-secret/key"] {
            fs::write(at(file), file).unwrap();
        }
        for (target, link) in [
            ("../ws-secret", "ws/out"),
            ("../ws-secret/key", "ws/key"),
            ("../ws-secret/new", "ws/dangling"),
            ("docs", "ws/manual"),
            ("a", "ws/same"),
            ("loop", "ws/loop"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        symlink("ws", at("nickname")).unwrap();
        outer
    }

    fn find(outer: &tempfile::TempDir, asked: &str, ending: FinalLink) -> Result<String, String> {
        Place::find(&outer.path().join("ws"), asked, ending)
            .map(|place| place.inside())
            .map_err(|failure| failure.to_json()["error"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn paths_in_workspace_are_resolved() {
        let outer = fixture();
        for (asked, expected) in [
            (".", "."),
            ("", "."),
            ("a", "a"),
            ("./docs/../a", "a"),
            ("docs//b", "docs/b"),
            ("manual/b", "docs/b"),
            ("manual/new/c", "docs/new/c"),
            ("same", "a"),
            ("new/c", "new/c"),
            ("../ws/a", "a"),
        ] {
            assert_eq!(
                find(&outer, asked, FinalLink::Followed).as_deref(),
                Ok(expected),
                "{asked}"
            );
        }
        for absolute in ["ws/a", "nickname/a"] {
            let asked = outer.path().join(absolute);
            assert_eq!(
                find(&outer, asked.to_str().unwrap(), FinalLink::Followed).as_deref(),
                Ok("a")
            );
        }
        assert_eq!(
            find(&outer, "manual/same", FinalLink::Itself).as_deref(),
            Ok("docs/same")
        );
    }

    #[test]
    fn final_link_is_not_followed_on_request() {
        let outer = fixture();
        for link in ["same", "key", "out", "dangling"] {
            assert_eq!(find(&outer, link, FinalLink::Itself).as_deref(), Ok(link));
        }
        let through = find(&outer, "out/key", FinalLink::Itself);
        assert_eq!(through, Err("Path escapes repo root: out/key".to_owned()));
    }

    #[test]
    fn paths_outside_workspace_are_refused() {
        let outer = fixture();
        let absolute = outer.path().join("ws-secret/key");
        for asked in [
            "..",
            "../ws-secret/key",
            "../no-such-file",
            "docs/../../ws-secret",
            "/etc/passwd",
            "/",
            absolute.to_str().unwrap(),
            "out",
            "out/key",
            "out/new",
            "key",
            "manual/../../ws-secret/key",
        ] {
            let expected = Err(format!("Path escapes repo root: {asked}"));
            assert_eq!(find(&outer, asked, FinalLink::Followed), expected);
        }
        assert!(find(&outer, "missing/../../ws-secret/key", FinalLink::Followed).is_err());
        assert!(
            find(&outer, "a/b", FinalLink::Followed).is_err(),
            "a is not a directory"
        );
        assert!(find(&outer, "a\0b", FinalLink::Followed).is_err());
    }

    #[test]
    fn open_does_not_follow_links_in_workspace() {
        let outer = fixture();
        let place = |inside: &str| Place {
            root: outer.path().canonicalize().unwrap().join("ws"),
            inside: inside.into(),
        };
        // As if the links had been created after the paths were resolved.
        for inside in ["key", "dangling", "same", "loop"] {
            for wanted in [OFlags::RDONLY, OFlags::WRONLY | OFlags::CREATE] {
                let error = place(inside).open_file(wanted, Missing::Make).unwrap_err();
                let refusal = failure(inside, &error).to_json();
                assert_eq!(refusal["error"], json!(format!("Path escapes repo root: {inside}")));
            }
        }
        for inside in ["out/key", "out/new", "manual/b"] {
            assert!(
                place(inside).open_file(OFlags::RDONLY, Missing::Make).is_err(),
                "{inside}"
            );
        }
        assert!(place("out").open_directory().is_err());
        assert!(!outer.path().join("ws-secret/new").exists());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let outer = fixture();
        let workspace = outer.path().join("ws");
        let made = Command::new("mkfifo").arg(workspace.join("pipe")).status().unwrap();
        assert!(made.success());
        for asked in [".", "docs", "pipe"] {
            let place = Place::find(&workspace, asked, FinalLink::Followed).unwrap();
            assert!(place.open_file(OFlags::RDONLY, Missing::Fail).is_err(), "{asked}");
        }
    }
}
