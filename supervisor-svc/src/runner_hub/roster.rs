//! The roster of runners: attached, away within their lease, or lost.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prost_types::Duration as ProtoDuration;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tonic::Status;
use troupe_proto::supervisor::v1::{self as pb, attach_response::Message};

use crate::{
    domain::{
        ids::{Generation, RunnerId, SessionId, ThreadId, Turn},
        session::Session,
        settings::{ClosePolicy, Sandbox},
        thread::Thread,
    },
    wire::WireEnum as _,
};

/// How long a runner is trusted without a word from it.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long a program may take to end before its runner kills it.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// How many messages wait for a runner at most; one that falls behind further is cut off and attaches anew.
pub(super) const OUTBOX: usize = 1_024;

/// The way to a runner's stream.
pub(super) type Outbox = mpsc::Sender<Result<pb::AttachResponse, Status>>;

/// What a thread needs of a runner.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Its session; some runners take threads of one session only.
    pub session: SessionId,
    /// Whether the operating system must keep it from writing.
    pub read_only: bool,
    /// Whether tools must be held back.
    pub restricted: bool,
}

impl Need {
    /// What a thread of that session needs.
    #[must_use]
    pub fn of(session: &Session, thread: &Thread) -> Self {
        Self {
            session: session.id,
            read_only: thread.sandbox == Sandbox::ReadOnly,
            restricted: !thread.effective.is_unrestricted(),
        }
    }
}

/// How a runner stands to an attempt at a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is attached and has it.
    Holds,
    /// It is attached and does not have it.
    Without,
    /// It is not attached, but its lease runs.
    Away,
    /// Its lease ran out.
    Lost,
}

/// What a runner said of itself.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub kinds: Vec<pb::RunnerKind>,
    pub capacity: u32,
    pub session: Option<SessionId>,
}

#[derive(Debug)]
enum Link {
    Attached { outbox: Outbox, stream: u64 },
    Away { since: Instant },
}

#[derive(Debug)]
struct Runner {
    offer: Offer,
    link: Link,
    held: HashMap<ThreadId, (SessionId, Generation)>,
    /// It said that it has no room; forgotten when something of it ends, and at its next heartbeat.
    full: bool,
}

#[derive(Debug, Default)]
struct Roster {
    runners: HashMap<RunnerId, Runner>,
    streams: u64,
}

/// The runners. Cheap to clone; every clone is the same roster.
#[derive(Clone, Debug)]
pub struct RunnerHub {
    // Held for look-ups and small changes only, never across an await.
    roster: Arc<Mutex<Roster>>,
    changes: Arc<watch::Sender<u64>>,
    started: Instant,
    lease: Duration,
}

impl RunnerHub {
    /// An empty roster with the given lease. Leases of runners that were attached before a restart start anew with it.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        let hub = Self {
            roster: Arc::default(),
            changes: Arc::new(watch::channel(0).0),
            started: Instant::now(),
            lease,
        };
        hub.announce_after_lease();
        hub
    }

    /// How long a runner is trusted without a word from it.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// Changes whenever somebody's standing may have changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether an attached runner fits and has room.
    #[must_use]
    pub fn has_one_for(&self, need: &Need) -> bool {
        self.lock().runners.values().any(|runner| runner.fits(need))
    }

    /// Chooses a runner for an attempt and holds it there: among those that fit, the one that holds least.
    #[must_use]
    pub fn place(&self, need: &Need, thread: ThreadId, generation: Generation) -> Option<RunnerId> {
        let mut roster = self.lock();
        let (id, runner) = roster
            .runners
            .iter_mut()
            .filter(|(_, runner)| runner.fits(need))
            .min_by(|(a_id, a), (b_id, b)| (a.held.len(), a_id).cmp(&(b.held.len(), b_id)))?;
        runner.held.insert(thread, (need.session, generation));
        Some(id.clone())
    }

    /// Gives an attempt back.
    pub fn release(&self, id: &RunnerId, thread: ThreadId, generation: Generation) {
        let mut roster = self.lock();
        let Some(runner) = roster.runners.get_mut(id) else {
            return;
        };
        if runner.held.get(&thread).is_none_or(|(_, held)| *held != generation) {
            return;
        }
        // Only who was turned away before needs to hear that there is room now.
        let had_room = runner.has_room();
        runner.held.remove(&thread);
        runner.full = false;
        drop(roster);
        if !had_room {
            self.announce();
        }
    }

    /// Whether a runner is attached and has this attempt.
    #[must_use]
    pub fn holds(&self, id: &RunnerId, thread: ThreadId, generation: Generation) -> bool {
        self.standing(id, thread, generation) == Standing::Holds
    }

    /// How a runner stands to an attempt.
    #[must_use]
    pub fn standing(&self, id: &RunnerId, thread: ThreadId, generation: Generation) -> Standing {
        let roster = self.lock();
        let away_since = match roster.runners.get(id) {
            Some(Runner {
                link: Link::Attached { .. },
                held,
                ..
            }) => {
                let holds = held.get(&thread).is_some_and(|(_, held)| *held == generation);
                return if holds { Standing::Holds } else { Standing::Without };
            }
            Some(Runner {
                link: Link::Away { since },
                ..
            }) => *since,
            None => self.started,
        };
        if away_since.elapsed() >= self.lease {
            Standing::Lost
        } else {
            Standing::Away
        }
    }

    /// Whether the operating system confines what a runner executes as that kind; `None` of its kinds is meant: all of them.
    #[must_use]
    pub fn confines(&self, id: &RunnerId, kind: Option<&str>) -> bool {
        let roster = self.lock();
        let Some(runner) = roster.runners.get(id) else {
            return false;
        };
        let mut kinds = runner
            .offer
            .kinds
            .iter()
            .filter(|offered| kind.is_none_or(|kind| offered.kind == kind))
            .peekable();
        kinds.peek().is_some() && kinds.all(|offered| offered.enforces_read_only)
    }

    /// Starts a thread.
    pub fn start(&self, id: &RunnerId, session: SessionId, start: pb::StartThread) {
        tracing::debug!(runner = %id, %session, thread = start.thread_id, "start");
        self.send(id, Message::StartThread(start));
    }

    /// Gives a thread that the runner has its next turn.
    pub fn deliver_turn(&self, id: &RunnerId, thread: ThreadId, generation: Generation, turn: pb::Turn) {
        self.send(
            id,
            Message::DeliverInput(pb::DeliverInput {
                command_id: format!("turn:{thread}:{generation}:{}", turn.turn),
                thread_id: thread.to_string(),
                generation: generation.get(),
                delivery: Some(pb::deliver_input::Delivery::Turn(turn)),
            }),
        );
    }

    /// Stops a running turn.
    pub fn interrupt(&self, id: &RunnerId, thread: ThreadId, generation: Generation, turn: Turn) {
        self.send(
            id,
            Message::Interrupt(pb::InterruptTurn {
                command_id: format!("interrupt:{thread}:{generation}:{turn}"),
                thread_id: thread.to_string(),
                generation: generation.get(),
                turn: turn.get(),
                reason: String::new(),
            }),
        );
    }

    /// Stops a thread's program.
    pub fn shut_down(&self, id: &RunnerId, thread: ThreadId, generation: Generation, policy: ClosePolicy) {
        let grace = match policy {
            ClosePolicy::Kill => Duration::ZERO,
            ClosePolicy::Terminate | ClosePolicy::FinishTurn => STOP_GRACE,
        };
        self.send(
            id,
            Message::Shutdown(pb::ShutdownThread {
                command_id: format!("shutdown:{thread}:{generation}"),
                thread_id: thread.to_string(),
                generation: generation.get(),
                close_policy: policy.number(),
                grace: ProtoDuration::try_from(grace).ok(),
                reason: String::from("closed"),
            }),
        );
    }

    /// A runner attached. An earlier stream of the same runner ends. Answers the new stream's number.
    pub(super) fn attach(
        &self,
        id: &RunnerId,
        offer: Offer,
        outbox: Outbox,
        held: HashMap<ThreadId, (SessionId, Generation)>,
    ) -> u64 {
        let mut roster = self.lock();
        roster.streams += 1;
        let stream = roster.streams;
        let runner = Runner {
            offer,
            link: Link::Attached { outbox, stream },
            held,
            full: false,
        };
        // The old outbox is dropped with the old entry, which ends its stream.
        roster.runners.insert(id.clone(), runner);
        drop(roster);
        self.announce();
        stream
    }

    /// A runner's stream ended, unless a newer one took its place. Its lease runs from now.
    pub(super) fn detach(&self, id: &RunnerId, stream: u64) {
        let mut roster = self.lock();
        if let Some(runner) = roster.runners.get_mut(id)
            && matches!(runner.link, Link::Attached { stream: present, .. } if present == stream)
        {
            runner.link = Link::Away { since: Instant::now() };
            drop(roster);
            self.announce();
            self.announce_after_lease();
        }
    }

    /// The session of an attempt that a runner has.
    pub(super) fn session_of(&self, id: &RunnerId, thread: ThreadId) -> Option<SessionId> {
        Some(self.lock().runners.get(id)?.held.get(&thread)?.0)
    }

    /// A runner does not take an attempt that it was given, `full` because it has no room.
    pub(super) fn turned_away(&self, id: &RunnerId, thread: ThreadId, full: bool) {
        if let Some(runner) = self.lock().runners.get_mut(id) {
            runner.held.remove(&thread);
            runner.full |= full;
        }
    }

    /// A runner that had no room is asked again at its next heartbeat: what filled it may not have been ours.
    pub(super) fn heartbeat(&self, id: &RunnerId) {
        let mut roster = self.lock();
        let was_full = roster
            .runners
            .get_mut(id)
            .is_some_and(|runner| std::mem::take(&mut runner.full));
        drop(roster);
        if was_full {
            self.announce();
        }
    }

    pub(super) fn send(&self, id: &RunnerId, message: Message) {
        let mut roster = self.lock();
        let Some(runner) = roster.runners.get_mut(id) else {
            return;
        };
        let Link::Attached { outbox, .. } = &runner.link else {
            return;
        };
        let response = pb::AttachResponse { message: Some(message) };
        if outbox.try_send(Ok(response)).is_err() {
            // It is gone or hopelessly behind. What it missed is owed still; it learns of it when it attaches anew.
            runner.link = Link::Away { since: Instant::now() };
            drop(roster);
            self.announce();
            self.announce_after_lease();
        }
    }

    fn announce(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    fn announce_after_lease(&self) {
        let (changes, lease) = (Arc::downgrade(&self.changes), self.lease);
        tokio::spawn(async move {
            tokio::time::sleep(lease).await;
            if let Some(changes) = changes.upgrade() {
                changes.send_modify(|version| *version += 1);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Roster> {
        // Every change to the roster is whole, so a panic elsewhere leaves it usable.
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    fn has_room(&self) -> bool {
        !self.full && (self.offer.capacity == 0 || self.held.len() < self.offer.capacity as usize)
    }

    fn fits(&self, need: &Need) -> bool {
        let attached = matches!(self.link, Link::Attached { .. });
        let has_room = self.has_room();
        let takes_session = self.offer.session.is_none_or(|only| only == need.session);
        let enforces = self
            .offer
            .kinds
            .iter()
            .any(|kind| (!need.read_only || kind.enforces_read_only) && (!need.restricted || kind.enforces_tools));
        attached && has_room && takes_session && enforces
    }
}
