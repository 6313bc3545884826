//! What a person should look at: derived from the events of the log, never recorded. A notification has the number of its
//! event.

use std::collections::BTreeSet;

use super::{
    content::preview,
    event::{ConditionKind, Event, Recorded, ThreadEvent},
    ids::{Sequence, ThreadId},
    session::Session,
    settings::{NotificationKind, Webhook},
    status::Settled,
    thread::Thread,
    time::UnixMillis,
};

/// One event that a person should look at, with everything that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its event.
    pub sequence: Sequence,
    /// When that was recorded.
    pub time: UnixMillis,
    /// The thread that it is about.
    pub thread: ThreadId,
    /// Everything that it is, for somebody who looks at no thread; never empty.
    pub kinds: BTreeSet<NotificationKind>,
    line: String,
    detail: String,
}

impl Notification {
    /// What an event notifies of, if of anything. `session` is the session at any time after the event: the answer is the
    /// same. Settlings under a fence notify of nothing but that of its top.
    #[must_use]
    pub fn of(session: &Session, recorded: &Recorded) -> Option<Self> {
        let Event::Thread(id, event) = &recorded.event else {
            return None;
        };
        let told = Told::by(event)?;
        let thread = session.thread(*id)?;
        if told.is_settling && (thread.spawned.parent.is_none() || session.was_closing(*id, recorded.sequence)) {
            return None;
        }
        Some(Self {
            sequence: recorded.sequence,
            time: recorded.time,
            thread: *id,
            kinds: told.kinds.iter().copied().collect(),
            line: format!(
                "agent {} ({}) {}",
                preview(&thread.display_name()),
                role(thread),
                told.what
            ),
            detail: preview(told.detail),
        })
    }

    /// The line for people, with or without what agents and callers wrote.
    #[must_use]
    pub fn text(&self, details: bool) -> String {
        if details && !self.detail.is_empty() {
            format!("{}: {}", self.line, self.detail)
        } else {
            self.line.clone()
        }
    }
}

/// What an event says, before it is known about whom.
struct Told<'e> {
    kinds: &'static [NotificationKind],
    what: &'static str,
    detail: &'e str,
    is_settling: bool,
}

impl<'e> Told<'e> {
    fn by(event: &'e ThreadEvent) -> Option<Self> {
        use NotificationKind as Kind;
        match event {
            ThreadEvent::TurnEnded { outcome, .. } => Some(match outcome {
                Settled::Completed { message, .. } => {
                    let detail = message.as_deref().unwrap_or_default();
                    Self::settling(&[Kind::AgentTurnComplete, Kind::SubAgentComplete], "completed", detail)
                }
                Settled::Errored { message, .. } => Self::settling(&[Kind::SubAgentComplete], "failed", message),
                Settled::Interrupted { reason } => Self::settling(&[Kind::SubAgentComplete], "was interrupted", reason),
            }),
            ThreadEvent::Closed { reason, .. } => Some(Self::settling(&[Kind::SubAgentComplete], "was closed", reason)),
            ThreadEvent::ApprovalRequested { subject, .. } => Some(Self::other(
                &[Kind::ApprovalRequested],
                "waits for an approval",
                subject,
            )),
            ThreadEvent::ConditionChanged {
                kind,
                active: true,
                reason,
            } => match kind {
                ConditionKind::Stalled => Some(Self::other(&[Kind::Stalled], "stalled", reason)),
                ConditionKind::BudgetExhausted => {
                    Some(Self::other(&[Kind::BudgetExhausted], "has spent its budget", reason))
                }
                ConditionKind::Unreachable => Some(Self::other(&[Kind::RunnerLost], "lost its runner", reason)),
                ConditionKind::Closing
                | ConditionKind::NoRunner
                | ConditionKind::AwaitingToolApproval
                | ConditionKind::PolicyGap
                | ConditionKind::ContextLost => None,
            },
            ThreadEvent::ConditionChanged { active: false, .. }
            | ThreadEvent::Spawned(_)
            | ThreadEvent::SpawnFailed { .. }
            | ThreadEvent::Admitted
            | ThreadEvent::Placed { .. }
            | ThreadEvent::InputQueued { .. }
            | ThreadEvent::TurnDispatched { .. }
            | ThreadEvent::TurnStarted { .. }
            | ThreadEvent::InputDelivered { .. }
            | ThreadEvent::InterruptRequested { .. }
            | ThreadEvent::NoteSet(_)
            | ThreadEvent::UsageRecorded { .. }
            | ThreadEvent::BudgetUpdated(_)
            | ThreadEvent::ArtifactRecorded { .. }
            | ThreadEvent::ToolDenied { .. }
            | ThreadEvent::CloseRequested(_)
            | ThreadEvent::Resumed(_)
            | ThreadEvent::EdgeCreated(_)
            | ThreadEvent::EdgeDeleted(_)
            | ThreadEvent::HandoffSent(_)
            | ThreadEvent::MailAcknowledged(_)
            | ThreadEvent::ApprovalResolved { .. } => None,
        }
    }

    const fn settling(kinds: &'static [NotificationKind], what: &'static str, detail: &'e str) -> Self {
        Self {
            kinds,
            what,
            detail,
            is_settling: true,
        }
    }

    const fn other(kinds: &'static [NotificationKind], what: &'static str, detail: &'e str) -> Self {
        Self {
            kinds,
            what,
            detail,
            is_settling: false,
        }
    }
}

/// `type/persona`, or the type alone.
fn role(thread: &Thread) -> String {
    let spawned = &thread.spawned;
    if spawned.role.agent_name.is_empty() {
        preview(&spawned.role.agent_type)
    } else {
        preview(&format!("{}/{}", spawned.role.agent_type, spawned.role.agent_name))
    }
}

/// Which notifications a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotificationPolicy {
    /// None.
    Off,
    /// All.
    All,
    /// Those that are one of these kinds.
    Kinds(BTreeSet<NotificationKind>),
}

impl Default for NotificationPolicy {
    fn default() -> Self {
        Self::Kinds(BTreeSet::from([NotificationKind::AgentTurnComplete]))
    }
}

/// What a receiver wants and what it is looking at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// What it wants.
    pub policy: NotificationPolicy,
    /// The thread that it is looking at: a turn that completes before its eyes needs no telling.
    pub focus: Option<ThreadId>,
}

impl Attention {
    /// That of a webhook, which looks at nothing.
    #[must_use]
    pub fn of_webhook(webhook: &Webhook) -> Self {
        let policy = if webhook.kinds.is_empty() {
            NotificationPolicy::All
        } else {
            NotificationPolicy::Kinds(webhook.kinds.iter().copied().collect())
        };
        Self { policy, focus: None }
    }

    /// Everything that a notification is to this receiver, if it wants to be told.
    #[must_use]
    pub fn kinds_of(&self, notification: &Notification) -> Option<BTreeSet<NotificationKind>> {
        let mut kinds = notification.kinds.clone();
        if self.focus == Some(notification.thread) {
            kinds.remove(&NotificationKind::AgentTurnComplete);
        }
        let is_wanted = match &self.policy {
            NotificationPolicy::Off => false,
            NotificationPolicy::All => !kinds.is_empty(),
            NotificationPolicy::Kinds(wanted) => !kinds.is_disjoint(wanted),
        };
        is_wanted.then_some(kinds)
    }
}

/// Where telling a webhook begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookStart {
    /// The event that it begins after if nothing was sent to it yet.
    pub after: Sequence,
    /// The event that gave it: how far its URL had come before that is of no account. Zero if it is not known.
    pub given: Sequence,
}

impl WebhookStart {
    /// That of a webhook which an event gave: it is told what comes after that.
    #[must_use]
    pub const fn given_by(event: Sequence) -> Self {
        Self {
            after: event,
            given: event,
        }
    }

    /// Where it goes on, if `reached` is how far its URL had come when that was last written down.
    #[must_use]
    pub fn position(self, reached: Option<Sequence>) -> Sequence {
        reached.filter(|reached| *reached >= self.given).unwrap_or(self.after)
    }
}
