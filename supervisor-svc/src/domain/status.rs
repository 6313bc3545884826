//! The states of a thread and the steps between them: the one table of legal transitions.

use std::{fmt, sync::Arc};

use super::content::ContentRef;

/// How a thread settled while it stays open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The last turn ended well.
    Completed {
        /// Its last message, if it had one; at most 4 KiB.
        message: Option<String>,
        /// The whole message, if it is longer.
        content: Option<ContentRef>,
    },
    /// The last turn failed.
    Errored {
        /// What went wrong; at most 4 KiB.
        message: String,
        /// The whole message, if it is longer.
        content: Option<ContentRef>,
    },
    /// The last turn was stopped.
    Interrupted {
        /// Why.
        reason: String,
    },
}

/// Where a thread stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Waits for a slot.
    Queued,
    /// Waits for an operator's decision on its spawn.
    AwaitingApproval,
    /// Holds a slot; its turn has not started yet.
    PendingInit,
    /// A turn is running, or its client executes it.
    Running,
    /// Settled and open. Whoever is told of it shares it.
    Settled(Arc<Settled>),
    /// Settled and closed.
    Shutdown {
        /// Why.
        reason: String,
        /// How it had settled before, which ResumeAgent restores; `None`: its spawn was never approved, so there is nothing
        /// to restore.
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
    /// The status without its data.
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
}

impl Settled {
    /// The last message, or why there is none; empty where nothing was said.
    #[must_use]
    pub fn last_word(&self) -> &str {
        match self {
            Self::Completed { message, .. } => message.as_deref().unwrap_or_default(),
            Self::Errored { message, .. } => message,
            Self::Interrupted { reason } => reason,
        }
    }

    /// The status without its data.
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
    /// Every kind.
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

    /// PENDING_INIT or RUNNING.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::PendingInit | Self::Running)
    }

    /// COMPLETED, ERRORED, INTERRUPTED or SHUTDOWN: what WaitAgents waits for.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Errored | Self::Interrupted | Self::Shutdown
        )
    }

    /// Not SHUTDOWN.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Shutdown)
    }

    /// The name on the wire, without its prefix.
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

    /// Where a step leads from here; `None` if the table has no such transition.
    #[must_use]
    pub const fn after(self, step: Step) -> Option<Self> {
        use Step as S;
        match (self, step) {
            // Behind those who wait already; if a slot is free, it is admitted in the same append.
            (Self::AwaitingApproval, S::Granted) => Some(Self::Queued),
            // A settled thread with input left over from the turn that ended is admitted without waiting again.
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

/// What moves a thread from one status to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its spawn was approved.
    Granted,
    /// It took a slot.
    Admitted,
    /// A runner was chosen.
    Placed,
    /// A turn was handed to the runner.
    Dispatched,
    /// The turn runs.
    Started,
    /// The turn is over.
    Ended(StatusKind),
    /// Input waits for it.
    InputQueued,
    /// It is closed.
    Closed,
    /// It is open again.
    Resumed(StatusKind),
}
