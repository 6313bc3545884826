//! Enum values on the command line: `on-lost` stands for `RESTART_POLICY_ON_LOST`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use troupe_proto::{common::v1 as common, supervisor::v1 as supervisor};

macro_rules! choices {
    ($($(#[doc = $doc:literal])+ $function:ident -> $enumeration:ty = $prefix:literal [$($value:literal),+];)+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) fn $function() -> impl TypedValueParser<Value = $enumeration> {
                PossibleValuesParser::new([$($value),+]).map(|text| {
                    let name = format!("{}{}", $prefix, text.to_ascii_uppercase().replace('-', "_"));
                    <$enumeration>::from_str_name(&name).unwrap_or_default()
                })
            }
        )+

        #[cfg(test)]
        #[test]
        fn values_match_api_enums() {
            $(
                let values = <$enumeration>::default().as_str_name().strip_suffix("UNSPECIFIED");
                assert_eq!(values, Some($prefix));
                let known = (1_i32..).map_while(|number| <$enumeration>::try_from(number).ok()).count();
                assert_eq!([$($value),+].len(), known, stringify!($function));
                for value in [$($value),+] {
                    let name = format!("{}{}", $prefix, value.to_ascii_uppercase().replace('-', "_"));
                    assert!(<$enumeration>::from_str_name(&name).is_some(), "{name}");
                }
            )+
        }
    };
}

choices! {
    /// Parses a session's mode.
    mode -> common::Mode = "MODE_" ["planning", "implementation"];
    /// Parses how orchestrators receive further turns.
    orchestration -> supervisor::Orchestration = "ORCHESTRATION_" ["interactive", "auto"];
    /// Parses a sandbox.
    sandbox -> common::Sandbox = "SANDBOX_" ["read-only", "workspace-write", "full-access"];
    /// Parses the edges that threads of graph templates may manage.
    edge_management -> common::EdgeManagement = "EDGE_MANAGEMENT_" ["none", "self", "all"];
    /// Parses the upper bound of a child's permissions.
    policy_inheritance -> supervisor::PolicyInheritance = "POLICY_INHERITANCE_" ["attenuate", "ceiling"];
    /// Parses the event that frees a slot.
    slot_release -> supervisor::SlotRelease = "SLOT_RELEASE_" ["settle", "close"];
    /// Parses how much of each prompt is stored.
    prompt_log -> supervisor::PromptLog = "PROMPT_LOG_" ["full", "hashes", "off"];
    /// Parses the action for an approval without a decision in time.
    approval_timeout_action -> supervisor::ApprovalTimeoutAction = "APPROVAL_TIMEOUT_ACTION_" ["deny", "keep"];
    /// Parses how much of the transcripts is stored.
    transcript_log -> supervisor::TranscriptLog = "TRANSCRIPT_LOG_" ["full", "tools", "off"];
    /// Parses a kind of transcript entries.
    transcript_kind -> supervisor::TranscriptKind = "TRANSCRIPT_KIND_"
        ["input", "message", "reasoning", "tool-call", "tool-result", "plan", "file-change", "error", "notice"];
    /// Parses the treatment of threads of a lost runner.
    restart_policy -> supervisor::RestartPolicy = "RESTART_POLICY_" ["never", "on-lost"];
    /// Parses how a thread is stopped.
    close_policy -> supervisor::ClosePolicy = "CLOSE_POLICY_" ["terminate", "finish-turn", "kill"];
    /// Parses when mail wakes a thread.
    wake_policy -> supervisor::WakePolicy = "WAKE_POLICY_" ["none", "on-idle", "always"];
    /// Parses a notification category.
    notification_kind -> supervisor::NotificationKind = "NOTIFICATION_KIND_"
        ["agent-turn-complete", "sub-agent-complete", "approval-requested", "stalled", "budget-exhausted", "runner-lost",
        "input-requested"];
    /// Parses what happens when too many items of a batch fail.
    group_failure_policy -> supervisor::GroupFailurePolicy = "GROUP_FAILURE_POLICY_" ["continue", "cancel-rest"];
    /// Parses the state of an item.
    group_item_state -> supervisor::GroupItemState = "GROUP_ITEM_STATE_"
        ["pending", "running", "succeeded", "failed", "cancelled"];
    /// Parses whether the sender of a handoff expects a response.
    response_expectation -> supervisor::ResponseExpectation = "RESPONSE_EXPECTATION_" ["none", "optional", "required"];
}
