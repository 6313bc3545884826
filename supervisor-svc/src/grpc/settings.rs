//! Changing what binds a session.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn update(
        &self,
        _: Request<pb::UpdateSessionRequest>,
    ) -> Result<pb::UpdateSessionResponse, Status> {
        Err(unbuilt::method("UpdateSession"))
    }
}
