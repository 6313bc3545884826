//! Several supervisors behind one address. Every test of a [`crate::pair::Pair`] can run against them instead of one
//! supervisor.

use std::{net::SocketAddr, time::Duration};

use supervisor_log::store::PostgresOptions;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::sleep,
};
use troupe_proto::supervisor::v1::ListMembersRequest;

use crate::{client, postgres_server::Database};

/// Environment variable with the number of supervisors of a pair. By default a pair has one supervisor, whose log is in
/// its data directory.
const MEMBERS: &str = "TROUPE_TEST_MEMBERS";

/// Returns the number of supervisors.
pub(crate) fn count() -> usize {
    std::env::var(MEMBERS).map_or(1, |text| text.parse().expect("a number of supervisors"))
}

/// Creates the database of several supervisors.
pub(crate) fn database() -> (Database, PostgresOptions) {
    let database = Database::create();
    let options = database.url().parse().unwrap();
    (database, options)
}

/// Waits until each supervisor knows all others. A runner that attaches earlier would have to attach again.
pub(crate) async fn know_each_other(addresses: &[SocketAddr], token: &str) {
    for address in addresses {
        let mut client = client::supervisor(*address, Some(token));
        loop {
            let listed = client.list_members(ListMembersRequest {}).await.unwrap().into_inner();
            if listed.members.len() == addresses.len() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A TCP balancer: it gives each connection to the next server.
pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Balancer {
    pub(crate) async fn to(servers: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for server in servers.into_iter().cycle() {
                let (mut client, _) = listener.accept().await.unwrap();
                connections.spawn(async move {
                    let mut server = TcpStream::connect(server).await?;
                    client.set_nodelay(true)?;
                    server.set_nodelay(true)?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self {
            address,
            task: task.abort_handle(),
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
