//! Entries of a transcript as text for people.

use anstyle::Style;
use troupe_proto::supervisor::v1::{ToolVerdict, TranscriptEntry, TranscriptKind, plan_step::State};

use crate::{sanitize, time, ui::style};

/// Width of the column with the kind.
const KIND_COLUMNS: usize = 9;

/// Returns an entry as lines: the time, the kind and the text. `text` replaces a text that is not in the entry.
pub(crate) fn lines(entry: &TranscriptEntry, text: Option<&str>) -> String {
    let (name, color) = label(entry.kind());
    let clock = style::paint(style::DIM, time::clock(entry.time.as_ref())).to_string();
    let kind = style::paint(color, format!("{name:<KIND_COLUMNS$}")).to_string();
    let body = body(entry, text.unwrap_or(&entry.text));
    let indent = " ".repeat("12:00:00".len() + 1 + KIND_COLUMNS + 1);
    let mut lines = body.lines();
    let mut out = format!("{clock} {kind} {}", lines.next().unwrap_or_default());
    for line in lines {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&indent);
            out.push_str(line);
        }
    }
    out
}

/// Returns the short name of a kind, with its color.
pub(crate) const fn label(kind: TranscriptKind) -> (&'static str, Style) {
    match kind {
        TranscriptKind::Input => ("input", style::NAME),
        TranscriptKind::Message => ("message", style::HEADING),
        TranscriptKind::Reasoning => ("reasoning", style::DIM),
        TranscriptKind::ToolCall => ("call", style::WARN),
        TranscriptKind::ToolResult => ("result", style::DIM),
        TranscriptKind::Plan => ("plan", style::NAME),
        TranscriptKind::FileChange => ("file", style::GOOD),
        TranscriptKind::Error => ("error", style::BAD),
        TranscriptKind::Notice => ("notice", style::WARN),
        TranscriptKind::Unspecified => ("?", style::DIM),
    }
}

/// Returns the content of an entry as plain text.
pub(crate) fn body(entry: &TranscriptEntry, text: &str) -> String {
    let text = sanitize::block(text);
    let left_out = |shown: String| match (entry.text_left_out, shown.is_empty()) {
        (false, _) => shown,
        (true, true) => "(text not stored)".to_owned(),
        (true, false) => format!("{shown} (text not stored)"),
    };
    if let Some(call) = &entry.tool_call {
        let verdict = match call.verdict() {
            ToolVerdict::Unspecified => String::new(),
            ToolVerdict::Allowed if call.approval_id.is_empty() => "  allowed".to_owned(),
            ToolVerdict::Allowed => "  allowed by an operator".to_owned(),
            ToolVerdict::Denied => format!("  denied: {}", sanitize::line(&call.reason)),
        };
        let arguments = sanitize::line(&text);
        return left_out(format!("{} {arguments}{verdict}", sanitize::line(&call.tool)));
    }
    if let Some(result) = &entry.tool_result {
        let outcome = if result.failed { "failed" } else { "ok" };
        let elapsed = result
            .duration
            .map(|time| format!(", {}", time::elapsed(time)))
            .unwrap_or_default();
        let size = match result.size {
            0 => String::new(),
            size => format!(", {size} bytes"),
        };
        let text = text.trim_end();
        let separator = if text.is_empty() { "" } else { "\n" };
        return left_out(format!("{outcome}{elapsed}{size}{separator}{text}"));
    }
    if let Some(change) = &entry.file_change {
        return format!("{} +{} -{}", sanitize::line(&change.path), change.added, change.removed);
    }
    if entry.kind() == TranscriptKind::Plan {
        let steps = entry.plan.iter().map(|step| {
            let mark = match step.state() {
                State::Completed => "✓",
                State::InProgress => "▸",
                State::Pending | State::Unspecified => "·",
            };
            format!("{mark} {}", sanitize::line(&step.step))
        });
        return steps.collect::<Vec<_>>().join("\n");
    }
    left_out(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{PlanStep, TranscriptFileChange, TranscriptToolCall, TranscriptToolResult};

    use super::*;
    use crate::ui::plain;

    fn entry(kind: TranscriptKind, text: &str) -> TranscriptEntry {
        TranscriptEntry {
            kind: kind.into(),
            text: text.to_owned(),
            time: Some(prost_types::Timestamp { seconds: 61, nanos: 0 }),
            ..TranscriptEntry::default()
        }
    }

    #[test]
    fn entries_are_lines_with_time_and_kind() {
        let call = TranscriptToolCall {
            tool: "exec_command".to_owned(),
            verdict: ToolVerdict::Denied.into(),
            reason: "not in PLANNING mode".to_owned(),
            ..TranscriptToolCall::default()
        };
        let result = TranscriptToolResult {
            failed: true,
            size: 4,
            duration: Some(prost_types::Duration {
                seconds: 0,
                nanos: 120_000_000,
            }),
            ..TranscriptToolResult::default()
        };
        let plan = [("look", State::Completed), ("act", State::InProgress)].map(|(step, state)| PlanStep {
            step: step.to_owned(),
            state: state.into(),
        });
        for (entry, expected) in [
            (
                entry(TranscriptKind::Message, "one\u{1b}\ntwo\n"),
                "00:01:01 message   one\n                   two",
            ),
            (
                TranscriptEntry {
                    tool_call: Some(call),
                    ..entry(TranscriptKind::ToolCall, "{\"command\":\"ls\"}")
                },
                "00:01:01 call      exec_command {\"command\":\"ls\"}  denied: not in PLANNING mode",
            ),
            (
                TranscriptEntry {
                    tool_result: Some(result),
                    ..entry(TranscriptKind::ToolResult, "no\n")
                },
                "00:01:01 result    failed, 120ms, 4 bytes\n                   no",
            ),
            (
                TranscriptEntry {
                    plan: plan.to_vec(),
                    ..entry(TranscriptKind::Plan, "")
                },
                "00:01:01 plan      ✓ look\n                   ▸ act",
            ),
            (
                TranscriptEntry {
                    file_change: Some(TranscriptFileChange {
                        path: "a.txt".to_owned(),
                        added: 2,
                        removed: 1,
                    }),
                    ..entry(TranscriptKind::FileChange, "")
                },
                "00:01:01 file      a.txt +2 -1",
            ),
            (
                TranscriptEntry {
                    text_left_out: true,
                    ..entry(TranscriptKind::Message, "")
                },
                "00:01:01 message   (text not stored)",
            ),
        ] {
            assert_eq!(plain(&lines(&entry, None)), expected);
        }
        assert!(plain(&lines(&entry(TranscriptKind::Message, ""), Some("the whole"))).ends_with("the whole"));
    }
}
