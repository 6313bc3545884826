//! The log of a simulation and its checks.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use supervisor_core::{
    event::{Event, Recorded, ThreadEvent},
    evolve,
    ids::{Sequence, SessionId},
    state::session::Session,
};
use supervisor_log::{
    codec::{decode_record, event_to_pb},
    store::{EventStore as _, MemoryStore, limits::MAX_PAGE},
};
use supervisor_svc::convert::{self, View};
use troupe_proto::supervisor::v1::StatusKind;
use troupe_tests::{
    events::{assert_whole, statuses},
    tree::kind,
};

use crate::shared::{Acknowledged, Picture, Promise, SharedState};

/// The log of the one session of a simulation.
pub struct Log {
    pub session: SessionId,
    bytes: Vec<Vec<u8>>,
    pub records: Vec<Recorded>,
}

impl Log {
    /// Reads the log.
    pub fn of(store: &MemoryStore) -> Self {
        let sessions = store.sessions(None, MAX_PAGE).now_or_never().unwrap().unwrap();
        let [session] = sessions[..] else {
            panic!("one request_id created {} sessions", sessions.len());
        };
        let mut log = Self {
            session,
            bytes: Vec::new(),
            records: Vec::new(),
        };
        loop {
            let after = log.records.last().map_or(Sequence::ZERO, |recorded| recorded.sequence);
            let page = store.read(session, after, MAX_PAGE).now_or_never().unwrap().unwrap();
            if page.is_empty() {
                return log;
            }
            for stored in page {
                log.records.push(decode_record(session, &stored.bytes).unwrap());
                log.bytes.push(stored.bytes.to_vec());
            }
        }
    }

    /// Compares two logs, byte by byte.
    pub fn assert_same(&self, other: &Self) {
        let pairs = self.records.iter().zip(&other.records);
        for (place, (one, two)) in pairs.enumerate() {
            assert!(
                self.bytes[place] == other.bytes[place],
                "the logs differ at\n{one:?}\n{two:?}"
            );
        }
        assert_eq!(self.bytes.len(), other.bytes.len(), "one log is longer");
    }

    /// Checks that the log agrees with everything that the hosts of the simulation observed, and violates no rule.
    pub fn check(&self, shared: &SharedState) {
        self.assert_limits();
        self.assert_watched_once_in_order(shared);
        for picture in shared.pictures.borrow().iter() {
            self.assert_explains(picture);
        }
        self.assert_promises_kept(&shared.promises.borrow(), &shared.pictures.borrow()[0]);
        let violations = shared.violations.borrow();
        assert!(violations.is_empty(), "{}", violations.join("\n"));
        self.assert_effects_are_unique();
        let end = self.state_at(u64::MAX);
        assert!(end.closed, "the session is open");
        assert_eq!(end.open_count(), 0, "threads are open in a closed session");
    }

    /// Returns the state after the event with this sequence.
    pub fn state_at(&self, sequence: u64) -> Session {
        let states = self.states().take_while(|state| state.sequence.get() <= sequence);
        states.last().expect("the log has a beginning")
    }

    /// Returns the states after each event.
    pub fn states(&self) -> impl Iterator<Item = Session> {
        let mut session: Option<Session> = None;
        self.records.iter().map(move |recorded| {
            match &mut session {
                Some(session) => evolve::evolve(session, recorded),
                none => *none = evolve::open(self.session, recorded),
            }
            session.clone().expect("the first event opens the session")
        })
    }

    /// Checks that no state exceeds the session's limits.
    fn assert_limits(&self) {
        for state in self.states() {
            let (limits, at) = (state.settings.limits, state.sequence);
            let active = state.holding().len();
            assert!(active <= limits.max_threads as usize, "{active} are active at {at}");
            assert!(
                state.open_count() <= limits.max_open_threads as usize,
                "too many open threads at {at}"
            );
            assert!(
                state.total() <= limits.max_total_threads as usize,
                "too many threads at {at}"
            );
            for thread in state.in_spawn_order().filter(|thread| thread.status.kind().is_open()) {
                let id = thread.id;
                assert!(thread.spawned.depth <= limits.max_depth, "{id} is too deep at {at}");
                let parent = thread.spawned.parent.and_then(|parent| state.thread(parent));
                assert!(
                    parent.is_none_or(|parent| parent.status.kind().is_open()),
                    "{id} is open at {at} below a closed parent"
                );
            }
        }
    }

    /// Checks that the watcher received every event of the log once, in order, and no others, over all its streams. The
    /// events must be legal transitions, and every thread must end.
    fn assert_watched_once_in_order(&self, shared: &SharedState) {
        let seen = shared.seen.borrow();
        assert_whole(&seen);
        let logged = self.records.iter().map(|recorded| event_to_pb(self.session, recorded));
        for (seen, logged) in seen.iter().zip(logged) {
            assert_eq!(*seen, logged, "the watcher received a different event");
        }
        assert_eq!(seen.len(), self.records.len(), "the watcher missed the end");
        for (thread, status) in statuses(&seen) {
            assert_eq!(status, StatusKind::Shutdown, "{thread} has not ended");
        }
    }

    /// Checks that the answers of GetSession and ListActiveAgents match the log.
    fn assert_explains(&self, picture: &Picture) {
        let state = self.state_at(picture.session.sequence);
        assert_eq!(picture.session, convert::thread::session(&state));
        let threads = state.in_spawn_order();
        let threads: Vec<_> = threads
            .map(|thread| convert::thread::thread(&state, thread, View::default()))
            .collect();
        assert_eq!(picture.threads, threads);
    }

    /// Checks that acknowledged requests had their effect, and that every closing thread was closed before the
    /// session.
    fn assert_promises_kept(&self, promises: &[Acknowledged], quiet: &Picture) {
        for Acknowledged { promise, .. } in promises {
            match promise {
                Promise::Spawned { request_id, thread } => self.assert_effect(promise, request_id, thread, |event| {
                    matches!(event, ThreadEvent::Spawned(_))
                }),
                Promise::InputQueued {
                    request_id,
                    thread,
                    number: promised,
                } => self.assert_effect(
                    promise,
                    request_id,
                    thread,
                    |event| matches!(event, ThreadEvent::InputQueued { number, .. } if number.get() == *promised),
                ),
                Promise::Noted { request_id, thread } => self.assert_effect(
                    promise,
                    request_id,
                    thread,
                    |event| matches!(event, ThreadEvent::NoteSet(note) if note == request_id),
                ),
                Promise::Closing { thread, .. } => {
                    let found = quiet.threads.iter().find(|found| found.thread_id == *thread);
                    let status = found.map(kind);
                    assert_eq!(status, Some(StatusKind::Shutdown), "{promise:?} was not kept");
                }
            }
        }
    }

    /// Checks that a request had its effect on a thread exactly once.
    fn assert_effect(
        &self,
        promise: &Promise,
        request_id: &str,
        thread: &str,
        is_effect: impl Fn(&ThreadEvent) -> bool,
    ) {
        let effects = self.records.iter().filter(|recorded| {
            let of_request = recorded.metadata.request_id.as_deref() == Some(request_id);
            let on_thread = matches!(
                &recorded.event,
                Event::Thread(id, event) if id.to_string() == thread && is_effect(event)
            );
            of_request && on_thread
        });
        assert_eq!(effects.count(), 1, "{promise:?} was not kept, or kept twice");
    }

    /// Checks that each request had each effect at most once, regardless of retries and lost responses.
    fn assert_effects_are_unique(&self) {
        let mut effects: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for recorded in &self.records {
            let request_id = recorded.metadata.request_id.as_deref();
            let (Some(request_id), Event::Thread(_, event)) = (request_id, &recorded.event) else {
                continue;
            };
            let effect = match event {
                ThreadEvent::Spawned(_) => "spawned",
                ThreadEvent::InputQueued { .. } => "queued input",
                ThreadEvent::NoteSet(_) => "set a note",
                ThreadEvent::CloseRequested(_) => "closed",
                // Other events are caused by the events above, or may be repeated: an interrupt affects a whole
                // subtree.
                _ => continue,
            };
            *effects.entry((request_id, effect)).or_default() += 1;
        }
        for ((request_id, effect), times) in effects {
            assert_eq!(times, 1, "\"{request_id}\" {effect} {times} times");
        }
    }
}
