//! Resolution of a working directory to the directories of its project.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use crate::{domain::error::RegistryError, source::tracker::Scan};

/// The entry that marks the root of a repository.
const REPOSITORY: &str = ".git";

/// Maximum number of links in a dangling path, as on Linux.
const MAX_LINKS: u8 = 40;

/// The directories of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Project {
    /// The directories from the working directory to the top, nearest first. Canonical, and not empty.
    pub(crate) directories: Vec<PathBuf>,
    /// The last of the directories: the repository's root, or the workspace root without a repository. No link of the
    /// project may leave it.
    pub(crate) top: PathBuf,
}

/// Returns the project of a working directory: the directory and each parent up to the first that contains `.git` (a
/// directory or a file), but never beyond the workspace root. `scan` observes every path that determines the
/// result; without it the result is read once and not cached.
///
/// # Errors
///
/// [`RegistryError::CwdRelative`], [`RegistryError::CwdNotFound`]; [`RegistryError::CwdOutsideRoots`], checked after
/// links are followed; [`RegistryError::CwdGoesUp`], checked before any disk access.
pub(crate) fn project(cwd: &str, roots: &[PathBuf], mut scan: Option<&mut Scan<'_>>) -> Result<Project, RegistryError> {
    if !Path::new(cwd).is_absolute() {
        return Err(RegistryError::CwdRelative { cwd: cwd.to_owned() });
    }
    if Path::new(cwd).components().any(|part| part == Component::ParentDir) {
        return Err(parent_component_error(cwd, roots));
    }
    if let Some(scan) = &mut scan {
        scan.observe_path(Path::new(cwd));
    }
    let start = fs::canonicalize(cwd).ok().filter(|path| path.is_dir());
    let Some(start) = start else {
        return Err(not_found_error(cwd, roots));
    };
    // If roots are nested, the walk ends at the outermost one.
    let root = roots
        .iter()
        .filter(|root| start.starts_with(root))
        .min_by_key(|root| root.components().count());
    let Some(root) = root else {
        return Err(RegistryError::CwdOutsideRoots { cwd: cwd.to_owned() });
    };
    let mut directories = Vec::new();
    for directory in start.ancestors() {
        directories.push(directory.to_owned());
        if let Some(scan) = &mut scan {
            scan.observe_entry(directory, REPOSITORY);
        }
        if fs::symlink_metadata(directory.join(REPOSITORY)).is_ok() {
            let top = directory.to_owned();
            return Ok(Project { directories, top });
        }
        if directory == root {
            break;
        }
    }
    let top = root.clone();
    Ok(Project { directories, top })
}

/// Returns the error for a path with `..`. The path is judged lexically. Resolving it would reveal whether the
/// directories that it names outside the roots exist.
fn parent_component_error(cwd: &str, roots: &[PathBuf]) -> RegistryError {
    let is_inside = is_inside(&resolve_lexically(Path::new(cwd)), roots);
    let cwd = cwd.to_owned();
    if is_inside {
        RegistryError::CwdGoesUp { cwd }
    } else {
        RegistryError::CwdOutsideRoots { cwd }
    }
}

/// Returns the error for a directory that does not exist. For a path outside the roots, the error does not reveal
/// whether the directory exists.
fn not_found_error(cwd: &str, roots: &[PathBuf]) -> RegistryError {
    let ends_inside = ends_inside(Path::new(cwd), roots, MAX_LINKS);
    let cwd = cwd.to_owned();
    if ends_inside {
        RegistryError::CwdNotFound { cwd }
    } else {
        RegistryError::CwdOutsideRoots { cwd }
    }
}

/// Returns whether a nonexistent path would be inside the roots. The longest existing part of the path decides. If that
/// part is a dangling link, the target of the link must be inside the roots, first lexically and then by this same
/// rule.
fn ends_inside(path: &Path, roots: &[PathBuf], links: u8) -> bool {
    let Some(found) = path.ancestors().find(|path| fs::symlink_metadata(path).is_ok()) else {
        return false;
    };
    if let Ok(real) = fs::canonicalize(found) {
        return is_inside(&real, roots);
    }
    let parent = found.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let (Some(parent), Ok(target), Some(links)) = (parent, fs::read_link(found), links.checked_sub(1)) else {
        return false;
    };
    let target = resolve_lexically(&parent.join(target));
    is_inside(&target, roots) && ends_inside(&target, roots, links)
}

/// Resolves a path lexically, as if none of its components were a link.
fn resolve_lexically(path: &Path) -> PathBuf {
    let mut end = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                end.pop();
            }
            part => end.push(part),
        }
    }
    end
}

fn is_inside(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::temp_tree::TempTree;

    fn tree() -> TempTree {
        TempTree::new(&["root/repo/a/b", "outside"])
    }

    fn walk(tree: &TempTree, cwd: &str) -> Result<Vec<String>, RegistryError> {
        let project = project(tree.at(cwd).to_str().unwrap(), &[tree.at("root")], None)?;
        let relative = |path: &PathBuf| path.strip_prefix(&tree.base).unwrap().display().to_string();
        Ok(project.directories.iter().map(relative).collect())
    }

    #[test]
    fn walk_without_git_ends_at_root() {
        let tree = tree();
        assert_eq!(walk(&tree, "root/repo").unwrap(), ["root/repo", "root"]);
        assert_eq!(walk(&tree, "root").unwrap(), ["root"]);
    }

    #[test]
    fn invalid_directories_have_distinct_errors() {
        let tree = tree();
        fs::write(tree.at("root/file"), "").unwrap();
        tree.link(tree.at("outside"), "root/link");
        tree.link(tree.at("outside/none"), "root/nowhere");
        tree.link("gone/7", "root/current");
        tree.link("../root/current", "root/latest");
        tree.link("../outside/none", "root/away");
        tree.link("round", "root/round");
        assert!(matches!(
            project("relative", &[], None),
            Err(RegistryError::CwdRelative { .. })
        ));
        for cwd in [
            "root/none",
            "root/none/deeper",
            "root/file",
            "root/current",
            "root/current/deeper",
            "root/latest",
        ] {
            assert!(
                matches!(walk(&tree, cwd), Err(RegistryError::CwdNotFound { .. })),
                "{cwd}"
            );
        }
        for cwd in [
            "outside",
            "",
            "root/link",
            "root/../outside",
            "none",
            "outside/none",
            "root/link/none",
            "root/nowhere",
            "root/nowhere/deeper",
            "root/away",
            "root/round",
        ] {
            assert!(
                matches!(walk(&tree, cwd), Err(RegistryError::CwdOutsideRoots { .. })),
                "{cwd}"
            );
        }
    }

    #[test]
    fn path_with_parent_components_reveals_nothing() {
        let tree = tree();
        tree.link(tree.at("outside"), "root/link");
        for cwd in [
            "root/repo/../repo",
            "root/none/../repo",
            "outside/../root/repo",
            "none/../root/repo",
            "root/../outside/../root",
            "root/link/../repo",
        ] {
            assert!(
                matches!(walk(&tree, cwd), Err(RegistryError::CwdGoesUp { .. })),
                "{cwd}"
            );
        }
        for cwd in ["root/..", "root/repo/../../outside", "root/repo/../../none"] {
            assert!(
                matches!(walk(&tree, cwd), Err(RegistryError::CwdOutsideRoots { .. })),
                "{cwd}"
            );
        }
    }
}
