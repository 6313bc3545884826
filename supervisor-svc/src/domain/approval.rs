//! What waits, or waited, for an operator.

use std::time::Duration;

use super::{
    actor::Actor,
    event::{ApprovalDecision, ApprovalKind, Edge},
    ids::{ApprovalId, Sequence, ThreadId},
    time::UnixMillis,
};

/// How long an approval waits for an operator before it is denied.
pub const APPROVAL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How many decided approvals a session remembers; older ones are found in the log only.
pub const MAX_DECIDED: usize = 1_000;

/// One approval as its events made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The thread that it is about: the one that would be spawned, or that asks.
    pub thread: ThreadId,
    /// What it is about.
    pub kind: ApprovalKind,
    /// What would happen, for people.
    pub subject: String,
    /// The event that requested it.
    pub sequence: Sequence,
    /// When it was requested.
    pub requested: UnixMillis,
    /// When it is denied by itself.
    pub deadline: UnixMillis,
    /// The edge that is created when it is granted, where it is about one.
    pub edge: Option<Edge>,
    /// How it was decided; `None` while it waits.
    pub verdict: Option<Verdict>,
}

/// How an approval was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: ApprovalDecision,
    /// Who decided.
    pub by: Actor,
    /// Why.
    pub reason: String,
}
