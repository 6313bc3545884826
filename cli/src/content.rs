//! Content that lies beside the events: messages too long for a status.

use troupe_proto::supervisor::v1::{GetContentRequest, Status};

use crate::{client::Supervisor, error::Result};

/// The whole message of a status.
pub(crate) async fn whole_message(supervisor: &mut Supervisor, session: &str, status: &Status) -> Result<String> {
    let Some(content) = &status.content else {
        return Ok(status.message.clone());
    };
    let request = GetContentRequest {
        session_id: session.to_owned(),
        digest: content.digest.clone(),
    };
    let mut parts = supervisor.get_content(request).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = parts.message().await? {
        bytes.extend_from_slice(&part.data);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
