//! Approvals as clients see them.

use supervisor_log::codec::{
    enums::WireEnum as _,
    parts::{content_to_pb, text_or_empty, time_to_pb},
};
use troupe_proto::supervisor::v1 as pb;

use crate::domain::state::{approval::Approval, session::Session, thread::Thread};

/// Builds the message of an approval. A pending approval has no decision.
#[must_use]
pub fn approval_to_pb(session: &Session, approval: &Approval) -> pb::Approval {
    let call = approval.call.as_ref();
    let waiting = pb::Approval {
        approval_id: approval.id.to_string(),
        session_id: session.id.to_string(),
        thread_id: approval.thread.to_string(),
        kind: approval.kind.number(),
        subject: approval.subject.clone(),
        create_time: Some(time_to_pb(approval.requested)),
        deadline: approval.deadline.map(time_to_pb),
        call_sha256: text_or_empty(call.map(|call| call.digest)),
        content: call.map(|call| content_to_pb(&call.content)),
        threads: session.lineage(approval.thread).map(|thread| named(thread)).collect(),
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

fn named(thread: &Thread) -> pb::ApprovalThread {
    pb::ApprovalThread {
        thread_id: thread.id.to_string(),
        agent_type: thread.spawned.role.agent_type.clone(),
        alias: thread.spawned.alias.clone(),
    }
}
