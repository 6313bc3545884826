//! Lookup of sessions. The directory returns a handle to the session's actor in this process. A replica that does not
//! own a session would forward calls here, and only here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use supervisor_log::{
    codec::record,
    store::{self, Content, Created, CreationKey, EventStore},
};
use svc_kit::thread_token::TokenKeys;
use tokio::{
    sync::{Notify, OnceCell},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use troupe_proto::supervisor::v1 as pb;

use super::{activate::{self, Loaded}, actor::Actor, append::due, deletions::Deletions, error::Failure, handle::Handle, message::Origin, passivate::{self, UpkeepLimits}, quota::ContentRoom, requests::Requests};
use crate::{clock::Clock, convert::{self, View}, domain::{content::ContentRef, event::{Event, Recorded, SessionEvent}, evolve, ids::{Digest, Epoch, Sequence, SessionId, ThreadId}, rejection::Refusal, rules::rate::EventRate, state::{session::Session, thread::Thread}, status::StatusKind, time::UnixMillis}, projections::{changes::News, metrics::Measures, webhooks::Webhooks}, runners::{Need, RunnerHub, output::OutputBoard, telemetry::TelemetryBoard}, use_cases::{claims::HeardDecisions, denials::Denials}};

/// Services shared by all sessions of this process.
pub struct Context {
    /// The event store.
    pub store: Arc<dyn EventStore>,
    /// The source of the current time and of new ids.
    pub clock: Clock,
    /// The runners that execute threads.
    pub runners: RunnerHub,
    /// Mints and verifies the threads' tokens.
    pub keys: Arc<TokenKeys>,
    /// The latest telemetry of running threads.
    pub telemetry: TelemetryBoard,
    /// Refused tool calls that are not written yet.
    pub denials: Denials,
    /// Operators' decisions on tool calls that were returned to a call.
    pub heard: HeardDecisions,
    /// The output of running threads.
    pub output: OutputBoard,
    /// The URL at which agents' tools reach this service. Set once the service listens.
    pub public_url: OnceLock<String>,
    /// Sends notifications to the sessions' webhooks.
    pub webhooks: Webhooks,
    /// Cancelled when the outcome of a write is unknown: the process must stop and replay its log.
    pub fatal: CancellationToken,
    /// Limits of passivation, snapshots and compaction.
    pub upkeep: UpkeepLimits,
    /// The maximum content of a session, in bytes.
    pub session_content_bytes: u64,
    /// The maximum rate of events of a thread.
    pub event_rate: EventRate,
    /// Notifies followers of changed sessions.
    pub news: News,
    /// The record of recent deletions.
    pub deletions: Deletions,
    /// The metrics of sessions.
    pub measures: Measures,
    /// Notified when a session that leaves memory must be activated or deleted at some time.
    pub due: Notify,
}

/// The time limit for writing the summaries of all loaded sessions at shutdown. It is shorter than the time between the
/// end of the drain and the end of the process.
const SUMMARIES_WITHIN: Duration = Duration::from_secs(1);

/// The maximum number of summaries that are written concurrently.
const SUMMARIES_AT_ONCE: usize = 64;

impl Context {
    /// Returns a thread as clients see it: its logged state, the latest telemetry and the availability of a runner.
    #[must_use]
    pub fn show(&self, session: &Session, thread: &Thread, view: View) -> pb::Thread {
        let mut shown = wire::thread::thread(session, thread, view);
        wire::thread::add_telemetry(&mut shown, self.telemetry.of(session.id, thread.id).as_deref());
        view.sight.tool_use(&mut shown.last_tool);
        let waits_for_runner = thread.status.kind() == StatusKind::PendingInit && thread.turn.is_undispatched();
        if waits_for_runner && let Some(reason) = self.runners.lacks_one_for(&Need::of(session, thread)) {
            shown.conditions.push(pb::Condition {
                kind: pb::ConditionKind::NoRunner.into(),
                since: shown.status.as_ref().and_then(|status| status.since),
                reason: reason.to_owned(),
            });
        }
        shown
    }

    /// Reads a content that a session refers to, and which must therefore exist.
    ///
    /// # Errors
    /// The store's read error; [`Failure::Corrupt`] if the content is missing.
    pub async fn content(&self, session: SessionId, digest: Digest) -> Result<Bytes, Failure> {
        let bytes = self.store.content(session, digest).await?;
        bytes.ok_or_else(|| Failure::Corrupt(format!("content {digest} is missing")))
    }

    /// Reads a content and decodes it as a message.
    ///
    /// # Errors
    /// The errors of [`Self::content`]; [`Failure::Corrupt`] if the content does not decode.
    pub async fn message<M: prost::Message + Default>(
        &self,
        session: SessionId,
        content: &ContentRef,
    ) -> Result<M, Failure> {
        let bytes = self.content(session, content.digest).await?;
        M::decode(bytes).map_err(|error| Failure::Corrupt(format!("content {}: {error}", content.digest)))
    }
}

/// The sessions of this process, loaded on demand.
#[derive(Clone)]
pub struct Directory {
    context: Arc<Context>,
    // Held for look-ups only, never across an await.
    loaded: Arc<Mutex<HashMap<SessionId, Place>>>,
}

/// The slot for the handle to a session's actor, shared by the callers that wait for the actor to start.
type Place = Arc<OnceCell<Handle>>;

/// A session to create, with its first events, which the caller decided.
#[derive(Debug)]
pub struct NewSession {
    /// The session's id.
    pub id: SessionId,
    /// SessionOpened, and the root's ThreadSpawned.
    pub events: Vec<Event>,
    /// The contents that the events refer to.
    pub contents: Vec<Content>,
    /// The origin of the request.
    pub origin: Origin,
    /// The key by which a retry is recognised.
    pub key: Option<CreationKey>,
}

impl Directory {
    /// Creates a directory without loaded sessions.
    #[must_use]
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            loaded: Arc::new(Mutex::new(HashMap::new())),
        }
    }

    /// Returns the shared services.
    #[must_use]
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns a handle to a session. Loads the session if necessary.
    ///
    /// # Errors
    /// [`Failure::SessionNotFound`], or the error of loading the session.
    pub async fn session(&self, id: SessionId) -> Result<Handle, Failure> {
        // If the actor has ended (fenced off, session deleted, store stopped), its entry is removed and the session
        // loaded again.
        for _ in 0..2 {
            let cell = self.cell(id);
            let found = cell.get_or_try_init(|| self.load(id)).await.cloned();
            match found {
                Ok(handle) if handle.control.is_closed() => self.forget(id, &cell),
                Ok(handle) => return Ok(handle),
                Err(failure) => {
                    self.forget(id, &cell);
                    return Err(failure);
                }
            }
        }
        Err(Failure::Gone)
    }

    /// Returns a handle to the session of a thread; `None` if no session has the thread.
    ///
    /// # Errors
    /// The errors of [`Self::session`].
    pub async fn session_of(&self, thread: ThreadId) -> Result<Option<Handle>, Failure> {
        match self.context.store.session_of(thread).await? {
            Some(id) => self.session(id).await.map(Some),
            None => Ok(None),
        }
    }

    /// Creates a session, or returns the one that the same request created before.
    ///
    /// # Errors
    /// [`Failure`]; REQUEST_ID_REUSED if the earlier request had another body.
    pub async fn create(&self, new: NewSession) -> Result<Handle, Failure> {
        let directory = self.clone();
        // Runs as a separate task. A client that disconnects must not interrupt the write, nor leave the session
        // without an actor until the next start.
        let made = tokio::spawn(async move { directory.make(new).await });
        made.await.unwrap_or(Err(Failure::OutcomeUnknown))
    }

    async fn make(&self, new: NewSession) -> Result<Handle, Failure> {
        let hash = new.key.as_ref().map(|key| (key.request_id.clone(), key.hash));
        let epoch = Epoch::new(1);
        ContentRoom::new(0, self.context.session_content_bytes).check(&new.contents)?;
        let content_bytes = new.contents.iter().map(|content| content.bytes.len() as u64).sum();
        let (session, batch) = first_batch(&new, epoch, self.context.clock.now())?;
        let (id, key, store) = (new.id, new.key, Arc::clone(&self.context.store));
        // Uses the session's directory entry. A concurrent caller waits for the actor instead of loading the session
        // and fencing the actor off.
        let cell = self.cell(id);
        let made = cell.get_or_try_init(|| async {
            let created = store.create(key, batch).await;
            match created.map_err(|error| NotMade::Failed(error.into()))? {
                Created::New => {
                    let loaded = Loaded {
                        session,
                        epoch,
                        requests: Requests::default(),
                        snapshot: Sequence::ZERO,
                        content_bytes,
                    };
                    Ok(Actor::start(self, loaded))
                }
                Created::Existing { session, hash } => Err(NotMade::Existing { session, hash }),
            }
        });
        let not_made = match made.await {
            Ok(handle) => {
                self.context.news.tell(id);
                return Ok(handle.clone());
            }
            Err(not_made) => not_made,
        };
        self.forget(id, &cell);
        match (not_made, hash) {
            (NotMade::Failed(failure), _) => Err(failure),
            (NotMade::Existing { hash: earlier, .. }, Some((request_id, hash))) if hash != earlier => {
                Err(Refusal::RequestIdReused(request_id).into())
            }
            (NotMade::Existing { session, .. }, _) => self.session(session).await,
        }
    }

    /// Returns the session that the same request created before.
    ///
    /// # Errors
    /// REQUEST_ID_REUSED if the earlier request had another body; otherwise as for [`Self::session`].
    pub async fn created_before(&self, key: &CreationKey) -> Result<Option<Handle>, Failure> {
        let creation = self
            .context
            .store
            .creation(key.creator.clone(), key.request_id.clone())
            .await?;
        match creation {
            Some(creation) if creation.expires <= key.now => Ok(None),
            Some(creation) if creation.hash != key.hash => Err(Refusal::RequestIdReused(key.request_id.clone()).into()),
            Some(creation) => self.session(creation.session).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the number of sessions in memory.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.lock().len()
    }

    /// Returns the present states of all sessions in memory.
    pub fn states(&self) -> Vec<Arc<Session>> {
        let loaded = self.lock();
        let handles = loaded.values().filter_map(|place| place.get());
        handles.map(Handle::state).collect()
    }

    /// Returns the present state of a session in memory, without keeping it there.
    pub fn peek(&self, id: SessionId) -> Option<Arc<Session>> {
        let loaded = self.lock();
        let handle = loaded.get(&id)?.get()?;
        (!handle.control.is_closed()).then(|| handle.state())
    }

    /// Writes the summaries of all sessions in memory within the time limit. The next start lists these sessions
    /// without loading them.
    pub async fn keep_summaries(&self) {
        let loaded: Vec<SessionId> = self.lock().keys().copied().collect();
        let states: Vec<Arc<Session>> = loaded.into_iter().filter_map(|id| self.peek(id)).collect();
        let kept = stream::iter(states).for_each_concurrent(SUMMARIES_AT_ONCE, |session| {
            let store = Arc::clone(&self.context.store);
            async move { upkeep::keep_summary(store.as_ref(), &session).await }
        });
        if timeout(SUMMARIES_WITHIN, kept).await.is_err() {
            tracing::info!("not all sessions are summed up; those that are not are loaded when they are listed");
        }
    }

    async fn load(&self, id: SessionId) -> Result<Handle, Failure> {
        let loaded = load::load(self.context.store.as_ref(), id).await?;
        Ok(Actor::start(self, loaded))
    }

    /// Removes an actor's entry if `is_idle` and there are no other handles, existing or in the making. The check and
    /// the removal happen under one lock, so no caller can look the session up in between.
    pub(super) fn release(&self, handle: &mut Handle, is_idle: impl FnOnce() -> bool) -> bool {
        let mut loaded = self.lock();
        if !is_place_of(loaded.get(&handle.id), handle) {
            return handle.is_alone() && is_idle();
        }
        let Some(cell) = loaded.remove(&handle.id) else {
            return false;
        };
        match Arc::try_unwrap(cell) {
            // A caller is about to take the handle from the cell.
            Err(cell) => {
                loaded.insert(handle.id, cell);
                false
            }
            Ok(cell) => {
                drop(cell);
                let is_free = handle.is_alone() && is_idle();
                if !is_free {
                    loaded.insert(handle.id, Arc::new(OnceCell::new_with(Some(handle.clone()))));
                }
                is_free
            }
        }
    }

    /// Removes an actor's entry even if there are other handles.
    pub(super) fn remove(&self, handle: &Handle) {
        let mut loaded = self.lock();
        if is_place_of(loaded.get(&handle.id), handle) {
            loaded.remove(&handle.id);
        }
    }

    fn cell(&self, id: SessionId) -> Place {
        Arc::clone(self.lock().entry(id).or_default())
    }

    fn forget(&self, id: SessionId, cell: &Place) {
        let mut loaded = self.lock();
        if loaded.get(&id).is_some_and(|present| Arc::ptr_eq(present, cell)) {
            loaded.remove(&id);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Place>> {
        // Each change to the map is a single call, so the map stays consistent after a panic.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether this is the entry of that handle's actor.
fn is_place_of(place: Option<&Place>, handle: &Handle) -> bool {
    place
        .and_then(|place| place.get())
        .is_some_and(|present| present.is_same(handle))
}

/// The reason why a session was not created.
enum NotMade {
    /// The same request id created this session before.
    Existing {
        session: SessionId,
        hash: store::RequestHash,
    },
    /// The creation failed.
    Failed(Failure),
}

/// Builds the first append of a session and the state after it.
fn first_batch(new: &NewSession, epoch: Epoch, now: UnixMillis) -> Result<(Session, store::Batch), Failure> {
    let mut session: Option<Session> = None;
    let mut records = Vec::new();
    let mut new_threads = Vec::new();
    let mut sequence = Sequence::ZERO;
    for event in &new.events {
        sequence = sequence.next();
        let recorded = Recorded {
            sequence,
            time: now,
            metadata: new.origin.metadata(),
            event: event.clone(),
        };
        records.push(store::NewRecord {
            sequence,
            bytes: record::encode_record(new.id, &recorded)?,
        });
        match (&mut session, event) {
            (none @ None, Event::Session(SessionEvent::Opened(_))) => *none = evolve::open(new.id, &recorded),
            (Some(session), _) => evolve::evolve(session, &recorded),
            (None, _) => {}
        }
        new_threads.extend(event.thread());
    }
    let session = session.ok_or_else(|| Failure::TooLarge(String::from("a session's first event must open it")))?;
    let batch = store::Batch {
        session: new.id,
        expected: Sequence::ZERO,
        epoch,
        records,
        contents: new.contents.clone(),
        marks: Vec::new(),
        new_threads,
        requests: Vec::new(),
        due: due(&session),
    };
    Ok((session, batch))
}
