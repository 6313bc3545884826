//! A relay between a client and a server that can close and break their connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

/// Connections that are forwarded while they are polled and stay open until they are dropped.
type Connections = FuturesUnordered<BoxFuture<'static, ()>>;

/// Forwards every connection to the server.
pub struct Relay {
    address: SocketAddr,
    way: Arc<Way>,
    carrier: Carrier,
    silent: Vec<Connections>,
}

/// The listener of the relay, and what happens to its connections.
struct Way {
    listener: TcpListener,
    server: SocketAddr,
    /// Whether the next connection answers with GOAWAY.
    leaves: AtomicBool,
}

impl Relay {
    /// Starts a relay on a free port.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Way {
            listener,
            server,
            leaves: AtomicBool::new(false),
        });
        Self {
            address,
            carrier: Carrier::start(Arc::clone(&way)),
            way,
            silent: Vec::new(),
        }
    }

    /// Returns the address of the relay.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections. New connections are accepted after this method returns.
    pub async fn cut(&mut self) {
        drop(self.replace_carrier().await);
    }

    /// Cuts all connections and answers the first call of the next connection with GOAWAY, as a departing server does
    /// for a call that it has not processed.
    pub async fn leave(&mut self) {
        self.way.leaves.store(true, Ordering::Relaxed);
        self.cut().await;
    }

    /// Returns whether a call has received GOAWAY since [`Relay::leave`].
    #[must_use]
    pub fn has_left(&self) -> bool {
        !self.way.leaves.load(Ordering::Relaxed)
    }

    /// Stops forwarding on all connections without closing them, as if the other machine had vanished. New connections
    /// are accepted.
    pub async fn silence(&mut self) {
        let silent = self.replace_carrier().await;
        self.silent.push(silent);
    }

    async fn replace_carrier(&mut self) -> Connections {
        let next = Carrier::start(Arc::clone(&self.way));
        std::mem::replace(&mut self.carrier, next).stop().await
    }
}

/// The forwarding task.
struct Carrier {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Connections>,
}

impl Carrier {
    fn start(way: Arc<Way>) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            stop,
            task: tokio::spawn(carry(way, stopped)),
        }
    }

    async fn stop(self) -> Connections {
        drop(self.stop);
        self.task.await.unwrap()
    }
}

async fn carry(way: Arc<Way>, mut stopped: oneshot::Receiver<()>) -> Connections {
    let mut connections = Connections::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => return connections,
            accepted = way.listener.accept() => {
                let (near, _) = accepted.unwrap();
                connections.push(if way.leaves.swap(false, Ordering::Relaxed) {
                    turn_away(near).boxed()
                } else {
                    connect(near, way.server).boxed()
                });
            }
            Some(()) = connections.next() => {}
        }
    }
}

async fn connect(mut near: TcpStream, server: SocketAddr) {
    let mut far = TcpStream::connect(server).await.unwrap();
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
    }
    // The client may connect again after any end.
    let _ = copy_bidirectional(&mut near, &mut far).await;
}

/// Answers the first call with a GOAWAY that reports no processed call and no error (RFC 9113, 6.8).
async fn turn_away(mut near: TcpStream) {
    const PREFACE_BYTES: usize = 24;
    const HEADERS: u8 = 1;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    near.write_all(&SETTINGS).await.unwrap();
    near.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
    loop {
        let [high, middle, low, kind, ..] = {
            let mut head = [0; 9];
            near.read_exact(&mut head).await.unwrap();
            head
        };
        let payload = u32::from_be_bytes([0, high, middle, low]);
        near.read_exact(&mut vec![0; payload as usize]).await.unwrap();
        if kind == HEADERS {
            break;
        }
    }
    near.write_all(&GOAWAY).await.unwrap();
    // Reads until the client has closed the connection. Otherwise, further bytes from the client could reset the
    // connection before the client has read the GOAWAY.
    while near.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
}
