//! Operations on files of a workspace. All functions block on the disk.

use std::io::{self, Read as _, Write as _};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat},
    io::Errno,
};
use serde_json::{Value, json};

use super::place::{DIRECTORY, Missing, Place};

/// Maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of listed entries of a directory.
const MAX_ENTRIES: usize = 2_000;

/// Returns the text of a file. Bytes that are not UTF-8 are replaced.
pub(super) fn read(place: &Place) -> io::Result<Value> {
    Ok(json!({"output": String::from_utf8_lossy(&bytes(place)?)}))
}

/// Returns the content of a file up to the size limit.
pub(super) fn bytes(place: &Place) -> io::Result<Vec<u8>> {
    let file = place.open_file(OFlags::RDONLY, Missing::Fail)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    // The file may grow during the read.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    let size = size.max(bytes.len() as u64);
    if size > MAX_FILE_BYTES {
        let text = format!("it has {size} bytes; at most {MAX_FILE_BYTES} are read, so read a part of it by a command");
        return Err(io::Error::other(text));
    }
    Ok(bytes)
}

/// Replaces the content of a file. Creates missing parent directories.
pub(super) fn write(place: &Place, content: &str) -> io::Result<()> {
    let mut file = place.open_file(OFlags::WRONLY | OFlags::CREATE, Missing::Make)?;
    // The file is truncated only now, after the check that it is a regular file.
    file.set_len(0)?;
    file.write_all(content.as_bytes())
}

/// Returns the names in a directory with their kinds, sorted. A link counts as a file, because it is deleted like a
/// file.
pub(super) fn list(place: &Place) -> io::Result<Value> {
    let directory = place.open_directory()?;
    let mut entries = Vec::new();
    let mut truncated = false;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == MAX_ENTRIES {
            truncated = true;
            break;
        }
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            // Not every file system reports the kind.
            FileType::Unknown => openat(&directory, name, DIRECTORY, Mode::empty()).is_ok(),
            _ => false,
        };
        entries.push((name.to_string_lossy().into_owned(), is_directory));
    }
    entries.sort_unstable();
    let entries: Vec<_> = entries
        .into_iter()
        .map(|(name, is_directory)| json!({"name": name, "type": if is_directory { "dir" } else { "file" }}))
        .collect();
    let mut value = json!({ "entries": entries });
    if truncated {
        value["truncated"] = true.into();
    }
    Ok(value)
}

/// Deletes a file, or a link to any target. Deleting a missing file succeeds.
pub(super) fn delete(place: &Place) -> io::Result<()> {
    let entry = match place.entry(Missing::Fail) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entry => entry,
    };
    let (directory, name) = entry?;
    match unlinkat(&directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::workspace::place::FinalLink;

    fn find(workspace: &tempfile::TempDir, asked: &str, ending: FinalLink) -> Place {
        Place::find(workspace.path(), asked, ending).unwrap()
    }

    #[test]
    fn written_file_is_read_back() {
        let workspace = tempfile::tempdir().unwrap();
        let place = find(&workspace, "new/deep/a.txt", FinalLink::Followed);
        for content in ["a longer text\n", "é", ""] {
            write(&place, content).unwrap();
            assert_eq!(read(&place).unwrap(), json!({"output": content}));
        }
        fs::write(workspace.path().join("bytes"), b"a\xffb").unwrap();
        let bytes = read(&find(&workspace, "bytes", FinalLink::Followed)).unwrap();
        assert_eq!(bytes, json!({"output": "a\u{fffd}b"}));
    }

    #[test]
    fn file_size_is_bounded() {
        let workspace = tempfile::tempdir().unwrap();
        let size = usize::try_from(MAX_FILE_BYTES).unwrap();
        let place = find(&workspace, "a", FinalLink::Followed);
        write(&place, &"x".repeat(size)).unwrap();
        assert!(read(&place).is_ok());
        write(&place, &"x".repeat(size + 7)).unwrap();
        let error = read(&place).unwrap_err().to_string();
        assert!(
            error.starts_with("it has 1048583 bytes; at most 1048576 are read"),
            "{error}"
        );
    }

    #[test]
    fn directory_is_listed_in_order() {
        let workspace = tempfile::tempdir().unwrap();
        fs::create_dir(workspace.path().join("b")).unwrap();
        for name in ["c", "a"] {
            fs::write(workspace.path().join(name), "").unwrap();
        }
        symlink("b", workspace.path().join("link")).unwrap();
        let listed = list(&find(&workspace, ".", FinalLink::Followed)).unwrap();
        let expected = json!({"entries": [
            {"name": "a", "type": "file"}, {"name": "b", "type": "dir"},
            {"name": "c", "type": "file"}, {"name": "link", "type": "file"},
        ]});
        assert_eq!(listed, expected);
        assert!(list(&find(&workspace, "a", FinalLink::Followed)).is_err());
    }

    #[test]
    fn long_listing_is_truncated() {
        let workspace = tempfile::tempdir().unwrap();
        for number in 0..=MAX_ENTRIES {
            fs::write(workspace.path().join(number.to_string()), "").unwrap();
        }
        let listed = list(&find(&workspace, ".", FinalLink::Followed)).unwrap();
        assert_eq!(listed["entries"].as_array().unwrap().len(), MAX_ENTRIES);
        assert_eq!(listed["truncated"], json!(true));
    }

    #[test]
    fn delete_removes_link_and_keeps_target() {
        let workspace = tempfile::tempdir().unwrap();
        fs::write(workspace.path().join("a"), "").unwrap();
        symlink("a", workspace.path().join("link")).unwrap();
        for _ in 0..2 {
            delete(&find(&workspace, "link", FinalLink::Itself)).unwrap();
        }
        assert!(workspace.path().join("link").symlink_metadata().is_err());
        assert!(workspace.path().join("a").exists());
        delete(&find(&workspace, "no/such/file", FinalLink::Itself)).unwrap();
        assert!(
            delete(&find(&workspace, ".", FinalLink::Itself)).is_err(),
            "the workspace still exists"
        );
    }

    #[test]
    fn directories_are_not_deleted() {
        let workspace = tempfile::tempdir().unwrap();
        fs::create_dir(workspace.path().join("b")).unwrap();
        assert!(delete(&find(&workspace, "b", FinalLink::Itself)).is_err());
        assert!(workspace.path().join("b").is_dir());
    }
}
