//! The short names of enum values. Output for people and scripts shows `STATUS_KIND_RUNNING` as `RUNNING`.

use troupe_proto::{common::v1 as common, registry::v1 as registry, supervisor::v1 as supervisor};

/// The name of `UNSPECIFIED` values, which `--output json` shows as null.
pub(crate) const UNSPECIFIED: &str = "UNSPECIFIED";

macro_rules! short_names {
    ($($(#[doc = $doc:literal])+ $function:ident($enumeration:ty) = $prefix:literal;)+) => {
        $(
            $(#[doc = $doc])+
            #[must_use]
            pub(crate) fn $function(value: $enumeration) -> &'static str {
                let name = value.as_str_name();
                name.strip_prefix($prefix).unwrap_or(name)
            }
        )+
    };
}

short_names! {
    /// A sandbox.
    sandbox(common::Sandbox) = "SANDBOX_";
    /// A mode.
    mode(common::Mode) = "MODE_";
    /// Edge management.
    edge_management(common::EdgeManagement) = "EDGE_MANAGEMENT_";
    /// A template's dialect.
    dialect(common::Dialect) = "DIALECT_";
    /// A template's scope.
    scope(common::Scope) = "SCOPE_";
    /// How instructions relate to inherited ones.
    instructions_mode(common::InstructionsMode) = "INSTRUCTIONS_MODE_";
    /// The origin of a value.
    value_origin(common::ValueOrigin) = "VALUE_ORIGIN_";
    /// How patterns match.
    match_mode(common::MatchMode) = "MATCH_MODE_";
    /// A kind of prompt block.
    block_kind(common::BlockKind) = "BLOCK_KIND_";
    /// How serious a finding is.
    severity(registry::Severity) = "SEVERITY_";
    /// A status.
    status_kind(supervisor::StatusKind) = "STATUS_KIND_";
    /// A condition.
    condition_kind(supervisor::ConditionKind) = "CONDITION_KIND_";
    /// How a thread is stopped.
    close_policy(supervisor::ClosePolicy) = "CLOSE_POLICY_";
    /// When mail wakes a thread.
    wake_policy(supervisor::WakePolicy) = "WAKE_POLICY_";
    /// The handling of threads of a lost runner.
    restart_policy(supervisor::RestartPolicy) = "RESTART_POLICY_";
    /// Whether and how the supervisor keeps agents working.
    orchestration(supervisor::Orchestration) = "ORCHESTRATION_";
    /// How much of each prompt is stored.
    prompt_log(supervisor::PromptLog) = "PROMPT_LOG_";
    /// The upper bound of a child's permissions.
    policy_inheritance(supervisor::PolicyInheritance) = "POLICY_INHERITANCE_";
    /// The event that frees a slot.
    slot_release(supervisor::SlotRelease) = "SLOT_RELEASE_";
    /// The outcome of a turn.
    turn_outcome(supervisor::TurnOutcome) = "TURN_OUTCOME_";
    /// How much of a prompt was sent.
    prompt_extent(supervisor::PromptExtent) = "PROMPT_EXTENT_";
    /// The purpose of an edge.
    edge_kind(supervisor::EdgeKind) = "EDGE_KIND_";
    /// Whether an answer is expected.
    response_expectation(supervisor::ResponseExpectation) = "RESPONSE_EXPECTATION_";
    /// The subject of an approval.
    approval_kind(supervisor::ApprovalKind) = "APPROVAL_KIND_";
    /// The decision on an approval.
    approval_decision(supervisor::ApprovalDecision) = "APPROVAL_DECISION_";
    /// A notification category.
    notification_kind(supervisor::NotificationKind) = "NOTIFICATION_KIND_";
    /// The state of a plan step.
    plan_state(supervisor::plan_step::State) = "STATE_";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_gone() {
        assert_eq!(status_kind(supervisor::StatusKind::PendingInit), "PENDING_INIT");
        assert_eq!(status_kind(supervisor::StatusKind::Unspecified), UNSPECIFIED);
        assert_eq!(plan_state(supervisor::plan_step::State::InProgress), "IN_PROGRESS");
        assert_eq!(sandbox(common::Sandbox::ReadOnly), "READ_ONLY");
    }
}
