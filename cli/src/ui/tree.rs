//! The tree of a session's threads as lines.

use std::collections::{HashMap, HashSet};

use supervisor_core::resource::decimal;
use troupe_proto::supervisor::v1::{ConditionKind, StatusKind, Thread, Usage};

use super::{line::Line, style};
use crate::{ids, names};

/// Renders the threads as a tree, one line each, parents before children, in the given order. A thread whose parent is
/// not in the list is at the top level.
pub(crate) fn tree(threads: &[Thread], columns: usize) -> String {
    let known: HashSet<&str> = threads.iter().map(|thread| thread.thread_id.as_str()).collect();
    let mut children: HashMap<&str, Vec<&Thread>> = HashMap::new();
    let mut tops = Vec::new();
    for thread in threads {
        let parent = thread.parent_thread_id.as_str();
        if known.contains(parent) && parent != thread.thread_id {
            children.entry(parent).or_default().push(thread);
        } else {
            tops.push(thread);
        }
    }
    let mut lines = Vec::with_capacity(threads.len());
    // An explicit stack: a tree with a depth of 10,000 must not overflow the call stack.
    let mut stack: Vec<(&Thread, String, &str)> = tops.iter().rev().map(|top| (*top, String::new(), "")).collect();
    while let Some((thread, indent, branch)) = stack.pop() {
        let head = Line::default().mark(style::DIM, format!("{indent}{branch}"));
        lines.push(describe(head, thread).render(columns));
        let below = match branch {
            "" => indent,
            "└─ " => format!("{indent}   "),
            _ => format!("{indent}│  "),
        };
        let own = children
            .get(thread.thread_id.as_str())
            .map(Vec::as_slice)
            .unwrap_or_default();
        for (index, child) in own.iter().enumerate().rev() {
            let branch = if index + 1 == own.len() { "└─ " } else { "├─ " };
            stack.push((child, below.clone(), branch));
        }
    }
    lines.join("\n")
}

fn describe(head: Line, thread: &Thread) -> Line {
    let kind = status_of(thread);
    let line = head
        .mark(style::of_status(kind), format!("{} ", style::mark_of_status(kind)))
        .mark(style::NAME, crate::sanitize::line(&role(thread)))
        .word(style::NAME, &thread.alias)
        .word(style::DIM, ids::short(&thread.thread_id))
        .word(style::of_status(kind), names::status_kind(kind));
    let line = thread
        .conditions
        .iter()
        .fold(line, |line, condition| match condition.kind() {
            ConditionKind::Unspecified => line,
            kind => line.word(style::WARN, names::condition_kind(kind)),
        });
    line.word(style::DIM, usage(thread))
        .word(style::PLAIN, &thread.label)
        .word(style::DIM, doing(thread))
}

/// Formats the tokens of all turns: `950`, `12k`, `3.4M`. Empty before the first use.
pub(crate) fn tokens(usage: &Usage) -> String {
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    match tokens {
        0 => String::new(),
        1..1_000 => tokens.to_string(),
        1_000..1_000_000 => format!("{}k", tokens / 1_000),
        _ => format!("{}.{}M", tokens / 1_000_000, tokens % 1_000_000 / 100_000),
    }
}

/// Formats the cost of all turns: `1.25`, `unknown`, or `1.25 + unknown` if only a part has a price. Empty before the
/// first use.
pub(crate) fn cost(usage: &Usage) -> String {
    match (usage.cost_micros, usage.unpriced_tokens) {
        (0, 0) if usage.input_tokens == 0 && usage.output_tokens == 0 => String::new(),
        (cost, 0) => decimal(cost),
        (0, _) => "unknown".to_owned(),
        (cost, _) => format!("{} + unknown", decimal(cost)),
    }
}

/// Formats the known values among the model, the tokens, the cost and the remaining context of a thread.
fn usage(thread: &Thread) -> String {
    let spent = thread.usage.unwrap_or_default();
    let (tokens, cost) = (tokens(&spent), cost(&spent));
    let parts = [
        Some(thread.model.clone()).filter(|model| !model.is_empty()),
        Some(format!("{tokens} tokens")).filter(|_| !tokens.is_empty()),
        Some(format!("cost {cost}")).filter(|_| spent.cost_micros > 0),
        thread.context_left_percent.map(|left| format!("{left}% context left")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the role and the persona: `explorer`, `reviewer: strict`.
pub(crate) fn role(thread: &Thread) -> String {
    let role = if thread.depth == 0 && thread.agent_type == "default" {
        "root"
    } else {
        thread.agent_type.as_str()
    };
    match thread.agent_name.as_str() {
        "" => role.to_owned(),
        persona => format!("{role}: {persona}"),
    }
}

/// Returns the status of a thread.
pub(crate) fn status_of(thread: &Thread) -> StatusKind {
    thread
        .status
        .as_ref()
        .map_or(StatusKind::Unspecified, |status| status.kind())
}

/// Describes a thread by its place in the queue, its current activity, its last message or its note.
pub(crate) fn doing(thread: &Thread) -> String {
    match (status_of(thread), activity(thread)) {
        (StatusKind::Queued, _) => format!("place {} in the queue", thread.queue_position),
        (_, activity) if activity.is_empty() => thread.thread_note.clone(),
        (_, activity) => activity,
    }
}

/// Returns the current activity of a thread whose turn runs or is about to start. For any other thread, returns the
/// message of its status. Empty without an activity or a message.
pub(crate) fn activity(thread: &Thread) -> String {
    let message = thread.status.as_ref().map(|status| status.message.clone());
    let tool = thread.last_tool.as_ref();
    match status_of(thread) {
        StatusKind::PendingInit | StatusKind::Running if !thread.activity.is_empty() => thread.activity.clone(),
        StatusKind::PendingInit | StatusKind::Running => {
            tool.map_or_else(String::new, |tool| format!("{} {}", tool.name, tool.detail))
        }
        _ => message.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{Condition, Status, ToolUse};

    use super::*;
    use crate::ui::plain;

    fn thread(id: &str, parent: &str, role: &str, kind: StatusKind, message: &str) -> Thread {
        Thread {
            thread_id: id.to_owned(),
            parent_thread_id: parent.to_owned(),
            agent_type: role.to_owned(),
            depth: u32::from(!parent.is_empty()),
            status: Some(Status {
                kind: kind.into(),
                message: message.to_owned(),
                ..Status::default()
            }),
            ..Thread::default()
        }
    }

    #[test]
    fn children_are_below_their_parents() {
        let mut explorer = thread("aaaa-00000003", "aaaa-00000002", "explorer", StatusKind::Running, "");
        explorer.agent_name = "fast".to_owned();
        explorer.last_tool = Some(ToolUse {
            name: "read_file".to_owned(),
            detail: "src/main.rs".to_owned(),
        });
        let mut closing = thread(
            "aaaa-00000005",
            "aaaa-00000001",
            "worker",
            StatusKind::Completed,
            "done\u{1b}[2J",
        );
        closing.conditions.push(Condition {
            kind: ConditionKind::Closing.into(),
            ..Condition::default()
        });
        explorer.alias = "scout".to_owned();
        explorer.label = "Find main".to_owned();
        explorer.model = "gpt-5.2".to_owned();
        explorer.context_left_percent = Some(61);
        explorer.usage = Some(Usage {
            input_tokens: 11_500,
            output_tokens: 500,
            ..Usage::default()
        });
        let threads = [
            thread("aaaa-00000001", "", "default", StatusKind::Running, ""),
            thread(
                "aaaa-00000002",
                "aaaa-00000001",
                "orchestrator",
                StatusKind::Completed,
                "all found",
            ),
            explorer,
            thread("aaaa-00000004", "aaaa-00000002", "reviewer", StatusKind::Errored, "no"),
            closing,
        ];
        assert_eq!(
            plain(&tree(&threads, 200)),
            "\
● root  00000001  RUNNING
├─ ✓ orchestrator  00000002  COMPLETED  all found
│  ├─ ● explorer: fast  scout  00000003  RUNNING  gpt-5.2, 12k tokens, 61% context left  Find main  read_file src/main.rs
│  └─ ✗ reviewer  00000004  ERRORED  no
└─ ✓ worker  00000005  COMPLETED  CLOSING  done[2J"
        );
    }

    #[test]
    fn orphans_and_cycles_are_listed_once() {
        let threads = [
            thread("00000001", "00000009", "worker", StatusKind::Running, ""),
            thread("00000002", "00000002", "worker", StatusKind::Running, ""),
        ];
        assert_eq!(tree(&threads, 80).lines().count(), 2);
        assert_eq!(tree(&[], 80), "");
    }
}
