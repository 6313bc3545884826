//! Pending and decided approvals.

use crate::{
    event::{ApprovalDecision, ApprovalKind, CallDetails, Edge},
    ids::{ApprovalId, Sequence, ThreadId},
    principal::Actor,
    time::{REQUESTS_REMEMBERED, UnixMillis},
};

/// Number of decided approvals that a session keeps in memory. Older ones are only in the log.
pub const MAX_DECIDED: usize = 1_000;

/// The state of one approval, folded from its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The thread that the approval concerns: the thread to spawn, the thread that requests the edge or tool call, or
    /// the parent of a group's items.
    pub thread: ThreadId,
    /// The kind of the request.
    pub kind: ApprovalKind,
    /// A human-readable description of the request.
    pub subject: String,
    /// The sequence of the event that requested the approval.
    pub sequence: Sequence,
    /// The time of the request.
    pub requested: UnixMillis,
    /// The time at which the approval is denied automatically. `None`: never.
    pub deadline: Option<UnixMillis>,
    /// The edge to create when the approval is granted. `None` for other kinds.
    pub edge: Option<Edge>,
    /// The tool call that the approval covers. `None` for other kinds.
    pub call: Option<Box<CallDetails>>,
    /// The decision. `None` while the approval is pending.
    pub verdict: Option<Verdict>,
}

/// How a repeated call of a thread without turns matches an earlier call. A turn limits the validity of a decision.
/// Without turns, the decision would be valid for the whole session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatedCall {
    /// The approval ids match: it is the same call.
    SameId,
    /// The content matches and the decision was not delivered yet: the call continues to wait.
    UndeliveredDecision,
    /// The content matches but the decision was already delivered: it is a new call.
    DeliveredDecision,
}

impl Approval {
    /// Returns whether this approval answers a repeated call of a thread without turns at the given time. A pending
    /// approval answers every repetition. A decision answers a repetition of the call that requested it while the id of
    /// that call is remembered. A decision that was not delivered also answers a later equal call, until the approval's
    /// deadline. An expired or moot approval answers no later call.
    #[must_use]
    pub fn answers(&self, repeated: RepeatedCall, now: UnixMillis) -> bool {
        let Some(verdict) = &self.verdict else {
            return true;
        };
        match (verdict.decision, repeated) {
            (ApprovalDecision::Expired | ApprovalDecision::Moot, _) => false,
            (ApprovalDecision::Granted | ApprovalDecision::Denied, RepeatedCall::SameId) => {
                now < self.requested.plus(REQUESTS_REMEMBERED)
            }
            (ApprovalDecision::Granted | ApprovalDecision::Denied, RepeatedCall::UndeliveredDecision) => {
                now < self.deadline.unwrap_or(self.requested.plus(REQUESTS_REMEMBERED))
            }
            (ApprovalDecision::Granted | ApprovalDecision::Denied, RepeatedCall::DeliveredDecision) => false,
        }
    }

    /// Returns whether the approval is undecided and past its deadline. It can no longer be decided and is about to be
    /// denied automatically.
    #[must_use]
    pub fn is_overdue(&self, now: UnixMillis) -> bool {
        self.verdict.is_none() && self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// The decision on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: ApprovalDecision,
    /// The actor that decided.
    pub by: Actor,
    /// The reason.
    pub reason: String,
}
