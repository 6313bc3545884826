//! Conversion from domain events to messages.

use supervisor_core::{
    event::{Artifact, Event, Fence, OutputDigests, Resumed, SessionEvent, ThreadEvent},
    ids::{Generation, InputNumber, ReportSequence, ThreadId, Turn},
    settings::Usage,
    status::Settled,
    time::UnixMillis,
};
use troupe_proto::supervisor::v1::{self as pb, event::Kind};

use super::{
    enums::{WireEnum as _, cause_name, turn_outcome},
    group,
    parts::{
        block_to_pb, budget_to_pb, content_to_pb, edge_to_pb, handoff_to_pb, settled_to_pb, text_or_empty, time_to_pb,
        usage_to_pb,
    },
    policy,
    settings::{change_to_pb, settings_to_pb},
    spawned::spawned_to_pb,
};

/// Converts an event to its message. `time` is the event's time if a status in the message must also contain it.
pub(super) fn kind(event: &Event, time: Option<UnixMillis>) -> Kind {
    match event {
        Event::Session(event) => session_kind(event),
        Event::Thread(id, event) => thread_kind(*id, event, time),
    }
}

fn session_kind(event: &SessionEvent) -> Kind {
    match event {
        SessionEvent::Opened(settings) => Kind::SessionOpened(Box::new(pb::SessionOpened {
            session: Some(settings_to_pb(settings)),
        })),
        SessionEvent::Updated(change) => Kind::SessionUpdated(change_to_pb(change)),
        SessionEvent::Closed => Kind::SessionClosed(pb::SessionClosed {}),
    }
}

fn thread_kind(id: ThreadId, event: &ThreadEvent, time: Option<UnixMillis>) -> Kind {
    match event {
        ThreadEvent::Spawned(spawned) => Kind::ThreadSpawned(Box::new(spawned_to_pb(spawned))),
        ThreadEvent::SpawnFailed {
            agent_type,
            agent_name,
            reason,
            message,
        } => Kind::SpawnFailed(pb::SpawnFailed {
            parent_thread_id: id.to_string(),
            agent_type: agent_type.clone(),
            agent_name: agent_name.clone(),
            reason: reason.clone(),
            message: message.clone(),
        }),
        ThreadEvent::Admitted => Kind::ThreadAdmitted(pb::ThreadAdmitted {}),
        ThreadEvent::Placed { runner, generation } => Kind::ThreadPlaced(pb::ThreadPlaced {
            runner_id: runner.as_str().to_owned(),
            generation: generation.get(),
        }),
        ThreadEvent::InputQueued {
            number,
            input,
            from,
            steers,
            result_repairs,
        } => Kind::InputQueued(pb::InputQueued {
            number: number.get(),
            input: Some(content_to_pb(input)),
            from: from.to_string(),
            steers: *steers,
            result_repairs: *result_repairs,
        }),
        ThreadEvent::TurnDispatched {
            turn,
            generation,
            inputs,
            blocks,
            whole,
            extent,
            mail_up_to,
        } => Kind::TurnDispatched(pb::TurnDispatched {
            turn: turn.get(),
            generation: generation.get(),
            inputs: inputs.iter().copied().map(InputNumber::get).collect(),
            blocks: blocks.iter().map(block_to_pb).collect(),
            extent: extent.number(),
            mail_up_to: mail_up_to.get(),
            sha256: text_or_empty(*whole),
        }),
        ThreadEvent::TurnStarted {
            turn,
            generation,
            report,
        } => Kind::TurnStarted(pb::TurnStarted {
            turn: turn.get(),
            generation: generation.get(),
            report_sequence: report.get(),
        }),
        ThreadEvent::InputDelivered {
            number,
            turn,
            generation,
            report,
        } => Kind::InputDelivered(pb::InputDelivered {
            number: number.get(),
            turn: turn.get(),
            generation: generation.get(),
            report_sequence: report.get(),
        }),
        ThreadEvent::InterruptRequested { turn, reason } => Kind::InterruptRequested(pb::InterruptRequested {
            turn: turn.get(),
            reason: reason.clone(),
        }),
        ThreadEvent::TurnEnded {
            turn,
            generation,
            outcome,
            usage,
            digests,
            result_repair,
            report,
        } => Kind::TurnEnded(pb::TurnEnded {
            result_repair: *result_repair,
            ..turn_ended(*turn, *generation, outcome, *usage, **digests, *report)
        }),
        ThreadEvent::ResultReported { turn, result } => Kind::ResultReported(pb::ResultReported {
            turn: turn.get(),
            result: Some(content_to_pb(result)),
        }),
        ThreadEvent::NoteSet(note) => Kind::NoteSet(pb::NoteSet {
            thread_note: note.clone(),
        }),
        ThreadEvent::ConditionChanged { kind, active, reason } => Kind::ConditionChanged(pb::ConditionChanged {
            kind: kind.number(),
            active: *active,
            reason: reason.clone(),
        }),
        ThreadEvent::UsageRecorded { generation, usage } => Kind::UsageRecorded(pb::UsageRecorded {
            generation: generation.get(),
            usage: Some(usage_to_pb(*usage)),
        }),
        ThreadEvent::BudgetUpdated(budget) => Kind::BudgetUpdated(pb::BudgetUpdated {
            budget: Some(budget_to_pb(*budget)),
        }),
        ThreadEvent::ArtifactRecorded {
            artifact,
            generation,
            report,
        } => Kind::ArtifactRecorded(artifact_recorded(artifact, *generation, *report)),
        ThreadEvent::ToolDenied { tool, reason, count } => Kind::ToolDenied(pb::ToolDenied {
            tool: tool.clone(),
            reason: reason.clone(),
            count: *count,
        }),
        ThreadEvent::CloseRequested(fence) => Kind::CloseRequested(close_requested(fence)),
        ThreadEvent::Closed { forced, reason } => Kind::ThreadClosed(pb::ThreadClosed {
            forced: *forced,
            reason: reason.clone(),
        }),
        ThreadEvent::Resumed(resumed) => Kind::ThreadResumed(thread_resumed(resumed, time)),
        ThreadEvent::EdgeCreated(edge) => Kind::EdgeCreated(pb::EdgeCreated {
            edge: Some(edge_to_pb(edge)),
        }),
        ThreadEvent::EdgeDeleted(edge) => Kind::EdgeDeleted(pb::EdgeDeleted {
            edge_id: edge.to_string(),
        }),
        ThreadEvent::HandoffSent(handoff) => Kind::HandoffSent(pb::HandoffSent {
            handoff: Some(handoff_to_pb(handoff)),
        }),
        ThreadEvent::MailAcknowledged(up_to) => Kind::MailAcknowledged(pb::MailAcknowledged {
            up_to_sequence: up_to.get(),
        }),
        ThreadEvent::GroupCreated { spec, approval } => Kind::GroupCreated(Box::new(pb::GroupCreated {
            spec: Some(group::spec_to_pb(spec)),
            approval_id: text_or_empty(*approval),
        })),
        ThreadEvent::GroupUpdated { group, limits } => Kind::GroupUpdated(pb::GroupUpdated {
            group_id: group.to_string(),
            limits: Some(group::limits_to_pb(*limits)),
        }),
        ThreadEvent::GroupItemEnded { item, outcome, reason } => Kind::GroupItemEnded(pb::GroupItemEnded {
            group_id: item.group.to_string(),
            item: item.item,
            outcome: outcome.number(),
            reason: reason.clone(),
        }),
        ThreadEvent::GroupEnding { group, outcome, reason } => Kind::GroupEnding(pb::GroupEnding {
            group_id: group.to_string(),
            outcome: group::outcome_to_pb(*outcome).into(),
            reason: reason.clone(),
        }),
        ThreadEvent::GroupEnded {
            group,
            outcome,
            reason,
            table,
        } => Kind::GroupEnded(group::ended_to_pb(*group, *outcome, reason, table)),
        ThreadEvent::GroupRetried(group) => Kind::GroupRetried(pb::GroupRetried {
            group_id: group.to_string(),
        }),
        ThreadEvent::ApprovalRequested {
            approval,
            kind,
            subject,
            deadline,
            edge,
            call,
        } => Kind::ApprovalRequested(pb::ApprovalRequested {
            approval_id: approval.to_string(),
            kind: kind.number(),
            subject: subject.clone(),
            deadline: deadline.map(time_to_pb),
            edge: edge.as_ref().map(edge_to_pb),
            call_sha256: text_or_empty(call.as_ref().map(|call| call.digest)),
            content: call.as_ref().map(|call| content_to_pb(&call.content)),
        }),
        ThreadEvent::ApprovalResolved {
            approval,
            decision,
            by,
            reason,
        } => Kind::ApprovalResolved(pb::ApprovalResolved {
            approval_id: approval.to_string(),
            decision: decision.number(),
            by: by.to_string(),
            reason: reason.clone(),
        }),
    }
}

fn turn_ended(
    turn: Turn,
    generation: Generation,
    outcome: &Settled,
    usage: Usage,
    digests: OutputDigests,
    report: ReportSequence,
) -> pb::TurnEnded {
    let status = settled_to_pb(outcome, None);
    pb::TurnEnded {
        turn: turn.get(),
        generation: generation.get(),
        outcome: turn_outcome(outcome).into(),
        message: status.message,
        content: status.content,
        usage: Some(usage_to_pb(usage)),
        output_sha256: text_or_empty(digests.output),
        diff_sha256: text_or_empty(digests.diff),
        report_sequence: report.get(),
        reason: status.reason,
        result_repair: false,
    }
}

fn artifact_recorded(artifact: &Artifact, generation: Generation, report: ReportSequence) -> pb::ArtifactRecorded {
    pb::ArtifactRecorded {
        artifact_id: artifact.id.to_string(),
        name: artifact.name.clone(),
        kind: artifact.kind.clone(),
        media_type: artifact.media_type.clone(),
        content: Some(content_to_pb(&artifact.content)),
        turn: artifact.turn.get(),
        generation: generation.get(),
        report_sequence: report.get(),
    }
}

pub(super) fn close_requested(fence: &Fence) -> pb::CloseRequested {
    pb::CloseRequested {
        reason: fence.reason.clone(),
        cause: cause_name(fence.cause).to_owned(),
        status_before: fence.status_before.number(),
        deadline: Some(time_to_pb(fence.deadline)),
        // UNSPECIFIED means each thread's own policy.
        close_policy: fence.close_policy.map(|policy| policy.number()).unwrap_or_default(),
    }
}

fn thread_resumed(resumed: &Resumed, time: Option<UnixMillis>) -> pb::ThreadResumed {
    pb::ThreadResumed {
        generation: resumed.generation.get(),
        status: Some(settled_to_pb(&resumed.settled, time)),
        tool_policy: Some(policy::to_proto(&resumed.effective)),
        grant: Some(policy::to_proto(&resumed.grant)),
        sandbox: resumed.sandbox.number(),
    }
}
