//! Reads one file of a scope, within bounds and behind the scope's wall.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use crate::source::witness::Look;

/// The largest template or footer, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Why a file is not read, in words for its owner.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// It is too large.
    #[error("the file is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// It is a device, a pipe, a socket or a directory.
    #[error("not a regular file")]
    NotAFile,
    /// It is not text.
    #[error("not valid UTF-8 (byte {0})")]
    NotUtf8(usize),
    /// It has a NUL byte.
    #[error("has a NUL byte (byte {0})")]
    Nul(usize),
    /// It is a link, or lies behind one, to a place outside its scope. Where that is it does not say: threads are told
    /// why a template is refused, and are not to learn what lies where.
    #[error("leads outside the workspace root, or the home, by a link")]
    OutsideWall,
    /// The system does not let us.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// What the system says about a file in a directory that is looked at, links followed. The look is told where a link
/// leads, and of a file with several names: it changes through the others unseen.
pub(crate) fn metadata(path: &Path, is_link: bool, look: &mut Look<'_>) -> io::Result<Metadata> {
    if is_link {
        look.link(path);
    }
    let metadata = fs::metadata(path)?;
    if metadata.is_file() && metadata.nlink() > 1 {
        look.doubt();
    }
    Ok(metadata)
}

/// Reads a text file that, once links are followed, lies under `wall`, which is canonical.
pub(crate) fn text(path: &Path, wall: &Path) -> Result<String, Refused> {
    decode(bytes(path, wall)?)
}

/// As [`text`], whatever is in the file.
pub(crate) fn bytes(path: &Path, wall: &Path) -> Result<Vec<u8>, Refused> {
    let path = fs::canonicalize(path)?;
    if !path.starts_with(wall) {
        return Err(Refused::OutsideWall);
    }
    // Before it is opened: opening a pipe waits for its writer.
    check(&fs::metadata(&path)?)?;
    let file = File::open(&path)?;
    check(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    // It may have grown since it was checked.
    check_size(bytes.len() as u64)?;
    Ok(bytes)
}

/// The text that these bytes are.
pub(crate) fn decode(bytes: Vec<u8>) -> Result<String, Refused> {
    check_size(bytes.len() as u64)?;
    if let Some(position) = bytes.iter().position(|byte| *byte == 0) {
        return Err(Refused::Nul(position));
    }
    String::from_utf8(bytes).map_err(|error| Refused::NotUtf8(error.utf8_error().valid_up_to()))
}

fn check(metadata: &Metadata) -> Result<(), Refused> {
    if !metadata.is_file() {
        return Err(Refused::NotAFile);
    }
    check_size(metadata.len())
}

fn check_size(bytes: u64) -> Result<(), Refused> {
    if bytes > MAX_FILE_BYTES {
        return Err(Refused::TooLarge);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn bounds_hold() {
        let directory = tempfile::tempdir().unwrap();
        let wall = fs::canonicalize(directory.path()).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = wall.join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let largest = "x".repeat(usize::try_from(MAX_FILE_BYTES).unwrap());
        assert_eq!(
            text(&write("a", largest.as_bytes()), &wall).unwrap().len(),
            largest.len()
        );
        let _socket = UnixListener::bind(wall.join("socket")).unwrap();
        for (path, reason) in [
            (
                write("large", format!("{largest}x").as_bytes()),
                "the file is larger than 1048576 bytes",
            ),
            (write("binary", b"ab\xff"), "not valid UTF-8 (byte 2)"),
            (write("nul", b"a\0"), "has a NUL byte (byte 1)"),
            (wall.join("socket"), "not a regular file"),
            (wall.clone(), "not a regular file"),
        ] {
            assert_eq!(text(&path, &wall).unwrap_err().to_string(), reason);
        }
        assert!(matches!(text(&wall.join("none"), &wall), Err(Refused::Io(_))));
    }

    #[test]
    fn links_may_not_leave_the_wall() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        let wall = base.join("wall");
        fs::create_dir(&wall).unwrap();
        fs::write(base.join("secret"), "s").unwrap();
        fs::write(wall.join("open"), "o").unwrap();
        symlink(base.join("secret"), wall.join("leaves")).unwrap();
        symlink(wall.join("open"), wall.join("stays")).unwrap();
        assert_eq!(text(&wall.join("stays"), &wall).unwrap(), "o");
        assert!(matches!(text(&wall.join("leaves"), &wall), Err(Refused::OutsideWall)));
    }
}
