//! Events: the envelope, the name of the kind, and the body under that name.

use serde_json::{Map, Value, json};
use troupe_proto::supervisor::v1::{Event, SessionUpdated, ThreadSpawned, TurnDispatched, TurnEnded, event::Kind};

use super::{
    common,
    graph::{edge, handoff},
    list, name, optional, session, thread, time,
};
use crate::names;

/// An event.
pub(crate) fn event(event: &Event) -> Value {
    let (kind, body) = match &event.kind {
        Some(kind) => body(kind),
        None => ("unknown", Value::Null),
    };
    let mut object = Map::new();
    object.insert("session_id".to_owned(), Value::from(event.session_id.as_str()));
    object.insert("thread_id".to_owned(), Value::from(event.thread_id.as_str()));
    object.insert("sequence".to_owned(), Value::from(event.sequence));
    object.insert("time".to_owned(), time(event.time.as_ref()));
    object.insert("actor".to_owned(), Value::from(event.actor.as_str()));
    object.insert("kind".to_owned(), Value::from(kind));
    object.insert(kind.to_owned(), body);
    Value::Object(object)
}

fn body(kind: &Kind) -> (&'static str, Value) {
    match kind {
        Kind::SessionOpened(opened) => (
            "session_opened",
            json!({ "session": optional(opened.session.as_ref(), session::session) }),
        ),
        Kind::SessionUpdated(updated) => ("session_updated", session_updated(updated)),
        Kind::SessionClosed(_) => ("session_closed", json!({})),
        Kind::ThreadSpawned(spawned) => ("thread_spawned", thread_spawned(spawned)),
        Kind::SpawnFailed(failed) => (
            "spawn_failed",
            json!({
                "parent_thread_id": failed.parent_thread_id,
                "agent_type": failed.agent_type,
                "agent_name": failed.agent_name,
                "reason": failed.reason,
                "message": failed.message,
            }),
        ),
        Kind::ThreadAdmitted(_) => ("thread_admitted", json!({})),
        Kind::ThreadPlaced(placed) => (
            "thread_placed",
            json!({ "runner_id": placed.runner_id, "generation": placed.generation }),
        ),
        Kind::InputQueued(queued) => (
            "input_queued",
            json!({
                "number": queued.number,
                "input": optional(queued.input.as_ref(), thread::content),
                "from": queued.from,
                "steers": queued.steers,
            }),
        ),
        Kind::TurnDispatched(dispatched) => ("turn_dispatched", turn_dispatched(dispatched)),
        Kind::TurnStarted(started) => (
            "turn_started",
            json!({
                "turn": started.turn,
                "generation": started.generation,
                "report_sequence": started.report_sequence,
            }),
        ),
        Kind::InputDelivered(delivered) => (
            "input_delivered",
            json!({
                "number": delivered.number,
                "turn": delivered.turn,
                "generation": delivered.generation,
                "report_sequence": delivered.report_sequence,
            }),
        ),
        Kind::InterruptRequested(requested) => (
            "interrupt_requested",
            json!({ "turn": requested.turn, "reason": requested.reason }),
        ),
        Kind::TurnEnded(ended) => ("turn_ended", turn_ended(ended)),
        Kind::NoteSet(note) => ("note_set", json!({ "thread_note": note.thread_note })),
        Kind::ConditionChanged(changed) => (
            "condition_changed",
            json!({
                "kind": name(names::condition_kind(changed.kind())),
                "active": changed.active,
                "reason": changed.reason,
            }),
        ),
        Kind::UsageRecorded(recorded) => (
            "usage_recorded",
            json!({
                "generation": recorded.generation,
                "usage": optional(recorded.usage.as_ref(), thread::usage),
            }),
        ),
        Kind::BudgetUpdated(updated) => (
            "budget_updated",
            json!({ "budget": optional(updated.budget.as_ref(), thread::budget) }),
        ),
        Kind::ArtifactRecorded(artifact) => (
            "artifact_recorded",
            json!({
                "artifact_id": artifact.artifact_id,
                "name": artifact.name,
                "kind": artifact.kind,
                "media_type": artifact.media_type,
                "content": optional(artifact.content.as_ref(), thread::content),
                "turn": artifact.turn,
                "generation": artifact.generation,
                "report_sequence": artifact.report_sequence,
            }),
        ),
        Kind::ToolDenied(denied) => (
            "tool_denied",
            json!({ "tool": denied.tool, "reason": denied.reason, "count": denied.count }),
        ),
        Kind::CloseRequested(requested) => (
            "close_requested",
            json!({
                "reason": requested.reason,
                "cause": requested.cause,
                "status_before": name(names::status_kind(requested.status_before())),
                "deadline": time(requested.deadline.as_ref()),
                "close_policy": name(names::close_policy(requested.close_policy())),
            }),
        ),
        Kind::ThreadClosed(closed) => (
            "thread_closed",
            json!({ "forced": closed.forced, "reason": closed.reason }),
        ),
        Kind::ThreadResumed(resumed) => (
            "thread_resumed",
            json!({
                "generation": resumed.generation,
                "status": optional(resumed.status.as_ref(), thread::status),
                "tool_policy": optional(resumed.tool_policy.as_ref(), common::policy),
                "grant": optional(resumed.grant.as_ref(), common::policy),
                "sandbox": name(names::sandbox(resumed.sandbox())),
            }),
        ),
        Kind::EdgeCreated(created) => ("edge_created", json!({ "edge": optional(created.edge.as_ref(), edge) })),
        Kind::EdgeDeleted(deleted) => ("edge_deleted", json!({ "edge_id": deleted.edge_id })),
        Kind::HandoffSent(sent) => (
            "handoff_sent",
            json!({ "handoff": optional(sent.handoff.as_ref(), handoff) }),
        ),
        Kind::MailAcknowledged(mail) => ("mail_acknowledged", json!({ "up_to_sequence": mail.up_to_sequence })),
        Kind::ApprovalRequested(requested) => (
            "approval_requested",
            json!({
                "approval_id": requested.approval_id,
                "kind": name(names::approval_kind(requested.kind())),
                "subject": requested.subject,
                "deadline": time(requested.deadline.as_ref()),
                "edge": optional(requested.edge.as_ref(), edge),
                "call_sha256": requested.call_sha256,
                "content_sha256": requested.content.as_ref().map(|content| &content.digest),
            }),
        ),
        Kind::ApprovalResolved(resolved) => (
            "approval_resolved",
            json!({
                "approval_id": resolved.approval_id,
                "decision": name(names::approval_decision(resolved.decision())),
                "by": resolved.by,
                "reason": resolved.reason,
            }),
        ),
    }
}

fn session_updated(updated: &SessionUpdated) -> Value {
    json!({
        "mode": updated.mode.map(|_| name(names::mode(updated.mode()))),
        "limits": optional(updated.limits.as_ref(), session::limits),
        "budget": optional(updated.budget.as_ref(), thread::budget),
        "paused": updated.paused,
        "orchestration": updated.orchestration.map(|_| name(names::orchestration(updated.orchestration()))),
        "webhooks": list(&updated.webhooks, session::webhook),
        "replace_webhooks": updated.replace_webhooks,
        "edge_management": updated.edge_management.map(|_| name(names::edge_management(updated.edge_management()))),
        "orchestrators": updated.orchestrators,
        "replace_orchestrators": updated.replace_orchestrators,
    })
}

fn thread_spawned(spawned: &ThreadSpawned) -> Value {
    json!({
        "parent_thread_id": spawned.parent_thread_id,
        "depth": spawned.depth,
        "generation": spawned.generation,
        "first_status": name(names::status_kind(spawned.first_status())),
        "agent_type": spawned.agent_type,
        "agent_name": spawned.agent_name,
        "agent_description": spawned.agent_description,
        "alias": spawned.alias,
        "label": spawned.label,
        "thread_note": spawned.thread_note,
        "working_directory": spawned.working_directory,
        "model": spawned.model,
        "reasoning_effort": spawned.reasoning_effort,
        "provider": spawned.provider,
        "origins": common::origins(&spawned.origins),
        "sandbox": name(names::sandbox(spawned.sandbox())),
        "tool_policy": optional(spawned.tool_policy.as_ref(), common::policy),
        "grant": optional(spawned.grant.as_ref(), common::policy),
        "spawn_list": spawned.spawn_list,
        "edge_management": name(names::edge_management(spawned.edge_management())),
        "source": optional(spawned.source.as_ref(), common::source),
        "resolved": optional(spawned.resolved.as_ref(), thread::content),
        "budget": optional(spawned.budget.as_ref(), thread::budget),
        "close_policy": name(names::close_policy(spawned.close_policy())),
        "wake_policy": name(names::wake_policy(spawned.wake_policy())),
        "input": optional(spawned.input.as_ref(), thread::content),
        "client_owned": spawned.client_owned,
    })
}

fn turn_dispatched(dispatched: &TurnDispatched) -> Value {
    json!({
        "turn": dispatched.turn,
        "generation": dispatched.generation,
        "inputs": dispatched.inputs,
        "blocks": list(&dispatched.blocks, |block| json!({
            "kind": name(names::block_kind(block.kind())),
            "content": optional(block.content.as_ref(), thread::content),
        })),
        "sha256": dispatched.sha256,
        "extent": name(names::prompt_extent(dispatched.extent())),
        "mail_up_to": dispatched.mail_up_to,
    })
}

fn turn_ended(ended: &TurnEnded) -> Value {
    json!({
        "turn": ended.turn,
        "generation": ended.generation,
        "outcome": name(names::turn_outcome(ended.outcome())),
        "message": ended.message,
        "content": optional(ended.content.as_ref(), thread::content),
        "usage": optional(ended.usage.as_ref(), thread::usage),
        "output_sha256": ended.output_sha256,
        "diff_sha256": ended.diff_sha256,
        "report_sequence": ended.report_sequence,
        "reason": ended.reason,
    })
}
