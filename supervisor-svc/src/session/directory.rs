//! Finding the session that a call is about. The directory answers with a handle to the session's actor in this process; a
//! replica that does not own a session would forward from here, and nowhere else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use svc_kit::thread_token::TokenKeys;
use tokio::{
    sync::{Notify, OnceCell},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use troupe_proto::supervisor::v1 as pb;

use super::{
    actor::Actor,
    batch::due,
    deletions::Deletions,
    denials::Denials,
    failure::Failure,
    handle::Handle,
    heard::HeardDecisions,
    load::{self, Loaded},
    message::Origin,
    news::News,
    remembered::Requests,
    room::ContentRoom,
    upkeep::{self, UpkeepLimits},
};
use crate::{
    clock::Clock,
    domain::{
        content::ContentRef,
        event::{Event, Recorded, SessionEvent},
        evolve,
        ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
        rate::EventRate,
        refusal::Refusal,
        session::Session,
        status::StatusKind,
        thread::Thread,
        time::UnixMillis,
    },
    measures::Measures,
    notify::Webhooks,
    runner_hub::{Need, RunnerHub},
    store::{self, Content, Created, CreationKey, EventStore},
    watch::{OutputBoard, TelemetryBoard},
    wire::{self, View, record},
};

/// What every session of this process shares.
pub struct Context {
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// Where the time of day and new ids come from.
    pub clock: Clock,
    /// Where threads are executed.
    pub runners: RunnerHub,
    /// Mints and verifies the threads' tokens.
    pub keys: Arc<TokenKeys>,
    /// The latest values about running threads.
    pub telemetry: TelemetryBoard,
    /// Refused tool calls on their way to the log.
    pub denials: Denials,
    /// Which decisions of operators on tool calls were heard.
    pub heard: HeardDecisions,
    /// What running threads write.
    pub output: OutputBoard,
    /// Where agents' tools reach this service, as a URL; known once the service listens.
    pub public_url: OnceLock<String>,
    /// Sends notifications to whoever a session names.
    pub webhooks: Webhooks,
    /// Cancelled when the outcome of a write is unknown: the process must end and replay.
    pub fatal: CancellationToken,
    /// When sessions are put away, and what is kept of them.
    pub upkeep: UpkeepLimits,
    /// How many bytes of content a session may hold.
    pub session_content_bytes: u64,
    /// How many events a thread may cause.
    pub event_rate: EventRate,
    /// Which sessions changed.
    pub news: News,
    /// Which sessions were deleted lately.
    pub deletions: Deletions,
    /// What is measured of sessions.
    pub measures: Measures,
    /// Told when a session must be woken or removed at some time and will not see to that itself.
    pub due: Notify,
}

/// How long the summaries of all loaded sessions may take at the service's end: less than lies between the end of its drain
/// and its own.
const SUMMARIES_WITHIN: Duration = Duration::from_secs(1);

/// How many of them are written at once.
const SUMMARIES_AT_ONCE: usize = 64;

impl Context {
    /// A thread as clients see it: what the log says, the latest telemetry, and whether a runner is there for it.
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

    /// A content that a session refers to, so it must be there.
    ///
    /// # Errors
    /// What reading the store met; [`Failure::Corrupt`] if the content is missing.
    pub async fn content(&self, session: SessionId, digest: Digest) -> Result<Bytes, Failure> {
        let bytes = self.store.content(session, digest).await?;
        bytes.ok_or_else(|| Failure::Corrupt(format!("content {digest} is missing")))
    }

    /// Likewise, as the message that it encodes.
    ///
    /// # Errors
    /// As [`Self::content`]; [`Failure::Corrupt`] if it is no such message.
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

/// Where the way to a session's actor stands, or will: shared by those who wait for the actor.
type Place = Arc<OnceCell<Handle>>;

/// A session that is to be created: its first events, decided by the caller.
#[derive(Debug)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// SessionOpened, and the root's ThreadSpawned.
    pub events: Vec<Event>,
    /// Content that they refer to.
    pub contents: Vec<Content>,
    /// For whom.
    pub origin: Origin,
    /// How to recognise a retry.
    pub key: Option<CreationKey>,
}

impl Directory {
    /// A directory with nothing loaded.
    #[must_use]
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            loaded: Arc::new(Mutex::new(HashMap::new())),
        }
    }

    /// What every session shares.
    #[must_use]
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The way to a session; loads it if need be.
    ///
    /// # Errors
    /// [`Failure::SessionNotFound`], or what loading it met.
    pub async fn session(&self, id: SessionId) -> Result<Handle, Failure> {
        // An actor that ended (fenced off, its session deleted, its store stopped) is forgotten, and the session loaded anew.
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

    /// The way to the session of a thread.
    ///
    /// # Errors
    /// As for [`Self::session`]; `None` if no session has the thread.
    pub async fn session_of(&self, thread: ThreadId) -> Result<Option<Handle>, Failure> {
        match self.context.store.session_of(thread).await? {
            Some(id) => self.session(id).await.map(Some),
            None => Ok(None),
        }
    }

    /// Creates a session, or finds the one that the same request created before.
    ///
    /// # Errors
    /// [`Failure`]; REQUEST_ID_REUSED if the earlier request had another body.
    pub async fn create(&self, new: NewSession) -> Result<Handle, Failure> {
        let directory = self.clone();
        // A task of its own: a client that hangs up must leave neither the write half awaited nor the session without its
        // actor, which nobody would look for before the next start.
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
        // In the session's own place: whoever hears of the session before its actor stands waits for that actor, instead
        // of loading the session and fencing the actor off.
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

    /// The session that the same request created before.
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

    /// How many sessions are in memory.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.lock().len()
    }

    /// The present states of all sessions in memory.
    pub fn states(&self) -> Vec<Arc<Session>> {
        let loaded = self.lock();
        let handles = loaded.values().filter_map(|place| place.get());
        handles.map(Handle::state).collect()
    }

    /// The present state of a session that is in memory, without keeping it there.
    pub fn peek(&self, id: SessionId) -> Option<Arc<Session>> {
        let loaded = self.lock();
        let handle = loaded.get(&id)?.get()?;
        (!handle.control.is_closed()).then(|| handle.state())
    }

    /// Keeps the summaries of all sessions in memory, as far as there is time: the next start lists them without loading them.
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

    /// Gives an actor's place up, if `is_idle` and nobody else has a way to the actor or is about to get one. All of it is
    /// decided at one moment, in which nobody can look the session up.
    pub(super) fn release(&self, handle: &mut Handle, is_idle: impl FnOnce() -> bool) -> bool {
        let mut loaded = self.lock();
        if !is_place_of(loaded.get(&handle.id), handle) {
            return handle.is_alone() && is_idle();
        }
        let Some(cell) = loaded.remove(&handle.id) else {
            return false;
        };
        match Arc::try_unwrap(cell) {
            // Somebody is about to take the way to the actor from it.
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

    /// Takes an actor's place from it, whoever has a way to it.
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
        // The map is whole after any panic: every change to it is one call.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is the place of that handle's actor.
fn is_place_of(place: Option<&Place>, handle: &Handle) -> bool {
    place
        .and_then(|place| place.get())
        .is_some_and(|present| present.is_same(handle))
}

/// Why a session was not made.
enum NotMade {
    /// The same request id made this one before.
    Existing {
        session: SessionId,
        hash: store::RequestHash,
    },
    /// It could not be.
    Failed(Failure),
}

/// The first append of a session and the state after it.
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
            circumstances: new.origin.circumstances(),
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
