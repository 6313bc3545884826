//! Changing what binds a session.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, parse, webhooks};
use crate::{convert, domain::{command::{Command, SettingsUpdate}, event::SettingsChange}};

impl SupervisorService {
    pub(super) async fn update(
        &self,
        request: Request<pb::UpdateSessionRequest>,
    ) -> Result<pb::UpdateSessionResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let remember = call.remember("UpdateSession", &request_id, &request)?;
        let handle = self.own_or_named(&call, &request.session_id).await?;
        let command = Command::UpdateSession(Box::new(self.wanted_settings(request)?));
        let done = handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        Ok(pb::UpdateSessionResponse {
            session: Some(wire::thread::session(&done.session)),
        })
    }

    fn wanted_settings(&self, request: pb::UpdateSessionRequest) -> Result<SettingsUpdate, Status> {
        if !(request.replace_webhooks || request.webhooks.is_empty()) {
            return Err(check::bad(
                "webhooks",
                "webhooks are given without replace_webhooks; set it, since they replace the present ones",
            ));
        }
        if !(request.replace_orchestrators || request.orchestrators.is_empty()) {
            return Err(check::bad(
                "orchestrators",
                "orchestrators are given without replace_orchestrators; set it, since they replace the present ones",
            ));
        }
        check::orchestrators(&request.orchestrators)?;
        let webhooks = webhooks::checked(&request.webhooks, self.directory.context().webhooks.allow_private())?;
        Ok(SettingsUpdate {
            change: SettingsChange {
                mode: request.mode.map(|mode| check::choice("mode", mode)).transpose()?,
                limits: None,
                budget: request.budget.map(|budget| check::budget(Some(budget))).transpose()?,
                paused: request.paused,
                orchestration: request
                    .orchestration
                    .map(|orchestration| check::choice("orchestration", orchestration))
                    .transpose()?,
                edge_management: request
                    .edge_management
                    .map(|edges| check::choice("edge_management", edges))
                    .transpose()?,
                orchestrators: request.replace_orchestrators.then_some(request.orchestrators),
                webhooks: request.replace_webhooks.then_some(webhooks),
            },
            limits: self.limits(request.limits.unwrap_or_default())?,
        })
    }
}
