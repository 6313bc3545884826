//! The connections of a server: their number, their use, and which one is closed when a limit is reached.
//!
//! A connection is known after a call from an authenticated caller. An unknown connection is closed first, and after a
//! time limit in any case.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The limit for all addresses together.
    pub total: usize,
    /// The limit for one address, except loopback.
    pub per_address: usize,
}

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    bounds: Bounds,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    all: HashMap<u64, Arc<Connection>>,
    /// The numbers of unknown connections, oldest first.
    unknown: BTreeSet<u64>,
    addresses: HashMap<IpAddr, usize>,
}

/// A connection.
#[derive(Debug)]
struct Connection {
    number: u64,
    /// `None` for loopback or if the address is not known.
    address: Option<IpAddr>,
    end: CancellationToken,
    is_known: AtomicBool,
    /// Open calls from authenticated callers.
    calls: AtomicUsize,
    /// Open calls of health and reflection.
    open_calls: AtomicUsize,
    idle_since: Mutex<Instant>,
    connections: Weak<Connections>,
}

impl Connections {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            table: Mutex::default(),
        })
    }

    /// Admits a connection. Cancelling `end` closes it. If a limit is reached, the oldest unknown connection is closed,
    /// otherwise the connection that has been idle longest. Returns `None` if all connections are busy.
    pub(crate) fn admit(self: &Arc<Self>, address: Option<IpAddr>, end: CancellationToken) -> Option<Registration> {
        let address = address.and_then(counted);
        let mut table = self.table();
        if let Some(address) = address
            && table
                .addresses
                .get(&address)
                .is_some_and(|count| *count >= self.bounds.per_address)
        {
            table
                .end_one(|connection| connection.address == Some(address))
                .then_some(())?;
        }
        if table.all.len() >= self.bounds.total {
            table.end_one(|_| true).then_some(())?;
        }
        let number = table.next;
        table.next += 1;
        let connection = Arc::new(Connection {
            number,
            address,
            end,
            is_known: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            open_calls: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            connections: Arc::downgrade(self),
        });
        table.all.insert(number, Arc::clone(&connection));
        table.unknown.insert(number);
        if let Some(address) = address {
            *table.addresses.entry(address).or_default() += 1;
        }
        Some(Registration(connection))
    }

    /// Closes one connection, in the order of [`Self::admit`], because the process has no file descriptor for another
    /// one.
    pub(crate) fn close_one(&self) {
        self.table().end_one(|_| true);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Closes the first connection, in the order of [`Connections::admit`], for which `may_end` is true. Returns
    /// whether it closed one.
    fn end_one(&mut self, may_end: impl Fn(&Connection) -> bool) -> bool {
        let mut unknown = self.unknown.iter().filter_map(|number| self.all.get(number));
        let first = unknown.find(|connection| may_end(connection)).or_else(|| {
            let idle = self.all.values();
            let idle = idle.filter(|connection| connection.calls.load(Ordering::Relaxed) == 0 && may_end(connection));
            idle.min_by_key(|connection| connection.idle_since())
        });
        let Some(connection) = first.cloned() else {
            return false;
        };
        self.remove(&connection);
        connection.end.cancel();
        true
    }

    fn remove(&mut self, connection: &Connection) {
        self.unknown.remove(&connection.number);
        if self.all.remove(&connection.number).is_none() {
            return;
        }
        if let Some(address) = connection.address
            && let Entry::Occupied(mut count) = self.addresses.entry(address)
        {
            match *count.get() {
                0 | 1 => drop(count.remove()),
                _ => *count.get_mut() -= 1,
            }
        }
    }
}

/// Returns the address that a connection is counted under. For IPv6 it is the /64 network, because one machine has all
/// addresses of such a network. Returns `None` for loopback, which is not counted.
fn counted(address: IpAddr) -> Option<IpAddr> {
    const NETWORK: u128 = u128::MAX << 64;
    match address.to_canonical() {
        address if address.is_loopback() => None,
        IpAddr::V6(address) => Some(IpAddr::from((u128::from(address) & NETWORK).to_be_bytes())),
        address => Some(address),
    }
}

impl Connection {
    fn idle_since(&self) -> Instant {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of a connection, removed on drop.
#[derive(Debug)]
pub(crate) struct Registration(Arc<Connection>);

impl Registration {
    /// Returns the handle that records calls on this connection.
    pub(crate) fn usage(&self) -> Usage {
        Usage(Some(Arc::clone(&self.0)))
    }

    /// Returns whether an authenticated caller has used the connection.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_known.load(Ordering::Relaxed)
    }

    /// Returns whether a health or reflection call is open.
    pub(crate) fn has_open_calls(&self) -> bool {
        self.0.open_calls.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(connections) = self.0.connections.upgrade() {
            connections.table().remove(&self.0);
        }
    }
}

/// The handle that records the use of a connection. It does nothing if the server does not count connections.
#[derive(Clone, Debug, Default)]
pub struct Usage(Option<Arc<Connection>>);

impl Usage {
    /// Records a call from an authenticated caller.
    pub(crate) fn mark_known(&self) {
        let Some(connection) = &self.0 else { return };
        if !connection.is_known.swap(true, Ordering::Relaxed)
            && let Some(connections) = connection.connections.upgrade()
        {
            connections.table().unknown.remove(&connection.number);
        }
    }

    /// Counts a call until the returned guard is dropped.
    pub(crate) fn begin(&self, is_known: bool) -> OpenCall {
        let call = OpenCall {
            connection: self.0.clone(),
            is_known,
        };
        if let Some(count) = call.count() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        call
    }
}

/// A call whose response has not been sent completely.
#[derive(Debug)]
pub(crate) struct OpenCall {
    connection: Option<Arc<Connection>>,
    is_known: bool,
}

impl OpenCall {
    fn count(&self) -> Option<&AtomicUsize> {
        let connection = self.connection.as_ref()?;
        Some(if self.is_known {
            &connection.calls
        } else {
            &connection.open_calls
        })
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            *connection.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        if let Some(count) = self.count() {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn connections(total: usize, per_address: usize) -> Arc<Connections> {
        Connections::new(Bounds { total, per_address })
    }

    fn admit(connections: &Arc<Connections>, address: &str) -> Option<Registration> {
        connections.admit(address.parse().ok(), CancellationToken::new())
    }

    fn ended(connections: &[&Registration]) -> Vec<bool> {
        let ends = connections.iter().map(|connection| connection.0.end.is_cancelled());
        ends.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_connection_is_closed_before_idle_one() {
        let all = connections(3, 3);
        let [first, second, third] = [1, 2, 3].map(|host| admit(&all, &format!("10.0.0.{host}")).unwrap());
        first.usage().mark_known();
        let fourth = admit(&all, "10.0.0.4").unwrap();
        assert_eq!(ended(&[&first, &second, &third, &fourth]), [false, true, false, false]);

        third.usage().mark_known();
        fourth.usage().mark_known();
        let _busy = first.usage().begin(true);
        advance(Duration::from_secs(1)).await;
        // The third connection has been idle for less time than the fourth.
        drop(third.usage().begin(true));
        let fifth = admit(&all, "10.0.0.5").unwrap();
        assert_eq!(ended(&[&first, &third, &fourth, &fifth]), [false, false, true, false]);

        fifth.usage().mark_known();
        let _busy = [&third, &fifth].map(|connection| connection.usage().begin(true));
        assert!(admit(&all, "10.0.0.6").is_none());
        drop(first);
        assert!(admit(&all, "10.0.0.6").is_some());
    }

    #[test]
    fn open_health_check_does_not_prevent_closing() {
        let all = connections(1, 1);
        let first = admit(&all, "10.0.0.1").unwrap();
        let _watch = first.usage().begin(false);
        assert!(first.has_open_calls());
        let _second = admit(&all, "10.0.0.2").unwrap();
        assert_eq!(ended(&[&first]), [true]);
    }

    #[test]
    fn address_over_its_cap_ends_its_own_connections() {
        let all = connections(9, 2);
        let [first, second] = ["2001:db8::1", "2001:db8::2"].map(|address| admit(&all, address).unwrap());
        let other = admit(&all, "2001:db9::1").unwrap();
        let third = admit(&all, "2001:db8::3").unwrap();
        assert_eq!(ended(&[&first, &second, &other, &third]), [true, false, false, false]);
        let _busy = [&second, &third].map(|connection| {
            connection.usage().mark_known();
            connection.usage().begin(true)
        });
        assert!(admit(&all, "2001:db8::4").is_none());
        let local = [0; 4].map(|_| admit(&all, "::ffff:127.0.0.1").unwrap());
        assert_eq!(ended(&local.each_ref()), [false; 4]);
        drop((first, second, other, third, local));
        let table = all.table();
        assert!(table.all.is_empty() && table.unknown.is_empty() && table.addresses.is_empty());
    }
}
