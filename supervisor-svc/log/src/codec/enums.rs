//! Conversion of enumerations to and from their numbers in messages.

use supervisor_core::{
    event::{
        ApprovalDecision, ApprovalKind, BlockKind, CloseCause, ConditionKind, Dialect, EdgeKind, Expectation,
        PromptExtent, Scope, ValueOrigin,
    },
    group::{ItemOutcome, OnFailure},
    rules::list::ListScope,
    settings::{
        ApprovalTimeoutAction, ClosePolicy, EdgeManagement, Mode, NotificationKind, OnLimit, Orchestration, PromptLog,
        RestartPolicy, Sandbox, SlotRelease, TranscriptLog, WakePolicy,
    },
    state::group::ItemState,
    status::{Settled, StatusKind},
    transcript::TranscriptKind,
};
use tool_policy::{Inheritance, MatchMode};
use troupe_proto::{common::v1 as common, supervisor::v1 as pb};

use super::error::UnknownValue;

/// An enumeration of the domain that also exists in the API.
pub trait WireEnum: Copy {
    /// The enumeration in the API.
    type Wire: Into<i32>;

    /// Converts to the API's value.
    fn wire(self) -> Self::Wire;

    /// Converts a number from a message. UNSPECIFIED becomes the default that the API documents, and is an error if the
    /// API documents no default.
    ///
    /// # Errors
    /// [`UnknownValue`].
    fn from_number(number: i32) -> Result<Self, UnknownValue>;

    /// Returns the number in a message.
    fn number(self) -> i32 {
        self.wire().into()
    }

    /// Parses an optional enumeration value. UNSPECIFIED is `None`.
    ///
    /// # Errors
    /// [`UnknownValue`].
    fn given(number: i32) -> Result<Option<Self>, UnknownValue> {
        if number == 0 {
            return Ok(None);
        }
        Self::from_number(number).map(Some)
    }
}

macro_rules! wire_enum {
    // Each value has the same name in the API.
    ($domain:ident = $module:ident::$wire:ident, unspecified: $unspecified:expr, $($name:ident),+ $(,)?) => {
        wire_enum!($domain = $module::$wire, unspecified: $unspecified, $($name = $name),+);
    };
    (
        $domain:ident = $module:ident::$wire:ident, unspecified: $unspecified:expr,
        $($ours:ident = $theirs:ident),+ $(,)?
    ) => {
        impl WireEnum for $domain {
            type Wire = $module::$wire;

            fn wire(self) -> Self::Wire {
                match self {
                    $(Self::$ours => $module::$wire::$theirs,)+
                }
            }

            fn from_number(number: i32) -> Result<Self, UnknownValue> {
                let value = match $module::$wire::try_from(number) {
                    Ok($module::$wire::Unspecified) => $unspecified,
                    $(Ok($module::$wire::$theirs) => Some(Self::$ours),)+
                    Err(_) => None,
                };
                value.ok_or(UnknownValue {
                    name: stringify!($wire),
                    number,
                })
            }
        }
    };
}

wire_enum!(Sandbox = common::Sandbox, unspecified: None, ReadOnly, WorkspaceWrite, FullAccess);
wire_enum!(Mode = common::Mode, unspecified: None, Planning, Implementation);
wire_enum!(EdgeManagement = common::EdgeManagement, unspecified: None, None = None, SelfOnly = Self_, All = All);
wire_enum!(Dialect = common::Dialect, unspecified: None, Role, Profile, Subagent, Graph, Foreign);
wire_enum!(Scope = common::Scope, unspecified: None, Project, User, System);
wire_enum!(ValueOrigin = common::ValueOrigin, unspecified: None, Explicit, Persona, Role, Inherited, Alias, Default);
wire_enum!(MatchMode = common::MatchMode, unspecified: Some(Self::Glob), Glob, GlobIgnoreCase, Literal);
wire_enum!(BlockKind = common::BlockKind, unspecified: None, System, Role, Mode, Task, Override);
wire_enum!(Orchestration = pb::Orchestration, unspecified: Some(Self::Interactive), Interactive, Auto);
wire_enum!(PromptLog = pb::PromptLog, unspecified: Some(Self::Full), Full, Hashes, Off);
wire_enum!(ApprovalTimeoutAction = pb::ApprovalTimeoutAction, unspecified: Some(Self::Deny), Deny, Keep);
wire_enum!(TranscriptLog = pb::TranscriptLog, unspecified: Some(Self::Full), Full, Tools, Off);
wire_enum!(
    TranscriptKind = pb::TranscriptKind, unspecified: None,
    Input, Message, Reasoning, ToolCall, ToolResult, Plan, FileChange, Error, Notice,
);
wire_enum!(Inheritance = pb::PolicyInheritance, unspecified: Some(Self::Attenuate), Attenuate, Ceiling);
wire_enum!(SlotRelease = pb::SlotRelease, unspecified: Some(Self::Settle), Settle, Close);
wire_enum!(RestartPolicy = pb::RestartPolicy, unspecified: Some(Self::Never), Never, OnLost);
wire_enum!(ClosePolicy = pb::ClosePolicy, unspecified: Some(Self::Terminate), Terminate, FinishTurn, Kill);
wire_enum!(WakePolicy = pb::WakePolicy, unspecified: Some(Self::None), None, OnIdle, Always);
wire_enum!(OnLimit = pb::OnLimit, unspecified: Some(Self::Refuse), Refuse, Queue);
wire_enum!(ListScope = pb::ListScope, unspecified: Some(Self::All), Children, Descendants, All);
wire_enum!(
    NotificationKind = pb::NotificationKind, unspecified: None,
    AgentTurnComplete, SubAgentComplete, ApprovalRequested, Stalled, BudgetExhausted, RunnerLost, InputRequested,
);
wire_enum!(
    StatusKind = pb::StatusKind, unspecified: None,
    Queued, AwaitingApproval, PendingInit, Running, Completed, Errored, Interrupted, Shutdown,
);
wire_enum!(
    ConditionKind = pb::ConditionKind, unspecified: None,
    Closing, Stalled, Unreachable, NoRunner, AwaitingToolApproval, BudgetExhausted, PolicyGap, ContextLost,
    AwaitingInput,
);
wire_enum!(PromptExtent = pb::PromptExtent, unspecified: None, Full, Delta);
wire_enum!(EdgeKind = pb::EdgeKind, unspecified: Some(Self::Handoff), Handoff, Report);
wire_enum!(Expectation = pb::ResponseExpectation, unspecified: Some(Self::None), None, Optional, Required);
wire_enum!(ApprovalKind = pb::ApprovalKind, unspecified: None, Spawn, Tool, Edge, Group);
wire_enum!(OnFailure = pb::GroupFailurePolicy, unspecified: Some(Self::Continue), Continue, CancelRest);
wire_enum!(ItemOutcome = pb::GroupItemOutcome, unspecified: None, Succeeded, Failed, Retried, Cancelled);
wire_enum!(ItemState = pb::GroupItemState, unspecified: None, Pending, Running, Succeeded, Failed, Cancelled);
wire_enum!(ApprovalDecision = pb::ApprovalDecision, unspecified: None, Granted, Denied, Expired, Moot);

/// Returns the API name of a turn's outcome.
#[must_use]
pub const fn turn_outcome(settled: &Settled) -> pb::TurnOutcome {
    match settled {
        Settled::Completed { .. } => pb::TurnOutcome::Completed,
        Settled::Errored { .. } => pb::TurnOutcome::Errored,
        Settled::Interrupted { .. } => pb::TurnOutcome::Interrupted,
    }
}

/// Returns the status that follows from a turn's outcome.
///
/// # Errors
/// [`UnknownValue`]; there is no default.
pub fn outcome_status(number: i32) -> Result<StatusKind, UnknownValue> {
    match pb::TurnOutcome::try_from(number) {
        Ok(pb::TurnOutcome::Completed) => Ok(StatusKind::Completed),
        Ok(pb::TurnOutcome::Errored) => Ok(StatusKind::Errored),
        Ok(pb::TurnOutcome::Interrupted) => Ok(StatusKind::Interrupted),
        Ok(pb::TurnOutcome::Unspecified) | Err(_) => Err(UnknownValue {
            name: "TurnOutcome",
            number,
        }),
    }
}

/// Returns the API name of the cause of a fence.
#[must_use]
pub const fn cause_name(cause: CloseCause) -> &'static str {
    match cause {
        CloseCause::Close => "close",
        CloseCause::Session => "session",
        CloseCause::Eviction => "eviction",
        CloseCause::Intensity => "intensity",
        CloseCause::Group => "group",
    }
}

/// Returns the cause with this name.
#[must_use]
pub fn cause_of_name(name: &str) -> Option<CloseCause> {
    [
        CloseCause::Close,
        CloseCause::Session,
        CloseCause::Eviction,
        CloseCause::Intensity,
        CloseCause::Group,
    ]
    .into_iter()
    .find(|cause| cause_name(*cause) == name)
}
