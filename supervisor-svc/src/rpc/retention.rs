//! Removing sessions.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, parse};

impl SupervisorService {
    pub(super) async fn delete(
        &self,
        request: Request<pb::DeleteSessionRequest>,
    ) -> Result<pb::DeleteSessionResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let remember = call.remember("DeleteSession", &request_id, &request)?;
        let id = check::session_id(&request.session_id)?;
        self.directory.delete(id, remember.as_ref()).await?;
        Ok(pb::DeleteSessionResponse {})
    }
}
