//! The log of one supervisor, over a connection that can fail.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use supervisor_core::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::TranscriptSource,
};
use supervisor_log::store::{
    Batch, Beat, Claim, Created, Creation, CreationKey, CursorKey, DatabaseInfo, Due, EventStore, Evidence, Head,
    LongText, MarkKind, Member, MemberId, MemoryStore, NewEntry, NewMember, PendingEntries, ReadError, Refusal,
    RequestKey, RequestRecord, SessionEntry, Snapshot, StoredEntry, StoredRecord, TranscriptQuery, WriteError,
};
use tokio::{sync::watch, time::sleep};
use troupe_tests::rng::Rng;
use uuid::Uuid;

/// The state of a connection to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Calls succeed after a short delay.
    Up,
    /// Some calls fail without an effect, immediately or after a while. Others arrive late.
    Down,
    /// Calls and their responses are delayed until the state changes.
    Held,
}

/// Maximum number of checks for the next owner of a session. An append that began while the connection was not up waits
/// for that owner.
const LATE_LOOKS: u32 = 500;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The connection of a supervisor to the log.
pub struct Link {
    state: watch::Sender<LinkState>,
    rng: Mutex<Rng>,
}

impl Link {
    /// Creates the connection of a host.
    pub fn new(seed: u64, host: &str) -> Self {
        Self {
            state: watch::Sender::new(LinkState::Up),
            rng: Mutex::new(Rng::new(seed, &format!("store of {host}"))),
        }
    }

    /// Changes the state of the connection.
    pub fn set(&self, state: LinkState) {
        self.state
            .send_if_modified(|present| std::mem::replace(present, state) != state);
    }

    fn is_up(&self) -> bool {
        *self.state.borrow() == LinkState::Up
    }

    /// Delays a call on its way to the log. Returns whether it arrives.
    async fn arrives(&self) -> bool {
        self.delay().await;
        let mut state = self.state.subscribe();
        let state = *state.wait_for(|state| *state != LinkState::Held).await.unwrap();
        if state == LinkState::Up {
            return true;
        }
        let (hangs, arrives) = {
            let mut rng = self.rng.lock().unwrap();
            match rng.below(4) {
                0 => (Duration::ZERO, false),
                1 => (rng.millis(0..=1_500), false),
                // The call was already on its way and arrives late.
                _ => (rng.millis(0..=3_500), true),
            }
        };
        sleep(hangs).await;
        arrives
    }

    /// Delays a response on its way from the log.
    async fn delay_response(&self) {
        self.delay().await;
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state != LinkState::Held).await;
    }

    async fn delay(&self) {
        let moment = {
            let mut rng = self.rng.lock().unwrap();
            if rng.one_in(8) {
                rng.millis(1..=8)
            } else {
                Duration::ZERO
            }
        };
        if !moment.is_zero() {
            sleep(moment).await;
        }
    }
}

/// The error of a call that had no effect.
trait Unreached {
    fn unreached() -> Self;
}

const CAUSE: &str = "the connection is cut";

impl Unreached for WriteError {
    fn unreached() -> Self {
        Refusal::Unreachable(String::from(CAUSE)).into()
    }
}

impl Unreached for ReadError {
    fn unreached() -> Self {
        Self::Engine(String::from(CAUSE))
    }
}

/// The log of one process.
pub struct MemberStore {
    store: MemoryStore,
    link: Arc<Link>,
}

impl MemberStore {
    /// Creates a log that is reached over a connection.
    pub fn new(store: MemoryStore, link: Arc<Link>) -> Self {
        Self { store, link }
    }
}

/// Defines methods that go over the connection.
macro_rules! over_the_link {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> Result<$output:ty, $error:ty>;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> BoxFuture<'_, Result<$output, $error>> {
            Box::pin(async move {
                if !self.link.arrives().await {
                    return Err(<$error>::unreached());
                }
                let result = self.store.$name($($argument),*).await;
                self.link.delay_response().await;
                result
            })
        })*
    };
}

impl EventStore for MemberStore {
    fn log_id(&self) -> Uuid {
        self.store.log_id()
    }

    fn member(&self) -> MemberId {
        self.store.member()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }

    /// No runner of a simulation sends transcripts.
    fn append_transcript(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
        session_bytes: u64,
    ) -> BoxFuture<'_, PendingEntries> {
        self.store.append_transcript(source, entries, session_bytes)
    }

    /// Delays an append that began while the connection was not up, until the session has its next owner or a maximum
    /// time is over.
    fn append(&self, batch: Batch) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            let was_up = self.link.is_up();
            if !self.link.arrives().await {
                return Err(WriteError::unreached());
            }
            for _ in 0..LATE_LOOKS {
                let head = self.store.head(batch.session).await;
                let is_over = !matches!(head, Ok(Some(head)) if head.epoch == batch.epoch);
                if was_up || is_over {
                    break;
                }
                sleep(LOOK_EVERY).await;
            }
            let result = self.store.append(batch).await;
            self.link.delay_response().await;
            result
        })
    }

    /// Takes longer than other calls, so that late appends of the previous owner arrive between the claim and its
    /// response.
    fn claim(&self, session: SessionId) -> BoxFuture<'_, Result<Claim, WriteError>> {
        Box::pin(async move {
            if !self.link.arrives().await {
                return Err(WriteError::unreached());
            }
            let result = self.store.claim(session).await;
            let moment = self.link.rng.lock().unwrap().millis(10..=60);
            sleep(moment).await;
            self.link.delay_response().await;
            result
        })
    }

    over_the_link! {
        fn create(key: Option<CreationKey>, batch: Batch) -> Result<Created, WriteError>;
        fn release(session: SessionId, epoch: Epoch) -> Result<(), WriteError>;
        fn hand_over(session: SessionId, epoch: Epoch, to: MemberId) -> Result<bool, WriteError>;
        fn agree(key: &'static str, proposal: String) -> Result<String, ReadError>;
        fn join(member: NewMember) -> Result<(), ReadError>;
        fn beat(beat: Beat) -> Result<Option<Vec<Member>>, ReadError>;
        fn remove_member(member: MemberId, beats: u64) -> Result<bool, ReadError>;
        fn put_snapshot(session: SessionId, snapshot: Snapshot) -> Result<(), WriteError>;
        fn compact(session: SessionId, until: Sequence, evidence: Evidence) -> Result<u64, WriteError>;
        fn put_summary(session: SessionId, sequence: Sequence, bytes: Bytes) -> Result<(), WriteError>;
        fn put_cursor(key: CursorKey, value: Option<Bytes>) -> Result<(), WriteError>;
        fn delete_session(session: SessionId, threads: Vec<ThreadId>) -> Result<bool, WriteError>;
        fn forget_requests(now: UnixMillis) -> Result<u64, WriteError>;
        fn database() -> Result<DatabaseInfo, ReadError>;
        fn head(session: SessionId) -> Result<Option<Head>, ReadError>;
        fn read(session: SessionId, after: Sequence, limit: usize) -> Result<Vec<StoredRecord>, ReadError>;
        fn marked(
            session: SessionId, kind: MarkKind, thread: Option<ThreadId>, after: Sequence, limit: usize
        ) -> Result<Vec<StoredRecord>, ReadError>;
        fn content(session: SessionId, digest: Digest) -> Result<Option<Bytes>, ReadError>;
        fn snapshot(session: SessionId) -> Result<Option<Snapshot>, ReadError>;
        fn request(session: SessionId, key: RequestKey) -> Result<Option<RequestRecord>, ReadError>;
        fn requests(
            session: SessionId, after: Option<RequestKey>, limit: usize
        ) -> Result<Vec<RequestRecord>, ReadError>;
        fn creation(creator: String, request_id: String) -> Result<Option<Creation>, ReadError>;
        fn session_of(thread: ThreadId) -> Result<Option<SessionId>, ReadError>;
        fn sessions(after: Option<SessionId>, limit: usize) -> Result<Vec<SessionId>, ReadError>;
        fn summaries(before: Option<SessionId>, limit: usize) -> Result<Vec<SessionEntry>, ReadError>;
        fn due_before(time: UnixMillis, after: Option<Due>, limit: usize) -> Result<Vec<Due>, ReadError>;
        fn transcript(query: TranscriptQuery) -> Result<Vec<StoredEntry>, ReadError>;
        fn transcript_tail(query: TranscriptQuery, count: usize) -> Result<u64, ReadError>;
        fn transcript_text(session: SessionId, digest: Digest) -> Result<Option<LongText>, ReadError>;
        fn cursor(key: CursorKey) -> Result<Option<Bytes>, ReadError>;
    }
}
