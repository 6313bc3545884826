//! What threads made, and content by its digest.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn artifacts(
        &self,
        _: Request<pb::ListArtifactsRequest>,
    ) -> Result<pb::ListArtifactsResponse, Status> {
        Err(unbuilt::method("ListArtifacts"))
    }

    pub(super) async fn content(
        &self,
        _: Request<pb::GetContentRequest>,
    ) -> Result<ReceiverStream<Result<pb::GetContentResponse, Status>>, Status> {
        Err(unbuilt::method("GetContent"))
    }
}
