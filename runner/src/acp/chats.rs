//! Reads the model calls that Gemini CLI records. Gemini CLI reports no call to its client before the end of a prompt,
//! but
//! it appends each one to a conversation log in its own directory.
//!
//! An agent may write there. Therefore no link is followed, only regular files are read, and every read is bounded.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde_json::Value;

use super::events;
use crate::usage::Tokens;

/// The directory of the logs in the program's home: `PROJECT/chats/*.jsonl` below it. Logs of Gemini CLI's own agents
/// are
/// one level deeper.
const LOGS: &str = ".gemini/tmp";
const EXTENSION: &str = "jsonl";
/// Maximum number of examined directory entries, and of logs.
const MAX_ENTRIES: usize = 256;
const MAX_LOGS: usize = 64;
/// Maximum number of bytes of a log that are read at once.
const MAX_READ_BYTES: u64 = 4 * 1024 * 1024;

/// The logs, and the read position in each.
#[derive(Debug)]
pub(super) struct Chats {
    logs: PathBuf,
    read: BTreeMap<PathBuf, u64>,
}

impl Chats {
    pub(super) fn new(home: &Path) -> Self {
        Self {
            logs: home.join(LOGS),
            read: BTreeMap::new(),
        }
    }

    /// Returns the calls that were recorded since the last call, each with its id.
    pub(super) fn news(&mut self) -> Vec<(String, Tokens)> {
        let mut calls = Vec::new();
        for log in self.found() {
            let from = self.read.get(&log).copied().unwrap_or_default();
            // A log that cannot be read counts as unchanged. The end of the turn reports the remaining tokens.
            let Some((text, to)) = appended(&log, from) else {
                continue;
            };
            let lines = text.split(|&byte| byte == b'\n');
            let values = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            calls.extend(values.filter_map(|value| events::recorded_call(&value)));
            self.read.insert(log, to);
        }
        calls
    }

    fn found(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for project in directories(&self.logs) {
            let chats = project.join("chats");
            if !is_directory(&chats) {
                continue;
            }
            for directory in directories(&chats).into_iter().chain([chats]) {
                found.extend(entries(&directory).filter(|path| path.extension().is_some_and(|end| end == EXTENSION)));
            }
        }
        found.truncate(MAX_LOGS);
        found
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let listed = fs::read_dir(directory).into_iter().flatten();
    listed.take(MAX_ENTRIES).flatten().map(|entry| entry.path())
}

fn directories(directory: &Path) -> Vec<PathBuf> {
    entries(directory).filter(|path| is_directory(path)).collect()
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Returns the complete lines of a log after a position, and the position after them.
fn appended(log: &Path, from: u64) -> Option<(Vec<u8>, u64)> {
    let how = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(how.cast_signed())
        .open(log)
        .ok()?;
    let found = file.metadata().ok()?;
    // A log that was replaced may be shorter.
    let from = if found.len() < from { 0 } else { from };
    if !found.is_file() || found.len() == from {
        return None;
    }
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut text = Vec::new();
    file.take(MAX_READ_BYTES).read_to_end(&mut text).ok()?;
    let is_full = u64::try_from(text.len()).is_ok_and(|bytes| bytes == MAX_READ_BYTES);
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
    use std::{io::Write as _, os::unix::fs::symlink};

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    const CALL: &str = "{\"id\":\"a\",\"type\":\"gemini\",\"tokens\":{\"input\":1000,\"output\":15,\"cached\":500,\"thoughts\":5,\"tool\":0}}\n";

    #[test]
    fn recorded_calls_are_read_once_and_by_whole_lines() {
        let home = tempfile::tempdir().unwrap();
        let chats = home.path().join(".gemini/tmp/p/chats");
        fs::create_dir_all(&chats).unwrap();
        let mut log = Chats::new(home.path());
        assert!(log.news().is_empty());
        let path = chats.join("session-1.jsonl");
        append(&path, "{\"type\":\"user\"}\nno json\n");
        append(&path, &CALL[..20]);
        assert!(log.news().is_empty(), "half a line is no call yet");
        append(&path, &CALL[20..]);
        let [(id, tokens)] = &log.news()[..] else { panic!() };
        assert_eq!(id, "a");
        assert_eq!((tokens.input, tokens.cached_input, tokens.output), (1000, 500, 20));
        assert!(log.news().is_empty());
    }

    #[test]
    fn planted_links_and_devices_are_not_read() {
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        append(&outside.path().join("x.jsonl"), CALL);
        let chats = home.path().join(".gemini/tmp/p/chats");
        fs::create_dir_all(&chats).unwrap();
        symlink(outside.path().join("x.jsonl"), chats.join("link.jsonl")).unwrap();
        symlink("/dev/zero", chats.join("zero.jsonl")).unwrap();
        symlink(outside.path(), chats.join("directory")).unwrap();
        assert!(Chats::new(home.path()).news().is_empty());
    }
}
