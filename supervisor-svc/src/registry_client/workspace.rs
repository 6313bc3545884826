//! The workspace bundle of a session. It is stored as content with the session's log from the start, so that it can be
//! uploaded again to a registry that no longer holds it.

use std::{fmt, sync::Arc};

use prost::Message as _;
use supervisor_log::store::EventStore;
use troupe_proto::registry::v1::PutWorkspaceRequest;

use crate::{
    domain::{
        ids::{Digest, SessionId},
        state::session::Session,
    },
    engine::Failure,
};

/// The stored bundle of a session, and the digest that identifies it in registries.
#[derive(Clone)]
pub struct StoredWorkspace {
    store: Arc<dyn EventStore>,
    session: SessionId,
    content: Digest,
    workspace_digest: String,
}

impl StoredWorkspace {
    /// Returns the bundle of a session, if it has one.
    #[must_use]
    pub fn of(session: &Session, store: &Arc<dyn EventStore>) -> Option<Self> {
        let stored = session.settings.workspace.as_ref()?;
        Some(Self {
            store: Arc::clone(store),
            session: session.id,
            content: stored.digest,
            workspace_digest: session.settings.workspace_digest.clone(),
        })
    }

    /// Returns the digest that identifies the bundle in registries.
    #[must_use]
    pub fn workspace_digest(&self) -> &str {
        &self.workspace_digest
    }

    /// Returns the request that uploads the bundle.
    ///
    /// # Errors
    /// The store's read error; [`Failure::Corrupt`] if the content is missing or cannot be decoded.
    pub async fn read(&self) -> Result<PutWorkspaceRequest, Failure> {
        let bytes = self.store.content(self.session, self.content).await?;
        let bytes = bytes.ok_or_else(|| {
            Failure::Corrupt(format!(
                "the workspace of session {} is not among its contents",
                self.session
            ))
        })?;
        PutWorkspaceRequest::decode(bytes)
            .map_err(|error| Failure::Corrupt(format!("the workspace of session {}: {error}", self.session)))
    }
}

impl fmt::Debug for StoredWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredWorkspace")
            .field("session", &self.session)
            .field("workspace_digest", &self.workspace_digest)
            .finish_non_exhaustive()
    }
}
