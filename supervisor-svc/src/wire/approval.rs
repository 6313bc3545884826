//! Approvals as their clients see them.

use troupe_proto::supervisor::v1 as pb;

use super::{enums::WireEnum as _, parts::time_to_pb};
use crate::domain::{approval::Approval, ids::SessionId};

/// An approval of that session. One that waits has no decision.
#[must_use]
pub fn approval_to_pb(session: SessionId, approval: &Approval) -> pb::Approval {
    let waiting = pb::Approval {
        approval_id: approval.id.to_string(),
        session_id: session.to_string(),
        thread_id: approval.thread.to_string(),
        kind: approval.kind.number(),
        subject: approval.subject.clone(),
        create_time: Some(time_to_pb(approval.requested)),
        deadline: Some(time_to_pb(approval.deadline)),
        ..pb::Approval::default()
    };
    match &approval.verdict {
        None => waiting,
        Some(verdict) => pb::Approval {
            decision: verdict.decision.number(),
            decided_by: verdict.by.to_string(),
            reason: verdict.reason.clone(),
            ..waiting
        },
    }
}
