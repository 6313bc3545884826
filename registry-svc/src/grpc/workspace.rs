//! PutWorkspace.

use std::time::Instant;

use troupe_proto::registry::v1::{PutWorkspaceRequest, PutWorkspaceResponse, WorkspaceFile};

use crate::{Parts, domain::error::RegistryError, grpc::bounds, source::bundle::Upload};

/// `caller` scopes request ids.
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

fn upload(file: WorkspaceFile) -> Result<Upload, RegistryError> {
    Ok(Upload {
        scope: bounds::scope(file.scope)?,
        path: file.path,
        content: file.content.into(),
    })
}
