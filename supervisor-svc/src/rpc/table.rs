//! The supervisor's authorization table: which principals may call which methods. A method without a row is rejected.
//! After this check, [`domain::authority`](crate::domain::rules::authority) decides which threads a thread may act on.

use svc_kit::auth::{
    Caller::{self, Admin, Runner, Thread, Viewer},
    Effect, Row,
};

/// Operators only.
const OPERATORS: &[Caller] = &[Admin];
/// Reads of whole sessions.
const OBSERVERS: &[Caller] = &[Admin, Viewer];
/// Operations that a thread's tool policy may permit.
const VERBS: &[Caller] = &[Admin, Thread];
/// Reads of a subtree.
const READS: &[Caller] = &[Admin, Viewer, Thread];

macro_rules! rows {
    ($($service:literal { $($method:literal => $effect:ident $who:expr,)+ })+) => {
        /// The table.
        pub const AUTHORITY: &[Row] = &[$($(Row {
            method: concat!("/troupe.supervisor.v1.", $service, "/", $method),
            who: $who,
            effect: Effect::$effect,
        },)+)+];
    };
}

rows! {
    "AgentSupervisorService" {
        "CreateSession" => Changes OPERATORS,
        "GetSession" => Reads READS,
        "ListRunners" => Reads OBSERVERS,
        "ListMembers" => Reads OBSERVERS,
        "DrainMember" => Changes OPERATORS,
        "MoveSession" => Changes OPERATORS,
        "ListSessions" => Reads OBSERVERS,
        "WatchSessions" => Reads OBSERVERS,
        "UpdateSession" => Changes OPERATORS,
        "CloseSession" => Changes OPERATORS,
        "DeleteSession" => Changes OPERATORS,
        "SpawnAgent" => Changes VERBS,
        "SendInput" => Changes VERBS,
        "InterruptAgent" => Changes VERBS,
        "WaitAgents" => Waits VERBS,
        "CloseAgent" => Changes VERBS,
        "ResumeAgent" => Changes VERBS,
        "ReportResult" => Changes VERBS,
        "AskParent" => Changes VERBS,
        "CreateGroup" => Changes VERBS,
        "GetGroup" => Waits READS,
        "ListGroupItems" => Reads READS,
        "UpdateGroup" => Changes VERBS,
        "RetryGroup" => Changes VERBS,
        "CancelGroup" => Changes VERBS,
        "SetThreadNote" => Changes VERBS,
        "UpdateThreadBudget" => Changes VERBS,
        "GetThread" => Reads READS,
        "ListActiveAgents" => Reads READS,
        // An allowed call has its own audit line. A denied call is recorded in the session's log.
        "AuthorizeTool" => Waits VERBS,
        "DescribeTools" => Reads READS,
        "ListSpawnableAgents" => Reads READS,
        "CreateEdge" => Changes VERBS,
        "DeleteEdge" => Changes VERBS,
        "ListEdges" => Reads READS,
        "SendHandoff" => Changes VERBS,
        "ListMailbox" => Reads VERBS,
        "AcknowledgeMailbox" => Changes VERBS,
        "ListApprovals" => Reads READS,
        "ResolveApproval" => Changes OPERATORS,
        "WatchThreads" => Reads READS,
        "WatchNotifications" => Reads OBSERVERS,
        "SetActiveThread" => Reads OBSERVERS,
        "ListPrompts" => Reads READS,
        "GetPrompt" => Reads READS,
        "ListTranscript" => Reads READS,
        "WatchTranscript" => Reads READS,
        "AppendTranscript" => Changes VERBS,
        "ExportSession" => Reads OBSERVERS,
        "ListArtifacts" => Reads READS,
        "GetContent" => Reads READS,
        "GetQuota" => Reads READS,
    }
    "ThreadRunnerService" {
        "Attach" => Changes &[Admin, Runner],
    }
}

#[cfg(test)]
mod tests {
    use crate::rpc::table::AUTHORITY;

    #[test]
    fn every_method_has_a_row() {
        let missing = svc_kit::auth::rows_missing(
            troupe_proto::FILE_DESCRIPTOR_SET,
            &[
                "troupe.supervisor.v1.AgentSupervisorService",
                "troupe.supervisor.v1.ThreadRunnerService",
            ],
            AUTHORITY,
        );
        assert_eq!(missing, Vec::<String>::new());
    }
}
