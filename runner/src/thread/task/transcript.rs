//! The transcript of a thread. Entries wait for a short time, so that one batch contains several of them. Pure.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use tool_policy::NativeTools;
use troupe_proto::supervisor::v1::{
    PlanStep, ToolUse, ToolVerdict, TranscriptEntry, TranscriptFileChange, TranscriptKind, TranscriptToolCall,
    TranscriptToolResult,
};

use crate::{
    redact,
    text::{clean, cut},
};

/// Maximum time that an entry waits for others.
const MAX_AGE: Duration = Duration::from_millis(250);
/// Number of entries that fill a batch.
const FULL_ENTRIES: usize = 64;
/// Size of entries that fills a batch, in bytes.
const FULL_BYTES: usize = 256 * 1024;
/// Maximum length of an entry's text, in bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Maximum length of a tool result's text, in bytes.
const MAX_RESULT_BYTES: usize = 4 * 1024;
/// Maximum number of calls whose results are awaited.
pub(super) const MAX_CALLS: usize = 1024;
/// Maximum length of a call's id, in bytes.
const MAX_ID_BYTES: usize = 256;
/// Maximum number of changed files of a turn.
const MAX_FILES: usize = 1000;

/// A call of a tool with its decision.
#[derive(Debug)]
pub(super) struct RecordedCall<'a> {
    /// The program's id of the call. Empty: no result follows.
    pub(super) id: &'a str,
    /// The program's name of the tool.
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    pub(super) verdict: ToolVerdict,
    /// Why the call was denied.
    pub(super) reason: &'a str,
    pub(super) approval_id: &'a str,
}

impl<'a> RecordedCall<'a> {
    /// Returns a call without a decision: the supervisor decides when the call reaches it, or the program executes the
    /// call without asking.
    pub(super) const fn undecided(id: &'a str, tool: &'a str, arguments: &'a Value) -> Self {
        Self {
            id,
            tool,
            arguments,
            verdict: ToolVerdict::Unspecified,
            reason: "",
            approval_id: "",
        }
    }
}

/// Collects the entries of a thread's transcript.
#[derive(Debug)]
pub(super) struct Transcript {
    secrets: Arc<[String]>,
    /// The canonical names of the program's tools.
    names: NativeTools,
    /// Whether the program writes whole lines.
    has_lines: bool,
    /// The batches that are full.
    full: Vec<Vec<TranscriptEntry>>,
    /// The batch that is not full, and its size in bytes.
    entries: Vec<TranscriptEntry>,
    bytes: usize,
    /// The creation time of the oldest waiting entry.
    since: Option<Instant>,
    /// A message or reasoning that may continue.
    open: Option<(TranscriptKind, String)>,
    /// The last message of the turn.
    last_message: String,
    /// Calls without a result, with the time of their decision.
    calls: BTreeMap<String, Instant>,
    plan: Vec<PlanStep>,
    turn: u32,
}

impl Transcript {
    pub(super) fn new(secrets: Arc<[String]>, names: NativeTools, has_lines: bool) -> Self {
        Self {
            secrets,
            names,
            has_lines,
            full: Vec::new(),
            entries: Vec::new(),
            bytes: 0,
            since: None,
            open: None,
            last_message: String::new(),
            calls: BTreeMap::new(),
            plan: Vec::new(),
            turn: 0,
        }
    }

    pub(super) fn begin_turn(&mut self, turn: u32) {
        self.turn = turn;
        self.last_message.clear();
    }

    /// Records the changed files of a turn and how it ended. For an interruption the message is the reason.
    pub(super) fn end_turn(&mut self, kind: TranscriptKind, message: &str, diff: &str) {
        self.close();
        for (path, added, removed) in changed_files(diff).into_iter().take(MAX_FILES) {
            self.push(TranscriptEntry {
                kind: TranscriptKind::FileChange.into(),
                file_change: Some(TranscriptFileChange { path, added, removed }),
                ..TranscriptEntry::default()
            });
        }
        let is_new = kind != TranscriptKind::Message || self.last_message.trim() != message.trim();
        if is_new && !message.is_empty() {
            self.text(kind, message);
        }
        self.calls.clear();
        self.turn = 0;
    }

    /// Records a tool use that a program that writes lines reported. Other programs report the call itself, which is
    /// recorded instead.
    pub(super) fn used(&mut self, tool: &ToolUse) {
        if self.has_lines {
            let arguments = json!({"detail": tool.detail});
            self.call(&RecordedCall::undecided("", &tool.name, &arguments));
        }
    }

    /// Records a text that is complete.
    pub(super) fn text(&mut self, kind: TranscriptKind, text: &str) {
        self.close();
        if kind == TranscriptKind::Message {
            text.clone_into(&mut self.last_message);
        }
        self.push(TranscriptEntry {
            kind: kind.into(),
            text: cut(self.shown(text), MAX_TEXT_BYTES),
            ..TranscriptEntry::default()
        });
    }

    /// Adds a piece to the open message or reasoning.
    pub(super) fn piece(&mut self, kind: TranscriptKind, piece: &str) {
        if self.open.as_ref().is_some_and(|(open, _)| *open != kind) {
            self.close();
        }
        let (_, text) = self.open.get_or_insert_with(|| (kind, String::new()));
        text.push_str(piece);
        if self.has_lines {
            text.push('\n');
        }
        if text.len() >= MAX_TEXT_BYTES {
            self.close();
        } else if self.has_lines {
            // Programs that write lines do not report where a message ends. Their lines within [`MAX_AGE`] form one
            // entry.
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// Ends the open message or reasoning.
    pub(super) fn close(&mut self) {
        if let Some((kind, text)) = self.open.take()
            && !text.trim().is_empty()
        {
            let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
            self.text(kind, &text);
        }
    }

    /// Records a plan, unless it equals the last recorded one.
    pub(super) fn plan(&mut self, plan: &[PlanStep]) {
        if self.plan != plan {
            self.close();
            plan.clone_into(&mut self.plan);
            let shown = plan.iter().map(|step| PlanStep {
                step: self.shown(&step.step),
                ..step.clone()
            });
            let plan = shown.collect();
            self.push(TranscriptEntry {
                kind: TranscriptKind::Plan.into(),
                plan,
                ..TranscriptEntry::default()
            });
        }
    }

    /// Returns the canonical name of a tool of the program.
    pub(super) fn canonical<'a>(&'a self, tool: &'a str) -> &'a str {
        self.names.canonical(tool).unwrap_or(tool)
    }

    /// Returns whether a call with this id waits for its result.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.calls.contains_key(id)
    }

    pub(super) fn call(&mut self, call: &RecordedCall<'_>) {
        self.close();
        let has_result = call.verdict != ToolVerdict::Denied && call.id.len() <= MAX_ID_BYTES;
        if has_result && !call.id.is_empty() && self.calls.len() < MAX_CALLS {
            self.calls.insert(call.id.to_owned(), Instant::now());
        }
        let arguments = redact::secrets(call.arguments, &self.secrets).to_string();
        self.push(TranscriptEntry {
            kind: TranscriptKind::ToolCall.into(),
            text: cut(arguments, MAX_TEXT_BYTES),
            tool_call: Some(TranscriptToolCall {
                call_id: cut(call.id.to_owned(), MAX_ID_BYTES),
                tool: self.canonical(call.tool).to_owned(),
                native_tool: call.tool.to_owned(),
                verdict: call.verdict.into(),
                reason: self.shown(call.reason),
                approval_id: call.approval_id.to_owned(),
            }),
            ..TranscriptEntry::default()
        });
    }

    /// Records the result of a call. Ignores the result if no call with this id waits for a result, because programs
    /// repeat results.
    pub(super) fn result(&mut self, id: &str, failed: bool, text: &str, size: usize) {
        let Some(since) = self.calls.remove(id) else { return };
        self.close();
        self.push(TranscriptEntry {
            kind: TranscriptKind::ToolResult.into(),
            text: cut(self.shown(&cut(text.to_owned(), MAX_TEXT_BYTES)), MAX_RESULT_BYTES),
            tool_result: Some(TranscriptToolResult {
                call_id: id.to_owned(),
                failed,
                duration: since.elapsed().try_into().ok(),
                size: size as u64,
            }),
            ..TranscriptEntry::default()
        });
    }

    /// Returns the time at which the waiting entries must be sent. `None`: no entries wait.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + MAX_AGE)
    }

    /// Returns whether the waiting entries should be sent now.
    pub(super) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Removes and returns the waiting entries, in batches.
    pub(super) fn take(&mut self) -> Vec<Vec<TranscriptEntry>> {
        if self.has_lines {
            self.close();
        }
        self.end_batch();
        self.since = None;
        std::mem::take(&mut self.full)
    }

    fn end_batch(&mut self) {
        if !self.entries.is_empty() {
            self.full.push(std::mem::take(&mut self.entries));
        }
        self.bytes = 0;
    }

    fn shown(&self, text: &str) -> String {
        clean(&redact::text(text, &self.secrets))
    }

    fn push(&mut self, entry: TranscriptEntry) {
        self.bytes += entry.encoded_len();
        self.since.get_or_insert_with(Instant::now);
        self.entries.push(TranscriptEntry {
            time: Some(SystemTime::now().into()),
            turn: self.turn,
            ..entry
        });
        if self.entries.len() >= FULL_ENTRIES || self.bytes >= FULL_BYTES {
            self.end_batch();
        }
    }
}

/// Returns the files of a unified diff, with the numbers of added and removed lines.
fn changed_files(diff: &str) -> Vec<(String, u32, u32)> {
    let mut files: Vec<(String, u32, u32)> = Vec::new();
    // The remaining old and new lines of the hunk. Within a hunk, a line that resembles a header is content.
    let mut left = (0_u32, 0_u32);
    let mut old = "";
    for line in diff.lines() {
        if left.0 > 0 || left.1 > 0 {
            let Some((_, added, removed)) = files.last_mut() else {
                continue;
            };
            match line.as_bytes().first() {
                Some(b'+') => {
                    left.1 = left.1.saturating_sub(1);
                    *added += 1;
                }
                Some(b'-') => {
                    left.0 = left.0.saturating_sub(1);
                    *removed += 1;
                }
                Some(b'\\') => {}
                _ => left = (left.0.saturating_sub(1), left.1.saturating_sub(1)),
            }
        } else if let Some(path) = line.strip_prefix("--- ") {
            old = path;
        } else if let Some(new) = line.strip_prefix("+++ ") {
            let path = if new == "/dev/null" { old } else { new };
            let plain = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/"));
            files.push((plain.unwrap_or(path).to_owned(), 0, 0));
        } else if let Some(hunk) = line.strip_prefix("@@ ") {
            left = hunk_length(hunk).unwrap_or_default();
        }
    }
    files
}

/// Returns the numbers of old and new lines of a hunk from its header, such as `-1,4 +1,5 @@`.
fn hunk_length(hunk: &str) -> Option<(u32, u32)> {
    let mut ranges = hunk.split(' ');
    let mut length = |sign: char| {
        let range = ranges.next()?.strip_prefix(sign)?;
        range.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok())
    };
    Some((length('-')?, length('+')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(has_lines: bool) -> Transcript {
        Transcript::new(vec!["sk-secret-1".to_owned()].into(), NativeTools::CLAUDE, has_lines)
    }

    fn shown(transcript: &mut Transcript) -> Vec<(TranscriptKind, String)> {
        let entries = transcript.take().into_iter().flatten();
        entries.map(|entry| (entry.kind(), entry.text)).collect()
    }

    fn call<'a>(id: &'a str, verdict: ToolVerdict, arguments: &'a Value) -> RecordedCall<'a> {
        RecordedCall {
            verdict,
            ..RecordedCall::undecided(id, "Bash", arguments)
        }
    }

    #[test]
    fn message_pieces_are_joined_until_another_entry() {
        use TranscriptKind as K;
        let mut transcript = transcript(false);
        transcript.begin_turn(1);
        for piece in ["Hello", ", sk-sec", "ret-1"] {
            transcript.piece(K::Message, piece);
        }
        assert_eq!(
            (transcript.take(), transcript.due()),
            (Vec::new(), None),
            "the message may continue"
        );
        transcript.piece(K::Reasoning, "hm");
        let arguments = json!({"command": "echo sk-secret-1"});
        transcript.call(&call("1", ToolVerdict::Allowed, &arguments));
        transcript.result("unknown", false, "ignored", 7);
        transcript.result("1", false, "out", 3);
        transcript.result("1", false, "repeated", 8);
        transcript.text(K::Message, "Done.");
        transcript.end_turn(K::Message, "Done.", "");
        let expected = [
            (K::Message, "Hello, <redacted>"),
            (K::Reasoning, "hm"),
            (K::ToolCall, "{\"command\":\"echo <redacted>\"}"),
            (K::ToolResult, "out"),
            (K::Message, "Done."),
        ];
        assert_eq!(
            shown(&mut transcript),
            expected.map(|(kind, text)| (kind, text.to_owned()))
        );
        assert_eq!(transcript.due(), None);
    }

    #[test]
    fn long_texts_are_cut_and_full_batch_is_sent_at_once() {
        let mut transcript = transcript(false);
        let long = "x".repeat(2 * MAX_TEXT_BYTES);
        transcript.call(&call("1", ToolVerdict::Allowed, &json!({})));
        transcript.result("1", false, &long, long.len());
        assert!(!transcript.is_full());
        transcript.piece(TranscriptKind::Message, &long);
        assert!(transcript.is_full());
        let entries = transcript.take().concat();
        let lengths: Vec<usize> = entries.iter().map(|entry| entry.text.len()).collect();
        assert_eq!(lengths, [2, MAX_RESULT_BYTES, MAX_TEXT_BYTES]);
        let size = entries[1].tool_result.as_ref().map(|result| result.size);
        assert_eq!(size, Some(long.len() as u64));
        for _ in 0..FULL_ENTRIES {
            transcript.text(TranscriptKind::Notice, "n");
        }
        assert!(transcript.is_full());
    }

    #[test]
    fn many_entries_are_split_into_batches() {
        let diff: String = (0..300)
            .map(|number| format!("--- /dev/null\n+++ b/{number}\n@@ -0,0 +1 @@\n+x\n"))
            .collect();
        let mut transcript = transcript(false);
        for _ in 0..3 {
            transcript.text(TranscriptKind::Input, &"x".repeat(FULL_BYTES));
        }
        transcript.end_turn(TranscriptKind::Message, "Done.", &diff);
        assert!(transcript.is_full());
        let batches: Vec<usize> = transcript.take().iter().map(Vec::len).collect();
        assert_eq!(batches, [1, 1, 1, 64, 64, 64, 64, 45]);
        assert!(!transcript.is_full() && transcript.take().is_empty());
    }

    #[test]
    fn files_of_diff_are_counted() {
        let diff = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,3 @@\n x\n--- gone\n+++ new\n+more\n\
                    --- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n\
                    --- /dev/null\n+++ b/new file\n@@ -0,0 +1,2 @@\n+1\n+2\n[3 more files]\n";
        let expected = [("a.txt", 2, 1), ("gone", 0, 1), ("new file", 2, 0)];
        let found = changed_files(diff);
        let found: Vec<_> = found
            .iter()
            .map(|(path, added, removed)| (path.as_str(), *added, *removed))
            .collect();
        assert_eq!(found, expected);
    }
}
