//! The state of a session derived from its watched log alone, with the domain's fold.

use std::sync::Arc;

use supervisor_core::{
    event::{CloseCause, Event, EventMetadata, Recorded},
    evolve::{evolve, open},
    ids::{RunnerId, Sequence, ThreadId},
    state::{session::Session, thread::Thread},
};
use supervisor_log::codec::{event_from_pb, parts::time_from_pb};
use troupe_proto::{
    store::v1::Private,
    supervisor::v1::{self as pb, event::Kind},
};
use troupe_tests::{events, runner::Attempt};

use crate::{laws, script::Nth};

/// Tool names for the comparison of permissions, in addition to those of the laws: names that the roles of these
/// sessions distinguish.
const TOOLS: [&str; 4] = ["exec_command", "read_file", "set_thread_note", "wait"];

/// A log and the session derived from it.
pub struct Mirror {
    pub session: Session,
    pub log: Vec<pb::Event>,
    tools: Vec<String>,
}

impl Mirror {
    /// Creates the session from the first events of its log.
    pub fn open(id: &str, events: &[pb::Event]) -> Self {
        let (first, rest) = events.split_first().unwrap();
        let mut mirror = Self {
            session: open(id.parse().unwrap(), &recorded(first)).unwrap(),
            log: vec![first.clone()],
            tools: Vec::from(TOOLS.map(str::to_owned)),
        };
        mirror.fold(rest);
        mirror
    }

    /// Folds events up to the end of an append, and checks each event and the state after them against the invariants.
    pub fn fold(&mut self, events: &[pb::Event]) {
        let appended: Vec<Recorded> = events.iter().map(recorded).collect();
        let before = self.session.clone();
        for recorded in &appended {
            let earlier = self.session.clone();
            evolve(&mut self.session, recorded);
            assert_growth_within_limits(&earlier, &self.session);
        }
        self.log.extend_from_slice(events);
        laws::of_append(&before, &appended, &self.session, &self.tools);
        laws::of_state(&self.session);
    }

    /// Returns the sequence of the newest event.
    pub fn head(&self) -> u64 {
        self.session.sequence.get()
    }

    /// Returns the events after the first `known` whose actor is an operator or a thread.
    pub fn by_clients_since(&self, known: usize) -> Vec<&pb::Event> {
        let is_by_client = |event: &&pb::Event| ["operator:", "thread:"].iter().any(|who| event.actor.starts_with(who));
        self.log[known..].iter().filter(is_by_client).collect()
    }

    /// Returns the events after the first `known` whose actor is a runner.
    pub fn by_runners_since(&self, known: usize) -> Vec<&pb::Event> {
        let is_by_runner = |event: &&pb::Event| event.actor.starts_with("runner:");
        self.log[known..].iter().filter(is_by_runner).collect()
    }

    /// Returns the nth thread.
    pub fn nth(&self, nth: Nth) -> &Arc<Thread> {
        self.nth_of(nth, |_| true).unwrap()
    }

    /// Returns the nth of the chosen threads.
    pub fn nth_of(&self, nth: Nth, chosen: impl Fn(&Thread) -> bool) -> Option<&Arc<Thread>> {
        let found: Vec<&Arc<Thread>> = self.session.in_spawn_order().filter(|thread| chosen(thread)).collect();
        pick(&found, nth)
    }

    /// Returns the ids of all threads, parents before children.
    pub fn ids(&self) -> Vec<ThreadId> {
        self.session.in_spawn_order().map(|thread| thread.id).collect()
    }

    /// Returns the attempts that a runner holds, including idle ones.
    pub fn held_by(&self, runner: &str) -> Vec<Attempt> {
        let runner = RunnerId::new(runner);
        let is_held = |thread: &&Arc<Thread>| thread.status.kind().is_open() && thread.holder() == Some(&runner);
        let threads = self.session.in_spawn_order();
        threads.filter(is_held).map(|thread| attempt(thread)).collect()
    }
}

/// Returns the nth item, modulo the number of items; `None` if there are no items.
pub fn pick<T: Copy>(things: &[T], nth: Nth) -> Option<T> {
    things.get(usize::from(nth).checked_rem(things.len())?).copied()
}

/// Returns the current attempt of a thread.
pub fn attempt(thread: &Thread) -> Attempt {
    Attempt {
        thread: thread.id.to_string(),
        generation: thread.generation.get(),
        turn: thread.turn.number().get(),
    }
}

/// Returns the id of the object that an event created; `None` if the response to the request contains no id.
pub fn made_by(event: &pb::Event) -> Option<String> {
    match event.kind.as_ref().unwrap() {
        Kind::ThreadSpawned(_) => Some(event.thread_id.clone()),
        Kind::InputQueued(queued) => Some(format!("{}/{}", event.thread_id, queued.number)),
        Kind::HandoffSent(sent) => Some(sent.handoff.as_ref().unwrap().handoff_id.clone()),
        _ => None,
    }
}

/// Returns the name of an event's kind, for messages.
pub fn name(event: &Event) -> String {
    let shown = match event {
        Event::Session(event) => format!("{event:?}"),
        Event::Thread(_, event) => format!("{event:?}"),
    };
    let name = shown.split(|character: char| !character.is_alphanumeric()).next();
    name.unwrap_or_default().to_owned()
}

/// Converts a watched event to the domain. Sessions of these scripts have no fields that watchers do not receive.
fn recorded(event: &pb::Event) -> Recorded {
    let thread = (!event.thread_id.is_empty()).then(|| event.thread_id.parse().unwrap());
    let decoded = event_from_pb(thread, event.kind.clone().unwrap(), Private::default());
    Recorded {
        sequence: Sequence::new(event.sequence),
        time: time_from_pb(event.time.unwrap()).unwrap(),
        metadata: EventMetadata {
            actor: event.actor.parse().unwrap(),
            request_id: None,
            traceparent: None,
            cause: None,
            contents_left_out: false,
        },
        event: decoded.unwrap_or_else(|error| panic!("{} of the log: {error}", events::name(event))),
    }
}

/// Checks that an event does not increase the use of a limit beyond the limit.
fn assert_growth_within_limits(before: &Session, after: &Session) {
    let limits = &after.settings.limits;
    for (what, was, is, limit) in [
        (
            "max_threads",
            before.holding().len(),
            after.holding().len(),
            limits.max_threads,
        ),
        (
            "max_open_threads",
            open_of(before),
            open_of(after),
            limits.max_open_threads,
        ),
        (
            "max_total_threads",
            before.total(),
            after.total(),
            limits.max_total_threads,
        ),
    ] {
        assert!(
            is <= was || is <= limit as usize,
            "{what} {limit}: {is} after event {}, {was} before it",
            after.sequence
        );
    }
}

/// Returns the number of open threads, not counting evicted threads that are closing.
fn open_of(session: &Session) -> usize {
    let evicted = session
        .fenced()
        .filter(|(_, fence)| fence.cause == CloseCause::Eviction);
    session.open_count() - evicted.count()
}
