//! Handlers that change a thread's budget.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, parse};
use crate::domain::command::Command;

impl SupervisorService {
    pub(super) async fn update_budget(
        &self,
        request: Request<pb::UpdateThreadBudgetRequest>,
    ) -> Result<pb::UpdateThreadBudgetResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let (handle, target) = self
            .target(&call, &request.session_id, &request.thread_id, "UpdateThreadBudget")
            .await?;
        let remember = call.remember("UpdateThreadBudget", &request_id, &request)?;
        if request.budget.is_none() {
            return Err(check::bad(
                "budget",
                "budget is required; an empty one is without bound",
            ));
        }
        let command = Command::UpdateBudget {
            caller: call.caller.clone(),
            target,
            budget: check::budget(request.budget)?,
        };
        let done = handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        Ok(pb::UpdateThreadBudgetResponse {
            thread: Some(self.show(&done.session, target)?),
        })
    }
}
