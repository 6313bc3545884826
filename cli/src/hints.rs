//! Hints for errors and for blocked threads, one sentence each.

use tonic::Code;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{ConditionKind, StatusKind},
};

/// Hint for a paused session.
pub(crate) const PAUSED: &str = "the session is paused; `troupe session resume SESSION` resumes it";

/// Returns the hint for a Troupe reason, or `None` if the message is sufficient.
pub(crate) const fn for_reason(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::TemplateNotFound | Reason::AmbiguousAgentType | Reason::InvalidAgentType => {
            "`troupe agents` lists the roles of this directory"
        }
        Reason::TemplateInvalid => "correct the template; `troupe lint` shows every finding with its line",
        Reason::InvalidAgentName => "`troupe agents show ROLE` lists the personas of a role",
        Reason::DigestMismatch => "the template changed; `troupe resolve ROLE` shows the present digest",
        Reason::CwdNotFound => {
            "pass a directory of the registry's machine, upload the templates (`--upload-workspace`), or use no \
             project (`--no-cwd`)"
        }
        Reason::CwdOutsideRoots => {
            "start `troupe up` with `--workspace-root DIR` for a parent directory, upload the templates \
             (`--upload-workspace`), or use no project (`--no-cwd`)"
        }
        Reason::SessionNotFound | Reason::ThreadNotFound => "`troupe ps --closed` lists every session and thread",
        Reason::DepthLimit => {
            "spawn from a thread closer to the root, or open a session with a larger max_depth (`--max-depth`)"
        }
        Reason::ThreadLimit => "wait for a slot with `--queue`, or free one: `troupe ps`, then `troupe close ID`",
        Reason::OpenLimit | Reason::LimitExceeded => "close what is no longer needed: `troupe ps`, `troupe close ID`",
        Reason::BudgetExhausted => {
            "an operator or an ancestor thread can raise the budget: `troupe budget ID --tokens NUMBER`"
        }
        Reason::ToolDenied | Reason::SpawnNotAllowed => {
            "the role's allow_list, deny_list or spawn_list decides: `troupe agents show ROLE`"
        }
        Reason::OutsideSubtree => "a thread's token reaches that thread and its descendants only",
        Reason::NotPermitted => "only operators may do this; use an operator's token",
        Reason::UnknownMethod => {
            "the service has an earlier release or is another service; check --supervisor and --registry"
        }
        Reason::Unauthenticated => {
            "pass `--token`, set TROUPE_TOKEN, or point `--data-dir` at the data of the running `troupe up`"
        }
        Reason::ThreadClosing => "wait until it is closed: `troupe watch`",
        Reason::ThreadClosed => "`troupe resume ID` reopens it, or spawn a new thread",
        Reason::SessionPaused => PAUSED,
        Reason::SessionClosed => "open a new session: `troupe spawn ROLE 'TASK'`",
        Reason::RequestIdReused => "use a new request id for a different request",
        Reason::AliasInUse => "choose another `--alias`; aliases are unique in a session, case-insensitively",
        Reason::HistoryCompacted | Reason::AheadOfHead => "watch without `--after`: it starts with a snapshot",
        Reason::Draining | Reason::SessionMoving | Reason::Overloaded | Reason::RateLimited => "try again in a moment",
        Reason::RegistryUnavailable => "`troupe doctor` checks the services",
        Reason::OutcomeUnknown => "check the result before a retry: `troupe ps`",
        Reason::StoreUnavailable => {
            "the disk of the data directory is full or read-only, or the database cannot be reached: `troupe doctor`"
        }
        Reason::CorruptRecord => "stored data is damaged; restore the data directory from a backup",
        Reason::UpgradeRequired => "the data was written by a newer release; run that one",
        Reason::PolicyNotEnforceable => "attach a runner that can enforce the policy of the role: `troupe run --help`",
        Reason::Internal => "the log of the service has the details",
        Reason::MalformedMessage => "the command line and the service may be of different releases: `troupe doctor`",
        Reason::InvalidArgument
        | Reason::MessageTooLarge
        | Reason::ResultInvalid
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
        StatusKind::AwaitingApproval => {
            Some("`troupe approvals` shows the spawn; `troupe approvals grant ID` allows it")
        }
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
        ConditionKind::Stalled => Some(
            "`troupe watch ID --with-output` shows what the thread does; `troupe send ID --interrupt -m TEXT` interrupts its turn",
        ),
        ConditionKind::Unreachable => {
            Some("the runner is disconnected; the restart policy applies when its lease ends")
        }
        ConditionKind::NoRunner => {
            Some("no attached runner fits; `troupe run` attaches one, with the labels that the session asks for")
        }
        ConditionKind::AwaitingToolApproval => {
            Some("`troupe approvals` shows the waiting call; `troupe approvals grant ID` allows it")
        }
        ConditionKind::BudgetExhausted => {
            Some("`troupe budget ID --tokens NUMBER` raises the budget; then `troupe send ID -m TEXT`")
        }
        ConditionKind::PolicyGap => {
            Some("its program cannot apply its whole policy and role; `troupe watch` shows the missing part")
        }
        ConditionKind::ContextLost => {
            Some("its program lost the earlier conversation; repeat the important facts with `troupe send ID -m TEXT`")
        }
        ConditionKind::AwaitingInput => Some("its agent asked a question; `troupe send ID -m TEXT` answers it"),
        ConditionKind::Unspecified | ConditionKind::Closing => None,
    }
}

/// Returns the hint for an error code of another source than Troupe's services.
pub(crate) const fn for_code(code: Code) -> Option<&'static str> {
    match code {
        Code::Unavailable => Some("are the services running? `troupe up` starts them; `troupe doctor` checks them"),
        Code::Unimplemented => {
            Some("the address answers gRPC, but not this service; check --supervisor and --registry")
        }
        _ => None,
    }
}
