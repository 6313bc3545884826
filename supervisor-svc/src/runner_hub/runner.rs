//! One runner as the roster knows it: its stream, what it offers, and the attempts that it has.

use std::collections::BTreeMap;

use tokio::{sync::mpsc, time::Instant};
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::need::{Need, Offer};
use crate::domain::ids::{Generation, SessionId, ThreadId};

/// The way to a runner's stream.
pub(super) type Outbox = mpsc::Sender<Result<pb::AttachResponse, Status>>;

/// Whether a runner can be reached.
#[derive(Debug)]
pub(super) enum Link {
    /// On this stream.
    Attached { outbox: Outbox, stream: u64 },
    /// Not since then; its lease runs.
    Away { since: Instant },
}

/// An attempt that a runner has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub session: SessionId,
    pub generation: Generation,
    /// When something was last heard of it.
    last_word: Instant,
    program: Program,
}

/// What the program of an attempt is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// A turn is under way, or on its way.
    AtWork,
    /// It waits for its thread's next turn.
    Resting { since: Instant },
    /// It was asked to stop although its thread is open, so that this thread has its place, if for anybody's sake.
    Leaving { place_for: Option<ThreadId> },
}

impl Held {
    /// An attempt that was just given to a runner, or that a runner came back with: idle if its thread waits for no turn.
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

/// A runner.
#[derive(Debug)]
pub(super) struct Runner {
    pub offer: Offer,
    pub link: Link,
    held: BTreeMap<ThreadId, Held>,
    /// It said that it has no room; forgotten when something of it ends, and at its next heartbeat.
    is_full: bool,
    /// It takes no more threads.
    is_draining: bool,
    /// Somebody was turned away for want of room while every program was at work: to be told of the first that rests.
    is_wanted: bool,
}

impl Runner {
    /// A runner that attached with these attempts. What was heard of them on `earlier` streams counts.
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

    /// Whether it is attached on that stream.
    pub fn is_on(&self, stream: u64) -> bool {
        matches!(self.link, Link::Attached { stream: present, .. } if present == stream)
    }

    /// Whether it is attached and takes threads like this, were there room.
    pub fn would_fit(&self, need: &Need<'_>) -> bool {
        let attached = matches!(self.link, Link::Attached { .. });
        attached && !self.is_draining && self.offer.is_for(need) && self.offer.enforces(need)
    }

    /// Whether it has room for one program more.
    pub fn has_room(&self) -> bool {
        !self.is_full && (self.offer.capacity == 0 || self.held.len() < self.offer.capacity as usize)
    }

    /// How many programs it keeps.
    pub fn load(&self) -> usize {
        self.held.len()
    }

    /// An attempt, if it has it.
    pub fn held(&self, thread: ThreadId, generation: Generation) -> Option<&Held> {
        self.held.get(&thread).filter(|held| held.generation == generation)
    }

    fn held_mut(&mut self, thread: ThreadId, generation: Generation) -> Option<&mut Held> {
        self.held.get_mut(&thread).filter(|held| held.generation == generation)
    }

    /// It is given an attempt.
    pub fn take(&mut self, thread: ThreadId, held: Held) {
        self.held.insert(thread, held);
    }

    /// It does not take an attempt that it was given. Answers whether somebody may be glad of the room.
    pub fn turn_away(&mut self, thread: ThreadId, generation: Generation, is_full: bool) -> bool {
        let had_room = self.has_room();
        if self.held(thread, generation).is_some() {
            self.held.remove(&thread);
        }
        self.is_full |= is_full;
        !had_room && self.has_room()
    }

    /// It has an attempt no more. Answers whether somebody may be glad of the room.
    pub fn release(&mut self, thread: ThreadId, generation: Generation) -> bool {
        if self.held(thread, generation).is_none() {
            return false;
        }
        // Only who was turned away before needs to hear that there is room now.
        let had_room = self.has_room();
        self.held.remove(&thread);
        self.is_full = false;
        !had_room
    }

    /// It may have room again. Answers whether that is news.
    pub fn ask_again(&mut self) -> bool {
        std::mem::take(&mut self.is_full)
    }

    // ---- words ----

    /// Something was heard of an attempt. Answers its session.
    pub fn heard(&mut self, thread: ThreadId, generation: Generation) -> Option<SessionId> {
        let held = self.held_mut(thread, generation)?;
        held.last_word = Instant::now();
        Some(held.session)
    }

    /// When something was last heard of an attempt; `None` if it is not here, or nothing can be heard.
    pub fn last_word(&self, thread: ThreadId, generation: Generation) -> Option<Instant> {
        let attached = matches!(self.link, Link::Attached { .. });
        self.held(thread, generation)
            .filter(|_| attached)
            .map(|held| held.last_word)
    }

    // ---- programs that rest ----

    /// The program of an attempt goes on with its thread's next turn, unless it is gone or leaves.
    pub fn take_up(&mut self, thread: ThreadId, generation: Generation) -> bool {
        match self.held_mut(thread, generation) {
            Some(held) if !matches!(held.program, Program::Leaving { .. }) => {
                held.program = Program::AtWork;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The turn of an attempt is over, and its program has nothing to do.
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

    /// The program that has rested longest, and since when.
    pub fn longest_at_rest(&self) -> Option<(ThreadId, Instant)> {
        let resting = self.held.iter().filter_map(|(thread, held)| match held.program {
            Program::Resting { since } => Some((*thread, since)),
            Program::AtWork | Program::Leaving { .. } => None,
        });
        resting.min_by_key(|(_, since)| *since)
    }

    /// Whether a program leaves already so that this thread has its place.
    pub fn makes_place_for(&self, thread: ThreadId) -> bool {
        let place = Program::Leaving {
            place_for: Some(thread),
        };
        self.held.values().any(|held| held.program == place)
    }

    /// A program at rest has to leave. Answers its attempt.
    pub fn dismiss(&mut self, thread: ThreadId, place_for: Option<ThreadId>) -> Option<Generation> {
        let held = self.held.get_mut(&thread)?;
        held.program = Program::Leaving { place_for };
        Some(held.generation)
    }

    /// Somebody found no room here, and no program at rest.
    pub fn want_place(&mut self) {
        self.is_wanted = true;
    }

    /// It takes no more threads. Answers the attempts whose programs rest: they have to leave.
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

/// What becomes of a program that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtRest {
    /// It waits for its thread's next turn.
    Stays,
    /// It waits, and somebody waits for its place.
    Wanted,
    /// It has to leave at once.
    Leaves,
}
