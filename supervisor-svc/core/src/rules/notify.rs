//! Notifications for people, derived from the events of the log and never recorded. A notification has the number of
//! its event.

use std::collections::BTreeSet;

use crate::{
    content::preview,
    event::{ConditionKind, Event, Recorded, ThreadEvent},
    group::GroupOutcome,
    ids::{Sequence, ThreadId},
    settings::{NotificationKind, Webhook},
    state::{session::Session, thread::Thread},
    status::Settled,
    time::UnixMillis,
};

/// A notification: one event, with all of its notification kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The sequence of the event.
    pub sequence: Sequence,
    /// The time of the event.
    pub time: UnixMillis,
    /// The thread that the event concerns.
    pub thread: ThreadId,
    /// All kinds of the notification, for a receiver without a focused thread. Never empty.
    pub kinds: BTreeSet<NotificationKind>,
    line: String,
    detail: String,
}

impl Notification {
    /// Returns the notification of an event, if any. `session` may be the session at any time after the event, with the
    /// same result. Outcomes below a fence produce no notifications, except the outcome of the fence's top thread.
    #[must_use]
    pub fn of(session: &Session, recorded: &Recorded) -> Option<Self> {
        let Event::Thread(id, event) = &recorded.event else {
            return None;
        };
        let summary = Summary::by(event)?;
        let thread = session.thread(*id)?;
        let is_item = thread.spawned.item.is_some();
        let is_settling = matches!(event, ThreadEvent::TurnEnded { .. } | ThreadEvent::Closed { .. });
        if is_settling && (is_item || thread.spawned.parent.is_none() || session.was_closing(*id, recorded.sequence)) {
            return None;
        }
        Some(Self {
            sequence: recorded.sequence,
            time: recorded.time,
            thread: *id,
            kinds: summary.kinds.iter().copied().collect(),
            line: format!(
                "agent {} ({}) {}",
                preview(&thread.display_name()),
                role(thread),
                summary.what
            ),
            detail: preview(summary.detail),
        })
    }

    /// Returns the notification as one line of text. If `details` is true, the line includes text written by agents and
    /// callers.
    #[must_use]
    pub fn text(&self, details: bool) -> String {
        if details && !self.detail.is_empty() {
            format!("{}: {}", self.line, self.detail)
        } else {
            self.line.clone()
        }
    }
}

/// The content of a notification, without its thread.
struct Summary<'e> {
    kinds: &'static [NotificationKind],
    what: &'static str,
    detail: &'e str,
}

impl<'e> Summary<'e> {
    fn by(event: &'e ThreadEvent) -> Option<Self> {
        use NotificationKind as Kind;
        match event {
            ThreadEvent::TurnEnded {
                result_repair: true, ..
            } => None,
            ThreadEvent::TurnEnded { outcome, .. } => Some(match outcome {
                Settled::Completed { message, .. } => {
                    let detail = message.as_deref().unwrap_or_default();
                    Self::new(&[Kind::AgentTurnComplete, Kind::SubAgentComplete], "completed", detail)
                }
                Settled::Errored { message, .. } => Self::new(&[Kind::SubAgentComplete], "failed", message),
                Settled::Interrupted { reason } => Self::new(&[Kind::SubAgentComplete], "was interrupted", reason),
            }),
            ThreadEvent::Closed { reason, .. } => Some(Self::new(&[Kind::SubAgentComplete], "was closed", reason)),
            ThreadEvent::GroupEnded { outcome, reason, .. } => {
                Some(Self::new(&[Kind::SubAgentComplete], group_end(*outcome), reason))
            }
            ThreadEvent::ApprovalRequested { subject, .. } => {
                Some(Self::new(&[Kind::ApprovalRequested], "waits for an approval", subject))
            }
            ThreadEvent::ConditionChanged {
                kind,
                active: true,
                reason,
            } => match kind {
                ConditionKind::Stalled => Some(Self::new(&[Kind::Stalled], "stalled", reason)),
                ConditionKind::BudgetExhausted => {
                    Some(Self::new(&[Kind::BudgetExhausted], "has spent its budget", reason))
                }
                ConditionKind::Unreachable => Some(Self::new(&[Kind::RunnerLost], "lost its runner", reason)),
                ConditionKind::AwaitingInput => Some(Self::new(&[Kind::InputRequested], "asks", reason)),
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
            | ThreadEvent::ResultReported { .. }
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
            | ThreadEvent::GroupCreated { .. }
            | ThreadEvent::GroupUpdated { .. }
            | ThreadEvent::GroupItemEnded { .. }
            | ThreadEvent::GroupEnding { .. }
            | ThreadEvent::GroupRetried(_)
            | ThreadEvent::MailAcknowledged(_)
            | ThreadEvent::ApprovalResolved { .. } => None,
        }
    }

    const fn new(kinds: &'static [NotificationKind], what: &'static str, detail: &'e str) -> Self {
        Self { kinds, what, detail }
    }
}

/// Returns the verb of the line about a group's outcome.
const fn group_end(outcome: GroupOutcome) -> &'static str {
    match outcome {
        GroupOutcome::Succeeded => "has a group that succeeded",
        GroupOutcome::Failed => "has a group that failed",
        GroupOutcome::Cancelled => "has a group that was cancelled",
    }
}

/// Returns `type/persona`, or the type alone.
fn role(thread: &Thread) -> String {
    let spawned = &thread.spawned;
    if spawned.role.agent_name.is_empty() {
        preview(&spawned.role.agent_type)
    } else {
        preview(&format!("{}/{}", spawned.role.agent_type, spawned.role.agent_name))
    }
}

/// The notifications that a client selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotificationPolicy {
    /// None.
    Off,
    /// All.
    All,
    /// Notifications of at least one of these kinds.
    Kinds(BTreeSet<NotificationKind>),
}

impl Default for NotificationPolicy {
    fn default() -> Self {
        Self::Kinds(BTreeSet::from([NotificationKind::AgentTurnComplete]))
    }
}

/// A receiver's selection and focus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// The selected notifications.
    pub policy: NotificationPolicy,
    /// The focused thread. Its turns cause no [`NotificationKind::AgentTurnComplete`].
    pub focus: Option<ThreadId>,
}

impl Attention {
    /// Returns the interest of a webhook, which has no focus.
    #[must_use]
    pub fn of_webhook(webhook: &Webhook) -> Self {
        let policy = if webhook.kinds.is_empty() {
            NotificationPolicy::All
        } else {
            NotificationPolicy::Kinds(webhook.kinds.iter().copied().collect())
        };
        Self { policy, focus: None }
    }

    /// Returns the kinds of a notification for this receiver, if it selects any.
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
