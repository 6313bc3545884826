//! Removing sessions.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn delete(
        &self,
        _: Request<pb::DeleteSessionRequest>,
    ) -> Result<pb::DeleteSessionResponse, Status> {
        Err(unbuilt::method("DeleteSession"))
    }
}
