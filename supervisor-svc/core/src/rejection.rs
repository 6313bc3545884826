//! Reasons for which a command is rejected, with the details that a client needs. A rejected command changes and
//! records nothing.

use std::time::Duration;

use tool_policy::PolicyError;

use crate::{
    ids::{InputNumber, Sequence, ThreadId},
    resource::Shortage,
    status::StatusKind,
};

/// The reason for which a command was rejected. The texts are part of the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The token's thread is closed, or was placed again since the token was minted.
    #[error("missing, malformed or stale token; send \"authorization: Bearer TOKEN\"")]
    StaleToken,
    /// A thread named a target outside its subtree, or a nonexistent thread. Both return the same error.
    #[error("Not permitted to {} agents outside your subtree.", .0.as_str())]
    OutsideSubtree(GuardedVerb),
    /// The tool is not in the caller's effective policy.
    #[error("tool \"{tool}\" is not allowed for agent_type \"{agent_type}\"")]
    ToolDenied {
        /// The tool.
        tool: String,
        /// The role of the caller.
        agent_type: String,
    },
    /// The field is reserved for operators.
    #[error("{field} may be set by operators only; leave it out")]
    OperatorsOnly {
        /// The field.
        field: &'static str,
    },
    /// The thread does not exist.
    #[error("agent with id {0} not found")]
    ThreadNotFound(String),
    /// The thread is closed.
    #[error("agent with id {0} is closed")]
    ThreadClosed(ThreadId),
    /// The thread or an ancestor is fenced.
    #[error("agent with id {0} is being closed; nothing new can start in it")]
    ThreadClosing(ThreadId),
    /// The session is paused.
    #[error("the session is paused; resume it with UpdateSession before spawning or sending input")]
    SessionPaused,
    /// The root is closed.
    #[error("the session is closed")]
    SessionClosed,
    /// The child would be deeper than the limit.
    #[error("Agent depth limit reached. Solve the task yourself.")]
    DepthLimit {
        /// The depth of the child.
        depth: u32,
        /// The limit.
        max_depth: u32,
    },
    /// The caller's role does not allow this role.
    #[error("agent_type \"{caller}\" may not spawn \"{wanted}\"; its spawn_list allows: {}", .allowed.join(", "))]
    SpawnNotAllowed {
        /// The role of the caller.
        caller: String,
        /// The requested role.
        wanted: String,
        /// The caller's spawn_list.
        allowed: Vec<String>,
    },
    /// No slot is free.
    #[error("agent thread limit reached (max {max_threads})")]
    ThreadLimit {
        /// The limit.
        max_threads: u32,
        /// The number of threads that hold a slot.
        active: u32,
    },
    /// The session has the maximum number of threads.
    #[error("{what} limit reached (max {max}); {remedy}")]
    OpenLimit {
        /// `open agent thread` or `total agent thread`.
        what: &'static str,
        /// The limit.
        max: u32,
        /// The suggested remedy.
        remedy: &'static str,
    },
    /// The input is missing, blank or set twice.
    #[error("{0}")]
    InvalidInput(&'static str),
    /// An argument is malformed or too large.
    #[error("{message}")]
    InvalidArgument {
        /// The field's path in the request.
        field: &'static str,
        /// The problem, the invalid value and the remedy.
        message: String,
    },
    /// The alias is already in use.
    #[error("alias \"{alias}\" is already in use{}; choose another", .by.map(|by| format!(" by agent {by}")).unwrap_or_default())]
    AliasInUse {
        /// The alias.
        alias: String,
        /// The thread with the alias. `None` if the thread is invisible to the caller.
        by: Option<ThreadId>,
    },
    /// The transition is not legal in the thread's status.
    #[error("agent with id {thread} is {status}; it cannot {wanted}")]
    IllegalTransition {
        /// The thread.
        thread: ThreadId,
        /// The current status.
        status: StatusKind,
        /// The requested action.
        wanted: &'static str,
    },
    /// The patterns of a role or a request are malformed.
    #[error("tool policy: {0}")]
    Policy(String),
    /// The request_id was used with a different body.
    #[error("request_id \"{0}\" was already used with another request; use a new one")]
    RequestIdReused(String),
    /// The thread has the maximum amount of queued input.
    #[error("agent with id {thread} has {waiting} inputs waiting; wait until it has read them")]
    TooMuchInput {
        /// The thread.
        thread: ThreadId,
        /// The number of queued inputs.
        waiting: u32,
        /// The number of the newest input.
        newest: InputNumber,
    },
    /// A named object other than a thread does not exist.
    #[error("{what} {id} not found")]
    Missing {
        /// The type of the object: `edge`, `approval`, `artifact`, ...
        what: &'static str,
        /// The id from the request.
        id: String,
    },
    /// The current state does not allow the request.
    #[error("{0}")]
    IllegalState(String),
    /// The caller may not perform the action, regardless of its tool policy.
    #[error("{0}")]
    NotPermitted(String),
    /// A size or count limit is reached.
    #[error("{message}")]
    LimitExceeded {
        /// The name of the limit.
        limit: &'static str,
        /// The exhausted resource, its limit and the remedy.
        message: String,
    },
    /// The event rate of one thread, or of all threads of the session together, is exceeded.
    #[error(
        "{} more than {per_second} events a second; wait {} ms",
        .thread.map_or_else(|| String::from("the agents of the session cause"), |id| format!("agent with id {id} causes")),
        .retry_after.as_millis()
    )]
    RateLimited {
        /// The thread. `None` means all threads of the session together.
        thread: Option<ThreadId>,
        /// The sustained rate, in events per second.
        per_second: u32,
        /// The time until the next event is allowed.
        retry_after: Duration,
    },
    /// The budget of the thread or an ancestor is exhausted.
    #[error("the budget of agent {thread} is spent ({what}); raise it with UpdateThreadBudget")]
    BudgetExhausted {
        /// The thread that has the budget.
        thread: ThreadId,
        /// `tokens`, `turns` or `wall_time`.
        what: &'static str,
    },
    /// The events after the position of a watch are no longer in the log.
    #[error("the events up to {oldest} are compacted; watch from {oldest}, or without after_sequence for a snapshot")]
    HistoryCompacted {
        /// The first valid position of a watch.
        oldest: Sequence,
        /// The newest event.
        head: Sequence,
    },
    /// The budget exceeds the remaining amount of the limiting ancestor.
    #[error("{0}")]
    OverBudget(Shortage),
    /// The position of a watch is ahead of the log.
    #[error("after_sequence {after} is ahead of the newest event {head}; watch from {head} or without after_sequence")]
    AheadOfHead {
        /// The requested position.
        after: Sequence,
        /// The oldest available event.
        oldest: Sequence,
        /// The newest event.
        head: Sequence,
    },
}

impl From<PolicyError> for Rejection {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error.to_string())
    }
}

/// The action that a thread requested on a target outside its subtree. It selects the error text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedVerb {
    /// CloseAgent.
    Close,
    /// Any other action.
    Act,
}

impl GuardedVerb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Act => "act on",
        }
    }
}
