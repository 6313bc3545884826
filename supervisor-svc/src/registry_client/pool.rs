//! Connection pool for the registry. A request uses the connection with the fewest requests in flight. A light load
//! uses one connection, and a heavy load is spread over the registries behind a Kubernetes Service, which balances
//! connections. A request whose connection is lost is repeated over another connection.

use std::{
    array, ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use svc_kit::traces::Traced;
use tonic::transport::Channel;
use troupe_proto::{MAX_MESSAGE_BYTES, registry::v1::agent_registry_service_client::AgentRegistryServiceClient};

use super::Client;

/// Maximum number of connections. Each is opened when it is first needed.
pub(crate) const CONNECTIONS: usize = 4;

/// The connections. Every clone has the same.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<[Connection; CONNECTIONS]>);

#[derive(Debug)]
struct Connection {
    client: Client,
    /// Number of requests in flight.
    questions: AtomicUsize,
}

impl Connection {
    fn over(channel: Channel) -> Self {
        let client = AgentRegistryServiceClient::new(Traced::new(channel))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self {
            client,
            questions: AtomicUsize::new(0),
        }
    }
}

impl Pool {
    pub fn of(channel: impl Fn() -> Channel) -> Self {
        Self(Arc::new(array::from_fn(|_| Connection::over(channel()))))
    }

    /// A place on the connection that carries the fewest questions, but not on the one of `lost`.
    pub fn lease(&self, lost: Option<&Lease<'_>>) -> Lease<'_> {
        let others = self
            .0
            .iter()
            .filter(|connection| lost.is_none_or(|lost| !ptr::eq(*connection, lost.0)));
        let connection = others
            .min_by_key(|connection| connection.questions.load(Ordering::Relaxed))
            .unwrap_or(&self.0[0]);
        connection.questions.fetch_add(1, Ordering::Relaxed);
        Lease(connection)
    }
}

/// A place on a connection for one question, until it is dropped.
#[derive(Debug)]
pub(super) struct Lease<'a>(&'a Connection);

impl Lease<'_> {
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.0.questions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn request_uses_least_loaded_connection() {
        let pool = Pool::of(|| Endpoint::from_static("http://127.0.0.1:1").connect_lazy());
        let takes = |lease: &Lease<'_>| pool.0.iter().position(|connection| ptr::eq(connection, lease.0));
        assert_eq!(takes(&pool.lease(None)), Some(0));
        assert_eq!(takes(&pool.lease(None)), Some(0), "one at a time need one");

        let mut leases: Vec<_> = (0..2 * CONNECTIONS).map(|_| pool.lease(None)).collect();
        for (number, lease) in leases.iter().enumerate() {
            assert_eq!(takes(lease), Some(number % CONNECTIONS));
        }
        drop(leases.swap_remove(2));
        assert_eq!(takes(&pool.lease(None)), Some(2));
        assert_eq!(takes(&pool.lease(None)), Some(2));
    }

    #[tokio::test]
    async fn retry_uses_another_connection() {
        let pool = Pool::of(|| Endpoint::from_static("http://127.0.0.1:1").connect_lazy());
        let busy: Vec<_> = (1..CONNECTIONS).map(|_| pool.lease(None)).collect();
        let lost = pool.lease(None);
        let again = pool.lease(Some(&lost));
        assert!(!ptr::eq(lost.0, again.0));
        drop(busy);
    }
}
