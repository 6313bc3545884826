//! Resolves a path one name at a time, as the operating system does.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Component, Path, PathBuf},
};

/// Maximum number of links followed in one path, as in the operating system.
const MAX_LINKS: usize = 40;

/// Resolves a path from a canonical directory. Returns the canonical path, or `None` if the path does not exist. Before
/// a name is looked up, `passes` receives the canonical path of its directory and the name.
pub(super) fn resolve(from: &Path, path: &Path, passes: &mut impl FnMut(&Path, &OsStr)) -> Option<PathBuf> {
    let mut real = from.to_owned();
    let mut ahead = Vec::new();
    let mut links = 0;
    push(&mut ahead, path);
    while let Some(step) = ahead.pop() {
        match Path::new(&step).components().next() {
            Some(Component::RootDir) => real = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                real.pop();
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
            Some(Component::Normal(name)) => {
                passes(&real, name);
                let next = real.join(name);
                let metadata = fs::symlink_metadata(&next).ok()?;
                if metadata.is_symlink() {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    push(&mut ahead, &fs::read_link(&next).ok()?);
                } else if metadata.is_dir() || ahead.is_empty() {
                    real = next;
                } else {
                    return None;
                }
            }
        }
    }
    Some(real)
}

/// Adds the components of a path before the remaining components.
fn push(ahead: &mut Vec<OsString>, path: &Path) {
    let steps = path.components().rev();
    ahead.extend(steps.map(|step| step.as_os_str().to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::temp_tree::TempTree;

    /// Returns the resolved path and the names that were looked up, relative to the base.
    fn passed(base: &Path, path: &str) -> (Option<PathBuf>, Vec<PathBuf>) {
        let relative = |path: &Path| path.strip_prefix(base).unwrap().to_owned();
        let mut steps = Vec::new();
        let end = resolve(base, Path::new(path), &mut |directory: &Path, name: &OsStr| {
            steps.push(relative(&directory.join(name)));
        });
        (end.as_deref().map(relative), steps)
    }

    #[test]
    fn links_and_missing_names_are_reported() {
        let tree = TempTree::new(&["a/b"]);
        tree.write("a/file", "");
        tree.link("b/../file", "a/link");
        tree.link("a", "directory");
        tree.link("round", "round");
        for (path, end, steps) in [
            ("a/b", Some("a/b"), &["a", "a/b"][..]),
            (
                "directory/link",
                Some("a/file"),
                &["directory", "a", "a/link", "a/b", "a/file"][..],
            ),
            ("a/none/more", None, &["a", "a/none"][..]),
            ("a/file/more", None, &["a", "a/file"][..]),
        ] {
            let (found, passed) = passed(&tree.base, path);
            assert_eq!(found.as_deref(), end.map(Path::new), "{path}");
            assert_eq!(passed, steps.iter().map(PathBuf::from).collect::<Vec<_>>(), "{path}");
        }
        assert_eq!(passed(&tree.base, "round").0, None);
    }

    #[test]
    fn absolute_link_starts_at_root() {
        let tree = TempTree::new(&[]);
        tree.link(&tree.base, "link");
        let mut first = Vec::new();
        let end = resolve(&tree.base, Path::new("link"), &mut |directory: &Path, _: &OsStr| {
            first.push(directory.to_owned());
        });
        assert_eq!(end.as_ref(), Some(&tree.base));
        assert_eq!(first[..2], [tree.base, PathBuf::from("/")]);
    }
}
