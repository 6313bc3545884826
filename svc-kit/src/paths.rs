//! Paths on disk: the data directory and its lock, the user's home, the ready file.
//!
//! The services define the contents of their directories. The functions that read environment variables are thin; the
//! rules take values as arguments, so that they can be tested.

use std::{
    env,
    ffi::OsStr,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use troupe_client::data_dir::{self, absolute};

use crate::private_file;

/// The file with the id of the process that holds the data directory.
const LOCK: &str = "LOCK";

/// Maximum number of retries of a lock that another process holds.
const LOCK_RETRIES: u32 = 20;

/// Pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The reason why a path cannot be used. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// Neither the option nor the environment names the directory.
    #[error("cannot determine {what}: neither the option nor HOME is set to an absolute path; set {option}")]
    Unknown {
        /// The directory that is missing.
        what: &'static str,
        /// The option that names it.
        option: &'static str,
    },
    /// The data directory cannot be created or opened.
    #[error("cannot use the data directory {}: {cause}; choose another with --data-dir", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// Another process holds the data directory.
    #[error(
        "the data directory {} is in use by another troupe{}; stop that one or choose another directory with --data-dir",
        .path.display(),
        in_parentheses(.pid)
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The id of the other process, if it is known.
        pid: Option<u32>,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {cause}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
}

/// Returns the default data directory.
///
/// # Errors
///
/// Neither `XDG_DATA_HOME` nor `HOME` is set to an absolute path.
pub fn default_data_dir() -> Result<PathBuf, PathsError> {
    data_dir::default_data_dir().ok_or(PathsError::Unknown {
        what: "the data directory",
        option: "--data-dir",
    })
}

/// Returns the possible data directories of this user: `TROUPE_DATA_DIR` and the default. Sandboxes hide them.
#[must_use]
pub fn known_data_dirs() -> Vec<PathBuf> {
    let given = env::var_os("TROUPE_DATA_DIR");
    data_dirs_from(given.as_deref(), default_data_dir().ok())
}

/// Returns [`known_data_dirs`] for these values. A relative path is relative to the working directory, as for
/// `--data-dir`.
fn data_dirs_from(given: Option<&OsStr>, default: Option<PathBuf>) -> Vec<PathBuf> {
    let given = given.filter(|given| !given.is_empty()).map(PathBuf::from);
    given.into_iter().chain(default).collect()
}

/// Returns the home directory whose `.codex/` is the user scope: `TROUPE_HOME`, else the user's home.
#[must_use]
pub fn home_from(troupe_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    absolute(troupe_home).or_else(|| absolute(home))
}

/// Returns [`home_from`] for the environment of this process.
///
/// # Errors
///
/// Neither variable is set to an absolute path.
pub fn default_home() -> Result<PathBuf, PathsError> {
    let (own, home) = (env::var_os("TROUPE_HOME"), env::var_os("HOME"));
    home_from(own.as_deref(), home.as_deref()).ok_or(PathsError::Unknown {
        what: "the home directory",
        option: "--home",
    })
}

/// Returns the path of a program: `program` itself if it contains a slash, else the first executable file of that name
/// in `path`, which has the format of the variable `PATH`.
#[must_use]
pub fn program_in(path: &OsStr, program: &Path) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| {
        let metadata = path.metadata();
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if program.as_os_str().as_bytes().contains(&b'/') {
        return Some(program.to_owned()).filter(is_executable);
    }
    env::split_paths(path)
        .map(|directory| directory.join(program))
        .find(is_executable)
}

/// Writes the ready file atomically.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_ready_file(path: &Path, content: &serde_json::Value) -> Result<(), PathsError> {
    let text = format!("{content}\n");
    private_file::replace(path, text.as_bytes(), private_file::PUBLIC).map_err(|cause| PathsError::Write {
        path: path.to_owned(),
        cause,
    })
}

/// A data directory that belongs to this process until this value is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// The lock is on the directory itself, so that deleting or replacing a file in it does not release the lock. The
    /// operating system releases the lock when this file is closed, which also happens if the process crashes.
    _lock: File,
}

impl DataDir {
    /// Creates the directory with mode 0700 if it is missing, and locks it against a second process.
    ///
    /// # Errors
    ///
    /// The directory cannot be created or opened, or another process holds it.
    pub fn open(path: &Path) -> Result<Self, PathsError> {
        let failed = |cause| PathsError::Directory {
            path: path.to_owned(),
            cause,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        let lock = File::open(path).map_err(failed)?;
        match lock_soon(&lock, pause) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(PathsError::InUse {
                    path: path.to_owned(),
                    pid: read_pid(&path.join(LOCK)),
                });
            }
            Err(TryLockError::Error(cause)) => return Err(failed(cause)),
        }
        write_pid(&path.join(LOCK)).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of an entry in the directory.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

#[expect(clippy::disallowed_methods, reason = "no event tells that a lock is free")]
fn pause() {
    thread::sleep(LOCK_PAUSE);
}

/// Locks a file, with several attempts. If a process is killed while it starts a child, the child holds the lock for a
/// moment, until the child executes its program.
fn lock_soon(file: &File, mut pause: impl FnMut()) -> Result<(), TryLockError> {
    for _ in 0..LOCK_RETRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => pause(),
            result => return result,
        }
    }
    file.try_lock()
}

/// Writes the id of this process, which a second process shows in its error.
fn write_pid(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(private_file::PRIVATE)
        .open(path)?;
    writeln!(file, "{}", std::process::id())
}

/// Returns the process in parentheses, or nothing if it is unknown.
fn in_parentheses(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

fn read_pid(path: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(path).ok()?.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn configured_data_directory_precedes_default() {
        let default = || Some(PathBuf::from("/home/a/.local/share/troupe"));
        for (given, default, expected) in [
            (None, None, &[] as &[&str]),
            (Some(""), default(), &["/home/a/.local/share/troupe"][..]),
            (Some("/data"), default(), &["/data", "/home/a/.local/share/troupe"][..]),
            (Some("data"), None, &["data"][..]),
        ] {
            let found = data_dirs_from(given.map(OsStr::new), default);
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(found, expected, "{given:?}");
        }
    }

    #[test]
    fn troupe_home_precedes_home() {
        for (own, home, expected) in [
            (Some("/own"), Some("/home/a"), Some("/own")),
            (Some("own"), Some("/home/a"), Some("/home/a")),
            (None, Some("/home/a"), Some("/home/a")),
            (None, None, None),
        ] {
            let found = home_from(own.map(OsStr::new), home.map(OsStr::new));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{own:?} {home:?}");
        }
    }

    #[test]
    fn data_directory_has_one_owner_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a").join("troupe");
        let first = DataDir::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);

        let error = DataDir::open(&path).unwrap_err();
        let own = std::process::id();
        assert!(
            matches!(&error, PathsError::InUse { pid: Some(pid), .. } if *pid == own),
            "{error}"
        );
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");

        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn lock_that_is_released_soon_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let open = || File::open(directory.path()).unwrap();
        let mut pauses = 0;
        let mut first = Some(open());
        first.as_ref().unwrap().try_lock().unwrap();
        lock_soon(&open(), || {
            pauses += 1;
            first = None;
        })
        .unwrap();
        assert_eq!(pauses, 1);
        first = Some(open());
        first.as_ref().unwrap().try_lock().unwrap();
        let taken = lock_soon(&open(), || pauses += 1);
        assert!(matches!(taken, Err(TryLockError::WouldBlock)));
        assert_eq!(pauses, 1 + LOCK_RETRIES);
    }

    #[test]
    fn deleted_lock_file_admits_no_second_owner() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("troupe");
        let first = DataDir::open(&path).unwrap();
        fs::remove_file(path.join(LOCK)).unwrap();
        // Twice: the first attempt must not leave a file that the second one locks.
        for _ in 0..2 {
            let error = DataDir::open(&path).unwrap_err();
            assert!(matches!(&error, PathsError::InUse { pid: None, .. }), "{error}");
            assert!(error.to_string().contains("is in use by another troupe;"), "{error}");
        }
        drop(first);
        DataDir::open(&path).unwrap();
        assert!(path.join(LOCK).exists());
    }

    #[test]
    fn ready_file_is_replaced_atomically() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ready.json");
        for port in [1, 2] {
            let content = serde_json::json!({ "registry": format!("127.0.0.1:{port}") });
            write_ready_file(&path, &content).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), content);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
