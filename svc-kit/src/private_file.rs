//! Small files that are replaced whole: written aside, synced, renamed. A reader sees the old bytes or the new ones.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// For the owner alone.
pub(crate) const PRIVATE: u32 = 0o600;
/// For everyone to read.
pub(crate) const PUBLIC: u32 = 0o644;

/// More than any file of ours holds; a bound on what a wrong path can make us read.
const MAX_BYTES: u64 = 64 * 1024;

/// Replaces the file at `path`, durably, with the permissions `mode`.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = directory_of(path);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let aside = directory.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = write_new(&aside, bytes, mode).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // The first error is the one to report; a file left aside is harmless.
        let _ = fs::remove_file(&aside);
    }
    written?;
    File::open(&directory)?.sync_all()
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // Left over from a crash of a process with our id.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Why a private file cannot be used.
pub(crate) enum Unusable {
    /// It cannot be read.
    Read(io::Error),
    /// Others may read it, and that cannot be changed.
    Exposed(io::Error),
}

/// The text of a private file, `None` if there is none. Permissions that are too wide are narrowed.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Unusable> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Unusable::Read(error)),
    };
    let mode = file.metadata().map_err(Unusable::Read)?.permissions().mode();
    if mode & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(PRIVATE))
            .map_err(Unusable::Exposed)?;
        tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777), "others could read this file of secrets; it is 0600 now");
    }
    let mut text = String::new();
    Read::by_ref(&mut file)
        .take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(Unusable::Read)?;
    Ok(Some(text))
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}
