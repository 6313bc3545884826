//! Following sessions and what their threads do.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn follow_sessions(
        &self,
        _: Request<pb::WatchSessionsRequest>,
    ) -> Result<ReceiverStream<Result<pb::WatchSessionsResponse, Status>>, Status> {
        Err(unbuilt::method("WatchSessions"))
    }
}
