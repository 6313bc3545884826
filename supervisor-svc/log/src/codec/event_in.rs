//! Conversion from stored messages to domain events.

use std::sync::Arc;

use supervisor_core::{
    event::{
        ApprovalDecision, ApprovalKind, Artifact, ConditionKind, Event, Fence, OutputDigests, PromptExtent, Resumed,
        SessionEvent, ThreadEvent,
    },
    group::{ItemOutcome, ItemRef},
    ids::{Generation, InputNumber, ReportSequence, RunnerId, Sequence, ThreadId, Turn},
    settings::{ClosePolicy, Sandbox},
    status::StatusKind,
};
use troupe_proto::{
    store::v1::Private,
    supervisor::v1::{self as pb, event::Kind},
};

use super::{
    enums::{WireEnum as _, cause_of_name, outcome_status},
    error::{DecodeError, malformed, newer, required},
    group,
    parts::{
        optional_time, stored_actor, stored_block, stored_budget, stored_call, stored_content, stored_edge,
        stored_handoff, stored_settled, stored_text, stored_text_or_none, stored_time, stored_usage,
    },
    policy,
    settings::{stored_change, stored_settings},
    spawned::stored_spawned,
};

/// Builds an event from the stored parts of a record: the thread in the header, the kind of the public part, and the
/// private part.
///
/// # Errors
/// [`DecodeError`]. [`DecodeError::UpgradeRequired`] for values that only a newer release can have written.
pub fn event_from_pb(thread: Option<ThreadId>, kind: Kind, private: Private) -> Result<Event, DecodeError> {
    let about_session = |event| match thread {
        None => Ok(Event::Session(event)),
        Some(id) => Err(malformed(format!("an event about the session names thread {id}"))),
    };
    let event = match kind {
        Kind::SessionOpened(opened) => {
            let settings = stored_settings(required(opened.session, "the session")?, private)?;
            return about_session(SessionEvent::Opened(Box::new(settings)));
        }
        Kind::SessionUpdated(change) => {
            return about_session(SessionEvent::Updated(Box::new(stored_change(change, private)?)));
        }
        Kind::SessionClosed(pb::SessionClosed {}) => return about_session(SessionEvent::Closed),
        Kind::ThreadSpawned(spawned) => ThreadEvent::Spawned(Arc::new(stored_spawned(spawned, &private)?)),
        Kind::SpawnFailed(failed) => ThreadEvent::SpawnFailed {
            agent_type: failed.agent_type,
            agent_name: failed.agent_name,
            reason: failed.reason,
            message: failed.message,
        },
        Kind::ThreadAdmitted(pb::ThreadAdmitted {}) => ThreadEvent::Admitted,
        Kind::ThreadPlaced(placed) => ThreadEvent::Placed {
            runner: RunnerId::new(placed.runner_id),
            generation: Generation::new(placed.generation),
        },
        Kind::InputQueued(queued) => ThreadEvent::InputQueued {
            number: InputNumber::new(queued.number),
            input: stored_content(queued.input, "the input")?,
            from: stored_actor(&queued.from)?,
            steers: queued.steers,
            result_repairs: queued.result_repairs,
        },
        Kind::TurnDispatched(dispatched) => turn_dispatched(dispatched)?,
        Kind::TurnStarted(started) => ThreadEvent::TurnStarted {
            turn: Turn::new(started.turn),
            generation: Generation::new(started.generation),
            report: ReportSequence::new(started.report_sequence),
        },
        Kind::InputDelivered(delivered) => ThreadEvent::InputDelivered {
            number: InputNumber::new(delivered.number),
            turn: Turn::new(delivered.turn),
            generation: Generation::new(delivered.generation),
            report: ReportSequence::new(delivered.report_sequence),
        },
        Kind::InterruptRequested(requested) => ThreadEvent::InterruptRequested {
            turn: Turn::new(requested.turn),
            reason: requested.reason,
        },
        Kind::TurnEnded(ended) => turn_ended(ended, &private)?,
        Kind::ResultReported(reported) => ThreadEvent::ResultReported {
            turn: Turn::new(reported.turn),
            result: stored_content(reported.result, "a result")?,
        },
        Kind::NoteSet(set) => ThreadEvent::NoteSet(set.thread_note),
        Kind::ConditionChanged(changed) => ThreadEvent::ConditionChanged {
            kind: ConditionKind::from_number(changed.kind)?,
            active: changed.active,
            reason: changed.reason,
        },
        Kind::UsageRecorded(recorded) => ThreadEvent::UsageRecorded {
            generation: Generation::new(recorded.generation),
            usage: stored_usage(recorded.usage)?,
        },
        Kind::BudgetUpdated(updated) => ThreadEvent::BudgetUpdated(stored_budget(updated.budget, &private)?),
        Kind::ArtifactRecorded(recorded) => artifact_recorded(recorded)?,
        Kind::ToolDenied(denied) => ThreadEvent::ToolDenied {
            tool: denied.tool,
            reason: denied.reason,
            count: denied.count,
        },
        Kind::CloseRequested(requested) => ThreadEvent::CloseRequested(fence(requested)?),
        Kind::ThreadClosed(closed) => ThreadEvent::Closed {
            forced: closed.forced,
            reason: closed.reason,
        },
        Kind::ThreadResumed(resumed) => ThreadEvent::Resumed(Box::new(thread_resumed(resumed, &private)?)),
        Kind::EdgeCreated(created) => ThreadEvent::EdgeCreated(stored_edge(required(created.edge, "the edge")?)?),
        Kind::EdgeDeleted(deleted) => ThreadEvent::EdgeDeleted(stored_text(&deleted.edge_id, "an edge's id")?),
        Kind::HandoffSent(sent) => {
            let handoff = stored_handoff(required(sent.handoff, "the handoff")?)?;
            ThreadEvent::HandoffSent(Box::new(handoff))
        }
        Kind::MailAcknowledged(acknowledged) => {
            ThreadEvent::MailAcknowledged(Sequence::new(acknowledged.up_to_sequence))
        }
        Kind::GroupCreated(created) => ThreadEvent::GroupCreated {
            spec: group::stored_spec(required(created.spec, "a group's properties")?, &private)?,
            approval: stored_text_or_none(&created.approval_id, "an approval's id")?,
        },
        Kind::GroupUpdated(updated) => ThreadEvent::GroupUpdated {
            group: stored_text(&updated.group_id, "a group's id")?,
            limits: group::stored_limits(required(updated.limits, "a group's limits")?),
        },
        Kind::GroupItemEnded(ended) => ThreadEvent::GroupItemEnded {
            item: ItemRef {
                group: stored_text(&ended.group_id, "a group's id")?,
                item: ended.item,
            },
            outcome: ItemOutcome::from_number(ended.outcome)?,
            reason: ended.reason,
        },
        Kind::GroupEnding(ending) => ThreadEvent::GroupEnding {
            group: stored_text(&ending.group_id, "a group's id")?,
            outcome: group::stored_outcome(ending.outcome)?,
            reason: ending.reason,
        },
        Kind::GroupEnded(ended) => ThreadEvent::GroupEnded {
            group: stored_text(&ended.group_id, "a group's id")?,
            outcome: group::stored_outcome(ended.outcome)?,
            table: Box::new(group::stored_table(&ended.artifact_id, ended.table)?),
            reason: ended.reason,
        },
        Kind::GroupRetried(retried) => ThreadEvent::GroupRetried(stored_text(&retried.group_id, "a group's id")?),
        Kind::ApprovalRequested(requested) => ThreadEvent::ApprovalRequested {
            approval: stored_text(&requested.approval_id, "an approval's id")?,
            kind: ApprovalKind::from_number(requested.kind)?,
            subject: requested.subject,
            deadline: optional_time(requested.deadline, "the deadline")?,
            edge: requested.edge.map(stored_edge).transpose()?,
            call: stored_call(&requested.call_sha256, requested.content)?,
        },
        Kind::ApprovalResolved(resolved) => ThreadEvent::ApprovalResolved {
            approval: stored_text(&resolved.approval_id, "an approval's id")?,
            decision: ApprovalDecision::from_number(resolved.decision)?,
            by: stored_actor(&resolved.by)?,
            reason: resolved.reason,
        },
    };
    match thread {
        Some(id) => Ok(Event::Thread(id, event)),
        None => Err(malformed("an event about a thread without the id of the thread")),
    }
}

fn turn_dispatched(dispatched: pb::TurnDispatched) -> Result<ThreadEvent, DecodeError> {
    let blocks: Result<Vec<_>, _> = dispatched.blocks.into_iter().map(stored_block).collect();
    Ok(ThreadEvent::TurnDispatched {
        turn: Turn::new(dispatched.turn),
        generation: Generation::new(dispatched.generation),
        inputs: dispatched.inputs.into_iter().map(InputNumber::new).collect(),
        blocks: blocks?,
        whole: stored_text_or_none(&dispatched.sha256, "the prompt's digest")?,
        extent: PromptExtent::from_number(dispatched.extent)?,
        mail_up_to: Sequence::new(dispatched.mail_up_to),
    })
}

fn turn_ended(ended: pb::TurnEnded, private: &Private) -> Result<ThreadEvent, DecodeError> {
    let status = pb::Status {
        message: ended.message,
        reason: ended.reason,
        content: ended.content,
        ..pb::Status::default()
    };
    Ok(ThreadEvent::TurnEnded {
        turn: Turn::new(ended.turn),
        generation: Generation::new(ended.generation),
        outcome: stored_settled(outcome_status(ended.outcome)?, status, private)?,
        usage: stored_usage(ended.usage)?,
        digests: Box::new(OutputDigests {
            output: stored_text_or_none(&ended.output_sha256, "the output's digest")?,
            diff: stored_text_or_none(&ended.diff_sha256, "the changes' digest")?,
        }),
        result_repair: ended.result_repair,
        report: ReportSequence::new(ended.report_sequence),
    })
}

fn artifact_recorded(recorded: pb::ArtifactRecorded) -> Result<ThreadEvent, DecodeError> {
    Ok(ThreadEvent::ArtifactRecorded {
        artifact: Artifact {
            id: stored_text(&recorded.artifact_id, "an artifact's id")?,
            name: recorded.name,
            kind: recorded.kind,
            media_type: recorded.media_type,
            content: stored_content(recorded.content, "an artifact's content")?,
            turn: Turn::new(recorded.turn),
        },
        generation: Generation::new(recorded.generation),
        report: ReportSequence::new(recorded.report_sequence),
    })
}

pub(super) fn fence(requested: pb::CloseRequested) -> Result<Fence, DecodeError> {
    let cause = cause_of_name(&requested.cause).ok_or_else(|| newer(format!("the cause {:?}", requested.cause)))?;
    Ok(Fence {
        reason: requested.reason,
        cause,
        status_before: StatusKind::from_number(requested.status_before)?,
        deadline: stored_time(requested.deadline, "the deadline")?,
        close_policy: ClosePolicy::given(requested.close_policy)?,
    })
}

fn thread_resumed(resumed: pb::ThreadResumed, private: &Private) -> Result<Resumed, DecodeError> {
    let status = required(resumed.status, "the status")?;
    let (effective, grant) = policy::stored_rights(resumed.tool_policy, resumed.grant)?;
    Ok(Resumed {
        generation: Generation::new(resumed.generation),
        settled: stored_settled(StatusKind::from_number(status.kind)?, status, private)?,
        effective,
        grant,
        sandbox: Sandbox::from_number(resumed.sandbox)?,
    })
}
