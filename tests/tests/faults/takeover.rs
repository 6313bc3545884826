//! A supervisor takes over a session while another supervisor still writes to it. No write that was acknowledged before
//! the takeover is lost.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use supervisor_core::{
    ids::{Digest, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::TranscriptSource,
};
use supervisor_log::store::{
    Batch, Claim, Created, Creation, CreationKey, CursorKey, DatabaseInfo, Due, EventStore, Evidence, Head, LongText,
    MarkKind, MemoryStore, NewEntry, PendingEntries, ReadError, RequestKey, RequestRecord, SessionEntry, Snapshot,
    StoredEntry, StoredRecord, TranscriptQuery, WriteError, limits::MAX_PAGE,
};
use supervisor_svc::{Config, PeerConnector, RegistryClient, Supervisor, Surroundings, UpkeepLimits, clock::Clock};
use svc_kit::{
    auth::{Authenticator, Trust},
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tonic::Request;
use troupe_client::tls::ClientFiles;
use troupe_proto::{
    fault::reason_of,
    reason::Reason,
    supervisor::v1::{CreateSessionRequest, GetSessionRequest, SetThreadNoteRequest, Thread},
};
use troupe_tests::{client, tree::Tree, within};
use uuid::Uuid;

/// The store of the next owner. It delays the claim of a session until the test permits the claim.
struct Gated {
    store: Arc<MemoryStore>,
    /// Whether claims are forwarded.
    may_claim: watch::Sender<bool>,
    /// Whether the log has been read to its end.
    read_to_end: watch::Sender<bool>,
    /// Number of claims.
    claims: AtomicUsize,
    /// Whether pages of remembered requests after the first page are forwarded.
    may_restore: watch::Sender<bool>,
    /// Number of look-ups of remembered requests.
    look_ups: AtomicUsize,
}

impl Gated {
    fn over(store: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            may_claim: watch::Sender::new(false),
            read_to_end: watch::Sender::new(false),
            claims: AtomicUsize::new(0),
            may_restore: watch::Sender::new(false),
            look_ups: AtomicUsize::new(0),
        })
    }

    async fn was_read_to_end(&self) {
        let mut read_to_end = self.read_to_end.subscribe();
        within("the end of the log", read_to_end.wait_for(|end| *end))
            .await
            .unwrap();
    }
}

/// Defines methods that only forward to the inner store.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> BoxFuture<'_, $output> {
            self.store.$name($($argument),*)
        })*
    };
}

impl EventStore for Gated {
    fn log_id(&self) -> Uuid {
        self.store.log_id()
    }

    fn claim(&self, session: SessionId) -> BoxFuture<'_, Result<Claim, WriteError>> {
        Box::pin(async move {
            self.claims.fetch_add(1, Ordering::AcqRel);
            self.may_claim.subscribe().wait_for(|may| *may).await.unwrap();
            self.store.claim(session).await
        })
    }

    fn read(
        &self,
        session: SessionId,
        after: Sequence,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredRecord>, ReadError>> {
        Box::pin(async move {
            let page = self.store.read(session, after, limit).await;
            // A page that is not full is the last page.
            if page.as_ref().is_ok_and(|records| records.len() < limit) {
                self.read_to_end.send_replace(true);
            }
            page
        })
    }

    fn request(&self, session: SessionId, key: RequestKey) -> BoxFuture<'_, Result<Option<RequestRecord>, ReadError>> {
        self.look_ups.fetch_add(1, Ordering::AcqRel);
        self.store.request(session, key)
    }

    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RequestRecord>, ReadError>> {
        Box::pin(async move {
            if after.is_some() {
                self.may_restore.subscribe().wait_for(|may| *may).await.unwrap();
            }
            self.store.requests(session, after, limit).await
        })
    }

    forward! {
        fn create(key: Option<CreationKey>, batch: Batch) -> Result<Created, WriteError>;
        fn append(batch: Batch) -> Result<(), WriteError>;
        fn put_snapshot(session: SessionId, snapshot: Snapshot) -> Result<(), WriteError>;
        fn compact(session: SessionId, until: Sequence, evidence: Evidence) -> Result<u64, WriteError>;
        fn put_summary(session: SessionId, sequence: Sequence, bytes: Bytes) -> Result<(), WriteError>;
        fn put_cursor(key: CursorKey, value: Option<Bytes>) -> Result<(), WriteError>;
        fn delete_session(session: SessionId, threads: Vec<ThreadId>) -> Result<bool, WriteError>;
        fn forget_requests(now: UnixMillis) -> Result<u64, WriteError>;
        fn close() -> ();
        fn database() -> Result<DatabaseInfo, ReadError>;
        fn head(session: SessionId) -> Result<Option<Head>, ReadError>;
        fn marked(
            session: SessionId, kind: MarkKind, thread: Option<ThreadId>, after: Sequence, limit: usize
        ) -> Result<Vec<StoredRecord>, ReadError>;
        fn content(session: SessionId, digest: Digest) -> Result<Option<Bytes>, ReadError>;
        fn snapshot(session: SessionId) -> Result<Option<Snapshot>, ReadError>;
        fn creation(creator: String, request_id: String) -> Result<Option<Creation>, ReadError>;
        fn session_of(thread: ThreadId) -> Result<Option<SessionId>, ReadError>;
        fn sessions(after: Option<SessionId>, limit: usize) -> Result<Vec<SessionId>, ReadError>;
        fn summaries(before: Option<SessionId>, limit: usize) -> Result<Vec<SessionEntry>, ReadError>;
        fn due_before(time: UnixMillis, after: Option<Due>, limit: usize) -> Result<Vec<Due>, ReadError>;
        fn append_transcript(source: TranscriptSource, entries: Vec<NewEntry>, session_bytes: u64) -> PendingEntries;
        fn transcript(query: TranscriptQuery) -> Result<Vec<StoredEntry>, ReadError>;
        fn transcript_tail(query: TranscriptQuery, count: usize) -> Result<u64, ReadError>;
        fn transcript_text(session: SessionId, digest: Digest) -> Result<Option<LongText>, ReadError>;
        fn cursor(key: CursorKey) -> Result<Option<Bytes>, ReadError>;
    }
}

/// Starts a supervisor over a store. It runs until the test ends and never calls the registry.
async fn serve(store: Arc<dyn EventStore>, keys: &Path, upkeep: UpkeepLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let clock = Clock::system();
    let registry = RegistryClient::new("http://127.0.0.1:1", None, &ClientFiles::default(), clock.clone()).unwrap();
    let mut config = Config::new(keys.to_owned(), String::new());
    config.upkeep = upkeep;
    let surroundings = Surroundings {
        store,
        registry,
        peers: PeerConnector::new(ClientFiles::default(), None),
        clock,
    };
    let supervisor = Supervisor::over(surroundings, config).await.unwrap();
    let authenticator = Authenticator::new().trust(Trust::Loopback);
    let serving = supervisor.serve(listener, authenticator, ServeLimits::default(), Shutdown::new());
    tokio::spawn(async move { serving.await.unwrap() });
    address
}

/// A session of one supervisor that another supervisor is about to take over: the next owner has read the log and has
/// not claimed the session yet.
struct Takeover {
    /// The session, with a client of its owner.
    tree: Tree,
    gated: Arc<Gated>,
    next: client::Supervisor,
    /// The root in the response of the next owner.
    root: JoinHandle<Thread>,
    _keys: TempDir,
}

impl Takeover {
    async fn begin(upkeep: UpkeepLimits) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::new().unwrap());
        let gated = Gated::over(Arc::clone(&store));
        let present = serve(store, keys.path(), upkeep).await;
        let next = serve(Arc::<Gated>::clone(&gated), keys.path(), UpkeepLimits::default()).await;

        let tree = Tree::open(client::supervisor(present, None), CreateSessionRequest::default()).await;
        let next = client::supervisor(next, None);
        let seen_by_next = tree.by(next.clone());
        let root = tokio::spawn(async move { seen_by_next.thread(&seen_by_next.root).await });
        gated.was_read_to_end().await;
        Self {
            tree,
            gated,
            next,
            root,
            _keys: keys,
        }
    }

    /// Permits the claim and returns the root in the response of the next owner.
    async fn end(self) -> Thread {
        self.gated.may_claim.send_replace(true);
        self.root.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_until_takeover_are_in_the_session() {
    let takeover = Takeover::begin(UpkeepLimits::default()).await;
    takeover
        .tree
        .note(&takeover.tree.root, "written before the claim")
        .await;
    assert_eq!(takeover.end().await.thread_note, "written before the claim");
}

/// Loading a session continues even if all callers that wait for the session are cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impatient_callers_do_not_restart_a_takeover() {
    let takeover = Takeover::begin(UpkeepLimits::default()).await;
    takeover.root.abort();
    for _ in 0..3 {
        let mut request = Request::new(GetSessionRequest {
            session_id: takeover.tree.session.clone(),
        });
        request.set_timeout(Duration::from_millis(100));
        takeover.next.clone().get_session(request).await.unwrap_err();
    }
    takeover.gated.may_claim.send_replace(true);
    let request = GetSessionRequest {
        session_id: takeover.tree.session.clone(),
    };
    let mut next = takeover.next.clone();
    within("the session", next.get_session(request)).await.unwrap();
    assert_eq!(takeover.gated.claims.load(Ordering::Acquire), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_includes_changes_before_compaction() {
    let soon = UpkeepLimits {
        snapshot_every: 1,
        compact_above: 1,
        keep_before_snapshot: 0,
        ..UpkeepLimits::default()
    };
    let takeover = Takeover::begin(soon).await;
    let read = takeover.tree.head().await;
    takeover.tree.compact_beyond(read).await;
    let root = takeover.tree.thread(&takeover.tree.root).await;
    assert_eq!(takeover.end().await.thread_note, root.thread_note);
}

/// The next owner responds before it has read all remembered requests, and still recognises every retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_recognised_while_requests_are_restored() {
    let takeover = Takeover::begin(UpkeepLimits::default()).await;
    let (mut present, mut next) = (takeover.tree.client(), takeover.next.clone());
    let (gated, root) = (Arc::clone(&takeover.gated), takeover.tree.root.clone());
    let note = |request_id: &str, text: &str| SetThreadNoteRequest {
        request_id: request_id.to_owned(),
        thread_id: root.clone(),
        thread_note: text.to_owned(),
        ..SetThreadNoteRequest::default()
    };
    // One request more than a page. Pages are in the order of the keys.
    for number in 0..=MAX_PAGE {
        let call = present.set_thread_note(note(&format!("{number:05}"), "a note"));
        within("the answer to a note", call).await.unwrap();
    }
    let last = format!("{MAX_PAGE:05}");
    takeover.tree.note(&root, "the present one").await;
    assert_eq!(takeover.end().await.thread_note, "the present one");

    for id in ["00000", &last] {
        let retried = next.set_thread_note(note(id, "a note")).await.unwrap().into_inner();
        assert_eq!(retried.thread.unwrap().thread_note, "the present one", "{id}");
        let reused = next.set_thread_note(note(id, "another note")).await.unwrap_err();
        assert_eq!(reason_of(&reused), Some(Reason::RequestIdReused), "{id}");
    }
    let new = next
        .set_thread_note(note("new", "a new one"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(new.thread.unwrap().thread_note, "a new one");
    assert!(gated.look_ups.load(Ordering::Acquire) > 0);

    gated.may_restore.send_replace(true);
    within("the last look-up", async {
        let mut before = 0;
        for number in 0.. {
            let made = gated.look_ups.load(Ordering::Acquire);
            if made == before {
                return;
            }
            before = made;
            let id = format!("restored-{number}");
            next.set_thread_note(note(&id, "a later one")).await.unwrap();
        }
    })
    .await;
    let retried = next.set_thread_note(note(&last, "a note")).await.unwrap().into_inner();
    assert_eq!(retried.thread.unwrap().thread_note, "a later one");
}
