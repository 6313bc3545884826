//! Events as text: one line each, for `watch` and the demo.

use anstyle::Style;
use troupe_proto::supervisor::v1::{Event, GroupItemOutcome, SessionUpdated, StatusKind, TurnOutcome, event::Kind};

use crate::{
    ids, names,
    options::budget_in_words,
    session_view::SessionView,
    time,
    ui::{self, Line, style},
};

/// Formats an event as a line: its time, its number, its thread and its description.
pub(crate) fn line(event: &Event, view: &SessionView) -> Line {
    let (look, what, detail) = describe(event);
    let thread = view.thread(&event.thread_id);
    let subject = thread.map_or_else(|| "session".to_owned(), ui::role);
    let alias = thread.map(|thread| thread.alias.as_str()).unwrap_or_default();
    Line::default()
        .mark(
            style::DIM,
            format!(
                "{} {:>4}",
                time::clock(event.time.as_ref()),
                format!("#{}", event.sequence)
            ),
        )
        .word(style::DIM, ids::short(&event.thread_id))
        .word(style::NAME, subject)
        .word(style::NAME, alias)
        .word(look, what)
        .word(style::PLAIN, detail)
}

/// Describes an event: a label of two or three words, and the details.
fn describe(event: &Event) -> (Style, &'static str, String) {
    let Some(kind) = &event.kind else {
        return (style::DIM, "unknown event", String::new());
    };
    match kind {
        Kind::SessionOpened(opened) => {
            let cwd = opened.session.as_ref().map(|session| session.cwd.clone());
            (style::PLAIN, "opened", cwd.unwrap_or_default())
        }
        Kind::SessionUpdated(updated) => (style::PLAIN, "updated", changes(updated)),
        Kind::SessionClosed(_) => (style::DIM, "closed", String::new()),
        Kind::ThreadSpawned(spawned) => {
            let status = names::status_kind(spawned.first_status());
            let by = event
                .actor
                .strip_prefix("thread:")
                .map(|id| format!(" by {}", ids::short(id)));
            let mut detail = format!("depth {}, {status}{}", spawned.depth, by.unwrap_or_default());
            let task = match (spawned.label.as_str(), &spawned.input) {
                ("", Some(input)) => input.preview.as_str(),
                (label, _) => label,
            };
            if !task.is_empty() {
                detail.push_str(": ");
                detail.push_str(task);
            }
            (style::of_status(StatusKind::PendingInit), "spawned", detail)
        }
        Kind::SpawnFailed(failed) => (
            style::BAD,
            "spawn failed",
            format!("{}: {}", failed.agent_type, failed.message),
        ),
        Kind::ThreadAdmitted(_) => (style::PLAIN, "took a slot", String::new()),
        Kind::ThreadPlaced(placed) => (style::PLAIN, "placed", format!("on runner {}", placed.runner_id)),
        Kind::InputQueued(queued) => {
            let preview = queued.input.as_ref().map(|input| input.preview.clone());
            (style::PLAIN, "input waits", preview.unwrap_or_default())
        }
        Kind::TurnDispatched(dispatched) => (style::PLAIN, "turn dispatched", format!("turn {}", dispatched.turn)),
        Kind::TurnStarted(started) => (
            style::of_status(StatusKind::Running),
            "runs",
            format!("turn {}", started.turn),
        ),
        Kind::InputDelivered(delivered) => (style::PLAIN, "input delivered", format!("number {}", delivered.number)),
        Kind::InterruptRequested(requested) => (style::WARN, "interrupted", requested.reason.clone()),
        Kind::TurnEnded(ended) => {
            let (look, what) = match ended.outcome() {
                TurnOutcome::Completed if ended.result_repair => (style::WARN, "no valid result"),
                TurnOutcome::Completed => (style::GOOD, "completed"),
                TurnOutcome::Errored => (style::BAD, "errored"),
                TurnOutcome::Interrupted => (style::WARN, "stopped"),
                TurnOutcome::Unspecified => (style::PLAIN, "ended"),
            };
            let detail = if ended.message.is_empty() {
                &ended.reason
            } else {
                &ended.message
            };
            (look, what, detail.clone())
        }
        Kind::ResultReported(reported) => {
            let preview = reported.result.as_ref().map(|result| result.preview.clone());
            (style::GOOD, "result", preview.unwrap_or_default())
        }
        Kind::GroupCreated(created) => {
            let spec = created.spec.clone().unwrap_or_default();
            (
                style::PLAIN,
                "group created",
                format!("{} with {} items", spec.name, spec.item_count),
            )
        }
        Kind::GroupUpdated(_) => (style::PLAIN, "group updated", String::new()),
        Kind::GroupItemEnded(ended) => {
            let outcome = names::group_item_outcome(ended.outcome()).to_ascii_lowercase();
            let look = match ended.outcome() {
                GroupItemOutcome::Succeeded => style::GOOD,
                _ => style::WARN,
            };
            (look, "item ended", format!("{} {outcome} {}", ended.item, ended.reason))
        }
        Kind::GroupEnding(ending) => (style::PLAIN, "group ends", ending.reason.clone()),
        Kind::GroupEnded(ended) => {
            let state = names::group_state(ended.outcome());
            (style::PLAIN, "group ended", format!("{state} {}", ended.reason))
        }
        Kind::GroupRetried(_) => (style::PLAIN, "group retried", String::new()),
        Kind::NoteSet(note) => (style::PLAIN, "note", note.thread_note.clone()),
        Kind::ConditionChanged(changed) => {
            let what = if changed.active {
                "condition begins"
            } else {
                "condition ends"
            };
            let detail = format!("{} {}", names::condition_kind(changed.kind()), changed.reason);
            (style::WARN, what, detail)
        }
        Kind::UsageRecorded(recorded) => {
            let tokens = recorded
                .usage
                .as_ref()
                .map_or(0, |usage| usage.input_tokens + usage.output_tokens);
            (style::DIM, "usage", format!("{tokens} tokens"))
        }
        Kind::BudgetUpdated(updated) => (style::PLAIN, "budget", budget_in_words(updated.budget.as_ref())),
        Kind::ArtifactRecorded(artifact) => (style::PLAIN, "artifact", format!("{} {}", artifact.kind, artifact.name)),
        Kind::ToolDenied(denied) => {
            let times = if denied.count > 1 {
                format!(" ({} times)", denied.count)
            } else {
                String::new()
            };
            (
                style::BAD,
                "tool denied",
                format!("{}: {}{times}", denied.tool, denied.reason),
            )
        }
        Kind::CloseRequested(requested) => {
            let detail = if requested.reason.is_empty() {
                &requested.cause
            } else {
                &requested.reason
            };
            (style::WARN, "closing", detail.clone())
        }
        Kind::ThreadClosed(closed) => {
            let forced = if closed.forced { "forced " } else { "" };
            (style::DIM, "shut down", format!("{forced}{}", closed.reason))
        }
        Kind::ThreadResumed(resumed) => (style::PLAIN, "reopened", format!("generation {}", resumed.generation)),
        Kind::EdgeCreated(created) => {
            let ends = created.edge.as_ref().map(|edge| {
                format!(
                    "{} -> {}",
                    ids::short(&edge.from_thread_id),
                    ids::short(&edge.to_thread_id)
                )
            });
            (style::DIM, "edge", ends.unwrap_or_default())
        }
        Kind::EdgeDeleted(deleted) => (style::DIM, "edge deleted", ids::short(&deleted.edge_id).to_owned()),
        Kind::HandoffSent(sent) => {
            let to = sent
                .handoff
                .as_ref()
                .map(|handoff| format!("to {}", ids::short(&handoff.to_thread_id)));
            (style::PLAIN, "handoff", to.unwrap_or_default())
        }
        Kind::MailAcknowledged(mail) => (
            style::DIM,
            "mail acknowledged",
            format!("up to #{}", mail.up_to_sequence),
        ),
        Kind::ApprovalRequested(requested) => {
            // The first line is sufficient; `troupe approvals` shows the rest.
            let subject = requested.subject.lines().next().unwrap_or_default();
            let detail = format!("{} {subject}", ids::short(&requested.approval_id));
            (style::WARN, "waits for approval", detail)
        }
        Kind::ApprovalResolved(resolved) => {
            let decision = names::approval_decision(resolved.decision());
            (
                style::PLAIN,
                "decided",
                format!("{decision} by {} {}", resolved.by, resolved.reason),
            )
        }
    }
}

/// Describes the changed settings of a session.
fn changes(updated: &SessionUpdated) -> String {
    let changes = [
        updated
            .paused
            .map(|paused| String::from(if paused { "paused" } else { "resumed" })),
        updated.mode.map(|_| names::mode(updated.mode()).to_owned()),
        updated
            .orchestration
            .map(|_| names::orchestration(updated.orchestration()).to_owned()),
        updated
            .budget
            .as_ref()
            .map(|budget| format!("budget {}", budget_in_words(Some(budget)))),
        updated.limits.as_ref().map(|_| "limits".to_owned()),
        updated
            .edge_management
            .map(|_| format!("edge management {}", names::edge_management(updated.edge_management()))),
        updated.replace_orchestrators.then(|| "orchestrators".to_owned()),
        updated.replace_webhooks.then(|| "webhooks".to_owned()),
    ];
    changes.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use troupe_proto::{
        common::v1::Mode,
        supervisor::v1::{ThreadSpawned, ToolDenied, WatchThreadsResponse, watch_threads_response::Message},
    };

    use super::*;

    fn event(sequence: u64, kind: Kind) -> Event {
        Event {
            thread_id: "01939c5a-0000-7000-8000-00000000aa01".to_owned(),
            sequence,
            time: Some(prost_types::Timestamp {
                seconds: 43_424,
                nanos: 0,
            }),
            actor: "thread:01939c5a-0000-7000-8000-00000000bb02".to_owned(),
            kind: Some(kind),
            ..Event::default()
        }
    }

    #[test]
    fn event_line_has_time_thread_and_details() {
        let spawned = event(
            3,
            Kind::ThreadSpawned(Box::new(ThreadSpawned {
                agent_type: "explorer".to_owned(),
                agent_name: "fast".to_owned(),
                depth: 2,
                first_status: StatusKind::PendingInit.into(),
                ..ThreadSpawned::default()
            })),
        );
        let mut view = SessionView::default();
        view.apply(&WatchThreadsResponse {
            sequence: 3,
            message: Some(Message::Event(spawned.clone())),
        });
        assert_eq!(
            ui::plain(&line(&spawned, &view).render(120)),
            "12:03:44   #3  0000aa01  explorer: fast  spawned  depth 2, PENDING_INIT by 0000bb02"
        );
        let updated = event(
            5,
            Kind::SessionUpdated(SessionUpdated {
                paused: Some(false),
                mode: Some(Mode::Planning.into()),
                ..SessionUpdated::default()
            }),
        );
        assert!(ui::plain(&line(&updated, &view).render(120)).ends_with("updated  resumed, PLANNING"));
        let denied = event(
            4,
            Kind::ToolDenied(ToolDenied {
                tool: "spawn_agent".to_owned(),
                reason: "role:worker\u{1b}[2J".to_owned(),
                count: 2,
            }),
        );
        assert!(
            ui::plain(&line(&denied, &view).render(120))
                .ends_with("tool denied  spawn_agent: role:worker[2J (2 times)")
        );
    }
}
