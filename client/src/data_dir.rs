//! The data directory of services on this machine.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The file of the operator's token in a data directory.
pub const OPERATOR_TOKEN: &str = "operator.token";
/// The file in which `troupe up` stores its addresses.
pub const RUNNING: &str = "up.json";

/// Returns the default data directory: `$XDG_DATA_HOME/troupe`, else `~/.local/share/troupe`. Returns `None` if neither
/// variable is set to an absolute path.
#[must_use]
pub fn default_data_dir() -> Option<PathBuf> {
    let (data, home) = (env::var_os("XDG_DATA_HOME"), env::var_os("HOME"));
    data_dir_from(data.as_deref(), home.as_deref())
}

/// Returns [`default_data_dir`] for these values. A relative path is ignored, as the XDG specification requires.
#[must_use]
pub fn data_dir_from(xdg_data_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    let base = absolute(xdg_data_home).or_else(|| Some(absolute(home)?.join(".local").join("share")))?;
    Some(base.join("troupe"))
}

/// Returns the path in a variable if it is absolute.
#[must_use]
pub fn absolute(value: Option<&OsStr>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The running services of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The process of `troupe up`.
    pub pid: u32,
    /// Address of the registry.
    pub registry: String,
    /// Address of the supervisor.
    pub supervisor: String,
}

impl Running {
    /// Returns the services that run on the data directory, or `None` if no process uses it.
    #[must_use]
    pub fn find(data_dir: &Path) -> Option<Self> {
        Self::read(data_dir).filter(|_| is_locked(data_dir))
    }

    /// Reads the file, which may be older than the process that uses the directory.
    #[must_use]
    pub fn read(data_dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(data_dir.join(RUNNING)).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Returns whether a process holds the lock of the data directory. Another process that tries to take the lock during
/// the check can fail.
#[must_use]
pub fn is_locked(data_dir: &Path) -> bool {
    File::open(data_dir).is_ok_and(|directory| matches!(directory.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn data_directory_follows_xdg() {
        for (data, home, expected) in [
            (Some("/data"), Some("/home/a"), Some("/data/troupe")),
            (Some("relative"), Some("/home/a"), Some("/home/a/.local/share/troupe")),
            (Some(""), Some("/home/a"), Some("/home/a/.local/share/troupe")),
            (None, Some("/home/a"), Some("/home/a/.local/share/troupe")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let found = data_dir_from(data.map(OsStr::new), home.map(OsStr::new));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{data:?} {home:?}");
        }
    }

    #[test]
    fn state_without_lock_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let running = Running {
            pid: 1,
            registry: "127.0.0.1:1".to_owned(),
            supervisor: "127.0.0.1:2".to_owned(),
        };
        let text = serde_json::to_string(&running).unwrap();
        fs::write(directory.path().join(RUNNING), text).unwrap();
        assert_eq!(Running::find(directory.path()), None);
        let lock = File::open(directory.path()).unwrap();
        lock.lock().unwrap();
        assert_eq!(Running::find(directory.path()), Some(running));
    }
}
