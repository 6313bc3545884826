//! Small files that are replaced atomically: written to a temporary file, synced, renamed. A reader sees the old or the
//! new content.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Only the owner may read and write the file.
pub const PRIVATE: u32 = 0o600;
/// All users may read the file.
pub(crate) const PUBLIC: u32 = 0o644;

/// Maximum size that is read, in bytes. It is larger than any file of this program, and it bounds the damage of a wrong
/// path.
const MAX_BYTES: u64 = 64 * 1024;

/// Replaces the file at `path` durably and sets the permissions `mode`.
///
/// # Errors
///
/// The operating system reports an error. The file then has its old content.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = directory_of(path);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let aside = directory.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = write_new(&aside, bytes, mode).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // The first error is reported. A temporary file that remains is harmless.
        let _ = fs::remove_file(&aside);
    }
    written?;
    File::open(&directory)?.sync_all()
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // A crashed process with the same id may have left the file.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The reason why a private file cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// The file cannot be read.
    Read(io::Error),
    /// Other users can read the file, and its permissions cannot be changed.
    Exposed(io::Error),
}

/// Returns the text of a private file, or `None` if it does not exist. Permissions that are too wide are narrowed. A
/// file of another owner stays as it is if its group may only read it and other users have no access, because
/// Kubernetes mounts volumes with such permissions.
///
/// # Errors
///
/// The file cannot be read or protected.
pub fn read(path: &Path) -> Result<Option<String>, Unusable> {
    let Some(file) = open(path).map_err(Unusable::Read)? else {
        return Ok(None);
    };
    narrow(path, &file)?;
    Ok(Some(text_of(file).map_err(Unusable::Read)?))
}

/// Returns the text of a private file that another program maintains, or `None` if it does not exist. Unlike [`read`],
/// it accepts permissions that cannot be narrowed if other users have no access: the kubelet gives projected files to
/// the pod's user and group on a read-only volume.
pub(crate) fn read_maintained(path: &Path) -> io::Result<Option<String>> {
    let Some(file) = open(path)? else {
        return Ok(None);
    };
    match narrow(path, &file) {
        Ok(()) => {}
        Err(Unusable::Exposed(_)) if is_hidden_from_others(&file.metadata()?) => {}
        Err(Unusable::Exposed(error) | Unusable::Read(error)) => return Err(error),
    }
    Ok(Some(text_of(file)?))
}

fn is_hidden_from_others(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o007 == 0
}

/// Returns `None` if the file does not exist.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the access of other users from a file, except from a file of another owner that only its group may read.
fn narrow(path: &Path, file: &File) -> Result<(), Unusable> {
    let metadata = file.metadata().map_err(Unusable::Read)?;
    let mode = metadata.permissions().mode();
    let is_lent = metadata.uid() != rustix::process::geteuid().as_raw() && mode & 0o037 == 0;
    if mode & 0o077 != 0 && !is_lent {
        file.set_permissions(Permissions::from_mode(PRIVATE))
            .map_err(Unusable::Exposed)?;
        tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777), "other users could read this secret file; changed its mode to 0600");
    }
    Ok(())
}

fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn readable_private_file_is_narrowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "secret").unwrap();
        for mode in [0o640, 0o604] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read(&path), Ok(Some(text)) if text == "secret"));
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                PRIVATE,
                "{mode:o}"
            );
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn maintained_file_must_be_hidden_from_other_users() {
        // Even root cannot change its permissions.
        let path = Path::new("/proc/self/status");
        assert!(matches!(read(path), Err(Unusable::Exposed(_))));
        assert!(read_maintained(path).is_err());
        assert!(matches!(read_maintained(Path::new("/proc/self/none")), Ok(None)));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "s3cret").unwrap();
        for (mode, is_hidden) in [
            (0o600, true),
            (0o640, true),
            (0o440, true),
            (0o644, false),
            (0o602, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                is_hidden_from_others(&fs::metadata(&path).unwrap()),
                is_hidden,
                "{mode:o}"
            );
        }
    }

    #[test]
    fn file_shared_with_group_is_read_unchanged() {
        // Only root can change the owner of a file.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "secret").unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o440)).unwrap();
        assert!(matches!(read(&path), Ok(Some(text)) if text == "secret"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o440);
    }
}
