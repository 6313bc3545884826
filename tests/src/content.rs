//! Reading content through the API.

use tonic::Status;
use troupe_proto::supervisor::v1::GetContentRequest;

use crate::{client::Supervisor, within};

/// Maximum size of a part, in bytes.
const PART_BYTES: usize = 256 * 1024;

/// Reads a content and joins its parts.
///
/// # Errors
///
/// The error of the call or of the stream.
///
/// # Panics
///
/// If a part is too large, or the first part does not contain the total size.
pub async fn read(client: &Supervisor, session: &str, digest: &str) -> Result<Vec<u8>, Status> {
    let request = GetContentRequest {
        session_id: session.to_owned(),
        digest: digest.to_owned(),
    };
    let answer = within("a content", client.clone().get_content(request)).await?;
    let mut parts = answer.into_inner();
    let mut sizes = Vec::new();
    let mut bytes = Vec::new();
    while let Some(part) = within("a part of a content", parts.message()).await? {
        assert!(part.data.len() <= PART_BYTES, "a part of {} bytes", part.data.len());
        sizes.push(part.total_size);
        bytes.extend_from_slice(&part.data);
    }
    let rest = vec![0; sizes.len().saturating_sub(1)];
    assert_eq!(sizes, [vec![bytes.len() as u64], rest].concat());
    Ok(bytes)
}
