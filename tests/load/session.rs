//! A session with one thread, whose notes are the events for the watchers.

use std::net::SocketAddr;

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::{CreateSessionRequest, SetThreadNoteRequest, WatchThreadsRequest};
use troupe_tests::{
    client::{self, Supervisor},
    crowd,
    tree::Tree,
    watch::Watch,
};

/// Size of a note, in bytes.
const NOTE: usize = 1_000;
/// Number of concurrent writers of [`Session::notes`].
pub(crate) const WRITERS: usize = 32;
/// Number of watches that are opened at the same time: far fewer than a service's maximum number of calls.
const OPENED_AT_ONCE: usize = 1_000;

pub(crate) struct Session {
    pub(crate) tree: Tree,
    supervisor: SocketAddr,
    thread: String,
}

impl Session {
    pub(crate) async fn open(supervisor: SocketAddr) -> Self {
        let client = client::supervisor(supervisor, None);
        let tree = Tree::open(client, CreateSessionRequest::default()).await;
        let thread = tree.spawn("worker").await.id;
        Self {
            tree,
            supervisor,
            thread,
        }
    }

    /// Returns a client with a new connection.
    pub(crate) fn connect(&self) -> Supervisor {
        client::supervisor(self.supervisor, None)
    }

    /// Returns a client with a new connection and a small flow control window.
    pub(crate) fn connect_narrowly(&self) -> Supervisor {
        client::narrow_supervisor(self.supervisor, None)
    }

    /// Returns the request for a watch of future events.
    pub(crate) async fn watch_from_now(&self) -> WatchThreadsRequest {
        WatchThreadsRequest {
            after_sequence: Some(self.tree.head().await),
            ..self.tree.watch_request()
        }
    }

    /// Opens equal watches.
    pub(crate) async fn crowd(&self, request: &WatchThreadsRequest, watchers: usize) -> Vec<Watch> {
        let mut watches = Vec::with_capacity(watchers);
        while watches.len() < watchers {
            let more = OPENED_AT_ONCE.min(watchers - watches.len());
            watches.extend(crowd::open(|| self.connect(), request, more).await);
        }
        watches
    }

    /// Sets the note once: one append with one event.
    pub(crate) async fn note(&self, number: usize) {
        set(&mut self.tree.client(), &self.thread, &number.to_string()).await;
    }

    /// Sets the note `count` times, with [`WRITERS`] concurrent writers.
    pub(crate) async fn notes(&self, count: usize) {
        let mut writing = JoinSet::new();
        for writer in 0..WRITERS {
            let (mut client, thread) = (self.tree.client(), self.thread.clone());
            let share = (writer..count).step_by(WRITERS);
            writing.spawn(async move {
                for number in share {
                    set(&mut client, &thread, &format!("many-{number}-")).await;
                }
            });
        }
        writing.join_all().await;
    }
}

async fn set(client: &mut Supervisor, thread: &str, text: &str) {
    let request = SetThreadNoteRequest {
        thread_id: thread.to_owned(),
        thread_note: format!("{text:x<NOTE$}"),
        ..SetThreadNoteRequest::default()
    };
    client.set_thread_note(request).await.unwrap();
}
