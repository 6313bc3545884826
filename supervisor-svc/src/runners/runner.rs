//! A runner's roster entry: its stream, its offer and the attempts that it holds.

use std::{collections::BTreeMap, time::Duration};

use tokio::{sync::mpsc, time::Instant};
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::placement::{Need, Offer};
use crate::domain::ids::{Generation, RunnerId, SessionId, ThreadId};

/// The sender of a runner's stream.
pub(super) type Outbox = mpsc::Sender<Result<pb::AttachResponse, Status>>;

/// The connection state of a runner.
#[derive(Debug)]
pub(super) enum Link {
    /// Connected by this stream.
    Attached { outbox: Outbox, stream: u64 },
    /// Disconnected since this time, within its lease.
    Disconnected { since: Instant },
}

/// An attempt that a runner holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub session: SessionId,
    pub generation: Generation,
    /// The time of the last activity.
    last_activity: Instant,
    program: Program,
}

/// The state of an attempt's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// A turn is running or was sent.
    Busy,
    /// The program waits for its thread's next turn.
    Idle { since: Instant },
    /// The program received a stop although its thread is open. `slot_for` is the thread that waits for the
    /// program's slot, if any.
    Stopping { slot_for: Option<ThreadId> },
}

impl Attempt {
    /// Creates an entry for an attempt that was just assigned or that a returning runner holds. `is_idle` means that no
    /// turn is in progress.
    pub fn new(session: SessionId, generation: Generation, is_idle: bool) -> Self {
        let now = Instant::now();
        Self {
            session,
            generation,
            last_activity: now,
            program: if is_idle {
                Program::Idle { since: now }
            } else {
                Program::Busy
            },
        }
    }
}

/// A runner and its attempts.
#[derive(Debug)]
pub(super) struct Runner {
    pub offer: Offer,
    pub link: Link,
    held: BTreeMap<ThreadId, Attempt>,
    /// The runner reported that it has no free slot. Reset when one of its attempts ends, and at its next heartbeat.
    is_full: bool,
    /// The runner takes no more threads.
    is_draining: bool,
    /// When the hello of its present stream arrived. A session that this supervisor took over later may have attempts
    /// of the runner that were not reviewed.
    pub attached_at: Instant,
    /// Whether the supervisor has asked the runner to attach again.
    pub is_recalled: bool,
    /// A thread found no slot while every program was busy, so the next idle program must be announced.
    slot_requested: bool,
}

impl Runner {
    /// Creates an attached runner with these attempts. Keeps the last activity of attempts that its `earlier` entry
    /// held.
    pub fn new(
        offer: Offer,
        link: Link,
        attached_at: Instant,
        mut held: BTreeMap<ThreadId, Attempt>,
        earlier: Option<&Self>,
    ) -> Self {
        for (thread, held) in &mut held {
            if let Some(before) = earlier.and_then(|earlier| earlier.held(*thread, held.generation)) {
                held.last_activity = before.last_activity;
            }
        }
        Self {
            offer,
            link,
            held,
            is_full: false,
            is_draining: false,
            attached_at,
            is_recalled: false,
            slot_requested: false,
        }
    }

    /// Returns the runner as clients see it; `None` if its lease has expired.
    pub fn shown(&self, id: &RunnerId, lease: Duration) -> Option<pb::Runner> {
        let state = match self.link {
            Link::Attached { .. } if self.is_draining => pb::RunnerState::Draining,
            Link::Attached { .. } => pb::RunnerState::Attached,
            Link::Disconnected { since } if since.elapsed() < lease => pb::RunnerState::Disconnected,
            Link::Disconnected { .. } => return None,
        };
        let count = |programs: usize| u32::try_from(programs).unwrap_or(u32::MAX);
        let working = self.held.values().filter(|held| held.program == Program::Busy);
        Some(pb::Runner {
            runner_id: id.to_string(),
            state: state.into(),
            kinds: self.offer.kinds.clone(),
            labels: self.offer.labels.clone(),
            capacity: self.offer.capacity,
            programs: count(self.held.len()),
            working: count(working.count()),
            session_id: self.session().map(|session| session.to_string()).unwrap_or_default(),
        })
    }

    pub const fn is_attached(&self) -> bool {
        matches!(self.link, Link::Attached { .. })
    }

    /// Returns whether the runner is attached by this stream.
    pub fn is_on(&self, stream: u64) -> bool {
        matches!(self.link, Link::Attached { stream: present, .. } if present == stream)
    }

    /// Returns whether the runner is attached and accepts such threads, ignoring its free slots.
    pub fn suits(&self, need: &Need<'_>) -> bool {
        self.is_attached() && !self.is_draining && self.offer.is_for(need) && self.offer.enforces(need)
    }

    /// Returns the only session whose threads the runner takes; `None` if it takes threads of any session.
    pub fn session(&self) -> Option<SessionId> {
        let of_first_thread = || self.held.values().next().map(|held| held.session);
        self.offer
            .session
            .or_else(|| self.offer.is_single_use.then(of_first_thread).flatten())
    }

    /// Returns whether the runner has a slot for one more program of this session.
    pub fn has_free_slot(&self, session: SessionId) -> bool {
        self.has_room() && self.session().is_none_or(|only| only == session)
    }

    fn has_room(&self) -> bool {
        !self.is_full && (self.offer.capacity == 0 || self.held.len() < self.offer.capacity as usize)
    }

    /// Returns the runner's order among runners with a free slot: the lowest is chosen. If a session has several
    /// runners for single use, they are filled one after another.
    pub fn priority(&self) -> (bool, usize) {
        let load = self.held.len();
        if self.offer.is_single_use && self.session().is_some() {
            (false, usize::MAX - load)
        } else {
            (true, load)
        }
    }

    /// Makes a change. Returns whether a waiting thread may use a slot that was not free for it before.
    fn frees_slot(&mut self, change: impl FnOnce(&mut Self)) -> bool {
        let before = (self.has_room(), self.session());
        change(self);
        self.has_room() && before != (true, self.session())
    }

    /// Returns an attempt if the runner holds it.
    pub fn held(&self, thread: ThreadId, generation: Generation) -> Option<&Attempt> {
        self.held.get(&thread).filter(|held| held.generation == generation)
    }

    fn held_mut(&mut self, thread: ThreadId, generation: Generation) -> Option<&mut Attempt> {
        self.held.get_mut(&thread).filter(|held| held.generation == generation)
    }

    /// Assigns an attempt to the runner.
    pub fn take(&mut self, thread: ThreadId, held: Attempt) {
        self.held.insert(thread, held);
    }

    /// Removes an attempt that the runner rejected. Returns whether a waiting thread may use the slot.
    pub fn reject(&mut self, thread: ThreadId, generation: Generation, is_full: bool) -> bool {
        self.frees_slot(|runner| {
            if runner.held(thread, generation).is_some() {
                runner.held.remove(&thread);
            }
            runner.is_full |= is_full;
        })
    }

    /// Removes an attempt. Returns whether a waiting thread may use the slot.
    pub fn release(&mut self, thread: ThreadId, generation: Generation) -> bool {
        if self.held(thread, generation).is_none() {
            return false;
        }
        self.frees_slot(|runner| {
            runner.held.remove(&thread);
            runner.is_full = false;
        })
    }

    /// Assumes that the runner has a free slot again. Returns whether this is a change.
    pub fn clear_full(&mut self) -> bool {
        std::mem::take(&mut self.is_full)
    }

    // ---- activity ----

    /// Records activity of an attempt. Returns its session.
    pub fn record_activity(&mut self, thread: ThreadId, generation: Generation) -> Option<SessionId> {
        let held = self.held_mut(thread, generation)?;
        held.last_activity = Instant::now();
        Some(held.session)
    }

    /// Returns the time of an attempt's last activity; `None` if the runner is disconnected or does not hold the
    /// attempt.
    pub fn last_activity(&self, thread: ThreadId, generation: Generation) -> Option<Instant> {
        let held = self.held(thread, generation).filter(|_| self.is_attached());
        held.map(|held| held.last_activity)
    }

    // ---- idle programs ----

    /// Marks the program of an attempt as busy with the next turn. Returns false if the program has ended or is
    /// stopping.
    pub fn resume(&mut self, thread: ThreadId, generation: Generation) -> bool {
        match self.held_mut(thread, generation) {
            Some(held) if !matches!(held.program, Program::Stopping { .. }) => {
                held.program = Program::Busy;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Marks the program of an attempt as idle after a turn.
    pub fn set_idle(&mut self, thread: ThreadId, generation: Generation) -> IdleAction {
        let is_draining = self.is_draining;
        let Some(held) = self.held_mut(thread, generation) else {
            return IdleAction::Keep;
        };
        match held.program {
            Program::Busy if is_draining => {
                held.program = Program::Stopping { slot_for: None };
                IdleAction::Stop
            }
            Program::Busy => {
                held.program = Program::Idle { since: Instant::now() };
                if std::mem::take(&mut self.slot_requested) {
                    IdleAction::Announce
                } else {
                    IdleAction::Keep
                }
            }
            Program::Idle { .. } | Program::Stopping { .. } => IdleAction::Keep,
        }
    }

    /// Returns the thread whose program has been idle longest, and since when. Returns `None` if no program is idle,
    /// and for a runner for single use, because such a runner ends with its last program.
    pub fn longest_idle(&self) -> Option<(ThreadId, Instant)> {
        if self.offer.is_single_use {
            return None;
        }
        let idle = self.held.iter().filter_map(|(thread, held)| match held.program {
            Program::Idle { since } => Some((*thread, since)),
            Program::Busy | Program::Stopping { .. } => None,
        });
        idle.min_by_key(|(_, since)| *since)
    }

    /// Returns whether a program is already stopping to free its slot for this thread.
    pub fn is_freeing_slot_for(&self, thread: ThreadId) -> bool {
        let stopping = Program::Stopping { slot_for: Some(thread) };
        self.held.values().any(|held| held.program == stopping)
    }

    /// Marks an idle program as stopping. Returns its attempt.
    pub fn stop(&mut self, thread: ThreadId, slot_for: Option<ThreadId>) -> Option<Generation> {
        let held = self.held.get_mut(&thread)?;
        held.program = Program::Stopping { slot_for };
        Some(held.generation)
    }

    /// Records that a thread found neither a free slot nor an idle program.
    pub fn request_slot(&mut self) {
        self.slot_requested = true;
    }

    /// Marks the runner as draining. Returns the attempts whose programs are idle and must stop.
    pub fn drain(&mut self) -> Vec<(ThreadId, Generation)> {
        self.is_draining = true;
        let mut leaving = Vec::new();
        for (thread, held) in &mut self.held {
            if matches!(held.program, Program::Idle { .. }) {
                held.program = Program::Stopping { slot_for: None };
                leaving.push((*thread, held.generation));
            }
        }
        leaving
    }
}

/// The action for a program that became idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// The program waits for its thread's next turn.
    Keep,
    /// The program waits, and another thread needs its slot.
    Announce,
    /// The program must stop immediately.
    Stop,
}
