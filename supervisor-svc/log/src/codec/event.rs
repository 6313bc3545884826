//! Conversion of events, for watchers and for records. Each direction has its own module: `event_out` and `event_in`.

use supervisor_core::{
    event::{Event, Recorded, SessionEvent, ThreadEvent},
    ids::SessionId,
};
use troupe_proto::{
    store::v1::Private,
    supervisor::v1::{self as pb, event::Kind},
};

use super::{
    parts::{empty_message, text_or_empty, time_to_pb, zero_bounds},
    settings::{secrets, settings_private},
};

pub use super::event_in::event_from_pb;

/// Converts an event to the message that watchers receive.
#[must_use]
pub fn event_to_pb(session: SessionId, recorded: &Recorded) -> pb::Event {
    pb::Event {
        session_id: session.to_string(),
        thread_id: text_or_empty(recorded.event.thread()),
        sequence: recorded.sequence.get(),
        time: Some(time_to_pb(recorded.time)),
        actor: recorded.metadata.actor.to_string(),
        traceparent: recorded.metadata.traceparent.as_deref().unwrap_or_default().to_owned(),
        kind: Some(super::event_out::kind(&recorded.event, Some(recorded.time))),
    }
}

/// Converts an event to its stored form, without the fields of the record's header.
pub(super) fn event_to_store(event: &Event) -> pb::Event {
    let mut kind = super::event_out::kind(event, None);
    leave_out_grant(&mut kind);
    pb::Event {
        kind: Some(kind),
        ..pb::Event::default()
    }
}

/// Removes the grant if it equals the role's own permissions, which is the usual case. Tool lists are the largest part
/// of a record, and without the grant they are stored once.
fn leave_out_grant(kind: &mut Kind) {
    let (effective, grant) = match kind {
        Kind::ThreadSpawned(spawned) => (&spawned.tool_policy, &mut spawned.grant),
        Kind::ThreadResumed(resumed) => (&resumed.tool_policy, &mut resumed.grant),
        _ => return,
    };
    if *grant == *effective {
        *grant = None;
    }
}

/// Returns the private part of an event's record: secrets, values that only the service needs, and values that the
/// public message cannot represent.
pub(super) fn private(event: &Event) -> Private {
    match event {
        Event::Session(SessionEvent::Opened(settings)) => settings_private(settings),
        Event::Session(SessionEvent::Updated(change)) => Private {
            webhook_secrets: secrets(change.webhooks.as_deref().unwrap_or_default()),
            ..zero_bounds(change.budget.unwrap_or_default())
        },
        Event::Session(SessionEvent::Closed) => Private::default(),
        Event::Thread(_, event) => match event {
            ThreadEvent::Spawned(spawned) => zero_bounds(spawned.budget),
            ThreadEvent::BudgetUpdated(budget) => zero_bounds(*budget),
            ThreadEvent::GroupCreated { spec, .. } => zero_bounds(spec.budget),
            ThreadEvent::TurnEnded { outcome, .. } => empty_message(outcome),
            ThreadEvent::Resumed(resumed) => empty_message(&resumed.settled),
            ThreadEvent::SpawnFailed { .. }
            | ThreadEvent::Admitted
            | ThreadEvent::Placed { .. }
            | ThreadEvent::InputQueued { .. }
            | ThreadEvent::TurnDispatched { .. }
            | ThreadEvent::TurnStarted { .. }
            | ThreadEvent::InputDelivered { .. }
            | ThreadEvent::InterruptRequested { .. }
            | ThreadEvent::ResultReported { .. }
            | ThreadEvent::NoteSet(_)
            | ThreadEvent::ConditionChanged { .. }
            | ThreadEvent::UsageRecorded { .. }
            | ThreadEvent::ArtifactRecorded { .. }
            | ThreadEvent::ToolDenied { .. }
            | ThreadEvent::CloseRequested(_)
            | ThreadEvent::Closed { .. }
            | ThreadEvent::EdgeCreated(_)
            | ThreadEvent::EdgeDeleted(_)
            | ThreadEvent::HandoffSent(_)
            | ThreadEvent::MailAcknowledged(_)
            | ThreadEvent::ApprovalRequested { .. }
            | ThreadEvent::GroupUpdated { .. }
            | ThreadEvent::GroupItemEnded { .. }
            | ThreadEvent::GroupEnding { .. }
            | ThreadEvent::GroupEnded { .. }
            | ThreadEvent::GroupRetried(_)
            | ThreadEvent::ApprovalResolved { .. } => Private::default(),
        },
    }
}

/// Returns the kind by which the filter of a watch selects the event.
#[must_use]
pub const fn group(event: &Event) -> pb::EventKind {
    match event {
        Event::Session(SessionEvent::Opened(_) | SessionEvent::Updated(_) | SessionEvent::Closed) => {
            pb::EventKind::Session
        }
        Event::Thread(_, event) => match event {
            ThreadEvent::Spawned(_) | ThreadEvent::SpawnFailed { .. } | ThreadEvent::Admitted => pb::EventKind::Spawn,
            ThreadEvent::Placed { .. }
            | ThreadEvent::InputQueued { .. }
            | ThreadEvent::TurnDispatched { .. }
            | ThreadEvent::TurnStarted { .. }
            | ThreadEvent::InputDelivered { .. }
            | ThreadEvent::InterruptRequested { .. }
            | ThreadEvent::TurnEnded { .. }
            | ThreadEvent::ResultReported { .. } => pb::EventKind::Turn,
            ThreadEvent::NoteSet(_)
            | ThreadEvent::ConditionChanged { .. }
            | ThreadEvent::UsageRecorded { .. }
            | ThreadEvent::BudgetUpdated(_)
            | ThreadEvent::ArtifactRecorded { .. }
            | ThreadEvent::ToolDenied { .. } => pb::EventKind::Beside,
            ThreadEvent::CloseRequested(_) | ThreadEvent::Closed { .. } | ThreadEvent::Resumed(_) => pb::EventKind::End,
            ThreadEvent::EdgeCreated(_)
            | ThreadEvent::EdgeDeleted(_)
            | ThreadEvent::HandoffSent(_)
            | ThreadEvent::MailAcknowledged(_) => pb::EventKind::Graph,
            ThreadEvent::ApprovalRequested { .. } | ThreadEvent::ApprovalResolved { .. } => pb::EventKind::Approval,
            ThreadEvent::GroupCreated { .. }
            | ThreadEvent::GroupUpdated { .. }
            | ThreadEvent::GroupItemEnded { .. }
            | ThreadEvent::GroupEnding { .. }
            | ThreadEvent::GroupEnded { .. }
            | ThreadEvent::GroupRetried(_) => pb::EventKind::Group,
        },
    }
}
