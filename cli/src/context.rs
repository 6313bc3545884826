//! What every command is given.

use std::{
    env, fs,
    path::{Component, Path, PathBuf},
};

use svc_kit::paths;

use crate::{
    args::Global,
    client::{self, Registry, Supervisor},
    error::{Error, Result},
    ui::Ui,
};

/// The flags that all commands share, and where to write.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The flags.
    pub(crate) global: Global,
    /// The terminal.
    pub(crate) ui: Ui,
}

impl Context {
    /// The context of a command line.
    pub(crate) const fn new(global: Global) -> Self {
        let ui = Ui::new(global.output);
        Self { global, ui }
    }

    /// The supervisor that the flags name.
    pub(crate) async fn supervisor(&self) -> Result<Supervisor> {
        client::supervisor(&self.global).await
    }

    /// The registry that the flags name.
    pub(crate) async fn registry(&self) -> Result<Registry> {
        client::registry(&self.global).await
    }

    /// The data directory that the flags name, or the default one.
    pub(crate) fn data_dir(&self) -> Result<PathBuf> {
        match &self.global.data_dir {
            Some(directory) => Ok(directory.clone()),
            None => paths::default_data_dir().map_err(Error::of),
        }
    }
}

/// The directory that a command is about: the one given, made absolute, or the current one. It need not exist: it may be
/// one of another machine. There is no `.` and no `..` in it.
pub(crate) fn directory(given: Option<&Path>) -> Result<PathBuf> {
    let here = env::current_dir().map_err(|error| {
        Error::failure(format!("cannot tell the current directory: {error}")).hint("pass --cwd DIR")
    })?;
    // Joining an absolute path replaces the base.
    Ok(direct(&given.map_or_else(|| here.clone(), |given| here.join(given))))
}

/// The same, of this machine.
pub(crate) fn existing_directory(given: Option<&Path>) -> Result<PathBuf> {
    let directory = directory(given)?;
    if directory.is_dir() {
        return Ok(directory);
    }
    Err(Error::usage(format!("{} is not a directory", directory.display())).hint("name one that exists: --cwd DIR"))
}

/// The same directory, named without going up. Above a link lies what is above the directory that it leads to, as for the
/// system; where there is nothing to look at, the words decide.
fn direct(path: &Path) -> PathBuf {
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
    fn a_directory_is_named_without_going_up() {
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
        assert_eq!(direct(Path::new("/../..")), Path::new("/"));
        assert_eq!(directory(None).unwrap(), env::current_dir().unwrap());
    }
}
