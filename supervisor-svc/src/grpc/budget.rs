//! Changing what a thread may spend.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn update_budget(
        &self,
        _: Request<pb::UpdateThreadBudgetRequest>,
    ) -> Result<pb::UpdateThreadBudgetResponse, Status> {
        Err(unbuilt::method("UpdateThreadBudget"))
    }
}
