//! Handlers that list and decide pending approvals.

use std::sync::Arc;

use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::{call::Call, page::Page, parse};
use crate::{
    convert::{approval::approval_to_pb, status::refused},
    domain::{command::Command, ids::ApprovalId, rejection::Rejection, state::approval::Approval},
};

pub(super) async fn list_approvals(
    call: Call<'_>,
    mut request: pb::ListApprovalsRequest,
) -> Result<pb::ListApprovalsResponse, Status> {
    let page = Page::of(&mut request, &call.scope)?;
    let (handle, top) = call.authorized_thread(&request.session_id, "").await?;
    let state = handle.state();
    let mut found: Vec<&Arc<Approval>> = state
        .approvals
        .values()
        .filter(|approval| request.include_resolved || approval.verdict.is_none())
        .filter(|approval| state.is_within(approval.thread, top))
        .collect();
    found.sort_by_key(|approval| approval.sequence);
    let entries = found.into_iter().map(|approval| (approval.sequence, approval));
    let (approvals, next_page_token) = page.cut(
        entries,
        |approval| call.redaction.approval(approval_to_pb(&state, approval)),
        None,
    );
    Ok(pb::ListApprovalsResponse {
        approvals,
        next_page_token,
    })
}

pub(super) async fn resolve_approval(
    call: Call<'_>,
    request: pb::ResolveApprovalRequest,
) -> Result<pb::ResolveApprovalResponse, Status> {
    let handle = call.session_for(&request.session_id, None).await?;
    let approval: ApprovalId = parse::id("approval_id", &request.approval_id)?;
    parse::text("reason", &request.reason, parse::REASON_BYTES)?;
    let command = Command::ResolveApproval {
        approval,
        grant: request.grant,
        by: call.caller.actor(),
        reason: request.reason,
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    let decided = done
        .session
        .approvals
        .get(&approval)
        .ok_or_else(|| Rejection::Missing {
            what: "approval",
            id: approval.to_string(),
        })
        .map_err(refused)?;
    Ok(pb::ResolveApprovalResponse {
        approval: Some(approval_to_pb(&done.session, decided)),
    })
}
