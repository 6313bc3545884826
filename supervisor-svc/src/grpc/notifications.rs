//! What a person should look at.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn notify(
        &self,
        _: Request<pb::WatchNotificationsRequest>,
    ) -> Result<ReceiverStream<Result<pb::WatchNotificationsResponse, Status>>, Status> {
        Err(unbuilt::method("WatchNotifications"))
    }

    pub(super) async fn focus(
        &self,
        _: Request<pb::SetActiveThreadRequest>,
    ) -> Result<pb::SetActiveThreadResponse, Status> {
        Err(unbuilt::method("SetActiveThread"))
    }
}
