//! Hints for errors and for blocked threads, one sentence each.

use tonic::Code;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{ConditionKind, StatusKind},
};

/// Hint for a paused session.
pub(crate) const PAUSED: &str = "an operator paused the session; `troupe session resume SESSION` lets it go on";

/// Returns the hint for a Troupe reason, or `None` if the message is sufficient.
pub(crate) const fn for_reason(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::TemplateNotFound | Reason::AmbiguousAgentType | Reason::InvalidAgentType => {
            "`troupe agents` lists the roles of this directory"
        }
        Reason::TemplateInvalid => "correct the template; `troupe lint` shows every finding with its line",
        Reason::InvalidAgentName => "`troupe agents show TYPE` lists the personas of a role",
        Reason::DigestMismatch => "the template changed; `troupe resolve TYPE` shows the present digest",
        Reason::CwdNotFound => {
            "name a directory of the registry's machine, upload its templates (`--upload-workspace`), or go without: \
             `--no-cwd`"
        }
        Reason::CwdOutsideRoots => {
            "start the pair with `--workspace-root DIR` for a directory above it, upload its templates \
             (`--upload-workspace`), or go without: `--no-cwd`"
        }
        Reason::SessionNotFound | Reason::ThreadNotFound => "`troupe ps --closed` lists every session and thread",
        Reason::DepthLimit => {
            "spawn from a thread nearer to the root, or open the session under a larger max_depth (`up --max-depth`)"
        }
        Reason::ThreadLimit => "wait for a slot with `--queue`, or free one: `troupe ps`, then `troupe close ID`",
        Reason::OpenLimit | Reason::LimitExceeded => "close what is no longer needed: `troupe ps`, `troupe close ID`",
        Reason::BudgetExhausted => "an operator or a thread above it can raise it: `troupe budget ID --tokens NUMBER`",
        Reason::ToolDenied | Reason::SpawnNotAllowed => {
            "the role's allow_list, deny_list or spawn_list decides: `troupe agents show TYPE`"
        }
        Reason::OutsideSubtree => "a thread's token reaches that thread and its descendants only",
        Reason::NotPermitted => "the method or a field of it is for operators; call with the operator's token",
        Reason::UnknownMethod => {
            "the service is of an earlier release, or not the one that was meant: check --supervisor and --registry"
        }
        Reason::Unauthenticated => {
            "pass `--token`, set TROUPE_TOKEN, or point `--data-dir` at the data of the running `troupe up`"
        }
        Reason::ThreadClosing => "wait until it is down: `troupe watch`",
        Reason::ThreadClosed => "spawn a new thread",
        Reason::SessionPaused => PAUSED,
        Reason::SessionClosed => "open a new session: `troupe spawn TYPE -m MESSAGE`",
        Reason::RequestIdReused => "use a new request id for a different request",
        Reason::AliasInUse => "choose another `--alias`; they are unique in a session, whatever their case",
        Reason::HistoryCompacted | Reason::AheadOfHead => "watch without `--after`: it starts with a snapshot",
        Reason::Draining | Reason::Overloaded | Reason::RateLimited => "try again in a moment",
        Reason::RegistryUnavailable => "`troupe doctor` says which service is away",
        Reason::OutcomeUnknown => "look before you repeat it: `troupe ps`",
        Reason::StoreUnavailable => "the disk of the data directory is full or read-only: `troupe doctor`",
        Reason::CorruptRecord => "stored data is damaged; restore the data directory from a backup",
        Reason::UpgradeRequired => "the data was written by a newer release; run that one",
        Reason::PolicyNotEnforceable => "attach a runner that can hold the role to its policy: `troupe run --help`",
        Reason::Internal => "the log of the service has the details",
        Reason::MalformedMessage => "the command line and the service may be of different releases: `troupe doctor`",
        Reason::InvalidArgument
        | Reason::MessageTooLarge
        | Reason::InvalidInput
        | Reason::UnknownModel
        | Reason::UnsupportedEffort
        | Reason::UnknownProvider
        | Reason::WorkspaceUnknown
        | Reason::NotFound
        | Reason::IllegalTransition
        | Reason::DeadlineExceeded => return None,
    })
}

/// Returns the hint for a thread with this status, or `None` if the thread needs no action.
pub(crate) const fn for_status(kind: StatusKind) -> Option<&'static str> {
    match kind {
        StatusKind::AwaitingApproval => Some("`troupe approvals` shows what would be spawned, and decides it"),
        StatusKind::Unspecified
        | StatusKind::Queued
        | StatusKind::PendingInit
        | StatusKind::Running
        | StatusKind::Completed
        | StatusKind::Errored
        | StatusKind::Interrupted
        | StatusKind::Shutdown => None,
    }
}

/// Returns the hint for a condition, or `None` if the condition ends by itself.
pub(crate) const fn for_condition(kind: ConditionKind) -> Option<&'static str> {
    match kind {
        ConditionKind::Stalled => {
            Some("`troupe watch ID --with-output` shows what it does; `troupe send ID --interrupt -m TEXT` ends it")
        }
        ConditionKind::Unreachable => Some("its runner is away; when its lease is over, the restart policy decides"),
        ConditionKind::NoRunner => {
            Some("no attached runner fits; `troupe run` attaches one, with the labels that the session asks for")
        }
        ConditionKind::AwaitingToolApproval => Some("`troupe approvals` shows the call that waits, and decides it"),
        ConditionKind::BudgetExhausted => {
            Some("`troupe budget ID --tokens NUMBER` gives it more; then `troupe send ID -m TEXT`")
        }
        ConditionKind::PolicyGap => {
            Some("its program cannot do all as its policy and role say; `troupe watch` says what")
        }
        ConditionKind::ContextLost => {
            Some("its program forgot the earlier conversation; `troupe send ID -m TEXT` tells it again what matters")
        }
        ConditionKind::Unspecified | ConditionKind::Closing => None,
    }
}

/// Returns the hint for an error code of another source than Troupe's services.
pub(crate) const fn for_code(code: Code) -> Option<&'static str> {
    match code {
        Code::Unavailable => Some("is the pair running? `troupe up` starts it; `troupe doctor` looks around"),
        Code::Unimplemented => {
            Some("the address answers gRPC, but not this service; check --supervisor and --registry")
        }
        _ => None,
    }
}
