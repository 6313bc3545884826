//! Reads one file of a scope, within the size limit and the scope's boundary.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use rustix::fs::{Mode, OFlags};
#[cfg(target_os = "linux")]
use rustix::{
    fs::{CWD, ResolveFlags, openat2},
    io::Errno,
};

use crate::{
    domain::encoding::{self, NotText},
    source::{boundary::Boundary, budget::MAX_WORK, tracker::Scan},
};

/// Maximum size of a template or footer, in bytes. The type is that of file sizes.
pub(crate) const MAX_FILE_BYTES: u64 = encoding::MAX_BYTES as u64;

/// Flags for opening a file: a pipe does not block the caller, and a link is not followed.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The reason why a file is not read, worded for its owner.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The file is not text or is too large.
    #[error(transparent)]
    NotText(#[from] NotText),
    /// The file is a device, a pipe, a socket or a directory.
    #[error("not a regular file")]
    NotAFile,
    /// The file is a link, or lies behind one, to a location outside its scope. The message omits the target, because
    /// threads receive it and must not learn the layout of the file system.
    #[error("a link leads outside the project or the home")]
    OutsideBoundary,
    /// The files before this file use up the work budget of the directory.
    #[error(
        "not read: the files before it use up the parsing budget of the directory ({MAX_WORK} units of about one byte of \
         YAML); remove or shorten files"
    )]
    Budget,
    /// The operating system returned an error.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Returns the metadata of a file in a scanned directory, following links. The scan observes the target of a link. A
/// file with several hard links makes the scan unreliable, because the file can change through another name without an
/// event.
pub(crate) fn metadata(path: &Path, is_link: bool, scan: &mut Scan<'_>) -> io::Result<Metadata> {
    if is_link {
        scan.observe_link(path);
    }
    let metadata = fs::metadata(path)?;
    if metadata.is_file() && metadata.nlink() > 1 {
        scan.mark_unreliable();
    }
    Ok(metadata)
}

/// Reads a text file that, once links are followed, is inside the boundary.
pub(crate) fn text(path: &Path, boundary: &Boundary) -> Result<String, Unreadable> {
    Ok(encoding::decode(&bytes(path, boundary)?)?.to_owned())
}

/// Reads a file like [`text`], without decoding it.
pub(crate) fn bytes(path: &Path, boundary: &Boundary) -> Result<Vec<u8>, Unreadable> {
    let path = fs::canonicalize(path)?;
    if !boundary.contains(&path) {
        return Err(Unreadable::OutsideBoundary);
    }
    // Checked before opening, because opening a device may have side effects, and again after opening, because the file
    // may have been replaced.
    check(&fs::metadata(&path)?)?;
    let file = open(&path)?;
    check(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    // The file may have grown since the check.
    check_size(bytes.len() as u64)?;
    Ok(bytes)
}

/// Opens the file at a canonical path and nothing else. A link that is created in the path at the same time is not
/// followed.
#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<File> {
    match openat2(CWD, path, FILE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // An old kernel or a sandbox does not support the call.
        Err(Errno::NOSYS | Errno::PERM) => open_and_compare(path),
        opened => Ok(opened?.into()),
    }
}

/// Opens the file at a canonical path. The system call that refuses links in a path (`openat2`) exists only on Linux,
/// so the path is checked after opening.
#[cfg(not(target_os = "linux"))]
fn open(path: &Path) -> io::Result<File> {
    open_and_compare(path)
}

/// Opens a file as a fallback. After opening, the path must still be free of links and lead to the open file.
fn open_and_compare(path: &Path) -> io::Result<File> {
    let file = File::from(rustix::fs::open(path, FILE, Mode::empty())?);
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let is_there = identity(&file.metadata()?) == identity(&fs::metadata(path)?);
    if is_there && fs::canonicalize(path)? == path {
        Ok(file)
    } else {
        Err(io::Error::other("the file was replaced while it was opened"))
    }
}

fn check(metadata: &Metadata) -> Result<(), Unreadable> {
    if !metadata.is_file() {
        return Err(Unreadable::NotAFile);
    }
    check_size(metadata.len())
}

fn check_size(bytes: u64) -> Result<(), Unreadable> {
    if bytes > MAX_FILE_BYTES {
        return Err(NotText::TooLarge.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::source::{boundary::HiddenDirectories, temp_tree::TempTree};

    fn boundary(around: &Path) -> Boundary {
        Boundary::around(around, &HiddenDirectories::default())
    }

    #[test]
    fn invalid_files_are_rejected() {
        let tree = TempTree::new(&[]);
        let boundary = boundary(&tree.base);
        let largest = "x".repeat(usize::try_from(MAX_FILE_BYTES).unwrap());
        assert_eq!(
            text(&tree.write("a", &largest), &boundary).unwrap().len(),
            largest.len()
        );
        let _socket = UnixListener::bind(tree.at("socket")).unwrap();
        for (path, reason) in [
            (
                tree.write("large", format!("{largest}x")),
                "the file is larger than 1048576 bytes",
            ),
            (tree.write("binary", b"ab\xff"), "not valid UTF-8 (byte 2)"),
            (tree.write("nul", b"a\0"), "has a NUL byte (byte 1)"),
            (tree.at("socket"), "not a regular file"),
            (tree.base.clone(), "not a regular file"),
        ] {
            assert_eq!(text(&path, &boundary).unwrap_err().to_string(), reason);
        }
        assert!(matches!(text(&tree.at("none"), &boundary), Err(Unreadable::Io(_))));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn open_does_not_follow_links() {
        use rustix::fs::{FileType, mknodat};

        let tree = TempTree::new(&[]);
        tree.write("within/file", "x");
        tree.link("within/file", "link");
        tree.link("within", "way");
        mknodat(CWD, tree.at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let ways: [fn(&Path) -> io::Result<File>; 2] = [open, open_and_compare];
        for open in ways {
            assert!(open(&tree.at("within/file")).is_ok());
            for link in ["link", "way/file"] {
                assert!(open(&tree.at(link)).is_err(), "{link}");
            }
            // No process writes to this pipe.
            let pipe = open(&tree.at("pipe")).unwrap();
            assert!(!pipe.metadata().unwrap().is_file());
        }
        assert!(matches!(
            text(&tree.at("pipe"), &boundary(&tree.base)),
            Err(Unreadable::NotAFile)
        ));
    }
}
