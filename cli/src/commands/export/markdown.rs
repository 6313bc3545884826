//! An export as Markdown.

use troupe_proto::supervisor::v1::{Thread, TranscriptEntry, TranscriptKind};

use super::Export;
use crate::{
    names, sanitize, time, transcript_format,
    ui::{self, plain},
};

/// Returns the session with its tree and every transcript.
pub(super) fn document(export: &Export) -> String {
    let session = &export.session;
    let mut out = format!("# Session {}\n\n", sanitize::line(&session.session_id));
    if !session.cwd.is_empty() {
        out.push_str(&format!("Project: {}\n\n", code(&session.cwd)));
    }
    out.push_str("## Threads\n\n");
    out.push_str(&fenced(&plain(&ui::tree(&export.threads, usize::MAX))));
    for thread in &export.threads {
        let transcript = export.transcript(thread);
        if !transcript.is_empty() {
            out.push_str(&of_thread(export, thread, transcript));
        }
    }
    out
}

fn of_thread(export: &Export, thread: &Thread, transcript: &[TranscriptEntry]) -> String {
    let status = names::status_kind(ui::status_of(thread));
    let role = sanitize::line(&ui::role(thread));
    let id = sanitize::line(&thread.thread_id);
    let mut out = format!("\n## {role} {id}\n\nStatus: {status}\n");
    for (turn, text) in export.prompts(thread) {
        out.push_str(&format!(
            "\n### Prompt of turn {turn}\n\n{}",
            fenced(&sanitize::block(text))
        ));
    }
    let mut turn = 0;
    for entry in transcript {
        if entry.turn != 0 && entry.turn != turn {
            turn = entry.turn;
            out.push_str(&format!("\n### Turn {turn}\n"));
        }
        out.push_str(&of_entry(entry));
    }
    out
}

fn of_entry(entry: &TranscriptEntry) -> String {
    let (name, _) = transcript_format::label(entry.kind());
    let clock = time::clock(entry.time.as_ref());
    let body = transcript_format::body(entry, &entry.text);
    let body = match entry.kind() {
        // The agent writes Markdown. A quotation separates it from the document.
        TranscriptKind::Message => body.lines().map(|line| format!("> {line}\n")).collect(),
        _ => fenced(&body),
    };
    format!("\n**{name}** {clock}\n\n{body}")
}

/// Formats a text as a code block with a fence that does not occur in the text.
fn fenced(text: &str) -> String {
    let longest = text
        .split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end())
}

fn code(text: &str) -> String {
    format!("`{}`", sanitize::line(text).replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::export::tests::sample;

    #[test]
    fn transcript_cannot_break_out_of_its_block() {
        let shown = document(&sample());
        assert!(
            shown.starts_with("# Session s-1\n\nProject: `/project`\n\n## Threads\n\n```\n"),
            "{shown}"
        );
        assert!(
            shown.contains("\n## explorer t-2\n\nStatus: COMPLETED\n\n### Prompt of turn 1\n\n```\nAnswer"),
            "{shown}"
        );
        assert!(shown.contains("\n### Turn 1\n"), "{shown}");
        assert!(
            shown.contains("\n**call** 00:01:02\n\n```\nexec_command {\"command\":\"ls\"}  allowed\n```\n"),
            "{shown}"
        );
        assert!(shown.contains("\n> # Not a heading\n"), "{shown}");
        assert_eq!(fenced("a ```` b"), "`````\na ```` b\n`````\n");
    }
}
