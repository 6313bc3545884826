//! Who may call what: the one table of the supervisor. A method without a row is refused; what a thread may do to whom is
//! decided after this, by [`domain::authority`](crate::domain::authority).

use svc_kit::auth::{
    Caller::{self, Admin, Runner, Thread, Viewer},
    Row,
};

/// Operators only.
const OPERATORS: &[Caller] = &[Admin];
/// Reads of whole sessions.
const OBSERVERS: &[Caller] = &[Admin, Viewer];
/// Verbs, each under the thread's tool policy.
const VERBS: &[Caller] = &[Admin, Thread];
/// Reads of a subtree.
const READS: &[Caller] = &[Admin, Viewer, Thread];

macro_rules! rows {
    ($($service:literal { $($method:literal => $who:expr,)+ })+) => {
        /// The table.
        pub const AUTHORITY: &[Row] = &[$($(Row {
            method: concat!("/troupe.supervisor.v1.", $service, "/", $method),
            who: $who,
        },)+)+];
    };
}

rows! {
    "AgentSupervisorService" {
        "CreateSession" => OPERATORS,
        "GetSession" => READS,
        "ListSessions" => OBSERVERS,
        "WatchSessions" => OBSERVERS,
        "UpdateSession" => OPERATORS,
        "CloseSession" => OPERATORS,
        "DeleteSession" => OPERATORS,
        "SpawnAgent" => VERBS,
        "SendInput" => VERBS,
        "InterruptAgent" => VERBS,
        "WaitAgents" => VERBS,
        "CloseAgent" => VERBS,
        "ResumeAgent" => VERBS,
        "SetThreadNote" => VERBS,
        "UpdateThreadBudget" => VERBS,
        "GetThread" => READS,
        "ListActiveAgents" => READS,
        "AuthorizeTool" => VERBS,
        "DescribeTools" => READS,
        "ListSpawnableAgents" => READS,
        "CreateEdge" => VERBS,
        "DeleteEdge" => VERBS,
        "ListEdges" => READS,
        "SendHandoff" => VERBS,
        "ListMailbox" => VERBS,
        "AcknowledgeMailbox" => VERBS,
        "ListApprovals" => READS,
        "ResolveApproval" => OPERATORS,
        "WatchThreads" => READS,
        "WatchNotifications" => OBSERVERS,
        "SetActiveThread" => OBSERVERS,
        "ListPrompts" => READS,
        "GetPrompt" => READS,
        "ListArtifacts" => READS,
        "GetContent" => READS,
        "GetQuota" => READS,
    }
    "ThreadRunnerService" {
        "Attach" => &[Admin, Runner],
    }
}

#[cfg(test)]
mod tests {
    use super::AUTHORITY;

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
