//! Reading and acknowledging mail.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn mailbox(&self, _: Request<pb::ListMailboxRequest>) -> Result<pb::ListMailboxResponse, Status> {
        Err(unbuilt::method("ListMailbox"))
    }

    pub(super) async fn acknowledge(
        &self,
        _: Request<pb::AcknowledgeMailboxRequest>,
    ) -> Result<pb::AcknowledgeMailboxResponse, Status> {
        Err(unbuilt::method("AcknowledgeMailbox"))
    }
}
