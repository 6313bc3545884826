//! Approvals and notifications.

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{Approval, Notification};

use super::{name, name_list, time};
use crate::names;

/// Converts an approval. `decision` is null while the approval is pending.
pub(crate) fn approval(approval: &Approval) -> Value {
    json!({
        "approval_id": approval.approval_id,
        "session_id": approval.session_id,
        "thread_id": approval.thread_id,
        "kind": name(names::approval_kind(approval.kind())),
        "subject": approval.subject,
        "create_time": time(approval.create_time.as_ref()),
        "deadline": time(approval.deadline.as_ref()),
        "decision": name(names::approval_decision(approval.decision())),
        "decided_by": approval.decided_by,
        "reason": approval.reason,
        "call_sha256": approval.call_sha256,
        "content_sha256": approval.content.as_ref().map(|content| &content.digest),
        "threads": approval.threads.iter().map(|thread| json!({
            "thread_id": thread.thread_id,
            "agent_type": thread.agent_type,
            "alias": thread.alias,
        })).collect::<Vec<_>>(),
    })
}

/// A notification.
pub(crate) fn notification(notification: &Notification) -> Value {
    json!({
        "sequence": notification.sequence,
        "session_id": notification.session_id,
        "thread_id": notification.thread_id,
        "kinds": name_list(notification.kinds(), names::notification_kind),
        "text": notification.text,
        "time": time(notification.time.as_ref()),
    })
}
