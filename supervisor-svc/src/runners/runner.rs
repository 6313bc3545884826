//! A runner's roster entry: its stream, its offer and the attempts that it holds.

use std::collections::BTreeMap;

use tokio::{sync::mpsc, time::Instant};
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::placement::{Need, Offer};
use crate::domain::ids::{Generation, SessionId, ThreadId};

/// The sender of a runner's stream.
pub(super) type Outbox = mpsc::Sender<Result<pb::AttachResponse, Status>>;

/// The connection state of a runner.
#[derive(Debug)]
pub(super) enum Link {
    /// Connected by this stream.
    Attached { outbox: Outbox, stream: u64 },
    /// Disconnected since this time, within its lease.
    Away { since: Instant },
}

/// An attempt that a runner holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub session: SessionId,
    pub generation: Generation,
    /// The time of the last activity.
    last_word: Instant,
    program: Program,
}

/// The state of an attempt's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// A turn is running or was sent.
    AtWork,
    /// The program waits for its thread's next turn.
    Resting { since: Instant },
    /// The program was asked to stop although its thread is open. `place_for` is the thread that waits for its slot, if
    /// any.
    Leaving { place_for: Option<ThreadId> },
}

impl Held {
    /// Creates an entry for an attempt that was just assigned or that a returning runner holds. `is_idle` means that no
    /// turn is in progress.
    pub fn new(session: SessionId, generation: Generation, is_idle: bool) -> Self {
        let now = Instant::now();
        Self {
            session,
            generation,
            last_word: now,
            program: if is_idle {
                Program::Resting { since: now }
            } else {
                Program::AtWork
            },
        }
    }
}

/// A runner and its attempts.
#[derive(Debug)]
pub(super) struct Runner {
    pub offer: Offer,
    pub link: Link,
    held: BTreeMap<ThreadId, Held>,
    /// The runner reported that it has no free slot. Reset when one of its attempts ends, and at its next heartbeat.
    is_full: bool,
    /// The runner takes no more threads.
    is_draining: bool,
    /// A thread found no slot while every program was busy, so the next idle program must be announced.
    is_wanted: bool,
}

impl Runner {
    /// Creates an attached runner with these attempts. Activity on `earlier` streams counts.
    pub fn new(offer: Offer, link: Link, mut held: BTreeMap<ThreadId, Held>, earlier: Option<&Self>) -> Self {
        for (thread, held) in &mut held {
            if let Some(before) = earlier.and_then(|earlier| earlier.held(*thread, held.generation)) {
                held.last_word = before.last_word;
            }
        }
        Self {
            offer,
            link,
            held,
            is_full: false,
            is_draining: false,
            is_wanted: false,
        }
    }

    /// Returns whether the runner is attached by this stream.
    pub fn is_on(&self, stream: u64) -> bool {
        matches!(self.link, Link::Attached { stream: present, .. } if present == stream)
    }

    /// Returns whether the runner is attached and accepts such threads, ignoring its free slots.
    pub fn would_fit(&self, need: &Need<'_>) -> bool {
        let attached = matches!(self.link, Link::Attached { .. });
        attached && !self.is_draining && self.offer.is_for(need) && self.offer.enforces(need)
    }

    /// Returns whether the runner has a slot for one more program.
    pub fn has_room(&self) -> bool {
        !self.is_full && (self.offer.capacity == 0 || self.held.len() < self.offer.capacity as usize)
    }

    /// Returns the number of programs.
    pub fn load(&self) -> usize {
        self.held.len()
    }

    /// Returns an attempt if the runner holds it.
    pub fn held(&self, thread: ThreadId, generation: Generation) -> Option<&Held> {
        self.held.get(&thread).filter(|held| held.generation == generation)
    }

    fn held_mut(&mut self, thread: ThreadId, generation: Generation) -> Option<&mut Held> {
        self.held.get_mut(&thread).filter(|held| held.generation == generation)
    }

    /// Assigns an attempt to the runner.
    pub fn take(&mut self, thread: ThreadId, held: Held) {
        self.held.insert(thread, held);
    }

    /// Removes an attempt that the runner rejected. Returns whether a waiting thread may use the slot.
    pub fn turn_away(&mut self, thread: ThreadId, generation: Generation, is_full: bool) -> bool {
        let had_room = self.has_room();
        if self.held(thread, generation).is_some() {
            self.held.remove(&thread);
        }
        self.is_full |= is_full;
        !had_room && self.has_room()
    }

    /// Removes an attempt. Returns whether a waiting thread may use the slot.
    pub fn release(&mut self, thread: ThreadId, generation: Generation) -> bool {
        if self.held(thread, generation).is_none() {
            return false;
        }
        // A free slot is announced only if there was none before.
        let had_room = self.has_room();
        self.held.remove(&thread);
        self.is_full = false;
        !had_room
    }

    /// Assumes that the runner has a free slot again. Returns whether this is a change.
    pub fn ask_again(&mut self) -> bool {
        std::mem::take(&mut self.is_full)
    }

    // ---- activity ----

    /// Records activity of an attempt. Returns its session.
    pub fn heard(&mut self, thread: ThreadId, generation: Generation) -> Option<SessionId> {
        let held = self.held_mut(thread, generation)?;
        held.last_word = Instant::now();
        Some(held.session)
    }

    /// Returns the time of an attempt's last activity; `None` if the runner does not hold it or is disconnected.
    pub fn last_word(&self, thread: ThreadId, generation: Generation) -> Option<Instant> {
        let attached = matches!(self.link, Link::Attached { .. });
        self.held(thread, generation)
            .filter(|_| attached)
            .map(|held| held.last_word)
    }

    // ---- idle programs ----

    /// Marks the program of an attempt as busy with the next turn. Returns false if it has ended or is stopping.
    pub fn take_up(&mut self, thread: ThreadId, generation: Generation) -> bool {
        match self.held_mut(thread, generation) {
            Some(held) if !matches!(held.program, Program::Leaving { .. }) => {
                held.program = Program::AtWork;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Marks the program of an attempt as idle after a turn.
    pub fn rest(&mut self, thread: ThreadId, generation: Generation) -> AtRest {
        let is_draining = self.is_draining;
        let Some(held) = self.held_mut(thread, generation) else {
            return AtRest::Stays;
        };
        match held.program {
            Program::AtWork if is_draining => {
                held.program = Program::Leaving { place_for: None };
                AtRest::Leaves
            }
            Program::AtWork => {
                held.program = Program::Resting { since: Instant::now() };
                if std::mem::take(&mut self.is_wanted) {
                    AtRest::Wanted
                } else {
                    AtRest::Stays
                }
            }
            Program::Resting { .. } | Program::Leaving { .. } => AtRest::Stays,
        }
    }

    /// Returns the thread whose program has been idle longest, and since when.
    pub fn longest_at_rest(&self) -> Option<(ThreadId, Instant)> {
        let resting = self.held.iter().filter_map(|(thread, held)| match held.program {
            Program::Resting { since } => Some((*thread, since)),
            Program::AtWork | Program::Leaving { .. } => None,
        });
        resting.min_by_key(|(_, since)| *since)
    }

    /// Returns whether a program is already stopping to free its slot for this thread.
    pub fn makes_place_for(&self, thread: ThreadId) -> bool {
        let place = Program::Leaving {
            place_for: Some(thread),
        };
        self.held.values().any(|held| held.program == place)
    }

    /// Marks an idle program as stopping. Returns its attempt.
    pub fn dismiss(&mut self, thread: ThreadId, place_for: Option<ThreadId>) -> Option<Generation> {
        let held = self.held.get_mut(&thread)?;
        held.program = Program::Leaving { place_for };
        Some(held.generation)
    }

    /// Records that a thread found neither a free slot nor an idle program.
    pub fn want_place(&mut self) {
        self.is_wanted = true;
    }

    /// Marks the runner as draining. Returns the attempts whose programs are idle and must stop.
    pub fn drain(&mut self) -> Vec<(ThreadId, Generation)> {
        self.is_draining = true;
        let mut leaving = Vec::new();
        for (thread, held) in &mut self.held {
            if matches!(held.program, Program::Resting { .. }) {
                held.program = Program::Leaving { place_for: None };
                leaving.push((*thread, held.generation));
            }
        }
        leaving
    }
}

/// The action for a program that became idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtRest {
    /// The program waits for its thread's next turn.
    Stays,
    /// The program waits, and another thread needs its slot.
    Wanted,
    /// The program must stop immediately.
    Leaves,
}
