//! What waits for an operator.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn approvals(
        &self,
        _: Request<pb::ListApprovalsRequest>,
    ) -> Result<pb::ListApprovalsResponse, Status> {
        Err(unbuilt::method("ListApprovals"))
    }

    pub(super) async fn decide(
        &self,
        _: Request<pb::ResolveApprovalRequest>,
    ) -> Result<pb::ResolveApprovalResponse, Status> {
        Err(unbuilt::method("ResolveApproval"))
    }
}
