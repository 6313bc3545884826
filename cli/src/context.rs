//! The context of every command.

use std::{
    env, fs,
    path::{Component, Path, PathBuf},
};

use svc_kit::paths;
use troupe_client::{Registry, Supervisor};

use crate::{
    error::{Error, Result},
    global::Global,
    ui::Ui,
};

/// The shared flags and the output.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The shared flags.
    pub(crate) global: Global,
    /// The terminal output.
    pub(crate) ui: Ui,
}

impl Context {
    /// Creates the context of a command line.
    pub(crate) fn new(global: Global) -> Self {
        let ui = Ui::new(&global.output);
        Self { global, ui }
    }

    /// Connects to the supervisor that the flags name.
    pub(crate) async fn supervisor(&self) -> Result<Supervisor> {
        Ok(self.global.settings().supervisor().await?)
    }

    /// Connects to the registry that the flags name.
    pub(crate) async fn registry(&self) -> Result<Registry> {
        Ok(self.global.settings().registry().await?)
    }

    /// Returns the data directory that the flags name, or the default one.
    pub(crate) fn data_dir(&self) -> Result<PathBuf> {
        match &self.global.data_dir {
            Some(directory) => Ok(directory.clone()),
            None => paths::default_data_dir().map_err(Error::of),
        }
    }
}

/// Returns the directory of a command: the given one as an absolute path, or the current directory. It may be a
/// directory of another machine, so it need not exist. The path contains no `.` and no `..`.
pub(crate) fn directory(given: Option<&Path>) -> Result<PathBuf> {
    let here = env::current_dir().map_err(|error| {
        Error::failure(format!("cannot determine the current directory: {error}")).hint("pass --cwd DIR")
    })?;
    // Joining an absolute path replaces the base.
    Ok(normalize(&given.map_or_else(|| here.clone(), |given| here.join(given))))
}

/// Like `directory`, but the directory has to exist on this machine.
pub(crate) fn existing_directory(given: Option<&Path>) -> Result<PathBuf> {
    let directory = directory(given)?;
    if directory.is_dir() {
        return Ok(directory);
    }
    Err(Error::usage(format!("{} is not a directory", directory.display()))
        .hint("pass an existing directory with --cwd"))
}

/// Returns the path without `..`. The parent of a symbolic link is the parent of its target, as for the operating
/// system. Components that do not exist are resolved lexically.
fn normalize(path: &Path) -> PathBuf {
    let mut direct = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                direct = fs::canonicalize(&direct).unwrap_or(direct);
                direct.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => direct.push(part),
        }
    }
    direct
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directory_has_no_parent_components() {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        fs::create_dir_all(base.join("real/deep")).unwrap();
        symlink(base.join("real/deep"), base.join("link")).unwrap();
        for (given, named) in [
            ("real/deep/..", "real"),
            ("real/./deep/", "real/deep"),
            ("link", "link"),
            ("link/../deep", "real/deep"),
            ("none/../real", "real"),
            ("none/deeper/..", "none"),
        ] {
            assert_eq!(directory(Some(&base.join(given))).unwrap(), base.join(named), "{given}");
        }
        assert_eq!(normalize(Path::new("/../..")), Path::new("/"));
        assert_eq!(directory(None).unwrap(), env::current_dir().unwrap());
    }
}
