//! Snapshots for watchers, in encoded parts. Watchers of a whole session that start at about the same time share one
//! snapshot, so many simultaneous reconnects cost a single walk over the tree.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use svc_kit::lock::lock;
use tokio::time::Instant;
use troupe_proto::supervisor::v1::{self as pb, watch_threads_response::Message};

use super::encoded::encode;
use crate::{
    convert::{self, Redaction, approval::approval_to_pb},
    domain::{
        ids::{Sequence, SessionId, ThreadId},
        state::{approval::Approval, session::Session, thread::Thread},
    },
    projections::thread_view::ThreadView,
};

/// Maximum number of items per part.
pub(crate) const CHUNK_ITEMS: usize = 256;

/// Maximum size of a part, in bytes. A single item must not be larger.
pub(crate) const CHUNK_BYTES: usize = 512 * 1024;

/// How long a snapshot is shared while nothing is appended. It expires because it also shows values that change
/// without an event, such as whether a runner is connected.
const SHARED_FOR: Duration = Duration::from_millis(250);

/// The contents of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The top of the subtree; `None` selects the whole session.
    pub top: Option<ThreadId>,
    /// Whether closed threads are included.
    pub include_closed: bool,
    /// Which texts are visible.
    pub redaction: Redaction,
}

impl Shown {
    /// Returns whether the snapshot includes this thread and its data.
    fn shows(self, state: &Session, thread: ThreadId) -> bool {
        self.top.is_none_or(|top| state.is_within(thread, top))
    }
}

/// The newest snapshot of each session, while it is shared. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    // Locked for one look-up or one change, never across an await or while a snapshot is built. Bounded by the sessions
    // that were watched from the start within the sharing time.
    newest: Arc<Mutex<HashMap<SessionId, Newest>>>,
}

#[derive(Debug)]
struct Newest {
    sequence: Sequence,
    shown: Shown,
    made: Instant,
    parts: Arc<[Bytes]>,
}

impl Snapshots {
    /// Returns the parts of a snapshot of that state.
    pub(super) fn of(&self, log_id: &str, view: &ThreadView, state: &Session, shown: Shown) -> Arc<[Bytes]> {
        let is_current = |newest: &&Newest| {
            let is_same = newest.sequence == state.sequence && newest.shown == shown;
            is_same && newest.made.elapsed() < SHARED_FOR
        };
        if let Some(newest) = lock(&self.newest).get(&state.id).filter(is_current) {
            return Arc::clone(&newest.parts);
        }
        let parts: Arc<[Bytes]> = make(log_id, view, state, shown).into();
        if shown.top.is_none() {
            let newest = Newest {
                sequence: state.sequence,
                shown,
                made: Instant::now(),
                parts: Arc::clone(&parts),
            };
            let mut all = lock(&self.newest);
            all.retain(|_, newest| newest.made.elapsed() < SHARED_FOR);
            all.insert(state.id, newest);
        }
        parts
    }
}

/// An item of a snapshot.
enum Entry {
    Thread(Box<pb::Thread>),
    Approval(Box<pb::Approval>),
    Group(Box<pb::Group>),
}

impl Entry {
    fn size(&self) -> usize {
        let size = match self {
            Self::Thread(thread) => thread.encoded_len(),
            Self::Approval(approval) => approval.encoded_len(),
            Self::Group(group) => group.encoded_len(),
        };
        1 + prost::length_delimiter_len(size) + size
    }

    fn put_into(self, part: &mut pb::Snapshot) {
        match self {
            Self::Thread(thread) => part.threads.push(*thread),
            Self::Approval(approval) => part.approvals.push(*approval),
            Self::Group(group) => part.groups.push(*group),
        }
    }
}

fn make(log_id: &str, threads_view: &ThreadView, state: &Session, shown: Shown) -> Vec<Bytes> {
    let view = convert::View {
        redaction: shown.redaction,
        ..convert::View::default()
    };
    let mut part = pb::Snapshot {
        session: Some(shown.redaction.session(convert::thread::session(state))),
        log_id: log_id.to_owned(),
        ..pb::Snapshot::default()
    };
    let threads = threads(state, shown)
        .into_iter()
        .map(|thread| Entry::Thread(Box::new(threads_view.show(state, thread, view))));
    let approvals = approvals(state, shown)
        .into_iter()
        .map(|approval| Entry::Approval(Box::new(shown.redaction.approval(approval_to_pb(state, approval)))));
    let groups = state
        .open_groups()
        .filter(|group| shown.shows(state, group.parent))
        .map(|group| Entry::Group(Box::new(convert::group::group(state, group))));
    let mut parts = Vec::new();
    let mut bytes = part.encoded_len();
    let mut items = 0;
    for entry in threads.chain(approvals).chain(groups) {
        let size = entry.size();
        if items > 0 && (items >= CHUNK_ITEMS || bytes + size > CHUNK_BYTES) {
            let next = pb::Snapshot {
                log_id: log_id.to_owned(),
                ..pb::Snapshot::default()
            };
            bytes = next.encoded_len();
            items = 0;
            let full = std::mem::replace(&mut part, next);
            parts.push(encode(state.sequence, Message::Snapshot(full)));
        }
        bytes += size;
        items += 1;
        entry.put_into(&mut part);
    }
    part.last = true;
    parts.push(encode(state.sequence, Message::Snapshot(part)));
    parts
}

/// Returns the approvals that wait for a decision, oldest first.
fn approvals(state: &Session, shown: Shown) -> Vec<&Arc<Approval>> {
    let mut waiting: Vec<&Arc<Approval>> = state
        .pending_approvals()
        .filter(|approval| shown.shows(state, approval.thread))
        .collect();
    waiting.sort_by_key(|approval| approval.sequence);
    waiting
}

/// Returns the threads of the snapshot, parents before children.
fn threads(state: &Session, shown: Shown) -> Vec<&Arc<Thread>> {
    let mut threads: Vec<&Arc<Thread>> = match shown.top {
        None => state.in_spawn_order().collect(),
        Some(top) => {
            let mut subtree = state.subtree(top);
            subtree.sort_by_key(|thread| thread.spawn_sequence);
            subtree
        }
    };
    threads.retain(|thread| shown.include_closed || thread.status.kind().is_open());
    threads
}
