//! Forwards connections between a client and a service, and can cut all of them.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// One task per connection, including ended ones.
type Connections = Arc<Mutex<Vec<AbortHandle>>>;

pub struct Relay {
    address: String,
    connections: Connections,
}

impl Relay {
    /// Accepts connections on a free port and forwards them to `service`, which is host:port.
    pub async fn before(service: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections = Connections::default();
        tokio::spawn(accept(listener, service, Arc::clone(&connections)));
        Self { address, connections }
    }

    /// Returns the address to which a client connects instead of the service.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Cuts all connections. New connections are accepted.
    pub fn cut(&self) {
        for connection in self.connections.lock().unwrap().iter() {
            connection.abort();
        }
    }

    /// Returns the number of connections so far.
    pub fn count(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

/// Accepts connections until the test's runtime ends.
async fn accept(listener: TcpListener, service: String, connections: Connections) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let connection = tokio::spawn(carry(client, service.clone()));
        connections.lock().unwrap().push(connection.abort_handle());
    }
}

/// Copies until either end is closed. Aborting the task closes both ends.
async fn carry(mut client: TcpStream, service: String) -> io::Result<(u64, u64)> {
    let mut server = TcpStream::connect(service).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await
}
