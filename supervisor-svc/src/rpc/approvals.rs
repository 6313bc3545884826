//! Handlers that list and decide pending approvals.

use std::sync::Arc;

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{call::Call, page::Page, parse, service::SupervisorService};
use crate::{
    convert::{approval::approval_to_pb, status::refused},
    domain::{
        command::Command,
        ids::ApprovalId,
        rejection::{GuardedVerb, Rejection},
        rules::authority,
        state::approval::Approval,
    },
};

pub(super) async fn list_approvals(
    service: &SupervisorService,
    request: Request<pb::ListApprovalsRequest>,
) -> Result<pb::ListApprovalsResponse, Status> {
    let call = Call::of(&request)?;
    let mut request = request.into_inner();
    let page = Page::of(&mut request, &call.scope)?;
    let handle = service
        .session_for(&call, &request.session_id, None, GuardedVerb::Act)
        .await?;
    let top = SupervisorService::thread_or_own(&call, &handle, None)?;
    let state = handle.state();
    authority::authorize(&state, &call.caller, "ListApprovals", top).map_err(refused)?;
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
    service: &SupervisorService,
    request: Request<pb::ResolveApprovalRequest>,
) -> Result<pb::ResolveApprovalResponse, Status> {
    let call = Call::of(&request)?;
    let mut request = request.into_inner();
    let request_id = std::mem::take(&mut request.request_id);
    let handle = service
        .session_for(&call, &request.session_id, None, GuardedVerb::Act)
        .await?;
    let remember = call.remember("ResolveApproval", &request_id, &request)?;
    let approval: ApprovalId = parse::id("approval_id", &request.approval_id)?;
    parse::text("reason", &request.reason, parse::REASON_BYTES)?;
    let command = Command::ResolveApproval {
        approval,
        grant: request.grant,
        by: call.caller.actor(),
        reason: request.reason,
    };
    let done = handle
        .execute(command, call.origin(&request_id), remember, Vec::new())
        .await?;
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
