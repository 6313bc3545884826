//! Reads the model calls that Gemini CLI records. Before the end of a prompt, Gemini CLI reports no model calls to its
//! client. It never reports calls of unknown tools or the output of commands. But it appends all of this to a
//! conversation log in its own directory.
//!
//! An agent may write to that directory. Therefore links are not followed, only regular files are read, and every read
//! is bounded.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::events;
use crate::{home, usage::Tokens};

/// The directory of the logs in the program's home. The logs are `PROJECT/chats/*.jsonl` below it. Logs of Gemini CLI's
/// own agents are one level deeper.
const LOGS: &str = ".gemini/tmp";
const EXTENSION: &str = "jsonl";
/// Maximum number of examined directory entries.
const MAX_ENTRIES: usize = 256;
/// Maximum number of logs.
const MAX_LOGS: usize = 64;

/// The new entries of the logs.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Model calls, each with its id.
    pub(super) calls: Vec<(String, Tokens)>,
    /// The names of unknown tools that the model called.
    pub(super) unknown_tools: Vec<String>,
    /// The results of calls, each with the id of its call.
    pub(super) results: Vec<(String, String)>,
}

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

    /// Returns the entries that Gemini CLI recorded after the entries that this method returned before.
    pub(super) fn unread(&mut self) -> Recorded {
        let mut unread = Recorded::default();
        for log in self.log_files() {
            let from = self.read.get(&log).copied().unwrap_or_default();
            // A log that cannot be read counts as unchanged. At the end of the turn, the program reports the remaining
            // tokens.
            let Some((text, to)) = home::appended(&log, from) else {
                continue;
            };
            let lines = text.split(|&byte| byte == b'\n');
            let values = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            for value in values {
                unread.calls.extend(events::recorded_call(&value));
                unread.unknown_tools.extend(events::unknown_tools(&value));
                unread.results.extend(events::recorded_results(&value));
            }
            self.read.insert(log, to);
        }
        unread
    }

    fn log_files(&self) -> Vec<PathBuf> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs::OpenOptions, io::Write as _, os::unix::fs::symlink};

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    const CALL: &str = "{\"id\":\"a\",\"type\":\"gemini\",\"tokens\":{\"input\":1000,\"output\":15,\"cached\":500,\"thoughts\":5,\"tool\":0}}\n";

    const UNKNOWN: &str = "{\"type\":\"user\",\"content\":[{\"functionResponse\":{\"name\":\"spawn\",\"response\":{\"error\":\"Tool \\\"spawn\\\" not found in registry.\"}}}]}\n";

    const RESULT: &str = "{\"type\":\"user\",\"content\":[{\"functionResponse\":{\"id\":\"c\",\"name\":\"run_shell_command\",\"response\":{\"output\":\"seen\"}}}]}\n";

    #[test]
    fn recorded_calls_are_read_once_in_complete_lines() {
        let home = tempfile::tempdir().unwrap();
        let chats = home.path().join(".gemini/tmp/p/chats");
        fs::create_dir_all(&chats).unwrap();
        let mut log = Chats::new(home.path());
        assert!(log.unread().calls.is_empty());
        let path = chats.join("session-1.jsonl");
        append(&path, "{\"type\":\"user\"}\nno json\n");
        append(&path, &CALL[..20]);
        assert!(log.unread().calls.is_empty(), "an incomplete line is not a call");
        append(&path, &CALL[20..]);
        let [(id, tokens)] = &log.unread().calls[..] else {
            panic!()
        };
        assert_eq!(id, "a");
        assert_eq!((tokens.input, tokens.cached_input, tokens.output), (1000, 500, 20));
        assert!(log.unread().calls.is_empty());
        append(&path, UNKNOWN);
        assert_eq!(log.unread().unknown_tools, ["spawn"]);
        append(&path, RESULT);
        assert_eq!(log.unread().results, [("c".to_owned(), "seen".to_owned())]);
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
        assert!(Chats::new(home.path()).unread().calls.is_empty());
    }
}
