//! Deleting sessions, and the memory of it: a retry of DeleteSession is told the same for 24 hours, although nothing of the
//! session is left. The memory lies in cursors that belong to no session, in a fixed number of slots with the latest few
//! each, so that it never grows.

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use troupe_proto::store::v1 as pb;

use super::{directory::Directory, failure::Failure, message::Remember};
use crate::{
    domain::{
        ids::SessionId,
        refusal::Refusal,
        time::{REQUESTS_REMEMBERED, UnixMillis},
    },
    store::{AppendError, CursorKey, EventStore},
    wire::parts::{time_from_pb, time_to_pb},
};

/// How many deletions a slot holds; beyond that the oldest is forgotten early. A slot with as many is below 4 KiB.
const PER_SLOT: usize = 40;

/// The memory, in the store. There is one for each store, so that no two change a slot at once.
#[derive(Debug, Default)]
pub struct Deletions {
    // A slot is read, changed and written under it.
    changing: Mutex<()>,
}

impl Directory {
    /// Deletes a closed session with everything that is its own. A retry of what succeeded succeeds.
    ///
    /// # Errors
    /// [`Failure::SessionNotFound`]; a refusal if the session is open, or if the request id was used for another request;
    /// else what the store met.
    pub async fn delete(&self, id: SessionId, remember: Option<&Remember>) -> Result<(), Failure> {
        let store = self.context().store.as_ref();
        let now = self.context().clock.now();
        let was_asked_before = match remember {
            Some(remember) => recall(store, remember, now).await?,
            None => false,
        };
        let session = match self.session(id).await {
            Err(Failure::SessionNotFound(_)) if was_asked_before => return Ok(()),
            found => found?,
        };
        if !session.state().closed {
            return Err(still_open(id).into());
        }
        if let Some(remember) = remember {
            self.context().deletions.remember(store, remember, now).await?;
        }
        session.delete().await
    }
}

/// The refusal to delete a session that is not closed.
pub(super) fn still_open(id: SessionId) -> Refusal {
    Refusal::IllegalState(format!(
        "session with id {id} is open; close it with CloseSession before it is deleted"
    ))
}

/// Whether the same request was made before and is remembered.
async fn recall(store: &dyn EventStore, remember: &Remember, now: UnixMillis) -> Result<bool, Failure> {
    let key = key_of(remember);
    let slot = read(store, &slot_of(key)).await?;
    match slot.deletions.iter().rev().find(|deletion| deletion.key[..] == key) {
        Some(deletion) if has_expired(deletion, now) => Ok(false),
        Some(deletion) if deletion.hash[..] == remember.hash => Ok(true),
        Some(_) => Err(Refusal::RequestIdReused(remember.key.request_id.clone()).into()),
        None => Ok(false),
    }
}

impl Deletions {
    /// Remembers a request that is about to be carried out. It counts only once its session is gone.
    async fn remember(&self, store: &dyn EventStore, remember: &Remember, now: UnixMillis) -> Result<(), Failure> {
        let key = key_of(remember);
        let name = slot_of(key);
        let _changing = self.changing.lock().await;
        let mut slot = read(store, &name).await?;
        slot.deletions
            .retain(|deletion| deletion.key[..] != key && !has_expired(deletion, now));
        let too_many = (slot.deletions.len() + 1).saturating_sub(PER_SLOT);
        slot.deletions.drain(..too_many);
        slot.deletions.push(pb::Deletion {
            key: Bytes::copy_from_slice(&key),
            hash: Bytes::copy_from_slice(&remember.hash),
            expire_time: Some(time_to_pb(now.plus(REQUESTS_REMEMBERED))),
        });
        store
            .put_cursor(name, Some(slot.encode_to_vec().into()))
            .await
            .map_err(|error| AppendError::from(error).into())
    }
}

async fn read(store: &dyn EventStore, name: &CursorKey) -> Result<pb::Deletions, Failure> {
    let value = store.cursor(name.clone()).await?.unwrap_or_default();
    // A slot that cannot be read remembers nothing, and the next deletion writes it anew.
    Ok(pb::Deletions::decode(value).unwrap_or_default())
}

fn has_expired(deletion: &pb::Deletion, now: UnixMillis) -> bool {
    deletion
        .expire_time
        .and_then(time_from_pb)
        .is_none_or(|expires| expires <= now)
}

fn key_of(remember: &Remember) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [&remember.key.scope, &remember.key.request_id] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// One of 256 slots.
fn slot_of([first, ..]: [u8; 32]) -> CursorKey {
    CursorKey {
        session: None,
        name: format!("deletions:{first:02x}"),
    }
}
