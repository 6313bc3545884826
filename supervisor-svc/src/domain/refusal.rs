//! Why a command was refused, with the facts that a client needs. A refused command changes and records nothing.

use std::time::Duration;

use tool_policy::PolicyError;

use super::{
    budget::Shortage,
    ids::{InputNumber, Sequence, ThreadId},
    status::StatusKind,
};

/// Why a command was refused. The texts are part of the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The token's thread is closed, or was placed anew since.
    #[error("missing, malformed or stale token; send \"authorization: Bearer TOKEN\"")]
    StaleToken,
    /// A thread named another branch, or nothing at all: one answer for both.
    #[error("Not permitted to {} agents outside your subtree.", .0.as_str())]
    OutsideSubtree(GuardedVerb),
    /// The tool of the call is not in the caller's effective policy.
    #[error("tool \"{tool}\" is not allowed for agent_type \"{agent_type}\"")]
    ToolDenied {
        /// The tool.
        tool: String,
        /// The caller's role.
        agent_type: String,
    },
    /// Only operators may use the field.
    #[error("{field} may be set by operators only; leave it out")]
    OperatorsOnly {
        /// The field.
        field: &'static str,
    },
    /// No such thread.
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
        /// How deep the child would be.
        depth: u32,
        /// The limit.
        max_depth: u32,
    },
    /// The role of the caller may not spawn that role.
    #[error("agent_type \"{caller}\" may not spawn \"{wanted}\"; its spawn_list allows: {}", .allowed.join(", "))]
    SpawnNotAllowed {
        /// The caller's role.
        caller: String,
        /// The role that it wanted.
        wanted: String,
        /// What its spawn_list has.
        allowed: Vec<String>,
    },
    /// No slot is free.
    #[error("agent thread limit reached (max {max_threads})")]
    ThreadLimit {
        /// The limit.
        max_threads: u32,
        /// How many hold a slot.
        active: u32,
    },
    /// The session holds as many threads as it may.
    #[error("{what} limit reached (max {max}); {remedy}")]
    OpenLimit {
        /// `open agent thread` or `total agent thread`.
        what: &'static str,
        /// The limit.
        max: u32,
        /// What helps.
        remedy: &'static str,
    },
    /// The input is missing, blank or given twice.
    #[error("{0}")]
    InvalidInput(&'static str),
    /// An argument is malformed or too large.
    #[error("{message}")]
    InvalidArgument {
        /// The field's path in the request.
        field: &'static str,
        /// What is wrong, with which value, and what to do.
        message: String,
    },
    /// The alias is taken.
    #[error("alias \"{alias}\" is already in use{}; choose another", .by.map(|by| format!(" by agent {by}")).unwrap_or_default())]
    AliasInUse {
        /// The alias.
        alias: String,
        /// Who has it; `None`: one of whom the caller is to know nothing.
        by: Option<ThreadId>,
    },
    /// The state machine has no such step.
    #[error("agent with id {thread} is {status}; it cannot {wanted}")]
    IllegalTransition {
        /// The thread.
        thread: ThreadId,
        /// Where it stands.
        status: StatusKind,
        /// What was wanted.
        wanted: &'static str,
    },
    /// A role's or a request's patterns are malformed.
    #[error("tool policy: {0}")]
    Policy(String),
    /// A request_id was used with another body.
    #[error("request_id \"{0}\" was already used with another request; use a new one")]
    RequestIdReused(String),
    /// The thread has as much waiting input as it may have.
    #[error("agent with id {thread} has {waiting} inputs waiting; wait until it has read them")]
    TooMuchInput {
        /// The thread.
        thread: ThreadId,
        /// How many wait.
        waiting: u32,
        /// The number of the newest.
        newest: InputNumber,
    },
    /// Something beside threads that the request names does not exist.
    #[error("{what} {id} not found")]
    Missing {
        /// What kind of thing: `edge`, `approval`, `artifact`, ...
        what: &'static str,
        /// Its id, as it was given.
        id: String,
    },
    /// The present state does not allow it.
    #[error("{0}")]
    IllegalState(String),
    /// The caller may not do this, whatever its tool policy says.
    #[error("{0}")]
    NotPermitted(String),
    /// A size or a count is exhausted.
    #[error("{message}")]
    LimitExceeded {
        /// Which limit.
        limit: &'static str,
        /// What is full, with its bound, and what helps.
        message: String,
    },
    /// Threads cause more events than they may.
    #[error(
        "{} more than {per_second} events a second; wait {} ms",
        .thread.map_or_else(|| String::from("the agents of the session cause"), |id| format!("agent with id {id} causes")),
        .retry_after.as_millis()
    )]
    RateLimited {
        /// The thread; `None`: all of the session together.
        thread: Option<ThreadId>,
        /// How many they may cause without end.
        per_second: u32,
        /// When the next event is possible.
        retry_after: Duration,
    },
    /// What a thread above may spend is spent.
    #[error("the budget of agent {thread} is spent ({what}); raise it with UpdateThreadBudget")]
    BudgetExhausted {
        /// The thread whose budget it is.
        thread: ThreadId,
        /// `tokens`, `turns` or `wall_time`.
        what: &'static str,
    },
    /// What follows the position of a watch is not in the log any more.
    #[error("the events up to {oldest} are compacted; watch from {oldest}, or without after_sequence for a snapshot")]
    HistoryCompacted {
        /// The first position that a watch can go on from.
        oldest: Sequence,
        /// The newest event.
        head: Sequence,
    },
    /// A budget does not fit into what the thread above that bounds it has left.
    #[error("{0}")]
    OverBudget(Shortage),
    /// The position of a watch is ahead of the log.
    #[error("after_sequence {after} is ahead of the newest event {head}; watch from {head} or without after_sequence")]
    AheadOfHead {
        /// What was asked for.
        after: Sequence,
        /// The oldest event that is still there.
        oldest: Sequence,
        /// The newest.
        head: Sequence,
    },
}

impl From<PolicyError> for Refusal {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error.to_string())
    }
}

/// What a thread wanted to do outside its subtree, as the guard's text says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedVerb {
    /// CloseAgent.
    Close,
    /// Everything else.
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
