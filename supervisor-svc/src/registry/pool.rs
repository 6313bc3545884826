//! Connections to the registry, taken in turns: what balances connections and not calls, as a Service of Kubernetes does,
//! spreads them over the registries behind it.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tonic::transport::Channel;
use troupe_proto::MAX_MESSAGE_BYTES;

use super::Client;

/// How many there are at most; each is made when its turn comes.
const CONNECTIONS: usize = 4;

/// The connections. Every clone has the same.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    clients: Arc<[Client; CONNECTIONS]>,
    turns: Arc<AtomicUsize>,
}

impl Pool {
    /// Those that `channel` makes, which connects when it is first used.
    pub fn of(channel: impl Fn() -> Channel) -> Self {
        let client = |_| {
            Client::new(channel())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES)
        };
        Self {
            clients: Arc::new(array::from_fn(client)),
            turns: Arc::default(),
        }
    }

    /// The one whose turn it is. What is asked again is asked over the same one, which connects anew: the next one may have
    /// been lost at the same time.
    pub fn client(&self) -> Client {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        self.clients[turn % CONNECTIONS].clone()
    }
}
