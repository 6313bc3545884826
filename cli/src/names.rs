//! The short names of enum values. Output for people shows `STATUS_KIND_RUNNING` as `RUNNING`.

use troupe_proto::{common::v1 as common, supervisor::v1 as supervisor};

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
    /// A kind of prompt block.
    block_kind(common::BlockKind) = "BLOCK_KIND_";
    /// A status.
    status_kind(supervisor::StatusKind) = "STATUS_KIND_";
    /// The state of a group.
    group_state(supervisor::GroupState) = "GROUP_STATE_";
    /// The outcome of an attempt at an item of a group.
    group_item_outcome(supervisor::GroupItemOutcome) = "GROUP_ITEM_OUTCOME_";
    /// The state of an item of a group.
    group_item_state(supervisor::GroupItemState) = "GROUP_ITEM_STATE_";
    /// The state of a runner.
    runner_state(supervisor::RunnerState) = "RUNNER_STATE_";
    /// A supervisor's state.
    member_state(supervisor::MemberState) = "MEMBER_STATE_";
    /// A condition.
    condition_kind(supervisor::ConditionKind) = "CONDITION_KIND_";
    /// Whether and how the supervisor keeps agents working.
    orchestration(supervisor::Orchestration) = "ORCHESTRATION_";
    /// The purpose of an edge.
    edge_kind(supervisor::EdgeKind) = "EDGE_KIND_";
    /// The subject of an approval.
    approval_kind(supervisor::ApprovalKind) = "APPROVAL_KIND_";
    /// The decision on an approval.
    approval_decision(supervisor::ApprovalDecision) = "APPROVAL_DECISION_";
    /// A notification category.
    notification_kind(supervisor::NotificationKind) = "NOTIFICATION_KIND_";
}
