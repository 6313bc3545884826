//! The task block of a prompt: the agent's work and environment. The registry provides the other blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use crate::{
    content::ContentRef,
    event::{ConditionKind, Edge, EdgeKind, Expectation, Handoff},
    ids::{Sequence, ThreadId},
    rules::graph,
    settings::{EdgeManagement, Mode},
    state::{
        mailbox::{Body, Letter},
        session::Session,
        thread::Thread,
    },
    status::Status,
    time::UnixMillis,
};

/// Maximum number of threads and of edges in a task block. The block contains the number of omitted entries.
pub const MAX_LISTED: usize = 200;

/// Maximum size of one text of a handoff in a task block, in bytes. The block says how to read the rest.
pub const MAX_TEXT_BYTES: usize = 16 * 1_024;

/// Maximum size of the mail in a task block, in bytes as estimated by `bytes_of`. No letter is larger, so at least one
/// always fits.
pub const MAX_MAIL_BYTES: u64 = 256 * 1_024;

/// Overhead of a letter in addition to its texts, in bytes.
const LETTER_BYTES: u64 = 512;

/// The description of the work from a spawn, in addition to its input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assignment<'a> {
    /// The objective.
    pub objective: &'a str,
    /// The criteria for completion.
    pub definition_of_done: &'a str,
    /// The JSON Schema of the requested result. Empty means that no result is requested.
    pub result_schema: &'a str,
}

/// The texts sent to the thread. The state contains only references to them.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The undelivered inputs, oldest first.
    pub messages: &'a [String],
    /// The texts of the handoffs of [`shown_mail`], by letter. A missing text is replaced by its preview.
    pub handoffs: &'a BTreeMap<Sequence, HandoffText>,
}

/// The texts of a handoff, each truncated to [`MAX_TEXT_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandoffText {
    /// Its message.
    pub message: String,
    /// The JSON value. Empty means none.
    pub structured: String,
}

/// Returns the mail for the next task block: as many of the oldest letters as fit. The rest is part of later blocks.
#[must_use]
pub fn shown_mail(thread: &Thread) -> Vec<&Arc<Letter>> {
    let mut room = MAX_MAIL_BYTES;
    let fits = |letter: &&Arc<Letter>| match room.checked_sub(bytes_of(letter)) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    thread.mail.letters().take_while(fits).collect()
}

/// Returns the task block of a thread's next turn.
#[must_use]
pub fn task_block(session: &Session, thread: &Thread, assignment: Assignment<'_>, incoming: Incoming<'_>) -> String {
    let mut text = String::from("# Task\n");
    section(&mut text, "Objective", &lines(assignment.objective));
    section(&mut text, "Definition of done", &lines(assignment.definition_of_done));
    if !assignment.result_schema.is_empty() {
        section(&mut text, "Result", &[result_request(assignment.result_schema)]);
    }
    let mode = match session.settings.mode {
        Mode::Planning => "PLANNING",
        Mode::Implementation => "IMPLEMENTATION",
    };
    section(&mut text, "Mode", &[mode.to_owned()]);
    let edges = match session.edge_management(thread) {
        EdgeManagement::None => "none",
        EdgeManagement::SelfOnly => "self",
        EdgeManagement::All => "all",
    };
    section(&mut text, "Edge management", &[format!("edgeManagement={edges}")]);
    section(&mut text, "Workspace", &lines(session.workspace(thread)));
    section(&mut text, "Known threads", &known_threads(session, thread));
    section(&mut text, "Known edges", &known_edges(session, thread));
    section(&mut text, "Messages", incoming.messages);
    section(&mut text, "Handoffs", &mail(session, thread, incoming.handoffs));
    text.truncate(text.trim_end().len());
    text
}

fn result_request(schema: &str) -> String {
    format!(
        "Before you end your turn, report the result as one JSON document that matches this JSON Schema: call the tool \
         report_result with it. If you do not have that tool, your last message must be the document and nothing else.\n\
         {schema}"
    )
}

fn lines(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        Vec::new()
    } else {
        vec![text.to_owned()]
    }
}

fn section(text: &mut String, title: &str, entries: &[String]) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n## {title}");
    if entries.is_empty() {
        text.push_str("- none\n");
    }
    for entry in entries {
        let _ = writeln!(text, "- {}", entry.replace('\n', "\n  "));
    }
}

// ---- surroundings ----

/// Returns the threads that the thread can name: itself, its parent, the threads it has edges with, and its descendants
/// if it manages all edges. If they do not all fit, the nearest come first. Listing the whole tree would make every
/// prompt grow with the session.
fn known_threads(session: &Session, thread: &Thread) -> Vec<String> {
    let edges = graph::edges_of(session, thread.id);
    let neighbours = edges.iter().flat_map(|edge| [edge.from, edge.to]);
    let below = match session.edge_management(thread) {
        EdgeManagement::None | EdgeManagement::SelfOnly => Vec::new(),
        EdgeManagement::All => session.subtree(thread.id),
    };
    let ids = [thread.id]
        .into_iter()
        .chain(thread.spawned.parent)
        .chain(neighbours)
        .chain(below.into_iter().map(|below| below.id));
    let mut seen = BTreeSet::new();
    let known: Vec<&Arc<Thread>> = ids
        .filter(|id| seen.insert(*id))
        .filter_map(|id| session.thread(id))
        .filter(|known| known.status.kind().is_open())
        .collect();
    let shown = known.iter().take(MAX_LISTED).map(|known| {
        let you = if known.id == thread.id { " (you)" } else { "" };
        format!("{}{you}", described(known))
    });
    listed(shown.collect(), known.len())
}

fn described(thread: &Thread) -> String {
    let spawned = &thread.spawned;
    let label = if spawned.label.is_empty() {
        thread.display_name()
    } else {
        spawned.label.clone()
    };
    let alias = if spawned.alias.is_empty() { "-" } else { &spawned.alias };
    let (id, role, status) = (thread.id, &spawned.role.agent_type, thread.status.kind());
    format!("{label} ({id}) alias={alias} role={role} status={status}")
}

/// Returns the thread's edges, and those of its descendants if it manages all edges.
fn known_edges(session: &Session, thread: &Thread) -> Vec<String> {
    let edges = match session.edge_management(thread) {
        EdgeManagement::None | EdgeManagement::SelfOnly => graph::edges_of(session, thread.id),
        EdgeManagement::All => graph::edges_within(session, thread.id),
    };
    let shown = edges.iter().take(MAX_LISTED).map(|edge| edge_line(edge));
    listed(shown.collect(), edges.len())
}

fn edge_line(edge: &Edge) -> String {
    let arrow = if edge.bidirectional { "<->" } else { "->" };
    let kind = match edge.kind {
        EdgeKind::Handoff => "handoff",
        EdgeKind::Report => "report",
    };
    let label = if edge.label.is_empty() {
        String::new()
    } else {
        format!(" label={}", edge.label)
    };
    format!("{} {arrow} {} type={kind}{label}", edge.from, edge.to)
}

/// Returns entries in order, followed by the number of omitted entries.
fn listed(mut entries: Vec<String>, total: usize) -> Vec<String> {
    entries.sort();
    let more = total - entries.len();
    if more > 0 {
        entries.push(format!("... and {more} more"));
    }
    entries
}

// ---- mail ----

fn bytes_of(letter: &Letter) -> u64 {
    let shown = |content: &ContentRef| content.size.min(MAX_TEXT_BYTES as u64);
    let texts = match &letter.body {
        Body::Handoff(handoff) => {
            let artifacts = handoff.artifacts.iter();
            let references: usize = artifacts.map(|(kind, reference)| kind.len() + reference.len()).sum();
            shown(&handoff.message) + handoff.structured.as_ref().map_or(0, shown) + references as u64
        }
        Body::Settled { status, .. } => last_word(status).len() as u64,
        Body::GroupEnded { reason, .. } => reason.len() as u64,
    };
    LETTER_BYTES + texts
}

/// Returns the letters of [`shown_mail`], oldest first.
fn mail(session: &Session, thread: &Thread, texts: &BTreeMap<Sequence, HandoffText>) -> Vec<String> {
    let shown = shown_mail(thread);
    let mut entries: Vec<String> = shown
        .iter()
        .map(|letter| match &letter.body {
            Body::Handoff(sent) => handoff(session, sent, texts.get(&letter.sequence)),
            Body::GroupEnded {
                group,
                outcome,
                reason,
                table,
            } => {
                let name = session.group(*group).map_or("", |group| group.spec.name.as_str());
                format!("group {name} ({group}) is {outcome}: {reason}\nartifact: group-results {table}")
            }
            Body::Settled { child, status } => {
                let word = last_word(status);
                let colon = if word.is_empty() { "" } else { ": " };
                let mut entry = format!("{} is {}{colon}{word}", name_with_id(session, *child), status.kind());
                if let Some((_, question)) = session.thread(*child).and_then(question) {
                    let _ = write!(entry, "\nasks you: {question}");
                }
                entry
            }
        })
        .collect();
    let more = thread.mail.len() - shown.len();
    if more > 0 {
        entries.push(format!("... and {more} more, which come with your next task"));
    }
    entries
}

/// Returns the unanswered question of a thread to its parent.
fn question(thread: &Arc<Thread>) -> Option<&(UnixMillis, String)> {
    thread.conditions.get(&ConditionKind::AwaitingInput)
}

fn handoff(session: &Session, handoff: &Handoff, text: Option<&HandoffText>) -> String {
    let mut entry = format!("from {}", name_with_id(session, handoff.from));
    if let Some((ok, reason)) = &handoff.verdict {
        entry.push_str(if *ok { "; ok" } else { "; not ok" });
        if !reason.is_empty() {
            let _ = write!(entry, ": {reason}");
        }
    }
    let expected = match handoff.expectation {
        Expectation::None => "none",
        Expectation::Optional => "optional",
        Expectation::Required => "required",
    };
    let _ = write!(entry, "; response={expected}");
    if let Some(reply_to) = handoff.reply_to {
        let _ = write!(entry, " to {}", name_with_id(session, reply_to));
    }
    if !handoff.context_ref.is_empty() {
        let _ = write!(entry, "; context={}", handoff.context_ref);
    }
    let message = text.map_or(&handoff.message.preview, |text| &text.message);
    let _ = write!(entry, "\n{}", with_truncation_note(message, &handoff.message));
    if let Some(content) = &handoff.structured {
        let structured = text.map_or(&content.preview, |text| &text.structured);
        let _ = write!(entry, "\nstructured: {}", with_truncation_note(structured, content));
    }
    for (kind, reference) in &handoff.artifacts {
        let _ = write!(entry, "\nartifact: {kind} {reference}");
    }
    entry
}

/// Returns a text. A truncated text is followed by a reference to the complete content.
fn with_truncation_note(text: &str, content: &ContentRef) -> String {
    if text.len() as u64 >= content.size {
        text.to_owned()
    } else {
        format!(
            "{text}\n[cut; all {} bytes are content {}]",
            content.size, content.digest
        )
    }
}

fn last_word(status: &Status) -> &str {
    match status {
        Status::Settled(settled) => settled.last_word(),
        Status::Shutdown { reason, .. } => reason,
        Status::Queued | Status::AwaitingApproval | Status::PendingInit | Status::Running => "",
    }
}

fn name_with_id(session: &Session, id: ThreadId) -> String {
    match session.thread(id) {
        Some(thread) => format!("{} ({id})", thread.display_name()),
        None => id.to_string(),
    }
}
