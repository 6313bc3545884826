//! The followed sessions, folded from the updates of the feed.

use std::{collections::HashMap, time::SystemTime};

use troupe_proto::supervisor::v1::{
    ConditionKind, Group, Session, StatusKind, Thread, Usage, WatchThreadsResponse, event::Kind,
    watch_threads_response::Message,
};

use super::rate::Rate;
use crate::{follow::SessionsUpdate, session_view::SessionView, ui};

/// Maximum number of stored closed threads of a session. Above the maximum, all of them are removed.
const MAX_CLOSED_THREADS: usize = 256;
/// Maximum number of stored closed sessions.
const MAX_CLOSED_SESSIONS: usize = 20;

/// A part of a session to read again, because the events do not contain its new state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reread {
    /// A thread of a session.
    Thread { session: String, thread: String },
    /// A group of a session.
    Group { session: String, group: String },
}

/// The state of a session's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// The watch has not been opened yet.
    New,
    /// The watch is open.
    Live,
    /// The watch lost its connection, and reconnects.
    Interrupted,
    /// The supervisor rejects the watch.
    Rejected,
}

/// A followed session.
#[derive(Debug)]
pub(super) struct Followed {
    /// The session with its newest roll-up.
    pub(super) info: Session,
    /// The threads, approvals and groups.
    pub(super) view: SessionView,
    /// The state of the watch.
    pub(super) link: Link,
    /// The number of threads that were closed since closed threads were last removed.
    closed: usize,
}

impl Followed {
    /// Returns the session with its newest settings.
    pub(super) fn session(&self) -> &Session {
        self.view.session().unwrap_or(&self.info)
    }

    /// Returns the recorded usage of all threads.
    pub(super) fn spent(&self) -> Usage {
        let roll_up = self.info.roll_up.as_ref();
        roll_up.and_then(|roll_up| roll_up.usage).unwrap_or_default()
    }

    /// Returns whether the session is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.info.closed || self.view.is_closed()
    }
}

/// A lost connection.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// The error.
    pub(super) why: String,
    /// When it was lost.
    pub(super) since: SystemTime,
}

/// Sums over all open sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) sessions: usize,
    pub(super) threads: usize,
    pub(super) running: usize,
    pub(super) queued: usize,
    pub(super) approvals: usize,
    pub(super) stalled: usize,
    pub(super) slots: u32,
    pub(super) tokens: u64,
    pub(super) cost_micros: u64,
}

/// The sessions, ordered by id, and the rates at which they use tokens and money.
#[derive(Debug, Default)]
pub(super) struct Model {
    sessions: Vec<Followed>,
    is_synced: bool,
    lost: Option<Lost>,
    tokens: Rate,
    cost: Rate,
    thread_tokens: HashMap<String, Rate>,
}

impl Model {
    /// Applies an update. Returns the parts that have to be read again.
    pub(super) fn apply(&mut self, update: SessionsUpdate<WatchThreadsResponse>, now: SystemTime) -> Vec<Reread> {
        match update {
            SessionsUpdate::Message(id, message) => return self.apply_message(&id, &message, now),
            SessionsUpdate::Session(message) => {
                self.lost = None;
                self.is_synced |= message.synced;
                if let Some(session) = message.session {
                    self.put_session(session, message.removed);
                }
            }
            SessionsUpdate::Opened(id) => self.set_link(&id, Link::Live),
            SessionsUpdate::Interrupted(id) => self.set_link(&id, Link::Interrupted),
            SessionsUpdate::Unfollowed(id, _) => self.set_link(&id, Link::Rejected),
            SessionsUpdate::Deleted(id) => {
                if let Ok(place) = self.place(&id) {
                    self.sessions.remove(place);
                }
            }
            SessionsUpdate::Lost(why) => {
                let since = self.lost.as_ref().map_or(now, |lost| lost.since);
                self.lost = Some(Lost { why, since });
            }
        }
        Vec::new()
    }

    /// Adds or replaces a thread that was read.
    pub(super) fn put_thread(&mut self, thread: Thread) {
        if let Some(followed) = self.followed_mut(&thread.session_id) {
            followed.view.put_read_thread(thread);
        }
    }

    /// Replaces a group that was read.
    pub(super) fn put_group(&mut self, group: Group) {
        if let Some(followed) = self.followed_mut(&group.session_id) {
            followed.view.put_read_group(group);
        }
    }

    /// Returns the sessions, the oldest first.
    pub(super) fn sessions(&self) -> &[Followed] {
        &self.sessions
    }

    /// Returns a session by its id.
    pub(super) fn followed(&self, id: &str) -> Option<&Followed> {
        self.sessions.get(self.place(id).ok()?)
    }

    /// Returns whether every session that was open at the start is completely known or cannot be followed.
    pub(super) fn is_synced(&self) -> bool {
        let is_known = |followed: &Followed| {
            followed.view.is_complete() || followed.is_closed() || followed.link == Link::Rejected
        };
        self.is_synced && self.sessions.iter().all(is_known)
    }

    /// Returns the lost connection, or `None` if the connection is live.
    pub(super) const fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Returns the rate at which all sessions use tokens.
    pub(super) const fn tokens(&self) -> &Rate {
        &self.tokens
    }

    /// Returns the rate at which all sessions cause cost, in millionths of the currency.
    pub(super) const fn cost(&self) -> &Rate {
        &self.cost
    }

    /// Returns the rate at which a thread uses tokens.
    pub(super) fn tokens_of(&self, thread: &str) -> Option<&Rate> {
        self.thread_tokens.get(thread)
    }

    /// Counts the open sessions and their threads.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for followed in self.sessions.iter().filter(|followed| !followed.is_closed()) {
            totals.sessions += 1;
            totals.approvals += followed.view.approvals().len();
            let limits = followed.session().limits.unwrap_or_default();
            totals.slots = totals.slots.saturating_add(limits.max_threads.unwrap_or_default());
            let (mut live_tokens, mut live_cost) = (0_u64, 0_u64);
            for thread in followed.view.threads() {
                let kind = ui::status_of(thread);
                totals.threads += usize::from(kind != StatusKind::Shutdown);
                let is_active = matches!(kind, StatusKind::PendingInit | StatusKind::Running);
                // The root holds no slot.
                totals.running += usize::from(is_active && thread.depth > 0);
                totals.queued += usize::from(kind == StatusKind::Queued);
                totals.stalled += usize::from(is_stalled(thread));
                let usage = thread.usage.unwrap_or_default();
                live_tokens = live_tokens.saturating_add(tokens(&usage));
                live_cost = live_cost.saturating_add(usage.cost_micros);
            }
            // The roll-up includes closed threads, the sum of the threads includes running turns. The larger of both
            // values counts.
            let recorded = followed.spent();
            totals.tokens = totals.tokens.saturating_add(live_tokens.max(tokens(&recorded)));
            totals.cost_micros = totals.cost_micros.saturating_add(live_cost.max(recorded.cost_micros));
        }
        totals
    }

    fn place(&self, id: &str) -> Result<usize, usize> {
        self.sessions
            .binary_search_by(|followed| followed.info.session_id.as_str().cmp(id))
    }

    fn followed_mut(&mut self, id: &str) -> Option<&mut Followed> {
        let place = self.place(id).ok()?;
        self.sessions.get_mut(place)
    }

    fn set_link(&mut self, id: &str, link: Link) {
        if let Some(followed) = self.followed_mut(id) {
            followed.link = link;
        }
    }

    fn put_session(&mut self, session: Session, is_removed: bool) {
        match self.place(&session.session_id) {
            Ok(place) if is_removed && !session.closed => {
                self.sessions.remove(place);
            }
            Ok(place) => {
                if let Some(followed) = self.sessions.get_mut(place) {
                    followed.info = session;
                }
            }
            Err(_) if is_removed => {}
            Err(place) => {
                let followed = Followed {
                    info: session,
                    view: SessionView::default(),
                    link: Link::New,
                    closed: 0,
                };
                self.sessions.insert(place, followed);
            }
        }
        let closed = self.sessions.iter().filter(|followed| followed.is_closed()).count();
        if closed > MAX_CLOSED_SESSIONS
            && let Some(oldest) = self.sessions.iter().position(Followed::is_closed)
        {
            self.sessions.remove(oldest);
        }
    }

    fn apply_message(&mut self, id: &str, message: &WatchThreadsResponse, now: SystemTime) -> Vec<Reread> {
        let thread = match &message.message {
            Some(Message::Event(event)) => event.thread_id.as_str(),
            Some(Message::Telemetry(telemetry)) => telemetry.thread_id.as_str(),
            _ => "",
        };
        let Some(followed) = self.followed_mut(id) else {
            return Vec::new();
        };
        followed.link = Link::Live;
        let before = usage_of(&followed.view, thread);
        followed.view.apply(message);
        let after = usage_of(&followed.view, thread);
        let unclear = followed.view.take_unclear();
        let is_end = matches!(&message.message, Some(Message::Event(event)) if matches!(event.kind, Some(Kind::ThreadClosed(_))));
        if is_end {
            followed.closed += 1;
        }
        if followed.closed > MAX_CLOSED_THREADS {
            followed.view.forget_closed();
            followed.closed = 0;
        }
        if let (Some(before), Some(after)) = (before, after) {
            self.count(thread, &before, &after, now);
        }
        if is_end {
            self.thread_tokens.remove(thread);
        }
        let threads = unclear.threads.into_iter().map(|thread| Reread::Thread {
            session: id.to_owned(),
            thread,
        });
        let groups = unclear.groups.into_iter().map(|group| Reread::Group {
            session: id.to_owned(),
            group,
        });
        threads.chain(groups).collect()
    }

    fn count(&mut self, thread: &str, before: &Usage, after: &Usage, now: SystemTime) {
        let used = tokens(after).saturating_sub(tokens(before));
        if used > 0 {
            self.tokens.add(used, now);
            self.thread_tokens.entry(thread.to_owned()).or_default().add(used, now);
        }
        let cost = after.cost_micros.saturating_sub(before.cost_micros);
        if cost > 0 {
            self.cost.add(cost, now);
        }
    }
}

/// Returns the number of tokens in a usage, read and written.
pub(super) const fn tokens(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

fn usage_of(view: &SessionView, thread: &str) -> Option<Usage> {
    view.thread(thread).map(|thread| thread.usage.unwrap_or_default())
}

fn is_stalled(thread: &Thread) -> bool {
    thread
        .conditions
        .iter()
        .any(|condition| condition.kind() == ConditionKind::Stalled)
}
