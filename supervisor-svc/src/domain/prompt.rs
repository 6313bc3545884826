//! The task block: what an agent is told about its work and its surroundings. The other blocks come from the registry.

use std::fmt::Write as _;

use super::{session::Session, settings::Mode, thread::Thread};

/// What a spawn said about the work beside its input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assignment<'a> {
    /// What shall be reached.
    pub objective: &'a str,
    /// How to tell that it is.
    pub definition_of_done: &'a str,
}

/// The task block of a thread's next turn. `messages` are the undelivered inputs as texts, oldest first.
#[must_use]
pub fn task_block(session: &Session, thread: &Thread, assignment: Assignment<'_>, messages: &[String]) -> String {
    let mut text = String::from("# Task\n");
    section(&mut text, "Objective", &lines(assignment.objective));
    section(&mut text, "Definition of done", &lines(assignment.definition_of_done));
    let mode = match session.settings.mode {
        Mode::Planning => "PLANNING",
        Mode::Implementation => "IMPLEMENTATION",
    };
    section(&mut text, "Mode", &[mode.to_owned()]);
    let edges = match thread.spawned.edge_management {
        super::settings::EdgeManagement::None => "none",
        super::settings::EdgeManagement::SelfOnly => "self",
        super::settings::EdgeManagement::All => "all",
    };
    section(&mut text, "Edge management", &[edges.to_owned()]);
    let workspace = if thread.spawned.working_directory.is_empty() {
        &session.settings.cwd
    } else {
        &thread.spawned.working_directory
    };
    section(&mut text, "Workspace", &lines(workspace));
    section(&mut text, "Known threads", &known_threads(session, thread));
    section(&mut text, "Known edges", &known_edges(session));
    section(&mut text, "Messages", messages);
    text.truncate(text.trim_end().len());
    text
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

/// The parent, the children and the thread itself: whom it can name. The whole tree would grow every prompt with the session.
fn known_threads(session: &Session, thread: &Thread) -> Vec<String> {
    let mut known: Vec<String> = thread
        .spawned
        .parent
        .into_iter()
        .chain([thread.id])
        .chain(thread.children.iter().copied())
        .filter_map(|id| session.thread(id))
        .filter(|known| known.status.kind().is_open())
        .map(|known| {
            let alias = if known.spawned.alias.is_empty() {
                "-"
            } else {
                &known.spawned.alias
            };
            format!(
                "{} ({}) alias={} role={} status={}{}",
                known.display_name(),
                known.id,
                alias,
                known.spawned.agent_type,
                known.status.kind(),
                if known.id == thread.id { " (you)" } else { "" },
            )
        })
        .collect();
    known.sort();
    known
}

fn known_edges(session: &Session) -> Vec<String> {
    let mut known: Vec<String> = session
        .edges
        .values()
        .map(|edge| {
            let arrow = if edge.bidirectional { "<->" } else { "->" };
            format!("{} {arrow} {} {}", edge.from, edge.to, edge.label)
        })
        .collect();
    known.sort();
    known
}
