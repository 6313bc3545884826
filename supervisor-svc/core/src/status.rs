//! The statuses of a thread and the table of legal transitions.

use std::{fmt, sync::Arc};

use crate::content::ContentRef;

/// The outcome of a settled thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The last turn succeeded.
    Completed {
        /// The last message, if any, at most 4 KiB.
        message: Option<String>,
        /// The complete message, if it exceeds that size.
        content: Option<ContentRef>,
    },
    /// The last turn failed.
    Errored {
        /// The error message, at most 4 KiB.
        message: String,
        /// The complete message, if it exceeds that size.
        content: Option<ContentRef>,
    },
    /// The last turn was stopped.
    Interrupted {
        /// The reason.
        reason: String,
    },
}

/// The status of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Waiting for a slot.
    Queued,
    /// Waiting for an operator's decision on its spawn.
    AwaitingApproval,
    /// Holds a slot; its turn has not started yet.
    PendingInit,
    /// A turn is running, or the session's client executes the thread itself.
    Running,
    /// Settled and open. The outcome is shared with all receivers.
    Settled(Arc<Settled>),
    /// Settled and closed.
    Shutdown {
        /// The reason.
        reason: String,
        /// The outcome before the close, which ResumeAgent restores. `None` if the spawn was never approved, so that
        /// nothing can be restored.
        before: Option<Arc<Settled>>,
    },
}

/// A status without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusKind {
    /// See [`Status::Queued`].
    Queued,
    /// See [`Status::AwaitingApproval`].
    AwaitingApproval,
    /// See [`Status::PendingInit`].
    PendingInit,
    /// See [`Status::Running`].
    Running,
    /// See [`Settled::Completed`].
    Completed,
    /// See [`Settled::Errored`].
    Errored,
    /// See [`Settled::Interrupted`].
    Interrupted,
    /// See [`Status::Shutdown`].
    Shutdown,
}

impl Status {
    /// Returns the status without its data.
    #[must_use]
    pub fn kind(&self) -> StatusKind {
        match self {
            Self::Queued => StatusKind::Queued,
            Self::AwaitingApproval => StatusKind::AwaitingApproval,
            Self::PendingInit => StatusKind::PendingInit,
            Self::Running => StatusKind::Running,
            Self::Settled(settled) => settled.kind(),
            Self::Shutdown { .. } => StatusKind::Shutdown,
        }
    }

    /// Returns the outcome of a settled thread, also after it was closed.
    #[must_use]
    pub fn settled(&self) -> Option<&Settled> {
        match self {
            Self::Queued | Self::AwaitingApproval | Self::PendingInit | Self::Running => None,
            Self::Settled(settled) => Some(settled),
            Self::Shutdown { before, .. } => before.as_deref(),
        }
    }
}

impl Settled {
    /// Returns the last message, or the reason for its absence. Empty if neither exists.
    #[must_use]
    pub fn last_word(&self) -> &str {
        match self {
            Self::Completed { message, .. } => message.as_deref().unwrap_or_default(),
            Self::Errored { message, .. } => message,
            Self::Interrupted { reason } => reason,
        }
    }

    /// Returns the status without its data.
    #[must_use]
    pub const fn kind(&self) -> StatusKind {
        match self {
            Self::Completed { .. } => StatusKind::Completed,
            Self::Errored { .. } => StatusKind::Errored,
            Self::Interrupted { .. } => StatusKind::Interrupted,
        }
    }
}

impl StatusKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::AwaitingApproval,
        Self::PendingInit,
        Self::Running,
        Self::Completed,
        Self::Errored,
        Self::Interrupted,
        Self::Shutdown,
    ];

    /// Returns whether the status is PENDING_INIT or RUNNING.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::PendingInit | Self::Running)
    }

    /// Returns whether the status is COMPLETED, ERRORED, INTERRUPTED or SHUTDOWN. WaitAgents waits for these.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Errored | Self::Interrupted | Self::Shutdown
        )
    }

    /// Returns whether the status is not SHUTDOWN.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Shutdown)
    }

    /// Returns the name on the wire, without its prefix.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::AwaitingApproval => "AWAITING_APPROVAL",
            Self::PendingInit => "PENDING_INIT",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Errored => "ERRORED",
            Self::Interrupted => "INTERRUPTED",
            Self::Shutdown => "SHUTDOWN",
        }
    }

    /// Returns the status after a step. `None` if the transition is not legal.
    #[must_use]
    pub const fn after(self, step: Step) -> Option<Self> {
        use Step as S;
        match (self, step) {
            // The thread queues behind earlier ones. If a slot is free, the same append admits it.
            (Self::AwaitingApproval, S::Granted) => Some(Self::Queued),
            // A settled thread with queued input left from its last turn is admitted without queueing again.
            (Self::Queued | Self::Completed | Self::Errored | Self::Interrupted, S::Admitted) => {
                Some(Self::PendingInit)
            }
            // The first placement, a re-placement before the start, and a restart.
            (Self::PendingInit | Self::Running, S::Placed) => Some(Self::PendingInit),
            (Self::PendingInit, S::Dispatched) => Some(Self::PendingInit),
            (Self::PendingInit, S::Started) => Some(Self::Running),
            (Self::Queued | Self::PendingInit | Self::Running, S::Ended(kind))
                if kind.is_settled() && kind.is_open() =>
            {
                Some(kind)
            }
            (Self::Completed | Self::Errored | Self::Interrupted, S::InputQueued) => Some(Self::Queued),
            (Self::Queued, S::InputQueued) => Some(Self::Queued),
            (Self::AwaitingApproval, S::InputQueued) => Some(Self::AwaitingApproval),
            (Self::PendingInit, S::InputQueued) => Some(Self::PendingInit),
            (Self::Running, S::InputQueued) => Some(Self::Running),
            (
                Self::Queued
                | Self::AwaitingApproval
                | Self::PendingInit
                | Self::Running
                | Self::Completed
                | Self::Errored
                | Self::Interrupted,
                S::Closed,
            ) => Some(Self::Shutdown),
            (Self::Shutdown, S::Resumed(kind)) if kind.is_settled() && kind.is_open() => Some(kind),
            _ => None,
        }
    }
}

impl fmt::Display for StatusKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A step from one status to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The spawn was approved.
    Granted,
    /// The thread took a slot.
    Admitted,
    /// A runner was chosen.
    Placed,
    /// A turn was dispatched to the runner.
    Dispatched,
    /// The turn started.
    Started,
    /// The turn ended.
    Ended(StatusKind),
    /// Input was queued.
    InputQueued,
    /// The thread was closed.
    Closed,
    /// The thread was resumed.
    Resumed(StatusKind),
}
