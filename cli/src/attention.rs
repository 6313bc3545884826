//! Threads that wait for a person.

use troupe_proto::supervisor::v1::{ConditionKind, StatusKind, Thread};

use crate::{names, ui};

/// Returns why a thread waits for a person: the name of a condition and its reason, or the name of a status and its
/// message. Returns `None` if the thread does not wait for a person.
pub(crate) fn reason(thread: &Thread) -> Option<(&'static str, &str)> {
    let condition = thread
        .conditions
        .iter()
        .find(|condition| needs_person(condition.kind()))
        .map(|condition| (names::condition_kind(condition.kind()), condition.reason.as_str()));
    let kind = ui::status_of(thread);
    let message = thread.status.as_ref().map(|status| status.message.as_str());
    let status = matches!(kind, StatusKind::AwaitingApproval | StatusKind::Errored)
        .then(|| (names::status_kind(kind), message.unwrap_or_default()));
    condition.or(status)
}

/// Returns whether a condition lasts until a person acts.
const fn needs_person(kind: ConditionKind) -> bool {
    match kind {
        ConditionKind::Stalled
        | ConditionKind::Unreachable
        | ConditionKind::NoRunner
        | ConditionKind::AwaitingToolApproval
        | ConditionKind::BudgetExhausted
        | ConditionKind::AwaitingInput => true,
        ConditionKind::Unspecified | ConditionKind::Closing | ConditionKind::PolicyGap | ConditionKind::ContextLost => {
            false
        }
    }
}
