//! The record of deletions. A retry of DeleteSession succeeds for 24 hours, although the
//! session no longer exists. The record is stored in cursors outside any session: a fixed number of slots with a
//! bounded number of entries, so it never grows.

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use supervisor_log::{
    codec::parts::{time_from_pb, time_to_pb},
    store::{CursorKey, EventStore},
};
use tokio::sync::Mutex;
use troupe_proto::store::v1 as pb;

use super::{error::Failure, message::Remember};
use crate::domain::{
    ids::SessionId,
    rejection::Rejection,
    time::{REQUESTS_REMEMBERED, UnixMillis},
};

/// The maximum number of deletions per slot. Beyond it, the oldest is forgotten early. A full slot has less than 4 KiB.
const PER_SLOT: usize = 40;

/// The stored record of deletions. There is one instance per store, so that slots are not changed concurrently.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    // Held while a slot is read, changed and written.
    changing: Mutex<()>,
}

/// Returns the rejection to delete an open session.
pub(super) fn still_open(id: SessionId) -> Rejection {
    Rejection::IllegalState(format!(
        "session with id {id} is open; close it with CloseSession before it is deleted"
    ))
}

/// Returns whether the same request is in the record.
pub(super) async fn recall(store: &dyn EventStore, remember: &Remember, now: UnixMillis) -> Result<bool, Failure> {
    let key = key_of(remember);
    let slot = read(store, &slot_of(key)).await?;
    match slot.deletions.iter().rev().find(|deletion| deletion.key[..] == key) {
        Some(deletion) if has_expired(deletion, now) => Ok(false),
        Some(deletion) => Ok(remember.check(&deletion.hash).map(|()| true)?),
        None => Ok(false),
    }
}

impl Deletions {
    /// Records a request before the deletion. The record has no effect until the session is deleted.
    pub async fn remember(&self, store: &dyn EventStore, remember: &Remember, now: UnixMillis) -> Result<(), Failure> {
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
            .map_err(Failure::from)
    }
}

async fn read(store: &dyn EventStore, name: &CursorKey) -> Result<pb::Deletions, Failure> {
    let value = store.cursor(name.clone()).await?.unwrap_or_default();
    // A slot that cannot be decoded counts as empty. The next deletion overwrites it.
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

/// Returns the key of one of 256 slots.
fn slot_of([first, ..]: [u8; 32]) -> CursorKey {
    CursorKey {
        session: None,
        name: format!("deletions:{first:02x}"),
    }
}
