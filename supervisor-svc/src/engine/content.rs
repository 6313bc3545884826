//! Reading of stored contents that a session refers to.

use bytes::Bytes;
use supervisor_log::store::EventStore;

use super::error::Failure;
use crate::domain::{
    content::ContentRef,
    ids::{Digest, SessionId},
};

/// Reads a content that a session refers to, and which must therefore exist.
///
/// # Errors
/// The store's read error; [`Failure::Corrupt`] if the content is missing.
pub async fn read_content(store: &dyn EventStore, session: SessionId, digest: Digest) -> Result<Bytes, Failure> {
    let bytes = store.content(session, digest).await?;
    bytes.ok_or_else(|| Failure::Corrupt(format!("content {digest} is missing")))
}

/// Reads a content and decodes it as a message.
///
/// # Errors
/// The errors of [`read_content`]; [`Failure::Corrupt`] if the content does not decode.
pub async fn read_message<M: prost::Message + Default>(
    store: &dyn EventStore,
    session: SessionId,
    content: &ContentRef,
) -> Result<M, Failure> {
    let bytes = read_content(store, session, content.digest).await?;
    M::decode(bytes).map_err(|error| Failure::Corrupt(format!("content {}: {error}", content.digest)))
}
