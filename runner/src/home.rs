//! The directory that a program uses as its user's home. It contains the program's sessions. Of the user's files, the
//! directory contains only a link to the login.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{OpenOptionsExt as _, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::{
    agent::LaunchSpec,
    env::{Environment, add, environment},
    programs::AgentProgram,
};

/// Maximum size of a record that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// Maximum number of bytes of a log that are read at once.
const MAX_APPENDED_BYTES: u64 = 4 * 1024 * 1024;

/// Creates the directory with a link to the login.
pub(crate) fn prepare(home: &Path, login: Option<&Path>, name: &str) -> io::Result<()> {
    fs::create_dir_all(home)?;
    let Some(login) = login else { return Ok(()) };
    let link = unlinked(home, name)?;
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent)?;
    }
    match symlink(login, link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns a path below the directory, and removes links on that path. An agent may write there, and a link could lead
/// the runner out of the directory.
pub(crate) fn unlinked(home: &Path, name: &str) -> io::Result<PathBuf> {
    let mut path = home.to_owned();
    for part in Path::new(name) {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => fs::remove_file(&path)?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path)
}

/// Removes a file, a link or a directory, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes a file or a link, if it exists. A directory is an error, because an agent may have filled it.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a file atomically. Replaces an existing entry and never follows it, because an agent may have created a link.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension("new");
    remove_file(&aside)?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&aside, path)
}

/// Reads a file that [`replace`] wrote. An agent may have replaced it by a link, a pipe, a device or a file of any
/// size.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX_RECORD_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file for reading. Does not follow a link, and does not wait for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let how = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(how.cast_signed()).open(path)
}

/// Returns a program's environment: its thread's environment with this home, the variables of its kind, and the
/// variables that its operator grants.
pub(crate) fn environment_in(
    home: &Path,
    launch: &LaunchSpec,
    own: &[(&str, &str)],
    program: &AgentProgram,
) -> Environment {
    let mut environment = environment(launch, |name| std::env::var_os(name));
    environment.insert("HOME".to_owned(), home.into());
    environment.extend(own.iter().map(|&(name, value)| (name.to_owned(), value.into())));
    add(&mut environment, &program.inherit, &program.environment);
    environment
}

/// Returns the complete lines of a log after a position, and the position after them. An agent may have replaced the
/// log.
pub(crate) fn appended(log: &Path, from: u64) -> Option<(Vec<u8>, u64)> {
    let mut file = open(log).ok()?;
    let found = file.metadata().ok()?;
    // A replaced log may be shorter.
    let from = if found.len() < from { 0 } else { from };
    if !found.is_file() || found.len() == from {
        return None;
    }
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut text = Vec::new();
    file.take(MAX_APPENDED_BYTES).read_to_end(&mut text).ok()?;
    let is_full = u64::try_from(text.len()).is_ok_and(|bytes| bytes == MAX_APPENDED_BYTES);
    match text.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => text.truncate(end + 1),
        // Skips a line that exceeds the limit.
        None if is_full => {}
        None => text.clear(),
    }
    let to = from.saturating_add(u64::try_from(text.len()).ok()?);
    Some((text, to))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn link_in_place_of_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (outside, path) = (directory.path().join("outside"), directory.path().join("record.json"));
        fs::write(&outside, "kept").unwrap();
        for place in ["record.json", "record.new"] {
            symlink(&outside, directory.path().join(place)).unwrap();
        }
        replace(&path, "one").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap(), "two");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
        let planted = directory.path().join("planted");
        symlink("/dev/zero", &planted).unwrap();
        assert!(read(&planted).is_err());
        assert!(read(directory.path()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    }

    #[test]
    fn login_link_replaces_existing_entry() {
        let directory = tempfile::tempdir().unwrap();
        let (home, login) = (directory.path().join("home"), directory.path().join("login"));
        fs::write(&login, "mine").unwrap();
        prepare(&home, Some(&login), "a/auth.json").unwrap();
        assert_eq!(fs::read_to_string(home.join("a/auth.json")).unwrap(), "mine");

        // An agent creates a link that leads out of its home.
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::remove_dir_all(home.join("a")).unwrap();
        symlink(&outside, home.join("a")).unwrap();
        prepare(&home, Some(&login), "a/auth.json").unwrap();
        assert!(fs::read_dir(&outside).unwrap().next().is_none());
        assert_eq!(fs::read_to_string(home.join("a/auth.json")).unwrap(), "mine");
        prepare(&home, None, "a/auth.json").unwrap();
    }
}
