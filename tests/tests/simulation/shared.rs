//! Shared state of the hosts of one simulation, in addition to the network: the participants, and the data for the
//! checks.

use std::cell::{Cell, RefCell};

use troupe_proto::supervisor::v1::{Event, Session, Thread};

/// The host of the service under test.
pub const SUPERVISOR: &str = "supervisor";
/// The host of the registry.
pub const REGISTRY: &str = "registry";
/// The hosts of the runners.
pub const RUNNERS: [&str; 2] = ["runner-a", "runner-b"];
/// The hosts of the clients.
pub const CLIENTS: [&str; 2] = ["client-a", "client-b"];
/// The host that watches.
pub const WATCHER: &str = "watcher";
/// The host that brings the session to its end.
pub const CONDUCTOR: &str = "conductor";

/// The board on which hosts write what happened to them. All of them run on one thread.
#[derive(Default)]
pub struct SharedState {
    /// Whether the faults are over.
    pub calm: Cell<bool>,
    /// How many clients have done all that they wanted.
    pub done: Cell<usize>,
    /// The responses that clients received.
    pub promises: RefCell<Vec<Promise>>,
    /// The session as it was shown at moments without events.
    pub pictures: RefCell<Vec<Picture>>,
    /// The sequence of the last event, once none will follow.
    pub end: Cell<Option<u64>>,
    /// What the watcher saw, in the order in which it saw it.
    pub seen: RefCell<Vec<Event>>,
}

/// An answer that commits the supervisor.
#[derive(Clone, Debug)]
pub enum Promise {
    /// The request made this thread.
    Spawned { request_id: String, thread: String },
    /// The request queued this input.
    InputQueued {
        request_id: String,
        thread: String,
        number: u32,
    },
    /// The request set the thread's note to its own id.
    Noted { request_id: String, thread: String },
    /// The thread is closing.
    Closing { thread: String },
}

/// A session and its threads as of one moment.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The answer of GetSession.
    pub session: Session,
    /// The answer of ListActiveAgents: every thread, including closed ones and the root.
    pub threads: Vec<Thread>,
}
