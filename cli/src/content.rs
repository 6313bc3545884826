//! Content that lies beside the events: messages too long for a status.

use troupe_proto::{
    fault,
    reason::Reason,
    supervisor::v1::{GetContentRequest, Status},
};

use crate::{client::Supervisor, error::Result};

/// The whole message of a status; its beginning, where the session had no room for all of it.
pub(crate) async fn whole_message(supervisor: &mut Supervisor, session: &str, status: &Status) -> Result<String> {
    let Some(content) = &status.content else {
        return Ok(status.message.clone());
    };
    let request = GetContentRequest {
        session_id: session.to_owned(),
        digest: content.digest.clone(),
    };
    let mut parts = match supervisor.get_content(request).await {
        Ok(answer) => answer.into_inner(),
        // What was left out is found nowhere.
        Err(refused) if fault::reason_of(&refused) == Some(Reason::NotFound) => return Ok(status.message.clone()),
        Err(failed) => return Err(failed.into()),
    };
    let mut bytes = Vec::new();
    while let Some(part) = parts.message().await? {
        bytes.extend_from_slice(&part.data);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
