//! What lies between a client and a server, so that their connections can end as connections do.

use std::{net::SocketAddr, sync::Arc};

use futures::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

/// Connections that are carried while they are polled, and open until they are dropped.
type Connections = FuturesUnordered<BoxFuture<'static, ()>>;

/// Carries whatever connects to it to the server.
pub struct Relay {
    address: SocketAddr,
    server: SocketAddr,
    listener: Arc<TcpListener>,
    carrier: Carrier,
    silent: Vec<Connections>,
}

impl Relay {
    /// A relay on a free port.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        Self {
            address: listener.local_addr().unwrap(),
            server,
            carrier: Carrier::start(Arc::clone(&listener), server),
            listener,
            silent: Vec::new(),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the connections. When this returns they are gone, and the next ones may come.
    pub async fn cut(&mut self) {
        drop(self.replace_carrier().await);
    }

    /// From here on nothing comes over these connections any more, and nothing ends them, as where the other machine has
    /// vanished. The next ones may come.
    pub async fn silence(&mut self) {
        let silent = self.replace_carrier().await;
        self.silent.push(silent);
    }

    async fn replace_carrier(&mut self) -> Connections {
        let next = Carrier::start(Arc::clone(&self.listener), self.server);
        std::mem::replace(&mut self.carrier, next).stop().await
    }
}

/// The task that carries.
struct Carrier {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Connections>,
}

impl Carrier {
    fn start(listener: Arc<TcpListener>, server: SocketAddr) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            stop,
            task: tokio::spawn(carry(listener, server, stopped)),
        }
    }

    async fn stop(self) -> Connections {
        drop(self.stop);
        self.task.await.unwrap()
    }
}

async fn carry(listener: Arc<TcpListener>, server: SocketAddr, mut stopped: oneshot::Receiver<()>) -> Connections {
    let mut connections = Connections::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => return connections,
            accepted = listener.accept() => connections.push(connect(accepted.unwrap().0, server).boxed()),
            Some(()) = connections.next() => {}
        }
    }
}

async fn connect(mut near: TcpStream, server: SocketAddr) {
    let mut far = TcpStream::connect(server).await.unwrap();
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
    }
    // However it ends, the client may connect again.
    let _ = copy_bidirectional(&mut near, &mut far).await;
}
