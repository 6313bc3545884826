//! The prompts that threads were sent.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, unbuilt};

impl SupervisorService {
    pub(super) async fn prompts(&self, _: Request<pb::ListPromptsRequest>) -> Result<pb::ListPromptsResponse, Status> {
        Err(unbuilt::method("ListPrompts"))
    }

    pub(super) async fn prompt(&self, _: Request<pb::GetPromptRequest>) -> Result<pb::GetPromptResponse, Status> {
        Err(unbuilt::method("GetPrompt"))
    }
}
