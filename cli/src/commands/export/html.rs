//! An export as one HTML file without external references.

use troupe_proto::supervisor::v1::{StatusKind, Thread, TranscriptEntry, TranscriptKind};

use super::Export;
use crate::{ids, names, sanitize, time, transcript_format, ui};

/// The style of the document. It follows the reader's light or dark setting.
const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--good:#2a7;--bad:#c33;--busy:#26c}
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
ul{list-style:none;padding-left:1.25rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.25rem 0;font:13px/1.45 ui-monospace,monospace}
.bar{position:relative;height:1.25rem;border-left:1px solid var(--line);margin:.25rem 0}
.bar i{position:absolute;top:.2rem;height:.85rem;min-width:3px;background:var(--busy);border-radius:2px}
.bar i.completed{background:var(--good)}.bar i.errored{background:var(--bad)}
.row{display:grid;grid-template-columns:16rem 1fr;gap:1rem;align-items:center}
.entry{display:grid;grid-template-columns:5rem 6rem 1fr;gap:.5rem;border-top:1px solid var(--line);padding:.25rem 0}
.time,.id{opacity:.6}.error pre{color:var(--bad)}.message pre{font:inherit}";

/// Returns the document.
pub(super) fn document(export: &Export) -> String {
    let title = format!("Session {}", export.session.session_id);
    let title = escape(&title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\n</style>\n<h1>{title}</h1>\n"
    );
    if !export.session.cwd.is_empty() {
        out.push_str(&format!(
            "<p>Project <code>{}</code></p>\n",
            escape(&export.session.cwd)
        ));
    }
    out.push_str("<h2>Threads</h2>\n");
    out.push_str(&tree(export));
    out.push_str("<h2>Timeline</h2>\n");
    out.push_str(&timeline(export));
    for thread in &export.threads {
        let transcript = export.transcript(thread);
        if !transcript.is_empty() {
            out.push_str(&of_thread(export, thread, transcript));
        }
    }
    out.push_str("</html>\n");
    out
}

/// The threads, each with a link to its transcript. The depth is shown by indentation, so that a deep tree needs no
/// deep nesting.
fn tree(export: &Export) -> String {
    let items = export.threads.iter().map(|thread| {
        let status = names::status_kind(ui::status_of(thread));
        let name = name(thread);
        let shown = match export.transcript(thread).is_empty() {
            true => name,
            false => format!("<a href=\"#{}\">{name}</a>", escape(&thread.thread_id)),
        };
        format!(
            "<li style=\"padding-left:{}rem\">{shown} {status}</li>\n",
            thread.depth.min(40)
        )
    });
    format!("<ul>\n{}</ul>\n", items.collect::<String>())
}

/// A bar for each thread, from its first to its last known time.
fn timeline(export: &Export) -> String {
    let spans = export.threads.iter().map(|thread| export.span(thread));
    let spans: Vec<_> = spans.collect();
    let first = spans.iter().flatten().map(|span| span.0).fold(f64::INFINITY, f64::min);
    let last = spans.iter().flatten().map(|span| span.1).fold(first, f64::max);
    let total = (last - first).max(0.001);
    let rows = export.threads.iter().zip(spans).filter_map(|(thread, span)| {
        let (from, to) = span?;
        let (left, width) = ((from - first) / total * 100.0, (to - from) / total * 100.0);
        let class = match ui::status_of(thread) {
            StatusKind::Completed => "completed",
            StatusKind::Errored => "errored",
            _ => "",
        };
        Some(format!(
            "<div class=\"row\"><span>{}</span><div class=\"bar\"><i class=\"{class}\" \
             style=\"left:{left:.2}%;width:{width:.2}%\" title=\"{:.1} s\"></i></div></div>\n",
            name(thread),
            to - from
        ))
    });
    rows.collect()
}

fn of_thread(export: &Export, thread: &Thread, transcript: &[TranscriptEntry]) -> String {
    let id = escape(&thread.thread_id);
    let prompts = export.prompts(thread).map(|(turn, text)| {
        let text = escape(text);
        format!("<details><summary>Prompt of turn {turn}</summary><pre>{text}</pre></details>\n")
    });
    let prompts: String = prompts.collect();
    let entries: String = transcript.iter().map(of_entry).collect();
    format!(
        "<h2 id=\"{id}\">{}</h2>\n{prompts}<details open><summary>{} entries</summary>\n{entries}</details>\n",
        name(thread),
        transcript.len()
    )
}

fn of_entry(entry: &TranscriptEntry) -> String {
    let (name, _) = transcript_format::label(entry.kind());
    let clock = time::clock(entry.time.as_ref());
    let class = match entry.kind() {
        TranscriptKind::Message => "entry message",
        TranscriptKind::Error => "entry error",
        _ => "entry",
    };
    let body = escape(&transcript_format::body(entry, &entry.text));
    format!("<div class=\"{class}\"><span class=\"time\">{clock}</span><b>{name}</b><pre>{body}</pre></div>\n")
}

fn name(thread: &Thread) -> String {
    let id = ids::short(&thread.thread_id);
    let alias = match thread.alias.as_str() {
        "" => String::new(),
        alias => format!(" {}", escape(alias)),
    };
    format!(
        "{}{alias} <span class=\"id\">{}</span>",
        escape(&ui::role(thread)),
        escape(id)
    )
}

/// Escapes a text for HTML content and quoted attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in sanitize::block(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::export::tests::sample;

    #[test]
    fn document_has_no_external_references() {
        let shown = document(&sample());
        assert!(
            !shown.contains("<script") && !shown.contains("http:") && !shown.contains("https:"),
            "{shown}"
        );
        assert!(
            shown.contains("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"),
            "{shown}"
        );
        assert!(shown.contains("<a href=\"#t-2\">explorer alias of t-2"), "{shown}");
        assert!(
            shown.contains("class=\"completed\" style=\"left:1.00%;width:99.00%\" title=\"99.0 s\""),
            "{shown}"
        );
        assert!(
            shown.contains("<summary>Prompt of turn 1</summary><pre>Answer &lt;briefly&gt;.</pre>"),
            "{shown}"
        );
        assert!(
            shown.contains("<span class=\"time\">00:01:02</span><b>call</b>"),
            "{shown}"
        );
    }
}
