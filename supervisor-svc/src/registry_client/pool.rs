//! Connections to the registries, which are the addresses of one name. A request uses the connection with the fewest
//! requests in flight. A light load uses one connection, and a heavy load is spread over all of them. A request about
//! an uploaded bundle uses the registry that rendezvous hashing of the bundle's digest selects, so that each bundle has
//! to be in one registry only, and all supervisors select the same one. A request whose connection is lost is repeated
//! over another connection, to another registry if there is one.
//!
//! A name with one address, like that of a Kubernetes Service, counts as one registry. The name is looked up for each
//! connection, and the Service balances the connections.

use std::{
    array,
    cmp::Reverse,
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use svc_kit::traces::Traced;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::transport::Channel;
use troupe_proto::{MAX_MESSAGE_BYTES, registry::v1::agent_registry_service_client::AgentRegistryServiceClient};

use super::Client;

/// Maximum number of connections to a registry. Each is opened when it is first needed.
pub(crate) const CONNECTIONS: usize = 4;

/// Maximum number of registries. Further addresses are ignored.
pub(crate) const MAX_REGISTRIES: usize = 16;

/// Interval of the look-ups of the registry's name. Also the maximum time of a look-up.
pub(crate) const LOOK_UP_EVERY: Duration = Duration::from_secs(5);

/// The registries. All clones share the same state.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The only registry, unless a look-up has found several addresses.
    by_name: Arc<Registry>,
    /// Never empty.
    current: RwLock<Registries>,
}

type Registries = Arc<[Arc<Registry>]>;

/// The connections to a registry.
#[derive(Debug)]
struct Registry {
    /// `None` if the name has only one address, which is looked up for each connection.
    address: Option<SocketAddr>,
    connections: [Connection; CONNECTIONS],
}

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

impl Registry {
    fn new(address: Option<SocketAddr>, channel: impl Fn() -> Channel) -> Arc<Self> {
        Arc::new(Self {
            address,
            connections: array::from_fn(|_| Connection::over(channel())),
        })
    }

    /// Returns the registry's weight for a bundle. The registry with the highest weight is responsible for the bundle.
    fn weight(&self, workspace_digest: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.address, workspace_digest).hash(&mut hasher);
        hasher.finish()
    }
}

impl Pool {
    /// Creates a pool of one registry, over channels that `channel` returns.
    pub fn of(channel: impl Fn() -> Channel) -> Self {
        let by_name = Registry::new(None, channel);
        Self(Arc::new(Inner {
            current: RwLock::new(Arc::new([Arc::clone(&by_name)])),
            by_name,
        }))
    }

    /// Looks the name up now and every [`LOOK_UP_EVERY`] until the pool is dropped. See [`Self::refresh`].
    pub fn follow<L, C>(&self, look_up: L, channel: C) -> impl Future<Output = ()> + Send + use<L, C>
    where
        L: LookUp,
        C: Fn(SocketAddr) -> Channel + Send + Sync,
    {
        let pool = Arc::downgrade(&self.0);
        async move {
            let mut ticks = interval(LOOK_UP_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(pool) = pool.upgrade() else { return };
                Self(pool).refresh(&look_up, &channel).await;
            }
        }
    }

    /// Looks the name up. Several addresses are several registries, with channels that `channel` returns. Connections
    /// to addresses that remain are kept.
    pub async fn refresh(&self, look_up: &impl LookUp, channel: impl Fn(SocketAddr) -> Channel) {
        let addresses = match timeout(LOOK_UP_EVERY, look_up.addresses()).await {
            Ok(Ok(addresses)) => of_one_family(addresses),
            Ok(Err(error)) => return tracing::debug!(%error, "the registry's name could not be looked up"),
            Err(_) => return tracing::debug!("the look-up of the registry's name took too long"),
        };
        let before = self.registries();
        let now: Registries = if addresses.len() < 2 {
            Arc::new([Arc::clone(&self.0.by_name)])
        } else {
            let registry = |address| {
                let known = before.iter().find(|registry| registry.address == Some(address));
                known.map_or_else(|| Registry::new(Some(address), || channel(address)), Arc::clone)
            };
            addresses.into_iter().map(registry).collect()
        };
        if now.iter().map(Arc::as_ptr).ne(before.iter().map(Arc::as_ptr)) {
            tracing::info!(
                registries = now.len(),
                "the addresses of the registry's name have changed"
            );
            *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = now;
        }
    }

    fn registries(&self) -> Registries {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a lease of the connection with the fewest requests in flight. If the digest is not empty, the connection
    /// is to the registry that is responsible for the bundle.
    pub fn lease(&self, workspace_digest: &str) -> Lease {
        self.lease_except(workspace_digest.to_owned(), None)
    }

    /// Returns a lease of another connection for the same request, to another registry if there is one.
    pub fn lease_after(&self, lost: &Lease) -> Lease {
        self.lease_except(lost.workspace_digest.clone(), Some(lost))
    }

    fn lease_except(&self, workspace_digest: String, lost: Option<&Lease>) -> Lease {
        let mut candidates = self.ranked(&workspace_digest);
        if let Some(lost) = lost
            && candidates.len() > 1
        {
            candidates.retain(|registry| !Arc::ptr_eq(registry, &lost.registry));
        }
        if !workspace_digest.is_empty() {
            candidates.truncate(1);
        }
        let (registry, connection) = candidates
            .iter()
            .flat_map(|registry| (0..CONNECTIONS).map(move |connection| (registry, connection)))
            .filter(|(registry, connection)| lost.is_none_or(|lost| !lost.is_on(registry, *connection)))
            .min_by_key(|(registry, connection)| registry.connections[*connection].questions.load(Ordering::Relaxed))
            .unwrap_or((&self.0.by_name, 0));
        Lease::new(Arc::clone(registry), connection, workspace_digest)
    }

    /// Returns a lease for the same request at each of the other registries, in the order of their responsibility.
    pub fn others(&self, lease: &Lease) -> Vec<Lease> {
        self.ranked(&lease.workspace_digest)
            .into_iter()
            .filter(|registry| !Arc::ptr_eq(registry, &lease.registry))
            .map(|registry| Lease::new(registry, 0, lease.workspace_digest.clone()))
            .collect()
    }

    /// Returns the registries. If the digest is not empty, they are in the order of their responsibility for the
    /// bundle.
    fn ranked(&self, workspace_digest: &str) -> Vec<Arc<Registry>> {
        let mut registries = self.registries().to_vec();
        if !workspace_digest.is_empty() {
            registries.sort_by_cached_key(|registry| Reverse(registry.weight(workspace_digest)));
        }
        registries
    }
}

/// Returns the addresses of one family: a host with an address of each family counts as one registry. The result does
/// not depend on the order of the addresses, which differs between answers of a name server.
fn of_one_family(addresses: Vec<SocketAddr>) -> BTreeSet<SocketAddr> {
    let is_ipv4 = addresses.iter().any(SocketAddr::is_ipv4);
    let sorted: BTreeSet<_> = addresses
        .into_iter()
        .filter(|address| address.is_ipv4() == is_ipv4)
        .collect();
    sorted.into_iter().take(MAX_REGISTRIES).collect()
}

/// The look-up of the registry's name.
pub trait LookUp: Send + Sync {
    /// Returns the addresses, in any order.
    fn addresses(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// Counts one request on a connection until this value is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    registry: Arc<Registry>,
    connection: usize,
    /// The digest of the bundle that the request needs, or empty.
    workspace_digest: String,
}

impl Lease {
    fn new(registry: Arc<Registry>, connection: usize, workspace_digest: String) -> Self {
        registry.connections[connection]
            .questions
            .fetch_add(1, Ordering::Relaxed);
        Self {
            registry,
            connection,
            workspace_digest,
        }
    }

    fn is_on(&self, registry: &Arc<Registry>, connection: usize) -> bool {
        Arc::ptr_eq(&self.registry, registry) && self.connection == connection
    }

    pub fn client(&self) -> Client {
        self.registry.connections[self.connection].client.clone()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.registry.connections[self.connection]
            .questions
            .fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{collections::HashMap, sync::Mutex};

    use tokio::time::sleep;
    use tonic::transport::Endpoint;

    use super::*;

    fn channel() -> Channel {
        Endpoint::from_static("http://127.0.0.1:1").connect_lazy()
    }

    /// A name whose addresses a test sets.
    #[derive(Clone, Default)]
    struct Name(Arc<Mutex<Vec<SocketAddr>>>);

    impl Name {
        fn set(&self, hosts: impl IntoIterator<Item = u8>) {
            let addresses = hosts.into_iter().map(|host| SocketAddr::from(([10, 0, 0, host], 1)));
            *self.0.lock().unwrap() = addresses.collect();
        }
    }

    impl LookUp for Name {
        async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
            Ok(self.0.lock().unwrap().clone())
        }
    }

    async fn following(name: &Name) -> Pool {
        let pool = Pool::of(channel);
        pool.refresh(name, |_| channel()).await;
        pool
    }

    #[tokio::test]
    async fn request_uses_least_loaded_connection() {
        let pool = Pool::of(channel);
        assert_eq!(pool.lease("").connection, 0);
        assert_eq!(pool.lease("").connection, 0, "one at a time need one");

        let mut leases: Vec<_> = (0..2 * CONNECTIONS).map(|_| pool.lease("")).collect();
        for (number, lease) in leases.iter().enumerate() {
            assert_eq!(lease.connection, number % CONNECTIONS);
        }
        drop(leases.swap_remove(2));
        assert_eq!(pool.lease("").connection, 2);
        assert_eq!(pool.lease("").connection, 2);
    }

    #[tokio::test]
    async fn retry_uses_another_connection() {
        let pool = Pool::of(channel);
        let busy: Vec<_> = (1..CONNECTIONS).map(|_| pool.lease("")).collect();
        let lost = pool.lease("");
        assert_ne!(lost.connection, pool.lease_after(&lost).connection);
        drop(busy);
    }

    #[tokio::test(start_paused = true)]
    async fn registries_are_the_addresses_of_the_name() {
        let name = Name::default();
        name.set([1, 2, 3]);
        let pool = Pool::of(channel);
        let task = tokio::spawn(pool.follow(name.clone(), |_| channel()));
        sleep(LOOK_UP_EVERY / 2).await;
        let before = pool.registries();
        assert_eq!(before.len(), 3);

        name.set([4, 3, 2]);
        sleep(LOOK_UP_EVERY).await;
        let after = pool.registries();
        assert_eq!(after.len(), 3);
        assert!(
            Arc::ptr_eq(&before[1], &after[0]),
            "the connections to a registry that remains are kept"
        );

        name.set([5]);
        sleep(LOOK_UP_EVERY).await;
        let addresses: Vec<_> = pool.registries().iter().map(|registry| registry.address).collect();
        assert_eq!(addresses, [None], "a single address is looked up for each connection");

        name.set(0..100);
        sleep(LOOK_UP_EVERY).await;
        assert_eq!(pool.registries().len(), MAX_REGISTRIES);

        drop(pool);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn bundles_are_spread_and_few_move_to_added_registry() {
        let name = Name::default();
        name.set([1, 2, 3]);
        let pool = following(&name).await;
        let digests: Vec<_> = (0..300).map(|number| format!("{number:064x}")).collect();
        let places = |pool: &Pool| -> Vec<_> {
            let place = |digest: &String| pool.lease(digest).registry.address;
            digests.iter().map(place).collect()
        };
        let three = places(&pool);
        assert_eq!(three, places(&following(&name).await), "supervisors agree");
        let mut counts = HashMap::new();
        for place in &three {
            *counts.entry(*place).or_insert(0) += 1;
        }
        assert!(
            counts.len() == 3 && counts.values().all(|count| *count > 50),
            "{counts:?}"
        );

        name.set([1, 2, 3, 4]);
        let four = places(&following(&name).await);
        let moved = three.iter().zip(&four).filter(|(before, after)| before != after);
        assert!(moved.clone().count() < 150, "{}", moved.count());
    }

    #[tokio::test]
    async fn lost_registry_is_replaced_by_the_next() {
        let name = Name::default();
        name.set([1, 2, 3]);
        let pool = following(&name).await;
        let lease = pool.lease("digest");
        let others = pool.others(&lease);
        assert_eq!(others.len(), 2);
        let next = pool.lease_after(&lease);
        assert_eq!(next.registry.address, others[0].registry.address);
        let lease = pool.lease("");
        assert_ne!(pool.lease_after(&lease).registry.address, lease.registry.address);
    }

    #[test]
    fn host_with_addresses_of_two_families_is_one_registry() {
        let local = ["127.0.0.1:1", "[::1]:1"].map(|address| address.parse().unwrap());
        assert_eq!(of_one_family(local.to_vec()).len(), 1);
    }
}
