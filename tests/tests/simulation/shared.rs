//! Shared state of the hosts of one simulation, in addition to the network: the participants, and the data for the
//! checks.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::Arc,
};

use futures::FutureExt as _;
use supervisor_log::store::{EventStore as _, MemoryStore};
use troupe_proto::supervisor::v1::{Event, Session, Thread};

/// The host of the service under test.
pub const SUPERVISOR: &str = "supervisor";
/// The host of the registry.
pub const REGISTRY: &str = "registry";
/// The hosts of the runners.
pub const RUNNERS: [&str; 2] = ["runner-a", "runner-b"];
/// The hosts of the clients.
pub const CLIENTS: [&str; 2] = ["client-a", "client-b"];
/// The host of the watcher.
pub const WATCHER: &str = "watcher";
/// The host of the conductor, which closes the session.
pub const CONDUCTOR: &str = "conductor";

/// The work of the clients of a simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts of the supervisors. Every caller and runner connects to any of them.
    pub supervisors: &'static [&'static str],
    /// Number of requests of a client.
    pub requests: u32,
    /// The pause between two requests, in milliseconds.
    pub pause: RangeInclusive<u64>,
}

/// The state in which hosts record their observations. All hosts run on one thread.
pub struct SharedState {
    pub plan: Plan,
    /// The log, for checks while the simulation runs.
    pub store: Arc<MemoryStore>,
    /// The number of stamps so far; see [`SharedState::stamp`].
    stamps: Cell<u64>,
    /// The started programs of agents, by thread and generation.
    pub programs: RefCell<BTreeMap<(String, u32), Program>>,
    /// The violations that hosts observed.
    pub violations: RefCell<Vec<String>>,
    /// Whether the faults have ended.
    pub calm: Cell<bool>,
    /// Number of clients that have finished.
    pub done: Cell<usize>,
    /// The promises in the responses that clients received.
    pub promises: RefCell<Vec<Acknowledged>>,
    /// Consistent pictures of the session.
    pub pictures: RefCell<Vec<Picture>>,
    /// The sequence of the session's last event, once the session is closed.
    pub end: Cell<Option<u64>>,
    /// The events that the watcher received, in this order.
    pub seen: RefCell<Vec<Event>>,
}

impl SharedState {
    /// Creates the state of a simulation that has not begun.
    pub fn new(plan: Plan, store: Arc<MemoryStore>) -> Self {
        Self {
            plan,
            store,
            stamps: Cell::default(),
            programs: RefCell::default(),
            violations: RefCell::default(),
            calm: Cell::default(),
            done: Cell::default(),
            promises: RefCell::default(),
            pictures: RefCell::default(),
            end: Cell::default(),
            seen: RefCell::default(),
        }
    }

    /// Returns the next stamp. Stamps are numbers that show the order of everything that happens in this simulation.
    pub fn stamp(&self) -> u64 {
        self.stamps.set(self.stamps.get() + 1);
        self.stamps.get()
    }

    /// Returns the head of the log of the session. Zero if there is no session yet.
    fn head(&self) -> u64 {
        let sessions = self.store.sessions(None, 1).now_or_never().unwrap().unwrap();
        let epochs = sessions.first().map(|session| self.store.epochs(*session));
        epochs
            .and_then(|epochs| epochs.last().map(|(sequence, _)| sequence.get()))
            .unwrap_or_default()
    }

    /// Records that a runner started a program.
    pub fn program_started(&self, runner: &'static str, thread: &str, generation: u32) {
        let program = Program {
            runner,
            turns: Vec::new(),
            ended: None,
        };
        let before = self
            .programs
            .borrow_mut()
            .insert((thread.to_owned(), generation), program);
        if let Some(before) = before {
            let violation = format!("{runner} started generation {generation} of {thread}, which {before:?} was");
            self.violations.borrow_mut().push(violation);
        }
    }

    /// Records that a program began a turn.
    pub fn turn_began(&self, thread: &str, generation: u32, turn: u32) {
        let head = self.head();
        if let Some(program) = self.programs.borrow_mut().get_mut(&(thread.to_owned(), generation)) {
            program.turns.push((head, turn));
        }
    }

    /// Records that a program has ended.
    pub fn program_ended(&self, thread: &str, generation: u32) {
        let head = self.head();
        if let Some(program) = self.programs.borrow_mut().get_mut(&(thread.to_owned(), generation)) {
            program.ended.get_or_insert(head);
        }
    }

    /// Records that all programs of a runner have ended with its machine.
    pub fn runner_died(&self, runner: &str) {
        let head = self.head();
        for program in self.programs.borrow_mut().values_mut() {
            if program.runner == runner {
                program.ended.get_or_insert(head);
            }
        }
    }
}

/// A program of an agent.
#[derive(Clone, Debug)]
pub struct Program {
    /// The host that runs the program.
    pub runner: &'static str,
    /// The turns that the program began, each with the head of the log at that time.
    pub turns: Vec<(u64, u32)>,
    /// The head of the log when the program ended.
    pub ended: Option<u64>,
}

/// A promise, with the times of its request and of the response.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    pub promise: Promise,
    /// The stamp of the first attempt.
    pub began: u64,
    /// The stamp of the response.
    pub answered: u64,
}

/// A statement in a response that must stay true.
#[derive(Clone, Debug)]
pub enum Promise {
    /// The request created this thread.
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
    Closing { request_id: String, thread: String },
}

/// A session and its threads as of one moment.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The response of GetSession.
    pub session: Session,
    /// The response of ListActiveAgents: every thread, including closed ones and the root.
    pub threads: Vec<Thread>,
}
