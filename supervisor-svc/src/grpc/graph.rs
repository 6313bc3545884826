//! Edges and handoffs.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn connect(&self, _: Request<pb::CreateEdgeRequest>) -> Result<pb::CreateEdgeResponse, Status> {
        Err(unbuilt::method("CreateEdge"))
    }

    pub(super) async fn disconnect(&self, _: Request<pb::DeleteEdgeRequest>) -> Result<pb::DeleteEdgeResponse, Status> {
        Err(unbuilt::method("DeleteEdge"))
    }

    pub(super) async fn edges(&self, _: Request<pb::ListEdgesRequest>) -> Result<pb::ListEdgesResponse, Status> {
        Err(unbuilt::method("ListEdges"))
    }

    pub(super) async fn hand_off(&self, _: Request<pb::SendHandoffRequest>) -> Result<pb::SendHandoffResponse, Status> {
        Err(unbuilt::method("SendHandoff"))
    }
}
