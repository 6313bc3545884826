//! Clients that watch notifications: each one's policy, current view and progress. All three are stored under the
//! client's name and survive a restart.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::store::{CursorKey, EventStore};
use svc_kit::lock::lock;
use troupe_proto::store::v1 as pb;

use crate::{
    convert,
    domain::{
        ids::{Sequence, SessionId, ThreadId},
        rules::notify::Attention,
    },
    engine::Failure,
};

/// A client's name in its session.
type Key = (SessionId, String);

/// The clients in use. All streams and calls of one client share a [`Client`], so that a change of focus reaches open
/// streams at once.
#[derive(Clone, Default)]
pub struct Clients {
    // Locked for look-ups only, never across an await. Bounded by the open streams and calls.
    used: Arc<Mutex<HashMap<Key, Weak<Client>>>>,
}

impl Clients {
    /// Returns the client with this name.
    #[must_use]
    pub fn client(&self, store: &Arc<dyn EventStore>, session: SessionId, name: &str) -> Arc<Client> {
        let mut used = lock(&self.used);
        let key = (session, name.to_owned());
        if let Some(client) = used.get(&key).and_then(Weak::upgrade) {
            return client;
        }
        used.retain(|_, client| client.strong_count() > 0);
        let client = Arc::new(Client {
            store: Arc::clone(store),
            key: CursorKey {
                session: Some(session),
                name: format!("client:{name}"),
            },
            state: tokio::sync::Mutex::new(None),
        });
        used.insert(key, Arc::downgrade(&client));
        client
    }
}

/// The stored state of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// The position up to which the client needs no more notifications.
    pub sequence: Sequence,
    /// The client's notification policy and its current view.
    pub attention: Attention,
}

/// A client of a session.
pub struct Client {
    store: Arc<dyn EventStore>,
    key: CursorKey,
    /// Locked during store access, so that the latest update is stored last. `None` if not read yet.
    state: tokio::sync::Mutex<Option<ClientState>>,
}

impl Client {
    /// Updates the stored state and returns it once it is durable. An unknown client starts at `head`.
    ///
    /// # Errors
    /// The store's error. Open streams then see no change.
    pub async fn update(
        &self,
        head: Sequence,
        change: impl FnOnce(&mut ClientState) + Send,
    ) -> Result<ClientState, Failure> {
        let mut guard = self.state.lock().await;
        let before = match guard.clone() {
            Some(state) => Some(state),
            None => self.read().await?,
        };
        let mut state = before.clone().unwrap_or_else(|| ClientState {
            sequence: head,
            attention: Attention::default(),
        });
        change(&mut state);
        if before.as_ref() != Some(&state) {
            self.write(&state).await?;
        }
        *guard = Some(state.clone());
        Ok(state)
    }

    /// Returns the client's current notification policy and view.
    pub async fn attention(&self) -> Attention {
        let state = self.state.lock().await;
        state.as_ref().map(|state| state.attention.clone()).unwrap_or_default()
    }

    async fn read(&self) -> Result<Option<ClientState>, Failure> {
        let Some(bytes) = self.store.cursor(self.key.clone()).await? else {
            return Ok(None);
        };
        let unreadable = |why: String| Failure::Corrupt(format!("the cursor \"{}\": {why}", self.key.name));
        let cursor = pb::NotificationCursor::decode(bytes).map_err(|error| unreadable(error.to_string()))?;
        let focus = match cursor.active_thread_id.as_str() {
            "" => None,
            id => Some(
                id.parse::<ThreadId>()
                    .map_err(|_| unreadable(format!("\"{id}\" is no thread")))?,
            ),
        };
        let policy = cursor
            .policy
            .map(convert::notify::policy_from_pb)
            .transpose()
            .map_err(|error| unreadable(error.to_string()))?
            .unwrap_or_default();
        Ok(Some(ClientState {
            sequence: Sequence::new(cursor.sequence),
            attention: Attention { policy, focus },
        }))
    }

    async fn write(&self, state: &ClientState) -> Result<(), Failure> {
        let cursor = pb::NotificationCursor {
            sequence: state.sequence.get(),
            policy: Some(convert::notify::policy_to_pb(&state.attention.policy)),
            active_thread_id: state.attention.focus.map(|id| id.to_string()).unwrap_or_default(),
        };
        self.store
            .put_cursor(self.key.clone(), Some(Bytes::from(cursor.encode_to_vec())))
            .await
            .map_err(Failure::from)
    }
}
