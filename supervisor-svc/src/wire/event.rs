//! Events, as watchers see them and as records keep them. The two directions are matches of their own, in `event_out`
//! and `event_in`.

use troupe_proto::{
    store::v1::Private,
    supervisor::v1::{self as pb, event::Kind},
};

use super::{
    parts::{empty_message, text_or_empty, time_to_pb, zero_bounds},
    settings::{secrets, settings_private},
};
use crate::domain::{
    approval::without_arguments,
    event::{Event, Recorded, SessionEvent, ThreadEvent},
    ids::SessionId,
};

pub use super::event_in::event_from_pb;

/// Which data is visible to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// All that there is: the beginnings of texts, and where webhooks lead.
    #[default]
    Everything,
    /// Excludes webhook URLs, because many receivers authenticate senders only by the path of the URL.
    Previews,
    /// Not the beginnings of texts either, only digests and sizes; of tool calls the tools.
    Digests,
}

impl Sight {
    /// Whether texts are seen.
    #[must_use]
    pub const fn has_texts(self) -> bool {
        match self {
            Self::Everything | Self::Previews => true,
            Self::Digests => false,
        }
    }

    /// A session as it is seen.
    #[must_use]
    pub fn session(self, mut session: pb::Session) -> pb::Session {
        self.webhooks(&mut session.webhooks);
        session
    }

    /// An approval as it is seen.
    #[must_use]
    pub fn approval(self, mut approval: pb::Approval) -> pb::Approval {
        if !self.has_texts() && approval.kind() == pb::ApprovalKind::Tool {
            approval.subject = without_arguments(&approval.subject);
        }
        approval
    }

    /// A condition as it is seen.
    #[must_use]
    pub fn condition(self, mut condition: pb::Condition) -> pb::Condition {
        if !self.has_texts() && condition.kind() == pb::ConditionKind::AwaitingToolApproval {
            condition.reason = without_arguments(&condition.reason);
        }
        condition
    }

    /// The latest tool as it is seen.
    pub fn tool_use(self, tool: &mut Option<pb::ToolUse>) {
        if let Some(tool) = tool.as_mut().filter(|_| !self.has_texts()) {
            tool.detail.clear();
        }
    }

    /// An event as it is seen.
    #[must_use]
    pub fn event(self, mut event: pb::Event) -> pb::Event {
        match &mut event.kind {
            Some(Kind::SessionOpened(opened)) => {
                let webhooks = opened.session.as_mut().map(|session| &mut session.webhooks);
                webhooks.into_iter().for_each(|webhooks| self.webhooks(webhooks));
            }
            Some(Kind::SessionUpdated(updated)) => self.webhooks(&mut updated.webhooks),
            _ if !self.has_texts() => hide_previews(&mut event),
            _ => {}
        }
        event
    }

    fn webhooks(self, webhooks: &mut [pb::Webhook]) {
        match self {
            Self::Everything => {}
            Self::Previews | Self::Digests => webhooks.iter_mut().for_each(hide_path),
        }
    }
}

/// Leaves of a webhook's URL whom it leads to.
fn hide_path(webhook: &mut pb::Webhook) {
    let (scheme, rest) = webhook.url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    webhook.url = format!("{scheme}://{host}/…");
}

/// An event as watchers see it.
#[must_use]
pub fn event_to_pb(session: SessionId, recorded: &Recorded) -> pb::Event {
    pb::Event {
        session_id: session.to_string(),
        thread_id: text_or_empty(recorded.event.thread()),
        sequence: recorded.sequence.get(),
        time: Some(time_to_pb(recorded.time)),
        actor: recorded.circumstances.actor.to_string(),
        traceparent: recorded
            .circumstances
            .traceparent
            .as_deref()
            .unwrap_or_default()
            .to_owned(),
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
/// of a record, and this stores them once.
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
            | ThreadEvent::ApprovalResolved { .. } => Private::default(),
        },
    }
}

/// The group that a watch's filter names.
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
            | ThreadEvent::TurnEnded { .. } => pb::EventKind::Turn,
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
        },
    }
}

/// Removes text previews and tool call arguments from an event, for readers that may see digests only.
fn hide_previews(event: &mut pb::Event) {
    let hide = |content: &mut Option<pb::ContentRef>| {
        if let Some(content) = content {
            content.preview.clear();
        }
    };
    match &mut event.kind {
        None => {}
        Some(Kind::ThreadSpawned(spawned)) => {
            hide(&mut spawned.resolved);
            hide(&mut spawned.input);
        }
        Some(Kind::InputQueued(queued)) => hide(&mut queued.input),
        Some(Kind::TurnDispatched(dispatched)) => {
            dispatched.blocks.iter_mut().for_each(|block| hide(&mut block.content));
        }
        Some(Kind::TurnEnded(ended)) => hide(&mut ended.content),
        Some(Kind::ArtifactRecorded(artifact)) => hide(&mut artifact.content),
        Some(Kind::ThreadResumed(resumed)) => {
            if let Some(status) = &mut resumed.status {
                hide(&mut status.content);
            }
        }
        Some(Kind::HandoffSent(sent)) => {
            if let Some(handoff) = &mut sent.handoff {
                hide(&mut handoff.message);
                hide(&mut handoff.structured);
            }
        }
        Some(Kind::ApprovalRequested(requested)) if requested.kind() == pb::ApprovalKind::Tool => {
            requested.subject = without_arguments(&requested.subject);
        }
        Some(Kind::ConditionChanged(changed)) if changed.kind() == pb::ConditionKind::AwaitingToolApproval => {
            changed.reason = without_arguments(&changed.reason);
        }
        Some(
            Kind::SessionOpened(_)
            | Kind::SessionUpdated(_)
            | Kind::SessionClosed(_)
            | Kind::SpawnFailed(_)
            | Kind::ThreadAdmitted(_)
            | Kind::ThreadPlaced(_)
            | Kind::TurnStarted(_)
            | Kind::InputDelivered(_)
            | Kind::InterruptRequested(_)
            | Kind::NoteSet(_)
            | Kind::ConditionChanged(_)
            | Kind::UsageRecorded(_)
            | Kind::BudgetUpdated(_)
            | Kind::ToolDenied(_)
            | Kind::CloseRequested(_)
            | Kind::ThreadClosed(_)
            | Kind::EdgeCreated(_)
            | Kind::EdgeDeleted(_)
            | Kind::MailAcknowledged(_)
            | Kind::ApprovalRequested(_)
            | Kind::ApprovalResolved(_),
        ) => {}
    }
}
