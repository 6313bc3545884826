//! PutWorkspace and GetWorkspace.

use std::time::Instant;

use prost::bytes::Bytes;
use troupe_proto::registry::v1::{
    GetWorkspaceRequest, GetWorkspaceResponse, PutWorkspaceRequest, PutWorkspaceResponse, WorkspaceFile,
};

use crate::{
    Parts,
    domain::error::RegistryError,
    grpc::{bounds, convert},
    source::bundle::Upload,
};

/// Stores a bundle. Request ids are unique for each `caller`.
pub(super) fn put(
    parts: &Parts,
    caller: String,
    request: PutWorkspaceRequest,
) -> Result<PutWorkspaceResponse, RegistryError> {
    let request_id = bounds::text("request_id", request.request_id, bounds::NAME_BYTES)?;
    let files = request.files.into_iter().map(upload).collect::<Result<Vec<_>, _>>()?;
    let call = (!request_id.is_empty()).then_some((caller, request_id.as_str()));
    let digest = parts.bundles.put(files, call, &parts.sources, Instant::now())?;
    Ok(PutWorkspaceResponse {
        workspace_digest: digest.to_string(),
    })
}

pub(super) fn get(parts: &Parts, request: GetWorkspaceRequest) -> Result<GetWorkspaceResponse, RegistryError> {
    let digest = bounds::text("workspace_digest", request.workspace_digest, bounds::NAME_BYTES)?;
    let files = parts.bundles.files(&digest, Instant::now())?;
    Ok(GetWorkspaceResponse {
        files: files.iter().cloned().map(WorkspaceFile::from).collect(),
    })
}

fn upload(file: WorkspaceFile) -> Result<Upload, RegistryError> {
    Ok(Upload {
        scope: bounds::scope(file.scope)?,
        path: file.path,
        // The received bytes share the buffer of the whole message, which they would keep in memory.
        content: Bytes::copy_from_slice(&file.content),
    })
}

impl From<Upload> for WorkspaceFile {
    fn from(file: Upload) -> Self {
        Self {
            scope: convert::scope(file.scope).into(),
            path: file.path,
            content: file.content,
        }
    }
}
