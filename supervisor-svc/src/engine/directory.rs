//! Lookup of sessions. The directory returns a handle to the session's actor in this process, or says which other
//! supervisor owns the session.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use supervisor_log::{
    codec::record,
    store::{self, Content, Created, CreationKey, EventStore, MemberId},
};
use tokio::time::timeout;

use super::{
    activate::{self, Loaded},
    actor::Actor,
    append::due,
    deletions,
    error::Failure,
    handle::Handle,
    message::{Origin, Remember},
    passivate,
    quota::ContentQuota,
    shared::{EngineConfig, Shared},
    stored_requests::Page,
};
use crate::{
    clock::Clock,
    domain::{
        event::{Event, Recorded, SessionEvent},
        evolve,
        ids::{Epoch, Sequence, SessionId, ThreadId},
        rejection::Rejection,
        state::session::Session,
        time::UnixMillis,
    },
    prices::PriceList,
};

/// The time limit for writing the summaries of all loaded sessions at shutdown. It is shorter than the time between the
/// end of the drain and the end of the process.
const SUMMARIES_WITHIN: Duration = Duration::from_secs(1);

/// The maximum number of summaries that are written concurrently.
const SUMMARIES_AT_ONCE: usize = 64;

/// The sessions of this process, loaded on demand. Cheap to clone; all clones share the same sessions.
#[derive(Clone)]
pub struct Directory {
    shared: Arc<Shared>,
}

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
    pub fn new(config: EngineConfig) -> Self {
        Self {
            shared: Arc::new(Shared::new(config)),
        }
    }

    /// Returns the event store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn EventStore> {
        &self.shared.config.store
    }

    /// Returns the source of the current time and of new ids.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.config.clock
    }

    /// Returns the prices of models.
    #[must_use]
    pub fn prices(&self) -> &PriceList {
        &self.shared.config.prices
    }

    /// Waits until the outcome of a write is unknown. The process must then stop and replay its log.
    pub async fn outcome_unknown(&self) {
        self.shared.outcome_unknown.cancelled().await;
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns a handle to a session. Loads the session if necessary.
    ///
    /// # Errors
    /// [`Failure::SessionNotFound`], [`Failure::Elsewhere`], or the error of loading the session.
    pub async fn session(&self, id: SessionId) -> Result<Handle, Failure> {
        // If the actor has ended (fenced off, session deleted, store stopped), its entry is removed and the session
        // is loaded again.
        for _ in 0..2 {
            let look_up = self.shared.actors.look_up(id);
            let handle = match look_up.started() {
                Some(handle) => handle,
                None => self.start(id).await?,
            };
            if handle.is_leaving() {
                handle.settled().await;
            }
            if !handle.has_ended() {
                return Ok(handle);
            }
            look_up.forget();
        }
        Err(Failure::moved(id))
    }

    /// Returns a handle to the session of a thread; `None` if no session has the thread.
    ///
    /// # Errors
    /// The errors of [`Self::session`].
    pub async fn session_of(&self, thread: ThreadId) -> Result<Option<Handle>, Failure> {
        match self.store().session_of(thread).await? {
            Some(id) => self.session(id).await.map(Some),
            None => Ok(None),
        }
    }

    /// Creates a session, or returns the session that the same request created before.
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
        if self.shared.places.is_leaving() {
            return Err(Failure::moved(new.id));
        }
        let hash = new.key.as_ref().map(|key| (key.request_id.clone(), key.hash));
        let epoch = Epoch::new(1);
        ContentQuota::new(0, self.shared.config.session_content_bytes).check(&new.contents)?;
        let content_bytes = new.contents.iter().map(|content| content.bytes.len() as u64).sum();
        let (session, batch) = first_batch(&new, epoch, self.clock().now())?;
        let (id, key, store) = (new.id, new.key, Arc::clone(self.store()));
        // Uses the session's entry, so that a concurrent caller waits for the actor instead of loading the session
        // and fencing the actor off.
        let look_up = self.shared.actors.look_up(id);
        let made = look_up.get_or_start(|| async {
            let created = store.create(key, batch).await;
            match created.map_err(|error| CreateError::Failed(error.into()))? {
                Created::New => {
                    let loaded = Loaded {
                        session,
                        epoch,
                        requests: Page::default(),
                        snapshot: Sequence::ZERO,
                        content_bytes,
                    };
                    Ok(Actor::start(&self.shared, loaded))
                }
                Created::Existing { session, hash } => Err(CreateError::Existing { session, hash }),
            }
        });
        let error = match made.await {
            Ok(handle) => {
                for subscriber in self.shared.config.feed.subscribers() {
                    subscriber.created(id);
                }
                return Ok(handle);
            }
            Err(error) => error,
        };
        match (error, hash) {
            (CreateError::Failed(failure), _) => Err(failure),
            (CreateError::Existing { hash: earlier, .. }, Some((request_id, hash))) if hash != earlier => {
                Err(Rejection::RequestIdReused(request_id).into())
            }
            (CreateError::Existing { session, .. }, _) => self.session(session).await,
        }
    }

    /// Returns the session that the same request created before.
    ///
    /// # Errors
    /// REQUEST_ID_REUSED if the earlier request had another body; otherwise as for [`Self::session`].
    pub async fn created_before(&self, key: &CreationKey) -> Result<Option<Handle>, Failure> {
        let creation = self
            .store()
            .creation(key.creator.clone(), key.request_id.clone())
            .await?;
        match creation {
            Some(creation) if creation.expires <= key.now => Ok(None),
            Some(creation) if creation.hash != key.hash => {
                Err(Rejection::RequestIdReused(key.request_id.clone()).into())
            }
            Some(creation) => self.session(creation.session).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the number of sessions in memory.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.shared.actors.len()
    }

    /// Returns the present states of all sessions in memory.
    pub fn states(&self) -> Vec<Arc<Session>> {
        self.shared.actors.states()
    }

    /// Returns the present state of a session in memory, without keeping it there.
    pub fn peek(&self, id: SessionId) -> Option<Arc<Session>> {
        self.shared.actors.peek(id)
    }

    /// Writes the summaries of all sessions in memory within the time limit. The next start lists these sessions
    /// without loading them.
    pub async fn store_summaries(&self) {
        let loaded = self.shared.actors.sessions();
        let states: Vec<Arc<Session>> = loaded.into_iter().filter_map(|id| self.peek(id)).collect();
        let stored = stream::iter(states).for_each_concurrent(SUMMARIES_AT_ONCE, |session| async move {
            passivate::store_summary(&self.shared.config, &session).await;
        });
        if timeout(SUMMARIES_WITHIN, stored).await.is_err() {
            tracing::info!("summaries incomplete; listings load the other sessions");
        }
    }

    /// Deletes a closed session and all its data. A retry of a successful deletion succeeds.
    ///
    /// # Errors
    /// [`Failure::SessionNotFound`]; a rejection if the session is open or the request id was used for another request;
    /// otherwise the store's error.
    pub async fn delete(&self, id: SessionId, remember: Option<&Remember>) -> Result<(), Failure> {
        let store = self.store().as_ref();
        let now = self.clock().now();
        let was_deleted_before = match remember {
            Some(remember) => deletions::recall(store, remember, now).await?,
            None => false,
        };
        let session = match self.session(id).await {
            Err(Failure::SessionNotFound(_)) if was_deleted_before => return Ok(()),
            found => found?,
        };
        if !session.state().closed {
            return Err(deletions::still_open(id).into());
        }
        if let Some(remember) = remember {
            self.shared.deletions.remember(store, remember, now).await?;
        }
        session.delete().await
    }

    /// Gives a session to another supervisor. The session's actor here ends when the actor's last write is durable.
    ///
    /// # Errors
    /// The errors of [`Self::session`], or the store's error; the session then stays here.
    pub async fn hand_over(&self, id: SessionId, to: MemberId) -> Result<(), Failure> {
        self.session(id).await?.hand_over(to).await?;
        self.shared.places.put(id, to);
        Ok(())
    }

    /// Returns the sessions in memory.
    #[must_use]
    pub fn sessions_in_memory(&self) -> Vec<SessionId> {
        self.shared.actors.sessions()
    }

    /// Loads and creates no more sessions, because this supervisor leaves.
    pub fn stop_loading(&self) {
        self.shared.places.leave();
    }

    /// Returns the other supervisor that is known to own a session. The information may be out of date.
    #[must_use]
    pub fn known_owner(&self, id: SessionId) -> Option<MemberId> {
        self.shared.places.owner(id)
    }

    /// Forgets that a supervisor owns a session, so that the next look-up asks the log.
    pub fn forget_owner(&self, id: SessionId, owner: MemberId) {
        self.shared.places.forget(id, owner);
    }

    /// Activates the due sessions of members that have been removed.
    pub fn activate_sessions_of_removed(&self, gone: &[MemberId]) {
        self.shared.places.forget_members(gone);
        self.shared.orphans.notify_one();
    }

    /// Loads a session in a separate task: otherwise callers whose deadlines are shorter than the loading would restart
    /// the loading again and again, and it would never end.
    async fn start(&self, id: SessionId) -> Result<Handle, Failure> {
        // A supervisor that leaves still waits for a load that has begun, and then hands the session over.
        let owner = self.known_owner(id);
        if owner.is_some() {
            return Err(Failure::Elsewhere { session: id, owner });
        }
        let directory = self.clone();
        let started = tokio::spawn(async move {
            let look_up = directory.shared.actors.look_up(id);
            look_up.get_or_start(|| directory.load(id)).await
        });
        started.await.unwrap_or_else(|_| Err(Failure::moved(id)))
    }

    async fn load(&self, id: SessionId) -> Result<Handle, Failure> {
        let owner = self.known_owner(id);
        if owner.is_some() || self.shared.places.is_leaving() {
            return Err(Failure::Elsewhere { session: id, owner });
        }
        match activate::load(self.store().as_ref(), id).await {
            Ok(loaded) => Ok(Actor::start(&self.shared, loaded)),
            Err(failure) => {
                if let Failure::Elsewhere { owner: Some(owner), .. } = failure {
                    self.shared.places.put(id, owner);
                }
                Err(failure)
            }
        }
    }
}

/// The reason why a session was not created.
enum CreateError {
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
        entries: Vec::new(),
        new_threads,
        requests: Vec::new(),
        due: due(&session),
    };
    Ok((session, batch))
}
