//! Snapshots for watchers, in encoded parts. Watchers of a whole session that start at about the same time share one
//! snapshot, so many simultaneous reconnects cost a single walk over the tree.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;
use troupe_proto::supervisor::v1::{self as pb, watch_threads_response::Message};

use crate::{
    convert::{self, Redaction},
    domain::{
        ids::{Sequence, SessionId, ThreadId},
        state::{session::Session, thread::Thread},
    },
    projections::thread_view::ThreadView,
};

/// Maximum number of threads per part.
pub(crate) const CHUNK_THREADS: usize = 256;

/// Maximum size of a part, in bytes. A single thread must not exceed it.
pub(crate) const CHUNK_BYTES: usize = 512 * 1024;

/// How long a snapshot is shared while nothing is appended. It expires because it also shows values without events,
/// such as whether a runner is connected.
const SHARED_FOR: Duration = Duration::from_millis(250);

/// The contents of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The top of the subtree; `None`: the whole session.
    pub top: Option<ThreadId>,
    /// Closed threads too.
    pub include_closed: bool,
    /// Which texts are visible.
    pub redaction: Redaction,
}

/// The newest snapshot of each session, for as long as it is shared. Cheap to clone.
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
        if let Some(newest) = self.lock().get(&state.id).filter(is_current) {
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
            let mut all = self.lock();
            all.retain(|_, newest| newest.made.elapsed() < SHARED_FOR);
            all.insert(state.id, newest);
        }
        parts
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Newest>> {
        // Each change is a single call, so the map stays consistent after a panic elsewhere.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make(log_id: &str, threads_view: &ThreadView, state: &Session, shown: Shown) -> Vec<Bytes> {
    let view = convert::View {
        redaction: shown.redaction,
        ..convert::View::default()
    };
    let mut chunk = pb::Snapshot {
        session: Some(shown.redaction.session(convert::thread::session(state))),
        log_id: log_id.to_owned(),
        ..pb::Snapshot::default()
    };
    let mut parts = Vec::new();
    let mut bytes = chunk.encoded_len();
    for thread in threads(state, shown) {
        let thread = threads_view.show(state, thread, view);
        let size = delimited_len(thread.encoded_len());
        if chunk.threads.len() >= CHUNK_THREADS || (bytes + size > CHUNK_BYTES && !chunk.threads.is_empty()) {
            let next = pb::Snapshot {
                log_id: log_id.to_owned(),
                ..pb::Snapshot::default()
            };
            bytes = next.encoded_len();
            parts.push(encoded(state, std::mem::replace(&mut chunk, next)));
        }
        bytes += size;
        chunk.threads.push(thread);
    }
    chunk.last = true;
    parts.push(encoded(state, chunk));
    parts
}

/// Returns the encoded size of an embedded message: the message with its tag and length prefix.
fn delimited_len(size: usize) -> usize {
    1 + prost::length_delimiter_len(size) + size
}

/// Parents before children.
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

fn encoded(state: &Session, part: pb::Snapshot) -> Bytes {
    let message = pb::WatchThreadsResponse {
        sequence: state.sequence.get(),
        message: Some(Message::Snapshot(part)),
    };
    message.encode_to_vec().into()
}
